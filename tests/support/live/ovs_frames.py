"""Frames of which a test knows every byte, what a probe should say of them, and which of them a filter lets pass."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable
from dataclasses import dataclass

from netconsole.telemetry import frames

TCP, UDP, ICMP, ICMPV6, SCTP = 6, 17, 1, 58, 132
RECEIVER, NOBODY = "02:42:42:00:00:02", "02:42:42:00:00:03"
MAC = RECEIVER.replace(":", "") + "0244"
"""Of the receiver, and the beginning of each sender's."""


@dataclass(frozen=True)
class Frame:
    """What a probe should say of it. Each time it is sent it has another source in Ethernet, so it is a new flow."""

    source: str
    target: str
    protocol: int = UDP
    source_port: int = 1000
    target_port: int = 2000
    vlan: int = 0
    payload: int = 20
    number: int = 0
    """Of the packet: identification, flow label."""
    sequence: int = 6
    acknowledgement: int = 8
    fragment_at: int = 0
    """In units of 8 bytes; then it has no ports."""

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.source

    @property
    def ip(self) -> bytes:
        """The packet in it."""
        ends = b"".join(ipaddress.ip_address(one).packed for one in (self.source, self.target))
        body = self._transport() + bytes(self.payload)
        if self.is_ipv6:
            return struct.pack("!IHBB", 6 << 28 | self.number, len(body), self.protocol, 64) + ends + body
        words = (0x45, 0, 20 + len(body), self.number, self.fragment_at or 0x4000, 64, self.protocol, 0)
        return struct.pack("!BBHHHBBH", *words) + ends + body

    def _transport(self) -> bytes:
        if self.protocol == TCP:
            return struct.pack(
                "!HHIIHHHH", self.source_port, self.target_port, self.sequence, self.acknowledgement, 0x5002, 100, 0, 0
            )
        if self.protocol == SCTP:
            return struct.pack("!HHII", self.source_port, self.target_port, 1, 0)
        if self.protocol == UDP:
            return struct.pack("!HHHH", self.source_port, self.target_port, 8 + self.payload, 0)
        kind = 8 if self.protocol == ICMP else 128
        return struct.pack("!BBHHH", kind, 0, 0, 5, self.sequence)

    def raw(self, sender: int) -> bytes:
        """With its Ethernet header."""
        tag = struct.pack("!HH", 0x8100, self.vlan) if self.vlan else b""
        kind = struct.pack("!H", 0x86DD if self.is_ipv6 else 0x0800)
        return bytes.fromhex(MAC) + struct.pack("!I", sender) + tag + kind + self.ip


DATAPATH = "ovs-system"
ANSWERED_BY = {"a": "vb", "b": "va", "c": "vb"}
PORT = {"a": "va", "b": "vb", "c": "oi"}
NETNS = {"a": "host", "b": "host", "c": "c"}
"""Of the port: an internal port may be in a namespace of its own."""
LABELS = {6: "TCP", 17: "UDP", 1: "ICMP", 58: "ICMPv6", 132: "SCTP"}

TRAFFIC = (
    ("a", Frame("10.9.0.1", "10.9.0.2", target_port=4444)),
    ("a", Frame("10.9.0.1", "10.9.0.2", TCP)),
    ("a", Frame("fd00::1", "fd00::2", payload=100)),
    ("b", Frame("10.9.0.2", "10.9.0.1", source_port=4444, target_port=1000)),
    ("b", Frame("fd00::3", "fd00::4", ICMPV6, 0, 0)),
    ("c", Frame("192.0.2.7", "192.0.2.8", ICMP, 0, 0, vlan=42)),
)
"""One of the first, two of the second, four of the third …: a count says which of them were counted."""
ALL = (1 << len(TRAFFIC)) - 1

Knobs = dict[str, frames.Scalar]

FILTERS: list[tuple[str, Callable[[dict[str, int]], Knobs], int]] = [
    ("none", lambda netns: {}, ALL),
    ("device", lambda netns: {"device": "va"}, 7),
    ("the other device", lambda netns: {"device": "vb"}, 24),
    ("a device's beginning", lambda netns: {"device": "v"}, 0),
    ("netns", lambda netns: {"netns": netns["c"]}, 32),
    ("the host's netns", lambda netns: {"netns": netns["host"]}, 31),
    ("address of either end", lambda netns: {"address": "10.9.0.1"}, 11),
    ("IPv6 address", lambda netns: {"address": "fd00::2"}, 4),
    ("IPv4 prefix", lambda netns: {"address": "192.0.2.0/29"}, 32),
    ("an IPv4 prefix beside", lambda netns: {"address": "192.0.2.0/30"}, 0),
    ("IPv6 prefix", lambda netns: {"address": "fd00::2/127"}, 20),
    ("address of the source", lambda netns: {"address": "from:10.9.0.1"}, 3),
    ("addresses of both", lambda netns: {"address": "from:fd00::3,to:fd00::4"}, 16),
    ("port of either end", lambda netns: {"port": 4444}, 9),
    ("port of the target", lambda netns: {"port": "to:4444"}, 1),
    ("ports of both", lambda netns: {"port": "1000,2000"}, 6),
    ("protocol", lambda netns: {"protocol": "udp"}, 13),
    ("protocol by number", lambda netns: {"protocol": "58"}, 16),
    ("tag", lambda netns: {"vlan": 42}, 32),
    ("kind of frame", lambda netns: {"ethertype": 0x86DD}, 20),
    ("MAC of the receiver", lambda netns: {"mac": RECEIVER}, ALL),
    ("MAC of nobody", lambda netns: {"mac": NOBODY}, 0),
    ("several", lambda netns: {"device": "va", "protocol": "udp", "port": 2000, "address": "fd00::/64"}, 4),
]
"""Knobs, and which of TRAFFIC they let pass, as bits."""


def expected_labels(place: str, frame: Frame) -> dict[str, frames.Label]:
    """Of a flow, as each probe names them."""
    has_ports = frame.protocol not in (ICMP, ICMPV6) and not frame.fragment_at
    return {
        "port": PORT[place],
        "netns": NETNS[place],
        "vm": None,
        "source": frame.source,
        "target": frame.target,
        "target_port": frame.target_port if has_ports else 0,
        "ethertype": "IPv6" if frame.is_ipv6 else "IPv4",
        "protocol": LABELS[frame.protocol],
        "vlan": frame.vlan,
    }


def expected_fields(place: str, frame: Frame) -> dict[str, frames.Label]:
    """Of an event: the flow with its source port."""
    return {**expected_labels(place, frame), "source_port": frame.source_port}
