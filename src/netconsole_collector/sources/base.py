"""Defines what a source is, and turns its readings into bodies of frames: deltas, totals, and full tables at times."""

from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple, Union

MAX_SHARE = 0.01
"""Of one core. What takes longer than this share of an interval is read in fewer of them (:class:`Pace`)."""
MAX_EVERY = 60
FULL_EVERY = 10
"""A table is sent whole once in this many intervals (docs/reference/frames.md)."""
MOST = (1 << 63) - 1
"""The largest figure that a frame has room for."""

Json = Dict[str, Any]
RowLabels = Dict[str, Union[str, int, None]]
SourceRow = Tuple[RowLabels, Sequence[Optional[int]], Mapping[str, Union[int, float, None]]]
"""One row as the kernel has it now: labels, counters since boot, gauges. None: it does not count that, or not now."""


def printable(text: str) -> str:
    """A name from outside, without what would command a terminal."""
    return "".join(one if one.isprintable() else "\\x{:02x}".format(ord(one)) for one in text)


class SourceError(Exception):
    """A source cannot read. ``str()`` is one sentence; ``help`` says what to do.

    ``state`` is "unsupported" when this host lacks what it reads.
    """

    def __init__(self, why: str, help: Optional[str] = None, state: str = "failed") -> None:
        super().__init__(why)
        self.help = help
        self.state = state


class SourceReading:
    """One reading of all sources, at ``wall_ns`` and ``mono_ns``. ``interval_ns``: since the one before.

    ``is_whole``: it has to have everything, also what is read less often.
    """

    def __init__(self, interval_ns: int, mono_ns: int = 0, wall_ns: int = 0, is_whole: bool = False) -> None:
        self.interval_ns = interval_ns
        self.mono_ns = mono_ns
        self.wall_ns = wall_ns
        self.is_whole = is_whole

    def table(self, probe: str, name: str, found: Tuple[List[Json], bool, int]) -> Json:
        """Rows of this interval, as :class:`RowMaker` gives them."""
        rows, full, omitted = found
        body: Json = {"kind": "table", "probe": probe, "name": name, "interval_ns": self.interval_ns}
        body.update(full=full, omitted=omitted, rows=rows)
        return body

    def ledger(self, probe: str, entries: Mapping[str, Tuple[int, int]]) -> Json:
        """What a probe's counts lack: of this interval, and in all."""
        lacks = {name: {"delta": delta, "total": total} for name, (delta, total) in entries.items()}
        return {"kind": "cost", "probe": probe, "interval_ns": self.interval_ns, "ledger": lacks}

    def counters(self, probe: str, values: Mapping[str, Tuple[int, int]]) -> Json:
        """Counters: of this interval, and in all."""
        counts = {name: {"delta": delta, "total": total} for name, (delta, total) in values.items()}
        return {"kind": "counters", "probe": probe, "interval_ns": self.interval_ns, "values": counts}

    def event(self, probe: str, name: str, fields: Json) -> Json:
        """One event of this interval."""
        return {"kind": "event", "probe": probe, "name": name, "fields": fields}


class KernelSource:
    """Reads something of this host in every interval. Used from one thread."""

    mode = "summary"
    """May change between two readings."""

    def open(self) -> None:
        """Prepare for reading. Raises SourceError."""

    def finds_any(self) -> bool:
        """Whether there is anything to read now. It is open."""
        return True

    def read(self, reading: SourceReading) -> List[Json]:
        """The bodies of the frames of this interval. Raises SourceError; the next interval tries again."""
        raise NotImplementedError

    def close(self) -> None:
        """Release everything."""


class Pace:
    """How often what is dear is read: once in ``every`` intervals, 1 or more."""

    def __init__(self) -> None:
        self.every = 1
        self._wait = 0

    def is_due(self, is_whole: bool = False) -> bool:
        """Ask once in each interval. ``is_whole``: it is read in any case."""
        self._wait -= 1
        return self._wait <= 0 or is_whole

    def took(self, seconds: float, interval_ns: int) -> None:
        """It was read, and took so long."""
        interval_s = max(interval_ns / 1e9, 0.001)
        self._wait = self.every = min(MAX_EVERY, 1 + int(seconds / (MAX_SHARE * interval_s)))


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
        self._last: Dict[object, Sequence[Optional[int]]] = {}
        self._totals: Dict[object, List[int]] = {}

    def take(self, key: object, values: Sequence[Optional[int]]) -> Optional[Sequence[int]]:
        """Deltas since the last reading of this key; None at the first reading."""
        last = self._last.get(key)
        if last is None:
            self._last[key] = values
            self._totals[key] = [0] * len(values)
            return None
        if last == values:
            return (0,) * len(values)
        pairs = list(zip(values, last))
        self._last[key] = tuple(old if new is None else new for new, old in pairs)
        if self._is_set_back and any(new is not None and old is not None and new < old for new, old in pairs):
            self.set_back += 1
            pairs = [(new, 0) for new, _ in pairs]
        deltas = [self._delta(new, old) for new, old in pairs]
        totals = self._totals[key]
        for i, delta in enumerate(deltas):
            totals[i] = min(totals[i] + delta, MOST)
        return deltas

    def _delta(self, new: Optional[int], old: Optional[int]) -> int:
        if new is None or old is None:
            return 0
        # A driver's counter may fall below 0, which is near 2^64.
        return min(new - old if new >= old else new + max(0, self._wraps_at - old), MOST)

    def is_lost(self, key: object, values: Sequence[Optional[int]]) -> bool:
        """Whether a counter is not known that was known before."""
        return any(new is None and old is not None for new, old in zip(values, self._last.get(key, ())))

    def total(self, key: object) -> Sequence[int]:
        """What the counters of this key have counted so far."""
        return self._totals[key]

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
        self._gauges: Dict[object, Mapping[str, Union[int, float, None]]] = {}
        self._interval = 0

    @property
    def set_back(self) -> int:
        """See :class:`Accumulator`."""
        return self._accumulator.set_back

    def begin(self, labels: RowLabels, values: Sequence[Optional[int]]) -> None:
        """What the counters of a row had when it was seen first, for one that is told of later."""
        key: object = tuple(labels.values())
        self._accumulator.take(key, values)
        self._gauges[key] = {}

    def rows(self, readings: Iterable[SourceRow]) -> Tuple[List[Json], bool, int]:
        """The rows as a frame has them, whether these are all of them, and how many did not fit."""
        full = self._interval % FULL_EVERY == 0
        self._interval += 1
        rows: List[Json] = []
        seen: Set[object] = set()
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
                counted = zip(self._accumulator.names, values, deltas, self._accumulator.total(key))
                counts = {
                    name: {"delta": delta, "total": total} for name, value, delta, total in counted if value is not None
                }
                rows.append({"labels": labels, "counts": counts, "gauges": dict(gauges)})
            self._gauges[key] = gauges
        self._accumulator.keep(seen)
        for key in self._gauges.keys() - seen:
            del self._gauges[key]
        return rows, full, omitted
