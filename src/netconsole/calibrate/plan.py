"""Runs a calibration: a stretch without, one with, one without …, for each treatment in turn, and for no probe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from netconsole.base.errors import Unable
from netconsole.calibrate.load import (
    ALL_WORKLOADS,
    GUEST_WORKLOADS,
    METRICS,
    OF_GUESTS,
    OF_SWITCHES,
    SWITCH_WORKLOADS,
    WORKLOADS,
    LoadEnds,
    Workload,
)
from netconsole.calibrate.tool import ProgramRuns, Runs, Tool
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.host import door
from netconsole.probes.includes import behind_headers
from netconsole.probes.manifest import Manifest
from netconsole.telemetry.request import ProbeRequest

NOTHING = "nothing"
BUSY_PCT = 20.0
"""On a busier machine, other work would look like the cost of the probes, and would itself suffer from our load."""
_LOOK_S = 1.0
_SETTLE_S = 0.2
"""After a compile, until the CPU caches hold the traffic's data again."""
_RUN_TIMES_S = 0.2
TIMED = tuple(load for load in ALL_WORKLOADS if load.unit != "byte")
"""Workloads whose run times are measured: those counted in packets or round trips."""


@dataclass(frozen=True, slots=True)
class Treatment:
    """What is attached in the stretches "with": a probe in a mode, or several probes."""

    name: str
    requests: tuple[ProbeRequest, ...] = ()
    is_named: bool = True
    """False where the user did not name these probes. Those that do not run here are then left out."""


@dataclass(slots=True)
class Measured:
    """The measurements of one treatment, pair by pair."""

    figures: dict[str, list[tuple[float, float, float]]] = field(default_factory=dict)
    """By metric: the stretches before, with and after."""
    runs: dict[str, list[tuple[Runs, int]]] = field(default_factory=dict)
    """By workload: what ran, and the units sent meanwhile."""
    seconds: float = 0.0
    cpu_s: float = 0.0
    written_bytes: int = 0
    pss_kb: int | None = None


@dataclass(slots=True)
class Outcome:
    """All treatments by name, including NOTHING, and the times of empty programs by attach point."""

    measured: dict[str, Measured]
    empty_ns: dict[str, float]
    busy_pct: float
    treatments: list[Treatment] = field(default_factory=list)
    """Treatments that could run on this host."""


def busy_pct(host: AnyHost = THIS_HOST) -> float:
    """How busy the whole machine is, in percent of its CPUs. Raises Unanswered."""
    before = door.ask(host, "machine", None, door.MachineNow)
    time.sleep(_LOOK_S)
    after = door.ask(host, "machine", None, door.MachineNow)
    return 100 * (after.busy_ms - before.busy_ms) / max(1, after.all_ms - before.all_ms)


def duration_s(treatments: int, pairs: int, window_s: float, loads: Sequence[Workload]) -> float:
    """About how long :func:`run` will take with these workloads."""
    all_of_them_s = (window_s + 0.12) * len(loads)
    run_times_s = len([one for one in loads if one in TIMED]) * (_RUN_TIMES_S + 0.3)
    each_s = (treatments + 1) * (2 * all_of_them_s + 0.3) + treatments * (run_times_s + 1.0)
    return pairs * each_s + all_of_them_s + 3


def run(
    treatments: Sequence[Treatment],
    manifests: Sequence[Manifest],
    pairs: int,
    window_s: float,
    say: Callable[[str], None],
    force: bool = False,
    workloads: Sequence[Workload] = WORKLOADS,
    host: AnyHost = THIS_HOST,
) -> Outcome:
    """Measure. Raises Unable when the host is busy (unless ``force``), or cannot make the load or run the probes.

    ``manifests``: those of the probes in the treatments. Empty programs run on their hooks too.
    """
    busy = busy_pct(host)
    if busy > BUSY_PCT and not force:
        raise Unable(
            f"this host is busy: {busy:.0f} % of its CPUs, more than {BUSY_PCT:.0f} %; its traffic would hide what"
            " probes cost, and suffer from the load that is made here; --force measures all the same"
        )
    with LoadEnds(host) as load, Tool(host) as tool:
        workloads = [*workloads, *_more(load, manifests, say)]
        possible = _possible(tool, treatments, say)
        all_of_them = [Treatment(NOTHING), *possible]
        outcome = Outcome({one.name: Measured() for one in all_of_them}, {}, busy, possible)
        began = time.monotonic()
        outcome.empty_ns = _empty(tool, load, manifests, workloads)
        before = _stretch(load, workloads, window_s)
        for number in range(pairs):
            # Rotate the order, so that each treatment comes first equally often.
            turn = number % len(all_of_them)
            for place, treatment in enumerate([*all_of_them[turn:], *all_of_them[:turn]]):
                done = (number + place / len(all_of_them)) / pairs
                say(f"round {number + 1} of {pairs}: {treatment.name}{_left(time.monotonic() - began, done)}")
                before = _pair(tool, load, treatment, outcome.measured[treatment.name], before, window_s, workloads)
    return outcome


def workloads_of(manifests: Sequence[Manifest]) -> Sequence[Workload]:
    """Those by which these probes are measured, where all of them can be made."""
    modules = {manifest.module for manifest in manifests}
    guest = GUEST_WORKLOADS if modules & OF_GUESTS else ()
    return (*WORKLOADS, *guest, *(SWITCH_WORKLOADS if modules & OF_SWITCHES else ()))


