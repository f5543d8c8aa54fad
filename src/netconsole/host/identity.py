"""Describes a host, and finds its network namespaces, CPUs and kernel modules."""

from __future__ import annotations

from netconsole.host.target import Target
from netconsole.telemetry.frames import MAX_TEXT, Host
from netconsole_collector.kernel.cpus import ONLINE, numbers
from netconsole_collector.names.netns_labels import is_namespace_inode
from netconsole_collector.primitives.here import HERE
from netconsole_collector.questions.namespace import inode_of

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


def namespace_inode(name: str) -> int | None:
    """The inode of a network namespace of this machine by its name in labels: ``host``, a name in /run/netns, or the
    inode itself."""
    return int(name) if is_namespace_inode(name) else inode_of(name)


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
