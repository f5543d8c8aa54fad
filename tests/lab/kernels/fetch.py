"""Fetches the lab's kernels by package name with apt, and unpacks them into a cache. It installs nothing."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lab.machine.errors import LabUnavailable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KERNELS_FILE = Path(__file__).with_name("kernels.toml")
APT_LIMIT_S = 300
UNPACK_LIMIT_S = 120
SHARES = ("9p", "virtiofs")


@dataclass(frozen=True)
class Kernel:
    """One entry of kernels.toml."""

    name: str
    package: str
    share: str
    untyped: Sequence[str] = ()


@dataclass(frozen=True)
class KernelTree:
    """An unpacked kernel package: `tree` holds boot/ and lib/modules/, `version` is its `uname -r`."""

    kernel: Kernel
    version: str
    tree: Path

    @property
    def image(self) -> Path:
        return self.tree / "boot" / f"vmlinuz-{self.version}"

    @property
    def modules(self) -> Path:
        return self.tree / "lib" / "modules" / self.version


def kernels() -> list[Kernel]:
    """The kernels of kernels.toml, the default one first."""
    found = [Kernel(**entry) for entry in tomllib.loads(KERNELS_FILE.read_text("utf-8"))["kernel"]]
    for kernel in found:
        if kernel.share not in SHARES:
            raise ValueError(f"{KERNELS_FILE.name}: {kernel.name}: share must be one of {', '.join(SHARES)}")
    return found


def kernel_named(name: str) -> Kernel:
    """Raises LabUnavailable when kernels.toml does not list it."""
    for kernel in kernels():
        if kernel.name == name:
            return kernel
    raise LabUnavailable(f"no kernel {name!r} in {KERNELS_FILE.name}; it has {', '.join(k.name for k in kernels())}")


def cache_dir() -> Path:
    """Where unpacked kernels and what is made from them are kept; shared by all checkouts of one user."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    path = Path(base) / "netconsole" / "lab"
    path.mkdir(parents=True, exist_ok=True)
    return path


def fetch(kernel: Kernel) -> KernelTree:
    """The newest kernel of this entry, from the cache or downloaded now; safe when several test runs fetch at once.

    Without a network the newest one in the cache does. Raises LabUnavailable when there is none.
    """
    for program in ("dpkg", "depmod"):
        if _find(program) is None:
            raise LabUnavailable(f"{program} is missing (Debian packages dpkg and kmod)")
    package = _newest(kernel.package, _known_to_apt(kernel.package))
    trees = cache_dir() / "kernels"
    trees.mkdir(exist_ok=True)
    with locked(trees / "lock"):
        for leftover in trees.glob("unpacking-*"):
            shutil.rmtree(leftover, ignore_errors=True)  # of a run that was killed: we hold the lock
        if package is None or not (trees / package).is_dir():
            cached = _newest(kernel.package, [entry.name for entry in trees.iterdir()])
            try:
                if package is None:
                    raise LabUnavailable(f"apt knows no package {kernel.package} (try: apt-get update)")
                _download_and_unpack(package, trees)
            except LabUnavailable:
                if cached is None:
                    raise
                package = cached
        tree = trees / package
    version = package.removeprefix("linux-image-")
    return KernelTree(kernel, version, tree)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock; the kernel drops it when the holder dies, however it dies."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _find(program: str) -> str | None:
    """Also looks where an ordinary user's PATH does not."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _newest(pattern: str, names: list[str]) -> str | None:
    before, after = (re.escape(part) for part in pattern.split("*"))
    numbered = [(int(match[1]), name) for name in names if (match := re.fullmatch(rf"{before}(\d+){after}", name))]
    return max(numbered)[1] if numbered else None


def _known_to_apt(pattern: str) -> list[str]:
    names = _apt("apt-cache", "pkgnames", pattern.split("*")[0])
    if not names and os.geteuid() == 0:
        # A fresh machine has no package lists at all. Of two test runs the second waits for those of the first.
        with locked(cache_dir() / "lists.lock"):
            names = _apt("apt-cache", "pkgnames", pattern.split("*")[0])
            if not names:
                _apt("apt-get", "update", "-qq")
                names = _apt("apt-cache", "pkgnames", pattern.split("*")[0])
    return names


def _apt(*command: str) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=APT_LIMIT_S, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split() if done.returncode == 0 else []


def _download_and_unpack(package: str, trees: Path) -> None:
    """Whole or not at all: the tree gets its name by a rename when it is complete."""
    work = Path(tempfile.mkdtemp(prefix="unpacking-", dir=trees))
    try:
        run(["apt-get", "download", "-qq", package], work, APT_LIMIT_S)
        archives = list(work.glob("*.deb"))
        if len(archives) != 1:
            raise LabUnavailable(f"apt-get download {package} left {len(archives)} archives instead of one")
        tree = work / "tree"
        run(["dpkg", "-x", str(archives[0]), str(tree)], work, UNPACK_LIMIT_S)
        depmod = _find("depmod")
        assert depmod is not None
        run([depmod, "-b", str(tree), package.removeprefix("linux-image-")], work, UNPACK_LIMIT_S)
        tree.rename(trees / package)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def run(command: list[str], cwd: Path, limit_s: float) -> None:
    """Runs a command of the package manager; raises LabUnavailable with the last line that it said."""
    try:
        subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=limit_s, check=True)
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout).strip().splitlines()[-1:] or ["no message"]
        raise LabUnavailable(f"{' '.join(command[:3])}: {last[0]}") from error
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise LabUnavailable(str(error)) from error
