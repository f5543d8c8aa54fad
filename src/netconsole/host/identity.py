"""What this process may do on this host, tested before anything is started."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from pathlib import Path

from netconsole.base.errors import Unable
from netconsole.probes.request import ProbeRequest
from netconsole.telemetry.frames import Host

STATUS = Path("/proc/self/status")
HOST_NETNS, NAMED_NETNS = Path("/proc/1/ns/net"), Path("/run/netns")
"""As netconsole_collector.names.labels names them."""
# include/uapi/linux/capability.h
CAP_SYS_ADMIN = 21
CAP_PERFMON = 38
CAP_BPF = 39


def capabilities(status: Path = STATUS) -> int:
    """The effective capabilities of this process as a mask; 0 when they cannot be read."""
    try:
        lines = status.read_text("ascii", "replace").splitlines()
    except OSError:
        return 0
    for line in lines:
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def may_load(mask: int) -> bool:
    """Whether BPF tracing programs can be loaded: root before 5.8, CAP_BPF with CAP_PERFMON since."""
    has_both = mask >> CAP_BPF & 1 and mask >> CAP_PERFMON & 1
    return bool(mask >> CAP_SYS_ADMIN & 1 or has_both)


def describe() -> Host:
    """This host, for a session that has no collector to tell."""
    name = os.uname()
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        boot_id = ""
    try:
        system = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        system = "Linux"
    return Host(
        name=name.nodename, kernel=name.release, arch=name.machine, os=system, cpus=os.cpu_count() or 1, boot_id=boot_id
    )


def namespace_inode(name: str) -> int | None:
    """The inode of a network namespace by the name that figures have: ``host``, one of /run/netns, or the inode."""
    if name.isdecimal():
        return int(name)
    try:
        return (HOST_NETNS if name == "host" else NAMED_NETNS / Path(name).name).stat().st_ino
    except (OSError, ValueError):
        return None


def shows_module(name: str) -> bool:
    """Whether sysfs shows a kernel module: loaded, or built in with parameters of its own."""
    return Path("/sys/module", name).is_dir()


def require(requests: Iterable[ProbeRequest]) -> None:
    """Raises Unable when probes among these need privileges that this process has not."""
    names = [request.name for request in requests if request.source == "bpf"]
    if names and not may_load(capabilities()):
        raise Unable(
            f"not root (CAP_BPF and CAP_PERFMON are needed for {', '.join(names)}): run it with sudo;"
            " netconsole doctor says more"
        )
