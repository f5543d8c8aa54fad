"""A jump in what probes count asks for statistics at once; what is steady, small or known to be cheap does not."""

from __future__ import annotations

import pytest

from netconsole.budget.sampling import FEW_PER_S, OFTEN_S, UNKNOWN_NS, CostSample, SamplingPace, counted_per_s
from netconsole.probes.catalogue import shipped
from netconsole.telemetry import frames
from netconsole.telemetry.state import State
from tests.support.stamp import Stamp

LIMIT_PCT = 2.0
CALM_PER_S, LESS_PER_S, STORM_PER_S = 10_000.0, 90_000.0, 200_000.0
RUN_NS = 150.0


def glance(per_s: float, has_window: bool, measured_per_s: float | None = None) -> dict[str, CostSample]:
    """A probe that counts so many a second; the last window saw ``measured_per_s``, or the same."""
    pct = (per_s if measured_per_s is None else measured_per_s) * RUN_NS / 1e7
    return {"drops": CostSample(per_s, pct, has_window)}


def test_a_storm_is_looked_at_in_the_interval_in_which_it_begins_and_for_a_while() -> None:
    attention = SamplingPace()
    assert not attention.is_often(1.0, glance(CALM_PER_S, True), LIMIT_PCT)
    assert not attention.is_often(2.0, glance(CALM_PER_S, False), LIMIT_PCT)
    half_a_second = STORM_PER_S / 2
    assert attention.is_often(3.0, glance(half_a_second, False, CALM_PER_S), LIMIT_PCT)
    for second in range(4, 12):
        assert attention.is_often(float(second), glance(LESS_PER_S, True), LIMIT_PCT)
    assert not attention.is_often(4.0 + OFTEN_S, glance(LESS_PER_S, True), LIMIT_PCT), "it is known now"


def test_a_storm_that_a_window_has_seen_the_beginning_of_is_looked_at_too() -> None:
    attention = SamplingPace()
    attention.is_often(1.0, glance(CALM_PER_S, True), LIMIT_PCT)
    assert attention.is_often(2.0, glance(STORM_PER_S, True, LESS_PER_S), LIMIT_PCT)


def test_a_window_that_saw_next_to_nothing_of_a_storm_does_not_make_it_cheap() -> None:
    """Its 200 ms may lie before the storm in which the other 800 ms of the interval are."""
    attention = SamplingPace()
    attention.is_often(1.0, glance(CALM_PER_S, True), LIMIT_PCT)
    assert attention.is_often(2.0, glance(STORM_PER_S, True, CALM_PER_S), LIMIT_PCT)
    never_measured = SamplingPace()
    never_measured.is_often(1.0, {"drops": CostSample(0.0, 0.0, True)}, LIMIT_PCT)
    assert never_measured.is_often(2.0, glance(STORM_PER_S, True, CALM_PER_S), LIMIT_PCT)


def test_what_is_near_the_limit_is_looked_at_all_the_time() -> None:
    attention = SamplingPace()
    near_per_s = 0.9 * LIMIT_PCT * 1e7 / RUN_NS
    for second in range(1, 60):
        assert attention.is_often(float(second), glance(near_per_s, second % 5 == 0), LIMIT_PCT)


def test_a_jump_to_what_is_far_within_the_limit_is_nobodys_concern() -> None:
    attention = SamplingPace()
    attention.is_often(1.0, glance(CALM_PER_S, True), LIMIT_PCT)
    assert not attention.is_often(2.0, glance(3 * CALM_PER_S, False, CALM_PER_S), LIMIT_PCT)


def test_what_was_never_measured_is_taken_to_be_dear() -> None:
    idle = {"drops": CostSample(0.0, 0.0, True)}
    per_s = LIMIT_PCT * 1e7 / UNKNOWN_NS
    assert per_s > FEW_PER_S
    attention = SamplingPace()
    assert not attention.is_often(1.0, idle, LIMIT_PCT)
    assert attention.is_often(2.0, {"drops": CostSample(per_s, 0.0, False)}, LIMIT_PCT)


def test_after_a_change_it_is_looked_closely_at_what_came_of_it() -> None:
    attention = SamplingPace()
    attention.changed(1.0)
    assert attention.is_often(1.0, glance(CALM_PER_S, True), LIMIT_PCT)
    assert not attention.is_often(1.0 + OFTEN_S, glance(CALM_PER_S, True), LIMIT_PCT)


