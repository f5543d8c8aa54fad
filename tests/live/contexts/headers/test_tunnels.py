"""What path.h makes of packets in tags and tunnels, held against packets that the test made byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.live.contexts.test_flow_top import Top
from tests.support.live.contexts.packets import HEADROOM, IPV4, IPV6, MACS, TCP, UDP, VLAN, Flow
from tests.support.live.contexts.unattached import UnattachedProbe

Load = Callable[..., UnattachedProbe]
VXLAN, VXLAN_LINUX, GENEVE, OTHER = 4789, 8472, 6081, 4790
ETHERNET_IN_GENEVE, OUTER_TAG = 0x6558, 0x88A8
OUTER, OUTER6 = Flow("10.0.0.1", "10.0.0.2"), Flow("fd00::1", "fd00::2")
V4, V6 = (
    Flow("198.18.0.1", "198.18.0.2", target_port=53),
    Flow("2001:db8::1", "2001:db8::2", target_port=80, protocol=TCP),
)
TAGGED = ((VLAN, 7),)


def frame(flow: Flow, packet: bytes = b"", tags: tuple[tuple[int, int], ...] = ()) -> bytes:
    """From the Ethernet header on."""
    kinds = [kind for kind, _ in tags] + [flow.ethertype]
    words = b"".join(struct.pack(">HH", number, kinds[place]) for place, (_, number) in enumerate(tags, 1))
    return MACS + struct.pack(">H", kinds[0]) + words + (packet or flow.packet())


def carrying(outer: Flow, inner: bytes, port: int = VXLAN, header: bytes = bytes(8), options: int = 0) -> bytes:
    """A packet of UDP to this port, with a header of 8 bytes, or with more, before a frame."""
    body = header + bytes(4 * options) + inner
    udp = struct.pack(">HHHH", outer.source_port, port, 8 + len(body), 0) + body
    packet = replace(outer, protocol=UDP).packet()
    return packet[: 40 if outer.ethertype == IPV6 else 20] + udp


def geneve(options: int = 0, kind: int = ETHERNET_IN_GENEVE) -> bytes:
    return struct.pack(">BBHI", options, 0, kind, 7 << 8)


Case = tuple[int, bytes, Flow, int, int, int]
"""Ethertype and packet, and of the row: its flow and target port, the VLAN, and whether it is inside a tunnel."""


def cases() -> list[Case]:
    twice = carrying(OUTER, frame(OUTER, carrying(OUTER, frame(V4))))
    thrice = carrying(OUTER, frame(OUTER, carrying(OUTER, frame(OUTER, carrying(OUTER, frame(V4))))))
    plain = carrying(OUTER, frame(V4))
    with_options = bytes([0x46]) + plain[1:20] + bytes(4) + plain[20:]
    tagged = struct.pack(">HH", 9, IPV4)
    return [
        (IPV4, V4.packet(), V4, 53, 0, 0),
        (IPV6, V6.packet(), V6, 80, 0, 0),
        (VLAN, tagged + V4.packet(), V4, 53, 9, 0),
        (OUTER_TAG, struct.pack(">HH", 200, VLAN) + tagged + V4.packet(), V4, 53, 200, 0),
        (IPV4, carrying(OUTER, frame(V4)), V4, 53, 0, 1),
        (IPV4, carrying(OUTER, frame(V6), VXLAN_LINUX), V6, 80, 0, 1),
        (IPV4, carrying(OUTER, frame(V4), OTHER), OUTER, OTHER, 0, 0),
        (IPV6, carrying(OUTER6, frame(V4)), V4, 53, 0, 1),
        (IPV6, carrying(OUTER6, frame(V6), GENEVE, geneve(3), 3), V6, 80, 0, 1),
        (IPV4, carrying(OUTER, frame(V4), GENEVE, geneve()), V4, 53, 0, 1),
        (IPV4, carrying(OUTER, frame(V4), GENEVE, geneve(0xC0 | 2), 2), V4, 53, 0, 1),
        (IPV4, carrying(OUTER, frame(V4), GENEVE, geneve(0, IPV4)), OUTER, GENEVE, 0, 0),
        (IPV4, carrying(OUTER, frame(V4, tags=TAGGED)), V4, 53, 0, 1),
        (VLAN, tagged + carrying(OUTER, frame(V4, tags=TAGGED)), V4, 53, 9, 1),
        (IPV4, carrying(OUTER, frame(V4, tags=((OUTER_TAG, 8), *TAGGED))), V4, 53, 0, 1),
        (IPV4, twice, V4, 53, 0, 1),
        (IPV4, thrice, OUTER, VXLAN, 0, 1),
        (IPV4, with_options, OUTER, VXLAN, 0, 0),
    ]


LABELS = ("direction", "source", "target", "target_port", "vlan", "inner")


def test_the_innermost_packet_is_the_one_that_counts(load: Load) -> None:
    host = Top(load("flow_top"))
    before = host.rows(*LABELS)
    for ethertype, packet, flow, port, vlan, inside in cases():
        skb = host.frame(ethertype, packet, host.eth0)
        host.probe.run("sent", skb, host.eth0)
        host.probe.run("received", host.arrived(skb))
        after = host.rows(*LABELS)
        changed = {key for key, counts in after.items() if counts != before.get(key)}
        ends = (flow.source, flow.target, port, vlan, inside)
        assert changed == {("in", *ends), ("out", *ends)}, (ethertype, packet)
        before = after
    assert host.probe.ledger() == {}


def test_a_sender_says_where_the_inner_packet_is(load: Load) -> None:
    """A tunnel that the probe does not know; received packets say nothing."""
    host = Top(load("flow_top"))
    for flow in (V4, V6):
        body = carrying(OUTER, bytes(30) + flow.packet(), OTHER)
        skb = host.frame(IPV4, body, host.eth0)
        inner = HEADROOM + 14 + 20 + 8 + 8 + 30
        for at in (inner, 0, HEADROOM + 14, HEADROOM + 14 + len(body)):
            host.memory.change("sk_buff", skb, {"inner_network_header": at})
            host.probe.run("sent", skb, host.eth0)
        host.memory.change("sk_buff", skb, {"inner_network_header": inner})
        host.probe.run("received", host.arrived(skb))
    assert {key: packets for key, (packets, _) in host.rows(*LABELS).items()} == {
        ("out", V4.source, V4.target, 53, 0, 1): 1,
        ("out", V6.source, V6.target, 80, 0, 1): 1,
        ("out", OUTER.source, OUTER.target, OTHER, 0, 0): 6,
        ("in", OUTER.source, OUTER.target, OTHER, 0, 0): 2,
    }


def tcp(payload: int, words: int) -> bytes:
    """With a header of so many words."""
    packet = bytearray(Flow(protocol=TCP).packet(payload + 4 * words - 8))
    packet[32] = words << 4
    return bytes(packet)


@pytest.mark.parametrize(
    ("packet", "size", "packets"),
    [
        (Flow().packet(2000), 1000, 2),
        (Flow().packet(2001), 1000, 3),
        (Flow().packet(1999), 1000, 2),
        (Flow().packet(2000), 0, 1),
        (tcp(2000, 5), 1000, 2),
        (tcp(2001, 5), 1000, 3),
        (tcp(2000, 8), 1000, 2),
        (tcp(2001, 8), 1000, 3),
        (Flow().packet(576 - 14 - 28), 100, 1),  # too short to be cut: nothing more is read
        (Flow().packet(577 - 14 - 28), 100, 6),
        (carrying(OUTER, frame(Flow(), Flow().packet(3000))), 1000, 3),
    ],
)
def test_one_that_was_merged_counts_as_its_segments(load: Load, packet: bytes, size: int, packets: int) -> None:
    host = Top(load("flow_top"))
    skb = host.merged(host.frame(IPV4, packet, host.eth0), size)
    host.probe.run("sent", skb, host.eth0)
    host.probe.read()
    assert host.probe.counters()["sent"] == packets == host.probe.row("flows")["packets"]
