"""Rows that a CPU keeps near itself and those of the hash are one table, whose rows only grow."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from netconsole_collector.probe.reading import map_reader, tables
from netconsole_collector.probe.reading.decode import LayoutError
from tests.support.fake_map import CPUS, FakeMap, labels

KEY = [{"name": "queue", "type": "u32"}, {"name": "protocol", "type": "u32"}]
VALUE = [{"name": "count", "type": "u64"}, {"type": "pad[8]"}]


class TwoMaps:
    """A hash of such rows, and the array beside it."""

    def __init__(self, places: int = 4, room: int = 8) -> None:
        rows: Any = FakeMap(8, 16, room)
        near: Any = FakeMap(4, 24, places)
        self.rows, self.near = rows, near
        near.is_array = True
        for one in (rows, near):
            one.cpus, one.fd, one.per_cpu = list(range(CPUS)), 0, True
        for place in range(places):
            near.content[struct.pack("=I", place)] = bytes(near.value_bytes)
        spec = {"key": KEY, "value": VALUE}
        self.table = tables.TableReader("queues", spec, rows, labels(), near=near)

    def hash(self, queue: int, *counts: int) -> None:
        value = b"".join(struct.pack("=QQ", count, 77) for count in counts)
        self.rows.content[struct.pack("=II", queue, 17)] = value.ljust(self.rows.value_bytes, b"\0")

    def place(self, place: int, *rows: tuple[int, int]) -> None:
        """Of each CPU the queue that has this place, and its count there."""
        raw = b"".join(struct.pack("=IIQQ", queue, 17, count, 2**64 - 1) for queue, count in rows)
        self.near.content[struct.pack("=I", place)] = raw.ljust(self.near.value_bytes, b"\0")

    def read(self) -> dict[int, tuple[int, int]]:
        counts = {row["labels"]["queue"]: row["counts"]["count"] for row in self.table.read(full=False).rows}
        return {queue: (count["delta"], count["total"]) for queue, count in counts.items()}


def test_a_row_is_the_sum_of_what_both_have_on_all_cpus() -> None:
    maps = TwoMaps()
    maps.hash(1, 1, 0, 5)
    maps.hash(2, 1)
    maps.place(0, (1, 100), (0, 0), (1, 7))
    maps.place(3, (3, 4), (2, 9))
    assert maps.read() == {1: (113, 113), 2: (10, 10), 3: (4, 4)}
    maps.place(0, (1, 150), (0, 0), (1, 7))
    assert maps.read() == {1: (50, 163)}
    assert maps.table.first_total == 177


def test_a_place_that_has_a_key_and_no_count_is_no_row_yet() -> None:
    maps = TwoMaps()
    maps.place(0, (1, 0), (2, 0))
    assert maps.read() == {}


def test_an_idle_row_with_a_place_stays_and_its_total_never_falls() -> None:
    maps = TwoMaps(room=4)
    for queue in (1, 2, 3, 4):
        maps.hash(queue, 10)
    maps.place(0, (1, 5))
    maps.read()
    for _ in range(map_reader.IDLE_INTERVALS + 1):
        maps.read()
    assert struct.pack("=II", 1, 17) in maps.rows.content and len(maps.rows.content) < 4
    assert maps.table.first_total == 45, "what has gone still counts"
    maps.place(0, (1, 6))
    assert maps.read() == {1: (1, 16)}


def test_an_array_of_other_rows_is_refused() -> None:
    near: Any = FakeMap(4, 32)
    near.is_array = near.per_cpu = True
    rows: Any = FakeMap(8, 16)
    rows.per_cpu = True
    with pytest.raises(LayoutError, match="its elements are not the rows of"):
        tables.TableReader("queues", {"key": KEY, "value": VALUE}, rows, labels(), near=near)
