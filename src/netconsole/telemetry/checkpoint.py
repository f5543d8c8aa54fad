"""A state as data, so that a recording can be read from the middle: everything but histories and samples.

This is the other half of :mod:`netconsole.telemetry.state`, and knows its insides. Histories (ten minutes of each
figure) and the sampled events are not in it: a reader begins a little earlier instead, and sees them come
(docs/use/recording.md).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from netconsole.telemetry import frames
from netconsole.telemetry.costs import MAX_PROGRAMS, ProbeCost, ProgramCost, UsageState
from netconsole.telemetry.frames import (
    Buckets,
    Capability,
    Count,
    Host,
    Int,
    Labels,
    Mode,
    Name,
    Natural,
    Scalar,
    Sentence,
    Text,
)
from netconsole.telemetry.series import Series, Timeline
from netconsole.telemetry.state import MAX_NAMES, MAX_PROBES, CounterState, ProbeState, SourceState, State
from netconsole.telemetry.tables import (
    MAX_HISTOGRAM_HISTORIES,
    MAX_HISTOGRAMS,
    MAX_ROWS,
    CountState,
    HistogramsState,
    HistogramState,
    RowState,
    TableState,
    row_key,
)

MAX_BYTES = 16 * 1024 * 1024
"""A host of 50 000 rows has some 10 MB."""


class CheckpointError(ValueError):
    """Bytes that are no checkpoint; the message says what is wrong, in one line."""


class _Point(msgspec.Struct, frozen=True):
    """Everything below: immutable, in JSON by its names."""


class TimelinePoint(_Point, frozen=True):
    """Where a source's count of intervals stands."""

    tick: Natural
    last_mono_ns: Int | None
    begun: bool


class SourcePoint(_Point, frozen=True):
    """One source of frames, and what its process used."""

    timeline: TimelinePoint
    cpu_pct: float | None
    cpu_ns: Natural
    rss_kb: Natural | None
    pss_kb: Natural | None
    intervals: Natural
    interval_ns: Natural | None
    closed_mono_ns: Int | None
    closed_wall_ns: Int | None
    restarts: Natural
    frames_lost: Natural
    intervals_missed: Natural
    bye: Sentence | None
    first_seq: Int | None
    last_seq: Int
    received: Natural
    lost_before: Natural
    lost_seen: Natural


class CountPoint(_Point, frozen=True, array_like=True):
    """A count: total, of the last interval, and per second."""

    total: Natural
    delta: Int | None
    per_s: float | None


class CounterPoint(_Point, frozen=True, array_like=True):
    """A counter, and the interval that last spoke of it."""

    count: CountPoint
    tick: Natural


class RowPoint(_Point, frozen=True, array_like=True):
    """One row of a table."""

    labels: Labels
    counts: Annotated[dict[Name, CountPoint], Meta(max_length=32)]
    gauges: Annotated[dict[Name, Int | float | None], Meta(max_length=32)]
    first_seen_ns: Int
    last_active_ns: Int
    moving: bool


class TablePoint(_Point, frozen=True):
    """One table."""

    name: Name
    omitted: Natural
    tick: Natural
    rows: Annotated[list[RowPoint], Meta(max_length=MAX_ROWS)]


class HistogramPoint(_Point, frozen=True, array_like=True):
    """One histogram of one set of labels."""

    labels: Labels
    unit: Text
    delta: Buckets
    total: Buckets
    per_s: float | None
    tick: Natural
    last_active_ns: Int


class HistogramsPoint(_Point, frozen=True):
    """All histograms of one name."""

    name: Name
    omitted: Natural
    rows: Annotated[list[HistogramPoint], Meta(max_length=MAX_HISTOGRAMS)]


class ProgramPoint(_Point, frozen=True, array_like=True):
    """What the runs of one BPF program cost so far."""

    name: Name
    attach: Text
    window_ns: Natural
    run_count: Natural
    run_time_ns: Natural
    missed: Natural | None
    last_ns_per_run: float | None
    last_cpu_pct: float | None


class CostPoint(_Point, frozen=True):
    """What a probe cost and missed so far."""

    programs: Annotated[list[ProgramPoint], Meta(max_length=MAX_PROGRAMS)]
    estimated: bool
    elapsed_ns: Natural
    kernel_cpu_pct: float | None
    maps_kb: Natural | None
    events: Annotated[dict[Name, Count], Meta(max_length=64)]
    ledger: Annotated[dict[Name, Count], Meta(max_length=64)]


