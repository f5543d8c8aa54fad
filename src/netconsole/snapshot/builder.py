"""Makes a snapshot (docs/use/snapshot.md) from a state: what was measured between two moments, and what it cost."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import msgspec

import netconsole
from netconsole.base.fact_keys import FactData
from netconsole.host.identity import describe
from netconsole.probes.manifest import Manifest
from netconsole.probes.polarity import Polarity
from netconsole.profile.profile import Profile
from netconsole.session.protocol import LineState
from netconsole.snapshot.balance import balance, filters_of
from netconsole.snapshot.document import (
    SCHEMA,
    ColumnData,
    Counter,
    HistogramData,
    HostData,
    IncidentData,
    ProbeData,
    ProfileData,
    Snapshot,
    SnapshotValue,
    TableColumns,
)
from netconsole.telemetry import histogram
from netconsole.telemetry.action import BudgetAction
from netconsole.telemetry.frames import Buckets
from netconsole.telemetry.ledger import UNSEEN
from netconsole.telemetry.source import SourceState
from netconsole.telemetry.state import ProbeState, State
from netconsole.telemetry.tables import HistogramsState, RowKey, RowState, TableState

_UTC = "%Y-%m-%dT%H:%M:%SZ"
NEVER_SETTLED = "the probe was not attached in time"
COLLECTOR_RESTARTED = "the collector was lost and started again: the figures begin there"
PROBE_RESTARTED = "the probe was detached and attached again: the figures begin there"
MAX_PARTS = 20
"""Of a row's history: enough to tell a steady loss from a burst."""
HISTORY_AGREES = 2.0
"""A row's history that is off its count by more than this factor is left out: the state forgets that of idle rows.
Intervals are not all equally long, so that it is never quite its count."""


@dataclass(frozen=True, slots=True)
class _ProbeTotals:
    counters: Mapping[str, int]
    rows: Mapping[tuple[str, RowKey], Mapping[str, int]]
    histograms: Mapping[tuple[str, RowKey], Buckets]
    programs: Mapping[str, tuple[int, int, int]]
    elapsed_ns: int
    events: Mapping[str, int]
    ledger: Mapping[str, int]
    arrived: int
    tick: int = 0


_NOTHING = _ProbeTotals({}, {}, {}, {}, 0, {}, {}, 0)


@dataclass(frozen=True, slots=True)
class Totals:
    """All totals at the end of one interval: what a snapshot counts from. Times in ns."""

    mono_ns: int
    wall_ns: int
    restarts: int = 0
    cpu_ns: Mapping[str, int] = field(default_factory=dict)
    probes: Mapping[str, _ProbeTotals] = field(default_factory=dict)
    closed_ns: Mapping[str, int | None] = field(default_factory=dict)
    """When the last interval of each source ended. Sources are not read at the same time."""


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
        {name: _probe_totals(probe) for name, probe in state.probes.items()},
        {name: source.closed_mono_ns for name, source in state.sources.items()},
    )


def totals_at_start(state: State) -> Totals:
    """The totals at the first frame. A snapshot from there has everything since the probes were attached."""
    return Totals(state.first_mono_ns or 0, state.first_wall_ns or 0)


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
    for name, probe in state.probes.items():
        fresh = COLLECTOR_RESTARTED if is_new and probe.source == "collector" else None
        start = since.probes.get(name, _NOTHING) if fresh is None else _NOTHING
        span_ns = _span(state.sources[probe.source], since.closed_ns.get(probe.source) or since.mono_ns, duration_ns)
        if fresh is None and _has_gone_back(probe, start):
            start, fresh = replace(start, counters={}, rows={}, histograms={}, events={}, ledger={}), PROBE_RESTARTED
        probes[name] = _probe(probe, manifests.get(name), start, span_ns, fresh)
    return Snapshot(
        schema=SCHEMA,
        created=utc(wall_ns or time.time_ns()),
        netconsole=netconsole.__version__,
        host=_host(state),
        profile=ProfileData(name=profile.name, budget=profile.budget.as_dict()),
        duration_s=round(duration_ns / 1e9, 6),
        clock={"start_unix_ns": since.wall_ns, "start_monotonic_ns": since.mono_ns, **_far_clock(line)},
        note=note,
        probes=probes,
        incidents=None if incidents is None else [_timed(one, wall_ns) for one in incidents],
        balance=balance(probes, filters_of(state)),
        cost=_cost(state, probes, since, duration_ns),
        governor=[action.as_dict(since.mono_ns / 1e9) for action in actions],
        facts=dict(facts or {}),
    )


