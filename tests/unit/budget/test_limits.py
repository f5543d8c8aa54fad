"""Worked examples of limits: the tighter of two counts, and what no longer measures costs nothing."""

from __future__ import annotations

import pytest

from netconsole.profile import spending
from netconsole.profile.profile import Budget
from netconsole.profile.spending import MIN_PACKETS_PER_S, NEAR, Spending, kernel_limit_pct, stand_for, worst
from netconsole.telemetry import frames
from netconsole.telemetry.state import State
from tests.support.stamp import Stamp
from tests.unit.profile.test_spending import SECOND_NS, measured, named


@pytest.mark.parametrize(
    ("kernel_cpu_pct", "ns_per_packet", "packets_per_s", "limit"),
    [
        (2.0, None, 100_000.0, 2.0),
        (None, 300.0, 100_000.0, 3.0),  # 300 ns x 100 000/s = 30 ms in a second
        (2.0, 300.0, 100_000.0, 2.0),
        (2.0, 100.0, 100_000.0, 1.0),
        (2.0, 100.0, MIN_PACKETS_PER_S, 0.1),
        (2.0, 100.0, MIN_PACKETS_PER_S - 1, 2.0),  # too few packets: the time of one is not known
        (2.0, 100.0, None, 2.0),
        (None, 100.0, None, None),
        (None, None, 100_000.0, None),
    ],
)
def test_the_tighter_of_two_limits_of_time_holds(
    kernel_cpu_pct: float | None, ns_per_packet: float | None, packets_per_s: float | None, limit: float | None
) -> None:
    budget = Budget(kernel_cpu_pct=kernel_cpu_pct, ns_per_packet=ns_per_packet)
    assert kernel_limit_pct(budget, packets_per_s) == (None if limit is None else pytest.approx(limit))


@pytest.mark.parametrize(
    ("measured", "limit", "word"),
    [
        (2.0, 2.0, "near"),
        (2.0001, 2.0, "over"),
        (1.6, 2.0, "near"),
        (1.5999, 2.0, "ok"),
        (0.0, 0.0, "ok"),
        (0.1, 0.0, "over"),
        (None, 2.0, "?"),
        (5.0, None, "no limit"),
    ],
)
def test_a_cost_is_over_above_its_limit_and_near_from_four_fifths_of_it(
    measured: float | None, limit: float | None, word: str
) -> None:
    assert NEAR == 0.8
    assert Spending("kernel_cpu_pct", measured, limit).word == word


def test_the_worst_word_is_told_and_what_has_no_limit_is_not() -> None:
    def words(*pairs: tuple[float | None, float | None]) -> str:
        return worst([Spending("memory_mb", cost, limit) for cost, limit in pairs])

    assert words((1, 10), (9, 10), (11, 10)) == "over"
    assert words((1, 10), (9, 10), (99, None)) == "near"
    assert words((1, 10), (None, 10)) == "ok"
    assert words((None, 10), (99, None)) == "?"
    assert words((99, None)) == words() == "no limit"


def stop(state: State, *probes: str) -> None:
    for probe in probes:
        stamp: Stamp = {"seq": 500, "mono_ns": 2 * SECOND_NS, "wall_ns": 0}
        state.apply(frames.Status(**stamp, probe=probe, state="failed", mode="summary"))


def test_a_probe_that_no_longer_measures_costs_nothing() -> None:
    state = measured()
    assert state.kernel_cpu_pct == pytest.approx(3) and spending.events_per_s(state) == 50
    assert spending.duty_pct(state) == pytest.approx(10)
    stop(state, "drops")
    assert state.kernel_cpu_pct is None and spending.events_per_s(state) is None and spending.duty_pct(state) is None
    assert spending.ns_per_packet(state) is None
    assert not state.kernel_cpu_estimated and not state.kernel_cpu_calibrated


def test_packets_are_not_known_when_nobody_counts_them_any_more() -> None:
    state = measured()
    assert spending.packets_per_s(state) == 100_000
    stop(state, "softnet")
    assert spending.packets_per_s(state) is None
    assert named(state, Budget(ns_per_packet=1))["ns_per_packet"].word == "?"


@pytest.mark.parametrize(("packets", "is_known"), [(MIN_PACKETS_PER_S, True), (MIN_PACKETS_PER_S - 1, False)])
def test_the_time_of_a_packet_is_known_from_ten_thousand_a_second_on(packets: float, is_known: bool) -> None:
    found = spending.ns_per_packet(measured(packets_per_s=round(packets)))
    assert (found == pytest.approx(3000)) if is_known else found is None


