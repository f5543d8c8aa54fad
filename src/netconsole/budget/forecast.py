"""Forecasts what a probe will cost before it is attached: time per run × calls of its hooks per second.

Pure functions. :mod:`netconsole.budget.forecaster` counts the calls; `netconsole calibrate` measured the times.
In-kernel time is that of the kernel's run-time statistics. The governor later compares the same figure with the budget.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from netconsole.base import figure
from netconsole.calibrate.result import Calibration, Entry
from netconsole.probes.manifest import Manifest, ProgramSpec
from netconsole.profile.profile import Budget
from netconsole.profile.spending import MIN_PACKETS_PER_S
from netconsole.telemetry.frames import Mode, Scalar
from netconsole.telemetry.request import ProbeRequest
from netconsole_collector.probe.config import SEEN_PCT

Basis: TypeAlias = Literal["calibrated", "running", "calibrated otherwise", "counting"]
"""Where the time of a run comes from, the most reliable source first."""
Bound: TypeAlias = Literal["≈", "at least", "at most"]

_RANK = ("counters", "summary", "details")
"""Modes, the cheapest first."""

LEAST_PCT = 0.01
"""Smaller shares are not told apart."""
PER_PACKET = ("per packet", "per softirq", "per event")
"""How the cost in a manifest begins when the hooks are called for normal traffic, not only for errors."""


@dataclass(frozen=True, slots=True)
class Hook:
    """An attach point: its calls per second by CPU, and the time of a program that only counts there."""

    per_s: Mapping[int, float] = field(default_factory=dict)
    counting_ns: float | None = None


@dataclass(frozen=True, slots=True)
class HookRates:
    """All hooks of some probes by attach point, and the packets that the kernel received meanwhile."""

    hooks: Mapping[str, Hook]
    packets_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Times:
    """The time of a run in ns, by program, and where it comes from."""

    ns: Mapping[str, float]
    basis: Basis
    says: str
    bound: Bound = "≈"


@dataclass(frozen=True, slots=True)
class Forecast:
    """What one probe will cost. Percent of one core; None is unknown."""

    probe: str
    mode: Mode
    times: Times
    runs_per_s: float
    by_cpu: Mapping[int, float]
    """In-kernel time of each CPU, percent of it."""
    ns_per_packet: float | None
    missing: tuple[str, ...] = ()
    """Its hooks that this kernel lacks."""
    found: int = 0
    """How many of its hooks this kernel has."""

    @property
    def kernel_cpu_pct(self) -> float:
        """In all, percent of one core."""
        return sum(self.by_cpu.values())


def is_costly(manifest: Manifest, mode: Mode) -> bool:
    """Whether a probe is so expensive that it is forecast: details, and what runs for every packet."""
    return manifest.source == "bpf" and (mode == "details" or manifest.cost.startswith(PER_PACKET))


def wanted(requests: Iterable[ProbeRequest], manifests: Mapping[str, Manifest]) -> list[Manifest]:
    """The probes that are forecast before they start: details, and what runs for every packet on functions.

    A kprobe there costs several times as much as a tracepoint. Summaries at tracepoints start at once.
    """
    found = [manifests[one.name] for one in requests if one.name in manifests and one.mode != "details"]
    details = [manifests[one.name] for one in requests if one.name in manifests and one.mode == "details"]
    return [*(one for one in details if is_costly(one, "details")), *(one for one in found if _on_functions(one))]


def times_of(
    manifest: Manifest,
    mode: Mode,
    calibration: Calibration | None,
    running: Mapping[str, float] | None = None,
) -> Times | None:
    """The best known time of a run, by program; None when none is known.

    ``running``: the time of a run now, in another mode.
    """
    entries = list(calibration.entries.values()) if calibration is not None else []
    entries = [one for one in entries if one.versions.get(manifest.name) == manifest.version]
    same = [one for one in entries if one.probes.get(manifest.name) == mode]
    for entry in _newest(same):
        if found := _times(entry, manifest.name):
            return Times(found, "calibrated", f"calibrated {entry.created[:10]}")
    if running:
        return Times(running, "running", "measured now in another mode", "at least")
    for entry in _newest(entries):
        if found := _times(entry, manifest.name):
            other = entry.probes[manifest.name]
            bound: Bound = "at most" if other in _RANK and _RANK.index(other) > _RANK.index(mode) else "at least"
            return Times(found, "calibrated otherwise", f"calibrated {entry.created[:10]} in {other}", bound)
    return None


def forecast(manifest: Manifest, mode: Mode, measured: HookRates, known: Times | None) -> Forecast:
    """The cost of a probe at these call rates. Without known times, the time of a counting program is used."""
    by_cpu: dict[int, float] = {}
    runs_per_s, found = 0.0, 0
    missing: list[str] = []
    for program in manifest.programs:
        if mode not in program.modes:
            continue
        attach = _hook_of(program, measured.hooks)
        if attach is None:
            missing += [] if program.unless else [program.attach[0].point]
            continue
        hook = measured.hooks[attach]
        found += 1
        ns = known.ns.get(program.name) if known is not None else None
        took_ns = ns if ns is not None else hook.counting_ns or 0.0
        for cpu, per_s in hook.per_s.items():
            by_cpu[cpu] = by_cpu.get(cpu, 0.0) + took_ns * per_s / 1e7
            runs_per_s += per_s
    times = known or Times({}, "counting", "time of a program that only counts; not calibrated here", "at least")
    packets = measured.packets_per_s
    per_packet = sum(by_cpu.values()) * 1e7 / packets if packets and packets >= MIN_PACKETS_PER_S else None
    return Forecast(manifest.name, mode, times, runs_per_s, by_cpu, per_packet, tuple(missing), found)


def of_share(one: Forecast, knobs: Mapping[str, Scalar]) -> Forecast:
    """The same probe, attached for a share of the time where its knob seen_pct asks for that.

    Without what it takes in the rest of the time, where it goes on in mode counters.
    """
    seen_pct = knobs.get(SEEN_PCT, 100)
    if not isinstance(seen_pct, int) or seen_pct >= 100 or one.mode == "counters":
        return one
    share = seen_pct / 100
    return replace(
        one,
        runs_per_s=one.runs_per_s * share,
        by_cpu={cpu: pct * share for cpu, pct in one.by_cpu.items()},
        ns_per_packet=None if one.ns_per_packet is None else one.ns_per_packet * share,
    )


def describe(one: Forecast) -> str:
    """In one line: ``kernel_drops in details: ≈ 420 ns per packet, 9 % of CPU 3 (…)``."""
    gone = f"; this kernel lacks {len(one.missing)} of its hooks" if one.missing else ""
    if not one.found:
        return f"{one.probe} in {one.mode}: cannot run, this kernel has none of its hooks (see netconsole doctor)"
    if not one.runs_per_s:
        return f"{one.probe} in {one.mode}: no cost now, its hooks were not called{gone}"
    if one.ns_per_packet is not None:
        each = f"{figure.number(one.ns_per_packet)} ns per packet"
    else:
        each = f"{figure.number(one.kernel_cpu_pct * 1e7 / one.runs_per_s)} ns a run"
    costs = ", ".join([f"{one.times.bound} {each}", *_shares(one)])
    rate = f"{figure.number(one.runs_per_s)} runs/s now"
    return f"{one.probe} in {one.mode}: {costs} ({rate}; {one.times.says}{gone})"


def excess(
    forecasts: Sequence[Forecast], budget: Budget, other_pct: float = 0.0, packets_per_s: float | None = None
) -> str | None:
    """The limit that these would exceed, when other probes take ``other_pct`` of a core; None when none."""
    total = other_pct + sum(one.kernel_cpu_pct for one in forecasts)
    if budget.kernel_cpu_pct is not None and total > budget.kernel_cpu_pct:
        return f"{figure.percent(total, digits=2)} of one core in total, the budget is {budget.kernel_cpu_pct:g} %"
    if budget.ns_per_packet is not None and packets_per_s and packets_per_s >= MIN_PACKETS_PER_S:
        per_packet = total * 1e7 / packets_per_s
        if per_packet > budget.ns_per_packet:
            return f"{figure.number(per_packet)} ns per packet in total, the budget is {budget.ns_per_packet:g} ns"
    return None


def too_costly(
    forecasts: Sequence[Forecast],
    budget: Budget,
    spare: Collection[str],
    packets_per_s: float | None = None,
    other_pct: float = 0.0,
) -> list[Forecast]:
    """Which of the ``spare`` probes to leave out so that the rest fits, the most expensive first.

    Empty when leaving them out is not enough. ``other_pct``: cost of what runs already, percent of one core.
    """
    left, out = list(forecasts), []
    for one in sorted(forecasts, key=lambda one: -one.kernel_cpu_pct):
        if excess(left, budget, other_pct, packets_per_s) is None:
            break
        if one.probe in spare:
            left.remove(one)
            out.append(one)
    return out if excess(left, budget, other_pct, packets_per_s) is None else []


def _hook_of(program: ProgramSpec, hooks: Collection[str]) -> str | None:
    """Where this kernel lets it be attached. A conditional alternative comes last: the point may be another's hook."""
    there = sorted((one for one in program.attach if one.point in hooks), key=lambda one: bool(one.when))
    return there[0].point if there else None