def _far_clock(line: LineState | None) -> dict[str, int | None]:
    """How the wall clock of a far host is related to that of this machine, whose times the document has."""
    if line is None:
        return {}
    known = {"host_ahead_ns": line.ahead_s, "host_within_ns": line.clock_within_s}
    return {name: None if seconds is None else round(seconds * 1e9) for name, seconds in known.items()}


def utc(wall_ns: int) -> str:
    """A time in the format of the documents: 2026-11-20T21:00:00Z."""
    return datetime.fromtimestamp(wall_ns / 1e9, timezone.utc).strftime(_UTC)


def _timed(one: IncidentData, end_ns: int) -> IncidentData:
    """With its duration: until it ended, was no longer measured, or the measurement ended."""
    if one.began is None:
        return one
    began, ended = (
        datetime.strptime(at, _UTC) for at in (one.began, one.ended or one.not_measured_since or utc(end_ns))
    )
    return msgspec.structs.replace(one, duration_s=max(0.0, (ended - began).total_seconds()))


def _span(source: SourceState, since_ns: int, otherwise_ns: int) -> int:
    """How long a source has measured since then; the snapshot's own time when it ended no interval."""
    return max(0, source.closed_mono_ns - since_ns) if source.closed_mono_ns is not None else otherwise_ns


def _closed(state: State) -> tuple[int, int]:
    ends = [(s.closed_mono_ns, s.closed_wall_ns) for s in (state.collector, state.console)]
    for mono_ns, wall_ns in ends:
        if mono_ns is not None and wall_ns is not None:
            return mono_ns, wall_ns
    return state.first_mono_ns or 0, state.first_wall_ns or 0


def _probe_totals(probe: ProbeState) -> _ProbeTotals:
    return _ProbeTotals(
        {name: counter.count.total for name, counter in probe.counters.items()},
        {
            (table.name, key): {name: count.total for name, count in row.counts.items()}
            for table in probe.tables.values()
            for key, row in table.rows.items()
        },
        {(group.name, key): row.total for group in probe.histograms.values() for key, row in group.rows.items()},
        probe.cost.sums(),
        probe.cost.elapsed_ns,
        {name: count.total for name, count in probe.cost.events.items()},
        {name: count.total for name, count in probe.cost.ledger.items()},
        probe.events_arrived,
        probe.timeline.tick,
    )


def _host(state: State) -> HostData:
    host = state.host
    if host is None:
        host = describe()
    return HostData(
        name=host.name, kernel=host.kernel, arch=host.arch, os=host.os, cpus=host.cpus, boot_id=host.boot_id
    )


# ---- one probe ----


def _probe(
    probe: ProbeState, manifest: Manifest | None, start: _ProbeTotals, duration_ns: int, restarted: str | None
) -> ProbeData:
    why = "; ".join(part for part in (probe.why, probe.help) if part) or None
    status = probe.status
    if not probe.settled:
        status, why = "failed", NEVER_SETTLED
    elif probe.measuring and restarted:
        status, why = "degraded", restarted
    if not probe.measuring:
        return ProbeData(status=status, why=why, mode=probe.mode, version=manifest.version if manifest else None)
    ledger = _ledger(probe, start)
    seen_ns = max(0, duration_ns - ledger.get(UNSEEN, 0) * 1_000_000)
    return ProbeData(
        status=status,
        why=why,
        mode=probe.mode,
        version=manifest.version if manifest else None,
        attach=list(probe.attach),
        counters={
            name: _counter(
                name,
                counter.count.total - start.counters.get(name, 0),
                manifest,
                seen_ns if counter.is_partial else duration_ns,
                seen_ns,
            )
            for name, counter in probe.counters.items()
        },
        tables={table.name: _rows(table, start) for table in probe.tables.values()},
        columns={table.name: _columns(table, manifest) for table in probe.tables.values()},
        histograms={group.name: _histogram(group, manifest, start) for group in probe.histograms.values()},
        events=_events(probe, start),
        cost=_probe_cost(probe, start),
        ledger=ledger,
        duration_s=round(seen_ns / 1e9, 6),
        history=_history(probe, start),
        row_history=_row_history(probe, manifest, start, seen_ns),
    )


