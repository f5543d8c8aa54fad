"""unread: which sockets are told, when a namespace is looked at, and when no longer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from netconsole_collector.primitives.here import Here
from netconsole_collector.sources.base import MAX_EVERY, MAX_SHARE, SourceReading
from netconsole_collector.sources.net.unread import AFTER_NS, FullSocket, UnreadSockets

SECOND_NS = 1_000_000_000
BLUE, RED = 7, 8
PATHS = {BLUE: "/run/netns/blue", RED: "/run/netns/red"}
NAMES = {BLUE: "blue", RED: "red"}


def full(cookie: int = 1, taken: int = 0, waiting: int = 1000) -> FullSocket:
    return FullSocket(cookie, 100 + cookie, 9, "192.0.2.1", 40000, waiting, taken)


class Host(Here):
    """Namespaces with sockets, and what looking at them costs."""

    def __init__(self) -> None:
        super().__init__()
        self.sockets: dict[int, list[FullSocket] | OSError] = {}
        self.looked: list[int] = []
        self.cost_s = self.spent_s = 0.0
        self.asked: list[set[int]] = []

    def each_inside(self, namespaces: Sequence[tuple[str, int]], _make: Callable[[], Any], /) -> list[Any]:
        self.spent_s += self.cost_s
        self.looked += [inode for _, inode in namespaces]
        assert all(PATHS[inode] == path for path, inode in namespaces)
        return [self.sockets.get(inode, []) for _, inode in namespaces]

    def owners(self, sockets: Any) -> dict[int, str]:
        self.asked.append(set(sockets))
        return {101: "stuck/33"}

    def cpu_s(self) -> float:
        return self.spent_s


class Course:
    """Readings one after another."""

    def __init__(self) -> None:
        self.host = Host()
        self.unread = UnreadSockets(self.host)
        self.now_ns = 0

    def read(self, after_ns: int = SECOND_NS) -> list[dict[str, Any]] | None:
        """The rows of the next reading; None where no table is sent."""
        self.now_ns += after_ns
        reading = SourceReading(after_ns, self.now_ns)
        tables = self.unread.table("p", reading, PATHS, NAMES)
        return tables[0]["rows"] if tables else None


@pytest.fixture
def course() -> Course:
    return Course()


def test_a_socket_that_nobody_reads_is_told_after_some_seconds(course: Course) -> None:
    course.unread.counted(BLUE, (0, 0, 0))
    assert course.read() is None and course.host.looked == [], "no window was closed"
    course.unread.counted(BLUE, (1, 0, 0))
    course.host.sockets[BLUE] = [full()]
    assert course.read() is None
    assert course.read(AFTER_NS - 1) is None
    rows = course.read(1)
    assert rows is not None
    (row,) = rows
    assert row["labels"] == {
        "process": "stuck/33", "port": 9, "peer": "192.0.2.1", "peer_port": 40000, "netns": "blue",
    }  # fmt: skip
    assert row["gauges"] == {"waiting": 1000, "unread_s": AFTER_NS // SECOND_NS}
    assert course.read() is not None and course.host.asked == [{101}], "its process is looked for once"
    course.host.sockets[BLUE] = []
    assert course.read() == []
    looked = len(course.host.looked)
    assert course.read() == [] and len(course.host.looked) == looked, "nothing is full there any more"


@pytest.mark.parametrize(("inode", "process"), [(101, "stuck/33"), (0, "the listening program"), (102, "a program")])
def test_whose_socket_it_is(course: Course, inode: int, process: str) -> None:
    course.unread.counted(BLUE, (1, 0, 0))
    course.host.sockets[BLUE] = [full()._replace(inode=inode)]
    course.read()
    rows = course.read(AFTER_NS)
    assert rows is not None and [row["labels"]["process"] for row in rows] == [process]


def test_a_program_that_reads_in_between_is_only_slow(course: Course) -> None:
    course.unread.counted(BLUE, (1, 0, 0))
    for taken in range(20):
        course.host.sockets[BLUE] = [full(taken=taken)]
        assert course.read() is None
    assert course.host.asked == []


@pytest.mark.parametrize(
    ("before", "now", "is_looked_at"),
    [
        (None, (3, 0, 2), True),  # closed since before the start
        (None, (3, 9, 3), False),
        ((3, 0, 2), (4, 0, 3), True),
        ((3, 0, 2), (3, 1, 2), True),
        ((3, 0, 2), (3, 0, 3), False),
        ((3, 0, 0), (3, 0, 0), False),
    ],
)
def test_what_makes_a_namespace_be_looked_at(
    course: Course, before: tuple[int, ...] | None, now: tuple[int, ...], is_looked_at: bool
) -> None:
    if before is not None:
        course.unread.counted(BLUE, before)
        course.read()
    course.host.looked.clear()
    course.unread.counted(BLUE, now)
    course.read()
    assert course.host.looked == [BLUE] * is_looked_at


def test_a_namespace_that_is_gone_is_forgotten(course: Course) -> None:
    course.unread.counted(BLUE, (1, 0, 0))
    course.unread.counted(RED, (1, 0, 0))
    course.host.sockets = {BLUE: FileNotFoundError(2, "gone"), RED: [full()]}
    course.read()
    course.host.looked.clear()
    course.read()
    assert course.host.looked == [RED]


def test_what_takes_long_is_looked_at_less_often(course: Course) -> None:
    course.unread.counted(BLUE, (1, 0, 0))
    course.host.sockets[BLUE] = [full()]
    course.host.cost_s = 3.5 * MAX_SHARE
    for _ in range(9):
        course.read()
    assert len(course.host.looked) == 3
    course.host.cost_s = 99.0
    for _ in range(3 * MAX_EVERY):
        course.read()
    assert len(course.host.looked) == 3 + 3
