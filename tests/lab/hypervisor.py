"""The hypervisor of the lab (L1): a machine with KVM, vhost-net and Open vSwitch that sees this machine's files."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from . import initramfs
from .errors import LabUnavailable
from .fetch import Kernel, KernelTree, fetch
from .machine import Machine

CHECKOUT = Path(__file__).resolve().parents[2]
INIT = Path(__file__).with_name("l1_init.sh")
LIFETIME_S = 1500.0
MEMORY_MB = 4096
CPUS = 2
KERNEL_ARGUMENTS = "console=ttyS0 panic=-1 quiet mitigations=off"
SHARE_MODULES = {"9p": ["9pnet_virtio", "9p"], "virtiofs": ["virtiofs"]}
BOOT_MODULES = ["virtio_pci", "virtio_console", "overlay"]


class Hypervisor(Machine):
    """A booted L1."""

    def __init__(self, kernel: Kernel, *, lifetime_s: float = LIFETIME_S, ports: tuple[str, ...] = ()) -> None:
        self.tree: KernelTree = fetch(kernel)
        super().__init__(
            [
                *("-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(CPUS), "-m", str(MEMORY_MB)),
                *("-kernel", str(self.tree.image), "-append", KERNEL_ARGUMENTS),
                *_shares(kernel),
            ],
            initramfs=initramfs.build(
                self.tree, _init_script(self.tree), [*BOOT_MODULES, *SHARE_MODULES[kernel.share]]
            ),
            limit_s=lifetime_s,
            ports=ports,
        )


def _init_script(tree: KernelTree) -> str:
    head, _, body = INIT.read_text().partition("\n")
    values = {
        "SHARE": tree.kernel.share,
        "CHECKOUT": CHECKOUT,
        "VENV": sys.prefix,
        "MODULES": tree.modules,
        "VERSION": tree.version,
    }
    return "\n".join([head, *(f"{name}={shlex.quote(str(value))}" for name, value in values.items()), body])


def _shares(kernel: Kernel) -> list[str]:
    if kernel.share != "9p":
        raise LabUnavailable(f"share {kernel.share} is not there yet")
    arguments = []
    for tag, path in (("root", Path("/")), ("checkout", CHECKOUT)):
        if "," in str(path):
            raise LabUnavailable(f"QEMU cannot share {path}: there is a comma in its name")
        arguments += ["-virtfs", f"local,path={path},mount_tag={tag},security_model=none,readonly=on,multidevs=remap"]
    return arguments
