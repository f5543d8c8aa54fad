"""Upcalls of a datapath of the test's own, and what user space answers."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.support.live.contexts.datapath import LINK_HEADER, OWN, Datapath
from tests.support.live.contexts.memory import place_of
from tests.support.live.contexts.moments import Span, at
from tests.support.live.contexts.ovs_types import COMMAND_AT, FOR_USER_SPACE, MISS, flow_key
from tests.support.live.contexts.packets import TCP, Flow
from tests.support.live.contexts.unattached import UnattachedProbe

AS_FUNCTIONS = {
    "asked": "asked_probe",
    "queued": "queued",
    "ended": "ended",
    "answered": "acted",
    "given_back": "given_back_at_once",
    "put": "put",
}
BEFORE = {**AS_FUNCTIONS, "given_back": "given_back"}
"""Where programs at the return of a function do not have its arguments."""
BY_LINK, BY_OWN = 0, 1
FLOW6 = Flow("2001:db8::1", "2001:db8:7::2", 53, 4444, TCP)
LIMIT_S = 20


class Upcalls(Datapath):
    def __init__(self, probe: UnattachedProbe) -> None:
        super().__init__(probe)
        self.infos = {
            kind: self.memory.keep(bytes(COMMAND_AT) + bytes([kind]).ljust(8, b"\0")) for kind in (MISS, FOR_USER_SPACE)
        }
        self.resumed(0)

    def resumed(self, ns: int) -> None:
        """When the programs were attached again."""
        self.probe.running._maps.write("nc_resumed", ns.to_bytes(8, "little"))

    def copy(self, flow: Flow, packet: bytes = b"", members: dict[str, int] | None = None) -> int:
        """Of a packet, with the headers that the parser has pulled."""
        skb = self.frame(flow.ethertype, packet or flow.packet(), self.link_, sender=flow.mac)
        transport = 64 + LINK_HEADER + (40 if ":" in flow.source else 20)
        self.memory.change("sk_buff", skb, {"transport_header": transport, **(members or {})})
        return skb

    def key(self, flow: Flow, **more: int) -> int:
        return self.memory.keep(flow_key(flow, **more))

    def ask(self, flow: Flow, by: int = BY_LINK, kind: int = MISS, **more: int) -> Span:
        skb = self.copy(flow)
        self._word(skb + place_of("sk_buff", "cb")[0], self.ports[by])
        return at(self.probe.prepare("asked", self.path, skb, self.key(flow, **more), self.infos[kind]))

    def hand_over(self, *skbs: int, error: int = 0) -> None:
        for skb in skbs:
            self.probe.run("queued", self.path, skb)
        self.probe.run("ended", 0, 0, 0, 0, 0, 0, error)

    def upcall(self, flow: Flow, by: int = BY_LINK, kind: int = MISS, packet: bytes = b"", **more: int) -> Span:
        """One packet that is handed over."""
        span = self.ask(flow, by, kind, **more)
        self.hand_over(self.copy(flow, packet))
        return span

    def answer(self, flow: Flow, packet: bytes = b"", result: int = 0, **more: int) -> Span:
        skb, key = self.copy(flow, packet), self.key(flow, **more)
        return at(self.probe.prepare("given_back", 0, 0, skb, key, 0, 0, result))

    def read(self) -> None:
        self.probe.read()

    def row(self, *values: str) -> dict[tuple[str, str], tuple[int, ...]]:
        """Of the table, by port and kind."""
        self.read()
        rows = self.probe.rows("upcalls")
        assert {row["datapath"] for row in rows} <= {OWN}
        return {(row["port"], row["kind"]): tuple(row[value] for value in values) for row in rows}

    def until(self, counter: str, count: int) -> None:
        """Tasks are switched until so many were found."""
        end = time.monotonic() + LIMIT_S
        while self.probe.counters()[counter] < count and time.monotonic() < end:
            self.probe.run("switched")
            self.read()
        assert self.probe.counters()[counter] == count

    def of_one_packet(self, flow: Flow) -> list[Callable[[], int]]:
        """The programs from its upcall to its answer."""
        skb, key = self.copy(flow), self.key(flow)
        self._word(skb + place_of("sk_buff", "cb")[0], self.ports[BY_LINK])
        return [
            self.probe.prepare("asked", self.path, skb, key, self.infos[MISS]),
            self.probe.prepare("queued", self.path, skb),
            self.probe.prepare("ended", 0),
            self.probe.prepare("given_back", 0, 0, skb, key),
        ]
