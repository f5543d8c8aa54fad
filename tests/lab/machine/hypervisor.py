"""The hypervisor of the lab (L1): a machine with KVM, vhost-net and Open vSwitch that can read this machine's files."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from netconsole_collector.compile import type_files
from netconsole_collector.types import copied_types
from tests.lab.kernels.btf import btf_files, made_types
from tests.lab.kernels.fetch import Kernel, fetch
from tests.lab.kernels.image import bootable
from tests.lab.kernels.qemu import qemu
from tests.lab.machine import initramfs, shares
from tests.lab.machine.accelerator import SLOW
from tests.lab.machine.l2 import Address
from tests.lab.machine.machine import COMMAND_LIMIT_S, Machine

CHECKOUT = Path(__file__).resolve().parents[3]
INIT = Path(__file__).with_name("l1_init.sh")
LIFETIME_S = 2400.0  # more than the tests of one file may take: each file begins it anew
MEMORY_MB = 3072
CPUS = 2
# A server of virtiofs writes into the machine's memory behind TCG's back: a page that held code is translated anew only
# if the machine itself writes to it first, as it does when it clears each page that it allocates.
CLEARING = {"9p": "init_on_alloc=0", "virtiofs": "init_on_alloc=1"}
# TCG carries out string instructions element by element. A CPU and a kernel that avoid them copy and clear memory 2 to
# 4 times as fast (ERMS and FSRM: rep movsb; REP_GOOD: rep movsq; init_on_alloc: every page is cleared twice).
CPU = "max,-erms,-fsrm"
# A CPU that is stuck for 20 s (twice kernel.watchdog_thresh) never comes back: the machine ends there and then, with
# what each CPU was at on the console (loglevel 5: traces are warnings).
TELL_OF_LOCKUPS = "loglevel=5 sysctl.kernel.softlockup_panic=1 sysctl.kernel.softlockup_all_cpu_backtrace=1"
KERNEL_ARGUMENTS = f"console=ttyS0 panic=-1 {TELL_OF_LOCKUPS} mitigations=off clearcpuid=rep_good"
BOOT_MODULES = ["virtio_pci", "virtio_console", "overlay"]
# Two virtio network cards of its own on one wire, for what is seen inside a guest. Only a test loads their driver.
CARDS = [
    *("-netdev", "hubport,id=card0,hubid=0", "-device", "virtio-net-pci,netdev=card0,mac=52:54:00:00:01:00"),
    *("-netdev", "hubport,id=card1,hubid=0", "-device", "virtio-net-pci,netdev=card1,mac=52:54:00:00:01:01"),
]
# The checkout's share is asked anew at every access, milliseconds each, and Python imports hundreds of modules. Below
# it, on the root's share, lies the same directory as it was when it was first looked at. Arguments: it, and a command.
ON_A_STILL_CHECKOUT = """
mkdir -p /run/still
mount --bind / /run/still
mount --bind "/run/still$1" "$1"
cd "$1"
shift
exec "$@"
"""
# A nanosecond of the machine's clock is one instruction. One thread runs all CPUs, in turns: the clock is that of all.
INSTRUCTION_CLOCK = ("-icount", "shift=0")
CARRIED = "/run/carried"
"""Where files of types are before they are installed."""
NETWORK_MODULES = ["tun", "vhost_net", "openvswitch", "kvm_amd", "veth", "sch_netem"]


def on_a_still_checkout(*argv: str) -> list[str]:
    """A command for inside, run in the checkout: it starts far sooner than others, and sees no change to the files."""
    own_mounts = ["unshare", "--mount", "--propagation", "slave"]
    return [*own_mounts, "sh", "-ec", ON_A_STILL_CHECKOUT, "sh", str(CHECKOUT), *argv]


class Hypervisor(Machine):
    """A booted L1 with the modules of a hypervisor loaded.

    It runs on this machine's root file system (read-only, with a layer in memory over it) and sees the checkout as it
    is at every moment.
    """

    def __enter__(self) -> Hypervisor:
        return self

    def __init__(
        self,
        kernel: Kernel,
        *,
        lifetime_s: float = LIFETIME_S,
        ports: tuple[str, ...] = (),
        arguments: str = "",
        counts_instructions: bool = False,
    ) -> None:
        """Boots it. `arguments` are more for its kernel; `ports`: see Machine.

        `counts_instructions`: its clock counts instructions. The same work then takes the same time, however busy the
        host is. The machine is slow then, and a thread's time holds what another CPU ran meanwhile.
        """
        self.tree = fetch(kernel)
        self._image = bootable(self.tree)
        values = {
            "SHARE": kernel.share,
            "CHECKOUT": CHECKOUT,
            "VENV": sys.prefix,
            "TREE": self.tree.tree,
            "VERSION": self.tree.version,
        }
        with shares.export(kernel.share, {"root": Path("/"), "checkout": CHECKOUT}, MEMORY_MB) as export:
            super().__init__(
                [
                    *("-cpu", CPU, "-smp", str(CPUS), "-m", str(MEMORY_MB)),
                    *("-kernel", str(self._image)),
                    *("-append", f"{KERNEL_ARGUMENTS} {CLEARING[kernel.share]} {arguments}"),
                    *export.arguments,
                    *CARDS,
                    *(INSTRUCTION_CLOCK if counts_instructions else ()),
                ],
                emulator=dataclasses.replace(qemu(), accelerator=SLOW) if counts_instructions else None,
                initramfs=initramfs.build(
                    self.tree, initramfs.script(INIT, values), [*BOOT_MODULES, *shares.MODULES[kernel.share]]
                ),
                servers=export.servers,
                limit_s=lifetime_s,
                ports=ports,
            )
        try:
            self.run("modprobe", "-a", *NETWORK_MODULES)
            self._carry_types()
        except BaseException:
            self.close()
            raise

    def _carry_types(self) -> None:
        """To where its user would have carried them, for a kernel whose modules have none."""
        if not self.tree.kernel.made:
            return
        btf_files(self.tree)
        self.carry(made_types(self.tree.version))

    @property
    def types_inside(self) -> str:
        """The directory of carried types."""
        return f"{copied_types.DIRECTORY}/{self.tree.version}"

    def carry(self, types: Path) -> None:
        """Puts the files of this directory, named as the kernel, there by the command that doctor says."""
        carried_here = f"{CARRIED}/{types.name}"
        self.run("mkdir", "-p", carried_here)
        for path in types.iterdir():
            self.write_file(f"{carried_here}/{path.name}", path.read_bytes())
        install = type_files.how_to_make({"release": self.tree.version}).splitlines()[-1].strip()
        self.shell(f"cd {CARRIED}; {install.removeprefix('sudo ')}; rm -r {carried_here}")

    tree_inside = "/run/kernel"
    """Where the files of its kernel's package are inside, and what a test has put beside them before (l1_init.sh)."""

    @property
    def image_inside(self) -> str:
        """Its own kernel's image, as the guests need it (l1_init.sh)."""
        return f"{self.tree_inside}/boot/{self._image.name}"

    def shell(self, script: str, limit_s: float = COMMAND_LIMIT_S) -> str:
        """Runs a shell script that stops at the first failing command; returns what it printed."""
        return self.run("sh", "-ec", script, limit_s=limit_s).text

    def python(self, *arguments: str | Path, limit_s: float = COMMAND_LIMIT_S) -> str:
        """Runs the interpreter of the project's virtual environment in the checkout."""
        return self.run(sys.executable, *arguments, cwd=CHECKOUT, limit_s=limit_s).text

    def uptime_s(self) -> float:
        return float(self.read_file("/proc/uptime").split()[0])

    def counter(self, device: str, name: str) -> int:
        """A counter of a network device: rx_packets, tx_dropped, …"""
        return int(self.read_file(f"/sys/class/net/{device}/statistics/{name}"))

    def address_of(self, device: str, ip: str) -> Address:
        """An address of the hypervisor's own, as the target of a guest's packets."""
        return Address(ip, self.read_file(f"/sys/class/net/{device}/address").decode().strip())
