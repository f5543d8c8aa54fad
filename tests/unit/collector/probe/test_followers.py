"""A program behind another probe's misses what that one misses, and one that cannot be attached again is said."""

from __future__ import annotations

import os

import pytest

from netconsole_collector.kernel import attach, syscalls
from netconsole_collector.kernel.attach import CannotAttach
from netconsole_collector.probe.attached_program import AttachedProgram
from netconsole_collector.probe.followers import settle

POINT = "raw_tracepoint:kfree_skb"


class Places:
    """A BPF_PROG_ARRAY."""

    def __init__(self) -> None:
        self.held: dict[bytes, bytes] = {}

    def set(self, key: bytes, value: bytes) -> None:
        self.held[key] = value

    def delete(self, key: bytes) -> bool:
        return self.held.pop(key, None) is not None


def program(name: str, fd: int, calls: Places | None = None) -> AttachedProgram:
    """An attached program; it leads when it has places for others, else it follows."""
    entry = {"name": name, "measures": name, "follows": calls is None}
    made = AttachedProgram(entry, POINT, fd, os.open(os.devnull, os.O_RDONLY))
    if calls is not None:
        made.lead(calls)  # type: ignore[arg-type]
    return made


class Kernel:
    """What it tells of programs, and whether it lets one be attached."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.missed: dict[int, int | None] = {1: 0, 2: 0}
        self.refuses = False
        monkeypatch.setattr(
            syscalls, "program_info", lambda fd: syscalls.ProgramInfo(17, fd, "", None, None, self.missed[fd])
        )
        monkeypatch.setattr(attach, "attach", self._attach)

    def _attach(self, *unused: object) -> int:
        if self.refuses:
            raise CannotAttach("no memory")
        return os.open(os.devnull, os.O_RDONLY)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def test_what_the_leader_misses_its_follower_misses_too(kernel: Kernel) -> None:
    places = Places()
    leader, follower = program("drop", 1, places), program("freed", 2)
    kernel.missed = {1: 100, 2: 5}
    assert settle([leader, follower]) == []
    assert (follower.is_attached, len(places.held)) == (False, 1)
    assert follower.missed() == 5, "what was missed before it came is not its loss"
    kernel.missed[1] = 107
    assert follower.missed() == 5 + 7
    assert settle([follower]) == []
    kernel.missed = {1: 1000, 2: 6}
    assert (follower.is_attached, len(places.held)) == (True, 0)
    assert follower.missed() == 6 + 7
    settle([leader, follower])
    kernel.missed[1] = 1001
    assert follower.missed() == 6 + 7 + 1
    kernel.missed = {1: None, 2: None}
    assert follower.missed() is None


def test_a_program_that_cannot_be_attached_again_is_said(kernel: Kernel) -> None:
    places = Places()
    leader, follower, other = program("drop", 1, places), program("freed", 2), program("more", 2)
    assert settle([leader, follower, other]) == []
    assert other.is_attached, "there is one place"
    kernel.refuses = True
    assert settle([follower, other]) == [follower]
    assert follower.why_not == "no memory" and other.why_not is None
    assert not places.held
    assert settle([follower, other]) == [], "once"
