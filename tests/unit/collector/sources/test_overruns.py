"""overruns: what is told of sockets that nobody reads, and how often a namespace is read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from netconsole_collector.primitives.here import Here
from netconsole_collector.sources.base import SourceReading
from netconsole_collector.sources.net.overruns import (
    FILES,
    IN_TURN,
    NETLINK,
    RAW,
    LossySocket,
    Overruns,
    parse,
    parse_raw,
)

SECOND_NS = 1_000_000_000
OWN, BLUE = 1, 7
HEAD = b"sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n"


def content(**drops: int) -> bytes:
    """``s101=3``: the socket with inode 101 has lost 3."""
    line = b"000000000ec3c58b 0   77         00000010 0        0        0     2        %d        %s       \n"
    return HEAD + b"".join(line % (count, inode[1:].encode()) for inode, count in drops.items())


class Host(Here):
    """Namespaces by their paths, and who has which socket."""

    def __init__(self) -> None:
        super().__init__()
        self.own = content()
        self.others: dict[int, bytes] = {}
        self.inside_read: list[int] = []
        self.processes = {101: "router/33", 102: f"python3/{os.getpid()}"}
        self.asked: list[set[int]] = []

    def read_each(self, directory: str, names: Iterable[str]) -> dict[str, bytes]:
        assert (directory, tuple(names)) == ("/proc/net", FILES)
        return {NETLINK: self.own}

    def read_inside(
        self, namespaces: Sequence[tuple[str, int]], _names: Sequence[str], /
    ) -> list[dict[str, bytes] | OSError]:
        self.inside_read += [inode for _, inode in namespaces]
        return [{NETLINK: self.others.get(inode, content())} for _, inode in namespaces]

    def owners(self, sockets: Any) -> dict[int, str]:
        self.asked.append(set(sockets))
        return {inode: self.processes[inode] for inode in sockets if inode in self.processes}


class Course:
    """Readings one after another."""

    def __init__(self, others: Sequence[int] = (BLUE,)) -> None:
        self.host = Host()
        self.paths = {OWN: "", **{one: f"/run/netns/{one}" for one in others}}
        self.drops = Overruns(self.host)
        self.now_ns = 0

    def read(self, is_whole: bool = False) -> list[dict[str, Any]] | None:
        """The rows of the next reading; None where no table is sent."""
        self.now_ns += SECOND_NS
        reading = SourceReading(SECOND_NS, self.now_ns, is_whole=is_whole)
        tables = self.drops.table("p", reading, OWN, self.paths, {OWN: "host", BLUE: "blue"})
        return tables[0]["rows"] if tables else None


def test_the_layout_of_the_kernel() -> None:
    assert list(parse(content(s101=3))) == [LossySocket(101, NETLINK, "route", 3)]
    assert list(parse(content(s101=3).replace(b" 0   77", b" 99  77"))) == [LossySocket(101, NETLINK, "99", 3)]
    with pytest.raises(ValueError, match="short"):
        list(parse(HEAD + b"short\n"))


def test_the_layout_of_raw_sockets() -> None:
    head = b"  sl local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode ref ptr drops\n"
    line = b"   89: 00000000:0059 00000000:0000 07 00000000:00000F00 00:00000000 00000000 0 0 40089 2 00b0bb4832 %d\n"
    assert list(parse_raw(head + line % 890)) == [LossySocket(40089, RAW, "OSPF", 890)]
    assert list(parse_raw(head + line.replace(b":0059", b":00FE") % 0)) == [LossySocket(40089, RAW, "protocol 254", 0)]
    assert list(parse_raw(b"")) == []
    with pytest.raises(ValueError, match="short"):
        list(parse_raw(head + b"short\n"))


def test_a_socket_that_loses_messages_is_told_with_its_process_and_what_it_lost_since_the_start() -> None:
    course = Course()
    course.host.own = content(s101=5, s103=0)
    assert course.read() is None and course.host.asked == [], "what it lost before nobody watched"
    course.host.own = content(s101=8, s103=0)
    rows = course.read()
    assert rows is not None
    (row,) = rows
    assert row["labels"] == {
        "process": "router/33",
        "kind": "netlink",
        "protocol": "route",
        "inode": 101,
        "netns": "host",
    }
    assert row["counts"] == {"drops": {"delta": 3, "total": 3}}
    course.host.own = content(s101=9, s103=1)
    rows = course.read()
    assert rows is not None
    told = {row["labels"]["process"]: row["counts"]["drops"] for row in rows}
    assert told == {"router/33": {"delta": 1, "total": 4}, "a program": {"delta": 1, "total": 1}}
    assert course.host.asked == [{101}, {103}], "each is looked for once"
    course.host.own = content()
    assert course.read() == []


def test_a_socket_that_was_made_meanwhile_counts_from_its_beginning() -> None:
    course = Course()
    course.read()
    course.host.others[BLUE] = content(s101=2)
    rows = course.read()
    assert rows is not None and [row["counts"]["drops"]["total"] for row in rows] == [2]
    assert rows[0]["labels"]["netns"] == "blue"


def test_a_namespace_that_was_made_meanwhile_counts_from_its_beginning() -> None:
    course = Course(())
    course.read()
    course.paths[BLUE] = "/run/netns/blue"
    course.host.others[BLUE] = content(s101=2)
    rows = course.read()
    assert rows is not None and [row["counts"]["drops"]["total"] for row in rows] == [2]


def test_what_netconsole_itself_loses_is_no_fault_of_this_host() -> None:
    course = Course()
    course.read()
    course.host.own = content(s102=7)
    assert course.read() == []


def test_other_namespaces_are_read_in_turn_and_their_rows_say_for_how_long_they_stand() -> None:
    others = range(100, 100 + 2 * IN_TURN + 1)
    course = Course(others)
    for _ in range(3):
        course.read()
    assert sorted(course.host.inside_read[: len(others)]) == list(others), "each once before one of them again"
    course.host.others[others[0]] = content(s101=6)
    rows = None
    while not rows:
        rows = course.read()
    assert rows[0]["counts"]["drops"]["delta"] == 6 and rows[0]["interval_ns"] > SECOND_NS
    course.host.inside_read.clear()
    course.read(is_whole=True)
    assert sorted(course.host.inside_read) == list(others)


def test_a_namespace_that_is_gone_is_forgotten() -> None:
    course = Course()
    course.read()
    course.host.others[BLUE] = content(s101=2)
    assert course.read()
    del course.paths[BLUE]
    assert course.read() == [] and course.read() is None
