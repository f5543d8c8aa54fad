"""A run whose CPU is taken away from it is no reason to give anything up; more runs, and longer ones, are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netconsole.budget.governor import REACTION_S, Decision, Governor, Reading
from netconsole.budget.ladder import ladder
from netconsole.budget.run_times import RunTimes
from netconsole.budget.sampling import UNKNOWN_NS
from netconsole.profile.profile import Budget
from netconsole.telemetry import frames
from netconsole.telemetry.state import State

LIMIT_PCT = 2.0
SECOND_NS, WINDOW_NS = 1_000_000_000, 100_000_000
RUN_NS = 150
MOST_PER_S = LIMIT_PCT * 1e7 / RUN_NS
"""Runs a second that are within the limit."""
TAKEN_NS = 18_000_000
"""By a scheduler's tick and a half: 18 % of a core in this window, nine times the limit."""
SHARES = {"details": 1.0, "summary": 0.8, "counters": 0.4, "off": 0.0}
NAME = "drops"


@dataclass
class Host:
    """A probe of one program under a governor; its figures are those of frames, one a second."""

    state: State = field(default_factory=State)
    run_times: RunTimes = field(default_factory=RunTimes)
    governor: Governor = field(default_factory=lambda: Governor(Budget(kernel_cpu_pct=LIMIT_PCT, action="degrade")))
    at_s: int = 0

    def __post_init__(self) -> None:
        self.governor.add(NAME, ladder("details", {}, ("counters", "summary", "details")))

    def second(self, runs_per_s: float, taken_ns: int = 0, run_ns: float = RUN_NS) -> tuple[float, list[Decision]]:
        """What it really took in a second, in percent, and what was done because of what was measured in it."""
        self.at_s += 1
        rung = self.governor.rung(NAME)
        assert rung is not None
        own_ns = run_ns * SHARES[rung.mode]
        runs = int(runs_per_s * WINDOW_NS / SECOND_NS) if own_ns else 0
        took_ns = int(runs * own_ns) + (taken_ns if runs else 0)
        self.frame(frames.Status, probe=NAME, state="attached", mode=rung.mode, knobs={})
        program = frames.Program("drop", "here", runs, took_ns, 0)
        window = frames.Statistics(WINDOW_NS, SECOND_NS, True)
        self.frame(frames.Cost, probe=NAME, interval_ns=SECOND_NS, programs=[program], statistics=window)
        self.frame(frames.Cost, interval_ns=SECOND_NS)
        pct = self.run_times.cpu_pct(self.state.probes[NAME])
        return runs * own_ns * 100 / WINDOW_NS, self.governor.observe(float(self.at_s), {NAME: Reading(pct)})

    def frame(self, kind: type[frames.AnyFrame], **values: Any) -> None:
        self.state.apply(kind(seq=self.at_s, mono_ns=self.at_s * SECOND_NS, wall_ns=0, **values))


within = st.tuples(st.floats(0.01 * MOST_PER_S, 0.99 * MOST_PER_S), st.integers(0, TAKEN_NS))
anything = st.tuples(st.floats(0.0, 20 * MOST_PER_S), st.integers(1, 30))
taken = st.lists(st.sampled_from([0, 0, 0, TAKEN_NS // 10, TAKEN_NS]), min_size=8 * 30, max_size=8 * 30)


def test_what_was_not_measured_is_unknown_and_what_was_calibrated_is_as_it_is() -> None:
    host = Host()
    host.frame(frames.Status, probe=NAME, state="attached", mode="summary", knobs={})
    probe = host.state.probes[NAME]
    assert host.run_times.cpu_pct(probe) is None
    host.second(1000.0)
    known = host.run_times.cpu_pct(probe)
    assert known == pytest.approx(1000.0 * RUN_NS / 1e7)
    probe.cost.measurable = False
    assert host.run_times.cpu_pct(probe) is None


@settings(deadline=None, max_examples=100)
@given(st.lists(within, min_size=1, max_size=60))
def test_a_load_within_the_budget_is_left_alone_however_much_is_taken_from_every_other_second(
    trace: list[tuple[float, int]],
) -> None:
    host = Host()
    host.second(MOST_PER_S / 2)
    for number, (runs_per_s, taken_ns) in enumerate(trace):
        assert host.second(runs_per_s, taken_ns if number % 2 else 0)[1] == []


@settings(deadline=None, max_examples=100)
@given(st.lists(anything, min_size=1, max_size=8), taken)
def test_and_a_load_above_it_is_answered_as_soon(trace: list[tuple[float, int]], taken_ns: list[int]) -> None:
    host = Host()
    for runs_per_s, seconds in trace:
        over_s = 0
        for _ in range(seconds):
            cost_pct, _ = host.second(runs_per_s, taken_ns.pop())
            over_s = over_s + 1 if cost_pct > LIMIT_PCT else 0
            assert over_s <= REACTION_S


def test_a_storm_is_answered_with_its_first_figure() -> None:
    host = Host()
    for _ in range(5):
        assert host.second(MOST_PER_S / 2)[1] == []
    assert host.second(2 * MOST_PER_S)[1]
    assert Host().second(2 * MOST_PER_S)[1], "also where nothing was measured before"


def test_runs_that_become_longer_are_answered_with_the_second_one() -> None:
    host = Host()
    for _ in range(5):
        host.second(MOST_PER_S / 2)
    answers = [host.second(MOST_PER_S / 2, run_ns=4 * RUN_NS)[1] for _ in range(2)]
    assert [bool(moves) for moves in answers] == [False, True]


def test_what_was_never_measured_is_believed_at_once_up_to_a_time_that_a_run_may_take() -> None:
    few_per_s = 0.9 * LIMIT_PCT * 1e7 / UNKNOWN_NS
    host = Host()
    answers = [host.second(few_per_s, run_ns=4 * UNKNOWN_NS)[1] for _ in range(2)]
    assert [bool(moves) for moves in answers] == [False, True]


def test_the_same_figure_twice_is_no_second_one() -> None:
    host = Host()
    for _ in range(3):
        host.second(MOST_PER_S / 2)
    host.second(MOST_PER_S / 2, TAKEN_NS)
    probe = host.state.probes[NAME]
    assert [host.run_times.cpu_pct(probe) for _ in range(5)] == [pytest.approx(1.0, rel=0.01)] * 5
