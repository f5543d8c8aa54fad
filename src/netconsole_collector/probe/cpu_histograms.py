"""Histograms of the hottest hooks: one for each CPU, whole, in a per-CPU array, which programs reach without a call."""

import struct
from typing import Any, Dict, List, Sequence, Tuple

from netconsole_collector.kernel.syscalls import Map
from netconsole_collector.names.labels import Labels
from netconsole_collector.probe import decode

SLOTS = 496
"""NC_SLOTS of probes/common/histograms.h."""

_VALUE = struct.Struct("={}Q".format(3 + SLOTS))
"""struct nc_cpu_histogram: sum, max, ~min, counts."""
_EMPTY = (0,) * (3 + SLOTS)
_U64_MASK = (1 << 64) - 1

Json = Dict[str, Any]


class CpuHistograms:
    """Its key has two labels: the CPU, and the index in the array."""

    evicted = 0
    """The array has a place for each."""

    def __init__(self, name: str, spec: Json, bpf_map: Map, labels: Labels) -> None:
        """Raises decode.LayoutError when manifest and program do not agree."""
        self.name = name
        self.unit = spec["unit"]
        self._map = bpf_map
        self._labels = labels
        self._columns = decode.Layout(spec["key"]).columns
        if len(self._columns) != 2 or bpf_map.info.value_size != _VALUE.size:
            raise decode.LayoutError(
                "histogram {}: a per-CPU array has two labels (CPU, index) and struct nc_cpu_histogram of {} bytes; "
                "found {} labels and {} bytes".format(name, _VALUE.size, len(self._columns), bpf_map.info.value_size)
            )
        self._known: Dict[Tuple[int, int], Tuple[bytes, Sequence[int]]] = {}

    def read(self, full: bool) -> List[Json]:
        """{"labels", "delta", "total"} of those that changed, or of all that ever counted."""
        result = []
        for key, value in self._map.items():
            index = int(struct.unpack("=I", key)[0])
            for slot, cpu in enumerate(self._map.cpus):
                raw = value[slot * self._map.slot_bytes :][: _VALUE.size]
                was_raw, was = self._known.get((cpu, index), (bytes(_VALUE.size), _EMPTY))
                if raw == was_raw and not (full and was is not _EMPTY):
                    continue
                now = _VALUE.unpack(raw)
                self._known[cpu, index] = raw, now
                labels = decode.key_labels(self._columns, [cpu, index], self._labels)
                result.append({"labels": labels, "delta": _buckets(now, was), "total": _buckets(now, _EMPTY)})
        return result


def _buckets(now: Sequence[int], was: Sequence[int]) -> Json:
    """What was added since; min and max are those of the whole life."""
    buckets = [[slot, new - old] for slot, (new, old) in enumerate(zip(now[3:], was[3:])) if new != old]
    _, high, low = now[:3]
    return {
        "count": sum(count for _, count in buckets),
        "sum": now[0] - was[0],
        "min": ~low & _U64_MASK if low else None,  # a program adds to the count first: 0 is no minimum yet
        "max": high if low else None,
        "buckets": buckets,
    }
