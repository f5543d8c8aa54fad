"""What host_path reads of a packet (probes/common/path.h): whether it is still the same one, and of what flow."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.live.contexts.packets import TCP, UDP, Flow
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.ways import FLOW6, Ways

Load = Callable[..., UnattachedProbe]
ID, FRAGMENT, TTL, PROTOCOL, CHECKSUM, ADDRESS = 4, 6, 8, 9, 10, 15
LABEL, NEXT, HOPS, ADDRESS6 = 3, 6, 7, 23
FRAGMENT6, AH = 44, 51


def changed(packet: bytes, *at: int) -> bytes:
    """Each of these bytes is another one."""
    return bytes(byte ^ 1 if number in at else byte for number, byte in enumerate(packet))


def with_payload(flow: Flow, payload: bytes) -> bytes:
    return flow.packet(len(payload))[: -len(payload)] + payload


V4, V6 = with_payload(Flow(), b"abcdefghijkl"), with_payload(FLOW6, b"abcdefghijkl")
SEGMENT, SEGMENT6 = (
    with_payload(Flow(protocol=TCP), bytes(range(1, 13))),
    with_payload(Flow("2001:db8::1", "2001:db8::2", 5, 6, TCP), bytes(range(1, 13))),
)


CHANGES = [
    *((V4, changed(V4, at), True) for at in (1, TTL, CHECKSUM, ADDRESS, 21, 23)),
    *((V4, changed(V4, at), False) for at in (ID, ID + 1, FRAGMENT, FRAGMENT + 1, 28, 31, 32, 35)),
    (V4, changed(V4, 36), True),
    (V4, V4[:28] + V4[32:36] + V4[28:32] + V4[36:], False),
    (V4, V4[:FRAGMENT] + b"\x40" + V4[FRAGMENT + 1 :], True),  # may not be fragmented
    (V4, V4[:PROTOCOL] + b"\x88" + V4[PROTOCOL + 1 :], False),
    (SEGMENT, changed(SEGMENT, 21, 33), True),
    *((SEGMENT, changed(SEGMENT, at), False) for at in (24, 27, 28, 31)),
    (SEGMENT, SEGMENT[:24] + SEGMENT[28:32] + SEGMENT[24:28] + SEGMENT[32:], False),
    *((V6, changed(V6, at), True) for at in (0, HOPS, ADDRESS6, 41, 43)),
    *((V6, changed(V6, at), False) for at in (1, LABEL - 1, LABEL, 48, 51, 52, 55)),
    (V6, changed(V6, 56), True),
    (V6, V6[:NEXT] + b"\x88" + V6[NEXT + 1 :], False),
    *((SEGMENT6, changed(SEGMENT6, at), False) for at in (44, 47, 48, 51)),
    (SEGMENT6, changed(SEGMENT6, 41, 53), True),
    (SEGMENT6, SEGMENT6[:44] + SEGMENT6[48:52] + SEGMENT6[44:48] + SEGMENT6[52:], False),
]
"""A packet as it comes and as it leaves, and whether it is the same."""


def test_a_packet_is_the_same_while_what_no_router_changes_is(load: Load) -> None:
    host = Ways(load("host_path"))
    eth0 = host.devices["eth0"]
    for before, after, is_same in CHANGES:
        known = host.counted("crossed", "exchanged")
        skb = host.come(FLOW6 if before[0] >> 4 == 6 else Flow(), "tap0", packet=before)
        host.ran("receive", skb)
        (data,) = host.memory.pointers("sk_buff", skb, "data")
        host.memory.put(data, after)
        host.ran("send", host.leaving(skb, eth0), eth0)
        more = [now - then for now, then in zip(host.counted("crossed", "exchanged"), known, strict=True)]
        assert more == [is_same, not is_same], (before, after)


HEADERS = [
    (Flow(), V4, False),
    (Flow(), V4[:20], False),
    (Flow(), V4[:19], True),
    (Flow(), b"\x44" + V4[1:], True),
    (Flow(), b"\x55" + V4[1:], True),
    (Flow(), V6, True),
    (FLOW6, V6, False),
    (FLOW6, V6[:40], False),
    (FLOW6, V6[:39], True),
    (FLOW6, b"\x50" + V6[1:], True),
    (FLOW6, V4, True),
]
"""Packets, and whether they have no header of what they are said to be."""


def test_what_is_no_header_of_ip_is_counted_as_such(load: Load) -> None:
    host = Ways(load("host_path"))
    broken = 0
    for flow, packet, is_broken in HEADERS:
        broken += is_broken
        host.ran("receive", host.come(flow, "tap0", packet=packet))
        host.probe.read()
        assert host.probe.ledger().get("parse_failed", 0) == broken, packet


def extended(number: int) -> bytes:
    """An IPv6 packet of UDP with one extension header; only the first fragment has what follows."""
    header = bytes([UDP, 0, *bytes(6)])
    if number == AH:
        header = bytes([UDP, 1, *bytes(10)])  # in words of 4 bytes, less two
    body = header + V6[40:]
    return V6[:4] + len(body).to_bytes(2, "big") + bytes([number]) + V6[7:40] + body


FLOWS = [
    (V6, "UDP", (5, 6)),
    *((extended(number), "UDP", (5, 6)) for number in (0, 43, FRAGMENT6, AH, 60)),
    (V6[:NEXT] + b"\x58" + V6[NEXT + 1 :], "protocol 88", (0, 0)),
]


def test_the_flow_of_a_packet_is_found_behind_its_extensions(load: Load) -> None:
    host = Ways(load("host_path"))
    known: dict[tuple[str, int, int], int] = {}
    for packet, protocol, ports in FLOWS:
        skb = host.come(FLOW6, "tap0", packet=packet)
        host.ran("receive", skb)
        host.ran("send", host.leaving(skb, host.devices["eth0"]), host.devices["eth0"])
        flow = (protocol, *ports)
        known[flow] = known.get(flow, 0) + 1
        host.probe.read()
        rows = {(row["protocol"], row["source_port"], row["target_port"]): row for row in host.probe.rows("flows")}
        assert {flow: row["packets"] for flow, row in rows.items()} == known, packet
    assert all((row["source"], row["target"]) == (FLOW6.source, FLOW6.target) for row in rows.values())