def _more(load: LoadEnds, manifests: Sequence[Manifest], say: Callable[[str], None]) -> Sequence[Workload]:
    """The load over tap and vhost, and over Open vSwitch: where probes of that are measured and it can be made."""
    wanted, found = workloads_of(manifests), list[Workload]()
    for name, workloads, opened in (
        ("tap and vhost", GUEST_WORKLOADS, load.open_guest),
        ("Open vSwitch", SWITCH_WORKLOADS, load.open_switch),
    ):
        if workloads[0] in wanted:
            why = opened()
            if why:
                say(f"left out: the load over {name}: {why}")
            else:
                found += workloads
    return found


def _possible(tool: Tool, treatments: Sequence[Treatment], say: Callable[[str], None]) -> list[Treatment]:
    """The treatments, without unnamed probes that do not run on this host. Raises Unable."""
    found = []
    for one in treatments:
        requests = one.requests
        if not one.is_named:
            requests = tuple(request for request in requests if _runs_here(tool, request, say))
        if requests:
            found.append(replace(one, requests=requests))
    if treatments and not found:
        raise Unable("none of these probes runs on this host; netconsole doctor says why")
    return found


def _runs_here(tool: Tool, request: ProbeRequest, say: Callable[[str], None]) -> bool:
    try:
        tool.attach(request)
    except Unable as error:
        say(f"left out: {error}")
        return False
    tool.detach(request.name)
    return True


def _pair(
    tool: Tool,
    load: LoadEnds,
    treatment: Treatment,
    measured: Measured,
    before: Mapping[str, float],
    window_s: float,
    workloads: Sequence[Workload],
) -> dict[str, float]:
    """One stretch with the treatment, then one without. Returns the figures of the latter."""
    for request in treatment.requests:
        tool.attach(request)
    time.sleep(_SETTLE_S)
    used, began = tool.usage(), time.monotonic()
    during = _stretch(load, workloads, window_s)
    measured.seconds += time.monotonic() - began
    now = tool.usage()
    measured.cpu_s += now.cpu_s - used.cpu_s
    measured.written_bytes += now.written_bytes - used.written_bytes
    measured.pss_kb = now.pss_kb
    if treatment.requests:
        for workload in workloads:
            if workload in TIMED:
                with tool.run_times() as runs:
                    units = load.run(workload, _RUN_TIMES_S).units_in_all
                measured.runs.setdefault(workload.name, []).append((runs, units))
    for request in treatment.requests:
        tool.detach(request.name)
    time.sleep(_SETTLE_S)
    after = _stretch(load, workloads, window_s)
    for metric in METRICS:
        if metric.name in during:
            found = (before[metric.name], during[metric.name], after[metric.name])
            measured.figures.setdefault(metric.name, []).append(found)
    return after


def _stretch(load: LoadEnds, workloads: Sequence[Workload], window_s: float) -> dict[str, float]:
    figures: dict[str, float] = {}
    for workload in workloads:
        figures.update(load.run(workload, window_s).figures)
    return figures


def _empty(
    tool: Tool, load: LoadEnds, manifests: Sequence[Manifest], workloads: Sequence[Workload]
) -> dict[str, float]:
    """ns per run of an empty program, by attach point; empty where the kernel has no run-time statistics."""
    request = empty_programs(manifests)
    tool.attach(request)
    together: dict[str, ProgramRuns] = {}
    for workload in workloads:
        if workload in TIMED:
            with tool.run_times() as runs:
                load.run(workload, _RUN_TIMES_S)
            for program in runs.programs.values():
                total = together.setdefault(program.attach, ProgramRuns(program.attach))
                total.run_count += program.run_count
                total.run_time_ns += program.run_time_ns
    tool.detach(request.name)
    return {one.attach: one.run_time_ns / one.run_count for one in together.values() if one.run_count}


def _left(elapsed_s: float, done: float) -> str:
    if done <= 0:
        return ""
    left_s = elapsed_s / done - elapsed_s
    return f"; about {left_s:.0f} s to go" if left_s < 100 else f"; about {left_s / 60:.0f} min to go"


EMPTY = "empty"
CODE = "int nothing(void *ctx)\n{\n    return 0;\n}\n"


def empty_programs(manifests: Iterable[Manifest]) -> ProbeRequest:
    """A probe with one empty program for all programs of these probes that have the same alternatives."""
    found: dict[tuple[tuple[tuple[str, str], ...], str], Mapping[str, object]] = {}
    modules: set[str] = set()
    for manifest in manifests:
        modules.update(manifest.btf_modules)
        for program in manifest.programs:
            points = tuple((one.point, one.when) for one in program.attach)
            attach = [
                {"point": point, "function": "nothing", **({"when": when} if when else {})} for point, when in points
            ]
            unless = {"unless": program.unless} if program.unless else {}
            found.setdefault(
                (points, program.unless), {"name": f"on_{len(found)}", "required": False, "attach": attach, **unless}
            )
    about = {"name": EMPTY, "version": 1, "modes": ["summary"], "btf_modules": sorted(modules)}
    spec = {"probe": about, "programs": list(found.values())}
    return ProbeRequest(EMPTY, "summary", {}, spec, behind_headers(CODE))
