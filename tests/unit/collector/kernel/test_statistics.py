"""Which runs of a program are in its figures: those of windows, or, of a sampled program, those of its periods."""

from __future__ import annotations

import itertools

import pytest

from netconsole_collector.kernel import syscalls
from netconsole_collector.kernel.statistics import StatisticsWindow

MS = 1_000_000
SECOND = 1000 * MS


class Kernel:
    """Programs that run all the time, counted only while statistics are on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on: set[int] = set()
        self.runs: dict[int, int] = {}
        self._fds = itertools.count(1000)
        monkeypatch.setattr(syscalls, "enable_statistics", self._enable)
        monkeypatch.setattr(syscalls, "program_info", self._info)
        monkeypatch.setattr("os.close", self.on.discard)

    def _enable(self) -> int:
        fd = next(self._fds)
        self.on.add(fd)
        return fd

    def _info(self, fd: int) -> syscalls.ProgramInfo:
        count = self.runs.get(fd, 0)
        return syscalls.ProgramInfo(26, fd, "program", 10 * count, count, 0)

    def run(self, fd: int, times: int) -> None:
        self.runs[fd] = self.runs.get(fd, 0) + (times if self.on else 0)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def test_a_window_measures_what_runs_in_it(kernel: Kernel) -> None:
    window = StatisticsWindow(200 * MS, SECOND)
    window.add(1, 0)
    window.tick(0)
    kernel.run(1, 5)
    window.tick(200 * MS)
    kernel.run(1, 50)
    assert window.take([1], SECOND) == ([(5, 50)], 200 * MS)
    assert window.take([1], SECOND) == ([(0, 0)], 0)


def test_a_window_as_long_as_its_period_never_closes(kernel: Kernel) -> None:
    window = StatisticsWindow(SECOND, SECOND)
    window.add(1, 0)
    for second in range(3):
        window.tick(second * SECOND)
        assert len(kernel.on) == 1, second
        assert window.deadline_ns() is None, "or whoever waits for it would not wait at all"
        kernel.run(1, 7)
    assert window.take([1], 3 * SECOND) == ([(21, 210)], 3 * SECOND)
    window.configure(0, SECOND, 4 * SECOND)
    assert not kernel.on and window.deadline_ns() is None


def test_programs_of_one_probe_are_held_against_the_shortest_of_their_windows(kernel: Kernel) -> None:
    """A program that comes amid a window: what it takes must not be spread over time that it was not there."""
    window = StatisticsWindow(200 * MS, SECOND)
    window.add(1, 0)
    window.tick(0)
    window.add(2, 50 * MS)
    kernel.run(2, 3)
    window.tick(200 * MS)
    assert window.take([1, 2], SECOND) == ([(0, 0), (3, 30)], 150 * MS)


def test_what_was_measured_of_a_sampled_program_stands_for_all_of_its_share(kernel: Kernel) -> None:
    window = StatisticsWindow(0 + 20 * MS, SECOND)
    window.add(1, 0)
    window.sample([1], 0)
    window.hold(10 * MS)
    kernel.run(1, 30)
    assert window.take([1], 20 * MS) == ([(0, 0)], 0), "its period goes on"
    kernel.run(1, 30)
    window.release(30 * MS)
    kernel.run(1, 1000)
    window.cover([1], 100 * MS, SECOND)
    assert window.take([1], SECOND) == ([(300, 3000)], SECOND)


def test_a_period_without_a_hold_says_nothing(kernel: Kernel) -> None:
    window = StatisticsWindow(20 * MS, SECOND)
    window.add(1, 0)
    window.sample([1], 0)
    window.cover([1], 100 * MS, SECOND)
    assert window.take([1], SECOND) == ([(0, 0)], 0)
    window.hold(2 * SECOND)
    kernel.run(1, 4)
    window.release(2 * SECOND + 20 * MS)
    window.cover([1], 40 * MS, 2 * SECOND)
    assert window.take([1], 4 * SECOND) == ([(8, 80)], 2 * SECOND)


def test_a_program_that_is_always_attached_is_measured_in_the_windows_alone(kernel: Kernel) -> None:
    window = StatisticsWindow(20 * MS, SECOND)
    window.add(1, 0)
    window.add(2, 0)
    window.tick(0)
    kernel.run(2, 4)
    window.tick(20 * MS)
    window.sample([1], 30 * MS)
    window.hold(30 * MS)
    kernel.run(2, 1000)
    window.release(130 * MS)
    assert window.take([2], SECOND) == ([(4, 40)], 20 * MS)
    assert not kernel.on


def test_a_hold_and_a_window_do_not_end_each_other(kernel: Kernel) -> None:
    window = StatisticsWindow(20 * MS, SECOND)
    window.add(1, 0)
    window.add(2, 0)
    window.sample([1], 0)
    window.hold(0)
    window.tick(10 * MS)
    window.release(15 * MS)
    kernel.run(2, 7)
    window.tick(30 * MS)
    assert not kernel.on and window.take([2], SECOND) == ([(7, 70)], 20 * MS)
    window.hold(SECOND)
    window.tick(SECOND + 10 * MS)
    window.tick(SECOND + 30 * MS)
    assert kernel.on, "the hold goes on"


def test_beside_sampled_programs_the_others_are_scaled_to_the_same_time(kernel: Kernel) -> None:
    window = StatisticsWindow(20 * MS, SECOND)
    window.add(1, 0)
    window.add(2, 0)
    window.sample([1], 0)
    window.hold(0)
    kernel.run(1, 6)
    window.release(100 * MS)
    window.tick(200 * MS)
    kernel.run(2, 3)
    window.tick(220 * MS)
    window.cover([1], 100 * MS, SECOND)
    assert window.take([1, 2], SECOND) == ([(6, 60), (150, 1500)], SECOND)
    window.hold(SECOND)
    window.release(SECOND + 100 * MS)
    window.cover([1], 100 * MS, 2 * SECOND)
    assert window.take([1, 2], 2 * SECOND) == ([(0, 0), (300, 3000)], 2 * SECOND), "as in the last window"


def test_a_program_that_is_attached_all_the_time_again_is_measured_in_windows_again(kernel: Kernel) -> None:
    window = StatisticsWindow(20 * MS, SECOND)
    window.add(1, 0)
    window.sample([1], 0)
    window.hold(0)
    kernel.run(1, 9)
    window.free([1], 50 * MS)
    window.release(50 * MS)
    window.tick(100 * MS)
    kernel.run(1, 2)
    window.tick(120 * MS)
    assert window.take([1], SECOND) == ([(2, 20)], 20 * MS)


def test_statistics_that_are_switched_off_are_not_switched_on_for_a_hold(kernel: Kernel) -> None:
    window = StatisticsWindow(0, SECOND)
    window.add(1, 0)
    window.sample([1], 0)
    window.hold(0)
    assert not kernel.on
    window.close(SECOND)
