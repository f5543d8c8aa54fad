"""What the rows of tables did in the last minute: small losses that last are seen, and totals are exact.

A percentile is judged by its own past: what is late on one host is usual on another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from netconsole.probes.manifest import FindingSpec, Manifest
from netconsole.telemetry.histogram import percentile, subtract
from netconsole.telemetry.state import ProbeState, State
from netconsole.telemetry.tables import HistogramState, RowKey, RowState

LONG, SHORT = 60, 10
"""Intervals over which a small, lasting rate is judged."""
PAUSE = 5
"""Quiet intervals in a row after which what is large has ended; more moves are new."""
NEW_TIMES = 10.0
"""A row that moves so many times as much as in the minute before is new."""
MAX_ROWS = 5000
"""Of one value of one table: those beyond are judged by their last interval alone."""
MIN_SAMPLES = 10
"""A percentile of fewer samples is not compared with a limit."""
MIN_PAST = 100
"""So many samples before the interval are enough to tell what is usual."""


def usual(row: HistogramState, percent: float) -> float | None:
    """The percentile of all samples before this interval; None where there are too few."""
    past = subtract(row.total, row.delta)
    return percentile(past, percent) if past.count >= MIN_PAST else None


def is_later(row: HistogramState, percent: float, over: float, times: float, before: float | None = None) -> bool:
    """Whether a percentile of the interval is above ``over``, and so many times what it was ``before``.

    ``before`` is :func:`usual` where it is left out. What is not known is not late.
    """
    now = row.percentile(percent, "delta") if row.delta.count >= MIN_SAMPLES else None
    before = usual(row, percent) if before is None else before
    return now is not None and before is not None and now > over and now > times * before


class Family(NamedTuple):
    """A value of a table: what rows of one kind count."""

    probe: str
    table: str
    value: str


class Move(NamedTuple):
    """A row moved by ``delta`` in the interval ``tick``; ``whole`` is what a rule wants its share of.

    ``scaled`` is what its rate comes to in a whole interval, of a probe that is attached for a share of the time, and
    of a row that is read less often. Meanwhile the rate is still the one that was seen last, and ``delta`` is 0.
    ``at_ns`` is when it was read. ``grown``: by how much the whole has grown in that interval; None of a gauge.
    """

    tick: int
    delta: int
    whole: float | None = None
    scaled: float | None = None
    at_ns: int = 0
    grown: float | None = None

    @property
    def likely(self) -> float:
        """By how much it has moved in that interval, seen or not."""
        return self.delta if self.scaled is None else self.scaled


@dataclass(slots=True)
class Window:
    """The moves of one row in the last LONG intervals; ``total`` after the newest."""

    row: RowState
    total: int
    moves: deque[Move] = field(default_factory=deque)
    span_ns: int = 0
    """The time that its newest count is of, where it is read less often than its table, and how much that was."""
    counted: float = 0.0

    def mean_per_s(self, tick: int, intervals: int, interval_s: float) -> float:
        """Rate over so many intervals; what was before the row was first seen counts as nothing."""
        return sum(move.likely for move in self.moves if move.tick > tick - intervals) / (intervals * interval_s)

    def moved_in(self, tick: int, intervals: int) -> int:
        """In how many of the last ``intervals`` it moved."""
        return sum(move.tick > tick - intervals for move in self.moves)

    def share_pct(self, tick: int, intervals: int) -> float | None:
        """What it moved by, as a share of what the whole grew by until the last move of that time.

        Of a gauge that is from the first move on: 0 of a single one, of which nothing can be said yet. None where the
        row has no whole.
        """
        first, *later = [move for move in self.moves if move.tick > tick - intervals] or [Move(tick, 0)]
        if first.whole is None:
            return None
        known = later if first.grown is None else [first, *later]
        grown = (known[-1].whole or 0.0) - first.whole + (first.grown or 0.0) if known else 0.0
        return min(100.0, 100 * sum(move.delta for move in known) / grown) if grown > 0 else 0.0

    def since(self, gap: int) -> list[Move]:
        """The newest moves, back to the first pause of more than ``gap`` intervals."""
        run: list[Move] = []
        for move in reversed(self.moves):
            if run and run[-1].tick - move.tick > gap:
                break
            run.append(move)
        return run[::-1]


class Windows:
    """The windows of every value that a rule of a manifest looks at. One per tracker."""

    def __init__(self, manifests: Mapping[str, Manifest]) -> None:
        self._families = {
            name: {Family(name, rule.table, rule.value) for rule in manifest.findings if not rule.histogram}
            for name, manifest in manifests.items()
        }
        self._wholes = {
            Family(name, rule.table, rule.value): rule.share_of
            for name, manifest in manifests.items()
            for rule in manifest.findings
            if rule.share_of
        }
        self._begun: dict[Family, int] = {}
        self._usual: dict[tuple[str, str, RowKey], float] = {}
        """What was usual before a percentile went beyond it, by probe, histogram and row."""
        self._windows: dict[Family, dict[RowKey, Window]] = {}

    def update(self, state: State) -> None:
        """Take note of the interval that has just ended."""
        for probe in state.probes.values():
            for family in self._families.get(probe.name, ()):
                self._note(family, probe, interval_s(state, probe.name))

    def of(self, family: Family) -> Mapping[RowKey, Window]:
        """By row: those that moved in the last minute."""
        return self._windows.get(family, {})

    def is_new(self, family: Family, window: Window, tick: int) -> bool:
        """Whether a row moves ten times as much as in the minute before, which was looked at."""
        if tick - self._begun.get(family, tick) < LONG:
            return False
        now = sum(move.likely for move in window.moves if move.tick > tick - SHORT) / SHORT
        before = sum(move.likely for move in window.moves if move.tick <= tick - SHORT) / (LONG - SHORT)
        return now >= NEW_TIMES * before

    def is_later(self, probe: str, rule: FindingSpec, row: HistogramState, percent: float) -> bool:
        """Whether a percentile is beyond a rule's limit and its own past. While it lasts, that before it began."""
        name = (probe, rule.table, row.key)
        before = self._usual.get(name)
        before = usual(row, percent) if before is None else before
        found = is_later(row, percent, rule.over, rule.times_past or 1.0, before)
        if found and before is not None:
            self._usual[name] = before
        else:
            self._usual.pop(name, None)
        return found

    def forget(self, family: Family, key: RowKey) -> None:
        """What a row did until now belongs to an incident that is over."""
        self._windows.get(family, {}).pop(key, None)

    def _note(self, family: Family, probe: ProbeState, length_s: float) -> None:
        tick, is_sampled = probe.timeline.tick, probe.seen_pct is not None
        self._begun.setdefault(family, tick)
        whole = self._wholes.get(family, "")
        windows = self._windows.setdefault(family, {})
        table = probe.tables.get(family.table)
        is_read = table is not None and table.is_told and not table.is_held
        at_ns = table.read_ns if table is not None and is_read else probe.timeline.last_mono_ns or 0
        for row, delta, total, per_s in _moved(probe, family):
            window = windows.get(row.key)
            if window is None:
                if len(windows) >= MAX_ROWS:
                    continue
                window = windows[row.key] = Window(row, total)
            if window.moves and window.moves[-1].tick == tick:
                continue
            span_ns = row.span_of(family.value)
            is_scaled = is_sampled or span_ns > 0
            if window.moves and (total > window.total or (is_scaled and total == window.total)):
                delta = total - window.total  # also of intervals that nobody looked at
            window.row, window.total = row, total
            if delta or span_ns:
                window.span_ns, window.counted = span_ns, (per_s or 0.0) * span_ns / 1e9
            scaled = per_s * length_s if is_scaled and per_s is not None else None
            of_all = row.counts.get(whole)
            has, grown = (of_all.total, of_all.delta) if of_all is not None else (row.gauges.get(whole), None)
            window.moves.append(Move(tick, delta, has, scaled, at_ns, grown))
        for key, window in list(windows.items()):
            while window.moves and window.moves[0].tick <= tick - LONG:
                window.moves.popleft()
            if not window.moves:
                del windows[key]


def _moved(probe: ProbeState, family: Family) -> Iterator[tuple[RowState, int, int, float | None]]:
    table = probe.tables.get(family.table)
    for row in table.moving() if table is not None and probe.measuring else ():
        count = row.counts.get(family.value)
        if count is not None and count.delta is not None and row.moved(family.value):
            yield row, count.delta, count.total, count.per_s


def interval_s(state: State, probe: str) -> float:
    """The usual length of an interval of a probe's source; a second before there was one."""
    known = state.probes.get(probe)
    source = state.sources[known.source] if known is not None else state.collector
    return source.usual_interval_ns / 1e9
