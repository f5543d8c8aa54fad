"""A running session against a baseline, window by window: when one is over, and what lasts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from netconsole.base.fact_keys import FactData
from netconsole.compare import live
from netconsole.compare.live import LiveComparison
from netconsole.profile.profile import Profile
from netconsole.telemetry.frames import Count, Row, Table
from netconsole.telemetry.state import State
from tests.unit.compare.test_reference import MANIFESTS, Now, healthy
from tests.unit.telemetry.test_state import SECOND


class Running:
    """A session that goes on by seconds, and what it compares."""

    def __init__(self, read_facts: Any = None, **baseline: Any) -> None:
        self.now = Now()
        self.total = 0
        runs = [100.0, 101.0, 99.0, 100.0, 102.0]
        self.comparison = LiveComparison(
            self,  # type: ignore[arg-type]
            MANIFESTS,
            lambda: Profile("summary"),
            healthy(*runs, **baseline),
            {},
            read_facts,
        )

    @contextmanager
    def view(self) -> Iterator[State]:
        yield self.now.stream.state

    def second(self, errors: int = 0, late_ns: int = 0, **labels: Any) -> None:
        """One interval, and a tick."""
        self.total += errors
        counts = {"rx_packets": Count(100, 0), "rx_errors": Count(errors, self.total)}
        self.now._apply("link_rates", Table, name="links", full=True, rows=[Row({"device": "vnet0", **labels}, counts)])
        self.now.stream.end()
        self.now.stream.mono_ns += late_ns
        with self.view() as state:
            self.comparison.tick(state)
        self.comparison.join()

    def window(self) -> tuple[float, set[str]] | None:
        found = self.comparison.window
        return None if found is None else (round(found.window_s, 3), {one.metric for one in found.findings})


def windows(run: Running, *errors_per_s: int, each: int = 5) -> list[set[str] | None]:
    """What lasted at the end of each stretch of so many seconds."""
    found = []
    for per_s in errors_per_s:
        for _ in range(each):
            run.second(per_s)
        known = run.window()
        found.append(None if known is None else {metric for metric in known[1] if "rx_errors" in metric})
    return found


def test_what_was_also_in_the_window_before_lasts() -> None:
    """Errors where the baseline has none: in a single window they may be chance."""
    run = Running()
    run.second()  # from here on
    none, first, second, gone = windows(run, 0, 500, 500, 0)
    assert none is None and not first and second and not gone
    assert run.comparison.error is None


def test_a_window_is_five_seconds_long_give_or_take_half_an_interval() -> None:
    assert live.WINDOW_S == 5.0
    run = Running()
    run.second()
    for _ in range(5):
        run.second()
    for _ in range(4):
        run.second()
    assert run.window() is None
    run.now.stream.mono_ns -= 400_000_000  # the last one is early
    run.second()
    assert run.window() is not None


@pytest.mark.parametrize(("used_s", "window_s"), [(0.0, 5.0), (0.05, 5.0), (0.08, 8.0), (9.0, 120.0)])
def test_comparing_takes_a_hundredth_of_a_core(monkeypatch: pytest.MonkeyPatch, used_s: float, window_s: float) -> None:
    run = Running()
    run.second()
    ticks = iter(range(1000))
    monkeypatch.setattr(time, "thread_time", lambda: next(ticks) * used_s)
    run.comparison._window()
    assert run.comparison._window_s == pytest.approx(window_s)


def test_facts_are_read_again_for_a_tap_that_is_not_in_them_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    now_s = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])

    def read_facts() -> dict[str, FactData]:
        asked.append(now_s[0])
        return {}

    run = Running(read_facts)
    for second in range(160):
        now_s[0] += 1
        run.second(vm="web" if second > 20 else "")
    assert len(asked) == 2 and asked[1] - asked[0] > live.FACTS_EVERY_S == 60.0 and asked[0] >= 1060


def test_what_goes_wrong_is_told_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Running()
    run.second()
    monkeypatch.setattr(live, "flatten", lambda *_: 1 / 0)
    for _ in range(5):
        run.second()
    assert run.comparison.error == "ZeroDivisionError: division by zero" and run.window() is None


def test_before_the_first_interval_nothing_is_compared() -> None:
    run = Running()
    run.comparison.tick(State())
    assert run.comparison._since is None and SECOND == 1_000_000_000
