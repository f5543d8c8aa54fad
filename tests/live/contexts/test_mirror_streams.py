"""mirror on TCP inside: what its sequence numbers tell of what never came, packet by packet."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from tests.live.contexts.test_mirror import GSO_UDP_L4, VXLAN, Mirror, segmented, udp, vxlan
from tests.support.live.contexts.packets import IPV4, IPV6, MACS, TCP, UDP
from tests.support.live.contexts.unattached import UnattachedProbe

PROBE = "mirror"
Load = Callable[..., UnattachedProbe]
FIN, SYN, RST, ACK = 1, 2, 4, 16
LONGEST = 1 << 24
"""Bytes of a gap that is believed."""


@dataclass(frozen=True)
class Segment:
    """A packet of one flow."""

    at: int
    length: int
    flags: int = ACK
    is_6: bool = False
    fragment: int = 0
    options: bytes = b""
    words: int = 8
    protocol: int = TCP
    shown: int | None = None
    """Bytes that are there from the TCP header on, of more that the IP header tells of; None: all."""

    def packet(self) -> bytes:
        head = struct.pack(">HHIIHHHH", 1000, 80, self.at & 0xFFFFFFFF, 1, self.words << 12 | self.flags, 1024, 0, 0)
        body = head.ljust(4 * self.words, b"\1") + bytes(self.length)
        shown, size = body[: self.shown], len(body)
        if self.is_6:
            ends = b"".join(socket.inet_pton(socket.AF_INET6, one) for one in ("2001:db8::1", "2001:db8::2"))
            return MACS + struct.pack(">HIHBB", IPV6, 6 << 28, size, self.protocol, 64) + ends + shown
        words, ends = 5 + len(self.options) // 4, bytes([10, 1, 0, 1, 10, 2, 0, 1])
        ip = struct.pack(">BBHHHBBH", 0x40 | words, 0, 4 * words + size, 1, self.fragment, 64, self.protocol, 0)
        return MACS + struct.pack(">H", IPV4) + ip + ends + self.options + shown


def run(load: Load, segments: Sequence[Segment]) -> tuple[int, int]:
    """Bytes of the flow, and how many of them are missing."""
    probe = load(PROBE)
    host = Mirror(probe)
    for one in segments:
        host.arrive(vxlan(one.packet()))
    assert host.read() == {"arrived": len(segments)} and probe.ledger() == {}
    network, flow = probe.row("vnis"), probe.row("flows")
    assert flow["missing"] == network["tcp_missing"]
    assert (network["packets"], flow["packets"]) == (len(segments), len(segments))
    return network["tcp_bytes"], network["tcp_missing"]


def at(*numbers: int, length: int = 100) -> list[Segment]:
    """Segments that begin there."""
    return [Segment(number, length) for number in numbers]


END = Segment(900, 0, FIN | ACK)
"""Of a flow of 900 bytes: then its latest gap is given up."""


@pytest.mark.proves("mirror", "tables.flows.missing", "tables.vnis.{tcp_bytes,tcp_missing}")
@pytest.mark.parametrize(
    ("segments", "found"),
    [
        (at(0, 100, 200), (300, 0)),
        (at(0, 200), (300, 0)),  # it may still come
        ([*at(0, 200), Segment(300, 0, FIN)], (301, 100)),
        (at(0, 200, 400), (500, 100)),  # the second gap may still come
        (at(0, 200, 100, 400), (500, 0)),  # it was late
        (at(0, 100, 0, 100, 200), (300, 0)),  # again, and nothing was missing
        ([*at(0, 500), Segment(100, 100), Segment(400, 100), END], (901, 200 + 300)),
        ([*at(0, 500), Segment(200, 100), END], (901, 300 + 300)),  # within
        ([*at(0, 500), Segment(50, 1000), END], (1050, 400)),  # what goes on beyond, too, is no filling
        ([*at(0, 500), Segment(0, 600), END], (901, 300)),  # more than all of it
        ([*at(0, 500), Segment(600, 0, RST)], (600, 400)),
        ([*at(0, 500), Segment(0xDEADBEEF, 0, RST), *at(600)], (700, 400)),
        ([*at(0), Segment(300, 0), *at(300)], (400, 0)),  # an acknowledgement tells of what it follows
        ([*at(0), Segment(300, 0), Segment(300, 0, FIN)], (301, 200)),
        (at(2**32 - 200, 2**32 - 100, 0, 100), (400, 0)),  # numbers begin again
        ([*at(2**32 - 200, 0), Segment(100, 0, FIN)], (301, 100)),
        ([*at(2**32 - 200, 100, 2**32 - 100), Segment(200, 0, FIN)], (401, 100)),
        ([Segment(5, 0, SYN), *at(6, 106)], (201, 0)),
        ([*at(0, 200), Segment(2**31, 0, SYN), *at(2**31 + 1)], (300 + 1 + 100, 100)),  # another connection
        ([*at(0, 100 + LONGEST), Segment(200 + LONGEST, 0, FIN)], (LONGEST + 201, LONGEST)),
        ([*at(0, 101 + LONGEST), Segment(201 + LONGEST, 0, FIN)], (201, 0)),  # it did not come meanwhile
        ([*at(2**31, 2**31 - LONGEST - 1), Segment(2**31 - LONGEST + 99, 0, FIN)], (201, 0)),
        ([*at(2**31, 2**31 - LONGEST), Segment(2**31 + 100, 0, FIN)], (101, 0)),
        ([Segment(one, 100, is_6=True) for one in (0, 200, 400)], (500, 100)),
        ([Segment(one, 100, shown=20) for one in (0, 200, 400)], (500, 100)),  # the sender cut them
        ([Segment(one, 100, shown=14) for one in (0, 200, 400)], (500, 100)),
        ([Segment(one, 100, shown=13) for one in (0, 200, 400)], (0, 0)),
        ([Segment(one, 100, is_6=True, shown=14) for one in (0, 200, 400)], (500, 100)),
        ([Segment(one, 100, is_6=True, shown=13) for one in (0, 200, 400)], (0, 0)),
        ([Segment(one, 100, protocol=UDP) for one in (0, 200, 400)], (0, 0)),
        ([Segment(one, 100, options=b"\1\1\1\1") for one in (0, 200, 400)], (0, 0)),
        ([Segment(one, 100, fragment=0x2000) for one in (0, 200, 400)], (0, 0)),
        ([Segment(one, 100, fragment=5) for one in (0, 200, 400)], (0, 0)),
        ([Segment(one, 100, words=4) for one in (0, 200, 400)], (0, 0)),
        ([Segment(one, 100, words=5) for one in (0, 200, 400)], (500, 100)),
    ],
)
def test_a_gap_that_nobody_fills_is_missing(load: Load, segments: list[Segment], found: tuple[int, int]) -> None:
    assert run(load, segments) == found


def test_each_flow_has_numbers_of_its_own(load: Load) -> None:
    probe = load(PROBE)
    host = Mirror(probe)
    for one in at(0, 7000, 200, 7200, 400, 7400):
        packet = one.packet()
        back = packet[:26] + packet[30:34] + packet[26:30] + packet[36:38] + packet[34:36] + packet[38:]
        host.arrive(vxlan(packet if one.at < 7000 else back))
    host.read()
    assert sorted((row["source"], row["missing"]) for row in probe.rows("flows")) == [
        ("10.1.0.1", 100),
        ("10.2.0.1", 100),
    ]
    assert (probe.row("vnis")["tcp_bytes"], probe.row("vnis")["tcp_missing"]) == (1000, 200)


def test_packets_that_were_not_read_are_not_missing(load: Load) -> None:
    """Of several that were put together the first alone is read: after them each flow begins anew."""
    probe = load(PROBE)
    host = Mirror(probe)
    one = vxlan(Segment(1000, 100).packet())[28:]
    host.arrive(vxlan(Segment(900, 100).packet()))
    probe.run("arrived", segmented(host, udp(VXLAN, one * 3), len(one), GSO_UDP_L4))
    host.arrive(vxlan(Segment(1300, 100).packet()))
    assert host.read() == {"arrived": 5}
    assert (probe.row("vnis")["tcp_bytes"], probe.row("vnis")["tcp_missing"]) == (100 + 100, 0)
    host.arrive(vxlan(Segment(1500, 100).packet()))
    host.arrive(vxlan(Segment(1700, 100).packet()))
    host.read()
    assert probe.row("vnis")["tcp_missing"] == 100
