"""What packets.h makes of headers of every kind, held against packets that the test made byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.live.contexts.test_kernel_drops import Drops
from tests.support.live.contexts.memory import Members
from tests.support.live.contexts.packets import ETHERNET, HEADROOM, ICMP, IPV4, IPV6, TCP, UDP, VLAN, Flow
from tests.support.live.contexts.unattached import UnattachedProbe

Load = Callable[..., UnattachedProbe]
OUTER_TAG = 0x88A8
HOPS, ROUTING, FRAGMENT, AUTHENTICATION, OPTIONS, NO_NEXT = 0, 43, 44, 51, 60, 59
EXTENSIONS = 6
"""A packet with more is not parsed (probes/common/packets.h)."""
V4, V6 = Flow(), Flow("2001:db8::1", "2001:db8:7::2", 53, 4444)
PORTS, PORTS6, NONE = (1111, 2222), (53, 4444), (0, 0)


class Case(NamedTuple):
    """A packet, and what it is: protocol, ports, VLAN and ethertype."""

    ethertype: int
    packet: bytes
    protocol: str = "UDP"
    ports: tuple[int, int] = PORTS
    vlan: int = 0
    kind: str = "IPv4"
    members: Members | None = None


def tagged(*ids: int, then: int = IPV4, packet: bytes = b"") -> bytes:
    """Tags in the packet: the ethertype of the first one stands before them."""
    words = b"".join(struct.pack(">H", number) + struct.pack(">H", VLAN) for number in ids[:-1])
    return words + struct.pack(">HH", ids[-1], then) + (packet or V4.packet())


def with_options(words: int) -> bytes:
    packet = V4.packet()
    return bytes([0x45 + words]) + packet[1:20] + bytes(4 * words) + packet[20:]


def fragment(offset: int, more: bool) -> bytes:
    packet = V4.packet()
    return packet[:6] + struct.pack(">H", (0x2000 if more else 0) | offset // 8) + packet[8:]


def extended(*headers: tuple[int, int, bytes], last: int = UDP) -> bytes:
    """Extension headers before UDP: kind, the length field, and all bytes after these two."""
    packet = V6.packet()
    kinds = [kind for kind, _, _ in headers] + [last]
    words = b"".join(bytes([kinds[number + 1], one[1]]) + one[2] for number, one in enumerate(headers))
    return packet[:6] + bytes([kinds[0]]) + packet[7:40] + words + packet[40:]


def six(packet: bytes, protocol: str = "UDP", ports: tuple[int, int] = PORTS6) -> Case:
    return Case(IPV6, packet, protocol, ports, kind="IPv6")


def of_protocol(number: int, name: str, has_ports: bool) -> Case:
    packet = Flow(protocol=number).packet()
    return Case(IPV4, packet, name, PORTS if has_ports else NONE)


def offset_field(offset: int, more: bool) -> bytes:
    return struct.pack(">HI", offset | more, 7)


SHORT, LONG = bytes(6), bytes(14)
NOT_SET: Members = {"network_header": 0}
NO_MAC: Members = {"mac_header": 0xFFFF}
CASES = [
    Case(IPV4, V4.packet()),
    Case(IPV4, V4.packet(), vlan=42, members={"vlan_tci": 42 | 0xE000}),
    Case(IPV4, V4.packet(), members={"network_header": 0, "data": ETHERNET}),
    Case(IPV4, V4.packet(), members={"network_header": 0xFFFF, "data": ETHERNET}),
    Case(IPV4, with_options(1)),
    Case(IPV4, with_options(10)),
    Case(IPV4, fragment(0, more=True)),
    Case(IPV4, fragment(8, more=True), ports=NONE),
    Case(IPV4, fragment(0xFFF8, more=False), ports=NONE),
    of_protocol(ICMP, "ICMP", False),
    of_protocol(TCP, "TCP", True),
    of_protocol(132, "SCTP", True),
    of_protocol(136, "UDP-Lite", True),
    of_protocol(33, "DCCP", True),
    of_protocol(50, "ESP", False),
    Case(VLAN, tagged(77), vlan=77),
    Case(VLAN, tagged(77 | 0xE000), vlan=77),
    Case(OUTER_TAG, tagged(200, 77), vlan=200),
    Case(VLAN, tagged(77), vlan=5, members={"vlan_tci": 5}),
    Case(VLAN, tagged(77, then=IPV6, packet=V6.packet()), ports=PORTS6, vlan=77, kind="IPv6"),
    Case(VLAN, tagged(77), vlan=77, members={"network_header": HEADROOM + ETHERNET + 4}),
    Case(VLAN, tagged(77), vlan=77, members={"mac_header": 0xFFFF}),
    Case(OUTER_TAG, tagged(200, 77, 78), "not IP", NONE, 200, "802.1Q"),
    six(V6.packet()),
    six(extended((HOPS, 0, SHORT))),
    six(extended((OPTIONS, 1, LONG))),
    six(extended((ROUTING, 1, LONG), (OPTIONS, 0, SHORT))),
    six(extended((AUTHENTICATION, 4, bytes(22)))),
    six(extended((FRAGMENT, 0, offset_field(0, more=True)))),
    six(extended((FRAGMENT, 9, offset_field(0, more=True)))),
    six(extended((FRAGMENT, 0, offset_field(8, more=True))), ports=NONE),
    six(extended((FRAGMENT, 0, offset_field(0x4000, more=False))), ports=NONE),
    six(extended((FRAGMENT, 0, offset_field(8, more=False)), last=OPTIONS), "protocol 60", NONE),
    six(extended((HOPS, 0, SHORT), last=NO_NEXT), "protocol 59", NONE),
    six(extended(*[(OPTIONS, 0, SHORT)] * EXTENSIONS)),
    six(extended(*[(OPTIONS, 0, SHORT)] * (EXTENSIONS + 1)), "unparsed", NONE),
]


@pytest.mark.proves("kernel_drops", "events.drop.{ethertype,protocol,source,target,source_port,target_port,vlan}")
def test_each_kind_of_header_is_read(load: Load) -> None:
    probe = load("kernel_drops")
    host = Drops(probe)
    probe.set("details", events_per_s=1e9)
    for case in CASES:
        members = dict(case.members or {})
        skb = host.frame(case.ethertype, case.packet, host.eth0)
        if "data" in members:
            (head,) = host.memory.pointers("sk_buff", skb, "head")
            members["data"] = head + HEADROOM + ETHERNET
        host.memory.change("sk_buff", skb, members)
        host.drop(skb)
    probe.read()
    events = probe.events()
    found = [
        (one["ethertype"], one["protocol"], (one["source_port"], one["target_port"]), one["vlan"]) for one in events
    ]
    for case, one in zip(CASES, found, strict=True):
        assert one == (case.kind, case.protocol, case.ports, case.vlan), case
    for case, event in zip(CASES, events, strict=True):
        flow = V6 if case.kind == "IPv6" else V4
        ends = (None, None) if case.protocol == "not IP" else (flow.source, flow.target)
        assert (event["source"], event["target"]) == ends, case
    assert probe.ledger()["parse_failed"] == 1


def test_what_is_cut_is_not_read_beyond_its_end(load: Load) -> None:
    """Without the last byte that a header needs it is not read, and counted."""
    probe = load("kernel_drops")
    host = Drops(probe)
    probe.set("details", events_per_s=1e9)
    extension = extended((OPTIONS, 0, SHORT))
    cases = [
        (IPV4, V4.packet(), 20, ("unparsed", NONE), ("UDP", NONE)),  # the ports are cut
        (IPV4, V4.packet(), 24, ("UDP", NONE), ("UDP", PORTS)),
        (IPV6, V6.packet(), 40, ("unparsed", NONE), ("UDP", NONE)),
        (IPV6, extension, 44, ("unparsed", NONE), ("UDP", NONE)),
        (IPV6, extension, 52, ("UDP", NONE), ("UDP", PORTS6)),
        (VLAN, tagged(77), 4, ("unparsed", NONE), ("unparsed", NONE)),
    ]
    failed = 0
    for ethertype, packet, needed, without, whole in cases:
        for length in (needed - 1, needed):
            host.drop(host.frame(ethertype, packet[:length], host.eth0))
        probe.read()
        events = probe.events()
        found = [(one["protocol"], (one["source_port"], one["target_port"])) for one in events]
        assert found == [without, whole], (ethertype, needed)
        assert [one["vlan"] for one in events] == ([0, 77] if ethertype == VLAN else [0, 0])
        failed += 1 + (whole[1] == NONE)
        assert probe.ledger()["parse_failed"] == failed
