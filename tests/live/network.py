"""Namespaces, wires between them, and traffic whose number is exact: only what a test made, and gone when it ends."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_numbers = itertools.count(1)
_LIMIT_S = 120.0

SEND_UDP = """
import os, socket, sys
target, port, count, size, cpu, source_port = sys.argv[1], *map(int, sys.argv[2:])
os.sched_setaffinity(0, {cpu})
family = socket.AF_INET6 if ":" in target else socket.AF_INET
sender = socket.socket(family, socket.SOCK_DGRAM)
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
"""
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
        run("ip", "netns", "add", self.name)
        self.ip("link", "set", "lo", "up")

    @property
    def inode(self) -> int:
        return Path("/run/netns", self.name).stat().st_ino

    def remove(self) -> None:
        run("ip", "netns", "delete", self.name)

    def run(self, *words: str, input: str | None = None) -> str:
        return run("ip", "netns", "exec", self.name, *words, input=input)

    def ip(self, *words: str) -> str:
        return run("ip", "-n", self.name, *words)

    def tc(self, *words: str) -> str:
        return run("tc", "-n", self.name, *words)

    def python(self, code: str, *arguments: object, input: str | None = None) -> str:
        return self.run(sys.executable, "-c", code, *map(str, arguments), input=input)

    def start(self, code: str, *arguments: object) -> subprocess.Popen[str]:
        """A program that goes on; the caller ends it."""
        words = ["ip", "netns", "exec", self.name, sys.executable, "-uc", code, *map(str, arguments)]
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def qdisc(self, device: str) -> dict[str, int]:
        """Statistics of the root qdisc as tc shows them: packets, drops, requeues, qlen …"""
        found = json.loads(self.tc("-s", "-j", "qdisc", "show", "dev", device, "root"))
        return {key: value for key, value in found[0].items() if isinstance(value, int)}

    def statistics(self, device: str) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = json.loads(self.ip("-s", "-j", "link", "show", "dev", device))[0]["stats64"]
        return found

    def snmp(self, protocol: str, name: str) -> int:
        """A figure of /proc/net/snmp."""
        lines = [line.split() for line in self.run("cat", "/proc/net/snmp").splitlines()]
        names, values = (line for line in lines if line[0] == f"{protocol}:")
        return int(values[names.index(name)])


class Wire:
    """A veth pair between two namespaces, with addresses, and neighbours that need not be asked for."""

    ADDRESSES = ("192.0.2.1", "192.0.2.2")
    ADDRESSES6 = ("2001:db8::1", "2001:db8::2")
    DEVICES = ("veth-a", "veth-b")
    MACS = ("02:00:00:00:00:0a", "02:00:00:00:00:0b")

    def __init__(self, a: Namespace, b: Namespace) -> None:
        self.a, self.b = a, b
        peer = ("type", "veth", "peer", "name", self.DEVICES[1], "netns", b.name)
        a.ip("link", "add", self.DEVICES[0], *peer)
        for end, (namespace, device) in enumerate(zip((a, b), self.DEVICES, strict=True)):
            namespace.ip("link", "set", device, "address", self.MACS[end])
            namespace.ip("link", "set", device, "up")
            namespace.ip("address", "add", self.ADDRESSES[end] + "/24", "dev", device)
            namespace.ip("address", "add", self.ADDRESSES6[end] + "/64", "dev", device, "nodad")
            for address in (self.ADDRESSES, self.ADDRESSES6):
                other = ("lladdr", self.MACS[1 - end], "dev", device, "nud", "permanent")
                namespace.ip("neighbour", "replace", address[1 - end], *other)

    def restore(self) -> None:
        """Takes back the qdiscs of a test."""
        for namespace, device in zip((self.a, self.b), self.DEVICES, strict=True):
            if json.loads(namespace.tc("-j", "qdisc", "show", "dev", device, "root"))[0]["kind"] != "noqueue":
                namespace.tc("qdisc", "delete", "dev", device, "root")


def send_udp(
    namespace: Namespace, target: str, port: int, count: int, size: int = 64, senders: int = 1, source_port: int = 0
) -> None:
    """``count`` datagrams in all, from several processes that take turns on the CPUs."""
    cpus = sorted(os.sched_getaffinity(0))
    shares = [count // senders + (number < count % senders) for number in range(senders)]
    running = [
        namespace.start(SEND_UDP, target, port, share, size, cpus[number % len(cpus)], source_port)
        for number, share in enumerate(shares)
    ]
    for process in running:
        process.communicate(timeout=_LIMIT_S)
        assert process.returncode == 0


def send_frames(namespace: Namespace, device: str, frames: Sequence[bytes]) -> None:
    """These Ethernet frames, as they are."""
    namespace.python(SEND_FRAMES, device, input="".join(frame.hex() + "\n" for frame in frames))