def _shares(one: Forecast) -> list[str]:
    """What it takes of CPUs. A bound holds for every figure. One of at least next to nothing says nothing."""
    busiest = max(one.by_cpu, key=lambda cpu: one.by_cpu[cpu])
    shares = {f"of CPU {busiest}": one.by_cpu[busiest]}
    if len(one.by_cpu) > 1:
        shares["of one core in total"] = one.kernel_cpu_pct
    if one.times.bound == "≈":
        return [f"{figure.percent(pct, digits=2)} {of}" for of, pct in shares.items()]
    if one.times.bound == "at most":
        return [f"at most {figure.percent(max(pct, LEAST_PCT), digits=2)} {of}" for of, pct in shares.items()]
    known = [f"at least {figure.percent(pct, digits=2)} {of}" for of, pct in shares.items() if pct >= LEAST_PCT]
    return known or ["share of a CPU not known"]


def _on_functions(manifest: Manifest) -> bool:
    points = [program.attach[0].point for program in manifest.programs if "summary" in program.modes]
    functions = [point for point in points if not point.startswith(("raw_tracepoint", "tracepoint"))]
    return is_costly(manifest, "summary") and bool(functions)


def _newest(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda one: one.created, reverse=True)


def _times(entry: Entry, probe: str) -> dict[str, float]:
    """The time of a run by program. A program that did not run during the calibration has none."""
    return {one.name: one.ns_per_run for one in entry.programs if one.probe == probe and one.ns_per_run is not None}
