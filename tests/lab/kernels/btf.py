"""The BTF of the lab's kernels, taken from their packages without booting: types for the layout test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.lab.kernels.archive import cache_dir, locked
from tests.lab.kernels.elf import Elf
from tests.lab.kernels.fetch import KernelTree, made_types
from tests.lab.kernels.image import btf_in, decompress, unpack_image, write_whole
from tests.lab.machine.initramfs import load_order

# Those whose types a probe may name; what they need (vhost, kvm, tap, nf_conntrack, …) comes along.
MODULES = ("tun", "vhost_net", "openvswitch", "kvm_amd", "kvm_intel", "nf_conntrack", "veth", "virtio_net", "bridge")


@dataclass(frozen=True)
class KernelBtf:
    """Files with the raw BTF of a kernel, as in /sys/kernel/btf: those of modules are split BTF on top of vmlinux's."""

    kernel: str
    version: str
    vmlinux: Path
    modules: dict[str, Path]


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
            write_whole(
                vmlinux, btf_in(image) if tree.kernel.architecture else Elf(unpack_image(image)).section(".BTF")
            )
        modules = {}
        for name, path in names.items():
            modules[name] = directory / name
            if not modules[name].exists():
                made = made_types(tree.version) / name
                if not tree.kernel.made:
                    write_whole(modules[name], Elf(decompress(path.read_bytes())).section(".BTF"))
                elif made.exists():
                    write_whole(modules[name], made.read_bytes())
                else:
                    del modules[name]
    return KernelBtf(tree.kernel.name, tree.version, vmlinux, modules)
