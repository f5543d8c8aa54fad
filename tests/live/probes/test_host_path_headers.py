"""host_path finds the innermost flow behind tags, tunnels, options and extension headers, or says that it cannot."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

import pytest

from tests.support.live.measurement import Measurement
from tests.support.live.network import send_frames
from tests.support.live.path import HOST_PATH, INSIDE, MACS, OUTSIDE, Host, Watch

pytestmark = pytest.mark.starting

SETS = {"inside_devices": INSIDE, "outside_devices": OUTSIDE}
EACH = 50
A, B = "198.51.100.1", "198.51.100.2"
A6, B6 = "2001:db8:9::1", "2001:db8:9::2"
OUTER, OUTER6 = ("203.0.113.1", "203.0.113.2"), ("2001:db8:8::1", "2001:db8:8::2")
IPV4, IPV6, DOT1Q, DOT1AD, ARP = 0x0800, 0x86DD, 0x8100, 0x88A8, 0x0806
VXLAN, GENEVE = 4789, 6081
PORTS = (1111, 2222)


class Seen(NamedTuple):
    """The row of the flow that a frame has to be counted in."""

    protocol: str
    source: str | None = A
    target: str | None = B
    source_port: int = PORTS[0]
    target_port: int = PORTS[1]
    vlan: int = 0


def ethernet(ethertype: int, payload: bytes, *tags: tuple[int, int]) -> bytes:
    """A frame; ``tags`` as (ethertype, VLAN), the outer one first."""
    macs = b"".join(bytes.fromhex(mac.replace(":", "")) for mac in reversed(MACS))
    return macs + b"".join(struct.pack(">HH", *tag) for tag in tags) + struct.pack(">H", ethertype) + payload


def ipv4(protocol: int, payload: bytes, ends: tuple[str, str] = (A, B), options: bytes = b"", offset: int = 0) -> bytes:
    words = 5 + len(options) // 4
    head = struct.pack(">BBHHHBBH", 0x40 | words, 0, words * 4 + len(payload), 7, offset, 64, protocol, 0)
    return head + b"".join(map(socket.inet_aton, ends)) + options + payload  # its checksum is nobody's business here


def ipv6(following: int, payload: bytes, ends: tuple[str, str] = (A6, B6)) -> bytes:
    addresses = b"".join(socket.inet_pton(socket.AF_INET6, end) for end in ends)
    return struct.pack(">IHBB", 6 << 28, len(payload), following, 64) + addresses + payload


def udp(payload: bytes, ports: tuple[int, int] = PORTS) -> bytes:
    return struct.pack(">HHHH", *ports, 8 + len(payload), 0) + payload


def vxlan(inside: bytes) -> bytes:
    return udp(struct.pack(">II", 0x08000000, 42 << 8) + inside, (50000, VXLAN))


def geneve(inside: bytes, options: bytes = b"") -> bytes:
    return udp(struct.pack(">BBHI", len(options) // 4, 0, 0x6558, 42 << 8) + options + inside, (50000, GENEVE))


TCP = struct.pack(">HHIIHHHH", *PORTS, 1, 2, 0x5010, 100, 0, 0)
UDP = udp(bytes(24))
INNER = ethernet(IPV4, ipv4(6, TCP))
INNER6 = ethernet(IPV6, ipv6(17, UDP))
HOP_BY_HOP, TO_TARGET = bytes([60, 0, 1, 4, 0, 0, 0, 0]), bytes([17, 0, 1, 4, 0, 0, 0, 0])
NOTHING = None
UNPARSED = Seen("unparsed", NOTHING, NOTHING, 0, 0)

FRAMES: dict[str, tuple[bytes, Seen]] = {
    "IPv4": (ethernet(IPV4, ipv4(17, UDP)), Seen("UDP")),
    "IPv4 with options": (ethernet(IPV4, ipv4(17, UDP, options=b"\1" * 8)), Seen("UDP")),
    "later fragment": (ethernet(IPV4, ipv4(17, UDP, offset=7)), Seen("UDP", A, B, 0, 0)),
    "IPv6": (ethernet(IPV6, ipv6(6, TCP)), Seen("TCP", A6, B6)),
    "IPv6 with extensions": (ethernet(IPV6, ipv6(0, HOP_BY_HOP + TO_TARGET + UDP)), Seen("UDP", A6, B6)),
    "VLAN": (ethernet(IPV4, ipv4(6, TCP), (DOT1Q, 42)), Seen("TCP", vlan=42)),
    "VLAN with a priority": (ethernet(IPV6, ipv6(17, UDP), (DOT1Q, 0xE000 | 42)), Seen("UDP", A6, B6, vlan=42)),
    "QinQ": (ethernet(IPV4, ipv4(17, UDP), (DOT1AD, 100), (DOT1Q, 200)), Seen("UDP", vlan=100)),
    "VXLAN": (ethernet(IPV4, ipv4(17, vxlan(INNER), OUTER)), Seen("TCP")),
    "VXLAN, IPv6 in IPv6": (ethernet(IPV6, ipv6(17, vxlan(INNER6), OUTER6)), Seen("UDP", A6, B6)),
    "VXLAN with a VLAN inside": (
        ethernet(IPV4, ipv4(17, vxlan(ethernet(IPV4, ipv4(6, TCP), (DOT1Q, 9))), OUTER)),
        Seen("TCP"),
    ),
    "VXLAN in QinQ": (
        ethernet(IPV4, ipv4(17, vxlan(INNER), OUTER), (DOT1AD, 100), (DOT1Q, 200)),
        Seen("TCP", vlan=100),
    ),
    "Geneve": (ethernet(IPV4, ipv4(17, geneve(INNER), OUTER)), Seen("TCP")),
    "Geneve with options": (
        ethernet(IPV4, ipv4(17, geneve(INNER6, b"\0\1\0\1" + bytes(4)), OUTER)),
        Seen("UDP", A6, B6),
    ),
    "a tunnel in a tunnel": (
        ethernet(IPV4, ipv4(17, vxlan(ethernet(IPV4, ipv4(17, geneve(INNER), OUTER))), OUTER)),
        Seen("TCP"),
    ),
    "ARP": (ethernet(ARP, bytes(46)), Seen("not IP", NOTHING, NOTHING, 0, 0)),
    "IPv4 of version 5": (ethernet(IPV4, b"\x55" + ipv4(17, UDP)[1:]), UNPARSED),
    "IPv4, header too short": (
        ethernet(IPV4, b"\x44" + ipv4(17, UDP)[1:]),
        UNPARSED,
    ),
    "cut within its header": (ethernet(IPV4, ipv4(17, UDP)[:12]), UNPARSED),
}  # fmt: skip


@pytest.fixture(scope="module")
def path(collector: Measurement) -> Measurement:
    collector.load(HOST_PATH, **SETS)
    return collector


# A bridge that looks into packets (br_netfilter) would drop those that are wrong, and IPv6 speaks by itself.
SILENCE = "for file in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e $file ] || echo 0 >$file; done"
NO_IPV6 = "echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6"


@pytest.fixture(scope="module")
def host(bridged: Host) -> Host:
    bridged.h.run("sh", "-c", SILENCE)
    for end in (bridged.a, bridged.b):
        end.run("sh", "-c", NO_IPV6)
    return bridged


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.proves(
    "host_path", "tables.flows.{protocol,source,target,source_port,target_port,vlan}", "ledger.parse_failed"
)
def test_the_innermost_flow_is_found(path: Measurement, host: Host, name: str) -> None:
    frame, seen = FRAMES[name]
    watch = Watch(path, **SETS)
    send_frames(host.a, "eth0", [frame] * EACH)
    watch.stop()
    found = [row for row in path.rows(HOST_PATH, "flows") if row.counts["samples"]]
    assert [{label: row.labels[label] for label in Seen._fields} for row in found] == [seen._asdict()]
    assert found[0].counts["samples"] == watch.crossed("out") == EACH
    assert path.ledger(HOST_PATH, "parse_failed") == (EACH if seen.protocol == "unparsed" else 0)


TUNNELS = {
    "VXLAN": Seen("UDP", *OUTER, 50000, VXLAN),
    "VXLAN, IPv6 in IPv6": Seen("UDP", *OUTER6, 50000, VXLAN),
    "VXLAN in QinQ": Seen("UDP", *OUTER, 50000, VXLAN, 100),
    "Geneve with options": Seen("UDP", *OUTER, 50000, GENEVE),
    "QinQ": FRAMES["QinQ"][1],
}
"""Packets in a tunnel, and one in none."""


@pytest.mark.parametrize("name", TUNNELS)
@pytest.mark.proves("host_path", "knobs.{tunnel_flow,address,port}")
def test_where_it_is_asked_for_the_flow_is_the_tunnel_s(path: Measurement, host: Host, name: str) -> None:
    seen, other = TUNNELS[name], FRAMES["IPv6"][0]
    assert seen.target
    watch = Watch(path, **SETS, tunnel_flow=True, address=seen.target, port=seen.target_port)
    send_frames(host.a, "eth0", [FRAMES[name][0], other] * EACH)
    watch.stop()
    found = [row for row in path.rows(HOST_PATH, "flows") if row.counts["samples"]]
    assert [{label: row.labels[label] for label in Seen._fields} for row in found] == [seen._asdict()]
    assert found[0].counts["samples"] == watch.crossed("out") == EACH