def _has_gone_back(probe: ProbeState, start: _ProbeTotals) -> bool:
    """Whether a counter is lower than at the start: then the probe was loaded again, and counts from 0."""
    return any(counter.count.total < start.counters.get(name, 0) for name, counter in probe.counters.items())


def _counter(name: str, total: int, manifest: Manifest | None, duration_ns: int, probes_ns: int) -> Counter:
    spec = manifest.counters.get(name) if manifest else None
    return Counter(
        total=total,
        per_s=total * 1e9 / duration_ns if duration_ns else None,
        unit=spec.unit if spec else "",
        worse=spec.worse if spec else None,
        duration_s=None if duration_ns == probes_ns else round(duration_ns / 1e9, 6),
    )


def _rows(table: TableState, start: _ProbeTotals) -> list[dict[str, SnapshotValue]]:
    return [{**row.labels, **counts, **row.gauges} for row, counts in _moved(table, start)]


def _moved(table: TableState, start: _ProbeTotals) -> Iterator[tuple[RowState, dict[str, int]]]:
    """The rows that a snapshot holds, with their counts since the start."""
    for key, row in table.rows.items():
        before = start.rows.get((table.name, key), {})
        counts = {name: histogram.since(count.total, before.get(name, 0)) for name, count in row.counts.items()}
        if any(counts.values()) or row.gauges:
            yield row, counts


def _columns(table: TableState, manifest: Manifest | None) -> TableColumns:
    spec = manifest.tables.get(table.name) if manifest else None
    if spec is None:
        return TableColumns()
    values = {
        column.name: ColumnData(column.unit, "max" if column.kind == "max" else "sum", column.worse)
        for column in spec.value
    }
    return TableColumns(labels=list(spec.labels), values=values)


def _histogram(group: HistogramsState, manifest: Manifest | None, start: _ProbeTotals) -> HistogramData:
    unit = ""
    each: list[tuple[dict[str, SnapshotValue], Buckets]] = []
    for key, row in group.rows.items():
        unit = row.unit
        grown = histogram.subtract(row.total, start.histograms.get((group.name, key), histogram.EMPTY))
        if grown.count:
            each.append((dict(row.labels), grown))
    by = (
        [_histogram_data(one, unit, labels) for labels, one in each]
        if len(each) > 1 or any(ls for ls, _ in each)
        else []
    )
    spec = manifest.histograms.get(group.name) if manifest else None
    return _histogram_data(histogram.add(one for _, one in each), unit, by=by, worse=spec.worse if spec else None)


def _histogram_data(
    one: Buckets,
    unit: str,
    labels: dict[str, SnapshotValue] | None = None,
    by: Iterable[HistogramData] = (),
    worse: Polarity | None = None,
) -> HistogramData:
    return HistogramData(
        unit=unit,
        count=one.count,
        sum=one.sum if one.count else None,
        min=one.min,
        max=one.max,
        p50=histogram.percentile(one, 50),
        p90=histogram.percentile(one, 90),
        p99=histogram.percentile(one, 99),
        p999=histogram.percentile(one, 99.9),
        buckets=[(*map(float, histogram.bounds(index)), n) for index, n in sorted(one.buckets)],  # type: ignore[misc]
        labels=labels or {},
        by=list(by),
        worse=worse,
    )


def _events(probe: ProbeState, start: _ProbeTotals) -> list[dict[str, Any]]:
    arrived = probe.events_arrived - start.arrived
    kept = list(probe.events)[-arrived:] if arrived > 0 else []
    return [{"name": event.name, "wall_ns": event.wall_ns, **event.fields} for event in kept]


