"""Describes a host, and finds its network namespaces, CPUs and kernel modules."""

from __future__ import annotations

import os

from netconsole.base.netns_labels import is_namespace_inode
from netconsole.host.target import Question, Target
from netconsole.telemetry.frames import MAX_TEXT, Host
from netconsole_collector.kernel.cpus import ONLINE, numbers
from netconsole_collector.primitives.here import HERE, HOST_NETNS, NAMED_NETNS

_RELEASES = ("/etc/os-release", "/usr/lib/os-release")


def describe(target: Target = HERE) -> Host:
    """A host, for a session without a collector. What cannot be read is empty."""
    try:
        name, kernel, machine = target.nodename()
    except OSError:
        name, kernel, machine = "", "", ""
    return Host(
        name=_bounded(name),
        kernel=_bounded(kernel),
        arch=_bounded(machine),
        os=_bounded(_system(target)),
        cpus=len(numbers(_text(target, ONLINE))) or 1,
        boot_id=_bounded(_text(target, "/proc/sys/kernel/random/boot_id").strip()),
    )


def namespace_inode(name: str, target: Target = HERE) -> int | None:
    """The inode of a network namespace by its name in labels: ``host``, a name in /run/netns, or the inode itself."""
    if is_namespace_inode(name):
        return int(name)
    try:
        return target.status(HOST_NETNS if name == "host" else f"{NAMED_NETNS}/{name.rpartition('/')[2]}").inode
    except (OSError, ValueError):
        return None


def namespace_names(inode: int, target: Target = HERE) -> tuple[set[str], bool]:
    """What labels call a network namespace: its inode and all its names. And whether it is the console's own."""
    names = {str(inode)}
    try:
        entries = target.names(NAMED_NETNS)
    except OSError:
        entries = []  # none has a name
    paths = {f"{NAMED_NETNS}/{name}": os.fsencode(name).decode("utf-8", "backslashreplace") for name in entries}
    target.ahead(Question("status", (path,)) for path in paths)
    names |= {name for path, name in {**paths, HOST_NETNS: "host"}.items() if _inode(path, target) == inode}
    is_own = _inode("/proc/self/ns/net", target) == inode
    return names | ({"host"} if is_own and _inode(HOST_NETNS, target) is None else set()), is_own


def _inode(path: str, target: Target) -> int | None:
    try:
        return target.status(path).inode
    except OSError:
        return None


def shows_module(name: str, target: Target = HERE) -> bool:
    """Whether sysfs shows a kernel module: it is loaded, or built in and has parameters."""
    return target.exists(f"/sys/module/{name}")


def _system(target: Target) -> str:
    """PRETTY_NAME of os-release(5)."""
    for path in _RELEASES:
        for line in _text(target, path).splitlines():
            name, equals, value = line.partition("=")
            if name == "PRETTY_NAME" and equals:
                return value.strip().strip("\"'")
    return "Linux"


def _bounded(text: str) -> str:
    """As a frame takes it, whatever a far host says."""
    return text.encode("utf-8", "replace").decode()[:MAX_TEXT]


def _text(target: Target, path: str) -> str:
    try:
        return target.read(path).decode("utf-8", "replace")
    except OSError:
        return ""
