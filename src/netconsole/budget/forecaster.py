"""Makes forecasts on a host: counts the calls of the hooks, and takes the best known times of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netconsole.budget import hook_rates
from netconsole.budget.forecast import Forecast, excess, forecast, times_of
from netconsole.calibrate import store
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.host import door
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Budget
from netconsole.profile.spending import packets_per_s
from netconsole.telemetry.frames import Mode
from netconsole.telemetry.state import State


@dataclass(frozen=True, slots=True)
class Forecasts:
    """Forecasts made together, and the packets that the kernel received meanwhile."""

    forecasts: Sequence[Forecast]
    packets_per_s: float | None


def forecast_now(
    wanted: Sequence[tuple[Manifest, Mode]],
    running: Mapping[str, Mapping[str, float]] | None = None,
    host: AnyHost = THIS_HOST,
) -> Forecasts:
    """What these would cost now. Takes 2 to 3 s. ``running``: ns per run by probe and program, measured now.

    Raises Unable when hooks cannot be counted on that host.
    """
    known = store.known(door.describe(host) if host.about is not None else None)
    measured = hook_rates.measure([manifest for manifest, _ in wanted], host=host)
    made = [
        forecast(manifest, mode, measured, times_of(manifest, mode, known, (running or {}).get(manifest.name)))
        for manifest, mode in wanted
    ]
    return Forecasts(made, measured.packets_per_s)


def running_times(state: State, probe: str) -> dict[str, float]:
    """ns per run, by program of a running probe, from its statistics so far."""
    known = state.probes.get(probe)
    programs = known.cost.programs.values() if known is not None and known.measuring else ()
    return {one.name: one.ns_per_run for one in programs if one.ns_per_run is not None}


def excess_beside(state: State, one: Forecast, budget: Budget) -> str | None:
    """The limit that a probe would exceed together with all others that run; None when none is known."""
    return excess([one], budget, running_pct(state, without=one.probe), packets_per_s(state))


def running_pct(state: State, without: str = "") -> float:
    """In-kernel time of all running probes except ``without``, percent of one core."""
    running = (probe for probe in state.probes.values() if probe.measuring and probe.name != without)
    return sum(probe.kernel_cpu_pct or 0.0 for probe in running)
