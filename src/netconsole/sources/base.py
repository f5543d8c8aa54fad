"""Defines what a source is, and turns its readings into frames: deltas, totals, and full tables now and then."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Protocol, TypeAlias, TypedDict, runtime_checkable

from netconsole.host.here import HERE
from netconsole.host.target import Target
from netconsole.telemetry.frames import (
    AnyFrame,
    Cost,
    Count,
    Counters,
    Event,
    Label,
    Mode,
    ProbeStatus,
    Row,
    Scalar,
    SourceName,
    Status,
    Table,
    Usage,
    added,
)

FULL_EVERY = 10
"""A table is sent whole once in this many intervals (docs/reference/frames.md)."""


SourceRow: TypeAlias = tuple[dict[str, Label], Sequence[int | None], Mapping[str, int | float | None]]
"""One row as the kernel has it now: labels, counters since boot, gauges. None: it does not count that, or not now."""


class _Stamp(TypedDict):
    source: SourceName
    probe: str | None
    seq: int
    mono_ns: int
    wall_ns: int


class SourceError(Exception):
    """A source cannot read. ``str()`` is one sentence; ``help`` says what to do.

    ``state`` is "unsupported" when this host lacks what it reads.
    """

    def __init__(self, why: str, help: str | None = None, state: ProbeStatus = "failed") -> None:
        super().__init__(why)
        self.help = help
        self.state: ProbeStatus = state


class FrameMaker:
    """Makes frames of the console, with their sequence numbers and one time per interval."""

    def __init__(self, numbers: Iterator[int] | None = None, target: Target = HERE) -> None:
        self._target = target
        self._numbers = itertools.count(1) if numbers is None else numbers
        self.interval_ns = 1_000_000_000
        self.is_whole = False
        """This reading has to have everything: also what is read less often."""
        self.mono_ns, self.wall_ns, self._there_ns = target.now()

    def tick(self) -> None:
        """The current interval ends now."""
        now = self._target.now()
        self.interval_ns = max(1, now.there_ns - self._there_ns)
        self.mono_ns, self.wall_ns, self._there_ns = now

    def status(
        self, probe: str, state: ProbeStatus, mode: Mode, why: str | None = None, help: str | None = None
    ) -> Status:
        """A probe changed state."""
        return Status(**self._stamp(probe), state=state, mode=mode, why=why, help=help)

    def counters(self, probe: str, values: Mapping[str, Count]) -> Counters:
        """Counters of this interval."""
        return Counters(**self._stamp(probe), interval_ns=self.interval_ns, values=dict(values))

    def table(self, probe: str, name: str, rows: list[Row], full: bool, omitted: int = 0) -> Table:
        """Rows of this interval."""
        return Table(
            **self._stamp(probe), name=name, interval_ns=self.interval_ns, full=full, rows=rows, omitted=omitted
        )

    def ledger(self, probe: str, entries: Mapping[str, Count]) -> Cost:
        """What a probe's counts lack."""
        return Cost(**self._stamp(probe), interval_ns=self.interval_ns, ledger=dict(entries))

    def event(self, probe: str, name: str, fields: Mapping[str, Scalar]) -> Event:
        """One event of this interval."""
        return Event(**self._stamp(probe), name=name, fields=dict(fields))

    def cost(self, usage: Usage) -> Cost:
        """The last frame of the interval."""
        return Cost(**self._stamp(None), interval_ns=self.interval_ns, usage=usage)

    def _stamp(self, probe: str | None) -> _Stamp:
        return {
            "source": "console",
            "probe": probe,
            "seq": next(self._numbers),
            "mono_ns": self.mono_ns,
            "wall_ns": self.wall_ns,
        }


class Source(Protocol):
    """Reads something of this host at every interval. Used from one thread."""

    name: ClassVar[str]
    """The name of its probe: the directory of its manifest."""

    def open(self) -> None:
        """Prepare for reading. Raises SourceError."""

    def read(self, make: FrameMaker) -> list[AnyFrame]:
        """The frames of this interval. Raises SourceError; the next interval tries again."""

    def close(self) -> None:
        """Release everything."""


@runtime_checkable
class HasModes(Protocol):
    """A source that shows more in mode details. Another thread may change the mode between two readings."""

    mode: Mode


