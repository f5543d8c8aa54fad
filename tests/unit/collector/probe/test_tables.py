"""Rows and histograms out of raw maps: sums over CPUs, deltas, rows that look alike, rows that go away."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from netconsole_collector.names.drop_reasons import DropReasons
from netconsole_collector.names.labels import Labeller
from netconsole_collector.names.lookups import Lookups
from netconsole_collector.names.namespaces import Namespaces
from netconsole_collector.probe.reading import map_reader, tables
from netconsole_collector.probe.reading.decode import LayoutError
from tests.support.fake_map import FakeMap, labels

KEY = [{"name": "queue", "type": "u32"}, {"name": "protocol", "type": "u32", "as": "l4"}]
VALUE = [
    {"name": "count", "type": "u64"},
    {"name": "bytes", "type": "u64"},
    {"name": "deepest", "type": "u64", "kind": "max"},
]


@pytest.fixture
def fake() -> FakeMap:
    return FakeMap()


@pytest.fixture
def table(fake: FakeMap) -> tables.TableReader:
    return make(fake)


def make(fake: FakeMap, **more: Any) -> tables.TableReader:
    return tables.TableReader("queues", {"key": KEY, "value": VALUE, **more}, fake, labels())  # type: ignore[arg-type]


def test_counts_are_summed_over_the_cpus_and_gauges_are_the_highest(fake: FakeMap, table: tables.TableReader) -> None:
    fake.put(1, 17, (5, 500, 9), (7, 700, 30), (0, 0, 2))
    _, rows, omitted = table.read(full=False)
    assert omitted == 0
    assert rows == [
        {
            "labels": {"queue": 1, "protocol": "UDP"},
            "counts": {"count": {"delta": 12, "total": 12}, "bytes": {"delta": 1200, "total": 1200}},
            "gauges": {"deepest": 30},
        }
    ]


def test_what_needs_a_program_or_a_fact_that_is_not_there_is_in_no_row(fake: FakeMap) -> None:
    value = [VALUE[0], {**VALUE[1], "needs": ["sizes"]}, {**VALUE[2], "needs": ["sizes", "HAVE_depth"]}]
    spec = {"key": KEY, "value": value}
    fake.put(1, 17, (5, 0, 0))
    known = [
        {*row["counts"], *row.get("gauges", {})}
        for there in (set[str](), {"sizes"}, {"sizes", "HAVE_depth"})
        for row in tables.TableReader("queues", spec, fake, labels(), there).read(full=False).rows  # type: ignore[arg-type]
    ]
    assert known == [{"count"}, {"count", "bytes"}, {"count", "bytes", "deepest"}]


def test_only_changed_rows_unless_all_are_wanted(fake: FakeMap, table: tables.TableReader) -> None:
    fake.put(1, 17, (1, 1, 1))
    fake.put(2, 17, (1, 1, 1))
    table.read(full=False)
    fake.put(2, 17, (4, 9, 1))
    _, changed, _ = table.read(full=False)
    assert [(row["labels"]["queue"], row["counts"]["count"]) for row in changed] == [(2, {"delta": 3, "total": 4})]
    _, every, _ = table.read(full=True)
    assert [(row["labels"]["queue"], row["counts"]["count"]["delta"]) for row in every] == [(1, 0), (2, 0)]


def test_all_rows_are_sent_when_one_has_got_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else who knows rows by their labels would have it twice, with its whole count, until the next full frame."""
    known: dict[int, str] = {}
    names, fake = labels(), FakeMap(value_size=8)
    monkeypatch.setitem(names._kinds, "socket", known.get)
    key = [{"name": "process", "type": "u64", "as": "socket"}]
    table = tables.TableReader("sockets", {"key": key, "value": VALUE[:1]}, fake, names)  # type: ignore[arg-type]
    fake.content = {struct.pack("=Q", inode): struct.pack("=3Q", inode, 0, 0) for inode in (7, 8)}
    [both] = table.read(full=False).rows
    assert both["counts"]["count"]["total"] == 15
    known[7] = "vhost (1)"
    names.lookups.processes.changes += 1
    full, rows, _ = table.read(full=False)
    assert full
    assert {row["labels"]["process"]: row["counts"]["count"] for row in rows} == {
        "vhost (1)": {"delta": 0, "total": 7},
        None: {"delta": 0, "total": 8},
    }
    names.lookups.processes.changes += 1  # of a socket that has no row here
    assert table.read(full=False) == (False, [], 0)