def _history(probe: ProbeState, start: _ProbeTotals) -> dict[str, list[float | None]]:
    intervals = max(0, probe.timeline.tick - start.tick)
    found = {name: probe.counter_history(name, intervals) for name in probe.counters}
    for table in probe.tables.values():
        found |= {f"{table.name}.{column}": values for column, values in table.sums(intervals).items()}
    return {name: [None if value is None else round(value, 3) for value in values] for name, values in found.items()}


def _row_history(
    probe: ProbeState, manifest: Manifest | None, start: _ProbeTotals, duration_ns: int
) -> dict[str, list[list[float]]]:
    """The histories of single rows, of the columns that add up; a long run's in fewer parts."""
    intervals = max(0, probe.timeline.tick - start.tick)
    found = {}
    for table in probe.tables.values():
        spec = manifest.tables.get(table.name) if manifest else None
        for column in spec.value if spec else ():
            if column.kind != "max":
                rows = [
                    _parts(
                        table.history(row.key, column.name, intervals), counts.get(column.name, 0), duration_ns / 1e9
                    )
                    for row, counts in _moved(table, start)
                ]
                if any(rows):
                    found[f"{table.name}.{column.name}"] = rows
    return found


def _parts(per_s: Sequence[float | None], count: int, span_s: float) -> list[float]:
    """Rates of equal parts of the run; nothing where they do not add up to the count."""
    rates = [rate or 0.0 for rate in per_s]  # before its first movement a row stood still
    events = sum(rates) / len(rates) * span_s if rates else 0.0
    if not count / HISTORY_AGREES <= events <= count * HISTORY_AGREES or not events:
        return []
    size = -(-len(rates) // MAX_PARTS)
    whole = range(0, len(rates) - size + 1, size)
    return [round(sum(rates[first : first + size]) / size, 3) for first in whole]


def _ledger(probe: ProbeState, start: _ProbeTotals) -> dict[str, int]:
    grown = {name: count.total - start.ledger.get(name, 0) for name, count in probe.cost.ledger.items()}
    return {name: value for name, value in grown.items() if value}


# ---- cost ----


def _probe_cost(probe: ProbeState, start: _ProbeTotals) -> dict[str, Any]:
    runs, time_ns = _scaled(probe, start)
    calibrated_ns = _calibrated(probe, start) if time_ns is None else None
    events = {name: count.total - start.events.get(name, 0) for name, count in probe.cost.events.items()}
    full = probe.cost.ledger.get("map_full")
    return {
        "run_count": runs,
        "run_time_ns": calibrated_ns if time_ns is None else time_ns,
        "ns_per_run": time_ns / runs if runs and time_ns is not None else None,
        "estimated": probe.cost.estimated or calibrated_ns is not None,
        "calibrated": calibrated_ns is not None,
        "submitted": events.get("submitted"),
        "suppressed": events.get("suppressed"),
        "lost": events.get("lost"),
        "map_full": None if full is None else full.total - start.ledger.get("map_full", 0),
    }


def _scaled(probe: ProbeState, start: _ProbeTotals) -> tuple[int | None, int | None]:
    """Runs and run time in the whole time, scaled up from its statistics windows. None without a window."""
    elapsed_ns = probe.cost.elapsed_ns - start.elapsed_ns
    runs = time_ns = 0.0
    measured = False
    for name, (window_ns, run_count, run_time_ns) in probe.cost.sums().items():
        before = start.programs.get(name, (0, 0, 0))
        window_ns -= before[0]
        if window_ns <= 0:
            continue
        measured = True
        share = max(1.0, elapsed_ns / window_ns)
        runs += (run_count - before[1]) * share
        time_ns += (run_time_ns - before[2]) * share
    return (round(runs), round(time_ns)) if measured else (None, None)


def _calibrated(probe: ProbeState, start: _ProbeTotals) -> int | None:
    """Run time from the calibrated cost of a count, where the kernel does not measure it. None where it does."""
    known = None if probe.cost.measurable else probe.per_count.get((probe.name, probe.mode))
    counter = probe.counters.get(known[0]) if known is not None else None
    if known is None or counter is None:
        return None
    return round((counter.count.total - start.counters.get(known[0], 0)) * known[1])


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
