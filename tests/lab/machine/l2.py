"""Virtual machines on the lab's hypervisor (L2): busybox under nested KVM, on a vhost-net tap."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.kernels.fetch import KernelTree
from tests.lab.machine import guest_python, initramfs
from tests.lab.machine.errors import CommandTimeout, LabError, MachineDied
from tests.lab.machine.machine import Process

if TYPE_CHECKING:
    from tests.lab.machine.hypervisor import Hypervisor

INIT = Path(__file__).with_name("l2_init.sh")
DOOR_PROGRAM = Path(__file__).with_name("guest_door.py")
DOOR_PORT = 77
PYTHON_IMAGE = "guest-python.cpio"
MODULES = ["virtio_pci", "virtio_net", "pktgen"]
MEMORY_MB = 128
MEMORY_WITH_PYTHON_MB = 320
BOOT_LIMIT_S = 90.0  # a boot takes 10 to 30 s: only a hang meets these, also where four such machines share two cores
COMMAND_LIMIT_S = 90.0
FLOOD_LIMIT_S = 180.0
ANSWER_LIMIT_S = 30.0
BOOT_TRIES = 3  # nested KVM under TCG now and then loses an interrupt
RUN_DIRECTORY = "/run/lab"
EXTRA_VECTORS = 2  # of a card besides those of its queues: configuration and control queue
KERNEL_ARGUMENTS = (
    "console=ttyS0 panic=-1 quiet mitigations=off init_on_alloc=0 clearcpuid=rep_good"  # as the hypervisor's
)

# The monitor prints its prompt when a command has been carried out.
MONITOR = """
import socket, sys
monitor = socket.socket(socket.AF_UNIX)
monitor.connect(sys.argv[1])
monitor.settimeout(20)
said = b""
def until(prompts):
    global said
    while said.count(b"(qemu)") < prompts:
        part = monitor.recv(4096)
        if not part:
            sys.exit("the monitor hung up: " + said.decode())
        said += part
until(1)
monitor.sendall(sys.argv[2].encode() + b"\\n")
until(2)
"""


@dataclass(frozen=True)
class Address:
    """Where packets go."""

    ip: str
    mac: str


@dataclass(frozen=True)
class Card:
    """How a guest is attached to the network."""

    tap: str
    mac: str
    address: str  # with prefix length
    queues: int = 1
    door: str = ""
    """With Python: where the guest's own end of a second wire is, with prefix length. Its tap is named after it."""

    @property
    def door_tap(self) -> str:
        return f"{self.tap}d"

    @property
    def at(self) -> Address:
        return Address(self.address.partition("/")[0], self.mac)


@dataclass(frozen=True)
class Disk:
    """A disk of a guest on a block device or file of the hypervisor, past its page cache: /dev/vda, then /dev/vdb, …"""

    path: str
    aio: str = "native"
    iothread: bool = True
    """Whether it has an I/O thread of its own. Without one QEMU's main thread serves it."""
    polls: bool = True
    """Whether that thread looks into the queue by itself for a while (poll-max-ns, as QEMU does), so that the guest
    does not kick."""
    most_per_s: int = 0
    """I/Os that QEMU lets through (throttling); 0: all."""

    def options(self, number: int) -> list[str]:
        """For QEMU."""
        thread = f"thread{number}"
        polling = "" if self.polls else ",poll-max-ns=0"
        limit = f",throttling.iops-total={self.most_per_s}" if self.most_per_s else ""
        return [
            *(["-object", f"iothread,id={thread}{polling}"] if self.iothread else []),
            *("-drive", f"file={self.path},if=none,id=disk{number},format=raw,cache=none,aio={self.aio}{limit}"),
            *("-device", f"virtio-blk-pci,drive=disk{number}" + (f",iothread={thread}" if self.iothread else "")),
        ]


