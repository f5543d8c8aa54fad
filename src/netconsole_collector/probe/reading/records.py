"""Reads the records of a probe: each key of a map is one thing that happened, and is sent whenever it has changed.

Nothing thins records out. What one frame cannot hold stays in the map for the next one. A record is taken out of the
map when it is old and was sent. A map that is full refuses new records, and the probe counts those.
"""

from typing import Any, Dict, List

from netconsole_collector.kernel.bpf_maps import Map
from netconsole_collector.names.labels import Labeller
from netconsole_collector.probe.reading.decode import Layout, LayoutError

MAX_RECORDS = 5000
"""Records of one frame: with 400 bytes each, half of the longest line (docs/reference/frames.md)."""
_NS_PER_MS = 1000000

Json = Dict[str, Any]


class RecordReader:
    """Records of the manifest. ``keep``: the knob that says how long one stays in the map, in ms."""

    def __init__(self, name: str, spec: Json, bpf_map: Map, labels: Labeller) -> None:
        """Raises LayoutError when manifest and program do not agree."""
        self.name = name
        self.keep: str = spec["keep"]
        self._map = bpf_map
        self._labels = labels
        self._key, self._value = Layout(spec["key"]), Layout(spec["value"])
        self._key.check(bpf_map.info.key_size, "key of records " + name)
        self._value.check(bpf_map.info.value_size, "value of records " + name)
        self.columns = [column.name for column in self._key.columns + self._value.columns]
        since = [number for number, column in enumerate(self._value.columns) if column.name == spec["since"]]
        if not since:
            raise LayoutError("records {}: no value {}".format(name, spec["since"]))
        self._since = since[0]
        self._sent: Dict[bytes, bytes] = {}
        """The value of each key that is in the map, as it was sent last."""

    def read(self, now_ns: int, keep_ms: int) -> Json:
        """What a frame of these records has of its own. Raises OSError."""
        rows: List[List[Any]] = []
        waiting = 0
        sent: Dict[bytes, bytes] = {}
        for key, value in self._map.items():
            is_new = self._sent.get(key) != value
            if is_new and len(rows) >= MAX_RECORDS:
                waiting += 1
                if key in self._sent:
                    sent[key] = self._sent[key]
                continue
            values = self._value.unpack(value)
            began_ns = values[self._since]
            if not began_ns:  # the program is still filling it
                continue
            if is_new:
                rows.append(self._row(self._key.unpack(key), values))
            if now_ns - began_ns > keep_ms * _NS_PER_MS:
                self._map.delete(key)
            else:
                sent[key] = value
        self._sent = sent
        return {"columns": self.columns, "records": rows, "waiting": waiting}

    def _row(self, key: List[Any], value: List[Any]) -> List[Any]:
        columns = self._key.columns + self._value.columns
        return [self._labels.label(column.shown_as, one) for column, one in zip(columns, key + value)]
