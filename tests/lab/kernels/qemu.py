"""The QEMU that emulates the hypervisor: this machine's, or Debian's backport, fetched and unpacked like a kernel."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.lab.kernels.fetch import APT_LIMIT_S, UNPACK_LIMIT_S, cache_dir, locked, run
from tests.lab.machine.accelerator import SOUND, accelerator
from tests.lab.machine.errors import LabUnavailable

PROGRAM = "qemu-system-x86_64"
PACKAGES = ("qemu-system-x86", "qemu-system-data", "seabios")  # the program, and the firmware that it loads
FIRMWARE = ("share/qemu", "share/seabios")
MORE_FIRMWARE = ("/usr/share/qemu", "/usr/lib/ipxe/qemu")  # what the machine's own QEMU brought, of any version
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


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
    archive, release = _archive()
    suite = f"{release}-backports"
    work = Path(tempfile.mkdtemp(prefix="unpacking-", dir=tree.parent))
    try:
        # Lists of its own: nothing of this machine's apt is changed.
        (work / "lists" / "partial").mkdir(parents=True)
        signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
        (work / "sources").write_text(f"deb {signed}{archive} {suite} main\n")
        options = [f"Dir::Etc::sourcelist={work}/sources", "Dir::Etc::sourceparts=/dev/null", f"Dir::Cache={work}"]
        apt = ["apt-get", "-qq"]
        for option in (*options, f"Dir::State::lists={work}/lists", "APT::Sandbox::User=root"):
            apt += ["-o", option]
        run([*apt, "update"], work, APT_LIMIT_S)
        run([*apt, "download", *(f"{package}/{suite}" for package in PACKAGES)], work, APT_LIMIT_S)
        for package in work.glob("*.deb"):
            run(["dpkg", "-x", str(package), str(work / "tree")], work, UNPACK_LIMIT_S)
        (work / "tree").rename(tree)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _archive() -> tuple[str, str]:
    """Address and release of the archive that this machine installs from."""
    command = ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)", "Created-By: Packages"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=APT_LIMIT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise LabUnavailable(f"apt-get indextargets: {error}") from error
    for line in said.splitlines():
        site, _, release = line.partition(" ")
        if release.isalpha():  # not bookworm-updates
            return site, release
    raise LabUnavailable("apt knows no archive")
