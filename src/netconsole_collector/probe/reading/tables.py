"""Reads the tables of a probe, and holds the sum of their rows against a counter."""

from typing import AbstractSet, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from netconsole_collector.kernel.bpf_maps import Map
from netconsole_collector.names.labels import Labeller
from netconsole_collector.probe.reading.decode import Layout, RecordColumn
from netconsole_collector.probe.reading.examples import ExampleReader
from netconsole_collector.probe.reading.map_reader import MapReader, MapRow, RowSets
from netconsole_collector.probe.reading.near_rows import NearRows

MAX_ROWS = 10000
"""Rows of one frame; the busiest are kept."""

MAX_EXAMPLES = 500
"""Rows of one frame that have their latest packet with them; those that have just counted most."""

CERTAIN = 4
"""Standard deviations beyond which a difference is no chance."""

Json = Dict[str, Any]


def one_in(counted: int, scatter: int) -> int:
    """For how many counts one that is in a row stands, where it is alone in them: the square of chance, by the count.

    ``scatter``: for each that stands for w, w * (w - 1).
    """
    return -(-(counted + scatter) // counted) if counted > 0 else 1


class TableBody(NamedTuple):
    """What a frame of a table has of its own (docs/reference/frames.md)."""

    full: bool
    rows: List[Json]
    omitted: int
    """Rows that did not fit."""


class _MergedRow:
    """The rows of all keys whose labels read the same."""

    __slots__ = ("keys", "labels", "deltas", "totals", "is_changed", "gone")

    def __init__(self, row: MapRow) -> None:
        self.keys = [row.key]
        self.labels, self.is_changed = row.labels, row.is_changed
        self.deltas, self.totals = row.deltas, list(row.totals)
        self.gone: AbstractSet[int] = row.gone.keys()

    def add(self, row: MapRow, columns: Sequence[RecordColumn]) -> None:
        self.keys.append(row.key)
        self.is_changed = self.is_changed or row.is_changed
        for number, column in enumerate(columns):
            if column.kind == "max":
                if number in self.gone:
                    self.totals[number] = row.totals[number]
                    self.gone = self.gone - ({number} - row.gone.keys())
                elif number not in row.gone:
                    self.totals[number] = max(self.totals[number], row.totals[number])
            else:
                self.deltas[number] += row.deltas[number]
                self.totals[number] += row.totals[number]


class TableReader:
    """A table of the manifest. Keys whose labels read the same (two places in one function) are one row."""

    def __init__(
        self,
        name: str,
        spec: Json,
        bpf_map: Map,
        labels: Labeller,
        there: AbstractSet[str] = frozenset(),
        examples: Optional[Map] = None,
        near: Optional[Map] = None,
    ) -> None:
        """``there``: attached programs, and facts of the kernel. What needs anything else is unknown: no row has it.

        ``examples``: the map of the latest packets, where the manifest names one. ``near``: that of near_rows.py.
        """
        self.name = name
        self._unknown = {one["name"] for one in spec["value"] if not there >= set(one.get("needs", ()))}
        self.counter: Optional[str] = spec.get("counter")
        if "ways" in spec:
            bpf_map = RowSets(bpf_map, spec["ways"], Layout(spec["key"]).size, Layout(spec["value"]).size)
        if near is not None:
            bpf_map = NearRows(bpf_map, near)
        self._examples = (
            ExampleReader(examples, spec["example"], bpf_map.info.key_size, labels, "table " + name)
            if examples is not None
            else None
        )
        forget = self._examples.forget if self._examples is not None else None
        self.reader = MapReader(bpf_map, spec["key"], spec["value"], labels, "table " + name, forget)
        self.first_total = 0
        """Sum of the first value over all rows that there are and ever were."""
        self.grown = 0
        """By how much the values of all rows have grown together in the last reading: what is a gauge aside."""
        self.unaccounted = 0
        """What the counter of the table has and no row explains (docs/reference/frames.md)."""
        self._short_before = 0

    def take(self) -> None:
        """Takes the rows as they are now, for the next :meth:`read`."""
        self.reader.take()

    def read(self, full: bool) -> TableBody:
        """Rows that changed, or all of them.

        All rows are sent as well when one has got other labels, else a reader would have it under both.
        """
        full = self.reader.refresh_labels() or full
        merged: Dict[Tuple[Any, ...], _MergedRow] = {}
        for row in self.reader.read():
            identity = tuple(row.labels.values())
            known = merged.get(identity)
            if known is None:
                merged[identity] = _MergedRow(row)
            else:
                known.add(row, self.reader.columns)
        sums = [number for number, column in enumerate(self.reader.columns) if column.kind != "max"]
        self.grown = sum(row.deltas[number] for row in merged.values() for number in sums)
        self.first_total = sum(row.totals[0] for row in merged.values()) + self.reader.evicted_first
        chosen = [row for row in merged.values() if full or row.is_changed]
        omitted = max(0, len(chosen) - MAX_ROWS)
        if omitted or (self._examples is not None and len(chosen) > MAX_EXAMPLES):
            chosen.sort(key=lambda row: (row.deltas[0], row.totals[0]), reverse=True)
        bodies = [self._body(row) for row in chosen[:MAX_ROWS]]
        self._add_examples(bodies, chosen[:MAX_EXAMPLES])
        return TableBody(full, bodies, omitted)

    def _add_examples(self, bodies: List[Json], rows: List[_MergedRow]) -> None:
        """Puts the latest packet of the first rows beside their counts."""
        if self._examples is None or not rows:
            return
        read = self._examples.read()
        for body, row in zip(bodies, rows):
            latest = self._examples.latest(read, row.keys)
            if latest is not None:
                body["example"] = latest

    @property
    def evicted(self) -> int:
        """Rows that went away."""
        return self.reader.evicted

    def conserve(self, counted: int, explained: int, scatter: int = 0) -> None:
        """Holds the sum of the rows against what the counter ``counted``.

        ``scatter``: what chance may do to rows that were made of a share of the counts (:func:`one_in`).

        ``explained`` is what is known to have found no place in a row. The rest is unaccounted. A packet on its way
        between the two additions looks the same, but not in two readings: the lower one of two counts.
        """
        short = max(0, counted - self.first_total - explained - int(CERTAIN * scatter**0.5))
        self.unaccounted = max(self.unaccounted, min(short, self._short_before))
        self._short_before = short

    def _body(self, row: _MergedRow) -> Json:
        counts: Json = {}
        gauges: Json = {}
        for number, column in enumerate(self.reader.columns):
            delta, total = row.deltas[number], row.totals[number]
            if column.name in self._unknown:
                continue
            if column.kind == "max":
                gauges[column.name] = None if number in row.gone else total
            else:
                counts[column.name] = {"delta": delta, "total": total}
        body = {"labels": row.labels, "counts": counts}
        if gauges:
            body["gauges"] = gauges
        return body
