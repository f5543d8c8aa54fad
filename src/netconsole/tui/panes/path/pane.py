"""The path pane: how long packets take in each direction, in which stage, of which flow, and the slow ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from netconsole.base import figure
from netconsole.telemetry.frames import Buckets, Event
from netconsole.telemetry.histogram import percentile
from netconsole.telemetry.state import ProbeState
from netconsole.telemetry.tables import HistogramState, RowState, TableState
from netconsole.tui.panes.common import baseline_cells, events
from netconsole.tui.panes.common.flow_text import flow_text
from netconsole.tui.panes.common.stages import share, side_by_side
from netconsole.tui.panes.common.tables import MAX_ROWS, SPARK, Block
from netconsole.tui.panes.path.directions import (
    CROSSING,
    FLOWS,
    STAGES,
    Way,
    direction_words,
    find,
    probes,
    slowest_stage,
    stage_words,
    ways,
)
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.scene.silent import why_silent
from netconsole.tui.widgets.bars import bar
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.painted import Line

BAR_COLUMNS = 14
MAX_SLOW = 200
"""Slow packets that are listed: more than anyone reads."""

WAY_COLUMNS = (
    TableColumn("way", "way", 16, grow=1, most=20),
    TableColumn("stage", "stage", 7),
    TableColumn("n", "n/s", 6, right=True),
    TableColumn("p50", "p50", 8, right=True),
    TableColumn("p90", "p90", 8, right=True, spare=3),
    TableColumn("p99", "p99", 8, right=True),
    TableColumn("p999", "p99.9", 8, right=True, spare=1),
    TableColumn("share", "time", 5, right=True),
    TableColumn("bar", "share of time", BAR_COLUMNS, spare=2),
    TableColumn("max", "max ever", 8, right=True, spare=4),
    TableColumn("history", "trend of p99", 14, spare=5, grow=1, most=SPARK),
)
DEVICE_COLUMNS = (
    TableColumn("way", "way", 17, spare=2),
    TableColumn("from", "from", 10, grow=1, most=15),
    TableColumn("to", "to", 10, grow=1, most=15),
    TableColumn("n", "n/s", 6, right=True),
    TableColumn("p50", "p50", 8, right=True),
    TableColumn("p90", "p90", 8, right=True, spare=3),
    TableColumn("p99", "p99", 8, right=True),
    TableColumn("max", "max ever", 8, right=True, spare=4),
    TableColumn("history", "trend of p99", 14, spare=5, grow=2, most=SPARK),
)
FLOW_COLUMNS = (
    TableColumn("way", "way", 17, spare=2),
    TableColumn("flow", "flow", 30, grow=6, most=90),
    TableColumn("packets", "pkts/s", 7, right=True),
    TableColumn("bytes", "B/s", 7, right=True, spare=4),
    TableColumn("mean", "mean", 8, right=True),
    TableColumn("max", "max ever", 8, right=True),
    TableColumn("slow", "slow/s", 6, right=True, spare=3),
    TableColumn("total", "total", 9, right=True, spare=5),
    TableColumn("history", "pkts trend", 12, spare=6, grow=1, most=SPARK),
)
SLOW_COLUMNS = (
    TableColumn("time", "time", 12, spare=3),
    TableColumn("took", "took", 8, right=True),
    TableColumn("most", "most of it", 13),
    TableColumn("between", "from → to", 17, grow=1, most=33, spare=2),
    TableColumn("flow", "flow", 24, grow=3, most=70),
    TableColumn("stages", "stages", 40, grow=1, most=70, spare=1),
)


def ways_block(probe: str) -> Block:
    """Direction by percentile, each with its stages below it."""
    return Block("path-ways", _ways_title, WAY_COLUMNS, way_rows, lambda scene: _ways_note(scene, probe), probe)


def devices_block(probe: str) -> Block:
    """The same between each two devices, or a socket and a device."""
    return Block(
        "path-devices",
        lambda _: "Between devices",
        DEVICE_COLUMNS,
        device_rows,
        lambda scene: why_silent(scene, probe),
        probe,
    )


def flows_block(probe: str) -> Block:
    """Flows by packets."""
    return Block(
        "path-flows", lambda _: "Flows", FLOW_COLUMNS, flow_rows, lambda scene: why_silent(scene, probe), probe
    )


def slow_block(probe: str) -> Block:
    """Packets above the threshold that were sampled."""
    return Block("path-slow", _slow_title, SLOW_COLUMNS, slow_rows, lambda scene: _slow_note(scene, probe))


def way_rows(scene: Scene) -> list[TableRow]:
    """Every way, and below each the stages that it has."""
    return [row for way in ways(scene) for row in _way_and_stages(scene, way)]


def device_rows(scene: Scene) -> list[TableRow]:
    """Pairs of devices, the highest p99 of the last interval first; then those that stand still."""
    pairs = [(way, one) for way in ways(scene) for one in way.parts]
    pairs.sort(key=lambda pair: (not pair[1].delta.count, -(pair[1].percentile(99.0, "delta") or 0.0)))
    return [
        TableRow(Subject(way.probe, "histogram", CROSSING, one.key), partial(_device_cells, scene, way, one))
        for way, one in pairs[:MAX_ROWS]
    ]


def flow_rows(scene: Scene) -> list[TableRow]:
    """Flows of all path probes, those that move most packets first."""
    found = []
    for state in probes(scene):
        table = state.tables.get(FLOWS)
        found += [(state, table, row) for row in table.rows.values()] if table is not None else []
    found.sort(key=lambda one: (-(one[2].per_s("packets") or 0.0), -(one[2].total("packets") or 0)))
    return [
        TableRow(Subject(state.name, "table", FLOWS, row.key), partial(_flow_cells, scene, state, table, row))
        for state, table, row in found[:MAX_ROWS]
    ]


def slow_rows(scene: Scene) -> list[TableRow]:
    """The samples that are kept, the slowest first."""
    found = []
    for state in probes(scene):
        first = state.events_arrived - len(state.events)
        found += [(state.name, first + place, event) for place, event in enumerate(state.events)]
    found.sort(key=lambda one: -_ns(one[2].fields.get("total_ns")))
    return [
        TableRow(
            Subject(probe, "event", str(number), ()), partial(_slow_cells, stage_words(scene.manifests[probe]), event)
        )
        for probe, number, event in found[:MAX_SLOW]
    ]


def detail(scene: Scene, subject: Subject, width: int) -> Iterator[Line]:
    """The page of a way: its stages side by side, what it cannot count, its slowest samples."""
    way = find(scene, subject.probe, subject.name)
    if way is None:
        yield [("  no packets in this direction any more", "look")]
        return
    most = slowest_stage(way)
    share = figure.percent(most[1] if most else None, digits=2)
    said = f"most of its time in {most[0]}, {share}" if most else "nothing in the last interval"
    yield [(f"  {way.words}", "strong"), (f"  {figure.number(way.per_s)} samples/s, {said}", "")]
    yield []
    if way.stages:
        yield [("  Stages, since attached", "head")]
        found = {**{name: one.total for name, one in way.stages.items()}, "all": way.total}
        yield from side_by_side(found, way.total, "ns", stage_words(scene.manifests[way.probe]), width)
    yield [("  Between", "head")]
    for one in sorted(way.parts, key=lambda part: -part.total.count):
        between = f"{figure.safe(one.labels.get('from'), 32)} → {figure.safe(one.labels.get('to'), 32)}"
        p50, p99 = (figure.duration(one.percentile(percent)) for percent in (50.0, 99.0))
        yield [(f"  {figure.count(one.total.count):>12} ", ""), (f"{between}: p50 {p50}, p99 {p99}", "")]
    yield []
    slow = [row for row in slow_rows(scene) if _is_of(scene, row.key, way)]
    if slow:
        yield [("  Slowest packets among the samples", "head")]
    for row in slow[:8]:
        cells = row.cells
        yield [
            (f"  {figure.fit(cells['took'].text, 8, right=True)} ", "strong"),
            (f"{cells['flow'].text}  ", ""),
            (cells["stages"].text, "dim"),
        ]
    if slow:
        yield []


def _is_of(scene: Scene, key: object, way: Way) -> bool:
    if not isinstance(key, Subject) or key.probe != way.probe:
        return False
    event = events.find(scene, key)
    return event is not None and event.fields.get("direction") == way.direction


def _way_and_stages(scene: Scene, way: Way) -> Iterator[TableRow]:
    at_least = scene.state.probes[way.probe].lacks_now
    top = Subject(way.probe, "direction", way.direction, ())
    yield TableRow(top, partial(_way_cells, scene, way, at_least))
    whole = sum(one.delta.sum for one in way.stages.values())
    for stage, one in way.stages.items():
        yield TableRow(
            Subject(way.probe, "histogram", STAGES, one.key),
            partial(_stage_cells, scene, way, stage, one, whole, at_least),
        )


def _way_cells(scene: Scene, way: Way, at_least: bool) -> dict[str, Cell]:
    cells = {"way": Cell(figure.safe(way.words, 32), way.words, "strong"), "stage": Cell("all", "", "strong")}
    cells |= _figures(way.delta, way.total, way.per_s, at_least)
    busiest = max(way.parts, key=lambda one: one.delta.count)
    cells["share"] = Cell(share(way.delta.sum, way.delta.sum), 1.0 if way.delta.sum else None)
    most = slowest_stage(way)
    cells["bar"] = Cell(f"most: {most[0]}" if most else "", most[0] if most else None)
    group = scene.state.probes[way.probe].histograms[CROSSING]
    cells["history"] = Cell("", history=partial(group.history, busiest.key, SPARK), unit="ns")
    if len(way.parts) == 1:
        return cells | baseline_cells.of_percentile(scene, way.probe, CROSSING, busiest, 99.0)
    return cells | (baseline_cells.cells(None) if scene.comparison is not None else {})


def _stage_cells(
    scene: Scene, way: Way, stage: str, one: HistogramState, whole: int, at_least: bool
) -> dict[str, Cell]:
    cells = {"way": Cell(figure.safe(way.words, 32), way.words, "dim"), "stage": Cell(stage, stage)}
    cells |= _figures(one.delta, one.total, one.per_s, at_least)
    part = one.delta.sum / whole if whole else None
    cells["share"] = Cell(share(one.delta.sum, whole), part)
    cells["bar"] = Cell(bar(part or 0.0, BAR_COLUMNS), part, "trend")
    group = scene.state.probes[way.probe].histograms[STAGES]
    cells["history"] = Cell("", history=partial(group.history, one.key, SPARK), unit="ns")
    return cells | baseline_cells.of_percentile(scene, way.probe, STAGES, one, 99.0)


def _figures(delta: Buckets, total: Buckets, per_s: float | None, at_least: bool) -> dict[str, Cell]:
    cells = {"n": Cell(figure.number(per_s, at_least), per_s, "" if per_s else "dim")}
    for name, percent in (("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p999", 99.9)):
        value = percentile(delta, percent)
        cells[name] = Cell(figure.duration(value), value)
    cells["max"] = Cell(figure.duration(total.max), total.max)
    return cells


def _device_cells(scene: Scene, way: Way, one: HistogramState) -> dict[str, Cell]:
    state = scene.state.probes[way.probe]
    cells = _figures(one.delta, one.total, one.per_s, state.lacks_now)
    cells["way"] = Cell(figure.safe(way.words, 32), way.words)
    for name in ("from", "to"):
        cells[name] = Cell(figure.safe(one.labels.get(name), 64), str(one.labels.get(name)))
    cells["history"] = Cell("", history=partial(state.histograms[CROSSING].history, one.key, SPARK), unit="ns")
    return cells | baseline_cells.of_percentile(scene, way.probe, CROSSING, one, 99.0)


def _flow_cells(scene: Scene, state: ProbeState, table: TableState, row: RowState) -> dict[str, Cell]:
    at_least = bool(state.at_least())
    samples, sum_ns = row.per_s("samples"), row.per_s("latency_ns")
    mean_ns = sum_ns / samples if samples and sum_ns is not None else None
    flow, way = flow_text(row.labels), direction_words(scene.manifests[state.name], row.labels.get("direction"))
    total, longest_ns = row.total("packets"), row.gauges.get("latency_max_ns")
    cells = {
        "way": Cell(figure.safe(way, 32), way),
        "flow": Cell(flow, flow),
        "mean": Cell(figure.duration(mean_ns), mean_ns),
        "max": Cell(figure.duration(longest_ns), longest_ns),
        "total": Cell(figure.number(total, at_least), total),
        "history": Cell("", history=partial(table.history, row.key, "packets", SPARK)),
    }
    for name in ("packets", "bytes", "slow"):
        value = row.per_s(name)
        cells[name] = Cell(figure.number(value, state.lacks_now), value, "" if value else "dim")
    return cells | baseline_cells.of_value(scene, state.name, FLOWS, row, "packets")


def _slow_cells(stages: Iterable[str], event: Event) -> dict[str, Cell]:
    fields = event.fields
    whole = _ns(fields.get("total_ns"))
    took = {stage: _ns(fields.get(f"{stage}_ns")) for stage in stages if _ns(fields.get(f"{stage}_ns"))}
    most = max(took, key=lambda stage: took[stage]) if took else None
    between = f"{figure.safe(fields.get('from'), 32)} → {figure.safe(fields.get('to'), 32)}"
    flow = flow_text(fields)
    return {
        "time": Cell(events.clock(events.happened_ns(event)), float(events.happened_ns(event))),
        "took": Cell(figure.duration(whole), whole),
        "most": Cell(f"{most} {share(took[most], whole)}" if most else figure.UNKNOWN, most),
        "between": Cell(between, between),
        "flow": Cell(flow, flow),
        "stages": Cell(", ".join(f"{stage} {figure.duration(ns)}" for stage, ns in took.items())),
    }


def _ways_title(scene: Scene) -> str:
    parts = ["Ways of packets"]
    for state in probes(scene):
        lost = [
            f"{figure.count(counted.count.total)} {name}"
            for name, spec in scene.manifests[state.name].counters.items()
            if spec.loss and (counted := state.counters.get(name)) is not None and counted.count.total
        ]
        if lost:
            parts.append(f"{state.name}: {', '.join(lost)}")
    return " · ".join(parts)


def _ways_note(scene: Scene, probe: str) -> str:
    """Where nothing goes by the devices that are meant, which those are, for they are what to change."""
    state = scene.state.probes.get(probe)
    if state is None or not state.measuring:
        return why_silent(scene, probe)
    sets = [f"{name} {figure.safe(value, 64)}" for name, value in state.knobs.items() if name.endswith("_devices")]
    change = " (e changes them)" if scene.replay is None else ""
    return f"no packet on these devices so far{change}: {', '.join(sets)}"


def _slow_title(scene: Scene) -> str:
    counted = [state.counters["slow"].count.total for state in probes(scene) if "slow" in state.counters]
    sampled = sum(len(state.events) for state in probes(scene))
    if not sampled:
        return "Slow packets"
    return f"Slow packets · {figure.count(sampled)} sampled of {figure.count(sum(counted))} above the threshold"


def _slow_note(scene: Scene, probe: str) -> str:
    running = [state for state in probes(scene) if state.measuring]
    if running and all(state.mode != "details" for state in running):
        way_out = (
            f": press e and set {running[0].name} to mode details, with a threshold" if scene.replay is None else ""
        )
        return f"mode summary only counts{way_out}"
    return "none above the threshold so far" if running else why_silent(scene, probe)


def _ns(value: object) -> int:
    return value if isinstance(value, int) else 0
