"""A forecast is time per run × live rate, by CPU; it says what it is from, and is held against the budget first."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from netconsole.base.errors import Unable
from netconsole.budget import forecast as module_forecast
from netconsole.budget import forecaster
from netconsole.budget.forecast import (
    Bound,
    Forecast,
    Hook,
    HookRates,
    Times,
    describe,
    excess,
    forecast,
    is_costly,
    of_share,
    times_of,
    too_costly,
    wanted,
)
from netconsole.budget.forecaster import Forecasts, excess_beside
from netconsole.calibrate.result import Calibration, Entry, PerCount, ProgramTime, ToolUse
from netconsole.cli.listing import probe_json, probe_text
from netconsole.probes.catalogue import shipped
from netconsole.profile.plan import plan
from netconsole.profile.profile import Budget, ProbeChoice, Profile
from netconsole.run import preflight
from netconsole.run.preflight import RunPlan
from netconsole.snapshot.document import HostData
from netconsole.telemetry.frames import Mode
from netconsole.telemetry.state import State

DROPS = shipped("kernel_drops")
QUEUES = shipped("tx_queue_latency")
MANIFESTS = {"kernel_drops": DROPS, "tx_queue_latency": QUEUES}
FREE = "raw_tracepoint:kfree_skb"
STORM = HookRates({FREE: Hook({0: 50_000.0, 3: 150_000.0}, 60.0)}, packets_per_s=200_000.0)


def entry(mode: Mode, ns: float, created: str = "2026-11-01T00:00:00Z", version: int = DROPS.version) -> Entry:
    return Entry(
        name=f"kernel_drops:{mode}",
        probes={"kernel_drops": mode},
        versions={"kernel_drops": version},
        created=created,
        pairs=5,
        window_s=0.4,
        busy_pct=1.0,
        changes=[],
        kernel=[],
        programs=[ProgramTime("kernel_drops", "drop", FREE, ns, 60.0)],
        per_count={"kernel_drops": PerCount("drops", "packets", ns, "run times")},
        tool=ToolUse(1.0, 0.5, 12_000, 1000.0),
    )


def calibration(*entries: Entry) -> Calibration:
    host = HostData("h", "6.18", "x86_64", "Linux", 2, "")
    return Calibration("netconsole.calibration/1", "1", host, "t", {str(n): one for n, one in enumerate(entries)})


def test_a_forecast_is_time_per_run_times_rate_of_each_cpu() -> None:
    one = forecast(DROPS, "details", STORM, Times({"drop": 420.0}, "calibrated", "calibrated 2026-11-01"))
    assert one.by_cpu == pytest.approx({0: 2.1, 3: 6.3})
    assert (one.kernel_cpu_pct, one.ns_per_packet) == pytest.approx((8.4, 420))
    assert describe(one) == (
        "kernel_drops in details: ≈ 420 ns per packet, 6.3 % of CPU 3, 8.4 % of one core in total"
        " (200k runs/s now; calibrated 2026-11-01)"
    )


def test_without_times_a_program_that_only_counts_is_the_least_that_it_can_be() -> None:
    one = forecast(DROPS, "summary", STORM, None)
    assert one.times.bound == "at least" and one.kernel_cpu_pct == pytest.approx(1.2)
    assert "at least 60 ns per packet" in describe(one) and "not calibrated" in describe(one)


def test_hooks_that_nothing_passes_cost_nothing_and_those_that_are_not_there_are_told() -> None:
    assert "no cost now" in describe(forecast(DROPS, "summary", HookRates({FREE: Hook()}), None))
    assert "cannot run" in describe(forecast(DROPS, "summary", HookRates({}), None))
    one = forecast(QUEUES, "details", HookRates({FREE: Hook({0: 10.0}, 50.0)}, 10.0), None)
    assert len(one.missing) == 6 and "this kernel lacks 6 of its hooks" in describe(one)
    assert one.ns_per_packet is None and "50 ns a run" in describe(one)  # ten packets say nothing about the cost of one


def test_a_program_of_another_mode_costs_nothing() -> None:
    points = [one.point for program in QUEUES.programs for one in program.attach]
    rates = HookRates({point: Hook({0: 1000.0}, 50.0) for point in points}, 1000.0)
    costs = {mode: forecast(QUEUES, mode, rates, None) for mode in ("summary", "details")}
    assert (costs["summary"].found, costs["details"].found) == (3, 7)
    assert costs["summary"].runs_per_s == 3000.0 and not costs["summary"].missing


@pytest.mark.parametrize(("packets", "is_known"), [(9_999.0, False), (10_000.0, True)])
def test_few_packets_say_nothing_of_the_cost_of_one(packets: float, is_known: bool) -> None:
    one = forecast(DROPS, "summary", HookRates({FREE: Hook({0: packets}, 60.0)}, packets), None)
    assert (one.ns_per_packet is not None) == is_known
    over = "60 ns per packet in total, the budget is 50 ns" if is_known else None
    assert excess([one], Budget(ns_per_packet=50), 0.0, packets) == over


def test_small_shares_are_said_in_two_digits() -> None:
    times = [Times({"drop": ns}, "calibrated", "") for ns in (99e3, 1e5)]
    said = [describe(forecast(DROPS, "summary", HookRates({FREE: Hook({0: 1.0})}), one)) for one in times]
    assert "< 0.01 % of CPU 0" in said[0] and ", 0.01 % of CPU 0" in said[1]


@pytest.mark.parametrize(
    ("bound", "per_s", "said"),
    [
        ("at least", 1e5, "at least 100 ns a run, at least 1 % of CPU 0, at least 1.1 % of one core in total"),
        ("at least", 999.0, "at least 100 ns a run, at least 0.011 % of one core in total"),
        ("at least", 1.0, "at least 100 ns a run, share of a CPU not known"),
        ("at most", 1.0, "at most 100 ns a run, at most 0.01 % of CPU 0, at most 0.01 % of one core in total"),
    ],
)
def test_a_bound_holds_for_every_figure(bound: Bound, per_s: float, said: str) -> None:
    times = Times({"drop": 100.0}, "running", "", bound)
    one = forecast(DROPS, "details", HookRates({FREE: Hook({0: per_s, 1: per_s / 10})}), times)
    assert f"kernel_drops in details: {said} (" in describe(one)


def test_times_are_those_of_the_probe_s_own_programs() -> None:
    of_others = [
        ProgramTime("tx_queue_latency", "sent", FREE, 7.0, 60.0),
        ProgramTime("kernel_drops", "x", FREE, None, 60.0),
    ]
    one = entry("details", 90.0)
    found = times_of(DROPS, "details", calibration(msgspec.structs.replace(one, programs=[*of_others, *one.programs])))
    assert found is not None and found.ns == {"drop": 90.0}


def test_the_surest_times_are_taken() -> None:
    both = calibration(entry("summary", 90.0), entry("details", 110.0), entry("details", 120.0, "2026-11-02T00:00:00Z"))
    found = times_of(DROPS, "details", both, {"drop": 95.0})
    assert found is not None and (found.ns["drop"], found.basis) == (120.0, "calibrated")
    only = calibration(entry("summary", 90.0))
    found = times_of(DROPS, "details", only, {"drop": 95.0})
    assert found is not None and (found.ns["drop"], found.basis) == (95.0, "running")
    found = times_of(DROPS, "details", only)
    assert found is not None and found.basis == "calibrated otherwise" and "in summary" in found.says
    assert found.bound == "at least"
    cheaper = times_of(DROPS, "counters", only)
    assert cheaper is not None and cheaper.bound == "at most"
    assert times_of(DROPS, "details", calibration(entry("details", 90.0, version=DROPS.version + 1))) is None


def test_the_limits_are_held_against_all_that_runs() -> None:
    one = forecast(DROPS, "details", STORM, Times({"drop": 420.0}, "calibrated", ""))
    assert excess([one], Budget(kernel_cpu_pct=9.0)) is None
    assert "the budget is 9 %" in (excess([one], Budget(kernel_cpu_pct=9.0), other_pct=1.0) or "")
    assert "ns per packet" in (excess([one], Budget(ns_per_packet=300), 0.0, 200_000.0) or "")
    assert excess([one], Budget(ns_per_packet=300), 0.0, 10.0) is None
    assert excess_beside(State(), one, Budget(kernel_cpu_pct=8.0)) is not None


def test_details_and_what_runs_with_every_packet_are_dear() -> None:
    assert is_costly(DROPS, "details") and not is_costly(DROPS, "summary") and is_costly(QUEUES, "summary")
    both = Profile("x", probes={"kernel_drops": ProbeChoice("details"), "tx_queue_latency": ProbeChoice("summary")})
    assert [one.name for one in wanted(plan(both, MANIFESTS), MANIFESTS)] == ["kernel_drops"]
    taps = {"tun_queues": shipped("tun_queues")}
    requests = plan(Profile("x", probes={"tun_queues": ProbeChoice("summary")}), taps)
    assert [one.name for one in wanted(requests, taps)] == ["tun_queues"], "kprobes, with every packet"


def test_what_is_attached_for_a_share_of_the_time_costs_that_share(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = forecast(DROPS, "details", STORM, Times({"drop": 420.0}, "calibrated", ""))
    tenth = of_share(whole, {"seen_pct": 10})
    assert (tenth.kernel_cpu_pct, tenth.ns_per_packet, tenth.runs_per_s) == pytest.approx((0.84, 42, 20_000))
    assert of_share(whole, {"device": "eth0"}) == whole
    monkeypatch.setattr(forecaster, "forecast_now", lambda _, host: Forecasts([whole], 200_000.0))
    monkeypatch.setattr(preflight, "_say", lambda _: None)
    profile = Profile("x", budget=Budget(kernel_cpu_pct=2.0), probes={"kernel_drops": ProbeChoice("details")})
    (request,) = plan(profile, MANIFESTS)
    sampled = replace(request, knobs={**request.knobs, "seen_pct": 10})
    assert preflight.before_start(RunPlan(profile, MANIFESTS, [sampled])).requests == [sampled]
    with pytest.raises(Unable):
        preflight.before_start(RunPlan(profile, MANIFESTS, [request]))


@pytest.mark.parametrize(("limit", "force", "starts"), [(9.0, False, True), (2.0, False, False), (2.0, True, True)])
def test_what_would_be_over_the_budget_is_refused_before_it_starts(
    limit: float,
    force: bool,
    starts: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = forecast(DROPS, "details", STORM, Times({"drop": 420.0}, "calibrated", ""))
    monkeypatch.setattr(forecaster, "forecast_now", lambda _, host: Forecasts([one], 200_000.0))
    profile = Profile("x", budget=Budget(kernel_cpu_pct=limit), probes={"kernel_drops": ProbeChoice("details")})
    if starts:
        preflight.before_start(RunPlan(profile, MANIFESTS, plan(profile, MANIFESTS), force=force))
    else:
        with pytest.raises(Unable, match=r"8\.4 % of one core in total, the budget is 2 %; --force"):
            preflight.before_start(RunPlan(profile, MANIFESTS, plan(profile, MANIFESTS), force=force))
    assert "≈ 420 ns per packet, 6.3 % of CPU 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "mode", "named", "starts"),
    [
        ("summary", "summary", [], ["tx_queue_latency"]),
        ("summary", "summary", ["kernel_drops"], None),
        ("summary", "details", [], None),
        ("other", "summary", [], None),
    ],
)
def test_what_is_too_dear_of_the_first_glance_is_left_out_and_said(
    name: str,
    mode: Mode,
    named: list[str],
    starts: list[str] | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = forecast(DROPS, mode, STORM, Times({"drop": 420.0}, "calibrated", ""))
    monkeypatch.setattr(forecaster, "forecast_now", lambda _, host: Forecasts([one], 200_000.0))
    monkeypatch.setattr(module_forecast, "wanted", lambda requests, manifests: [DROPS])
    chosen = {"kernel_drops": ProbeChoice(mode), "tx_queue_latency": ProbeChoice("summary")}
    stated = frozenset(f"probes.{probe}.mode" for probe in chosen)
    glance = Profile(name, budget=Budget(kernel_cpu_pct=2.0), probes=chosen, stated=stated)
    profile = Profile("mine", base=glance, budget=glance.budget, probes=chosen)
    if starts is None:
        with pytest.raises(Unable):
            preflight.before_start(RunPlan(profile, MANIFESTS, plan(profile, MANIFESTS), named))
        return
    start = preflight.before_start(RunPlan(profile, MANIFESTS, plan(profile, MANIFESTS), named))
    assert [request.name for request in start.requests] == starts
    assert "8.4 % of one core in total, the budget is 2 %" in start.left_out["kernel_drops"]
    assert "kernel_drops is not started: 8.4 %" in capsys.readouterr().err


def test_the_dearest_is_left_out_first_and_nothing_where_that_does_not_help() -> None:
    def costing(probe: str, ns: float) -> Forecast:
        return replace(forecast(DROPS, "summary", STORM, Times({"drop": ns}, "calibrated", "")), probe=probe)

    forecasts = [costing("cheap", 10.0), costing("dear", 400.0), costing("middling", 100.0)]
    budget = Budget(kernel_cpu_pct=3.0)
    assert [one.probe for one in too_costly(forecasts, budget, ["cheap", "dear", "middling"])] == ["dear"]
    assert [one.probe for one in too_costly(forecasts, budget, ["cheap", "middling"])] == []
    assert too_costly(forecasts, Budget(), ["dear"]) == []


def test_a_host_where_nothing_can_be_counted_is_no_reason_not_to_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: object, host: object) -> Forecasts:
        raise Unable("no BPF here")

    monkeypatch.setattr(forecaster, "forecast_now", fails)
    profile = Profile("x", budget=Budget(kernel_cpu_pct=1.0), probes={"kernel_drops": ProbeChoice("details")})
    preflight.before_start(RunPlan(profile, MANIFESTS, plan(profile, MANIFESTS)))
    assert "the cost cannot be forecast: no BPF here" in capsys.readouterr().err


def test_hooks_are_counted_once_each_without_the_probe() -> None:
    request = forecaster.request([DROPS, QUEUES])
    programs = request.spec["programs"]
    assert isinstance(programs, list)
    points = [program["attach"][0]["point"] for program in programs]
    assert len(points) == len(set(points)) == 7 and FREE in points
    assert all(f"int hook_{number}(" in request.code for number in range(7))
    assert not any({"leads", "follows"} & set(program) for program in programs)


def test_show_prints_what_is_known_of_this_host() -> None:
    found = calibration(entry("details", 110.0))
    text = probe_text(DROPS, found)
    assert "in details, 2026-11-01" in text and "110 ns a run; an empty program 60 ns" in text
    assert "110 ns for each of drops (by run times)" in text
    assert "not calibrated; netconsole calibrate --probe kernel_drops" in probe_text(DROPS)
    one = forecast(DROPS, "details", STORM, None)
    document = probe_json(DROPS, found, Forecasts([one], None))
    assert document["calibrated"]["details"]["ns_per_run"] == {"drop": 110.0}
    assert document["forecast"][0]["by_cpu"] == pytest.approx({"0": 0.3, "3": 0.9})


def test_a_conditional_hook_of_another_program_is_not_taken_for_its_own() -> None:
    """tun_queues: before Linux 5.18 no reason says that a ring was full."""
    hooks = {FREE: Hook({0: 1e6}, 50.0), "return:tun_net_xmit": Hook({0: 10.0}, 50.0)}
    assert forecast(shipped("tun_queues"), "summary", HookRates(hooks, None), None).runs_per_s == 10.0


@pytest.mark.parametrize("has_reasons", [False, True])
def test_a_program_that_this_kernel_does_without_costs_and_lacks_nothing(has_reasons: bool) -> None:
    """ovs_drops: from Linux 6.7 one program sees all drops; before, each packet is looked at."""
    each = {} if has_reasons else {"entry:ovs_execute_actions": Hook({0: 1e6}, 50.0)}
    one = forecast(shipped("ovs_drops"), "summary", HookRates({FREE: Hook({0: 10.0}, 50.0), **each}), None)
    assert one.runs_per_s == (10.0 if has_reasons else 1e6 + 10.0) and not one.missing
