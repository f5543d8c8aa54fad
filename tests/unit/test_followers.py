"""A program behind another probe's misses what that one misses, and one that cannot be attached again is said."""

from __future__ import annotations

import os
from typing import Any

import pytest

from netconsole_collector.kernel import attach, syscalls
from netconsole_collector.kernel.attach import NotHere
from netconsole_collector.probe import followers

POINT = "raw_tracepoint:kfree_skb"


class Places:
    """A BPF_PROG_ARRAY."""

    def __init__(self) -> None:
        self.held: dict[bytes, bytes] = {}

    def set(self, key: bytes, value: bytes) -> None:
        self.held[key] = value

    def delete(self, key: bytes) -> bool:
        return self.held.pop(key, None) is not None


class Probe:
    """A running probe with one program."""

    def __init__(self, name: str, mark: str, program: int) -> None:
        self.spec = {"programs": [{"name": name, mark: True}]}
        self.programs: list[dict[str, Any]] = [
            {"name": name, "attach": POINT, "program": program, "link": os.open(os.devnull, os.O_RDONLY)}
        ]
        self.places = Places()
        self.missing: list[str] = []

    def map(self, name: str) -> Places:
        assert name == followers.MAP
        return self.places

    def miss(self, program: dict[str, Any], why: str) -> None:
        self.missing.append(why)


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
            raise NotHere("no memory")
        return os.open(os.devnull, os.O_RDONLY)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def settle(*probes: Probe) -> list[object]:
    return list(followers.settle(list(probes)))  # type: ignore[arg-type]


def test_what_the_leader_misses_its_follower_misses_too(kernel: Kernel) -> None:
    leader, follower = Probe("drop", "leads", 1), Probe("freed", "follows", 2)
    (program,) = follower.programs
    kernel.missed = {1: 100, 2: 5}
    assert settle(leader, follower) == []
    assert program["link"] < 0 and leader.places.held
    assert followers.missed(program) == 5, "what was missed before it came is not its loss"
    kernel.missed[1] = 107
    assert followers.missed(program) == 5 + 7
    assert settle(follower) == []
    kernel.missed = {1: 1000, 2: 6}
    assert program["link"] >= 0 and not leader.places.held
    assert followers.missed(program) == 6 + 7
    settle(leader, follower)
    kernel.missed[1] = 1001
    assert followers.missed(program) == 6 + 7 + 1
    kernel.missed = {1: None, 2: None}
    assert followers.missed(program) is None


def test_a_program_that_cannot_be_attached_again_is_said(kernel: Kernel) -> None:
    leader, follower, other = Probe("drop", "leads", 1), Probe("freed", "follows", 2), Probe("more", "follows", 2)
    assert settle(leader, follower, other) == []
    assert other.programs[0]["link"] >= 0, "there is one place"
    kernel.refuses = True
    assert settle(follower, other) == [follower]
    assert follower.missing == ["no memory"] and not other.missing
    assert not leader.places.held
    assert settle(follower, other) == [], "once"
