"""The QEMU that emulates the hypervisor: this machine's, or Debian's backport, fetched and unpacked like a kernel."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.lab.kernels import archive
from tests.lab.kernels.archive import cache_dir, locked
from tests.lab.machine.accelerator import SOUND, accelerator
from tests.lab.machine.errors import LabUnavailable

PROGRAM = "qemu-system-x86_64"
PACKAGES = ("qemu-system-x86", "qemu-system-data", "seabios")  # the program, and the firmware that it loads
FIRMWARE = ("share/qemu", "share/seabios")
MORE_FIRMWARE = ("/usr/share/qemu", "/usr/lib/ipxe/qemu")  # what the machine's own QEMU brought, of any version


@dataclass(frozen=True)
class Qemu:
    """A program, the arguments by which it finds its firmware, and the value of its -accel."""

    program: str
    firmware: tuple[str, ...]
    accelerator: str


@cache
def qemu() -> Qemu:
    """This machine's where its threads can be trusted, else the backport where it can be had: both cores are worth it.

    Raises LabUnavailable when this machine has none.
    """
    if shutil.which(PROGRAM) is None:
        raise LabUnavailable(f"{PROGRAM} is missing (Debian package qemu-system-x86)")
    own = Qemu(PROGRAM, (), accelerator(PROGRAM))
    if own.accelerator == SOUND:
        return own
    try:
        usr = backport() / "usr"
        program = str(usr / "bin" / PROGRAM)
        places = [*(str(usr / place) for place in FIRMWARE), *MORE_FIRMWARE]
        return Qemu(program, tuple(word for place in places for word in ("-L", place)), accelerator(program))
    except (LabUnavailable, OSError, subprocess.CalledProcessError):
        return own  # no network, no such archive, or built for other libraries: slower, and right


def backport() -> Path:
    """The unpacked packages, from the cache or downloaded now. Raises LabUnavailable."""
    directory = cache_dir() / "qemu"
    directory.mkdir(exist_ok=True)
    tree = directory / "tree"
    with locked(directory / "lock"):
        for leftover in directory.glob("unpacking-*"):
            shutil.rmtree(leftover, ignore_errors=True)  # of a run that was killed: we hold the lock
        if not tree.is_dir():
            _download(tree)
    return tree


def _download(tree: Path) -> None:
    """Whole or not at all: the tree gets its name by a rename when it is complete."""
    work = Path(tempfile.mkdtemp(prefix="unpacking-", dir=tree.parent))
    try:
        archive.unpack(archive.download(PACKAGES, work, archive.BACKPORTS), work / "tree")
        (work / "tree").rename(tree)
    finally:
        shutil.rmtree(work, ignore_errors=True)
