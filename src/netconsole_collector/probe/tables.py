"""Reads tables and histograms of a running probe; sums CPUs, finds what changed, keeps full maps from staying full.

Totals stay in the kernel: draining per-CPU hashes would race with the program. Deltas are differences of two readings.
"""

import struct
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from netconsole_collector.kernel.syscalls import Map
from netconsole_collector.names.labels import Labels
from netconsole_collector.probe import decode

MAX_ROWS = 10000
"""Rows of one frame; the busiest are kept."""
IDLE_INTERVALS = 60
"""A row that did not change for so long may be removed when its map is more than _FULL full."""
_FULL = 0.75

Json = Dict[str, Any]

_BUCKET = [{"name": name, "type": "u64"} for name in ("count", "sum", "max", "min_inverted")]
_BUCKET[2]["kind"] = _BUCKET[3]["kind"] = "max"
_U64_MASK = (1 << 64) - 1


class _Row:
    """What was read last of one key of the map."""

    __slots__ = ("labels", "totals", "idle", "generation")

    def __init__(self, labels: Json, columns: int) -> None:
        self.labels = labels
        self.totals = [0] * columns
        self.idle = 0
        self.generation = 0


class Change(NamedTuple):
    """One key of the map in this reading."""

    key: bytes
    labels: Json
    deltas: List[int]
    totals: List[int]
    is_changed: bool