class Accumulator:
    """Turns counters of the kernel, which count since boot, into deltas and totals since the first reading.

    A counter that went back belongs to something that was created again: its value is the delta. If it can never be
    created again, it has wrapped around at ``wraps_at`` instead. One that is not known (None) stays as it was.

    ``set_back``: where all counters of a key are set back at once, how often that happened. What they had counted since
    the reading before is not known then.
    """

    def __init__(self, names: Sequence[str], wraps_at: int = 0, is_set_back: bool = False) -> None:
        """``is_set_back``: all counters of a key are set back together, as by a command."""
        self.names = tuple(names)
        self.set_back = 0
        self._wraps_at = wraps_at
        self._is_set_back = is_set_back
        self._last: dict[object, Sequence[int | None]] = {}
        self._totals: dict[object, list[int]] = {}

    def take(self, key: object, values: Sequence[int | None]) -> Sequence[int] | None:
        """Deltas since the last reading of this key; None at the first reading."""
        last = self._last.get(key)
        if last is None:
            self._last[key] = values
            self._totals[key] = [0] * len(values)
            return None
        if last == values:
            return (0,) * len(values)
        pairs = list(zip(values, last, strict=True))
        self._last[key] = tuple(old if new is None else new for new, old in pairs)
        if self._is_set_back and any(new is not None and old is not None and new < old for new, old in pairs):
            self.set_back += 1
            pairs = [(new, 0) for new, _ in pairs]
        deltas = [self._delta(new, old) for new, old in pairs]
        totals = self._totals[key]
        for i, delta in enumerate(deltas):
            totals[i] = added(totals[i], delta)
        return deltas

    def _delta(self, new: int | None, old: int | None) -> int:
        if new is None or old is None:
            return 0
        # A driver's counter may fall below 0, which is near 2^64.
        return added(new - old if new >= old else new + max(0, self._wraps_at - old), 0)

    def is_lost(self, key: object, values: Sequence[int | None]) -> bool:
        """Whether a counter is not known that was known before."""
        last = self._last.get(key, ())
        return any(new is None and old is not None for new, old in zip(values, last, strict=False))

    def counts(self, key: object, deltas: Sequence[int]) -> dict[str, Count]:
        """The counts of a row."""
        totals = self._totals[key]
        return {name: Count(delta=deltas[i], total=totals[i]) for i, name in enumerate(self.names)}

    def keep(self, keys: Iterable[object]) -> None:
        """Forget all other keys."""
        gone = self._last.keys() - set(keys)
        for key in gone:
            del self._last[key], self._totals[key]


class RowMaker:
    """Makes the rows of one table: those that changed, and all of them once in FULL_EVERY intervals.

    A row lacks the counts that are not known. ``wraps_at``, ``is_set_back``: see :class:`Accumulator`.
    """

    def __init__(self, names: Sequence[str], max_rows: int, wraps_at: int = 0, is_set_back: bool = False) -> None:
        self._accumulator = Accumulator(names, wraps_at, is_set_back)
        self._max_rows = max_rows
        self._gauges: dict[object, Mapping[str, int | float | None]] = {}
        self._interval = 0

    @property
    def set_back(self) -> int:
        """See :class:`Accumulator`."""
        return self._accumulator.set_back

    def rows(self, readings: Iterable[SourceRow]) -> tuple[list[Row], bool, int]:
        """The rows, whether these are all of them, and how many did not fit."""
        full = self._interval % FULL_EVERY == 0
        self._interval += 1
        rows: list[Row] = []
        seen: set[object] = set()
        omitted = 0
        for labels, values, gauges in readings:
            key: object = tuple(labels.values())
            if len(seen) >= self._max_rows or key in seen:  # the second of two that nothing tells apart
                omitted += 1
                continue
            seen.add(key)
            deltas = self._accumulator.take(key, values)
            is_new = deltas is None
            deltas = deltas or (0,) * len(values)
            is_lost = None in values and self._accumulator.is_lost(key, values)
            if full or is_new or any(deltas) or is_lost or self._gauges.get(key) != gauges:
                counts = self._accumulator.counts(key, deltas)
                for name, value in zip(self._accumulator.names, values, strict=True):
                    if value is None:
                        del counts[name]
                rows.append(Row(labels=labels, counts=counts, gauges=dict(gauges)))
            self._gauges[key] = gauges
        self._accumulator.keep(seen)
        for key in self._gauges.keys() - seen:
            del self._gauges[key]
        return rows, full, omitted
