"""The BTF of the lab's kernels, taken from their packages without booting: types for the layout test."""

from __future__ import annotations

import hashlib
import inspect
import mmap
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from netconsole.probes import catalogue, type_maker, type_pruning
from netconsole_collector.compile import type_files
from netconsole_collector.types import copied_types
from tests.lab.kernels import archive
from tests.lab.kernels.archive import cache_dir, locked
from tests.lab.kernels.elf import Elf
from tests.lab.kernels.fetch import KernelTree
from tests.lab.kernels.image import btf_in, decompress, unpack_image, write_whole
from tests.lab.machine.initramfs import load_order

# Those whose types a probe may name; what they need (vhost, kvm, tap, nf_conntrack, …) comes along.
MODULES = ("tun", "vhost_net", "openvswitch", "kvm_amd", "kvm_intel", "nf_conntrack", "veth", "virtio_net", "bridge")
MAKE_LIMIT_S = 600.0
MADE_KEPT = 8
"""Of so many checkouts or changes of probes."""
DEBUG = "usr/lib/debug/lib/modules/{}"


@dataclass(frozen=True)
class KernelBtf:
    """Files with the raw BTF of a kernel, as in /sys/kernel/btf: those of modules are split BTF on top of vmlinux's."""

    kernel: str
    version: str
    vmlinux: Path
    modules: dict[str, Path]
    stored: bool = False
    """Only what probes read of them (stored.py)."""


def made_types(version: str) -> Path:
    """Where the types are that `netconsole types make` has made for modules without any, for the probes of now."""
    probes = (probe.code() for probe in catalogue.load_all().values() if probe.source == "bpf")
    makers = (inspect.getsource(one) for one in (type_maker, type_pruning, copied_types))
    digest = hashlib.sha256("".join((*makers, *probes)).encode()).hexdigest()
    return cache_dir() / "made" / digest[:16] / version


def debug_modules(tree: KernelTree, modules: Sequence[Path]) -> Path:
    """Where the kernel's modules with debug information are. Raises LabUnavailable."""
    places = [f"{DEBUG.format(tree.version)}/{module}" for module in modules]
    return _of_debug_package(tree, "debug", places) / DEBUG.format(tree.version)


def _of_debug_package(tree: KernelTree, kind: str, places: Sequence[str]) -> Path:
    """These files of the kernel's debug package, in the cache. It has 800 MB, and is fetched once for each kind."""
    kept = cache_dir() / kind / tree.version
    if not kept.is_dir():
        kept.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=cache_dir()) as directory:
            work = Path(directory)
            (package,) = archive.download([f"linux-image-{tree.version}-dbg"], work, tree.kernel.suite)
            unpack = f'dpkg --fsys-tarfile {package.name} | tar -x -- "$@"'
            archive.run(["sh", "-c", unpack, "sh", *(f"./{place}" for place in places)], work, MAKE_LIMIT_S)
            package.unlink()
            work.rename(kept)
            work.mkdir()
    return kept


def _hide_types(vmlinux: Path) -> None:
    """Gives its .BTF another name. objcopy refuses this file: its relocations refer to no symbols."""
    with vmlinux.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        at = content.rfind(b"\0.BTF\0")
        content[at + 1 : at + 5] = b".XTF"


def made_kernel(tree: KernelTree) -> Path:
    """The directory of types made as if the kernel had none, of vmlinux and the modules: for the probes of now.

    By the command that doctor says, where a debug package has been unpacked.

    Raises LabUnavailable.
    """
    made = made_types(tree.version).with_name("without-btf") / tree.version
    names = [path.relative_to(tree.modules) for path in load_order(tree.modules, list(MODULES))]
    btf_files(tree)  # it makes the directory for the probes of now
    with locked(cache_dir() / "made-kernel.lock"):
        if not made.is_dir():
            debug = debug_modules(tree, names)
            vmlinux = f"usr/lib/debug/boot/vmlinux-{tree.version}"
            with tempfile.TemporaryDirectory(prefix="making-", dir=cache_dir()) as directory:
                work = Path(directory)
                unpacked = work / "debug"
                kernel = _of_debug_package(tree, "debug-vmlinux", [vmlinux]) / vmlinux
                bare = unpacked / vmlinux
                bare.parent.mkdir(parents=True)
                shutil.copy(kernel, bare)
                _hide_types(bare)
                for name in names:
                    (unpacked / DEBUG.format(tree.version) / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(debug / name, unpacked / DEBUG.format(tree.version) / name)
                command = type_files.how_to_make({"release": tree.version}).splitlines()[-3].split()
                assert command == ["netconsole", "types", "make", "debug"]
                archive.run([str(Path(sys.executable).with_name(command[0])), *command[1:]], work, MAKE_LIMIT_S)
                made.parent.mkdir(exist_ok=True)
                (work / tree.version).rename(made)
    return made


def make_types(tree: KernelTree, vmlinux: Path, modules: Sequence[Path]) -> Path:
    """Makes the types of these modules as docs/design/kernel-types.md says, unless they are there: the directory of
    all types of this kernel.

    What was made for other probes stays for a while: another checkout may use it. Raises LabUnavailable.
    """
    made = made_types(tree.version)
    if not made.is_dir():
        debug = debug_modules(tree, modules)
        with tempfile.TemporaryDirectory(prefix="making-", dir=cache_dir()) as directory:
            work = Path(directory)
            console = str(Path(sys.executable).with_name("netconsole"))
            command = [console, "types", "make", "--release", tree.version, "--base", str(vmlinux), "--into", str(work)]
            archive.run([*command, *(str(debug / module) for module in modules)], work, MAKE_LIMIT_S)
            together = work / "btf"
            together.mkdir()
            (together / vmlinux.name).symlink_to(vmlinux)
            for path in (work / tree.version).iterdir():
                (together / path.name).symlink_to(made / path.name)
            made.parent.parent.mkdir(exist_ok=True)
            shutil.rmtree(made.parent, ignore_errors=True)
            work.rename(made.parent)
            work.mkdir()
        for old in sorted(filter(Path.is_dir, made.parent.parent.iterdir()), key=lambda one: one.stat().st_mtime)[
            :-MADE_KEPT
        ]:
            shutil.rmtree(old)
    return made.parent / "btf"


def btf_files(tree: KernelTree) -> KernelBtf:
    """The BTF files of one unpacked kernel, extracted when the cache has none."""
    directory = cache_dir() / "btf" / tree.version
    directory.mkdir(parents=True, exist_ok=True)
    # On other architectures KVM is no module.
    wanted = [name for name in MODULES if not (tree.kernel.architecture and name.startswith("kvm_"))]
    names = {path.name.partition(".")[0].replace("-", "_"): path for path in load_order(tree.modules, wanted)}
    with locked(directory / "lock"):
        vmlinux = directory / "vmlinux"
        if not vmlinux.exists():
            image = tree.image.read_bytes()
            write_whole(vmlinux, btf_in(image) if tree.kernel.architecture else Elf(unpack_image(image)).types())
        if tree.kernel.made:
            together = make_types(tree, vmlinux, [path.relative_to(tree.modules) for path in names.values()])
            modules = {name: together / name for name in names if (together / name).exists()}
            return KernelBtf(tree.kernel.name, tree.version, together / vmlinux.name, modules)
        modules = {name: directory / name for name in names}
        for name, path in names.items():
            if not modules[name].exists():
                write_whole(modules[name], Elf(decompress(path.read_bytes())).types())
    return KernelBtf(tree.kernel.name, tree.version, vmlinux, modules)
