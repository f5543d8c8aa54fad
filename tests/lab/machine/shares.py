"""Shares directories of this machine with the lab's machines, read-only: by 9p, or by virtiofs without 9p."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.machine.errors import LabUnavailable

MODULES = {"9p": ["9pnet_virtio", "9p"], "virtiofs": ["virtiofs"]}
"""What the initramfs has to load for each kind of share."""

STABLE = "root"
"""The tag of the share whose files do not change while a machine runs: the machine may remember what it has read."""

VIRTIOFSD = ("/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd")
# The server may only read, whatever the guest asks for: it gets a mount namespace whose root is read-only.
READ_ONLY = 'mount --make-rprivate / && mount -o remount,bind,ro / && exec "$@"'


@dataclass(frozen=True)
class Server:
    """A process that serves the machine, with the descriptors that it inherits."""

    argv: list[str]
    fds: list[int]


@dataclass
class Export:
    """QEMU's arguments for the shares, and the processes that it needs for them."""

    arguments: list[str] = field(default_factory=list)
    servers: list[Server] = field(default_factory=list)


@contextmanager
def export(kind: str, directories: dict[str, Path], memory_mb: int) -> Iterator[Export]:
    """The shares, by mount tag; leave the block when QEMU has been started. Raises LabUnavailable."""
    for path in directories.values():
        if "," in str(path):
            raise LabUnavailable(f"QEMU cannot share {path}: there is a comma in its name")
    with ExitStack() as listening:
        yield _by_9p(directories) if kind == "9p" else _by_virtiofs(directories, memory_mb, listening)


def _by_9p(directories: dict[str, Path]) -> Export:
    result = Export()
    for tag, path in directories.items():
        options = f"local,path={path},mount_tag={tag},security_model=none,readonly=on,multidevs=remap"
        result.arguments += ["-virtfs", options]
    return result


def _by_virtiofs(directories: dict[str, Path], memory_mb: int, listening: ExitStack) -> Export:
    program = next((path for path in VIRTIOFSD if Path(path).exists()), None)
    if program is None:
        raise LabUnavailable("virtiofsd is missing (Debian package qemu-system-common, or virtiofsd from Debian 13 on)")
    memory = f"memory-backend-memfd,id=memory,size={memory_mb}M,share=on"
    result = Export(["-object", memory, "-numa", "node,memdev=memory"])
    for tag, path in directories.items():
        # An abstract address: it leaves no file, and is gone with the last descriptor.
        address = f"netconsole-lab-{secrets.token_hex(8)}"
        server = listening.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(f"\0{address}")
        server.listen(1)
        command = [program, f"--fd={server.fileno()}", "--rlimit-nofile=0"]
        command += [
            "-o",
            f"source={path}",
            "-o",
            "sandbox=chroot",
            "-o",
            f"cache={'always' if tag == STABLE else 'auto'}",
        ]
        result.servers.append(Server(["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", *command], [server.fileno()]))
        result.arguments += ["-chardev", f"socket,id={tag},path={address},abstract=on"]
        result.arguments += ["-device", f"vhost-user-fs-pci,chardev={tag},tag={tag}"]
    return result
