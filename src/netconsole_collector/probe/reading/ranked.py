"""A table of very many rows: all are counted, the busiest are sent. Sums of all of them by some of their labels.

A row of the map is cheap to read here: while nothing has come to it, its bytes are compared, and no more.
"""

import struct
import time
from heapq import nlargest
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from netconsole_collector.kernel.bpf_maps import Map
from netconsole_collector.names.labels import Labeller, prefix_of
from netconsole_collector.probe.reading import decode
from netconsole_collector.probe.reading.map_reader import RowSets
from netconsole_collector.probe.reading.tables import TableBody

SHARE = 0.05
"""Of one core. A table whose reading takes longer is read less often."""
IDLE_NS = 60 * 10**9
"""A row to which nothing has come for so long leaves when the map is more than _FULL full."""
_FULL = 0.75
SHORT_IDLE_NS = 10 * 10**9
"""The same where it is more than _ALMOST_FULL full: those that were idle for longest, until it is _FULL full."""
_ALMOST_FULL = 0.9
_TIMES = 16
"""The value of a row ends with the times when it counted first and last: two u64, CLOCK_MONOTONIC. What is before them,
and behind the gauges, is of the program alone."""

LEAST_NS = 10**9
"""The interval from which on that is so: what takes less than SHARE of it is read in each one."""

Json = Dict[str, Any]
SumKey = Tuple[Any, ...]


_COUNTS = struct.Struct("=2Q")


class _Sum:
    """The counts of all rows that share some labels, as they are and as they were sent last; and how many rows."""

    __slots__ = ("first", "second", "first_sent", "second_sent", "rows")

    def __init__(self) -> None:
        self.first = self.second = self.first_sent = self.second_sent = self.rows = 0

    @property
    def weight(self) -> Tuple[int, int]:
        """By what it ranks: what it counted lately, then all."""
        return self.first - self.first_sent, self.first


class SumReader:
    """Sums of all rows of a table by some of their labels. It sends as many as that table, or as it says itself."""

    def __init__(self, name: str, spec: Json, of: Json, ranked: "RankedReader", labels: Labeller) -> None:
        """``of``: the table that it is of, which ``ranked`` reads. Raises KeyError for a label that that has not."""
        self.name = name
        self._ranked = ranked
        self._labels = labels
        self._columns = decode.Layout(spec["key"]).columns
        self._changing = labels.changing(column.shown_as for column in self._columns)
        self._changes: List[int] = []
        places = {column.name: number for number, column in enumerate(decode.Layout(of["key"]).columns)}
        self._parts: List[Tuple[List[int], bool]] = []
        """For each label the places of what it is made of, the least of which counts; whether it is a prefix."""
        for column in (one for one in spec["key"] if "name" in one):
            parts = column.get("least_of", [column["name"]])
            self._parts.append(([places[part] for part in parts], column.get("as") == "prefix"))
        own = decode.Layout(spec["value"]).columns
        self._counts = [column.name for column in own if column.kind != "max"]
        self._gauges = [column.name for column in own if column.kind == "max"]
        self._most: int = spec["most"] if "most" in spec else of["most"]
        self._sums: Dict[SumKey, _Sum] = {}
        self._omitted = 0
        self.evicted = 0
        ranked.sums.append(self)

    def group(self, values: Sequence[Any]) -> _Sum:
        """The sums to which a row of these labels belongs. It is one row more."""
        key = tuple(
            prefix_of(values[parts[0]]) if is_prefix else min([values[part] for part in parts])
            for parts, is_prefix in self._parts
        )
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = _Sum()
        found.rows += 1
        return found

    def read(self, full: bool) -> TableBody:
        """Those that changed, or all; of very many the busiest. None before its table is read again."""
        if self._ranked.span is None:
            return TableBody(False, [], self._omitted)
        lookups = [lookup.changes for lookup in self._changing]
        full, self._changes = full or self._ranked.body.full or lookups != self._changes, lookups
        sums = self._sums
        if len(sums) > self._most:
            gone = [key for key, one in sums.items() if not one.rows]
            self.evicted += len(gone)
            for key in gone:
                del sums[key]
        self._omitted = max(0, len(sums) - self._most)
        chosen: Iterable[SumKey] = sums
        if self._omitted:
            full = True
            chosen = nlargest(self._most, sums, key=lambda key: sums[key].weight)
        rows = [self._body(key, sums[key]) for key in chosen if full or sums[key].first != sums[key].first_sent]
        for one in sums.values():
            one.first_sent, one.second_sent = one.first, one.second
        return TableBody(full, rows, self._omitted)

    def _body(self, key: SumKey, one: _Sum) -> Json:
        pairs = zip(self._counts, ((one.first, one.first_sent), (one.second, one.second_sent)))
        body = dict(self._ranked.span or {}, labels=decode.key_labels(self._columns, key, self._labels))
        body["counts"] = {name: {"delta": now - sent, "total": now} for name, (now, sent) in pairs}
        body["gauges"] = dict.fromkeys(self._gauges, one.rows)
        return body