def test_the_counts_of_a_namespace_that_is_gone_are_not_those_of_the_next_with_its_inode(tmp_path: Path) -> None:
    """Nor does a second name of one namespace begin its row anew."""
    lookups, fake = Lookups(), FakeMap(value_size=24)
    namespaces = lookups.namespaces = Namespaces(str(tmp_path))
    key = [{"name": "netns", "type": "u32", "as": "netns"}, {"type": "pad[4]"}]
    table = tables.TableReader("drops", {"key": key, "value": VALUE}, fake, Labeller(lookups, DropReasons({})))  # type: ignore[arg-type]
    (tmp_path / "blue").touch()
    inode = (tmp_path / "blue").stat().st_ino

    def read(count: int, deepest: int = 5) -> dict[str, tuple[int, int, int | None]]:
        fake.put(inode, 0, (count, 10 * count, deepest))
        return {
            row["labels"]["netns"]: (*row["counts"]["count"].values(), row["gauges"]["deepest"])
            for row in table.read(full=True).rows
        }

    assert read(4) == {"blue": (4, 4, 5)}
    os.link(tmp_path / "blue", tmp_path / "sky")
    assert [*read(5).values()] == [(1, 5, 5)], "it has two names"
    (tmp_path / "blue").unlink()
    assert [*read(7).values()] == [(2, 7, 5)], "one of its names is left, told or not"
    (tmp_path / "sky").rename(tmp_path / "green")
    namespaces.refresh()
    assert read(10) == {"green": (3, 3, None)}, "the highest may be that of the one that is gone"
    assert read(12) == {"green": (2, 5, None)}
    assert table.first_total == 12, "none is missing in the conservation check"
    assert table.evicted == 0, "what is left is exact: one that goes with its namespace makes no figure a lower bound"
    assert read(3) == {"green": (0, 3, 5)}, "the kernel has begun the row anew as well: no total is below 0"
    assert read(4) == {"green": (1, 4, 5)}


def test_the_highest_of_a_row_that_began_anew_is_known_when_it_is_exceeded(tmp_path: Path) -> None:
    lookups, fake = Lookups(), FakeMap(value_size=24)
    namespaces = lookups.namespaces = Namespaces(str(tmp_path))
    key = [{"name": "netns", "type": "u32", "as": "netns"}, {"type": "pad[4]"}]
    table = tables.TableReader("drops", {"key": key, "value": VALUE}, fake, Labeller(lookups, DropReasons({})))  # type: ignore[arg-type]
    (tmp_path / "blue").touch()
    inode = (tmp_path / "blue").stat().st_ino

    def deepest(count: int, *values: int) -> list[int | None]:
        """Of keys whose labels read the same."""
        for number, value in enumerate(values):
            fake.put(inode, number, (count, 0, value))
        return [row["gauges"]["deepest"] for row in table.read(full=True).rows]

    assert deepest(4, 5, 9) == [9]
    (tmp_path / "blue").rename(tmp_path / "green")
    namespaces.refresh()
    assert deepest(5, 5, 9) == [None]
    assert deepest(6, 6, 9) == [6], "the other one is not known"
    assert deepest(7, 6, 10) == [10]
    assert deepest(8, 6, 10) == [10], "it stays known"


def test_rows_that_read_the_same_are_one(fake: FakeMap) -> None:
    """Two addresses in one function are two keys, and one row for a reader."""
    table = tables.TableReader(
        "drops",
        {"key": [{"name": "queue", "type": "u32", "as": "softirq"}, {"type": "pad[4]"}], "value": VALUE},
        fake,  # type: ignore[arg-type]
        labels(),
    )
    fake.put(3, 1, (2, 20, 5))
    fake.put(3, 2, (1, 10, 50))
    _, rows, _ = table.read(full=False)
    assert [row["counts"]["count"]["total"] for row in rows] == [3]
    assert rows[0]["gauges"] == {"deepest": 50}
    fake.put(3, 2, (4, 10, 50))
    _, rows, _ = table.read(full=False)
    assert rows[0]["counts"]["count"] == {"delta": 3, "total": 6}


