"""Run counts and times: right while a window is open, off while none is, and cheap."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.telemetry import frames
from tests.support.live.collector_driver import Driver, call, of

pytestmark = pytest.mark.starting

SYSCTL = Path("/proc/sys/kernel/bpf_stats_enabled")


def measured(driver: Driver) -> list[frames.Cost]:
    return [cost for cost in of(frames.Cost, driver.seen) if cost.statistics and cost.statistics.window_ns]


def test_a_window_that_never_closes_counts_every_run(driver: Driver) -> None:
    assert driver.ask(command="statistics", window_ms=1000, every_ms=1000).ok
    driver.load()
    driver.until(
        frames.Cost, lambda cost: cost.probe == "calls" and bool(cost.statistics and cost.statistics.window_ns)
    )
    call(5, 3000)
    driver.ask(command="unload", probe="calls")
    runs = sum(program.run_count for cost in measured(driver) for program in cost.programs)
    time_ns = sum(program.run_time_ns for cost in measured(driver) for program in cost.programs)
    assert runs >= 3000  # every process's system calls enter the program
    assert time_ns > 0


def test_windows_are_a_share_and_say_so(driver: Driver) -> None:
    assert driver.ask(command="statistics", window_ms=25, every_ms=500).ok
    assert driver.ask(command="interval", ms=50).ok
    driver.load()
    for _ in range(50):
        driver.until(frames.Cost, lambda cost: cost.probe is None)
    costs = [cost for cost in of(frames.Cost, driver.seen) if cost.statistics]
    windows = sum(cost.statistics.window_ns for cost in costs if cost.statistics)
    intervals = sum(cost.interval_ns for cost in costs)
    assert 0 < windows < intervals / 2
    assert any(cost.statistics and not cost.statistics.window_ns for cost in costs)
    for cost in costs:
        assert cost.statistics is not None
        # A short interval of a busy machine may lie within one window.
        assert cost.statistics.estimated == (cost.statistics.window_ns < cost.statistics.interval_ns)
        if not cost.statistics.window_ns:
            assert all(program.run_count == 0 for program in cost.programs)


def test_statistics_can_be_switched_off(driver: Driver) -> None:
    assert driver.ask(command="statistics", window_ms=0, every_ms=1000).ok
    driver.load()
    driver.interval()
    cost = of(frames.Cost, driver.seen)[-1]
    assert cost.statistics is None
    assert cost.programs[0].missed == 0


def test_the_sysctl_of_the_host_is_left_alone(driver: Driver) -> None:
    before = SYSCTL.read_text()
    driver.ask(command="statistics", window_ms=1000, every_ms=1000)
    driver.load()
    driver.interval()
    assert SYSCTL.read_text() == before
