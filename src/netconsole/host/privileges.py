"""Tests what this process may do on this host, before anything is started."""

from __future__ import annotations

from collections.abc import Iterable

from netconsole.base.errors import Unable
from netconsole.telemetry.request import ProbeRequest
from netconsole_collector.primitives.here import HERE

STATUS = "/proc/self/status"
# include/uapi/linux/capability.h
CAP_SYS_ADMIN = 21
CAP_PERFMON = 38
CAP_BPF = 39


def capabilities() -> int:
    """The effective capabilities of this process as a mask; 0 when they cannot be read."""
    try:
        lines = HERE.read(STATUS).decode("ascii", "replace").splitlines()
    except OSError:
        return 0
    for line in lines:
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def may_load(mask: int) -> bool:
    """Whether BPF tracing programs may be loaded. Before 5.8 this needs root, since then CAP_BPF and CAP_PERFMON."""
    has_both = mask >> CAP_BPF & 1 and mask >> CAP_PERFMON & 1
    return bool(mask >> CAP_SYS_ADMIN & 1 or has_both)


def require(requests: Iterable[ProbeRequest]) -> None:
    """Raises Unable when probes among these need privileges that this process lacks."""
    names = [request.name for request in requests if request.source == "bpf"]
    if names and not may_load(capabilities()):
        raise Unable(
            f"not root (CAP_BPF and CAP_PERFMON are needed for {', '.join(names)}): run netconsole with sudo;"
            " netconsole doctor says more"
        )
