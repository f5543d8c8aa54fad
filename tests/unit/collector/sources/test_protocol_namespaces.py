"""protocol_counters in other network namespaces: which are read and how often, their names, how full conntrack is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from netconsole.telemetry.frames import AnyFrame, Cost, Status, Table
from netconsole_collector.primitives.here import Here
from netconsole_collector.sources.base import MAX_EVERY, MAX_SHARE, SourceError
from netconsole_collector.sources.net import protocol_counters
from netconsole_collector.sources.net.protocol_counters import (
    SEARCH_EVERY,
    ProtocolCounters,
    parse_conntrack,
)
from tests.support.sources import SECOND_NS, read_of


class Host(Here):
    """A made-up /proc and /run/netns. Namespaces are files. Counters of another namespace cost as much as is set."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self.root, self.cost_s, self.spent_s = tmp_path, 0.0, 0.0
        self.reads: list[str] = []
        self.searches = 0
        self.may_not_enter = False
        self.process("self")
        (tmp_path / "proc/net").symlink_to("self/net")
        self.process("1", like="self")

    def process(self, pid: str, like: str = "") -> None:
        """Of a namespace of its own, or of that of another process."""
        (self.root / "proc" / pid / "ns").mkdir(parents=True)
        inside = self.root / "proc" / pid / "ns/net"
        if like:
            os.link(self.root / "proc" / like / "ns/net", inside)
            (self.root / "proc" / pid / "net").symlink_to(f"../{like}/net")
        else:
            inside.touch()
            (self.root / "proc" / pid / "net/stat").mkdir(parents=True)
            self.counts(pid, 0)

    def counts(self, pid: str, errors: int, entries: int | None = None) -> None:
        net = self.root / "proc" / pid / "net"
        (net / "snmp").write_text(f"Udp: RcvbufErrors\nUdp: {errors}\n")
        if entries is not None:
            (net / "stat/nf_conntrack").write_text(f"entries  drop\n{entries:08x} 00000000\n")

    def named(self, name: bytes, pid: str) -> None:
        path = self.root / "run/netns" / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(self.root / "proc" / pid / "ns/net", path)

    def named_alone(self, name: str, errors: int) -> Path:
        """A namespace in which no process is."""
        path = self.root / "run/netns" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"Udp: RcvbufErrors\nUdp: {errors}\n")
        return path

    def read_inside(
        self, namespaces: Sequence[tuple[str, int]], _names: Sequence[str], /
    ) -> list[dict[str, bytes] | OSError]:
        return [self._inside(Path(f"{self.root}{path}"), inode) for path, inode in namespaces]

    def _inside(self, found: Path, inode: int) -> dict[str, bytes] | OSError:
        if self.may_not_enter:
            return PermissionError(1, "not root")
        try:
            is_it = found.stat().st_ino == inode
            return {"snmp": found.read_bytes()} if is_it else FileNotFoundError(2, "no such file")
        except OSError as error:
            return error

    def names_are_old(self) -> None:
        os.utime(self.root / "run/netns", (1, 1))

    def limit(self, text: str) -> None:
        path = self.root / "proc/sys/net/netfilter/nf_conntrack_max"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def cpu_s(self) -> float:
        return self.spent_s

    def read_each(self, directory: str, names: Iterable[str]) -> dict[str, bytes]:
        if directory != "/proc/net":
            self.reads.append(f"{directory}/snmp")
            self.spent_s += self.cost_s
        return super().read_each(directory, names)

    def inodes(self, name: str) -> dict[int, int]:
        self.searches += 1
        return super().inodes(name)


def table(frames: list[AnyFrame], name: str) -> Table:
    (one,) = (frame for frame in frames if isinstance(frame, Table) and frame.name == name)
    return one


def moved(frames: list[AnyFrame]) -> dict[object, int | None]:
    """By namespace: the total of the one counter."""
    return {row.labels["netns"]: row.counts["count"].total for row in table(frames, "counters").rows}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def opened(host: Host) -> ProtocolCounters:
    source = ProtocolCounters(host)
    source.open()
    return source


