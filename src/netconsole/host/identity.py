"""Describes this host, and finds its network namespaces and kernel modules by name."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from netconsole.telemetry.frames import Host

HOST_NETNS, NAMED_NETNS = Path("/proc/1/ns/net"), Path("/run/netns")
"""As netconsole_collector.names.labels names them."""


def describe() -> Host:
    """This host, for a session without a collector."""
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
    """The inode of a network namespace by its name in labels: ``host``, a name in /run/netns, or the inode itself."""
    if name.isdecimal():
        return int(name)
    try:
        return (HOST_NETNS if name == "host" else NAMED_NETNS / Path(name).name).stat().st_ino
    except (OSError, ValueError):
        return None


def shows_module(name: str) -> bool:
    """Whether sysfs shows a kernel module: it is loaded, or built in and has parameters."""
    return Path("/sys/module", name).is_dir()