def test_idle_rows_of_a_full_map_are_removed_and_counted(fake: FakeMap, table: tables.TableReader) -> None:
    for queue in range(7):  # of 8: more than three quarters
        fake.put(queue, 6, (1, 0, 0))
    for turn in range(map_reader.IDLE_INTERVALS):
        fake.put(0, 6, (2 + turn, 0, 0))
        table.read(full=False)
        assert table.reader.evicted == 0
    fake.put(0, 6, (1000, 0, 0))
    table.read(full=False)
    assert table.reader.evicted == 6
    assert len(fake.content) == 1
    _, rows, _ = table.read(full=True)
    assert [row["labels"]["queue"] for row in rows] == [0]
    assert table.first_total == 1000 + 6  # the counter beside it counted them too


def test_of_a_map_that_is_almost_full_the_longest_idle_make_room(fake: FakeMap, table: tables.TableReader) -> None:
    for queue in range(8):
        fake.put(queue, 6, (1, 0, 0))
    table.read(full=False)
    for queue in (0, 1, 2, 5, 6, 7):
        fake.put(queue, 6, (2, 0, 0))
    for _ in range(map_reader.SHORT_IDLE_INTERVALS - 1):
        table.read(full=False)
    assert table.reader.evicted == 0
    table.read(full=False)
    assert sorted(struct.unpack("=II", key)[0] for key in fake.content) == [0, 1, 2, 5, 6, 7]
    assert table.reader.evicted == 2
    for _ in range(2):
        assert table.first_total == 14, "those that go are told once"
        table.read(full=False)


def test_rows_that_come_by_the_hundred_always_find_room(fake: FakeMap, table: tables.TableReader) -> None:
    """Three a reading in a map of eight, as short connections make them: none is refused."""
    for turn in range(20):
        for number in range(3):
            fake.put(10 * turn + number, 6, (1, 0, 0))
        assert len(fake.content) <= 8
        table.read(full=False)
    assert table.reader.evicted >= 20 * 3 - 8 and table.first_total == 20 * 3


def test_a_full_array_keeps_idle_rows(fake: FakeMap, table: tables.TableReader) -> None:
    fake.is_array = True
    for queue in range(8):
        fake.put(queue, 6, (1, 0, 0))
    for _ in range(2 * map_reader.IDLE_INTERVALS):
        table.read(full=False)
    assert (len(fake.content), table.reader.evicted) == (8, 0)


def test_a_map_with_room_keeps_idle_rows(fake: FakeMap, table: tables.TableReader) -> None:
    fake.put(1, 6, (1, 0, 0))
    for _ in range(2 * map_reader.IDLE_INTERVALS):
        table.read(full=False)
    assert len(fake.content) == 1


def test_a_row_that_the_kernel_evicted_is_counted_and_may_come_back(fake: FakeMap, table: tables.TableReader) -> None:
    fake.put(1, 6, (10, 0, 0))
    table.read(full=False)
    fake.content.clear()
    assert table.read(full=False) == (False, [], 0)
    assert table.reader.evicted == 1
    fake.put(1, 6, (3, 0, 0))
    _, rows, _ = table.read(full=False)
    assert rows[0]["counts"]["count"] == {"delta": 3, "total": 3}
    assert table.first_total == 13


def test_the_busiest_rows_are_kept_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_ROWS", 3)
    fake = FakeMap(max_entries=1000)
    table = make(fake)
    for queue in range(10):
        fake.put(queue, 6, (queue, 0, 0))
    _, rows, omitted = table.read(full=True)
    assert [row["labels"]["queue"] for row in rows] == [9, 8, 7]
    assert omitted == 7


