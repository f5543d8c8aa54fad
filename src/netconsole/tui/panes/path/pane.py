"""The path pane: how long packets take in each direction, in which stage, of which flow, and the slow ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from netconsole.base import figure
from netconsole.telemetry.example import flow_text
from netconsole.telemetry.frames import Event
from netconsole.tui.panes.common import baseline_cells, events
from netconsole.tui.panes.common.columns import (
    SPARK,
    Shown,
    cells,
    flow,
    gauge,
    history,
    label,
    longest,
    rate,
    samples,
    took,
    total,
    trend,
)
from netconsole.tui.panes.common.stages import share, side_by_side
from netconsole.tui.panes.common.tables import MAX_ROWS, Block
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


@dataclass(frozen=True)
class ShownWay(Shown):
    """A way, one of its stages, or what goes between two devices."""

    way: str = ""
    stage: str = ""
    whole: int = 0
    """The time of all stages together, or of the way."""

    @property
    def spent(self) -> int:
        """Its time."""
        return self.times.delta.sum if self.times is not None else 0


def _way(at: ShownWay) -> Cell:
    return Cell(figure.safe(at.way, 32), at.way, "dim" if at.stage else "")


def _share(at: ShownWay) -> Cell:
    return Cell(share(at.spent, at.whole), at.spent / at.whole if at.whole else None)


def _bar(at: ShownWay) -> Cell:
    part = at.spent / at.whole if at.whole else None
    return Cell(bar(part or 0.0, BAR_COLUMNS), part, "trend")


def _direction(at: Shown) -> Cell:
    way = direction_words(at.scene.manifests[at.probe], at.labels.get("direction"))
    return Cell(figure.safe(way, 32), way)


def _mean(at: Shown) -> Cell:
    samples, sum_ns = at.per_s("samples"), at.per_s("latency_ns")
    mean_ns = sum_ns / samples if samples and sum_ns is not None else None
    return Cell(figure.duration(mean_ns), mean_ns)


def _between(sample: _SlowPacket) -> Cell:
    fields = sample.event.fields
    return _text(f"{figure.safe(fields.get('from'), 32)} → {figure.safe(fields.get('to'), 32)}")


def _stages(sample: _SlowPacket) -> Cell:
    return Cell(", ".join(f"{stage} {figure.duration(ns)}" for stage, ns in sample.took.items()))


def _text(words: str) -> Cell:
    return Cell(words, words)


def _most(sample: _SlowPacket) -> Cell:
    most = max(sample.took, key=lambda stage: sample.took[stage], default=None)
    return Cell(f"{most} {share(sample.took[most], sample.whole)}" if most else figure.UNKNOWN, most)


class _SlowPacket(NamedTuple):
    """A slow packet, and how long it was in each stage."""

    event: Event
    took: Mapping[str, int]
    whole: int


WAY_COLUMNS = (
    TableColumn("way", "way", 16, grow=1, most=20, value=_way),
    TableColumn("stage", "stage", 7, value=lambda at: Cell(at.stage, at.stage)),
    TableColumn("n", "n/s", 6, right=True, value=samples),
    TableColumn("p50", "p50", 8, right=True, value=took(50.0)),
    TableColumn("p90", "p90", 8, right=True, spare=3, value=took(90.0)),
    TableColumn("p99", "p99", 8, right=True, value=took(99.0)),
    TableColumn("p999", "p99.9", 8, right=True, spare=1, value=took(99.9)),
    TableColumn("share", "time", 5, right=True, value=_share),
    TableColumn("bar", "share of time", BAR_COLUMNS, spare=2, value=_bar),
    TableColumn("max", "max ever", 8, right=True, spare=4, value=longest),
    TableColumn("history", "trend of p99", 14, spare=5, grow=1, most=SPARK, value=trend),
)
DEVICE_COLUMNS = (
    TableColumn("way", "way", 17, spare=2, value=_way),
    TableColumn("from", "from", 10, grow=1, most=15, value=label("from")),
    TableColumn("to", "to", 10, grow=1, most=15, value=label("to")),
    TableColumn("n", "n/s", 6, right=True, value=samples),
    TableColumn("p50", "p50", 8, right=True, value=took(50.0)),
    TableColumn("p90", "p90", 8, right=True, spare=3, value=took(90.0)),
    TableColumn("p99", "p99", 8, right=True, value=took(99.0)),
    TableColumn("max", "max ever", 8, right=True, spare=4, value=longest),
    TableColumn("history", "trend of p99", 14, spare=5, grow=2, most=SPARK, value=trend),
)
FLOW_COLUMNS = (
    TableColumn("way", "way", 17, spare=2, value=_direction),
    TableColumn("flow", "flow", 30, grow=6, most=90, value=flow),
    TableColumn("packets", "pkts/s", 7, right=True, value=rate("packets")),
    TableColumn("bytes", "B/s", 7, right=True, spare=4, value=rate("bytes")),
    TableColumn("mean", "mean", 8, right=True, value=_mean),
    TableColumn("max", "max ever", 8, right=True, value=gauge("latency_max_ns", "ns")),
    TableColumn("slow", "slow/s", 6, right=True, spare=3, value=rate("slow")),
    TableColumn("total", "total", 9, right=True, spare=5, value=total("packets")),
    TableColumn("history", "pkts trend", 12, spare=6, grow=1, most=SPARK, value=history("packets")),
)
SLOW_COLUMNS = (
    TableColumn("time", "time", 12, spare=3, value=lambda one: events.clock_cell(one.event)),
    TableColumn("took", "took", 8, right=True, value=lambda one: Cell(figure.duration(one.whole), one.whole)),
    TableColumn("most", "most of it", 13, value=_most),
    TableColumn("between", "from → to", 17, grow=1, most=33, spare=2, value=_between),
    TableColumn("flow", "flow", 24, grow=3, most=70, value=lambda one: _text(flow_text(one.event.fields))),
    TableColumn("stages", "stages", 40, grow=1, most=70, spare=1, value=_stages),
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
    shown = [ShownWay(scene, way.probe, CROSSING, times=one, way=way.words) for way, one in pairs[:MAX_ROWS]]
    return [one.line(DEVICE_COLUMNS) for one in shown]


def flow_rows(scene: Scene) -> list[TableRow]:
    """Flows of all path probes, those that move most packets first."""
    found = [(state, row) for state in probes(scene) for row in scene.state.rows(state.name, FLOWS)]
    found.sort(key=lambda one: (-(one[1].per_s("packets") or 0.0), -(one[1].total("packets") or 0)))
    shown = [Shown(scene, state.name, FLOWS, row) for state, row in found[:MAX_ROWS]]
    return [one.line(FLOW_COLUMNS, "packets") for one in shown]


def slow_rows(scene: Scene) -> list[TableRow]:
    """The samples that are kept, the slowest first."""
    found = []
    for state in probes(scene):
        first = state.events_arrived - len(state.events)
        found += [(state.name, first + place, event) for place, event in enumerate(state.events)]
    found.sort(key=lambda one: -_ns(one[2].fields.get("total_ns")))
    return [
        TableRow(Subject(probe, "event", str(number), ()), partial(cells, SLOW_COLUMNS, _sample(scene, probe, event)))
        for probe, number, event in found[:MAX_SLOW]
    ]


def _sample(scene: Scene, probe: str, event: Event) -> _SlowPacket:
    took = {stage: _ns(event.fields.get(f"{stage}_ns")) for stage in stage_words(scene.manifests[probe])}
    return _SlowPacket(event, {stage: ns for stage, ns in took.items() if ns}, _ns(event.fields.get("total_ns")))


def detail(scene: Scene, subject: Subject, width: int) -> Iterator[Line]:
    """The page of a way: its stages side by side, what it cannot count, its slowest samples."""
    way = find(scene, subject.probe, subject.name)
    if way is None:
        yield [("  no packets in this direction any more", "look")]
        return
    most = slowest_stage(way)
    share = figure.percent(most[1] if most else None, digits=2)
    said = f"most of its time in {most[0]}, {share}" if most else "nothing in the last interval"
    yield [(f"  {way.words}", "strong"), (f"  {figure.number(way.times.per_s)} samples/s, {said}", "")]
    yield []
    if way.stages:
        yield [("  Stages, since attached", "head")]
        found = {**{name: one.total for name, one in way.stages.items()}, "all": way.times.total}
        yield from side_by_side(found, way.times.total, "ns", stage_words(scene.manifests[way.probe]), width)
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
    yield TableRow(Subject(way.probe, "direction", way.direction, ()), partial(_way_cells, scene, way))
    whole = sum(one.delta.sum for one in way.stages.values())
    for stage, one in way.stages.items():
        yield ShownWay(scene, way.probe, STAGES, None, one, None, way.words, stage, whole).line(WAY_COLUMNS)


def _way_cells(scene: Scene, way: Way) -> dict[str, Cell]:
    whole = ShownWay(scene, way.probe, CROSSING, times=way.times, way=way.words, whole=way.times.delta.sum)
    busiest = replace(whole, times=max(way.parts, key=lambda one: one.delta.count))
    most = slowest_stage(way)
    found = cells(WAY_COLUMNS, whole) | {
        "way": Cell(figure.safe(way.words, 32), way.words, "strong"),
        "stage": Cell("all", "", "strong"),
        "bar": Cell(f"most: {most[0]}" if most else "", most[0] if most else None),
        "history": trend(busiest),
    }
    if len(way.parts) == 1:
        return found | busiest.baseline()
    return found | (baseline_cells.cells(None) if scene.comparison is not None else {})


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
