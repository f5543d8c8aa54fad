"""tun_tx_to_kvm_irq: from the tap to the guest's interrupt, one line or event for each stage.

The delay of stage 4 is measured from stage 2, not from stage 3: the total that the tool prints, and every sum of its
delays, counts S2→S3 twice. Stages and totals are computed anew, and a note says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from netconsole.base.errors import UNREADABLE, bad
from netconsole.ping.capture import PingCapture, Role
from netconsole.ping.logs.text import made, number

_LINE = re.compile(r"TUN TX (?:INTERRUPT )?\[([^\]]{1,64})\] Stage ([1-5])\b")
_PACKET = re.compile(r"ICMP (\S+) -> (\S+) type=(\d+) code=\d+ id=(\d+) seq=(\d+)")
_DELAY = re.compile(r"Delay=(-?[\d.]+)ms")
_EVENTFD = re.compile(r"EventFD\(\w+\)=(0x[0-9a-fA-F]+)")
_PRINTED = re.compile(r"-> Total\(S1->S5\): (-?[\d.]+)ms")
_REQUEST, _REPLY = 8, 0
_ROLES: dict[int, Role] = {_REQUEST: "receiver-host", _REPLY: "sender-host"}
SOURCE = "tun_tx_to_kvm_irq"
TWICE = "S2→S3 is counted twice in the delays and totals of tun_tx_to_kvm_irq: stages and totals were computed anew"
NO_LAST = "the log has no stage S5: the time from the tap ends at S4, and what follows is in the remainder"


class IrqEvent(msgspec.Struct):
    """An event of the tool's JSON. Id and sequence are in network order; times are ns since the machine started."""

    timestamp: int
    stage: int
    queue_key: str = ""
    eventfd_ctx: int = 0
    icmp_id: int = 0
    icmp_seq: int = 0
    icmp_type: int = -1
    protocol: int = 1


@dataclass(slots=True)
class Chain:
    """The stages of one packet. ``at_us``: when each was reached, from the first on."""

    type: int
    id: int
    seq: int
    at_us: dict[int, float] = field(default_factory=lambda: {1: 0.0})
    eventfd: str | None = None
    begin_ns: int | None = None
    printed_us: float | None = None

    @property
    def last(self) -> int:
        """The stage that was reached last."""
        return max(self.at_us)


def is_log(head: str) -> bool:
    """Whether a log is of this tool."""
    return _LINE.search(head) is not None or "TUN TX" in head


def read(lines: Iterable[str], file: str, role: Role | None) -> list[PingCapture]:
    """The captures of a text log: of requests, of replies, or both. Raises BadInput."""
    chains: list[Chain] = []
    open_chains: dict[str, Chain] = {}
    for line in lines:
        found = _LINE.search(line)
        if found:
            queue, stage = found[1], int(found[2])
            packet = _PACKET.search(line) if stage == 1 else None
            if stage == 1:
                open_chains.pop(queue, None)
                if packet:
                    chain = Chain(int(packet[3]), int(packet[4]) & 0xFFFF, int(packet[5]))
                    open_chains[queue] = chain
                    chains.append(chain)
            elif queue in open_chains:
                _take(open_chains[queue], stage, line)
            continue
        total = _PRINTED.search(line)
        if total and chains:
            chains[-1].printed_us = _us(total[1])
    return _captures(chains, file, role)


def read_json(content: bytes, file: str, role: Role | None) -> list[PingCapture]:
    """The captures of a JSON log. Raises BadInput."""
    try:
        events = msgspec.json.decode(content, type=list[IrqEvent])
    except (*UNREADABLE, ValueError) as error:
        raise bad(file, SOURCE, f"this file is not JSON of this tool: {error}") from None
    chains: list[Chain] = []
    open_chains: dict[str, Chain] = {}
    for event in sorted(events, key=lambda one: one.timestamp):
        queue = event.queue_key
        if event.stage == 1:
            open_chains.pop(queue, None)
            if event.icmp_type in _ROLES and event.protocol == 1:
                chain = Chain(event.icmp_type, _swapped(event.icmp_id), _swapped(event.icmp_seq))
                chain.begin_ns = event.timestamp
                open_chains[queue] = chain
                chains.append(chain)
        elif queue in open_chains:
            chain = open_chains[queue]
            if event.stage == chain.last + 1 and _same_eventfd(chain, event.stage, str(event.eventfd_ctx or "")):
                chain.at_us[event.stage] = (event.timestamp - (chain.begin_ns or 0)) / 1000
    return _captures(chains, file, role)


def _take(chain: Chain, stage: int, line: str) -> None:
    """The next stage of a chain, if this line has it: a later packet of the queue has another eventfd, or order."""
    delay, eventfd = _DELAY.search(line), _EVENTFD.search(line)
    after = _us(delay[1]) if delay else None
    if stage != chain.last + 1 or after is None or not _same_eventfd(chain, stage, eventfd[1] if eventfd else ""):
        return
    before = 2 if stage == 4 else stage - 1  # the tool keeps the time of stage 2 until stage 4
    chain.at_us[stage] = chain.at_us[before] + after


def _same_eventfd(chain: Chain, stage: int, eventfd: str) -> bool:
    if stage == 2:
        chain.eventfd = eventfd or None
    return stage == 5 or not eventfd or chain.eventfd in (None, eventfd)


def _captures(chains: list[Chain], file: str, role: Role | None) -> list[PingCapture]:
    by_type = {kind: [chain for chain in chains if chain.type == kind and chain.last >= 2] for kind in _ROLES}
    found = [
        made(file, _ROLES[kind], SOURCE, vhost_irq={"packets": list(_rows(kept))}, notes=list(_notes(kept)))
        for kind, kept in by_type.items()
        if kept
    ]
    if role is not None:
        found = [one for one in found if one.role == role]
    if not found:
        what = "no echo" if role is None else f"no echo that goes to a guest of {role}"
        raise bad(file, SOURCE, f"has {what} with more than its first stage")
    return found


def _rows(chains: list[Chain]) -> Iterator[dict[str, Any]]:
    end = 5 if any(chain.last == 5 for chain in chains) else 4
    for chain in chains:
        at = chain.at_us
        row: dict[str, Any] = {"id": chain.id, "seq": chain.seq, "at_ns": chain.begin_ns}
        for stage in range(1, 5):
            if stage + 1 in at:
                row[f"s{stage}_s{stage + 1}"] = at[stage + 1] - at[stage]
        if end in at:
            row["total"] = at[end]
        yield row


def _notes(chains: list[Chain]) -> Iterator[str]:
    printed = [chain.printed_us for chain in chains if chain.printed_us is not None and chain.last == 5]
    right = [chain.at_us[5] for chain in chains if chain.printed_us is not None and chain.last == 5]
    means = ""
    if printed:
        means = f" (printed {sum(printed) / len(printed):.1f} us, computed {sum(right) / len(right):.1f} us)"
    yield TWICE + means
    if all(chain.last < 5 for chain in chains):
        yield NO_LAST


def _us(milliseconds: str) -> float | None:
    value = number(milliseconds)
    return None if value is None else value * 1000


def _swapped(value: int) -> int:
    """A number of 16 bits in network order, on the little-endian machine that wrote it."""
    return (value & 0xFF) << 8 | value >> 8 & 0xFF
