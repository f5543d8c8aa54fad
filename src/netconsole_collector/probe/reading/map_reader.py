"""Reads the rows of a map: sums the CPUs, finds what changed, and keeps a full map from staying full.

Totals stay in the kernel. Deltas are differences of two readings: emptying a per-CPU hash would race with the programs.
"""

import struct
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from netconsole_collector.kernel.bpf_maps import Map
from netconsole_collector.names.labels import Labeller
from netconsole_collector.probe.reading import decode
from netconsole_collector.probe.reading.decode import LayoutError
from netconsole_collector.probe.reading.near_rows import NearRows


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
        self.deltas: Dict[bytes, Sequence[int]] = {}
        """By key; of a place that another key had, or the same one anew, all that it has now."""
        self._before: Dict[bytes, bytes] = {}
        """The elements in the last reading."""

    def items(self) -> Iterator[Tuple[bytes, bytes]]:
        found: Dict[bytes, Sequence[int]] = {}
        elements: Dict[bytes, bytes] = {}
        key_bytes, read = self.info.key_size, self._words.unpack_from
        none = read(bytes(self._words.size))
        self.deltas = {}
        for index, element in self._array.items():
            before, elements[index] = self._before.get(index, bytes(len(element))), element
            for slot in range(0, self._array.value_bytes, self._array.slot_bytes):
                for row in range(slot, slot + self._ways * self._row_bytes, self._row_bytes):
                    at = row + key_bytes
                    values = read(element, at)
                    if not values[0]:
                        continue
                    key, values_before = element[row:at], read(before, at)
                    _add(found, key, values)
                    if before[row:at] != key or values[0] < values_before[0]:
                        _add(self.deltas, key, values)
                    elif values == values_before:
                        _add(self.deltas, key, none)
                    else:
                        _add(self.deltas, key, [max(0, a - b) for a, b in zip(values, values_before)])
        self._before = elements
        for key, sums in found.items():
            yield key, self._words.pack(*sums)


def _add(sums: Dict[bytes, Sequence[int]], key: bytes, values: Sequence[int]) -> None:
    known = sums.get(key)
    sums[key] = [a + b for a, b in zip(known, values)] if known else values


IDLE_INTERVALS = 60
"""A row that has not changed for so long may be removed when its map is more than _FULL full."""
_FULL = 0.75
SHORT_IDLE_INTERVALS = 10
"""The same where it is more than _ALMOST_FULL full: those that were idle for longest, until it is _FULL full.

Short connections have a row each, by the hundred in a second.
"""
_ALMOST_FULL = 0.9
_LEAST_ROOM = 8
"""Maps with less are of a few things that stay, such as CPUs."""
_AHEAD = 3
"""For so many intervals there must be room for as many new rows as have come in this one: idle ones go for it."""

Json = Dict[str, Any]


class _LastReading:
    """What was last read of one key."""

    __slots__ = ("labels", "life", "totals", "before", "gone", "idle", "generation", "digest")

    def __init__(self, labels: Json, life: int, columns: int) -> None:
        self.labels = labels
        self.life = life
        self.totals = [0] * columns
        self.before = [0] * columns
        """What the kernel had counted when the row began anew, of another network namespace with the same inode."""
        self.gone: Dict[int, int] = {}
        """By number of a "max" column: what it had then. As long as it has that, nobody knows whose it is."""
        self.digest = 0
        """Of the value as the kernel wrote it: 64 bits of SipHash. The value itself is far longer on many CPUs."""
        self.idle = 0
        self.generation = 0


class MapRow(NamedTuple):
    """One key of the map in this reading."""

    key: bytes
    labels: Json
    deltas: List[int]
    totals: List[int]
    is_changed: bool
    gone: Dict[int, int]
    """The "max" columns that have what a row had that has gone."""