def test_each_namespace_is_told_by_its_name(host: Host) -> None:
    for pid, name in (("7", b"blue"), ("8", b"a\xff"), ("9", b"")):
        host.process(pid)
        if name:
            host.named(name, pid)
    source = opened(host)
    assert moved(read_of(source)) == {}
    for number, pid in enumerate(("self", "7", "8", "9"), 1):
        host.counts(pid, number)
    unnamed = str((host.root / "proc/9/ns/net").stat().st_ino)
    assert moved(read_of(source)) == {"host": 1, "blue": 2, "a\\xff": 3, unnamed: 4}


@pytest.mark.parametrize("is_inside", [True, False])
def test_the_host_is_where_init_is_and_the_own_one_where_that_is_not_to_be_seen(host: Host, is_inside: bool) -> None:
    shutil.rmtree(host.root / "proc/1")
    if is_inside:
        host.process("1")
    source = opened(host)
    read_of(source)
    host.counts("self", 5)
    own = str((host.root / "proc/self/ns/net").stat().st_ino)
    assert moved(read_of(source)) == {own if is_inside else "host": 5}


def test_namespaces_are_searched_for_now_and_then(host: Host) -> None:
    source, found = opened(host), []
    for _ in range(2 * SEARCH_EVERY + 1):
        read_of(source)
        found.append(host.searches)
    assert found == [1] * SEARCH_EVERY + [2] * SEARCH_EVERY + [3]


def test_a_namespace_is_read_by_another_process_when_the_first_one_has_gone(host: Host) -> None:
    host.process("7")
    host.counts("7", 3, entries=4)
    (host.root / "proc/8/ns").mkdir(parents=True)
    os.link(host.root / "proc/7/ns/net", host.root / "proc/8/ns/net")
    shutil.copytree(host.root / "proc/7/net", host.root / "proc/8/net")
    source = opened(host)
    read_of(source)
    shutil.rmtree(host.root / "proc/7")
    frames = read_of(source)
    assert moved(frames) == {} and table(frames, "conntrack").rows == [], "nobody has read it"
    host.counts("8", 4)
    frames = read_of(source)
    assert moved(frames) == {}, "counted from here on"
    unnamed = str((host.root / "proc/8/ns/net").stat().st_ino)
    assert [row.labels for row in table(frames, "conntrack").rows] == [{"netns": unnamed}]
    assert late(frames) == (1, 1), "what it counted meanwhile is missing"
    host.counts("8", 6)
    assert moved(read_of(source)) == {unnamed: 2}
    assert (host.reads, host.searches) == (["/proc/7/net/snmp"] * 2 + ["/proc/8/net/snmp"] * 2, 2)


def late(frames: list[AnyFrame]) -> tuple[int, int] | None:
    """How many namespaces were found late: now, in all."""
    for frame in frames:
        if isinstance(frame, Cost):
            return frame.ledger["found_late"].delta, frame.ledger["found_late"].total
    return None


def test_a_namespace_without_a_process_is_read_by_its_name(host: Host) -> None:
    path = host.named_alone("quiet", 5)
    source = opened(host)
    read_of(source)
    path.write_text("Udp: RcvbufErrors\nUdp: 7\n")
    assert moved(read_of(source)) == {"quiet": 2}


def test_a_namespace_that_is_made_later_is_found_at_once_and_counts_from_its_begin(host: Host) -> None:
    host.named_alone("first", 0)
    host.names_are_old()
    source = opened(host)
    read_of(source)
    searches = host.searches
    read_of(source)
    assert host.searches == searches, "nothing has moved"
    host.named_alone("second", 40)
    for _ in range(2):
        frames = read_of(source)
    assert (moved(frames), late(frames)) == ({"second": 40}, None)


