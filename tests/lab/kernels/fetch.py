"""Fetches the lab's kernels by package name with apt, and unpacks them into a cache. It installs nothing."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab.kernels import archive
from tests.lab.kernels.archive import cache_dir, locked
from tests.lab.machine.errors import LabUnavailable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KERNELS_FILE = Path(__file__).with_name("kernels.toml")
IMAGE = "linux-image-"
PARTS = ("linux-base-", "linux-binary-", "linux-modules-")
"""What a kernel's package is called, and what it consists of from 6.19 on: lists of modules, the image, modules."""
SHARES = ("9p", "virtiofs")
MACHINES = {"": "", "arm64": "aarch64"}
"""By Debian's name of an architecture; empty: this machine's, the only one that boots."""


@dataclass(frozen=True)
class Kernel:
    """One entry of kernels.toml."""

    name: str
    package: str
    share: str
    suite: str = ""
    architecture: str = ""
    long: bool = False
    made: bool = False
    untyped: Sequence[str] = ()

    @property
    def machine(self) -> str:
        """As `uname -m` says it; empty: as this one."""
        return MACHINES[self.architecture]


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
    """The kernels of kernels.toml that can be booted here, the default one first."""
    return [kernel for kernel in all_kernels() if not kernel.architecture]


def all_kernels() -> list[Kernel]:
    """With those of other architectures, for which probes are only compiled."""
    found = [Kernel(**entry) for entry in tomllib.loads(KERNELS_FILE.read_text("utf-8"))["kernel"]]
    for kernel in found:
        if kernel.share not in SHARES:
            raise ValueError(f"{KERNELS_FILE.name}: {kernel.name}: share must be one of {', '.join(SHARES)}")
    return found


def kernel_named(name: str) -> Kernel:
    """Raises LabUnavailable when kernels.toml does not list it."""
    for kernel in all_kernels():
        if kernel.name == name:
            return kernel
    raise LabUnavailable(f"no kernel {name!r} in {KERNELS_FILE.name}; it has {', '.join(k.name for k in kernels())}")


def fetch(kernel: Kernel) -> KernelTree:
    """The newest kernel of this entry, from the cache or downloaded now; safe when several test runs fetch at once.

    Without a network the newest one in the cache does. Raises LabUnavailable when there is none.
    """
    for program in ("dpkg", "depmod"):
        if _find(program) is None:
            raise LabUnavailable(f"{program} is missing (Debian packages dpkg and kmod)")
    packages = _packages(kernel)
    package = packages[0] if packages else None
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
                _download_and_unpack(packages, kernel, trees)
            except LabUnavailable:
                if cached is None:
                    raise
                package = cached
        tree = trees / package
    version = package.removeprefix(IMAGE)
    return KernelTree(kernel, version, tree)


def _find(program: str) -> str | None:
    """Also looks where an ordinary user's PATH does not."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _newest(pattern: str, names: Sequence[str]) -> str | None:
    """`*` stands for numbers, with dots between them."""
    before, after = (re.escape(part) for part in pattern.split("*"))
    matches = [(re.fullmatch(rf"{before}([0-9]+(?:\.[0-9]+)*){after}", name), name) for name in names]
    numbered = [([int(number) for number in match[1].split(".")], name) for match, name in matches if match]
    return max(numbered)[1] if numbered else None


def _packages(kernel: Kernel) -> list[str]:
    """The newest of this entry, and what it consists of since 6.19. Nothing, if apt knows none."""
    image = _newest(kernel.package, archive.known(kernel.package.split("*")[0], kernel.suite, kernel.architecture))
    if image is None:
        return []
    version = image.removeprefix(IMAGE)
    names = [part + version for part in PARTS]
    where = kernel.suite, kernel.architecture
    return [image, *(name for name in names if kernel.suite and name in archive.known(name, *where))]


def _download_and_unpack(packages: Sequence[str], kernel: Kernel, trees: Path) -> None:
    """Whole or not at all: the tree gets its name by a rename when it is complete."""
    work = Path(tempfile.mkdtemp(prefix="unpacking-", dir=trees))
    try:
        tree = work / "tree"
        archive.unpack(archive.download(packages, work, kernel.suite, kernel.architecture), tree)
        version = packages[0].removeprefix(IMAGE)
        _in_usual_places(tree, version)
        depmod = _find("depmod")
        assert depmod is not None
        archive.run([depmod, "-b", str(tree), version], work, archive.UNPACK_LIMIT_S)
        tree.rename(trees / packages[0])
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _in_usual_places(tree: Path, version: str) -> None:
    """Later packages have their modules below /usr, and the image among them."""
    later = tree / "usr" / "lib" / "modules"
    if not later.is_dir():
        return
    (tree / "lib").mkdir(exist_ok=True)
    later.rename(tree / "lib" / "modules")
    (tree / "boot").mkdir(exist_ok=True)
    image = tree / "lib" / "modules" / version / "vmlinuz"
    if image.exists():
        image.rename(tree / "boot" / f"vmlinuz-{version}")