class MapReader:
    """The rows of one map by its raw keys; ``evicted`` counts rows that went away."""

    def __init__(self, bpf_map: Map, key: Sequence[Json], value: Sequence[Json], labels: Labels, what: str) -> None:
        """Raises decode.LayoutError when manifest and program do not agree."""
        self._map = bpf_map
        self._labels = labels
        self._key = decode.Layout(key)
        self._key.check(bpf_map.info.key_size, "key of " + what)
        layout = decode.Layout(value)
        layout.check(bpf_map.info.value_size, "value of " + what)
        self.columns = layout.columns
        self._value = layout
        all_u64 = bpf_map.slot_bytes == layout.size == 8 * len(layout.columns)
        self._words = struct.Struct("={}Q".format(bpf_map.value_bytes // 8)) if all_u64 else None
        self._rows: Dict[bytes, _Row] = {}
        self._changing = labels.changing(column.shown_as for column in self._key.columns)
        self._changes: List[int] = []
        self._generation = 0
        self.evicted = 0
        self.evicted_first = 0
        """Sum of the first value of rows that went away, for the conservation check."""

    def read(self) -> List[Change]:
        """All rows. A key that has vanished counts as evicted: LRU maps do that by themselves."""
        self._generation += 1
        changes = [self._advance(key, value) for key, value in self._map.items()]
        for key in [key for key, row in self._rows.items() if row.generation != self._generation]:
            self._forget(key)
        # The rows of an array are always there: nothing could take their place, and the kernel refuses (EINVAL).
        if len(self._rows) > _FULL * self._map.info.max_entries and not self._map.is_array:
            self._evict()
        return changes

    def _advance(self, key: bytes, value: bytes) -> Change:
        row = self._rows.get(key)
        if row is None:
            labels = decode.key_labels(self._key.columns, self._key.unpack(key), self._labels)
            row = self._rows[key] = _Row(labels, len(self.columns))
        totals = self._sum(value)
        deltas = [max(0, new - old) for new, old in zip(totals, row.totals)]
        is_changed = totals != row.totals
        row.idle = 0 if is_changed else row.idle + 1
        row.totals, row.generation = totals, self._generation
        return Change(key, row.labels, deltas, totals, is_changed)

    def name_again(self) -> bool:
        """A tap may have come to another VM since its row was first seen, the process of a socket been found, a network
        namespace got its name. True when a row has got other labels.
        """
        for lookup in self._changing:
            lookup.refresh()
        changes = [lookup.changes for lookup in self._changing]
        if self._changes == changes:
            return False
        self._changes = changes
        is_renamed = False
        for key, row in self._rows.items():
            labels = decode.key_labels(self._key.columns, self._key.unpack(key), self._labels)
            is_renamed = is_renamed or labels != row.labels
            row.labels = labels
        return is_renamed

    def _sum(self, value: bytes) -> List[int]:
        """One number for each column: the sum over the CPUs, of a "max" column the highest."""
        count = len(self.columns)
        if self._words:
            words = self._words.unpack(value)
            by_column: List[Sequence[int]] = [words[number::count] for number in range(count)]
        else:
            slots = range(0, self._map.value_bytes, self._map.slot_bytes)
            by_column = list(zip(*(self._value.unpack(value, slot) for slot in slots)))
        return [max(cpus) if c.kind == "max" else sum(cpus) for c, cpus in zip(self.columns, by_column)]

    def _evict(self) -> None:
        for key in [key for key, row in self._rows.items() if row.idle >= IDLE_INTERVALS]:
            self._map.delete(key)
            self._forget(key)

    def _forget(self, key: bytes) -> None:
        row = self._rows.pop(key)
        self.evicted += 1
        self.evicted_first += row.totals[0]


class Reading(NamedTuple):
    """Of a frame of a table (docs/reference/frames.md)."""

    full: bool
    rows: List[Json]
    omitted: int
    """Rows that did not fit."""


class Table:
    """A table of the manifest. Keys whose labels read the same (two places in one function) are one row."""

    def __init__(self, name: str, spec: Json, bpf_map: Map, labels: Labels) -> None:
        self.name = name
        self.counter: Optional[str] = spec.get("counter")
        self.reader = MapReader(bpf_map, spec["key"], spec["value"], labels, "table " + name)
        self.first_total = 0
        """Sum of the first value over all rows that there are and ever were."""

    def read(self, full: bool) -> Reading:
        """Rows that changed, or all: also when one has got other labels, else it would stand under both."""
        full = self.reader.name_again() or full
        merged: Dict[Tuple[Any, ...], Tuple[Json, List[int], List[int], List[bool]]] = {}
        columns = self.reader.columns
        for change in self.reader.read():
            identity = tuple(change.labels.values())
            known = merged.get(identity)
            if known is None:
                merged[identity] = (change.labels, change.deltas, list(change.totals), [change.is_changed])
                continue
            known[3][0] = known[3][0] or change.is_changed
            for number, column in enumerate(columns):
                if column.kind == "max":
                    known[2][number] = max(known[2][number], change.totals[number])
                else:
                    known[1][number] += change.deltas[number]
                    known[2][number] += change.totals[number]
        self.first_total = sum(row[2][0] for row in merged.values()) + self.reader.evicted_first
        chosen = [row for row in merged.values() if full or row[3][0]]
        omitted = max(0, len(chosen) - MAX_ROWS)
        if omitted:
            chosen.sort(key=lambda row: (row[1][0], row[2][0]), reverse=True)
        rows = [self._row(labels, deltas, totals) for labels, deltas, totals, _ in chosen[:MAX_ROWS]]
        return Reading(full, rows, omitted)

    def _row(self, labels: Json, deltas: List[int], totals: List[int]) -> Json:
        counts: Json = {}
        gauges: Json = {}
        for column, delta, total in zip(self.reader.columns, deltas, totals):
            if column.kind == "max":
                gauges[column.name] = total
            else:
                counts[column.name] = {"delta": delta, "total": total}
        row = {"labels": labels, "counts": counts}
        if gauges:
            row["gauges"] = gauges
        return row


class Histograms:
    """A histogram of the manifest: one for each set of labels; the map has one key for each of its slots."""

    def __init__(self, name: str, spec: Json, bpf_map: Map, labels: Labels) -> None:
        self.name = name
        self.unit = spec["unit"]
        key = list(spec["key"]) + [{"name": _SLOT, "type": "u32"}]
        self._reader = MapReader(bpf_map, key, _BUCKET, labels, "histogram " + name)

    @property
    def evicted(self) -> int:
        """Slots that went away."""
        return self._reader.evicted

    def read(self, full: bool) -> List[Json]:
        """{"labels", "delta", "total"} of those that changed, or of all."""
        self._reader.name_again()
        grouped: Dict[Tuple[Any, ...], List[Change]] = {}
        for change in self._reader.read():
            identity = tuple(value for name, value in change.labels.items() if name != _SLOT)
            grouped.setdefault(identity, []).append(change)
        result = []
        for changes in grouped.values():
            if full or any(change.is_changed for change in changes):
                labels = {name: value for name, value in changes[0].labels.items() if name != _SLOT}
                total, delta = _buckets(changes, False), _buckets(changes, True)
                result.append({"labels": labels, "delta": delta, "total": total})
        return result


_SLOT = " slot"
"""Not a name that a manifest can give a label."""


def _buckets(changes: List[Change], is_delta: bool) -> Json:
    """Of several slots; min and max are those of the whole life in either case."""
    by_slot: Dict[int, int] = {}
    total = low = high = 0
    for change in changes:
        count, amount = (change.deltas if is_delta else change.totals)[:2]
        slot = change.labels[_SLOT]
        by_slot[slot] = by_slot.get(slot, 0) + count
        total += amount
        high = max(high, change.totals[2])
        low = max(low, change.totals[3])
    buckets = sorted([slot, count] for slot, count in by_slot.items() if count)
    return {
        "count": sum(by_slot.values()),
        "sum": total,
        "min": ~low & _U64_MASK if low else None,  # a program adds to the count first: 0 is no minimum yet
        "max": high if low else None,
        "buckets": buckets,
    }
