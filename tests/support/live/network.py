"""Makes network namespaces, wires between them, and traffic with an exact number of packets; removes all at the end."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

IS_EMULATED = "QEMU TCG" in Path("/proc/cpuinfo").read_text()
"""As in the lab: there a packet takes 50 times as long, so that fewer do for a storm."""

PYTHON = (sys.executable, "-uc")
BARE_PYTHON = (sys.executable, "-ISuc")
"""For what needs only the standard library. It starts twice as fast, which shows in the lab: a quarter of a second."""

_numbers = itertools.count(1)
_naming = threading.Lock()
"""The first namespace makes the directory of names; two at once would mount it twice."""
_LIMIT_S = 120.0

# A queue is emptied by a timer, in whatever task it interrupts. Hosted machines exist whose init is exempt from BPF:
# what happens while it runs is not seen. So a sender may stay on its CPU, ahead of others, until nothing that it sent
# waits in a queue any more. It may not sleep before, either, for room in its buffer: init would run meanwhile.
# Not in the lab: softirqs that take long are left to ksoftirqd, behind such a sender.
LINGER = """
import fcntl, os, time
SIOCOUTQ, LINGER_LIMIT_S = 0x5411, 60
def linger(sender):
    sender.setsockopt(1, 32, 64 << 20)  # SOL_SOCKET, SO_SNDBUFFORCE: all of them wait in the queue
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        pass  # a container without real-time: then it is ahead of others most of the time
def wait(sender):
    end = time.monotonic() + LINGER_LIMIT_S
    while any(fcntl.ioctl(sender, SIOCOUTQ, bytes(4))) and time.monotonic() < end:
        pass
"""
SEND_UDP = (
    LINGER
    + """
import socket, sys
target, port, count, size, cpu, source_port, lingers = sys.argv[1], *map(int, sys.argv[2:])
os.sched_setaffinity(0, {cpu})
family = socket.AF_INET6 if ":" in target else socket.AF_INET
sender = socket.socket(family, socket.SOCK_DGRAM)
if lingers:
    linger(sender)
if source_port:
    sender.bind(("", source_port))
payload, to, sent = bytes(size), (target, port), 0
while sent < count:
    try:
        sender.sendto(payload, to)
    except ConnectionRefusedError:
        continue
    except OSError as error:
        if error.errno != 105:  # ENOBUFS: the qdisc shed it, and it was sent all the same
            raise
    sent += 1
if lingers:
    wait(sender)
"""
)
SEND_FRAMES = """
import socket, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind((sys.argv[1], 0))
for line in sys.stdin:
    try:
        wire.send(bytes.fromhex(line))
    except OSError as error:
        if error.errno != 105:
            raise
"""


def run(*words: str, input: str | None = None) -> str:
    """A command that has to succeed; its output."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT_S, input=input)
    assert done.returncode == 0, f"{' '.join(words)[:200]}: {done.stderr.strip()}"
    return done.stdout


class Namespace:
    """A network namespace with a name; its loopback is up."""

    def __init__(self) -> None:
        self.name = f"nc{os.getpid()}-{next(_numbers)}"
        self.is_shaped = False
        with _naming:
            run("ip", "netns", "add", self.name)
        self.ip("link", "set", "lo", "up")

    @property
    def inode(self) -> int:
        return Path("/run/netns", self.name).stat().st_ino

    def remove(self) -> None:
        run("ip", "netns", "delete", self.name)

    def run(self, *words: str, input: str | None = None) -> str:
        return run(*self._inside(*words), input=input)

    def ip(self, *words: str) -> str:
        return run("ip", "-n", self.name, *words)

    def tc(self, *words: str) -> str:
        self.is_shaped = self.is_shaped or words[:2] in (("qdisc", "add"), ("qdisc", "replace"))
        return run("tc", "-n", self.name, *words)

    def python(self, code: str, *arguments: object, input: str | None = None) -> str:
        return self.run(*BARE_PYTHON, code, *map(str, arguments), input=input)

    def start(self, code: str, *arguments: object, python: tuple[str, ...] = BARE_PYTHON) -> subprocess.Popen[str]:
        """A program that goes on; the caller ends it."""
        words = self._inside(*python, code, *map(str, arguments))
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _inside(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *words]

    def qdisc(self, device: str) -> dict[str, int]:
        """Statistics of the root qdisc as tc shows them: packets, drops, requeues, qlen …"""
        found = json.loads(self.tc("-s", "-j", "qdisc", "show", "dev", device, "root"))
        return {key: value for key, value in found[0].items() if isinstance(value, int)}

    def qdisc_kind(self, device: str) -> str:
        """Of the root qdisc: tbf, noqueue …"""
        return str(json.loads(self.tc("-j", "qdisc", "show", "dev", device, "root"))[0]["kind"])

    def drain(self, device: str) -> None:
        """Wait until nothing waits in the device's queue any more."""
        while self.qdisc(device)["qlen"]:
            pass

    def statistics(self, device: str) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = json.loads(self.ip("-s", "-j", "link", "show", "dev", device))[0]["stats64"]
        return found

    def snmp(self, protocol: str, name: str) -> int:
        """A figure of /proc/net/snmp or netstat: Tcp, Udp; TcpExt."""
        lines = [line.split() for line in self.run("cat", "/proc/net/snmp", "/proc/net/netstat").splitlines()]
        names, values = (line for line in lines if line[0] == f"{protocol}:")
        return int(values[names.index(name)])


