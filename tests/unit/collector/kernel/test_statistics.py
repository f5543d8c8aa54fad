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
        self.now = 0
        self.late_ns = 0
        """For how long the thread that reads loses its CPU, the next time."""
        self.lost_before: dict[int, int] = {}
        """The same, before it reads this program."""
        self.on: set[int] = set()
        self.runs: dict[int, int] = {}
        self._fds = itertools.count(1000)
        monkeypatch.setattr(syscalls, "enable_statistics", self._enable)
        monkeypatch.setattr(syscalls, "program_info", self._info)
        monkeypatch.setattr("os.close", self.on.discard)

    def clock(self) -> int:
        return self.now

    def _enable(self) -> int:
        fd = next(self._fds)
        self.on.add(fd)
        return fd

    def _info(self, fd: int) -> syscalls.ProgramInfo:
        self.now, self.late_ns = self.now + self.late_ns + self.lost_before.pop(fd, 0), 0
        count = self.runs.get(fd, 0)
        return syscalls.ProgramInfo(26, fd, "program", 10 * count, count, 0)

    def run(self, fd: int, times: int) -> None:
        self.runs[fd] = self.runs.get(fd, 0) + (times if self.on else 0)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def test_a_window_measures_what_runs_in_it(kernel: Kernel) -> None:
    window = StatisticsWindow(200 * MS, SECOND, kernel.clock)
    window.add(1)
    window.tick(kernel.now)
    kernel.run(1, 5)
    kernel.now = 200 * MS
    window.tick(kernel.now)
    kernel.run(1, 50)
    kernel.now = SECOND
    assert window.take([1]) == ([(5, 50)], 200 * MS)
    assert window.take([1]) == ([(0, 0)], 0)


def test_runs_while_the_reader_had_lost_its_cpu_are_held_against_that_time_too(kernel: Kernel) -> None:
    window = StatisticsWindow(20 * MS, SECOND, kernel.clock)
    window.add(1)
    window.tick(kernel.now)
    kernel.run(1, 90)
    kernel.late_ns = 90 * MS
    assert window.take([1]) == ([(90, 900)], 90 * MS), "of the beginning of its window, all read at once"


def test_of_a_program_that_was_read_late_no_runs_are_held_against_the_window_of_another(kernel: Kernel) -> None:
    window = StatisticsWindow(20 * MS, SECOND, kernel.clock)
    window.add(1)
    window.add(2)
    window.tick(kernel.now)
    kernel.now = 20 * MS
    kernel.run(1, 20)
    kernel.run(2, 100)
    kernel.lost_before[2] = 80 * MS
    window.tick(kernel.now)
    assert window.take([1, 2]) == ([(20, 200), (20, 200)], 20 * MS), "each runs once a millisecond"


def test_a_window_as_long_as_its_period_never_closes(kernel: Kernel) -> None:
    window = StatisticsWindow(SECOND, SECOND, kernel.clock)
    window.add(1)
    for second in range(3):
        kernel.now = second * SECOND
        window.tick(kernel.now)
        assert len(kernel.on) == 1, second
        assert window.deadline_ns() is None, "or whoever waits for it would not wait at all"
        kernel.run(1, 7)
    kernel.now = 3 * SECOND
    assert window.take([1]) == ([(21, 210)], 3 * SECOND)
    kernel.now = 4 * SECOND
    window.configure(0, SECOND, kernel.now)
    assert not kernel.on and window.deadline_ns() is None


def test_programs_of_one_probe_are_held_against_the_shortest_of_their_windows(kernel: Kernel) -> None:
    """A program that comes amid a window: what it takes must not be spread over time that it was not there."""
    window = StatisticsWindow(200 * MS, SECOND, kernel.clock)
    window.add(1)
    window.tick(kernel.now)
    kernel.now = 50 * MS
    window.add(2)
    kernel.run(2, 3)
    kernel.now = 200 * MS
    window.tick(kernel.now)
    kernel.now = SECOND
    assert window.take([1, 2]) == ([(0, 0), (3, 30)], 150 * MS)


def test_what_was_measured_of_a_sampled_program_stands_for_all_of_its_share(kernel: Kernel) -> None:
    window = StatisticsWindow(20 * MS, SECOND, kernel.clock)
    window.add(1)
    window.sample([1])
    kernel.now = 10 * MS
    window.hold()
    kernel.run(1, 30)
    kernel.now = 20 * MS
    assert window.take([1]) == ([(0, 0)], 0), "its period goes on"
    kernel.run(1, 30)
    kernel.now = 30 * MS
    window.release()
    kernel.run(1, 1000)
    window.cover([1], 100 * MS, SECOND)
    kernel.now = SECOND
    assert window.take([1]) == ([(300, 3000)], SECOND)


