"""The reasons why a probe cannot run here."""

from typing import Any, Dict, List, Optional

NO_PERMISSION = "no permission to make BPF maps"
NOT_LOADED = "the kernel module {} is not loaded"
BCC_HELP = "install the distribution's package: python3-bpfcc (Debian, Ubuntu), python3-bcc (Fedora, RHEL, SUSE)"
TRY_PLAIN = "the kernel refuses BTF-typed programs"
"""The reply to a load with "has_plain": whoever has compiled is to send plain programs (worker.py)."""
_PRIVILEGES_HELP = "run netconsole as root (sudo), or with CAP_BPF and CAP_PERFMON"


class ProbeRefused(Exception):
    """The probe cannot run. The message is one sentence. ``state`` is failed or unsupported.

    ``help`` is what the user can do, ``detail`` the whole text of the compiler or verifier.
    """

    def __init__(self, why: str, state: str = "failed", help: Optional[str] = None, detail: str = "") -> None:
        super().__init__(why)
        self.missing: List[Dict[str, Any]] = []
        """Programs that could not be attached, with what was tried."""
        self.state = state
        self.help = help
        self.detail = detail


def no_maps(why: str, is_forbidden: bool, memlock: bool, detail: str = "") -> ProbeRefused:
    """Maps cannot be made. ``is_forbidden``: the kernel returned EPERM.

    Before 5.11 EPERM also means that the limit of locked memory is reached.
    """
    if is_forbidden and not memlock:
        why = "the probe's maps need more locked memory than the limit allows, and the limit could not be raised"
        return ProbeRefused(
            why, "unsupported", "run ulimit -l unlimited first, or give netconsole CAP_SYS_RESOURCE", detail
        )
    if is_forbidden:
        return ProbeRefused(NO_PERMISSION, "unsupported", _PRIVILEGES_HELP, detail)
    return ProbeRefused("the kernel refused to make a map: {}".format(why), detail=detail)
