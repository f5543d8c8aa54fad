"""Tables of very many rows: which are sent, that all are in the sums, how often they are read, who gives up a place."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest

from netconsole_collector.probe.reading import ranked
from netconsole_collector.probe.reading.decode import LayoutError
from netconsole_collector.probe.reading.ranked import RankedReader, SumReader
from netconsole_collector.probe.reading.tables import TableBody
from tests.support.fake_map import FakeMap, labels

S = 10**9
KEY = [{"name": "port", "type": "u32"}, {"name": "peer", "type": "u32"}]
COUNTS: list[dict[str, Any]] = [{"name": "packets", "type": "u64"}, {"name": "bytes", "type": "u64"}]
SPEC = {
    "key": KEY,
    "value": [*COUNTS, {"name": "missed", "type": "u64", "kind": "max"}, {"type": "pad[16]"}],
    "most": 8,
}
SUMS = {
    "key": [{"name": "least", "type": "u32", "least_of": ["port", "peer"]}],
    "value": [*COUNTS, {"name": "rows", "type": "u64", "kind": "max"}],
}


class Flows:
    """A map of rows, their reader, and one of their sums."""

    def __init__(self, room: int = 1000, **spec: Any) -> None:
        self.map = FakeMap(key_size=8, value_size=40, max_entries=room)
        self.reader = RankedReader("flows", {**SPEC, **spec}, self.map, None, labels())  # type: ignore[arg-type]
        self.sums = SumReader("sums", SUMS, {**SPEC, **spec}, self.reader, labels())

    def put(self, port: int, packets: int, size: int = 0, missed: int = 0, last_ns: int = 2) -> None:
        self.map.content[struct.pack("=II", port, 9999)] = struct.pack("=5Q", packets, size, missed, 1, last_ns)

    def look(self, now_ns: int = S, full: bool = False, whole: bool = True) -> tuple[TableBody, TableBody]:
        self.reader.look(full, now_ns, whole)
        return self.reader.read(full), self.sums.read(full)


def ports(body: TableBody) -> dict[int, int]:
    return {row["labels"]["port"]: row["counts"]["packets"]["delta"] for row in body.rows}


def test_a_row_has_its_counts_its_gauges_and_its_times() -> None:
    flows = Flows()
    flows.put(1, 5, 500, missed=3, last_ns=70)
    flows.look()
    flows.put(1, 7, 700, missed=3, last_ns=90)
    body, sums = flows.look()
    assert body.rows == [
        {
            "labels": {"port": 1, "peer": 9999},
            "counts": {"packets": {"delta": 2, "total": 7}, "bytes": {"delta": 200, "total": 700}},
            "gauges": {"missed": 3},
            "first_ns": 1,
            "last_ns": 90,
        }
    ]
    counts = {"packets": {"delta": 2, "total": 7}, "bytes": {"delta": 200, "total": 700}}
    assert sums.rows == [{"labels": {"least": 1}, "counts": counts, "gauges": {"rows": 1}}]
    body, sums = flows.look()
    assert body.rows == sums.rows == [] and not body.full
    body, sums = flows.look(full=True)
    assert ports(body) == {1: 0} and body.full and sums.full and len(sums.rows) == 1


def test_of_more_than_are_sent_the_busiest_are_by_each_count_and_in_all() -> None:
    flows = Flows()
    flows.put(100, 10**6)
    flows.put(101, 10**6 - 1)
    flows.look()
    for port in range(1, 21):
        flows.put(port, 100 + port, 1000 - port)
    body, sums = flows.look()
    assert ports(body) == {20: 120, 19: 119, 18: 118, 17: 117, 1: 101, 2: 102, 100: 0, 101: 0}
    assert body.full and body.omitted == 22 - 8 == sums.omitted
    assert sum(one.first for one in flows.sums._sums.values()) == 2 * 10**6 - 1 + sum(range(101, 121))
    flows.put(3, 10**7)
    body, _ = flows.look()
    assert ports(body) == {3: 10**7 - 103, 100: 0}


def test_what_takes_long_to_read_is_read_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a core it takes SHARE. What is asked as a whole is read; what is not read has an empty frame."""
    clock = iter([0.0, ranked.SHARE * 2, 10.0, 10.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    flows = Flows()
    flows.put(1, 5)
    flows.look(100 * S, whole=False)
    flows.put(1, 9)
    body, sums = flows.look(102 * S - 1, full=True, whole=False)
    assert body == sums == TableBody(False, [], 0)
    body, sums = flows.look(102 * S, whole=False)
    assert ports(body) == {1: 4} and body.full and sums.full  # the full one that was not read is owed
    assert body.rows[0]["interval_ns"] == sums.rows[0]["interval_ns"] == 2 * S


@pytest.mark.parametrize(("rows", "left"), [(75, 75), (76, 76 - 40), (91, 75)])
def test_who_is_idle_gives_up_a_place_where_there_are_few(rows: int, left: int) -> None:
    now = 1000 * S
    flows = Flows(room=100, most=100)
    for port in range(rows):
        idle_ns = ranked.IDLE_NS if rows < 90 and port < 40 else ranked.SHORT_IDLE_NS
        flows.put(port, 1, last_ns=now - idle_ns)
    flows.look(now)
    assert len(flows.map.content) == left and flows.reader.evicted == rows - left
    flows.look(now + 1)
    assert sum(one.first for one in flows.sums._sums.values()) == rows
    assert sum(one.rows for one in flows.sums._sums.values()) == left


@pytest.mark.parametrize(
    "value",
    [SPEC["value"][:3], [COUNTS[0], *SPEC["value"][2:]], [*COUNTS, COUNTS[0], {"type": "pad[16]"}]],  # type: ignore[index]
)
def test_a_table_that_is_not_two_counts_and_gauges_is_refused(value: list[dict[str, Any]]) -> None:
    size = 8 * len(value) + 8 * (value[-1]["type"] == "pad[16]")
    fake = FakeMap(key_size=8, value_size=size)
    with pytest.raises(LayoutError):
        RankedReader("flows", {**SPEC, "value": value}, fake, None, labels())  # type: ignore[arg-type]


def test_sums_may_send_fewer_rows_than_their_table() -> None:
    flows = Flows()
    few = SumReader("few", {**SUMS, "most": 2}, SPEC, flows.reader, labels())
    for port in range(1, 6):
        flows.put(port, port)
    body, sums = flows.look()
    fewer = few.read(False)
    assert (len(body.rows), len(sums.rows)) == (5, 5)
    assert {row["labels"]["least"] for row in fewer.rows} == {4, 5} and (fewer.full, fewer.omitted) == (True, 3)
