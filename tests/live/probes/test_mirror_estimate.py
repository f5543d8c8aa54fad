"""mirror estimates what was lost before its first counter: real connections, in a VXLAN that loses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.live.measurement import Measurement
from tests.support.live.network import Namespace, Wire

PROBE = "mirror"
VNI = 7
MEGABYTE = 1_000_000
CONNECTIONS = 8
INNER = 20 + 32
"""Bytes of headers: IP, and TCP with its time stamps."""
OUTER = 20 + 8 + 8 + 14 + INNER
"""The same of a mirrored packet: IP, UDP, VXLAN, Ethernet before."""
FACTOR = 1.5
"""Within which the estimate is."""
CLIENT, SERVER = "198.51.100.1", "198.51.100.2"

# Each connection: a megabyte there, and one back.
ANSWER = """
import socket, sys
server = socket.create_server(("", 80))
print("ready", flush=True)
while True:
    one, _ = server.accept()
    while one.recv(1 << 20):
        pass
    one.sendall(bytes(int(sys.argv[1])))
    one.close()
"""
ASK = """
import socket, sys
target, many, size = sys.argv[1], *map(int, sys.argv[2:])
got = 0
for _ in range(many):
    one = socket.create_connection((target, 80))
    one.sendall(bytes(size))
    one.shutdown(socket.SHUT_WR)
    while more := one.recv(1 << 20):
        got += len(more)
    one.close()
print(got)
"""


class Cloud:
    """Two guests at a bridge that knows no address, so that its tunnel to the collector's host has each packet."""

    def __init__(self, wire: Wire, stack: ExitStack) -> None:
        self.host, self.client, self.server = wire.a, Namespace(), Namespace()
        for end, device in zip((wire.a, wire.b), Wire.DEVICES, strict=True):
            end.ip("link", "set", device, "mtu", "2000")
            stack.callback(end.ip, "link", "set", device, "mtu", "1500")
        self._bridge("type", "bridge", "ageing_time", "0", "mcast_snooping", "0", name="br0")
        stack.callback(self.host.ip, "link", "del", "br0")
        tunnel = ("type", "vxlan", "id", str(VNI), "remote", Wire.ADDRESSES[1], "dstport", "4789")
        self._bridge(*tunnel, "dev", Wire.DEVICES[0], name="mirror0")
        stack.callback(self.host.ip, "link", "del", "mirror0")
        for guest, address, port in ((self.client, CLIENT, "port1"), (self.server, SERVER, "port2")):
            stack.callback(guest.remove)
            self._bridge("type", "veth", "peer", "name", "eth0", "netns", guest.name, name=port)
            guest.ip("link", "set", "eth0", "gso_max_segs", "1", "up")  # it sends what the wire has
            guest.run("sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=1")
            guest.ip("address", "add", f"{address}/24", "dev", "eth0")
        for end in (self.host, self.server):
            end.run("nft", "add table inet f; add chain inet f out { type filter hook output priority 0; }")
        stack.callback(self.host.run, "nft", "delete table inet f")
        server = self.server.start(ANSWER, MEGABYTE)
        stack.callback(server.wait)
        stack.callback(server.kill)
        assert server.stdout is not None and server.stdout.readline() == "ready\n"

    def _bridge(self, *what: str, name: str) -> None:
        """A device of the host without addresses; all but the bridge are its ports."""
        self.host.ip("link", "add", name, *what)
        self.host.run("sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=1")
        self.host.ip("link", "set", name, *(() if name == "br0" else ("master", "br0")), "up")

    def lose(self, at: Namespace, what: str, pct: int) -> None:
        """From here on, by chance."""
        at.run("nft", f"add rule inet f out {what} numgen random mod 100 < {pct} counter drop")

    def talk(self) -> None:
        """All of it comes, whatever the mirror loses."""
        assert int(self.client.python(ASK, SERVER, CONNECTIONS, MEGABYTE)) == CONNECTIONS * MEGABYTE

    def lost(self, at: Namespace, headers: int) -> int:
        """Bytes of what was dropped there, without so many headers of each packet."""
        found = json.loads(at.run("nft", "-j", "list", "chain", "inet", "f", "out"))["nftables"]
        (counter,) = (
            part["counter"] for one in found if "rule" in one for part in one["rule"]["expr"] if "counter" in part
        )
        return int(counter["bytes"]) - headers * int(counter["packets"])


@pytest.fixture
def cloud(wire: Wire) -> Iterator[Cloud]:
    with ExitStack() as stack:
        yield Cloud(wire, stack)


def missing(collector: Measurement, wire: Wire, cloud: Cloud) -> tuple[int, int]:
    """Bytes of TCP, and how many of them never came."""
    collector.load(PROBE, netns=wire.b.inode)
    try:
        collector.begin()
        cloud.talk()
        collector.settle()
        (network,) = collector.rows(PROBE, "vnis", vni=VNI)
        assert collector.ledger(PROBE, "parse_failed") == 0
        return network.counts["tcp_bytes"], network.counts["tcp_missing"]
    finally:
        collector.command(command="unload", probe=PROBE)


STREAMS = 2 * CONNECTIONS * MEGABYTE + 4 * CONNECTIONS
"""Bytes that go both ways, with a SYN and a FIN of each end."""


def test_a_whole_mirror_lacks_nothing(collector: Measurement, wire: Wire, cloud: Cloud) -> None:
    assert missing(collector, wire, cloud) == (STREAMS, 0)


@pytest.mark.parametrize("pct", [1, 5, 20])
def test_what_was_lost_before_is_estimated(collector: Measurement, wire: Wire, cloud: Cloud, pct: int) -> None:
    cloud.lose(cloud.host, "udp dport 4789", pct)
    whole, found = missing(collector, wire, cloud)
    lost = cloud.lost(cloud.host, OUTER)
    assert lost / FACTOR <= found <= lost * FACTOR
    assert whole == pytest.approx(STREAMS, rel=0.01)


def test_what_the_guests_lose_is_no_loss_of_the_mirror(collector: Measurement, wire: Wire, cloud: Cloud) -> None:
    """Before the packets come to where they are mirrored: they are sent again."""
    cloud.lose(cloud.server, "meta length > 1000", 2)
    whole, found = missing(collector, wire, cloud)
    assert found < cloud.lost(cloud.server, INNER) / 10
    assert whole == pytest.approx(STREAMS, rel=0.01)