def test_another_namespace_with_the_number_of_one_that_is_gone_has_nothing_of_it(host: Host) -> None:
    """It was told to have the connections of the one before, as it was not read for half a minute."""
    host.limit("300\n")
    host.process("7")
    host.named(b"blue", "7")
    host.counts("7", 5, 910)
    host.cost_s = 3 * MAX_SHARE
    source = opened(host)

    def entries(frames: list[AnyFrame]) -> list[tuple[object, object]]:
        return [(row.labels["netns"], row.gauges["entries"]) for row in table(frames, "conntrack").rows]

    assert entries(read_of(source)) == [("blue", 910)]
    names = host.root / "run/netns"
    (names / "blue").rename(names / "red")
    host.counts("7", 2, 1)
    assert entries(read_of(source)) == []
    later = [read_of(source) for _ in range(8)]
    assert [one for frames in later for one in entries(frames)][:1] == [("red", 1)]
    assert [one for frames in later for one in moved(frames).items()][:1] == [("red", 2)], "since it was made"


def test_a_namespace_without_a_name_that_is_found_late_is_said_to_lack_something(host: Host) -> None:
    source = opened(host)
    read_of(source)
    host.process("7")
    host.counts("7", 40)
    ledger = [late(read_of(source)) for _ in range(SEARCH_EVERY + 1)]
    assert ledger == [None] * (SEARCH_EVERY - 1) + [(1, 1), (0, 1)]


def test_the_name_is_there_when_the_last_process_goes(host: Host) -> None:
    host.process("7")
    host.named(b"blue", "7")
    host.names_are_old()
    source = opened(host)
    read_of(source)
    (host.root / "run/netns/blue").write_text("Udp: RcvbufErrors\nUdp: 3\n")
    shutil.rmtree(host.root / "proc/7")
    frames = read_of(source)
    assert (moved(frames), late(frames)) == ({"blue": 3}, None), "nothing of it is missing"


def test_who_may_not_enter_reads_those_with_a_process(host: Host) -> None:
    host.may_not_enter = True
    host.named_alone("quiet", 5)
    host.process("7")
    source = opened(host)
    for number in range(3):
        host.counts("7", number)
        frames = read_of(source)
    assert list(moved(frames).values()) == [2]


def test_what_has_no_process_any_more_is_left_out_at_the_next_search(host: Host) -> None:
    host.process("7")
    host.counts("7", 0, entries=4)
    source = opened(host)
    read_of(source)
    (host.root / "proc/7/ns/net").unlink()
    rows = []
    for number in range(SEARCH_EVERY):
        host.counts("7", number + 1, entries=5 + number)
        frames = read_of(source)
        rows.append([len(table(frames, name).rows) for name in ("counters", "conntrack")])
        assert len(frames) == 2
    assert rows == [[1, 1]] * (SEARCH_EVERY - 1) + [[0, 0]]