def test_values_that_are_not_all_of_64_bits() -> None:
    fake = FakeMap(value_size=16)
    value = [
        {"name": "count", "type": "u32"},
        {"name": "deepest", "type": "u16", "kind": "max"},
        {"name": "ns", "type": "u64"},
    ]
    table = tables.TableReader("mixed", {"key": KEY, "value": value}, fake, labels())  # type: ignore[arg-type]
    fake.content[bytes(8)] = b"".join(struct.pack("=IH2xQ", *one) for one in [(1, 7, 5), (2, 9, 6), (3, 8, 7)])
    _, rows, _ = table.read(full=False)
    assert rows[0]["counts"] == {"count": {"delta": 6, "total": 6}, "ns": {"delta": 18, "total": 18}}
    assert rows[0]["gauges"] == {"deepest": 9}


def test_a_key_that_does_not_fit_is_refused() -> None:
    with pytest.raises(LayoutError, match="key of table queues: 8 bytes in the manifest, 12 in the program"):
        make(FakeMap(key_size=12))


def set_of_rows(*rows: tuple[int, int, int]) -> bytes:
    """One element for one CPU: two rows of queue, protocol, count and what belongs to the program."""
    return b"".join(struct.pack("=IIQQ", queue, 17, count, 99) for queue, _, count in rows).ljust(48, b"\0")


def test_rows_in_the_elements_of_an_array_are_added_up_over_cpus_and_free_ones_left_out() -> None:
    fake = FakeMap(key_size=4, value_size=48, max_entries=2)
    fake.cpus, fake.fd = [0, 1, 2], 0  # type: ignore[attr-defined]
    fake.content[bytes(4)] = set_of_rows((1, 17, 5), (2, 17, 7)) + set_of_rows((1, 17, 3)) + set_of_rows()
    spec = {"key": KEY, "value": VALUE[:1], "ways": 2}
    table = tables.TableReader("flows", spec, fake, labels())  # type: ignore[arg-type]
    _, rows, _ = table.read(full=False)
    assert {row["labels"]["queue"]: row["counts"]["count"] for row in rows} == {
        1: {"delta": 8, "total": 8},
        2: {"delta": 7, "total": 7},
    }
    fake.content[bytes(4)] = set_of_rows((1, 17, 6), (3, 17, 1)) + set_of_rows((1, 17, 3)) + set_of_rows()
    _, rows, _ = table.read(full=False)
    assert {row["labels"]["queue"]: row["counts"]["count"]["delta"] for row in rows} == {1: 1, 3: 1}
    assert table.reader.evicted == 1


def test_a_row_that_moves_to_another_cpu_has_what_came_in_there() -> None:
    """Its old place is taken by another key, so that the sum over CPUs falls."""
    fake = FakeMap(key_size=4, value_size=48, max_entries=2)
    fake.cpus, fake.fd = [0, 1, 2], 0  # type: ignore[attr-defined]
    spec = {"key": KEY, "value": VALUE[:1], "ways": 2}
    table = tables.TableReader("flows", spec, fake, labels())  # type: ignore[arg-type]

    def reading(*cpus: tuple[int, int, int]) -> dict[int, tuple[int, int]]:
        fake.content[bytes(4)] = b"".join(set_of_rows(one) for one in cpus) + set_of_rows()
        counts = {row["labels"]["queue"]: row["counts"]["count"] for row in table.read(full=False).rows}
        return {queue: (count["delta"], count["total"]) for queue, count in counts.items()}

    assert reading((1, 17, 100), (0, 0, 0)) == {1: (100, 100)}
    assert reading((1, 17, 150), (1, 17, 40)) == {1: (90, 190)}
    assert reading((2, 17, 5), (1, 17, 70)) == {2: (5, 5), 1: (30, 70)}
    assert reading((2, 17, 5), (1, 17, 9)) == {1: (9, 9)}, "it left and came back"


def test_rows_that_do_not_fit_into_an_element_are_refused() -> None:
    fake = FakeMap(key_size=4, value_size=48)
    fake.cpus, fake.fd = [0, 1, 2], 0  # type: ignore[attr-defined]
    with pytest.raises(LayoutError, match="4 rows of 16 bytes"):
        tables.TableReader("flows", {"key": KEY, "value": VALUE[:1], "ways": 4}, fake, labels())  # type: ignore[arg-type]