def test_unknown_figures_are_no_jump() -> None:
    assert not SamplingPace().is_often(1.0, {"drops": CostSample(None, None, False)}, LIMIT_PCT)


def test_counters_are_what_a_probe_counted_and_tables_without_times_where_it_has_none() -> None:
    state = State()
    stamp: Stamp = {"seq": 1, "mono_ns": 10**9, "wall_ns": 0}
    values = {"drops": frames.Count(300, 300)}
    state.apply(frames.Counters(**stamp, probe="kernel_drops", interval_ns=10**9, values=values))
    counts = {name: frames.Count(100, 100) for name in ("rx_runs", "rx_ns", "tx_runs", "tx_ns", "polls", "packets")}
    rows = [frames.Row({"cpu": 0}, counts, {})]
    state.apply(frames.Table(**stamp, probe="softirq_health", name="cpus", interval_ns=10**9, full=True, rows=rows))
    drops, softirqs = (shipped(name) for name in ("kernel_drops", "softirq_health"))
    assert counted_per_s(state.probes["kernel_drops"], drops) == 300
    assert counted_per_s(state.probes["softirq_health"], softirqs) == 400
    assert counted_per_s(state.probes["kernel_drops"], softirqs) is None


def asked(*samples: tuple[float, float | None, bool], limit_pct: float = LIMIT_PCT) -> list[bool]:
    """One probe, interval by interval: (counted, measured %, whether a window was in it) → whether to look often."""
    pace = SamplingPace()
    return [pace.is_often(100.0 * number, {"drops": CostSample(*one)}, limit_pct) for number, one in enumerate(samples)]


@pytest.mark.parametrize(("pct", "often"), [(1.6, False), (1.601, True)])
def test_a_cost_above_four_fifths_of_the_limit_is_near_it(pct: float, often: bool) -> None:
    assert asked((0.0, pct, True), (0.0, pct, True))[1] is often


@pytest.mark.parametrize(
    ("before_pct", "now_pct", "often"),
    [(0.5, 0.75, False), (0.5, 0.751, True), (0.1, 0.6, False), (0.1, 0.601, True)],
)
def test_a_jump_is_above_one_and_a_half_times_the_last_cost_and_three_tenths_of_the_limit(
    before_pct: float, now_pct: float, often: bool
) -> None:
    assert asked((0.0, before_pct, True), (0.0, now_pct, True))[1] is often


def test_between_windows_counts_times_the_last_time_of_a_count_are_the_estimate() -> None:
    """20 000 counts in 0.2 % of a second are 100 ns each; 70 000 of them 0.7 %, which is a jump; 30 000 are not."""
    calm = (20_000.0, 0.2, True)
    assert asked(calm, (70_000.0, 0.2, False)) == [False, True]
    assert asked(calm, (30_000.0, 0.2, False)) == [False, False]
    assert asked(calm, (59_000.0, 0.2, False)) == [False, False], "0.59 % is less than 0.3 of the limit"


@pytest.mark.parametrize(("counted", "often"), [(999.0, True), (1000.0, False)])
def test_a_time_of_a_count_is_known_from_a_thousand_counts_on(counted: float, often: bool) -> None:
    """Else it is taken to be a microsecond: 7000 counts are 0.7 %."""
    assert asked((counted, 0.001, True), (7000.0, 0.001, False))[1] is often


def test_a_window_in_an_interval_with_a_storm_may_have_missed_it() -> None:
    steady, storm = (20_000.0, 0.2, True), (100_000.0, 0.2, True)
    assert asked(steady, storm) == [False, True]
    assert asked(steady, (30_000.0, 0.2, True), (30_000.0, 0.2, True)) == [False] * 3


def test_it_is_looked_at_often_for_ten_seconds() -> None:
    pace = SamplingPace()
    calm = {"drops": CostSample(0.0, 0.1, True)}
    pace.changed(50.0)
    assert [pace.is_often(at_s, calm, LIMIT_PCT) for at_s in (50.0, 59.9, 60.0)] == [True, True, False]


def test_the_costs_of_all_probes_count_together() -> None:
    pace = SamplingPace()
    both = {"a": CostSample(0.0, 0.9, True), "b": CostSample(0.0, 0.8, True)}
    pace.is_often(0.0, both, LIMIT_PCT)
    assert pace.is_often(100.0, both, LIMIT_PCT)
    assert not pace.is_often(200.0, {"a": CostSample(0.0, 0.9, True)}, LIMIT_PCT)
