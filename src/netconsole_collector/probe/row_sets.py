"""Reads a map whose elements are sets of rows, each with its key: a table that the program itself keeps in order."""

import struct
from typing import Dict, Iterator, List, Sequence, Tuple

from netconsole_collector.kernel.bpf_maps import Map
from netconsole_collector.probe.decode import LayoutError


class RowSets(Map):
    """An array (per CPU or not) that reads like a hash: key and value of every row, those of the same key added up.

    A row is a C struct that begins with key and value, whose members are u64 that add up. What follows is the program's
    own. It is free when the first member of its value is 0. A key may lose its place on one CPU while it has one on
    another: what came in since the last reading is known only of each place, and kept in ``deltas``.
    """

    def __init__(self, array: Map, ways: int, key_bytes: int, value_bytes: int) -> None:
        """``ways``: rows of an element. Raises LayoutError when they do not fit into it."""
        self._array = array
        self._ways = ways
        self._row_bytes = array.info.value_size // ways
        if array.info.value_size % ways or self._row_bytes < key_bytes + value_bytes or value_bytes % 8:
            raise LayoutError(
                "map {}: {} rows of {} bytes and more are not in an element of {}".format(
                    array.info.name, ways, key_bytes + value_bytes, array.info.value_size
                )
            )
        self._words = struct.Struct("={}Q".format(value_bytes // 8))
        rows = array.info.max_entries * ways * len(array.cpus)
        self.fd = array.fd
        self.info = array.info._replace(key_size=key_bytes, value_size=value_bytes, max_entries=rows)
        self.per_cpu = False
        self.is_array = True  # no row can be taken out
        self.cpus = [0]
        self.slot_bytes = self.value_bytes = value_bytes
        self.deltas: Dict[bytes, List[int]] = {}
        """By key; of a place that another key had, or the same one anew, all that it has now."""
        self._places: Dict[Tuple[bytes, int], Tuple[bytes, Sequence[int]]] = {}
        """Key and value of each place in the last reading, by index of the element and offset in it."""

    def items(self) -> Iterator[Tuple[bytes, bytes]]:
        found: Dict[bytes, List[int]] = {}
        places: Dict[Tuple[bytes, int], Tuple[bytes, Sequence[int]]] = {}
        self.deltas = {}
        key_bytes, words = self.info.key_size, self._words
        for index, element in self._array.items():
            for slot in range(0, self._array.value_bytes, self._array.slot_bytes):
                for row in range(slot, slot + self._ways * self._row_bytes, self._row_bytes):
                    values = words.unpack_from(element, row + key_bytes)
                    if not values[0]:
                        continue
                    key = element[row : row + key_bytes]
                    before_key, before = self._places.get((index, row), (b"", ()))
                    places[index, row] = (key, values)
                    goes_on = before_key == key and values[0] >= before[0]
                    _add(found, key, values)
                    _add(self.deltas, key, [max(0, a - b) for a, b in zip(values, before)] if goes_on else values)
        self._places = places
        for key, sums in found.items():
            yield key, words.pack(*sums)


def _add(sums: Dict[bytes, List[int]], key: bytes, values: Sequence[int]) -> None:
    known = sums.get(key)
    sums[key] = [a + b for a, b in zip(known, values)] if known else list(values)