def test_what_a_counter_has_and_no_row_is_unaccounted_when_two_readings_say_so(
    fake: FakeMap, table: tables.TableReader
) -> None:
    """A packet between the two additions is short in one reading alone. The lower of two counts, and never fewer."""
    fake.put(1, 17, (10, 0, 0))
    table.read(full=False)
    found = []
    for counted, explained in ((10, 0), (15, 0), (13, 0), (14, 2), (10, 0), (18, 0), (10, 0), (9, 0)):
        table.conserve(counted, explained)
        found.append(table.unaccounted)
    # Short by 0, 5, 3, 2, 0, 8, 0 and 0 (rows may be ahead).
    assert found == [0, 0, 3, 3, 3, 3, 3, 3]


def test_of_too_many_rows_those_with_the_largest_change_and_then_total_are_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "MAX_ROWS", 2)
    fake = FakeMap()
    table = make(fake)
    for queue, count in ((1, 50), (2, 5), (3, 40)):
        fake.put(queue, 17, (count, 1000 - count, 0))
    table.read(full=False)
    for queue, count in ((1, 52), (2, 14), (3, 42)):
        fake.put(queue, 17, (count, 1000 - count, 0))
    _, rows, omitted = table.read(full=False)
    assert omitted == 1
    assert [(row["labels"]["queue"], row["counts"]["count"]["delta"]) for row in rows] == [(2, 9), (1, 2)]


@pytest.mark.parametrize(
    ("counted", "scatter", "one_in"),
    [(0, 0, 1), (1000, 0, 1), (1600, 16 * 15 * 100, 16), (0, 240, 1), (500_000, 28_125 * 16 * 15, 15)],
)
def test_for_how_many_a_count_stands_follows_from_the_weights(counted: int, scatter: int, one_in: int) -> None:
    """All of them of 16: 16. Of 500 000 in rows 50 000 by themselves, the rest in 28 125 sixteens: 14.5, rounded up."""
    assert tables.one_in(counted, scatter) == one_in


def test_rows_that_chance_made_too_low_are_no_fault(fake: FakeMap) -> None:
    table = make(fake, counter="seen")
    fake.put(1, 17, (1000, 0, 0))
    table.read(full=False)
    for counted, unaccounted in ((1400, 0), (1401, 1)):
        table.conserve(counted, 0, scatter=10_000)
        table.conserve(counted, 0, scatter=10_000)
        assert table.unaccounted == unaccounted


PACKET = {
    "map": "packets",
    "record": [{"name": "mono_ns", "type": "u64", "as": "time"}, {"name": "port", "type": "u32"}],
}


class Packets(FakeMap):
    """The map of the latest packets: a hash that the kernel reads in batches."""

    per_cpu = False
    batch = True

    def __init__(self, key_size: int = 8, value_size: int = 16) -> None:
        super().__init__(key_size, value_size)

    def keep(self, queue: int, protocol: int, mono_ns: int, port: int) -> None:
        self.content[struct.pack("=II", queue, protocol)] = struct.pack("=QI4x", mono_ns, port)


def with_packets(fake: FakeMap, packets: Packets, key: Any = KEY) -> tables.TableReader:
    spec = {"key": key, "value": VALUE, "example": PACKET}
    return tables.TableReader("queues", spec, fake, labels(), examples=packets)  # type: ignore[arg-type]


def told(table: tables.TableReader, full: bool = True) -> dict[Any, Any]:
    return {row["labels"]["queue"]: row.get("example") for row in table.read(full).rows}


def test_a_row_has_its_latest_packet_without_what_is_not_known(fake: FakeMap) -> None:
    packets = Packets()
    table = with_packets(fake, packets)
    for queue in (1, 2, 3):
        fake.put(queue, 17, (1, 1, 1))
    packets.keep(1, 17, 5, 53)
    packets.keep(2, 17, 6, 0)
    packets.keep(9, 17, 7, 7)  # of a row that came after the reading of the rows
    assert told(table) == {1: {"mono_ns": 5, "port": 53}, 2: {"mono_ns": 6}, 3: None}
    fake.put(1, 17, (2, 2, 2))
    packets.keep(1, 17, 8, 54)
    assert told(table, full=False) == {1: {"mono_ns": 8, "port": 54}}


