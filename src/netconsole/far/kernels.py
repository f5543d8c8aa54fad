"""The types of far kernels (BTF), kept in the user's cache: a second start on the same kernel transfers none of them.

A file is kept under the digest of its content. Build ids would not do: a virtual machine's has been that of another
kernel. The files of one kernel (vmlinux and modules) are linked together in a directory, as the compiler wants them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from netconsole.base.errors import bad
from netconsole.base.files import replace
from netconsole.far.about import FileAbout
from netconsole_collector.types.sha256 import sha256

VMLINUX = "vmlinux"
MAX_KERNELS = 16
"""Of 6 to 15 MB each. Those that were used last are kept."""
_CONTENT, _KERNELS = "content", "kernels"
_keeping = threading.Lock()
"""Several hosts of one kernel may come at the same time."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """The types of a kernel: a directory of BTF files, and the digest of all of them."""

    directory: Path
    digest: str


class KernelStore:
    """``root`` is made when something is kept."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def lacking(self, files: Mapping[str, FileAbout]) -> list[str]:
        """Names of the files whose content is not here."""
        return [name for name, about in files.items() if not self._has(about)]

    def keep(self, files: Mapping[str, FileAbout], contents: Mapping[str, bytes]) -> Kernel:
        """The kernel that these files are, with the contents that were lacking. Raises BadInput."""
        told = "\n".join(f"{name} {files[name].sha256}" for name in sorted(files))
        kernel = Kernel(self._root / _KERNELS / sha256(told.encode()).hexdigest(), told)
        with _keeping:
            self._keep(kernel, files, contents)
        return kernel

    def _keep(self, kernel: Kernel, files: Mapping[str, FileAbout], contents: Mapping[str, bytes]) -> None:
        try:
            for directory in (self._root / _CONTENT, self._root / _KERNELS):
                directory.mkdir(0o700, parents=True, exist_ok=True)
            for name, content in contents.items():
                replace(self._root / _CONTENT / files[name].sha256, partial(_write_all, content))
            if not all((kernel.directory / name).exists() for name in files):
                self._link(kernel.directory, files)
            os.utime(kernel.directory)
        except OSError as error:
            raise bad(
                self._root, "", f"the types of the host's kernel cannot be kept on this machine: {error.strerror}"
            ) from None
        self._forget_the_oldest()

    def _has(self, about: FileAbout) -> bool:
        try:
            return (self._root / _CONTENT / about.sha256).stat().st_size == about.bytes
        except OSError:
            return False

    def _link(self, directory: Path, files: Mapping[str, FileAbout]) -> None:
        """Under a name of its own until it is whole: another console may do the same."""
        unfinished = directory.with_name(f"{directory.name}.{os.getpid()}")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(0o700)
        for name, about in files.items():
            os.link(self._root / _CONTENT / about.sha256, unfinished / name)
        shutil.rmtree(directory, ignore_errors=True)
        unfinished.rename(directory)

    def _forget_the_oldest(self) -> None:
        with contextlib.suppress(OSError):
            kernels = sorted((self._root / _KERNELS).iterdir(), key=lambda path: path.stat().st_mtime)
            for path in kernels[:-MAX_KERNELS]:
                shutil.rmtree(path, ignore_errors=True)
            for path in (self._root / _CONTENT).iterdir():
                if path.stat().st_nlink == 1:
                    path.unlink()


def _write_all(content: bytes, descriptor: int) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