class MapReader:
    """The rows of one map by their raw keys."""

    def __init__(
        self,
        bpf_map: Map,
        key: Sequence[Json],
        value: Sequence[Json],
        labels: Labeller,
        what: str,
        evicts: Optional[Callable[[bytes], None]] = None,
    ) -> None:
        """``evicts`` is called with the key of a row that is removed.

        Raises decode.LayoutError when manifest and program do not agree.
        """
        self._map = bpf_map
        self._labels = labels
        self._key = decode.Layout(key)
        self._key.check(bpf_map.info.key_size, "key of " + what)
        self._value = decode.Layout(value)
        self._value.check(bpf_map.info.value_size, "value of " + what)
        self.columns = self._value.columns
        numbers = self._value.numbers if bpf_map.slot_bytes == self._value.size else None
        cpus = bpf_map.value_bytes // bpf_map.slot_bytes
        self._numbers = struct.Struct("=" + numbers * cpus) if numbers is not None else None
        self._evicts = evicts
        self._rows: Dict[bytes, _LastReading] = {}
        self._taken: Optional[List[Tuple[bytes, bytes]]] = None
        self._changing = labels.changing(column.shown_as for column in self._key.columns)
        self._changes: List[int] = []
        self._generation = 0
        self._come = 0
        """Rows that are new in this reading."""
        self.evicted = 0
        """Rows that went away."""
        self.evicted_first = 0
        """Sum of the first value of the rows that went away before the last reading, for the conservation check."""
        self._leaving_first = 0
        """The same of those that went away after it, and are still among its rows."""

    def take(self) -> None:
        """Takes all rows as they are now; :meth:`read` makes of them what it needs, which takes a time."""
        self._taken = list(self._map.items())

    def read(self) -> List[MapRow]:
        """All rows, as they were taken last, or now.

        A key that has vanished counts as evicted: an LRU map evicts by itself.
        """
        self._generation += 1
        self._come = 0
        self.evicted_first += self._leaving_first
        self._leaving_first = 0
        taken, self._taken = self._taken, None
        rows = [self._row(key, value) for key, value in (self._map.items() if taken is None else taken)]
        for key in [key for key, last in self._rows.items() if last.generation != self._generation]:
            self.evicted_first += self._forget(key)
        # The rows of an array are always there: nothing could take their place, and the kernel refuses (EINVAL).
        if not self._map.is_array:
            self._evict_idle()
        return rows

    def _row(self, key: bytes, value: bytes) -> MapRow:
        last = self._rows.get(key)
        if last is None:
            last = self._rows[key] = _LastReading(self._labels_of(key), self._life_of(key), len(self.columns))
            self._come += 1
        digest = hash(value)
        if digest == last.digest and not isinstance(self._map, RowSets):
            last.idle += 1
            last.generation = self._generation
            return MapRow(key, last.labels, [0] * len(self.columns), last.totals, False, last.gone)
        last.digest = digest
        sums = self._sum(value)
        totals = [now - before for now, before in zip(sums, last.before)]
        if min(totals) < 0:  # the kernel has begun the row anew as well, as it does in an LRU map
            last.before, last.gone, totals = [0] * len(sums), {}, sums
        last.gone = {number: had for number, had in last.gone.items() if had == sums[number]}
        if isinstance(self._map, RowSets):
            deltas = list(self._map.deltas[key])
        else:
            deltas = [max(0, new - old) for new, old in zip(totals, last.totals)]
        is_changed = totals != last.totals or any(deltas)
        last.idle = 0 if is_changed else last.idle + 1
        last.totals, last.generation = totals, self._generation
        return MapRow(key, last.labels, deltas, totals, is_changed, last.gone)

    def _labels_of(self, key: bytes) -> Json:
        return decode.key_labels(self._key.columns, self._key.unpack(key), self._labels)

    def refresh_labels(self) -> bool:
        """Makes the labels again when names may have changed. True when a row has got other labels.

        A tap may have come to another VM since its row was first seen, the process of a socket may have been found, a
        network namespace may have got a name.
        """
        for lookup in self._changing:
            lookup.refresh()
        changes = [lookup.changes for lookup in self._changing]
        if self._changes == changes:
            return False
        self._changes = changes
        is_renamed = False
        for key, last in self._rows.items():
            labels = self._labels_of(key)
            if labels == last.labels:
                continue
            is_renamed = True
            life = self._life_of(key)
            if life != last.life:
                self._begin_anew(key, last)
            last.labels, last.life = labels, life
        return is_renamed

    def _life_of(self, key: bytes) -> int:
        """Another one is of another network namespace: the kernel gives the inode of one that is gone to the next."""
        values = zip(self._key.columns, self._key.unpack(key))
        return sum(self._labels.lookups.namespaces.life(value) for one, value in values if one.shown_as == "netns")

    def _begin_anew(self, key: bytes, last: _LastReading) -> None:
        """What was counted until now is of a row that has gone, though the kernel counts on in the same one."""
        self.evicted_first += last.totals[0]
        for number, column in enumerate(self.columns):
            if column.kind == "max":
                last.gone[number] = last.totals[number]
            else:
                last.before[number] += last.totals[number]
                last.totals[number] = 0
        if self._evicts is not None:
            self._evicts(key)

    def _sum(self, value: bytes) -> List[int]:
        """One number for each column: the sum over the CPUs, or the highest of a "max" column."""
        count = len(self.columns)
        if self._numbers:
            numbers = self._numbers.unpack(value)
            by_column: List[Sequence[int]] = [numbers[number::count] for number in range(count)]
        else:
            slots = range(0, self._map.value_bytes, self._map.slot_bytes)
            by_column = list(zip(*(self._value.unpack(value, slot) for slot in slots)))
        return [max(cpus) if c.kind == "max" else sum(cpus) for c, cpus in zip(self.columns, by_column)]

    def _evict_idle(self) -> None:
        room = self._map.info.max_entries
        for_new = room - _AHEAD * self._come if room >= _LEAST_ROOM else room
        if len(self._rows) > for_new:
            least, enough = 1, min(for_new, _FULL * room)
        elif len(self._rows) > _ALMOST_FULL * room:
            least, enough = SHORT_IDLE_INTERVALS, _FULL * room
        elif len(self._rows) > _FULL * room:
            least, enough = IDLE_INTERVALS, 0
        else:
            return
        stay = self._map.keys if isinstance(self._map, NearRows) else ()
        idle = [key for key, last in self._rows.items() if last.idle >= least and key not in stay]
        for key in sorted(idle, key=lambda one: -self._rows[one].idle):
            if self._rows[key].idle < IDLE_INTERVALS and len(self._rows) <= enough:
                return
            self._map.delete(key)
            if self._evicts is not None:
                self._evicts(key)
            self._leaving_first += self._forget(key)

    def _forget(self, key: bytes) -> int:
        """Its first value, which is no row's any more."""
        self.evicted += 1
        return self._rows.pop(key).totals[0]