class ProbePoint(_Point, frozen=True):
    """One probe."""

    name: Name
    source: frames.Source
    status: frames.ProbeState
    mode: Mode
    why: Sentence | None
    help: Sentence | None
    attach: Annotated[list[Text], Meta(max_length=256)]
    missing: Annotated[list[Text], Meta(max_length=256)]
    knobs: Annotated[dict[Name, Scalar], Meta(max_length=64)]
    counters: Annotated[dict[Name, CounterPoint], Meta(max_length=MAX_NAMES)]
    tables: Annotated[list[TablePoint], Meta(max_length=MAX_NAMES)]
    histograms: Annotated[list[HistogramsPoint], Meta(max_length=MAX_NAMES)]
    events_arrived: Natural
    events_shed: Natural
    arrived_now: Natural
    cost: CostPoint


class Checkpoint(_Point, frozen=True):
    """A whole state."""

    host: Host | None
    capabilities: Annotated[dict[Name, Capability], Meta(max_length=64)]
    collector_info: Annotated[dict[Name, Text | Int], Meta(max_length=64)]
    first_mono_ns: Int | None
    first_wall_ns: Int | None
    sources: dict[frames.Source, SourcePoint]
    probes: Annotated[list[ProbePoint], Meta(max_length=MAX_PROBES)]


_decoder = msgspec.json.Decoder(Checkpoint)


def encode(state: State) -> bytes:
    """The state as JSON. Nothing may change it meanwhile."""
    return msgspec.json.encode(take(state))


def decode(content: bytes) -> State:
    """The state of untrusted bytes. Raises CheckpointError, and nothing else."""
    if len(content) > MAX_BYTES:
        raise CheckpointError(f"longer than {MAX_BYTES} bytes")
    try:
        return restore(_decoder.decode(content))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"not a checkpoint: {error}") from None


def take(state: State) -> Checkpoint:
    """What is known now, without histories and samples."""
    return Checkpoint(
        host=state.host,
        capabilities=state.capabilities,
        collector_info=state.collector_info,
        first_mono_ns=state.first_mono_ns,
        first_wall_ns=state.first_wall_ns,
        sources={name: _source(one, state._lost_seen[name]) for name, one in state.sources.items()},
        probes=[_probe(probe) for probe in state.probes.values()],
    )


def restore(point: Checkpoint) -> State:
    """A state that goes on where the checkpoint was taken; its histories begin there."""
    state = State()
    state.host, state.capabilities, state.collector_info = point.host, point.capabilities, point.collector_info
    state.first_mono_ns, state.first_wall_ns = point.first_mono_ns, point.first_wall_ns
    for name, source in point.sources.items():
        state.sources[name] = _restored_source(source)
        state._lost_seen[name] = source.lost_seen
    for probe in point.probes:
        state.probes[probe.name] = _restored_probe(probe, state.sources[probe.source].timeline)
    return state


def _source(source: SourceState, lost_seen: int) -> SourcePoint:
    timeline, usage = source.timeline, source.usage
    return SourcePoint(
        timeline=TimelinePoint(timeline.tick, timeline.last_mono_ns, timeline._begun),
        cpu_pct=usage.cpu_pct,
        cpu_ns=usage.cpu_ns,
        rss_kb=usage.rss_kb,
        pss_kb=usage.pss_kb,
        intervals=source.intervals,
        interval_ns=source.interval_ns,
        closed_mono_ns=source.closed_mono_ns,
        closed_wall_ns=source.closed_wall_ns,
        restarts=source.restarts,
        frames_lost=source.frames_lost,
        intervals_missed=source.intervals_missed,
        bye=source.bye,
        first_seq=source._first_seq,
        last_seq=source._last_seq,
        received=source._received,
        lost_before=source._lost_before,
        lost_seen=lost_seen,
    )


def _restored_source(point: SourcePoint) -> SourceState:
    timeline = Timeline()
    timeline.tick, timeline.last_mono_ns = point.timeline.tick, point.timeline.last_mono_ns
    timeline._begun = point.timeline.begun
    return SourceState(
        timeline,
        UsageState(point.cpu_pct, point.cpu_ns, point.rss_kb, point.pss_kb),
        point.intervals,
        point.interval_ns,
        point.closed_mono_ns,
        point.closed_wall_ns,
        point.restarts,
        point.frames_lost,
        point.intervals_missed,
        point.bye,
        point.first_seq,
        point.last_seq,
        point.received,
        point.lost_before,
    )