def test_a_period_without_a_hold_says_nothing(kernel: Kernel) -> None:
    window = StatisticsWindow(20 * MS, SECOND, kernel.clock)
    window.add(1)
    window.sample([1])
    window.cover([1], 100 * MS, SECOND)
    kernel.now = SECOND
    assert window.take([1]) == ([(0, 0)], 0)
    kernel.now = 2 * SECOND
    window.hold()
    kernel.run(1, 4)
    kernel.now = 2 * SECOND + 20 * MS
    window.release()
    window.cover([1], 40 * MS, 2 * SECOND)
    kernel.now = 4 * SECOND
    assert window.take([1]) == ([(8, 80)], 2 * SECOND)


def test_a_program_that_is_always_attached_is_measured_in_the_windows_alone(kernel: Kernel) -> None:
    window = StatisticsWindow(20 * MS, SECOND, kernel.clock)
    window.add(1)
    window.add(2)
    window.tick(kernel.now)
    kernel.run(2, 4)
    kernel.now = 20 * MS
    window.tick(kernel.now)
    kernel.now = 30 * MS
    window.sample([1])
    window.hold()
    kernel.run(2, 1000)
    kernel.now = 130 * MS
    window.release()
    kernel.now = SECOND
    assert window.take([2]) == ([(4, 40)], 20 * MS)
    assert not kernel.on


def test_a_hold_and_a_window_do_not_end_each_other(kernel: Kernel) -> None:
    window = StatisticsWindow(20 * MS, SECOND, kernel.clock)
    window.add(1)
    window.add(2)
    window.sample([1])
    window.hold()
    kernel.now = 10 * MS
    window.tick(kernel.now)
    kernel.now = 15 * MS
    window.release()
    kernel.run(2, 7)
    kernel.now = 30 * MS
    window.tick(kernel.now)
    kernel.now = SECOND
    assert not kernel.on and window.take([2]) == ([(7, 70)], 20 * MS)
    window.hold()
    kernel.now = SECOND + 10 * MS
    window.tick(kernel.now)
    kernel.now = SECOND + 30 * MS
    window.tick(kernel.now)
    assert kernel.on, "the hold goes on"


def test_beside_sampled_programs_the_others_are_scaled_to_the_same_time(kernel: Kernel) -> None:
    window = StatisticsWindow(20 * MS, SECOND, kernel.clock)
    window.add(1)
    window.add(2)
    window.sample([1])
    window.hold()
    kernel.run(1, 6)
    kernel.now = 100 * MS
    window.release()
    kernel.now = 200 * MS
    window.tick(kernel.now)
    kernel.run(2, 3)
    kernel.now = 220 * MS
    window.tick(kernel.now)
    window.cover([1], 100 * MS, SECOND)
    kernel.now = SECOND
    assert window.take([1, 2]) == ([(6, 60), (150, 1500)], SECOND)
    window.hold()
    kernel.now = SECOND + 100 * MS
    window.release()
    window.cover([1], 100 * MS, 2 * SECOND)
    kernel.now = 2 * SECOND
    assert window.take([1, 2]) == ([(0, 0), (300, 3000)], 2 * SECOND), "as in the last window"


def test_a_program_that_is_attached_all_the_time_again_is_measured_in_windows_again(kernel: Kernel) -> None:
    window = StatisticsWindow(20 * MS, SECOND, kernel.clock)
    window.add(1)
    window.sample([1])
    window.hold()
    kernel.run(1, 9)
    kernel.now = 50 * MS
    window.free([1])
    window.release()
    kernel.now = 100 * MS
    window.tick(kernel.now)
    kernel.run(1, 2)
    kernel.now = 120 * MS
    window.tick(kernel.now)
    kernel.now = SECOND
    assert window.take([1]) == ([(2, 20)], 20 * MS)


def test_statistics_that_are_switched_off_are_not_switched_on_for_a_hold(kernel: Kernel) -> None:
    window = StatisticsWindow(0, SECOND, kernel.clock)
    window.add(1)
    window.sample([1])
    window.hold()
    assert not kernel.on
    kernel.now = SECOND
    window.close()