@pytest.mark.parametrize(
    ("size", "packets", "stands_for"),
    [(1514, 10, 1.0), (3028, 10, 2.0), (60, 10, 1.0), (None, 10, 1.0), (3028, None, 1.0), (3028, 0, 1.0)],
)
def test_a_received_packet_stands_for_as_many_as_a_wire_would_carry(
    size: float | None, packets: float | None, stands_for: float
) -> None:
    received_bytes = None if size is None else size * (packets or 10)
    assert stand_for(received_bytes, packets) == stands_for


def test_what_ours_takes_is_of_the_measured_host_alone_when_the_console_is_elsewhere() -> None:
    state = measured()
    assert spending.user_cpu_pct(state) == pytest.approx(4) and spending.memory_kb(state) == 2 * 50 * 1024
    state.is_far = True
    assert spending.user_cpu_pct(state) == pytest.approx(2) and spending.memory_kb(state) == 50 * 1024
    assert spending.user_cpu_pct(State()) is None and spending.memory_kb(State()) is None


def test_a_console_elsewhere_is_the_one_that_does_not_count() -> None:
    state = measured()
    state.console.pss_kb = 70 * 1024
    state.is_far = True
    assert spending.memory_kb(state) == 50 * 1024


def test_a_typical_share_is_the_lower_median_of_ten_intervals() -> None:
    """One dear interval (a compile, a jump in a replay) is not typical."""
    state = State()
    for second, ms in enumerate([5, 999, 20, 30, 70, 10, 60, 40, 400, 80, 50, 90], 1):
        stamp: Stamp = {"seq": second, "mono_ns": second * SECOND_NS, "wall_ns": 0}
        usage = frames.Usage(cpu_ns=ms * 1_000_000, rss_kb=1000, pss_kb=None)
        state.apply(frames.Cost(**stamp, interval_ns=SECOND_NS, usage=usage))
    # The last ten in order: 10 20 30 40 50 60 70 80 90 400.
    assert spending.steady_cpu_pct(state.collector) == pytest.approx(5.0)
    assert spending.memory_kb(state) == 1000, "RSS where PSS is not known"


def test_what_starting_takes_is_not_typical() -> None:
    """Compiling takes seconds of a core. Until probes are attached for an interval nothing is known."""
    state, seen = State(), []
    for second in range(1, 9):
        stamp: Stamp = {"seq": second, "mono_ns": second * SECOND_NS, "wall_ns": 0}
        if second in (1, 5):
            phase: frames.ProbeStatus = "compiling" if second == 1 else "attached"
            state.apply(frames.Status(**stamp, probe="p", state=phase, mode="summary"))
        usage = frames.Usage(cpu_ns=(900 if second < 6 else 10) * 1_000_000, rss_kb=1000, pss_kb=None)
        state.apply(frames.Cost(**stamp, interval_ns=SECOND_NS, usage=usage))
        seen.append(spending.steady_cpu_pct(state.collector))
    assert seen == [None] * 5 + [pytest.approx(1.0)] * 3


def test_the_statistics_were_on_as_long_as_for_the_probe_that_had_them_longest() -> None:
    state = measured()
    window = frames.Statistics(window_ns=SECOND_NS // 20, interval_ns=SECOND_NS, estimated=False)
    stamp: Stamp = {"seq": 400, "mono_ns": 2 * SECOND_NS, "wall_ns": 0}
    state.apply(frames.Status(**stamp, probe="late", state="attached", mode="summary"))
    program = frames.Program("one", "here", 10, 1000, 0)
    state.apply(frames.Cost(**stamp, probe="late", interval_ns=SECOND_NS, programs=[program], statistics=window))
    assert spending.duty_pct(state) == pytest.approx(10)


def test_how_much_busier_the_machine_is_needs_both_figures() -> None:
    state = measured()
    (row,) = state.probes["self_cost"].tables["machine"].rows.values()
    row.gauges["before_cpu_pct"] = None
    assert spending.machine_change_pct(state) is None
    row.gauges.update(before_cpu_pct=10.0, machine_cpu_pct=None)
    assert spending.machine_change_pct(state) is None


def test_events_of_an_escalation_have_a_limit_of_their_own() -> None:
    assert spending.is_budgeted("kernel_drops") and not spending.is_budgeted("kernel_drops.details")


def test_limits_of_zero_in_a_budget_are_limits() -> None:
    assert named(measured(), Budget(kernel_cpu_pct=0.0))["kernel_cpu_pct"].word == "over"
    assert named(measured(), Budget(memory_mb=100.0))["memory_mb"].word == "near"
