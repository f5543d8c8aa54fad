"""Every cost is held against the limit that a profile sets for it, and what is not known is not held against any."""

from __future__ import annotations

import pytest

from netconsole.profile.profile import Budget, Profile
from netconsole.profile.spending import Spending, duty_pct, machine_change_pct, packets_per_s, spendings, worst
from netconsole.snapshot.builder import build, totals_at_start
from netconsole.telemetry import frames
from netconsole.telemetry.state import State
from tests.support.stamp import Stamp

SECOND_NS = 1_000_000_000


def measured(packets_per_s: int = 100_000, kernel_pct: float = 3.0, events: int = 50) -> State:
    """Two intervals of a probe, the packets that the kernel took in, and both our processes."""
    state = State()
    for second in (1, 2):
        stamp: Stamp = {"seq": 100 * second, "mono_ns": second * SECOND_NS, "wall_ns": 0}
        sent: list[frames.AnyFrame] = []
        for probe in ("drops", "softnet") if second == 1 else ():
            sent.append(frames.Status(**stamp, probe=probe, state="attached", mode="summary"))
        row = frames.Row(labels={"cpu": 0}, counts={"processed": frames.Count(packets_per_s, packets_per_s)})
        sent.append(frames.Table(**stamp, probe="softnet", name="cpus", interval_ns=SECOND_NS, full=True, rows=[row]))
        window = frames.Statistics(window_ns=SECOND_NS // 10, interval_ns=SECOND_NS, estimated=False)
        program = frames.Program("drop", "here", 10, round(kernel_pct / 100 * window.window_ns), 0)
        submitted = {"submitted": frames.Count(events, events)}
        sent.append(
            frames.Cost(
                **stamp, probe="drops", interval_ns=SECOND_NS, programs=[program], statistics=window, events=submitted
            )
        )
        busy = frames.Row(labels={}, counts={}, gauges={"machine_cpu_pct": 12.0, "before_cpu_pct": 10.5})
        sent.append(
            frames.Table(
                **stamp, source="console", probe="self_cost", name="machine", interval_ns=SECOND_NS, full=True,
                rows=[busy],
            )
        )  # fmt: skip
        usage = frames.Usage(cpu_ns=20_000_000, rss_kb=60 * 1024, pss_kb=50 * 1024)
        sent.append(frames.Cost(**stamp, source="console", interval_ns=SECOND_NS, usage=usage))
        sent.append(frames.Cost(**stamp, interval_ns=SECOND_NS, usage=usage))
        for frame in sent:
            state.apply(frame)
    return state


def named(state: State, budget: Budget) -> dict[str, Spending]:
    return {one.name: one for one in spendings(state, budget)}


def test_every_cost_is_known_and_held_against_its_own_limit() -> None:
    budget = Budget(kernel_cpu_pct=2.0, ns_per_packet=350, user_cpu_pct=10, memory_mb=120, events_per_s=50)
    found = named(measured(), budget)
    assert {name: one.word for name, one in found.items()} == {
        "kernel_cpu_pct": "over",
        "ns_per_packet": "near",
        "user_cpu_pct": "ok",
        "memory_mb": "near",
        "events_per_s": "near",
    }
    assert found["ns_per_packet"].measured == pytest.approx(300)  # 3 % of a second for 100 000 packets
    assert found["user_cpu_pct"].measured == pytest.approx(4)
    assert found["memory_mb"].measured == pytest.approx(100)
    assert worst(list(found.values())) == "over"


def test_a_large_packet_counts_as_what_a_wire_carries_of_it() -> None:
    """GRO hands over 64 kB at once: the time for that is the time of 43 packets."""
    state = measured(packets_per_s=1000)
    for size, per_s in ((100, 1000), (1514, 1000), (43 * 1514, 43_000)):
        counts = {"rx_packets": frames.Count(2000, 2000), "rx_bytes": frames.Count(2000 * size, 2000 * size)}
        stamp: Stamp = {"seq": 300, "mono_ns": 2 * SECOND_NS, "wall_ns": 0}
        state.apply(frames.Status(**stamp, probe="link_rates", state="attached", mode="summary"))
        row = frames.Row(labels={"device": "veth"}, counts=counts)
        state.apply(
            frames.Table(**stamp, probe="link_rates", name="links", interval_ns=SECOND_NS, full=True, rows=[row])
        )
        assert packets_per_s(state) == pytest.approx(per_s)


def test_a_few_packets_say_nothing_about_the_cost_of_one() -> None:
    assert named(measured(packets_per_s=900), Budget(ns_per_packet=1))["ns_per_packet"].word == "?"


def test_without_figures_or_limits_nothing_is_claimed() -> None:
    assert {one.word for one in spendings(State(), Budget(kernel_cpu_pct=1, ns_per_packet=1))} == {"?", "no limit"}
    assert worst(spendings(measured(), Budget())) == "no limit"
    assert worst(spendings(State(), Budget(kernel_cpu_pct=1))) == "?"


def test_where_the_kernel_tells_no_run_times_the_calibration_stands_for_them() -> None:
    state = State()
    state.per_count = {("drops", "summary"): ("packets", 500.0)}
    for second in (1, 2):
        stamp: Stamp = {"seq": 10 * second, "mono_ns": second * SECOND_NS, "wall_ns": 0}
        state.apply(frames.Status(**stamp, probe="drops", state="attached", mode="summary"))
        count = {"packets": frames.Count(20_000, 20_000 * second)}
        state.apply(frames.Counters(**stamp, probe="drops", interval_ns=SECOND_NS, values=count))
        state.apply(frames.Cost(**stamp, probe="drops", interval_ns=SECOND_NS, statistics=None))
        state.apply(frames.Cost(**stamp, interval_ns=SECOND_NS))
    assert state.kernel_cpu_pct == pytest.approx(1.0)  # 20 000 times half a microsecond in a second
    assert state.kernel_cpu_calibrated and state.kernel_cpu_estimated
    assert named(state, Budget(kernel_cpu_pct=0.5))["kernel_cpu_pct"].word == "over"
    cost = build(state, {}, Profile("x"), totals_at_start(state)).probes["drops"].cost
    assert (cost["run_time_ns"], cost["calibrated"], cost["run_count"]) == (20_000_000, True, None)
    state.probes["drops"].per_count = {}
    assert state.kernel_cpu_pct is None and not state.kernel_cpu_calibrated


def test_a_limit_of_no_events_is_kept_or_broken() -> None:
    assert named(measured(events=0), Budget(events_per_s=0))["events_per_s"].word == "ok"
    assert named(measured(events=11), Budget(events_per_s=0))["events_per_s"].word == "over"


def test_a_few_events_are_no_news() -> None:
    for events, limit in ((1, 0), (10, 0), (105, 100)):
        assert named(measured(events=events), Budget(events_per_s=limit))["events_per_s"].word in ("ok", "near")


def test_what_measuring_takes_and_what_the_machine_does_are_known() -> None:
    state = measured()
    assert duty_pct(state) == pytest.approx(10)
    assert machine_change_pct(state) == pytest.approx(1.5)
    assert duty_pct(State()) is None and machine_change_pct(State()) is None
