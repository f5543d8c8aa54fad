"""The current rows of a probe's tables and histograms, with ten minutes of history for the busiest rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from math import ceil, sqrt
from typing import Annotated, ClassVar, Literal, TypeAlias

from msgspec import Meta, field

from netconsole.telemetry import frames
from netconsole.telemetry.example import Example, received
from netconsole.telemetry.frames import Buckets, Int, Label, Labels, Name, Natural, Text
from netconsole.telemetry.histogram import EMPTY, add, percentile
from netconsole.telemetry.saved import Keyed, Saved, SavedValues
from netconsole.telemetry.series import SAMPLES, Series, Timeline

MAX_NAMES = 64
"""Counters, tables or histograms of one probe. A manifest has 12 at most."""
MAX_ROWS = 10_000
"""Rows of one table that are kept; `omitted` counts the others. The collector never sends so many."""
MAX_HISTORY_ROWS = 200
"""Rows of one table that have a history. 200 rows with two values take 1 MB."""
MAX_HISTOGRAMS = 1024
MAX_HISTOGRAM_HISTORIES = 64
MAX_VALUES = 32
"""Counts of one row that are kept. A manifest has about 5 at most."""
MAX_HELD = 60
"""Intervals for which the rates of a row hold that is read less often than its table."""
SURE = 1.96
"""Standard deviations within which 95 of 100 values lie."""
GONE_AFTER_INTERVALS = 25
"""A histogram is sent at least every tenth interval. If it missed two of these, it is gone."""

RowKey: TypeAlias = tuple[tuple[str, Label], ...]
"""The labels of a row as sorted (name, value) pairs."""


def row_key(labels: dict[str, Label]) -> RowKey:
    """The key of a row, whatever the order of its labels in the frame."""
    return tuple(sorted(labels.items()))  # names are unique, so values are never compared


def per_second(delta: int | None, interval_ns: int) -> float | None:
    """A rate; None when the delta or the interval is not known."""
    return None if delta is None or interval_ns <= 0 else delta * 1e9 / interval_ns


def seen_ns(frame: frames.Counters | frames.Table | frames.Histogram) -> int:
    """Of how much of its interval the figures of a frame are: all, or the time in which the probe was attached."""
    return frame.interval_ns if frame.seen_ns is None else frame.seen_ns


class CountState(SavedValues):
    """A count: since the probe was attached, in the last interval, and per second. None: not known.

    ``variance``: the square of what chance does to the total (a standard deviation), where rows were made of one count
    in so many (:attr:`netconsole.telemetry.frames.Table.one_in`). 0: the count is exact.
    """

    total: Natural
    delta: Int | None
    per_s: float | None
    variance: float = 0.0
    span_ns: Natural = 0
    """The time that its rate is of, where it is read less often than its row: until the next reading it holds."""
    holds: Natural = 0
    """For how many more intervals."""
    read_ns: Int = 0
    """When it was read last (wall clock), where that is less often."""

    def hold(self) -> bool:
        """It is not read in this interval: whether its rate still holds."""
        self.delta = 0
        if self.holds:
            self.holds -= 1
            return True
        self.per_s, self.span_ns = 0.0, 0
        return False

    def lose(self) -> None:
        """What it does is not known now."""
        self.delta = self.per_s = None
        self.span_ns = self.holds = 0


class RowState(SavedValues):
    """One row: counts by name, current gauges, and when its counts first and last changed (wall clock, ns).

    ``moving``: a count changed in the last interval, or may have changed.
    """

    MOST: ClassVar = MAX_ROWS

    labels: Labels
    counts: Annotated[dict[Name, CountState], Meta(max_length=MAX_VALUES)]
    gauges: Annotated[dict[Name, Int | float | None], Meta(max_length=MAX_VALUES)]
    first_seen_ns: Int
    last_active_ns: Int
    moving: bool = False
    before: Annotated[dict[Name, Natural], Meta(max_length=MAX_VALUES)] = field(default_factory=dict)
    """Its totals when its probe was lost or detached: what is counted since is added to them."""
    span_ns: Natural = 0
    """The time that its rates are of, where it is read less often than its table: until the next reading they hold."""
    holds: Natural = 0
    """For how many more intervals."""
    example: Example | None = None
    """Its latest packet, where one is known."""

    @property
    def key(self) -> RowKey:
        """What it is found by."""
        return row_key(self.labels)

    def moved(self, name: str) -> bool:
        """Whether a count has changed in the last interval, or in the time that its rate is of."""
        count = self.counts.get(name)
        return count is not None and bool(count.delta or (self.span_of(name) and count.per_s))

    def span_of(self, name: str) -> int:
        """The time that the rate of a count is of, where that is read less often than its table; else 0."""
        count = self.counts.get(name)
        return self.span_ns or (0 if count is None else count.span_ns)

    def read_ns(self, name: str) -> int:
        """When a count was read that has changed last (wall clock)."""
        count = self.counts.get(name)
        return count.read_ns if count is not None and count.span_ns else self.last_active_ns

    def per_s(self, name: str) -> float | None:
        """Rate of a count; None when the row has no such count or the rate is not known."""
        count = self.counts.get(name)
        return None if count is None else count.per_s

    def total(self, name: str) -> int | None:
        """Total of a count since the probe was attached; None when the row has no such count."""
        count = self.counts.get(name)
        return None if count is None else count.total

    def error(self, name: str) -> int:
        """By how much a total may be off by chance, 95 times in 100; 0: it is exact."""
        count = self.counts.get(name)
        return 0 if count is None else ceil(SURE * sqrt(count.variance))


class TableState(Saved):
    """The rows of one table. ``omitted`` rows did not fit into the frame (or here)."""

    MOST: ClassVar = MAX_NAMES

    name: Name
    omitted: Natural = 0
    tick: Natural = 0
    _rows: Keyed[RowKey, RowState] = field(default_factory=Keyed)
    one_in: Natural = 1
    """For how many counts one that is in a row stood in the last interval: above 1 its rates are estimates (≈)."""
    until_ns: Int | None = None
    """When it was read last (wall clock)."""

    def __post_init__(self) -> None:
        self._moving = [row for row in self.rows.values() if row.moving]
        self._history: dict[RowKey, dict[str, Series]] = {}
        self._sums: dict[str, Series] = {}
        self.is_told = True
        """Whether the last interval had a frame of it."""
        self.untold = 0
        """How many intervals in a row had none: a source may be late once, and its figures come in the next one."""
        self.is_held = False
        """Whether rates are of an interval before, because nothing was seen in the last one."""
        self.read_ns = 0
        """When its last frame was read (monotonic clock of its host)."""
        self._spans: deque[tuple[int, int, int]] = deque(maxlen=SAMPLES)

    def follow(self, timeline: Timeline) -> None:
        """Count intervals by this timeline. The history begins here."""
        self.timeline: Timeline = timeline
        self._began: int = timeline.tick

    @property
    def key(self) -> str:
        """What it is found by."""
        return self.name

    @property
    def rows(self) -> dict[RowKey, RowState]:
        """By their labels."""
        return self._rows.by_key

    def sums(self, count: int = SAMPLES) -> dict[str, list[float | None]]:
        """Per column: the sum of all rows per second, oldest first; None is unknown."""
        return {name: series.values(self.timeline, count) for name, series in self._sums.items()}

    def history(self, key: RowKey, name: str, count: int = SAMPLES) -> list[float | None]:
        """Samples per second of a count, oldest first; None is unknown; empty when the row has no history."""
        series = self._history.get(key, {}).get(name)
        return [] if series is None else series.values(self.timeline, count)

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """The newest frames, the last one first: of which interval each is, and the time that its figures are of."""
        return reversed(self._spans)

    def never_moved(self, key: RowKey, name: str) -> bool:
        """Whether a count has stood still since its row is known. False where the row's history was given up."""
        row, history = self.rows.get(key), self._history.get(key)
        if row is None or name not in row.counts:
            return False
        return name not in history if history is not None else row.last_active_ns == row.first_seen_ns

    def moving(self) -> list[RowState]:
        """The rows with a count that changed in the last interval; all rows when that is not known."""
        return [row for row in self._moving if row.moving]

    def apply(self, frame: frames.Table, tick: int) -> None:
        """Apply the rows of a frame. Rows that a full frame lacks are gone."""
        earlier_ns = self._note_reading(frame, tick)
        if frame.seen_ns == 0:
            self.hold(tick)
            return
        self.is_held = False
        self._stand_still(tick)
        self.one_in, self.until_ns = max(1, frame.one_in), frame.wall_ns
        together = _grown(frame) if self.one_in > 1 else {}
        rows = self.rows
        seen: set[RowKey] = set()
        refused = 0
        length_ns = seen_ns(frame) + earlier_ns
        for sent in frame.rows:
            key = row_key(sent.labels)
            row = rows.get(key)
            if row is None:
                if len(rows) >= MAX_ROWS and not frame.full:
                    refused += 1
                    continue
                if len(seen) >= MAX_ROWS:
                    refused += 1
                    continue
                row = rows[key] = RowState(sent.labels, {}, {}, frame.wall_ns, frame.wall_ns)
            seen.add(key)
            self._update(key, row, sent, frame, tick, length_ns, together)
        for row in self._moving if earlier_ns else ():
            if row.key not in seen and not row.span_ns:
                self._spread(row, tick, length_ns)
        moved: dict[str, float] = dict.fromkeys(frame.rows[0].counts, 0.0) if frame.rows else {}
        for row in self.moving():
            for name, count in row.counts.items():
                moved[name] = moved.get(name, 0.0) + (count.per_s or 0.0)
        for name, per_s in moved.items():
            if name in self._sums or len(self._sums) < MAX_VALUES:
                self._sum_of(name).put(tick, per_s)
        self.omitted = frame.omitted + refused
        if frame.full:
            for key in [key for key in rows.keys() - seen if not rows[key].before]:
                rows.pop(key).moving = False

    def _note_reading(self, frame: frames.Table, tick: int) -> int:
        """Of which time a frame is. Returns the length of an earlier reading of this tick: of one that came late."""
        self.read_ns, began_ns, earlier_ns = frame.mono_ns, frame.mono_ns - frame.interval_ns, 0
        if self._spans and self._spans[-1][0] == tick:
            _, first_ns, ended_ns = self._spans.pop()
            if frame.mono_ns > ended_ns:  # else it has more rows of the same reading
                earlier_ns = ended_ns - first_ns
            began_ns = first_ns
        self._spans.append((tick, began_ns, frame.mono_ns))
        return earlier_ns

    def close(self, tick: int) -> None:
        """End interval ``tick``. Without a frame in it (lost, its source failed) rates and gauges are unknown.

        Rates that hold until the next reading hold: nothing would have been read of them.
        """
        self.is_told = self.tick == tick
        self.untold = 0 if self.is_told else self.untold + 1
        if self.is_told:
            return
        self.tick, self.is_held = tick, False
        for series in self._every_series():
            series.put(tick, None)
        for row in self.rows.values():
            row.gauges = dict.fromkeys(row.gauges)
            row.moving = True
            if row.holds:
                self._hold_rates(row, tick)
                continue
            row.span_ns = 0
            for count in row.counts.values():
                count.lose()
        self._moving = list(self.rows.values())

    def hold(self, tick: int) -> None:
        """Nothing was seen in interval ``tick``: rates are still those that were seen last."""
        self.tick, self.is_held = tick, True
        for series in self._every_series():
            series.put(tick, None)

    def _every_series(self) -> Iterator[Series]:
        yield from self._sums.values()
        for row in self._history.values():
            yield from row.values()

    def _stand_still(self, tick: int) -> None:
        """A frame of interval ``tick`` arrived: rows that it does not name did not change."""
        if self.tick == tick:
            return
        self.tick, self.one_in = tick, 1
        held = []
        for row in self._moving:
            if row.moving and row.holds:
                self._hold_rates(row, tick)
                held.append(row)
                continue
            row.moving, row.span_ns = False, 0
            history = self._history.get(row.key, {})
            for name, count in row.counts.items():
                if count.hold():
                    row.moving = True
                    if name in history:
                        history[name].put(tick, count.per_s)
            if row.moving:
                held.append(row)
        self._moving = held

    def _hold_rates(self, row: RowState, tick: int) -> None:
        """It is not read in this interval."""
        row.holds -= 1
        history = self._history.get(row.key, {})
        for name, count in row.counts.items():
            count.delta = 0
            if name in history:
                history[name].put(tick, count.per_s)

    def begin_again(self) -> None:
        """Its probe counts from 0 again: what was counted before stays."""
        for row in self.rows.values():
            row.before = {name: count.total for name, count in row.counts.items()}

    def _sum_of(self, name: str) -> Series:
        if name not in self._sums:
            self._sums[name] = Series()
            self._sums[name].put(self._began, 0.0)
        return self._sums[name]

    def _update(
        self,
        key: RowKey,
        row: RowState,
        sent: frames.Row,
        frame: frames.Table,
        tick: int,
        length_ns: int,
        together: dict[str, int],
    ) -> None:
        """``together``: what all rows grew by, where rows are estimates. ``length_ns``: of all frames of this tick."""
        moved = False
        is_second = length_ns > seen_ns(frame)
        if row.span_ns and not any(count.delta for count in sent.counts.values()):
            row.gauges = sent.gauges  # a full frame has it, too, while its rates hold
            return
        row.span_ns = row.holds = 0
        if sent.interval_ns is not None:
            row.span_ns, row.holds = sent.interval_ns, min(MAX_HELD, round(sent.interval_ns / max(1, length_ns)))
            length_ns = sent.interval_ns
        for name, count in sent.counts.items():
            known = row.counts.get(name)
            total = frames.added(count.total, row.before.get(name, 0))
            if known is None:
                if len(row.counts) >= MAX_VALUES:
                    continue
            elif known.total == total and count.delta == 0 and (known.per_s == 0.0 or known.span_ns):
                continue  # most rows of a full frame have not changed; some counts are not read each time
            variance = known.variance if known is not None else 0.0
            if together and count.delta:
                variance += _chance(count.delta, together[name], frame.one_in, is_first=not variance)
            delta = count.delta
            if is_second and delta is not None and known is not None:
                delta += known.delta or 0
            span_ns = count.interval_ns or 0
            holds = min(MAX_HELD, round(span_ns / max(1, length_ns)))
            row.counts[name] = CountState(
                total,
                delta,
                per_second(delta, span_ns or length_ns),
                variance,
                span_ns,
                holds,
                frame.wall_ns * bool(span_ns),
            )
            moved = moved or delta != 0
        for name in row.counts.keys() - sent.counts.keys():  # nobody knows it now
            row.counts[name].lose()
            moved = True
        row.gauges = sent.gauges
        if sent.example:
            row.example = received(sent.example, frame.mono_ns, frame.wall_ns)
        if not moved:
            return
        row.last_active_ns = frame.wall_ns
        if sent.first_ns and sent.last_ns:
            behind_ns = frame.wall_ns - frame.mono_ns
            row.first_seen_ns, row.last_active_ns = sent.first_ns + behind_ns, sent.last_ns + behind_ns
        if not row.moving:
            row.moving = True
            self._moving.append(row)
        history = self._history_of(key)
        if history is not None:
            for name, state in row.counts.items():
                if state.delta or name in history:
                    history.setdefault(name, Series()).put(tick, state.per_s)

    def _spread(self, row: RowState, tick: int, length_ns: int) -> None:
        """What a row counted in the first frame of a tick was all that it counted in the whole of it."""
        history = self._history.get(row.key, {})
        for name, count in row.counts.items():
            count.per_s = count.per_s if count.span_ns else per_second(count.delta, length_ns)
            if name in history:
                history[name].put(tick, count.per_s)

    def _history_of(self, key: RowKey) -> dict[str, Series] | None:
        # Ordered by the last change, so the row that is idle longest comes first.
        known = self._history.pop(key, None)
        if known is None and len(self._history) >= MAX_HISTORY_ROWS:
            idlest = next(iter(self._history))
            row = self.rows.get(idlest)
            if row is not None and row.moving:
                return None
            del self._history[idlest]
        self._history[key] = history = {} if known is None else known
        return history


