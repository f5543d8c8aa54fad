"""The echoes of one capture, by id and sequence: wraps of the sequence undone, and what makes no sense left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from netconsole.base.figure import things
from netconsole.ping.breakdown import BreakdownCheck
from netconsole.ping.capture import EchoSummary, EchoTimes, PingCapture, TimeSummary

EchoKey: TypeAlias = tuple[int | None, int]
"""Id and sequence. The sequence goes on where ICMP's 16 bits begin again at 0."""

WRAP = 1 << 16
ROUNDING_US = 0.21
"""Four times that were each rounded to 0.1 us add up to within this."""
LONGEST_US = 60e6
"""A longer echo is the step of a clock, where the others are far shorter: ping itself does not wait so long."""
_FAR = 1000
_NAMED = 5
"""So many echoes are named in a sentence."""


class EchoRecord(Protocol):
    """A record of one echo."""

    @property
    def id(self) -> int | None: ...
    @property
    def seq(self) -> int: ...
    @property
    def at_ns(self) -> int | None: ...


R = TypeVar("R", bound=EchoRecord)


@dataclass(slots=True)
class Echoes:
    """The echoes of a capture. ``times``: answered in time, and with a total. ``ended``: the others."""

    times: dict[EchoKey, EchoTimes] = field(default_factory=dict)
    ended: dict[EchoKey, EchoTimes] = field(default_factory=dict)
    checks: list[BreakdownCheck] = field(default_factory=list)


def read(capture: PingCapture) -> Echoes:
    """The echoes of a capture. What is left out is counted and named in a check."""
    found, role = Echoes(), capture.role
    rows, twice = keyed(capture.packets)
    if twice:
        found.checks.append(_left_out(role, "duplicates", twice, "two records each, and the first counts"))
    replied_twice = sum(1 for row in rows.values() if row.duplicates)
    if replied_twice:
        detail = (
            f"{role}: {things(replied_twice, 'echoes')} had more than one reply, and the first reply of each counts"
        )
        found.checks.append(BreakdownCheck("duplicate replies", False, detail))
    backwards: list[EchoKey] = []
    incomplete: list[EchoKey] = []
    for key, row in rows.items():
        if row.outcome != "answered":
            found.ended[key] = row
            continue
        row = _completed(row)
        known = [row.request_us, row.between_us, row.reply_us, row.total_us]
        if row.total_us is None:
            incomplete.append(key)
        elif any(value is not None and value < 0 for value in known):
            backwards.append(key)
        else:
            found.times[key] = row
    stepped = _far_too_long(found.times)
    for key in stepped:
        del found.times[key]
    if backwards:
        found.checks.append(_left_out(role, "clock", backwards, "a time below zero, because a clock was set back"))
    if stepped:
        found.checks.append(
            _left_out(
                role, "clock", stepped, "more than a minute, where the others take far less, because a clock was set"
            )
        )
    if incomplete:
        found.checks.append(_left_out(role, "complete", incomplete, "without a total time"))
    return found


def keyed(rows: Sequence[R]) -> tuple[dict[EchoKey, R], list[EchoKey]]:
    """The rows by id and sequence, and the keys that stand more than once. The first row of each counts."""
    rows = _in_order(rows)
    wraps = _goes_by_time(rows)
    found: dict[EchoKey, R] = {}
    twice: list[EchoKey] = []
    round_of: dict[int | None, int] = {}
    last: dict[int | None, int] = {}
    for row in rows:
        turn, seq = round_of.get(row.id, 0), row.seq
        if wraps and row.id in last:
            if seq < last[row.id] - WRAP // 2:
                turn += 1
                round_of[row.id] = turn
            elif seq > last[row.id] + WRAP // 2 and turn:
                turn -= 1  # a late record of the round before
        if turn == round_of.get(row.id, 0):
            last[row.id] = seq
        key = (row.id, seq + turn * WRAP)
        if key in found:
            twice.append(key)
        else:
            found[key] = row
    return found, twice


def named(keys: Iterable[EchoKey]) -> list[str]:
    """Some echoes, as people write them."""
    return [f"{'' if id is None else f'id {id} '}seq {seq % WRAP}" for id, seq in list(keys)[:_NAMED]]


def _in_order(rows: Sequence[R]) -> Sequence[R]:
    """By time where every row has one; a kernel's map has no order."""
    if all(row.at_ns is not None for row in rows):
        return sorted(rows, key=lambda row: row.at_ns or 0)
    return rows


def _goes_by_time(rows: Sequence[R]) -> bool:
    """Whether sequences of 16 bits may begin again: rows of one id go up, but for a few steps back."""
    if any(row.seq >= WRAP for row in rows):
        return False
    back: Counter[int | None] = Counter()
    last: dict[int | None, int] = {}
    count = Counter(row.id for row in rows)
    for row in rows:
        if row.seq < last.get(row.id, 0) - WRAP // 2:
            back[row.id] += 1
        last[row.id] = row.seq
    return all(back[id] <= 1 + n // (WRAP // 2) for id, n in count.items())


def _completed(row: EchoTimes) -> EchoTimes:
    """With the one time that follows from the three others."""
    request, between, reply, total = row.request_us, row.between_us, row.reply_us, row.total_us
    parts = (request, between, reply)
    if total is None:
        if request is not None and between is not None and reply is not None:
            return msgspec.structs.replace(row, total_us=request + between + reply)
    elif parts.count(None) == 1:
        rest = total - sum(part for part in parts if part is not None)
        name = ("request_us", "between_us", "reply_us")[parts.index(None)]
        return msgspec.structs.replace(row, **{name: rest})
    return row


def completed_summary(summary: EchoSummary) -> EchoSummary:
    """With the one mean that follows from the three others."""
    parts = {"request_us": summary.request_us, "between_us": summary.between_us, "reply_us": summary.reply_us}
    missing = [name for name, part in parts.items() if part is None]
    known = [part for part in parts.values() if part is not None]
    counts = [part.n for part in (*known, summary.total_us) if part is not None and part.n is not None]
    n, added = min(counts, default=None), sum(part.mean for part in known)
    if summary.total_us is None and not missing:
        return msgspec.structs.replace(summary, total_us=TimeSummary(added, n))
    if summary.total_us is not None and len(missing) == 1:
        return msgspec.structs.replace(summary, **{missing[0]: TimeSummary(summary.total_us.mean - added, n)})
    return summary


def _far_too_long(times: dict[EchoKey, EchoTimes]) -> list[EchoKey]:
    totals = {key: row.total_us or 0.0 for key, row in times.items()}
    long = [key for key, total in totals.items() if total > LONGEST_US]
    if not long or len(long) * 2 > len(totals):
        return []
    usual = median(totals.values())
    return [key for key in long if totals[key] > _FAR * usual]


def _left_out(role: str, check: str, keys: list[EchoKey], why: str) -> BreakdownCheck:
    more = " …" if len(keys) > _NAMED else ""
    return BreakdownCheck(
        check, False, f"{role}: {things(len(keys), 'echoes')}: {why} ({', '.join(named(keys))}{more})"
    )
