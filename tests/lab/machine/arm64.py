"""A machine of another architecture: Debian's arm64 kernel and Python, without guests or a switch."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.lab.kernels.fetch import fetch, kernel_named
from tests.lab.kernels.qemu import Qemu
from tests.lab.machine import initramfs, shares
from tests.lab.machine.accelerator import accelerator
from tests.lab.machine.errors import LabUnavailable
from tests.lab.machine.hypervisor import CHECKOUT, LIFETIME_S
from tests.lab.machine.machine import Machine
from tests.support.live.userland import unpacked

KERNEL, SUITE, ARCHITECTURE = "debian-6.12-arm64", "trixie", "arm64"
PROGRAM = "qemu-system-aarch64"
PACKAGES = ("python3", "iproute2", "busybox-static", "coreutils", "dash")
INIT = Path(__file__).with_name("arm64_init.sh")
MODULES = ["virtio_pci", "virtio_console", "overlay", *shares.MODULES["9p"], "veth", "sch_netem"]
# A plain CPU: QEMU computes the pointer authentication of `max` in software, which takes most of the time.
HARDWARE = ["-M", "virt", "-cpu", "cortex-a57", "-smp", "1", "-m", "1024"]


class Arm64(Machine):
    """A booted one, with one CPU. Raises LabUnavailable without its emulator."""

    def __init__(self) -> None:
        if shutil.which(PROGRAM) is None:
            raise LabUnavailable(f"{PROGRAM} is missing (Debian package qemu-system-arm)")
        self.tree = fetch(kernel_named(KERNEL))
        root = unpacked(SUITE, PACKAGES, ARCHITECTURE)
        init = initramfs.script(INIT, {"CHECKOUT": CHECKOUT})
        with shares.export("9p", {"root": root, "checkout": CHECKOUT}, 0) as export:
            super().__init__(
                [
                    *HARDWARE,
                    *(
                        "-kernel",
                        str(self.tree.image),
                        "-append",
                        "console=ttyAMA0 panic=-1 mitigations=off loglevel=4",
                    ),
                    *export.arguments,
                ],
                initramfs=initramfs.build(self.tree, init, MODULES, busybox=root / "usr/bin/busybox"),
                limit_s=LIFETIME_S,
                emulator=Qemu(PROGRAM, (), accelerator(PROGRAM)),
            )

    def shell(self, script: str) -> str:
        """Runs a shell script that stops at the first failing command; returns what it printed."""
        return self.run("dash", "-ec", script).text