def _probe(probe: ProbeState) -> ProbePoint:
    cost = probe.cost
    return ProbePoint(
        name=probe.name,
        source=probe.source,
        status=probe.status,
        mode=probe.mode,
        why=probe.why,
        help=probe.help,
        attach=probe.attach,
        missing=probe.missing,
        knobs=probe.knobs,
        counters={name: CounterPoint(_count(one.count), one.tick) for name, one in probe.counters.items()},
        tables=[_table(table) for table in probe.tables.values()],
        histograms=[_histograms(group) for group in probe.histograms.values()],
        events_arrived=probe.events_arrived,
        events_shed=probe.events_shed,
        arrived_now=probe._arrived_now,
        cost=CostPoint(
            programs=[
                ProgramPoint(
                    one.name, one.attach, one.window_ns, one.run_count, one.run_time_ns, one.missed,
                    one.last_ns_per_run, one.last_cpu_pct,
                )
                for one in cost.programs.values()
            ],
            estimated=cost.estimated,
            elapsed_ns=cost.elapsed_ns,
            kernel_cpu_pct=cost.kernel_cpu_pct,
            maps_kb=cost.maps_kb,
            events=cost.events,
            ledger=cost.ledger,
        ),
    )  # fmt: skip


def _restored_probe(point: ProbePoint, timeline: Timeline) -> ProbeState:
    cost = point.cost
    probe = ProbeState(
        point.name, point.source, timeline, point.status, point.mode, point.why, point.help, point.attach,
        point.missing, point.knobs,
    )  # fmt: skip
    probe.counters = {
        name: CounterState(CountState(one.count.total, one.count.delta, one.count.per_s), one.tick)
        for name, one in point.counters.items()
    }
    probe.tables = {table.name: _restored_table(table, timeline) for table in point.tables}
    probe.histograms = {group.name: _restored_histograms(group, timeline) for group in point.histograms}
    probe.events_arrived, probe.events_shed = point.events_arrived, point.events_shed
    probe._arrived_now = point.arrived_now
    probe.cost = ProbeCost(
        {
            one.name: ProgramCost(
                one.name, one.attach, one.window_ns, one.run_count, one.run_time_ns, one.missed, one.last_ns_per_run,
                one.last_cpu_pct,
            )
            for one in cost.programs
        },
        cost.estimated, cost.elapsed_ns, cost.kernel_cpu_pct, cost.maps_kb, cost.events, cost.ledger,
    )  # fmt: skip
    return probe


def _count(count: CountState) -> CountPoint:
    return CountPoint(count.total, count.delta, count.per_s)


def _table(table: TableState) -> TablePoint:
    rows = [
        RowPoint(
            row.labels, {name: _count(count) for name, count in row.counts.items()}, row.gauges, row.first_seen_ns,
            row.last_active_ns, key in table._moving,
        )
        for key, row in table.rows.items()
    ]  # fmt: skip
    return TablePoint(table.name, table.omitted, table.tick, rows)


def _restored_table(point: TablePoint, timeline: Timeline) -> TableState:
    table = TableState(point.name, timeline, omitted=point.omitted, tick=point.tick)
    for row in point.rows:
        key = row_key(row.labels)
        counts = {name: CountState(count.total, count.delta, count.per_s) for name, count in row.counts.items()}
        table.rows[key] = RowState(key, row.labels, counts, row.gauges, row.first_seen_ns, row.last_active_ns)
        if row.moving:
            table._moving.add(key)
    return table


def _histograms(group: HistogramsState) -> HistogramsPoint:
    rows = [
        HistogramPoint(row.labels, row.unit, row.delta, row.total, row.per_s, row.tick, row.last_active_ns)
        for row in group.rows.values()
    ]
    return HistogramsPoint(group.name, group.omitted, rows)


def _restored_histograms(point: HistogramsPoint, timeline: Timeline) -> HistogramsState:
    group = HistogramsState(point.name, timeline, omitted=point.omitted)
    for number, row in enumerate(point.rows):
        key = row_key(row.labels)
        p99 = Series() if number < MAX_HISTOGRAM_HISTORIES else None
        group.rows[key] = HistogramState(
            key, row.labels, row.unit, row.delta, row.total, row.per_s, row.tick, row.last_active_ns, p99
        )
    return group
