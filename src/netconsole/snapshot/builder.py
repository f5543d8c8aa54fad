"""Makes a snapshot (docs/use/snapshot.md) from a state: what was measured between two moments, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

import netconsole
from netconsole.base.fact_keys import FactData
from netconsole.base.timestamps import utc
from netconsole.host.identity import describe
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Profile
from netconsole.profile.scope import is_host_wide, said
from netconsole.snapshot.balance import SEEN_BY, balance
from netconsole.snapshot.document import (
    MEASURED,
    SCHEMA,
    HostData,
    IncidentData,
    ProbeData,
    ProfileData,
    Snapshot,
)
from netconsole.snapshot.of_probe import COLLECTOR_RESTARTED, SOURCE_RESTARTED, probe_data
from netconsole.telemetry.action import BudgetAction
from netconsole.telemetry.session import LineState
from netconsole.telemetry.source import SourceState
from netconsole.telemetry.span import NOTHING, ProbeTotals, Span, has_gone_back, probe_totals, totals_before
from netconsole.telemetry.state import ProbeState, State


@dataclass(frozen=True, slots=True)
class Totals:
    """All totals at the end of one interval: what a snapshot counts from. Times in ns."""

    mono_ns: int
    wall_ns: int
    restarts: int = 0
    cpu_ns: Mapping[str, int] = field(default_factory=dict)
    probes: Mapping[str, ProbeTotals] = field(default_factory=dict)
    closed_ns: Mapping[str, int | None] = field(default_factory=dict)
    """When the last interval of each source ended. Sources are not read at the same time."""
    seen_before: ProbeTotals | None = None
    """What the probe of drops had counted an interval earlier. The console reads the kernel's own counters up to an
    interval before the collector reads the probe: what is lost in between was seen before the begin, and is counted
    after it. Nobody can tell it from what the probe misses later, so the balance calls such a loss unknown."""


def totals(state: State) -> Totals:
    """The totals now. Call it inside ``Session.view``.

    ``line``: that to a far host.
    """
    mono_ns, wall_ns = _closed(state)
    return Totals(
        mono_ns,
        wall_ns,
        state.collector.restarts,
        {name: source.cpu_ns for name, source in state.sources.items()},
        {name: probe_totals(probe) for name, probe in state.probes.items()},
        {name: source.closed_mono_ns for name, source in state.sources.items()},
        totals_before(drops) if (drops := state.probes.get(SEEN_BY)) is not None and drops.measuring else None,
    )


def totals_at_start(state: State) -> Totals:
    """The totals at the first frame. A snapshot from there has everything since the probes were attached."""
    return Totals(state.first_mono_ns or 0, state.first_wall_ns or 0)


def span(state: State, since: Totals) -> Span:
    """What has happened since then; of a probe that began again all that it has."""
    marks = {}
    for name, probe in state.probes.items():
        start = since.probes.get(name, NOTHING)
        if has_gone_back(probe, start):
            start = replace(start, counters={}, rows={}, histograms={}, events={}, ledger={})
        marks[name] = start
    return Span(state, marks)


def build(
    state: State,
    manifests: Mapping[str, Manifest],
    profile: Profile,
    since: Totals,
    facts: Mapping[str, FactData] | None = None,
    note: str | None = None,
    actions: Iterable[BudgetAction] = (),
    incidents: Sequence[IncidentData] | None = None,
    line: LineState | None = None,
) -> Snapshot:
    """The snapshot from ``since`` to the end of the last interval. Call it inside ``Session.view``."""
    mono_ns, wall_ns = _closed(state)
    duration_ns = max(0, mono_ns - since.mono_ns)
    is_new = state.collector.restarts != since.restarts
    probes = {}
    whole = span(state, since)
    earlier: Span | None = None
    for name, probe in state.probes.items():
        fresh = COLLECTOR_RESTARTED if is_new and probe.source == "collector" else None
        start = whole.marks[name]
        began_ns = start.read_mono_ns or since.closed_ns.get(probe.source) or since.mono_ns
        span_ns = _span(probe, state.sources[probe.source], began_ns, duration_ns)
        if start is not since.probes.get(name, NOTHING):
            fresh = SOURCE_RESTARTED
        until_ns = None if probe.measuring or span_ns <= 0 else probe.cost.read_mono_ns
        until = None if until_ns is None else utc((wall_ns - (mono_ns - until_ns)) / 1e9)
        probes[name] = probe_data(probe, manifests.get(name), start, span_ns, fresh, until)
        if name == SEEN_BY and fresh is None and since.seen_before is not None:
            earlier = Span(state, {SEEN_BY: since.seen_before})
    return Snapshot(
        schema=SCHEMA,
        created=utc(wall_ns / 1e9 if wall_ns else None),
        netconsole=netconsole.__version__,
        host=_host(state),
        profile=_profile(profile, manifests, probes),
        duration_s=round(duration_ns / 1e9, 6),
        clock={"start_unix_ns": since.wall_ns, "start_monotonic_ns": since.mono_ns, **_far_clock(line)},
        note=note,
        probes=probes,
        incidents=None if incidents is None else [_timed(one, wall_ns) for one in incidents],
        balance=balance(whole, earlier),
        cost=_cost(state, probes, since, duration_ns),
        governor=[action.as_dict(since.mono_ns / 1e9) for action in actions],
        facts=dict(facts or {}),
    )


def _profile(profile: Profile, manifests: Mapping[str, Manifest], probes: Mapping[str, ProbeData]) -> ProfileData:
    measured = [name for name, probe in probes.items() if probe.status in MEASURED]
    wide = [name for name in measured if name in manifests and is_host_wide(profile, manifests[name])]
    return ProfileData(profile.name, profile.budget.as_dict(), said(profile), wide)


def _far_clock(line: LineState | None) -> dict[str, int | None]:
    """How the wall clock of a far host is related to that of this machine, whose times the document has."""
    if line is None:
        return {}
    known = {"host_ahead_ns": line.ahead_s, "host_within_ns": line.clock_within_s}
    return {name: None if seconds is None else round(seconds * 1e9) for name, seconds in known.items()}


def _timed(one: IncidentData, end_ns: int) -> IncidentData:
    """With its duration: until it ended, was no longer measured, or the measurement ended."""
    if one.began is None:
        return one
    end = one.ended or one.not_measured_since or utc(end_ns / 1e9)
    # Not strptime, which is imported when it is first called: root may have become another user since.
    began, ended = (datetime.fromisoformat(at.removesuffix("Z")) for at in (one.began, end))
    return msgspec.structs.replace(one, duration_s=max(0.0, (ended - began).total_seconds()))


def _span(probe: ProbeState, source: SourceState, since_ns: int, otherwise_ns: int) -> int:
    """From one reading of a probe to the other: within an interval they are one after the other, and may take time.

    A source that reads all its probes at once says when; else it is the snapshot's own time.
    """
    ended_ns = probe.cost.read_mono_ns or source.closed_mono_ns
    return otherwise_ns if ended_ns is None else max(0, ended_ns - since_ns)


def _closed(state: State) -> tuple[int, int]:
    ends = [(s.closed_mono_ns, s.closed_wall_ns) for s in (state.collector, state.console)]
    for mono_ns, wall_ns in ends:
        if mono_ns is not None and wall_ns is not None:
            return mono_ns, wall_ns
    return state.first_mono_ns or 0, state.first_wall_ns or 0


def _host(state: State) -> HostData:
    host = state.host
    if host is None:
        host = describe()
    return HostData(
        name=host.name, kernel=host.kernel, arch=host.arch, os=host.os, cpus=host.cpus, boot_id=host.boot_id
    )


def _cost(state: State, probes: Mapping[str, ProbeData], since: Totals, duration_ns: int) -> dict[str, Any]:
    times = [probe.cost.get("run_time_ns") for probe in probes.values() if probe.cost]
    known = [ns for ns in times if ns is not None]
    submitted = _total(probes, "submitted")
    return {
        "kernel_cpu_pct": 100 * sum(known) / duration_ns if known and duration_ns else None,
        "collector": _usage(state.collector, since.cpu_ns.get("collector", 0), duration_ns),
        "console": _usage(state.console, since.cpu_ns.get("console", 0), duration_ns),
        "machine_cpu_pct": _machine_cpu_pct(probes),
        "events_per_s": submitted * 1e9 / duration_ns if submitted is not None and duration_ns else None,
        "suppressed": _total(probes, "suppressed"),
        "lost": _total(probes, "lost"),
    }


def _usage(source: SourceState, cpu_ns_before: int, duration_ns: int) -> dict[str, float | int | None]:
    used = source.cpu_ns - cpu_ns_before if source.rss_kb is not None else None
    return {
        "cpu_pct": 100 * used / duration_ns if used is not None and duration_ns else None,
        "rss_kb": source.rss_kb,
        "pss_kb": source.pss_kb,
    }


def _machine_cpu_pct(probes: Mapping[str, ProbeData]) -> float | None:
    own = probes.get("self_cost")
    for row in own.tables.get("machine", []) if own else []:
        busy, total = row.get("busy_ms"), row.get("all_ms")
        if isinstance(busy, int) and isinstance(total, int) and total:
            return 100 * busy / total
    return None


def _total(probes: Mapping[str, ProbeData], name: str) -> int | None:
    values = [probe.cost.get(name) for probe in probes.values()]
    known = [value for value in values if value is not None]
    return sum(known) if known else None
