"""A test network of three hosts: namespace h forwards between a and b, over a bridge or over VXLAN."""

from __future__ import annotations

import os

from netconsole.telemetry.frames import Buckets
from netconsole.telemetry.histogram import add, subtract
from tests.support.live.measurement import Measurement
from tests.support.live.network import Namespace

HOST_PATH = "host_path"
INSIDE, OUTSIDE = f"nci{os.getpid()}", f"nco{os.getpid()}"
"""The host's devices to a and to b. A probe goes by their names, whoever else has such devices."""
A, B = "10.99.0.1", "10.99.0.2"
A6, B6 = "fd99::1", "fd99::2"
MACS = ("02:00:00:00:01:0a", "02:00:00:00:01:0b")
TCP_PORT = 5001
_LIMIT_S = 120.0

PING = """
import os, socket, struct, sys
target, count = sys.argv[1], int(sys.argv[2])
v6 = ":" in target
sock = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_RAW, 58 if v6 else 1)
sock.settimeout(30)
def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
for number in range(count):
    echo = struct.pack(">BBHHH", 128 if v6 else 8, 0, 0, 77, number) + os.urandom(56)
    echo = echo if v6 else echo[:2] + struct.pack(">H", checksum(echo)) + echo[4:]
    sock.sendto(echo, (target, 0))
    while True:
        reply = sock.recv(2048)[0 if v6 else 20:]
        if reply[0] == (129 if v6 else 0) and reply[6:8] == echo[6:8]:
            break
"""
SERVE_TCP = """
import socket, sys
listener = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
connection, _ = listener.accept()
total = 0
while data := connection.recv(1 << 20):
    total += len(data)
print(total, flush=True)
"""
SEND_TCP = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
connection.sendall(bytes(int(sys.argv[3])))
connection.shutdown(socket.SHUT_WR)
connection.recv(1)
"""


class Host:
    """Three namespaces, a - h - b. a and b know each other's addresses: nobody asks for them."""

    def __init__(self) -> None:
        self.a, self.h, self.b = self.namespaces = Namespace(), Namespace(), Namespace()
        for end, device in ((self.a, INSIDE), (self.b, OUTSIDE)):
            self.h.ip("link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", end.name)

    def bridge(self) -> None:
        """a and b in one subnet, h a bridge between them."""
        self._bridge(INSIDE, OUTSIDE)
        self._up(self.a, "eth0", 0)
        self._up(self.b, "eth0", 1)

    def vxlan(self) -> None:
        """a in one subnet with b's end of a VXLAN tunnel that begins in h; the underlay is h's other device."""
        tunnel = ("type", "vxlan", "id", "7", "dstport", "4789", "noudpcsum")
        for namespace, device, own, other in ((self.h, OUTSIDE, 1, 2), (self.b, "eth0", 2, 1)):
            self._quiet(namespace, device)
            namespace.ip("address", "add", f"172.31.0.{own}/24", "dev", device)
            namespace.ip("link", "set", device, "up")
            namespace.ip("link", "add", "vx7", *tunnel, "local", f"172.31.0.{own}", "remote", f"172.31.0.{other}")
        self._bridge(INSIDE, "vx7")
        self._up(self.a, "eth0", 0)
        self.a.ip("link", "set", "eth0", "mtu", "1450")
        self._up(self.b, "vx7", 1)
        self.a.python(PING, B, 1)  # the ends of the tunnel get to know each other

    def _bridge(self, *ports: str) -> None:
        self.h.ip("link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        for device in ("br0", *ports):
            self._quiet(self.h, device)
            if device != "br0":
                self.h.ip("link", "set", device, "master", "br0")
            self.h.ip("link", "set", device, "up")

    def _quiet(self, namespace: Namespace, device: str) -> None:
        namespace.run("sh", "-c", f"echo 1 > /proc/sys/net/ipv6/conf/{device}/disable_ipv6")

    def _up(self, end: Namespace, device: str, own: int) -> None:
        end.ip("link", "set", device, "address", MACS[own], "multicast", "off", "up")  # it would report its groups
        end.ip("address", "add", f"{(A, B)[own]}/24", "dev", device)
        end.ip("address", "add", f"{(A6, B6)[own]}/64", "dev", device, "nodad")
        for address in ((A, B)[1 - own], (A6, B6)[1 - own]):
            end.ip("neighbour", "replace", address, "lladdr", MACS[1 - own], "dev", device, "nud", "permanent")

    def tcp(self, target: str, size: int) -> int:
        """Sends so many bytes from a to b; the number of segments that both sent (of TCP, not of the devices)."""
        before = self._segments()
        server = self.b.start(SERVE_TCP, TCP_PORT)
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        self.a.python(SEND_TCP, target, TCP_PORT, size)
        told, _ = server.communicate(timeout=_LIMIT_S)
        assert int(told) == size
        return self._segments() - before

    def _segments(self) -> int:
        """OutSegs leaves out what is sent again."""
        return sum(end.snmp("Tcp", name) for end in (self.a, self.b) for name in ("OutSegs", "RetransSegs"))

    def remove(self) -> None:
        for namespace in self.namespaces:
            namespace.remove()


class Watch:
    """What host_path counted since the watch was made, by direction."""

    def __init__(self, path: Measurement, **knobs: str | int | float) -> None:
        self.path = path
        path.set(HOST_PATH, **knobs)
        path.begin()
        self._before = self._now()

    def _now(self) -> dict[tuple[str, ...], Buckets]:
        return {
            (name, *map(str, one.labels.values())): one.total
            for name in ("crossing", "stages")
            for one in self.path.histograms(HOST_PATH, name)
        }

    def stop(self) -> None:
        """Everything that has happened is in the figures from here on."""
        self.path.settle()
        self._added = {
            key: subtract(total, self._before[key]) if key in self._before else total
            for key, total in self._now().items()
        }

    def crossed(self, direction: str) -> int:
        return self.added("crossing", direction).count

    def stage(self, direction: str, stage: str) -> tuple[int, int]:
        """Samples, and their sum in ns."""
        added = self.added("stages", direction, stage)
        return added.count, added.sum

    def whole(self, direction: str) -> int:
        """Sum of all latencies in ns."""
        return self.added("crossing", direction).sum

    def added(self, *key: str) -> Buckets:
        """Histogram name and labels from the first on: what these took together."""
        return add(one for known, one in self._added.items() if known[: len(key)] == key)

    def counter(self, name: str) -> int:
        return self.path.counter(HOST_PATH, name)

    def missed(self) -> dict[str, int]:
        """What the ledger and the counters of incomplete ways hold against the figures; empty when they are exact."""
        entries = ("join_missed", "map_full", "missed", "parse_failed", "unaccounted")
        found = {entry: self.path.ledger(HOST_PATH, entry) for entry in entries}
        found.update({name: self.counter(name) for name in ("evicted", "exchanged", "unmatched")})
        return {name: count for name, count in found.items() if count}
