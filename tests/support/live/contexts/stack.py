"""Sockets of a host, and the packets that it sends itself."""

from __future__ import annotations

import socket
import time

from tests.support.live.contexts.memory import place_of
from tests.support.live.contexts.moments import Span
from tests.support.live.contexts.packets import TCP, UDP, Flow
from tests.support.live.contexts.ways import Ways

OF_TCP = Flow("198.51.100.7", "203.0.113.1", 5, 6, TCP)
OF_TCP6 = Flow("2001:db8:1::1", "2001:db8::1", 7, 9, TCP)


class Stack(Ways):
    """A host with sockets of its own."""

    def sock(self, protocol: int, family: int = socket.AF_INET, queued: int = 0, reading: int = 0) -> int:
        """``queued``: the packet that came last to its queue, ``reading``: to the one that UDP's reader has taken."""
        sock = self.memory.make("udp_sock", {})
        members: dict[str, int | bytes] = {"__sk_common.skc_family": family, "sk_protocol": protocol}
        self.memory.change("sock", sock, members)
        for name, member, last in (("sock", "sk_receive_queue", queued), ("udp_sock", "reader_queue", reading)):
            empty = sock + place_of(name, member)[0]
            self.memory.change(name, sock, {f"{member}.prev": last or empty, f"{member}.next": last or empty})
        return sock

    def copy(self, skb: int) -> int:
        """A clone: another sk_buff with the same data."""
        return self.memory.keep(self.memory.bytes_of("sk_buff", skb))

    def ready(self, skb: int, protocol: int = UDP, family: int = socket.AF_INET) -> Span:
        """It is in the queue of a socket, which is told. Raw sockets get a copy."""
        if protocol != UDP:
            skb = self.copy(skb)
        return self.ran("ready", self.sock(protocol, family, skb))

    def own(self, flow: Flow, protocol: int = 0, payload: int = 20, packet: bytes = b"") -> int:
        """A packet of this host, as it is queued to eth0. Its data begin with the link header."""
        skb = self.frame(flow.ethertype, packet or flow.packet(payload), self.devices["eth0"], sender=flow.mac)
        sock = self.sock(protocol or flow.protocol)
        self.memory.change("sk_buff", skb, {"sk": sock, "vlan_tci": flow.vlan})
        return skb

    def owner(self, skb: int) -> int:
        """The socket of a packet of this host."""
        (sock,) = self.memory.pointers("sk_buff", skb, "sk")
        return sock

    def gone(self, skb: int, other: int) -> int:
        """A packet is freed, and its sk_buff is that of another one then, which is used no more."""
        self.memory.put(skb, self.memory.bytes_of("sk_buff", other))
        return skb

    def stamped(self, skb: int) -> int:
        """TCP has made it now: when, in ns."""
        now = time.monotonic_ns()
        self.memory.change("sk_buff", skb, {"tstamp": now})
        return now

    def queued(self, skb: int, device: str = "eth0") -> Span:
        self.memory.change("sk_buff", skb, {"dev": self.devices[device]})
        return self.ran("queue", skb)

    def sent(self, skb: int, device: str = "eth0") -> Span:
        return self.ran("send", skb, self.devices[device])
