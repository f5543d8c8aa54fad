"""Reads the latest packet of each row of a table (probes/common/example.h)."""

import struct
from typing import Any, Dict, Iterable, List, Optional

from netconsole_collector.kernel.bpf_maps import Map
from netconsole_collector.names.labels import Label, Labeller
from netconsole_collector.probe.reading import decode

READING = "nc_reading"
"""The map that says how often the probe was read: after each reading, programs keep another example."""
TIME = "mono_ns"
"""The member that says when the packet came."""

Json = Dict[str, Any]


def readings(number: int) -> bytes:
    """The value of nc_reading."""
    return struct.pack("=Q", number)


def is_example(spec: Json) -> bool:
    """Whether a manifest says all that is needed. Raises ValueError for an unknown type, and KeyError."""
    named = [column.name for column in decode.Layout(spec["record"]).columns]
    return isinstance(spec["map"], str) and TIME in named


def _is_known(value: Any) -> bool:
    return any(value) if isinstance(value, bytes) else bool(value)


class ExampleReader:
    """The examples of a table's rows, by the raw keys of the rows."""

    def __init__(self, bpf_map: Map, spec: Json, key_bytes: int, labels: Labeller, what: str) -> None:
        """Raises decode.LayoutError when manifest and program do not agree."""
        self._map = bpf_map
        self._labels = labels
        self._layout = decode.Layout(spec["record"])
        self._layout.check(bpf_map.info.value_size, "example of " + what)
        if bpf_map.info.key_size != key_bytes or bpf_map.per_cpu:
            raise decode.LayoutError("example of {}: expected a hash with the key of its rows".format(what))
        self._time = [column.name for column in self._layout.columns].index(TIME)

    def read(self) -> Dict[bytes, bytes]:
        """All of them as they are in the map.

        The kernel copies them in batches under the lock of their bucket, so each is of one packet. One by one (before
        5.6) it copies without a lock, and an example may be of two packets: there are none.
        """
        read = dict(self._map.items()) if self._map.batch else {}
        return read if self._map.batch else {}

    def latest(self, read: Dict[bytes, bytes], keys: Iterable[bytes]) -> Optional[Dict[str, Label]]:
        """The latest one of these rows; None when there is none. What is 0 or all zeros is not known, and left out."""
        known: List[List[Any]] = [self._layout.unpack(read[key]) for key in keys if key in read]
        if not known:
            return None
        newest = max(known, key=lambda values: values[self._time])
        told = [(column, value) for column, value in zip(self._layout.columns, newest) if _is_known(value)]
        return decode.key_labels([column for column, _ in told], [value for _, value in told], self._labels)

    def forget(self, key: bytes) -> None:
        """Removes the example of a row that goes."""
        self._map.delete(key)