class RankedReader:
    """The rows of a hash, and of an array of sets for those that found no place in it.

    Their values are u64: two counts, then gauges. The first count ranks them.
    """

    def __init__(self, name: str, spec: Json, places: Map, beyond: Optional[Map], labels: Labeller) -> None:
        """Raises decode.LayoutError when manifest and program do not agree."""
        self.name = name
        self._labels = labels
        self._key = decode.Layout(spec["key"])
        self._key.check(places.info.key_size, "key of table " + name)
        value = decode.Layout(spec["value"])
        value.check(places.info.value_size, "value of table " + name)
        kinds = [column.kind == "max" for column in value.columns]
        own = value.size - 8 * len(kinds) - _TIMES
        if kinds[:2] != [False, False] or not all(kinds[2:]) or own < 0 or own % 8:
            raise decode.LayoutError("table {}: its values are two counts, gauges, and pad[16] or more".format(name))
        self._columns = value.columns
        self._words = struct.Struct("={}Q".format(value.size // 8))
        self._few = struct.Struct("={}Q".format(len(kinds)))
        self._places = places
        self._beyond = RowSets(beyond, spec["ways"], self._key.size, self._few.size) if beyond else None
        self._most: int = spec["most"]
        self.sums: List[SumReader] = []
        """Tables of its sums."""
        self.span: Optional[Json] = None
        """What the rows of the last reading say of their interval; None: it was not due, as reading takes long."""
        self.body = TableBody(False, [], 0)
        self._rows: Dict[bytes, bytes] = {}
        """The value of each row of the hash when it was read last."""
        self._sums_of: Dict[bytes, Tuple[_Sum, ...]] = {}
        """The sums to which each of them belongs."""
        self._others: Dict[bytes, Tuple[_Sum, ...]] = {}
        """Those of the rows beyond."""
        self._same: Dict[bytes, bytes] = {}
        """Names of devices, of which there are few: each is kept once."""
        self._named: Dict[bytes, Json] = {}
        """Labels of the rows that were sent last."""
        self._changing = labels.changing(column.shown_as for column in self._key.columns)
        self._changes: List[int] = []
        self._heaviest: List[bytes] = []
        """Those with most in all."""
        self._owes_all = self._is_slow = False
        self._read_ns = self._due_ns = 0
        self.evicted = 0

    def look(self, full: bool, now_ns: int, is_whole: bool) -> None:
        """Reads the map, if that is due; with ``is_whole`` in any case. Then this and its sums can be read."""
        self._owes_all = self._owes_all or full
        if now_ns < self._due_ns and not is_whole:
            self.span, self.body = None, TableBody(False, [], self.body.omitted)
            return
        began = time.perf_counter()
        self.span = {"interval_ns": now_ns - self._read_ns} if self._is_slow else {}
        self._read_rows(now_ns, self.span)
        took_ns = int(1e9 * (time.perf_counter() - began))
        self._is_slow = took_ns > SHARE * LEAST_NS
        self._read_ns, self._owes_all = now_ns, False
        self._due_ns = now_ns + int(took_ns / SHARE) if self._is_slow else 0

    def read(self, _full: bool) -> TableBody:
        """The rows of the last look."""
        return self.body

    def _read_rows(self, now_ns: int, span: Json) -> None:
        lookups = [lookup.changes for lookup in self._changing]
        if lookups != self._changes:
            self._changes, self._named, self._owes_all = lookups, {}, True
        full = self._owes_all
        moved, heavy = self._moved()
        others = self._moved_beyond(moved)
        there = len(self._rows) + sum(key not in self._rows for key in others)
        self._rank(heavy, others)
        chosen: List[bytes] = list(moved)
        if there > self._most:
            full = True
            first = nlargest(self._most // 2, moved, key=lambda key: moved[key][0])
            second = nlargest(self._most // 4, moved, key=lambda key: moved[key][1])
            chosen = list(dict.fromkeys([*first, *second, *self._heaviest]))
        elif full:
            chosen = list(dict.fromkeys([*self._rows, *others]))
        rows = [self._body(key, moved.get(key, (0, 0)), others.get(key), span) for key in chosen]
        self._named = {key: row["labels"] for key, row in zip(chosen, rows)}
        self.body = TableBody(full, rows, max(0, there - len(rows)) if full else 0)
        self._evict(now_ns)

    def _moved(self) -> Tuple[Dict[bytes, Tuple[int, int]], List[bytes]]:
        """By how much the counts of the rows in the hash have grown, of those that changed.

        Also those of them that may have more than one of the heaviest.
        """
        moved: Dict[bytes, Tuple[int, int]] = {}
        heavy: List[bytes] = []
        rows, sums_of, counts = self._rows, self._sums_of, _COUNTS.unpack_from
        weights = [counts(rows[key])[0] for key in self._heaviest if key in rows]
        least = min(weights) if len(weights) >= self._most // 4 else -1
        for key, raw in self._places.items():
            before = rows.get(key)
            if before == raw:
                continue
            rows[key] = raw
            first, second = counts(raw)
            if first > least:
                heavy.append(key)
            if before is None:
                sums_of[key] = self._groups(key)
            else:
                first_before, second_before = counts(before)
                first -= first_before
                second -= second_before
            moved[key] = (first, second)
            for one in sums_of[key]:
                one.first += first
                one.second += second
        return moved, heavy

    def _moved_beyond(self, moved: Dict[bytes, Tuple[int, int]]) -> Dict[bytes, Tuple[int, ...]]:
        """The rows beyond; what has come to them is added to ``moved``."""
        if self._beyond is None:
            return {}
        found = {key: self._few.unpack(raw) for key, raw in self._beyond.items()}
        for key in [key for key in self._others if key not in found]:
            for one in self._others.pop(key):
                one.rows -= 1
        for key in found:
            if key not in self._others:
                self._others[key] = self._groups(key)
            first, second = self._beyond.deltas[key][:2]
            if not first:
                continue
            known = moved.get(key, (0, 0))
            moved[key] = (known[0] + first, known[1] + second)
            for one in self._others[key]:
                one.first += first
                one.second += second
        return found

    def _groups(self, key: bytes) -> Tuple[_Sum, ...]:
        if not self.sums:
            return ()
        values = self._key.unpack(key)
        for number, column in enumerate(self._key.columns):
            if column.shown_as in ("tap", "text"):
                values[number] = self._same.setdefault(values[number], values[number])
        return tuple([one.group(values) for one in self.sums])

    def _rank(self, heavy: List[bytes], others: Dict[bytes, Tuple[int, ...]]) -> None:
        def total(key: bytes) -> int:
            known = self._rows.get(key)
            return (_COUNTS.unpack_from(known)[0] if known else 0) + others.get(key, (0,))[0]

        there = [key for key in {*self._heaviest, *heavy, *others} if key in self._rows or key in others]
        self._heaviest = nlargest(self._most // 4, there, key=total)

    def _body(self, key: bytes, deltas: Sequence[int], beyond: Optional[Tuple[int, ...]], span: Json) -> Json:
        known = self._rows.get(key)
        values = self._words.unpack(known) if known else (0,) * (self._words.size // 8)
        body = dict(span, labels=self._named.get(key) or self._labels_of(key), counts={})
        gauges = {}
        for number, column in enumerate(self._columns):
            total = values[number] + (beyond[number] if beyond else 0)
            if column.kind == "max":
                gauges[column.name] = total
            else:
                body["counts"][column.name] = {"delta": deltas[number], "total": total}
        if gauges:
            body["gauges"] = gauges
        if values[-2] and not beyond:
            body["first_ns"], body["last_ns"] = values[-2:]
        return body

    def _labels_of(self, key: bytes) -> Json:
        return decode.key_labels(self._key.columns, self._key.unpack(key), self._labels)

    def _evict(self, now_ns: int) -> None:
        room, rows = self._places.info.max_entries, self._rows
        if len(rows) <= _FULL * room:
            return
        is_short = len(rows) > _ALMOST_FULL * room
        words = struct.Struct("=Q").unpack_from
        at = self._words.size - 8
        least_ns = now_ns - (SHORT_IDLE_NS if is_short else IDLE_NS)
        idle = sorted((words(raw, at)[0], key) for key, raw in rows.items() if words(raw, at)[0] <= least_ns)
        for last_ns, key in idle:
            if last_ns > now_ns - IDLE_NS and len(rows) <= _FULL * room:
                return
            self._places.delete(key)
            del rows[key]
            for one in self._sums_of.pop(key):
                one.rows -= 1
            self.evicted += 1
