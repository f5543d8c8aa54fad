"""What a loss is a share of: everything that came to its place, in its own direction alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from netconsole.findings.windows import LONG, NEW_TIMES, SHORT, Move, Window
from netconsole.probes.manifest import FindingSpec
from netconsole.snapshot.passing import passing
from netconsole.telemetry.frames import Label
from netconsole.telemetry.state import State
from netconsole.telemetry.tables import RowKey, TableState

EDGE = 2
"""Moves at each end of a loss that a share leaves out, if there are enough; intervals there that may belong to it."""
UNSURE = 0.15
"""A share is not said where so much of what came may lie beyond its ends: its parts were read at other times."""


class _Span(NamedTuple):
    """The rate of a count between two readings."""

    began_ns: int
    ended_ns: int
    per_s: float

    @property
    def counted(self) -> float:
        return self.per_s * (self.ended_ns - self.began_ns) / 1e9

    def unsure(self, within_ns: int, beside: Sequence[_Span]) -> float:
        """By how much the count of a part may be wrong: within an interval the rate changes from that before it."""
        cut_ns = min(within_ns, self.ended_ns - self.began_ns - within_ns)
        return max((abs(one.per_s - self.per_s) for one in beside), default=0.0) * cut_ns / 1e9


class Packets:
    """How many packets each device receives and sends."""

    def __init__(self, state: State) -> None:
        links = state.probes.get("link_rates")
        self._table = links.tables.get("links") if links is not None and links.measuring else None
        rows = self._table.rows.values() if self._table is not None else ()
        self._keys = {(row.labels.get("netns") or "host", row.labels.get("device")): row.key for row in rows}

    def per_s(self, labels: Mapping[str, Label], counter: str, intervals: int, before: int = 0) -> float | None:
        """The mean of the device that these labels name, over so many intervals before the last ``before``.

        None where it is not known.
        """
        key = self._key(labels, counter)
        if self._table is None or key is None:
            return None
        return _mean(self._table.history(key, counter, intervals + before), before)

    def are_new(self, labels: Mapping[str, Label], counter: str) -> bool:
        """Whether there were far fewer in the minute before. True when that is not known."""
        now, before = self.per_s(labels, counter, SHORT), self.per_s(labels, counter, LONG - SHORT, SHORT)
        return now is None or before is None or now > NEW_TIMES * before

    def share_pct(self, rule: FindingSpec, window: Window, gap: int) -> float | None:
        """How many percent of what came to the place of a row were lost, from the first of its moves to the last.

        Both are counted from one reading of the row to another one. The first interval is left out, of which nobody
        knows the beginning; of many moves more at both ends, where the intervals of the device hold other traffic. It
        is no less than all of its moves are of all that may have come to them. None of a single move, of a row that is
        read less often than its device, and where it is not known.
        """
        if window.span_ns:
            return None
        run = window.since(gap)
        spare = min(EDGE, (len(run) - 1) // 3)
        first, *later = run[spare : len(run) - spare]
        if not later or later[-1].at_ns <= first.at_ns:
            return None
        way = passing(rule.cause, rule.value, window.row.labels)
        key = self._key(window.row.labels, way.counter)
        if self._table is None or key is None:
            return None
        if self._table.never_moved(key, way.counter):
            return way.share_pct(0.0, _lost(later))
        spans, ever = _spans(self._table, key, way.counter), self._table.rows[key].counts[way.counter].total
        share = way.share_pct(_between(spans, first.at_ns, later[-1].at_ns), _lost(later))
        least = way.share_pct(_around(spans, ever, run[0].at_ns, run[-1].at_ns), _lost(run))
        return share if share is None or least is None else max(share, least)

    def _key(self, labels: Mapping[str, Label], counter: str) -> RowKey | None:
        """The row of the device that these labels name, if that has the counter."""
        key = self._keys.get((labels.get("netns") or "host", labels.get("device")))
        has_it = self._table is not None and key is not None and counter in self._table.rows[key].counts
        return key if has_it else None


def _lost(moves: Sequence[Move]) -> float:
    return sum(move.likely for move in moves)


def _spans(table: TableState, key: RowKey, counter: str) -> list[_Span]:
    """The known intervals of a device, oldest first."""
    past, now = table.history(key, counter, LONG + SHORT), table.timeline.tick
    known = [
        _Span(began_ns, ended_ns, per_s)
        for tick, began_ns, ended_ns in table.spans()
        if 0 <= now - tick < len(past) and (per_s := past[tick - now - 1]) is not None
    ]
    return known[::-1]


def _around(spans: Sequence[_Span], ever: int, start_ns: int, end_ns: int) -> float | None:
    """At most so many packets came to a loss that was first read at ``start_ns`` and last at ``end_ns``.

    What was counted in the intervals beside them is among them: a row has moved before it is read, and on a busy host a
    device is read long before its table ends. All that it ever counted, where they are not known. None where it was not
    read since.
    """
    read = [number for number, span in enumerate(spans) if span.ended_ns >= start_ns]
    last = next((number for number in read if spans[number].ended_ns >= end_ns), None)
    if last is None:
        return None
    if read[0] < EDGE:
        return float(ever)
    return sum(span.counted for span in spans[read[0] - EDGE : last + EDGE])


def _between(spans: Sequence[_Span], start_ns: int, end_ns: int) -> float | None:
    """How many packets a device counted from one moment to another one. Intervals that are cut count in part.

    Those that are not known are like the others: devices of a new namespace are read some seconds later. None where
    they are most of that time, or too much depends on when in a cut interval its packets came.
    """
    known_ns, counted, unsure = 0, 0.0, 0.0
    for place, span in enumerate(spans):
        within_ns = min(span.ended_ns, end_ns) - max(span.began_ns, start_ns)
        if within_ns <= 0:
            continue
        known_ns += within_ns
        counted += span.per_s * within_ns / 1e9
        unsure += span.unsure(within_ns, spans[max(0, place - 1) : place + 2])
    if 2 * known_ns < end_ns - start_ns or unsure > UNSURE * counted:
        return None
    return counted * (end_ns - start_ns) / known_ns


def _mean(past: Sequence[float | None], before: int) -> float:
    """Of all samples but the last ``before`` that are known."""
    known = [one for one in past[: len(past) - before] if one is not None]
    return sum(known) / len(known) if known else 0.0
