"""ICMP echoes of a test's own, and their records."""

from __future__ import annotations

import socket
import struct
from typing import Any

from tests.support.live.contexts.fragments import in_fragment, know_pages
from tests.support.live.contexts.moments import Span, lies
from tests.support.live.contexts.packets import ICMP, ICMPV6, Flow
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.ways import Ways

V4, V6 = Flow("192.0.2.1", "192.0.2.2"), Flow("2001:db8::1", "2001:db8::2")
CARRIED = b"what it carries "
ID = 0x1234
POINTS = {
    "request_in": "request_in_ns",
    "request_out": "request_out_ns",
    "reply_in": "reply_in_ns",
    "reply_out": "reply_out_ns",
}
COUNTERS = ("echoes", "repeated", "duplicates", "unknown", "another")


def request(flow: Flow, seq: int, carried: bytes = CARRIED, **more: int) -> bytes:
    """An echo request from the network header on; ``flow`` says between whom."""
    return _echo(flow, 128 if flow is V6 or ":" in flow.source else 8, seq, carried, **more)


def reply(flow: Flow, seq: int, carried: bytes = CARRIED, **more: int) -> bytes:
    """What answers it."""
    back = Flow(flow.target, flow.source)
    return _echo(back, 129 if ":" in flow.source else 0, seq, carried, **more)


def summed(packet: bytes) -> bytes:
    """With the sum of its IPv4 header (RFC 791)."""
    total = sum(struct.unpack(">10H", packet[:20]))
    return packet[:10] + struct.pack(">H", ~(total % 0xFFFF) & 0xFFFF) + packet[12:]


def _echo(flow: Flow, kind: int, seq: int, carried: bytes, code: int = 0, fragment: int = -1) -> bytes:
    """``fragment``: offset in bytes of a fragment that is not the last one."""
    body = struct.pack(">BBHHH", kind, code, 0, ID, seq) + carried
    if flow.ethertype == 0x86DD:
        following = ICMPV6
        if fragment >= 0:
            body, following = struct.pack(">BBHI", ICMPV6, 0, fragment | 1, 7) + body, 44
        ends = socket.inet_pton(socket.AF_INET6, flow.source) + socket.inet_pton(socket.AF_INET6, flow.target)
        return struct.pack(">IHBB", 6 << 28, len(body), following, 64) + ends + body
    flags = 0x2000 | fragment // 8 if fragment >= 0 else 0
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 1, flags, 64, ICMP, 0)
    return head + socket.inet_aton(flow.source) + socket.inet_aton(flow.target) + body


class Pinged(Ways):
    """Runs the programs of echo_host and echo_stack, and collects the records."""

    def __init__(self, probe: UnattachedProbe) -> None:
        super().__init__(probe)
        self.found: dict[tuple[str, int], dict[str, Any]] = {}

    def received(self, packet: bytes, device: str) -> Span:
        return self.ran("receive", self.carrying(packet, device))

    def sent(self, packet: bytes, device: str) -> Span:
        skb = self.leaving(self.carrying(packet, device), self.devices[device])
        return self.ran("send", skb, self.devices[device])

    def carrying(self, packet: bytes, device: str) -> int:
        return self.come(V6 if packet[0] >> 4 == 6 else V4, device, packet=packet)

    def know_pages(self) -> None:
        """Tells the probe where memory is mapped: as if the first page were a page before the test's own memory."""
        know_pages(self.probe)

    def beyond(self, packet: bytes, device: str, head: int = 0) -> int:
        """A packet of which the linear data have ``head`` bytes, and the first fragment the rest."""
        return in_fragment(self.memory, self.carrying(packet, device), packet, head)

    def records(self) -> dict[tuple[str, int], dict[str, Any]]:
        """All of them so far as they are now, by source and sequence number."""
        self.probe.read()
        for one in self.probe.records("echoes"):
            self.found[one["source"], one["seq"]] = one
        return self.found

    def counts(self) -> list[int]:
        """As they are now, in the order of COUNTERS."""
        return self.counted(*COUNTERS)


def passed(record: dict[str, Any], points: dict[str, tuple[Span, str]]) -> bool:
    """Whether it was at these points when it was, on these devices, and at no others."""
    for point, when in POINTS.items():
        span, device = points.get(point, ((0, 0), ""))
        if not lies(record[when], span) or record[point] != device:
            return False
    return True