@pytest.mark.parametrize(("interval_s", "cost_s", "every"), [(1, 0.0099, 1), (1, 0.025, 3), (2, 0.05, 3)])
def test_namespaces_that_take_long_are_read_less_often(host: Host, interval_s: int, cost_s: float, every: int) -> None:
    host.process("7")
    host.cost_s = cost_s
    source, found = opened(host), []
    interval_ns = interval_s * 1_000_000_000
    for _ in range(7):
        read_of(source, interval_ns)
        found.append(len(host.reads))
    assert found == [1 + number // every for number in range(7)]
    read_of(source, interval_ns, is_whole=True)
    assert len(host.reads) == found[-1] + 1, "a reading that has to have everything"


def test_however_long_they_take_they_are_read_once_in_a_minute(host: Host) -> None:
    host.process("7")
    host.cost_s = 99.0
    source, found = opened(host), []
    for _ in range(MAX_EVERY + 1):
        read_of(source)
        found.append(len(host.reads))
    assert found == [1] * MAX_EVERY + [2]


def test_a_row_that_is_read_less_often_has_its_own_interval(host: Host) -> None:
    host.process("7")
    host.named(b"blue", "7")
    host.cost_s = 3.5 * MAX_SHARE
    source = opened(host)
    read_of(source)
    found = []
    for number in range(1, 9):
        host.counts("self", number)
        host.counts("7", 10 * number)
        found.append({str(row.labels["netns"]): row for row in table(read_of(source), "counters").rows})
    assert [row["host"].interval_ns for row in found] == [None] * 8
    assert [row["host"].counts["count"].delta for row in found] == [1] * 8
    of_blue = {at: row["blue"] for at, row in enumerate(found, 1) if "blue" in row}
    assert {at: row.interval_ns for at, row in of_blue.items()} == {4: 4 * SECOND_NS, 8: 4 * SECOND_NS}
    assert {at: row.counts["count"].delta for at, row in of_blue.items()} == {4: 40, 8: 40}


def test_what_a_new_namespace_has_counted_has_the_time_since_it_was_made(host: Host) -> None:
    """It is made in the second interval, and read in the fourth, the twelfth and the twentieth."""
    host.process("7")
    host.cost_s = 3.5 * MAX_SHARE
    source = opened(host)
    read_of(source)
    told = {}
    for number in range(1, 21):
        if number == 2:
            host.process("8")
            host.named(b"blue", "8")
        if number >= 2:
            host.counts("8", 0 if number < 3 else 30 if number < 15 else 40)
        for row in table(read_of(source), "counters").rows:
            told[number] = row.labels["netns"], row.counts["count"].delta, row.interval_ns
    assert told == {12: ("blue", 30, 11 * SECOND_NS), 20: ("blue", 10, 8 * SECOND_NS)}


def test_namespaces_above_the_limit_are_left_out_and_told(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_counters, "MAX_NAMESPACES", 2)
    monkeypatch.setattr(protocol_counters, "SEARCH_EVERY", 1)
    for pid in ("7", "8", "9"):
        host.process(pid)
        host.counts(pid, 0, entries=1)
    host.counts("self", 0, entries=1)
    source = opened(host)
    said, conntrack, _ = read_of(source)
    assert isinstance(said, Status) and isinstance(conntrack, Table)
    assert (said.state, said.mode) == ("degraded", "summary")
    assert said.why == "counters of 1 more network namespaces are left out: netconsole reads 2 at most"
    assert (len(conntrack.rows), conntrack.omitted, len(host.reads)) == (3, 0, 2)
    assert len(read_of(source)) == 2, "said once"
    shutil.rmtree(host.root / "proc/9")
    said, *_ = read_of(source)
    assert isinstance(said, Status) and (said.state, said.why) == ("attached", None)


def test_how_full_conntrack_is(host: Host) -> None:
    host.process("7")
    host.named(b"blue", "7")
    host.limit("300\n")
    host.counts("self", 0, entries=100)
    host.counts("7", 0, entries=0)
    source = opened(host)

    def shown() -> dict[object, list[object]]:
        rows = table(read_of(source), "conntrack").rows
        return {row.labels["netns"]: [row.gauges[name] for name in ("entries", "limit", "full_pct")] for row in rows}

    assert shown() == {"host": [100, 300, 33.3]}, "the other one has had no connection"
    host.counts("7", 0, entries=3)
    assert shown() == {"blue": [3, 300, 1.0]}, "what has changed"
    host.counts("7", 0, entries=0)
    assert shown() == {"blue": [0, 300, 0.0]}
    for text in ("0\n", "many\n"):
        host.limit(text)
        host.counts("self", 0, entries=len(text))
        assert shown()["host"] == [len(text), None, None]


def test_without_a_cpu_in_its_file_conntrack_has_counted_nothing() -> None:
    assert dict(parse_conntrack("entries drop\n")) == {"Conntrackentries": 0, "Conntrackdrop": 0}
    assert dict(parse_conntrack("entries drop\n1 2\n3\n")) == {"Conntrackentries": 3, "Conntrackdrop": 2}


def test_what_cannot_be_read_here_is_an_error_and_elsewhere_it_is_left_out(host: Host) -> None:
    host.process("7")
    source = opened(host)
    (host.root / "proc/7/net/snmp").write_text("another layout\n")
    read_of(source)
    (host.root / "proc/self/net/snmp").unlink()
    with pytest.raises(SourceError, match=r"^/proc/net: No such file or directory$"):
        read_of(source)
    with pytest.raises(SourceError, match=r"^/proc/net: No such file or directory$"):
        ProtocolCounters(host).open()