def _grown(frame: frames.Table) -> dict[str, int]:
    """By how much all rows of a frame together have grown, by the name of the count."""
    found: dict[str, int] = {}
    for row in frame.rows:
        for name, count in row.counts.items():
            found[name] = found.get(name, 0) + (count.delta or 0)
    return found


def _chance(delta: int, together: int, one_in: int, is_first: bool) -> float:
    """What chance adds to the variance of a row that grew by ``delta`` of all rows' growth.

    Of each block of N counts one is taken. So the sum of all rows is exact but for a block that is not full.
    """
    return one_in * delta * (1 - delta / together) + (one_in**2 if is_first else 0)


class HistogramState(SavedValues):
    """One histogram of one set of labels: in the last interval (``delta``) and since attached (``total``)."""

    MOST: ClassVar = MAX_HISTOGRAMS

    labels: Labels
    unit: Text
    delta: Buckets
    total: Buckets
    per_s: float | None
    tick: Natural
    last_active_ns: Int
    before: Buckets = EMPTY
    """Its total when its probe was lost or detached: what is counted since is added to it."""

    @property
    def key(self) -> RowKey:
        """What it is found by."""
        return row_key(self.labels)

    def percentile(self, percent: float, of: Literal["delta", "total"] = "total") -> float | None:
        """The value in ``unit`` below which ``percent`` of the samples lie, ± 6.25 %; None without samples."""
        return percentile(self.delta if of == "delta" else self.total, percent)


