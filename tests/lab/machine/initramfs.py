"""Builds initramfs images in plain Python: busybox, a few kernel modules in load order, and an init script."""

from __future__ import annotations

import shlex
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.kernels.fetch import KernelTree
from tests.lab.kernels.image import decompress
from tests.lab.machine.errors import LabUnavailable

MODULES_DIR = "modules"


def build(
    tree: KernelTree,
    init: str,
    modules: list[str],
    files: Mapping[str, bytes] | None = None,
    busybox: Path | None = None,
) -> bytes:
    """A cpio archive with /init, /bin/busybox, and the modules unpacked as /modules/NN-NAME.ko, numbered in load order.

    `init` is the text of a busybox shell script. Modules that are built into the kernel are left out. `files` are more
    of them by name. The kernel also takes several such archives one after the other. `busybox` is this machine's own
    unless another is given.
    Raises LabUnavailable when there is no static busybox or a module does not exist.
    """
    own = shutil.which("busybox")
    busybox = busybox or (Path(own) if own else None)
    if busybox is None:
        raise LabUnavailable("busybox is missing (Debian package busybox-static)")
    archive = Archive()
    for directory in ("bin", "dev", "proc", "sys", "run", "tmp", "root", MODULES_DIR):
        archive.directory(directory)
    archive.character_device("dev/console", 5, 1)
    archive.file("bin/busybox", busybox.read_bytes(), 0o755)
    archive.symlink("bin/sh", "busybox")
    for number, path in enumerate(load_order(tree.modules, modules)):
        name = path.name.partition(".")[0]
        archive.file(f"{MODULES_DIR}/{number:02}-{name}.ko", decompress(path.read_bytes()), 0o644)
    archive.file("init", init.encode(), 0o755)
    for name, content in (files or {}).items():
        archive.file(name, content, 0o644)
    return archive.close()


def script(template: Path, values: dict[str, object]) -> str:
    """The init script with these shell variables set at its head."""
    head, _, body = template.read_text("utf-8").partition("\n")
    return "\n".join([head, *(f"{name}={shlex.quote(str(value))}" for name, value in values.items()), body])


def load_order(modules: Path, names: list[str]) -> list[Path]:
    """The files to load for these modules, each after everything that it needs (modules.dep, modules.builtin)."""
    needs: dict[str, list[str]] = {}
    paths: dict[str, str] = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, dependencies = line.partition(":")
        paths[_module_name(path)] = path
        needs[path] = dependencies.split()
    builtin = {_module_name(line) for line in (modules / "modules.builtin").read_text().splitlines()}
    order: list[str] = []
    for name in names:
        if name in builtin:
            continue
        if name not in paths:
            raise LabUnavailable(f"kernel {modules.name} has no module {name}")
        # modules.dep lists what a module needs in reverse order of loading.
        order += [path for path in (*reversed(needs[paths[name]]), paths[name]) if path not in order]
    return [modules / path for path in order]


def _module_name(path: str) -> str:
    return Path(path).name.partition(".")[0].replace("-", "_")


@dataclass
class Archive:
    """A cpio archive of the `newc` format (Documentation/driver-api/early-userspace/buffer-format.rst)."""

    _parts: list[bytes] = field(default_factory=list)
    _inode: int = 0

    def directory(self, name: str) -> None:
        self._add(name, stat.S_IFDIR | 0o755)

    def symlink(self, name: str, target: str) -> None:
        self._add(name, stat.S_IFLNK | 0o777, target.encode())

    def file(self, name: str, data: bytes, mode: int) -> None:
        self._add(name, stat.S_IFREG | mode, data)

    def character_device(self, name: str, major: int, minor: int) -> None:
        self._add(name, stat.S_IFCHR | 0o600, device=(major, minor))

    def close(self) -> bytes:
        self._add("TRAILER!!!", 0)
        return b"".join(self._parts)

    def _add(self, name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        self._inode += 1
        encoded = name.encode() + b"\0"
        # ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
        fields = (self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
        header = b"070701" + b"".join(b"%08X" % value for value in fields)
        self._parts += [_padded(header + encoded), _padded(data)]


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
