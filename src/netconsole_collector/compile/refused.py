"""Why a probe cannot run here, as the worker and the compiler find out."""

from typing import Any, Dict, List, Optional

_PRIVILEGES_HELP = "run it as root (sudo), or with CAP_BPF and CAP_PERFMON"


class Refused(Exception):
    """The probe cannot run; ``state`` is failed or unsupported, the message one sentence, ``detail`` the full text."""

    def __init__(self, why: str, state: str = "failed", help: Optional[str] = None, detail: str = "") -> None:
        super().__init__(why)
        self.missing: List[Dict[str, Any]] = []  # programs that could not be attached, with what was tried
        self.state = state
        self.help = help
        self.detail = detail


def no_maps(why: str, is_forbidden: bool, memlock: bool, detail: str = "") -> Refused:
    """``is_forbidden``: the kernel said EPERM, which before 5.11 means a full limit of locked memory, too."""
    if is_forbidden and not memlock:
        why = "its maps do not fit the limit of locked memory, which could not be raised"
        return Refused(why, "unsupported", "ulimit -l unlimited, or CAP_SYS_RESOURCE", detail)
    if is_forbidden:
        return Refused("no permission to make BPF maps", "unsupported", _PRIVILEGES_HELP, detail)
    return Refused("a map could not be made: {}".format(why), detail=detail)