class HistogramsState(Saved):
    """All histograms of one name, by labels."""

    MOST: ClassVar = MAX_NAMES

    name: Name
    omitted: Natural = 0
    _rows: Keyed[RowKey, HistogramState] = field(default_factory=Keyed)

    def __post_init__(self) -> None:
        self._p99 = {key: Series() for key in islice(self.rows, MAX_HISTOGRAM_HISTORIES)}

    def follow(self, timeline: Timeline) -> None:
        """Count intervals by this timeline."""
        self.timeline: Timeline = timeline

    @property
    def key(self) -> str:
        """What it is found by."""
        return self.name

    @property
    def rows(self) -> dict[RowKey, HistogramState]:
        """By their labels."""
        return self._rows.by_key

    def history(self, key: RowKey, count: int = SAMPLES) -> list[float | None]:
        """p99 of each interval in the histogram's unit, oldest first; None where nothing was sampled or known."""
        series = self._p99.get(key)
        return [] if series is None else series.values(self.timeline, count, idle=None)

    def apply(self, frame: frames.Histogram, tick: int) -> None:
        """Apply a frame with one histogram."""
        key = row_key(frame.labels)
        row = self.rows.get(key)
        if row is None:
            if len(self.rows) >= MAX_HISTOGRAMS:
                self.omitted += 1
                return
            row = HistogramState(frame.labels, frame.unit, EMPTY, EMPTY, None, tick, frame.wall_ns)
            self.rows[key] = row
            if len(self._p99) < MAX_HISTOGRAM_HISTORIES:
                self._p99[key] = Series()
        if frame.seen_ns == 0:
            return
        total = add([row.before, frame.total]) if row.before.count else frame.total
        row.unit, row.delta, row.total, row.tick = frame.unit, frame.delta, total, tick
        row.per_s = per_second(frame.delta.count, seen_ns(frame))
        if frame.delta.count:
            row.last_active_ns = frame.wall_ns
            if key in self._p99:
                self._p99[key].put(tick, row.percentile(99, "delta"))

    def begin_again(self) -> None:
        """Their probe counts from 0 again: what was counted before stays."""
        for row in self.rows.values():
            row.before = row.total

    def hold(self, tick: int) -> None:
        """Nothing was seen in interval ``tick``: the figures are still those that were seen last."""
        for row in self.rows.values():
            row.tick = tick

    def lose(self, tick: int) -> None:
        """Nobody watches in interval ``tick``: what was measured stays, and no rate is known."""
        for row in self.rows.values():
            row.tick, row.delta, row.per_s = tick, EMPTY, None

    def close(self, tick: int) -> None:
        """End the interval. A histogram without a frame did not change; after GONE_AFTER_INTERVALS it is gone."""
        for key, row in list(self.rows.items()):
            if row.tick < tick - GONE_AFTER_INTERVALS and not row.before.count:
                del self.rows[key]
                self._p99.pop(key, None)
            elif row.tick != tick and row.delta.count:
                row.delta, row.per_s = EMPTY, 0.0
