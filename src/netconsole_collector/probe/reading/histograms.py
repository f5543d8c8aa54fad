"""Reads the histograms of a probe, in the two forms in which its programs keep them."""

import struct
from typing import Any, Dict, List, Sequence, Tuple

from netconsole_collector.kernel.bpf_maps import Map
from netconsole_collector.names.labels import Labeller
from netconsole_collector.probe.reading import decode
from netconsole_collector.probe.reading.map_reader import MapReader, MapRow

SLOTS = 496
"""NC_SLOTS of probes/common/histograms.h."""

_SLOT = " slot"
"""Not a name that a manifest can give a label."""
_BUCKET = [{"name": name, "type": "u64"} for name in ("count", "sum", "max", "min_inverted")]
_BUCKET[2]["kind"] = _BUCKET[3]["kind"] = "max"
"""struct nc_bucket of histograms.h."""
_CPU_HISTOGRAM = struct.Struct("={}Q".format(3 + SLOTS))
"""struct nc_cpu_histogram: sum, max, ~min, counts."""
_EMPTY = (0,) * (3 + SLOTS)
_U64_MASK = (1 << 64) - 1

Json = Dict[str, Any]


class HistogramReader:
    """A histogram of the manifest: one for each set of labels. The map has one key for each of its slots."""

    def __init__(self, name: str, spec: Json, bpf_map: Map, labels: Labeller) -> None:
        """Raises decode.LayoutError when manifest and program do not agree."""
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
        self._reader.refresh_labels()
        grouped: Dict[Tuple[Any, ...], List[MapRow]] = {}
        for row in self._reader.read():
            identity = tuple(value for name, value in row.labels.items() if name != _SLOT)
            grouped.setdefault(identity, []).append(row)
        result = []
        for rows in grouped.values():
            if full or any(row.is_changed for row in rows):
                labels = {name: value for name, value in rows[0].labels.items() if name != _SLOT}
                result.append({"labels": labels, "delta": _of_rows(rows, True), "total": _of_rows(rows, False)})
        return result


class CpuHistogramReader:
    """Histograms of the hottest hooks: one whole histogram for each CPU, in a per-CPU array.

    Programs reach an element of an array without a call. The key has two labels: the CPU, and the index in the array.
    """

    evicted = 0
    """The array has a place for each."""

    def __init__(self, name: str, spec: Json, bpf_map: Map, labels: Labeller) -> None:
        """Raises decode.LayoutError when manifest and program do not agree."""
        self.name = name
        self.unit = spec["unit"]
        self._map = bpf_map
        self._labels = labels
        self._columns = decode.Layout(spec["key"]).columns
        found = bpf_map.info.value_size
        if len(self._columns) != 2 or found != _CPU_HISTOGRAM.size:
            raise decode.LayoutError(
                "histogram {}: a per-CPU array has two labels (CPU, index) and struct nc_cpu_histogram of {} bytes; "
                "found {} labels and {} bytes".format(name, _CPU_HISTOGRAM.size, len(self._columns), found)
            )
        self._known: Dict[Tuple[int, int], Tuple[bytes, Sequence[int]]] = {}

    def read(self, full: bool) -> List[Json]:
        """{"labels", "delta", "total"} of those that changed, or of all that ever counted."""
        result = []
        for key, value in self._map.items():
            index = int(struct.unpack("=I", key)[0])
            for slot, cpu in enumerate(self._map.cpus):
                raw = value[slot * self._map.slot_bytes :][: _CPU_HISTOGRAM.size]
                was_raw, was = self._known.get((cpu, index), (bytes(_CPU_HISTOGRAM.size), _EMPTY))
                if raw == was_raw and not (full and was is not _EMPTY):
                    continue
                now = _CPU_HISTOGRAM.unpack(raw)
                self._known[cpu, index] = raw, now
                labels = decode.key_labels(self._columns, [cpu, index], self._labels)
                result.append({"labels": labels, "delta": _of_words(now, was), "total": _of_words(now, _EMPTY)})
        return result


def _of_rows(rows: List[MapRow], is_delta: bool) -> Json:
    """The histogram of several slots."""
    by_slot: Dict[int, int] = {}
    total = low = high = 0
    for row in rows:
        count, amount = (row.deltas if is_delta else row.totals)[:2]
        slot = row.labels[_SLOT]
        by_slot[slot] = by_slot.get(slot, 0) + count
        total += amount
        if row.totals[0]:  # else what it has is of a network namespace that is gone
            high = max(high, row.totals[2])
            low = max(low, row.totals[3])
    return _histogram(total, high, low, sorted([slot, count] for slot, count in by_slot.items() if count))


def _of_words(now: Sequence[int], was: Sequence[int]) -> Json:
    """What was added to a struct nc_cpu_histogram since it was read before."""
    buckets = [[slot, new - old] for slot, (new, old) in enumerate(zip(now[3:], was[3:])) if new != old]
    return _histogram(now[0] - was[0], now[1], now[2], buckets)


def _histogram(total: int, high: int, low_inverted: int, buckets: List[List[int]]) -> Json:
    """As in a frame. Min and max are those of the whole life, also in a delta.

    A program adds to the count first: a ``low_inverted`` of 0 is no minimum yet.
    """
    return {
        "count": sum(count for _, count in buckets),
        "sum": total,
        "min": ~low_inverted & _U64_MASK if low_inverted else None,
        "max": high if low_inverted else None,
        "buckets": buckets,
    }
