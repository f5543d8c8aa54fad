"""A capture has the points that a machine tells, and does without what makes no sense."""

from __future__ import annotations

import sys

import pytest

from netconsole.far.host import THIS_HOST, ThisHost
from netconsole.far.program import Launch
from netconsole.ping.capture import GuestTsc
from netconsole.run.ping_capture import TscPoints

POINT = '{"ns": %d, "tsc": %d, "hz": 2.5e9, "accuracy_us": 0.2}'
GUEST = '{"vm": "web", "offset": -7, "ratio": 0, "fraction_bits": 0}'


class Telling(ThisHost):
    """Its reader says this, and the taps that it was asked for."""

    def __init__(self, *said: str) -> None:
        self.said = iter(said)
        self.asked: list[tuple[str, ...]] = []

    def launch_of(self, module: str, *arguments: str) -> Launch:
        self.asked.append(arguments)
        return Launch([sys.executable, "-ISc", f"print({next(self.said)!r})"])


def answer(ns: int, guest: str = "null") -> str:
    return f'{{"points": [{POINT % (ns, ns * 2)}], "guest": {guest}}}'


def test_the_first_point_and_the_last_one_are_kept_with_what_kvm_adds() -> None:
    host = Telling(answer(1), answer(2), answer(3, GUEST))
    points = TscPoints(host)
    points.read()
    points.read(["vnet0"])
    points.read(["vnet0"])
    assert [point.ns for point in points.points] == [1, 3]
    assert points.guest == GuestTsc(-7, vm="web")
    assert host.asked == [(), ("vnet0",), ("vnet0",)]


@pytest.mark.parametrize(
    "said",
    [
        "",
        "[]",
        "x" * 100_000,
        "[" * 5000,
        '{"points": [{"ns": 1, "tsc": -1, "hz": 0, "accuracy_us": 1}]}',
        '{"guest": 7}',
    ],
)
def test_what_makes_no_sense_is_left_out(said: str) -> None:
    points = TscPoints(Telling(answer(1), said))
    points.read()
    points.read()
    assert [point.ns for point in points.points] == [1] and points.guest is None


def test_this_machine_tells_the_same_clock_as_the_collector() -> None:
    points = TscPoints(THIS_HOST)
    points.read()
    points.read()
    if not points.points:
        pytest.skip("cannot run here: nobody can read the TSC")
    first, last = points.points
    assert first.ns < last.ns and first.tsc < last.tsc
