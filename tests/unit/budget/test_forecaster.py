"""What a forecast takes from what runs: times of each program, and the sum of what the other probes cost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from netconsole.budget import forecaster
from netconsole.budget.forecast import Hook, HookRates
from netconsole.calibrate import store
from netconsole.far.host import THIS_HOST
from netconsole.host import door
from netconsole.probes.catalogue import shipped
from netconsole.telemetry.state import State

DROPS, QUEUES = shipped("kernel_drops"), shipped("tx_queue_latency")


def state(**probes: tuple[bool, float | None]) -> State:
    """Of these probes: whether they measure, and what they cost."""
    programs = {
        "drop": SimpleNamespace(name="drop", ns_per_run=150.0),
        "idle": SimpleNamespace(name="idle", ns_per_run=None),
    }
    made = {
        name: SimpleNamespace(
            name=name, measuring=measures, kernel_cpu_pct=pct, cost=SimpleNamespace(programs=programs)
        )
        for name, (measures, pct) in probes.items()
    }
    return cast(State, SimpleNamespace(probes=made))


def test_times_are_those_of_programs_that_have_run() -> None:
    known = state(running=(True, 1.0), stopped=(False, None))
    assert forecaster.running_times(known, "running") == {"drop": 150.0}
    assert forecaster.running_times(known, "stopped") == forecaster.running_times(known, "missing") == {}


def test_what_runs_is_the_sum_of_all_others_that_measure() -> None:
    known = state(a=(True, 1.5), b=(True, 2.25), stopped=(False, 9.0), unknown=(True, None))
    assert forecaster.running_pct(known) == 3.75
    assert forecaster.running_pct(known, without="b") == 1.5
    assert forecaster.running_pct(state()) == 0


@pytest.mark.parametrize("about", [None, object()])
def test_a_forecast_takes_the_times_of_now_and_the_rates_of_its_host(
    monkeypatch: pytest.MonkeyPatch, about: object
) -> None:
    host: Any = THIS_HOST if about is None else SimpleNamespace(about=about)
    asked: list[object] = []
    counted = HookRates({program.attach[0].point: Hook({0: 1e6}, 50.0) for program in DROPS.programs}, 7000.0)

    def measure_hooks(manifests: object, host: object) -> HookRates:
        asked.append((manifests, host))
        return counted

    def known(described: object) -> None:
        asked.append(described)

    monkeypatch.setattr(forecaster, "measure_hooks", measure_hooks)
    monkeypatch.setattr(store, "known", known)
    monkeypatch.setattr(door, "describe", lambda one: ("described", one))
    (program, *_) = DROPS.programs
    times = {"kernel_drops": {program.name: 400.0}}
    made = forecaster.forecast_now([(DROPS, "summary"), (QUEUES, "summary")], times, host)
    assert asked == [None if about is None else ("described", host), ([DROPS, QUEUES], host)]
    assert made.packets_per_s == 7000.0
    drops, queues = made.forecasts
    assert (drops.probe, queues.probe) == ("kernel_drops", "tx_queue_latency")
    assert drops.kernel_cpu_pct == pytest.approx(40.0)
    (without, _) = forecaster.forecast_now([(DROPS, "summary"), (QUEUES, "summary")], None, host).forecasts
    assert without.times.bound == "at least"