class Guest:
    """A virtual machine; `start` boots it, `stop` ends it, `card` says where it is attached.

    One whose card has a door also has Python, and a second card that vhost does not serve: what comes by it runs in the
    guest (guest_door.py), and disturbs nothing on the first one.
    """

    def __init__(self, hypervisor: Hypervisor, name: str, card: Card, disks: Sequence[Disk] = ()) -> None:
        self.hypervisor = hypervisor
        self.name = name
        self.card = card
        self.disks = disks
        self._process: Process | None = None
        self._tokens = itertools.count(1)
        self._known: list[Address] = []

    @property
    def console_file(self) -> str:
        return f"{RUN_DIRECTORY}/{self.name}.console"

    @property
    def monitor_socket(self) -> str:
        return f"{RUN_DIRECTORY}/{self.name}.monitor"

    def start(self) -> None:
        """Boots it and waits for its shell; starts over when it hangs. Raises LabError when it never comes up."""
        for attempt in range(1, BOOT_TRIES + 1):
            self._launch()
            try:
                assert self._process is not None
                self._process.wait_for(b"guest ready", BOOT_LIMIT_S)
                self.know(self._known)
                return
            except (CommandTimeout, MachineDied) as error:
                self.stop()
                if attempt == BOOT_TRIES:
                    raise LabError(f"guest {self.name} did not boot: {error}\n{self.console()}") from error

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def run(self, command: str, limit_s: float = COMMAND_LIMIT_S) -> str:
        """Runs a shell command in it; returns what it printed. Raises LabError when it fails or hangs."""
        if self._process is None:
            raise LabError(f"guest {self.name} is not running")
        token = f"done{next(self._tokens)}"
        self._process.write(f"{token} {command}\n".encode())
        try:
            text = self._process.wait_for(f"\n{token} ".encode(), limit_s)
            code = int(self._process.wait_for(b"\n", limit_s))
        except (CommandTimeout, MachineDied) as error:
            if not self.hypervisor.answers():
                raise
            raise type(error)(f"guest {self.name}: {error}\n{self.console()}") from error
        said = text.decode("utf-8", "replace").replace("\r", "").rpartition("\n")[0].strip("\n")
        if code != 0:
            raise LabError(f"guest {self.name}: {command}: status {code}: {said}")
        return said

    def know(self, others: list[Address]) -> None:
        """Gives it fixed addresses of its neighbours, so that no ARP packet blurs a count; kept over restarts."""
        self._known = others
        for other in others:
            self.run(f"arp -s {other.ip} {other.mac}")

    def answers(self) -> bool:
        """Whether its shell and its card still work: after a flood nested KVM now and then loses an interrupt."""
        try:
            self.run("true", ANSWER_LIMIT_S)
        except LabError:
            return False
        ping = ("ping", "-c", "1", "-w", str(int(ANSWER_LIMIT_S)), self.card.at.ip)
        return self.hypervisor.run("busybox", *ping, check=False).code == 0

    def revive(self) -> bool:
        """Restarts it when it does not answer; says whether it had to."""
        if self.answers():
            return False
        self.restart()
        return True

    def send_udp(self, count: int, to: Address, *, port: int, size: int = 100, queue: int = 0) -> None:
        """Sends exactly `count` UDP datagrams with the kernel's packet generator, as fast as the card takes them.

        `size` is that of the frame in bytes. Raises LabError when not all of them could be sent.
        """
        self._generator(queue, [f"count {count}", f"pkt_size {size}", "delay 0", *_target(to, port)])
        shown = self.run(f"echo start >/proc/net/pktgen/pgctrl && cat {_generator_of(queue)}", FLOOD_LIMIT_S)
        if f"pkts-sofar: {count}  errors: 0" not in shown:
            raise LabError(f"guest {self.name} did not send {count} datagrams:\n{shown}")

    def keep_sending_udp(self, per_s: int, to: Address, *, port: int) -> None:
        """Sends UDP datagrams at this rate in the background until it stops."""
        self._generator(0, ["count 0", f"ratep {per_s}", *_target(to, port)])
        self.run("echo start >/proc/net/pktgen/pgctrl &")

    def keep_pinging(self, to: Address) -> None:
        """Pings once a second in the background until it stops."""
        self.run(f"ping {to.ip} >/dev/null 2>&1 &")

    def be_quiet(self) -> None:
        """Ends what it sends in the background."""
        self.run("echo stop >/proc/net/pktgen/pgctrl; killall ping 2>/dev/null; true")

    def _generator(self, queue: int, settings: list[str]) -> None:
        thread = f"/proc/net/pktgen/kpktgend_{queue}"
        # All threads start together: those of other queues must have nothing left to send.
        lines = ["echo reset >/proc/net/pktgen/pgctrl", f"echo add_device eth0@{queue} >{thread}"]
        settings = ["clone_skb 0", f"queue_map_min {queue}", f"queue_map_max {queue}", *settings]
        lines += [f"echo {setting} >{_generator_of(queue)}" for setting in settings]
        self.run(" && ".join(lines))

    def monitor(self, command: str) -> None:
        """Has its QEMU carry out a command of the human monitor."""
        self.hypervisor.run("python3", "-c", MONITOR, self.monitor_socket, command)

    def console(self) -> str:
        """The last lines of its kernel console."""
        return self.hypervisor.run("tail", "-n", "25", self.console_file, check=False).text

    def _launch(self) -> None:
        hypervisor = self.hypervisor
        image = f"{RUN_DIRECTORY}/{self.name}.initramfs"
        values = {"ADDRESS": self.card.address, "DOOR": self.card.door, "DOOR_PORT": DOOR_PORT}
        script = initramfs.script(INIT, values)
        multi_queue = "multi_queue" if self.card.queues > 1 else ""
        hypervisor.shell(f"""
            mkdir -p {RUN_DIRECTORY}
            [ -e /sys/class/net/{self.card.tap} ] ||
                ip tuntap add dev {self.card.tap} mode tap vnet_hdr {multi_queue}
            # No multicast of the hypervisor's own on this wire: a count holds what a test sends and nothing else.
            echo 1 >/proc/sys/net/ipv6/conf/{self.card.tap}/disable_ipv6
            ip link set {self.card.tap} up
        """)
        files = {DOOR_PROGRAM.name: DOOR_PROGRAM.read_bytes()} if self.card.door else {}
        modules = [*MODULES, *(["virtio_blk"] if self.disks else [])]
        hypervisor.write_file(image, initramfs.build(hypervisor.tree, script, modules, files))
        if self.card.door:
            hypervisor.shell(f"""
                cat {hypervisor.tree_inside}/{PYTHON_IMAGE} >>{image}
                [ -e /sys/class/net/{self.card.door_tap} ] ||
                    ip tuntap add dev {self.card.door_tap} mode tap vnet_hdr
                echo 1 >/proc/sys/net/ipv6/conf/{self.card.door_tap}/disable_ipv6
                ip link set {self.card.door_tap} up
            """)
        queues = self.card.queues
        mq = f"mq={'on' if queues > 1 else 'off'},vectors={2 * queues + EXTRA_VECTORS}"
        self._process = hypervisor.start(
            *("qemu-system-x86_64", "-accel", "kvm", "-cpu", "host"),
            *("-m", str(MEMORY_WITH_PYTHON_MB if self.card.door else MEMORY_MB)),
            *("-smp", str(queues)),
            *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-name", f"{self.name},debug-threads=on" if self.disks else self.name),
            *("-kernel", hypervisor.image_inside, "-initrd", image, "-append", KERNEL_ARGUMENTS),
            *("-serial", f"file:{self.console_file}", "-serial", "stdio"),
            *("-monitor", f"unix:{self.monitor_socket},server=on,wait=off"),
            *("-netdev", f"tap,id=net,ifname={self.card.tap},script=no,downscript=no,vhost=on,queues={queues}"),
            *("-device", f"virtio-net-pci,netdev=net,mac={self.card.mac},{mq}"),
            *(self._door() if self.card.door else ()),
            *(option for number, disk in enumerate(self.disks) for option in disk.options(number)),
        )

    def _door(self) -> list[str]:
        netdev = f"tap,id=door,ifname={self.card.door_tap},script=no,downscript=no,vhost=off"
        return ["-netdev", netdev, "-device", "virtio-net-pci,netdev=door"]


def prepare_python(tree: KernelTree) -> None:
    """Puts the Python of guests with a door beside their kernel. Before the hypervisor boots: it reads it by its share,
    twenty times as fast as over its command line."""
    content = guest_python.files()
    path = tree.tree / PYTHON_IMAGE
    if not path.exists() or path.read_bytes() != content:
        new = path.with_suffix(f".{os.getpid()}")
        new.write_bytes(content)
        new.rename(path)


def _generator_of(queue: int) -> str:
    return f"/proc/net/pktgen/eth0@{queue}"


def _target(to: Address, port: int) -> list[str]:
    return [f"dst {to.ip}", f"dst_mac {to.mac}", f"udp_dst_min {port}", f"udp_dst_max {port}"]
