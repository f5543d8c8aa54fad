"""A host with taps, NICs, a switch's own port and a veth, and the ways of packets through it."""

from __future__ import annotations

import struct
import time
from typing import NamedTuple

from tests.support.live.contexts.filters import NETNS, OTHER_NETNS
from tests.support.live.contexts.moments import Span, at, elapsed, wait
from tests.support.live.contexts.packets import Flow, MadeUpHost
from tests.support.live.contexts.unattached import UnattachedProbe

KINDS = {"tap0": "tun", "tap1": "tun", "eth0": "", "eth1": "", "own0": "openvswitch", "br0": "bridge", "veth0": "veth"}
WAYS = 4
"""Packets of one set of probes/common/path.h, which the address of the sk_buff tells."""
_GOLDEN = 0x9E3779B97F4A7C15
_AREA = 1 << 17
DIRECTIONS = {
    ("tap0", "eth0"): "out",
    ("eth0", "tap0"): "in",
    ("tap0", "tap1"): "within",
    ("eth0", "eth1"): "through",
}
"""Of some ways, by the usual sets of devices."""
NEVER = 1 << 62
"""Ticks of the kernel's clock."""
FLOW6 = Flow("2001:db8::1", "2001:db8::2", 5, 6)


def set_of(address: int) -> int:
    """Fibonacci hashing, 12 bits."""
    return address * _GOLDEN % (1 << 64) >> 52


class Crossing(NamedTuple):
    """When a packet passed each point."""

    received: Span
    first: Span
    last: Span
    sent: Span

    @property
    def forward(self) -> Span:
        return elapsed(self.received, self.first)

    @property
    def devices(self) -> Span:
        return elapsed(self.first, self.last)

    @property
    def qdisc(self) -> Span:
        return elapsed(self.last, self.sent)

    @property
    def total(self) -> Span:
        return elapsed(self.received, self.sent)


class Ways(MadeUpHost):
    """Devices by name, all in one namespace, and one more of the name eth0 in another. Indices begin at 2."""

    def __init__(self, probe: UnattachedProbe) -> None:
        super().__init__(probe.memory)
        self.probe = probe
        self.nets = self.net(NETNS), self.net(OTHER_NETNS)
        self.index = {name: number for number, name in enumerate(KINDS, 2)}
        self.devices = {name: self.link(name, self.nets[0], self.index[name], kind) for name, kind in KINDS.items()}
        self.elsewhere = self.link("eth0", self.nets[1], self.index["eth0"])

    def use_up(self) -> None:
        """From here on host_path follows no packet in full, however long the test takes."""
        follows, noticed = (NEVER, 0), time.monotonic_ns()
        self.probe.write("scratches", struct.pack("=3Q4I", *[0] * 7) + struct.pack("=3Q", *follows, noticed))

    def come(self, flow: Flow, device: str, payload: int = 20, packet: bytes = b"") -> int:
        """A packet that came in by a device; ``packet``: from the network header on."""
        skb = self.frame(flow.ethertype, packet or flow.packet(payload), self.devices[device], sender=flow.mac)
        self.memory.change("sk_buff", skb, {"skb_iif": self.index[device], "vlan_tci": flow.vlan})
        return self.arrived(skb)

    def crowd(self, skb: int) -> list[int]:
        """Copies of a packet, one more than a set has room for."""
        content = self.memory.bytes_of("sk_buff", skb)
        area, found = self.memory.keep(bytes(_AREA)), list[int]()
        for address in range(area, area + _AREA - len(content)):
            if set_of(address) == set_of(area) and (not found or address - found[-1] >= len(content)):
                found.append(address)
        for address in found[: WAYS + 1]:
            self.memory.put(address, content)
        return found[: WAYS + 1]

    def ran(self, program: str, *arguments: int) -> Span:
        """When a program has run."""
        return at(self.probe.prepare(program, *arguments))

    def cross(
        self,
        flow: Flow,
        came: str,
        leaves: str,
        took_ms: tuple[float, float, float] = (0, 0, 0),
        by: str = "",
        payload: int = 20,
    ) -> Crossing:
        """``took_ms``: to the first device, which is ``by`` if there is one, to the last one, and in its queue."""
        skb = self.come(flow, came, payload)
        received = self.ran("receive", skb)
        wait(took_ms[0])
        first = last = self.ran("queue", self.leaving(skb, self.devices[by or leaves]))
        if by:
            wait(took_ms[1])
            self.memory.change("sk_buff", skb, {"dev": self.devices[leaves]})
            last = self.ran("queue", skb)
        wait(took_ms[2])
        sent = self.ran("send", skb, self.devices[leaves])
        return Crossing(received, first, last, sent)

    def counted(self, *names: str) -> list[int]:
        """Counters as they are now."""
        spec, slots = self.probe.running.spec["counters"], self.probe.running._maps["nc_counters"]
        return [slots.sum_of(spec[name]["slot"]) for name in names]
