"""Rows of a hash of which each CPU keeps some in an array of its own, where it finds them without hashing.

A key that has a place there keeps it, and what it has counted elsewhere before: both only grow. So the sum of the two
is right at any time, and no count moves from one to the other while somebody reads.
"""

import struct
from typing import AbstractSet, Dict, Iterator, Tuple

from netconsole_collector.kernel.bpf_maps import Map
from netconsole_collector.probe.reading.decode import LayoutError


class NearRows(Map):
    """A per-CPU hash that has the rows of such an array too.

    An element of the array is key and value of one row, as in the hash. It is free when the first member of its value
    is 0. All members are u64 that add up.
    """

    def __init__(self, rows: Map, near: Map) -> None:
        """Raises LayoutError when the array has other rows than the hash."""
        key_bytes, value_bytes = rows.info.key_size, rows.info.value_size
        is_alike = near.info.value_size == key_bytes + value_bytes and not value_bytes % 8
        if not (is_alike and rows.per_cpu and near.per_cpu and near.is_array):
            raise LayoutError("map {}: its elements are not the rows of {}".format(near.info.name, rows.info.name))
        self._rows = rows
        self._near = near
        self._words = struct.Struct("={}Q".format(rows.value_bytes // 8))
        self._count = struct.Struct("=Q")
        self._free = bytes(near.value_bytes)
        self.fd, self.info, self.per_cpu, self.is_array = rows.fd, rows.info, True, False
        self.cpus, self.slot_bytes, self.value_bytes = rows.cpus, rows.slot_bytes, rows.value_bytes
        self.keys: AbstractSet[bytes] = frozenset()
        """Those with a place in the array, in the last reading. They cannot be taken out."""

    def items(self) -> Iterator[Tuple[bytes, bytes]]:
        near = self._of_array()
        self.keys = frozenset(near)
        for key, value in self._rows.items():
            more = near.pop(key, None)
            yield key, value if more is None else self._sum(value, more)
        for key, more in near.items():
            yield key, bytes(more)

    def delete(self, key: bytes) -> bool:
        return self._rows.delete(key)

    def _of_array(self) -> Dict[bytes, bytearray]:
        """The values of all CPUs, by key."""
        found: Dict[bytes, bytearray] = {}
        key_bytes, value_bytes = self.info.key_size, self.info.value_size
        for _, element in self._near.items():
            if element == self._free:
                continue
            for cpu in range(len(self.cpus)):
                key_at = cpu * self._near.slot_bytes
                value_at = key_at + key_bytes
                if not self._count.unpack_from(element, value_at)[0]:
                    continue
                values = found.setdefault(element[key_at:value_at], bytearray(self.value_bytes))
                to = cpu * self.slot_bytes
                values[to : to + value_bytes] = element[value_at : value_at + value_bytes]
        return found

    def _sum(self, value: bytes, more: bytearray) -> bytes:
        both = zip(self._words.unpack(value), self._words.unpack(more))
        return self._words.pack(*((a + b) & 0xFFFFFFFFFFFFFFFF for a, b in both))