def test_rows_that_read_the_same_have_the_newest_packet_of_all(fake: FakeMap) -> None:
    packets = Packets()
    table = with_packets(fake, packets, [KEY[0], {"type": "pad[4]"}])
    for protocol, mono_ns in ((6, 5), (17, 9), (1, 7)):
        fake.put(1, protocol, (1, 1, 1))
        packets.keep(1, protocol, mono_ns, protocol)
    assert told(table) == {1: {"mono_ns": 9, "port": 17}}


def test_what_may_be_of_two_packets_is_never_told(fake: FakeMap) -> None:
    """A kernel that cannot read in batches (before 5.6) copies without a lock: the first reading finds that out."""
    packets = Packets()

    def refused() -> list[tuple[bytes, bytes]]:
        packets.batch = False
        return list(packets.content.items())

    packets.items = refused  # type: ignore[method-assign]
    table = with_packets(fake, packets)
    fake.put(1, 17, (1, 1, 1))
    packets.keep(1, 17, 5, 53)
    assert told(table) == told(table) == {1: None}


def test_of_many_rows_those_that_counted_most_have_their_packet(fake: FakeMap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_EXAMPLES", 2)
    packets = Packets()
    table = with_packets(fake, packets)
    for queue in (1, 2, 3, 4):
        fake.put(queue, 17, (10 - queue if queue != 3 else 50, 1, 1))
        packets.keep(queue, 17, queue, queue)
    assert {queue for queue, example in told(table).items() if example} == {1, 3}


def test_a_row_that_is_removed_takes_its_packet_with_it(fake: FakeMap) -> None:
    packets = Packets()
    table = with_packets(fake, packets)
    for queue in range(7):
        fake.put(queue, 17, (1, 1, 1))
        packets.keep(queue, 17, 5, 53)
    table.read(full=True)
    for _ in range(map_reader.IDLE_INTERVALS):
        fake.put(1, 17, (2 + _, 1, 1))
        table.read(full=False)
    assert [struct.unpack("=II", key)[0] for key in packets.content] == [1]


@pytest.mark.parametrize("packets", [Packets(key_size=4), Packets(value_size=24)])
def test_a_map_of_packets_that_is_not_as_the_manifest_says_is_refused(fake: FakeMap, packets: Packets) -> None:
    with pytest.raises(LayoutError, match="example of table queues"):
        with_packets(fake, packets)


def test_padding_behind_a_value_is_the_programs_own(fake: FakeMap) -> None:
    """As the number of the reading after which a row kept its packet."""
    value = [VALUE[0], {"type": "pad[8]"}, VALUE[2]]
    table = tables.TableReader("queues", {"key": KEY, "value": value}, fake, labels())  # type: ignore[arg-type]
    fake.put(1, 17, (5, 99, 9), (7, 98, 30), (0, 97, 2))
    [row] = table.read(full=True).rows
    assert (row["counts"], row["gauges"]) == ({"count": {"delta": 12, "total": 12}}, {"deepest": 30})


def test_a_row_to_which_nothing_came_is_not_decoded_again(
    fake: FakeMap, table: tables.TableReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue in (1, 2, 3):
        fake.put(queue, 17, (queue, 0, 0))
    table.read(full=False)
    decoded: list[bytes] = []
    decode = table.reader._sum

    def watched(value: bytes) -> list[int]:
        decoded.append(value)
        return decode(value)

    monkeypatch.setattr(table.reader, "_sum", watched)
    fake.put(2, 17, (2, 0, 0), (5, 0, 0))
    assert [row["counts"]["count"] for row in table.read(full=False).rows] == [{"delta": 5, "total": 7}]
    assert len(decoded) == 1
    assert len(table.read(full=True).rows) == 3 and table.first_total == 11 and len(decoded) == 1
