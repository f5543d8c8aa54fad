"""Turns the measurements of a calibration into its results: each figure with its interval, noise floor and verdict."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from netconsole.base.timestamps import utc
from netconsole.calibrate.estimate import Interval, change_pct, log_ratio, mean_interval, verdict
from netconsole.calibrate.load import ALL_WORKLOADS, METRICS
from netconsole.calibrate.plan import NOTHING, Measured, Outcome, Treatment
from netconsole.calibrate.result import Bounds, Entry, InKernel, LoadChange, PerCount, ProgramTime, ToolUse
from netconsole.calibrate.tool import ProgramRuns
from netconsole.probes.manifest import Manifest


def entry(
    treatment: Treatment, outcome: Outcome, manifests: Mapping[str, Manifest], pairs: int, window_s: float
) -> Entry:
    """The entry of one treatment."""
    measured, nothing = outcome.measured[treatment.name], outcome.measured[NOTHING]
    changes = _changes(measured, nothing)
    programs = _programs(measured)
    return Entry(
        name=treatment.name,
        probes={request.name: request.mode for request in treatment.requests},
        versions={request.name: manifests[request.name].version for request in treatment.requests},
        created=utc(),
        pairs=pairs,
        window_s=window_s,
        busy_pct=outcome.busy_pct,
        changes=changes,
        kernel=_in_kernel(measured, outcome.empty_ns),
        programs=[
            ProgramTime(
                probe=probe,
                name=name,
                attach=program.attach,
                ns_per_run=program.run_time_ns / program.run_count if program.run_count else None,
                empty_ns=outcome.empty_ns.get(program.attach),
            )
            for (probe, name), program in programs.items()
        ],
        per_count={
            request.name: found
            for request in treatment.requests
            if (found := _per_count(manifests[request.name], measured, changes, len(treatment.requests))) is not None
        },
        tool=_tool(measured, nothing),
    )


def _changes(measured: Measured, nothing: Measured) -> list[LoadChange]:
    found = []
    for metric in METRICS:
        pairs = measured.figures.get(metric.name)
        if not pairs:
            continue
        change = change_pct([log_ratio(*pair) for pair in pairs])
        floor = change_pct([log_ratio(*pair) for pair in nothing.figures[metric.name]]).farther_end
        found.append(
            LoadChange(
                metric=metric.name,
                title=metric.title,
                unit=metric.unit,
                before=statistics.median((before * after) ** 0.5 for before, _, after in pairs),
                during=statistics.median(during for _, during, _ in pairs),
                change_pct=_span(change),
                floor_pct=floor,
                verdict=verdict(change, floor, metric.worse),
            )
        )
    return found


def _programs(measured: Measured) -> dict[tuple[str, str], ProgramRuns]:
    """Runs of each program, summed over all workloads."""
    together: dict[tuple[str, str], ProgramRuns] = {}
    for stretches in measured.runs.values():
        for runs, _ in stretches:
            for key, program in runs.programs.items():
                total = together.setdefault(key, ProgramRuns(program.attach))
                total.run_count += program.run_count
                total.run_time_ns += program.run_time_ns
    return together


def _in_kernel(measured: Measured, empty_ns: Mapping[str, float]) -> list[InKernel]:
    found = []
    for workload in ALL_WORKLOADS:
        stretches = [(runs, units) for runs, units in measured.runs.get(workload.name, ()) if runs.measured and units]
        if len(stretches) < 2:
            continue
        net_ns = [
            sum(one.run_time_ns - one.run_count * empty_ns.get(one.attach, 0.0) for one in runs.programs.values())
            / units
            for runs, units in stretches
        ]
        counts = [sum(one.run_count for one in runs.programs.values()) / units for runs, units in stretches]
        span = _span(mean_interval(net_ns))
        found.append(InKernel(workload.name, workload.title, workload.unit, statistics.median(counts), span))
    return found


def _per_count(manifest: Manifest, measured: Measured, changes: list[LoadChange], together: int) -> PerCount | None:
    """Cost of a count: by run times where the kernel has them, else by the additional CPU of the sender.

    The latter needs a measurable change, and a probe that ran alone.
    """
    counter = next(iter(manifest.counters), None)
    if counter is None:
        return None
    unit = manifest.counters[counter].unit
    stretches = [one for of_workload in measured.runs.values() for one in of_workload]
    counted = sum(runs.counts.get((manifest.name, counter), 0) for runs, _ in stretches)
    if not counted:
        return None
    if all(runs.measured for runs, _ in stretches):
        took_ns = sum(
            program.run_time_ns
            for runs, _ in stretches
            for (probe, _), program in runs.programs.items()
            if probe == manifest.name
        )
        return PerCount(counter, unit, took_ns / counted, "run times")
    for name in ("dropped", "small"):
        of_workload = measured.runs.get(name, ())
        counts = sum(runs.counts.get((manifest.name, counter), 0) for runs, _ in of_workload)
        units = sum(units for _, units in of_workload)
        change = next((one for one in changes if one.metric == f"{name}.cpu_ns"), None)
        if together == 1 and counts and units and change is not None and change.verdict == "slower":
            return PerCount(counter, unit, (change.during - change.before) * units / counts, "CPU of the sender")
    return None


def _tool(measured: Measured, nothing: Measured) -> ToolUse:
    seconds = measured.seconds or 1.0
    return ToolUse(
        cpu_pct=100 * measured.cpu_s / seconds,
        idle_cpu_pct=100 * nothing.cpu_s / (nothing.seconds or 1.0),
        pss_kb=measured.pss_kb,
        written_bytes_per_s=measured.written_bytes / seconds,
    )


def _span(interval: Interval) -> Bounds:
    return Bounds(interval.value, interval.low, interval.high)