class Wire:
    """A veth pair between two namespaces, with addresses, and neighbours that need not be asked for."""

    ADDRESSES = ("192.0.2.1", "192.0.2.2")
    ADDRESSES6 = ("2001:db8::1", "2001:db8::2")
    DEVICES = ("veth-a", "veth-b")
    MACS = ("02:00:00:00:00:0a", "02:00:00:00:00:0b")

    def __init__(self, a: Namespace, b: Namespace, *, between: Callable[[Namespace, str], None] | None = None) -> None:
        """``between``: plugs a device of a namespace in elsewhere, instead of one into the other."""
        self.a, self.b = a, b
        self._has_ipv6 = True
        if between is None:
            here, there = (str(os.getpid() * 100 + next(_numbers)) for _ in "ab")  # those of no other wire
            peer = ("type", "veth", "peer", "name", self.DEVICES[1], "index", there, "netns", b.name)
            a.ip("link", "add", self.DEVICES[0], "index", here, *peer)
        else:
            for namespace, device in zip((a, b), self.DEVICES, strict=True):
                between(namespace, device)
        for namespace, device, mac in zip((a, b), self.DEVICES, self.MACS, strict=True):
            namespace.ip("link", "set", device, "address", mac)
        self._ipv6(False)  # it talks by itself, and tests count
        for namespace, device in zip((a, b), self.DEVICES, strict=True):
            namespace.ip("link", "set", device, "up")
        self._give(self.ADDRESSES, "24")

    def use_ipv6(self) -> None:
        """Until :meth:`restore`."""
        self._ipv6(True)
        self._give(self.ADDRESSES6, "64", "nodad")

    def _give(self, addresses: tuple[str, str], length: str, *flags: str) -> None:
        for end, (namespace, device) in enumerate(zip((self.a, self.b), self.DEVICES, strict=True)):
            namespace.ip("address", "add", f"{addresses[end]}/{length}", "dev", device, *flags)
            other = ("lladdr", self.MACS[1 - end], "dev", device, "nud", "permanent")
            namespace.ip("neighbour", "replace", addresses[1 - end], *other)

    def _ipv6(self, is_on: bool) -> None:
        if is_on == self._has_ipv6:
            return
        self._has_ipv6 = is_on
        for namespace, device in zip((self.a, self.b), self.DEVICES, strict=True):
            namespace.run("sysctl", "-qw", f"net.ipv6.conf.{device}.disable_ipv6={int(not is_on)}")

    def lose(self, is_lost: bool) -> None:
        """What the first end sends is for nobody, or for the second end again."""
        mac = "02:00:00:00:00:ff" if is_lost else self.MACS[1]
        to = ("lladdr", mac, "dev", self.DEVICES[0], "nud", "permanent")
        self.a.ip("neighbour", "replace", self.ADDRESSES[1], *to)

    def shape(self, rate: str, burst: str, limit: str) -> None:
        """A token bucket on the first end: the one shaper that every kernel at hand has."""
        self.a.tc(
            *("qdisc", "replace", "dev", self.DEVICES[0], "root", "tbf"),
            *("rate", rate, "burst", burst, "limit", limit),
        )

    def restore(self) -> None:
        """Takes back the qdiscs of a test, and IPv6."""
        self._ipv6(False)
        for namespace, device in zip((self.a, self.b), self.DEVICES, strict=True):
            if namespace.is_shaped:
                namespace.is_shaped = False
                if namespace.qdisc_kind(device) != "noqueue":
                    namespace.tc("qdisc", "delete", "dev", device, "root")


def send_udp(
    namespace: Namespace,
    target: str,
    port: int,
    count: int,
    size: int = 64,
    senders: int = 1,
    source_port: int = 0,
    lingers: bool = False,
) -> None:
    """``count`` datagrams in all, from several processes that take turns on the CPUs; ``lingers``: see LINGER."""
    cpus, lingers = sorted(os.sched_getaffinity(0)), lingers and not IS_EMULATED
    shares = [count // senders + (number < count % senders) for number in range(senders)]
    running = [
        namespace.start(SEND_UDP, target, port, share, size, cpus[number % len(cpus)], source_port, int(lingers))
        for number, share in enumerate(shares)
    ]
    for process in running:
        process.communicate(timeout=_LIMIT_S)
        assert process.returncode == 0


RECEIVER_THAT_SLEEPS = """
import os, socket, sys
count, kind = int(sys.argv[1]), sys.argv[2]
receivers = []
for number in range(count):
    if kind == "raw":
        receiver = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
    else:
        receiver = socket.socket(socket.AF_INET6 if kind == "IPv6" else socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    receiver.bind(("", receivers[0].getsockname()[1] if receivers else 0))
    receivers.append(receiver)
print(receivers[0].getsockname()[1], os.getpid(), *(os.fstat(one.fileno()).st_ino for one in receivers), flush=True)
sys.stdin.read()
"""


class SleepingReceiver:
    """A process with sockets on one UDP port that it never reads, their buffers as small as can be.

    A raw one gets every UDP datagram of the namespace, whatever its port.
    """

    def __init__(self, namespace: Namespace, sockets: int = 1, kind: Literal["IPv4", "IPv6", "raw"] = "IPv4") -> None:
        self._process = namespace.start(RECEIVER_THAT_SLEEPS, sockets, kind)
        assert self._process.stdout
        self.port, self.pid, *self.inodes = map(int, self._process.stdout.readline().split())

    def __enter__(self) -> SleepingReceiver:
        return self

    def __exit__(self, *unused: object) -> None:
        self._process.communicate(timeout=_LIMIT_S)


def send_frames(namespace: Namespace, device: str, frames: Sequence[bytes]) -> None:
    """These Ethernet frames, as they are."""
    namespace.python(SEND_FRAMES, device, input="".join(frame.hex() + "\n" for frame in frames))
