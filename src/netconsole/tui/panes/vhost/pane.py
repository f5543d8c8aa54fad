"""The vhost pane: one row for each queue of every virtual machine, worst first, and the page of one queue.

What a probe that does not run would tell is unknown; the rest is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

from netconsole.base import figure
from netconsole.compare.reference import Reference
from netconsole.findings import guest_ring
from netconsole.profile.escalation_rules import SUFFIX
from netconsole.telemetry.example import flow_text
from netconsole.telemetry.frames import Event
from netconsole.telemetry.tables import HistogramState, row_key
from netconsole.tui.panes.common import baseline_cells
from netconsole.tui.panes.common.columns import SPARK, Shown, Value, cells, history, rate, text_cell, took
from netconsole.tui.panes.common.events import clock
from netconsole.tui.panes.common.stages import side_by_side
from netconsole.tui.panes.common.tables import MAX_ROWS, Block
from netconsole.tui.panes.vhost.queues import (
    INTERRUPTS,
    KICKS,
    RINGS,
    VHOST,
    Queue,
    QueuePlace,
    Ranked,
    Ranking,
    dominating,
    found_of,
    percentile_ns,
    queues,
    stage_words,
    stages,
    status_of,
    wake_ns,
)
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.scene.silent import why_silent
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.painted import Line

MAX_SLOW = 8
"""Slow interrupts and slow kicks that the page of a queue lists."""
MAX_RUNS, MAX_FLOWS = 8, 3
"""Samples of runs, the newest first, and flows with the most samples, that it lists."""


@dataclass(frozen=True)
class _Shown:
    """A queue in a scene."""

    scene: Scene
    one: Ranked

    @cached_property
    def stages(self) -> dict[str, HistogramState]:
        """How long its interrupts take, by stage and in total."""
        return stages(self.scene, self.one.queue)


def _to_guest(value: Value) -> Value:
    return lambda at: value(Shown(at.scene, VHOST, "queues", at.one.queue.to_guest))


def _from_guest(value: Value) -> Value:
    return lambda at: value(Shown(at.scene, VHOST, "queues", at.one.queue.from_guest))


def _ring_of(value: Value) -> Value:
    return lambda at: value(Shown(at.scene, RINGS, "queues", at.one.queue.ring))


def _interrupts(percent: float) -> Value:
    of = took(percent)
    return lambda at: of(Shown(at.scene, INTERRUPTS, "stages", times=at.stages.get("total")))


def _depth(at: Shown) -> Cell:
    """Buffers that the guest has offered for what it receives, of its ring's size, at the end of the last run."""
    depth, size = at.gauge("depth_buffers"), at.gauge("size_buffers")
    if depth is None or not size:
        return Cell(figure.UNKNOWN)
    return Cell(f"{depth:.0f}/{size:.0f}", float(depth), "look" if not depth else "")


def _polled(at: Shown) -> Cell:
    batches, suppressed = at.per_s("batches"), at.per_s("suppressed")
    percent = 100 * suppressed / batches if batches and suppressed is not None else None
    return Cell(figure.number(None if percent is None else round(percent)), percent)


def _wake(at: _Shown) -> Cell:
    late = wake_ns(at.scene, at.one.queue)
    return Cell(figure.duration(late), late)


def _most(at: _Shown) -> Cell:
    most = dominating(at.stages)
    return Cell(f"{most[0]} {figure.percent(most[1], digits=2)}", most[0]) if most else Cell(figure.UNKNOWN)


def _trend(at: _Shown) -> Cell:
    of = _to_guest if at.one.queue.to_guest is not None else _ring_of
    return of(history("packets"))(at)


COLUMNS = (
    TableColumn("vm", "VM", 8, grow=2, most=24, value=lambda at: text_cell(at.one.queue.vm)),
    TableColumn("device", "dev", 7, grow=1, most=15, value=lambda at: text_cell(at.one.queue.device)),
    TableColumn("queue", "q", 2, right=True, value=lambda at: text_cell(at.one.queue.number)),
    TableColumn("state", "state", 18, grow=1, most=20, value=lambda at: at.one.status.cell()),
    TableColumn("to_guest", "rx/s", 6, right=True, value=_to_guest(rate("packets"))),
    TableColumn("from_guest", "tx/s", 6, right=True, spare=4, value=_from_guest(rate("packets"))),
    TableColumn("depth", "free buf", 9, right=True, spare=6, value=_to_guest(_depth)),
    TableColumn("dropped", "drop/s", 6, right=True, value=_ring_of(rate("ring_full", "act"))),
    TableColumn("wake", "wake p99", 8, right=True, spare=3, value=_wake),
    TableColumn("irq_p50", "irq p50", 8, right=True, spare=8, value=_interrupts(50.0)),
    TableColumn("irq_p99", "irq p99", 8, right=True, spare=1, value=_interrupts(99.0)),
    TableColumn("stage", "most of it", 10, spare=7, value=_most),
    TableColumn("signals", "irq/s", 6, right=True, spare=9, value=_to_guest(rate("signals"))),
    TableColumn("suppressed", "polled %", 8, right=True, spare=10, value=_to_guest(_polled)),
    TableColumn("history", "rx trend", 10, spare=5, grow=2, most=SPARK, value=_trend),
)


LINES = "kvm_irqs"
PROFILE = "vhost"
"""It has the probe of the times of interrupts."""


class AllQueues:
    """The rows and the title of the table; rows of idle queues are kept as they were written."""

    def __init__(self) -> None:
        self._ranking = Ranking()
        self._idle: dict[QueuePlace, tuple[Ranked, TableRow]] = {}

    def rows(self, scene: Scene) -> list[TableRow]:
        """Active queues, the worst first, then the idle ones."""
        ranking = self._ranking
        ranking.update(scene)
        written = [_row(scene, one) for one in ranking.active]
        self._idle = {place: self._kept(scene, place, one) for place, one in ranking.idle.items()}
        return [*written, *(row for _, row in self._idle.values())][:MAX_ROWS]

    def title(self, scene: Scene) -> str:
        """How many there are, how many are active, and how many need a look."""
        ranking = self._ranking
        ranking.update(scene)
        levels = [one.status.level for one in ranking.active]
        known = len(levels) + len(ranking.idle)
        parts = [figure.things(known, "queues"), f"{len(levels)} active"]
        parts += [f"{levels.count(level)} {level}" for level in ("!!", "!") if level in levels]
        if ranking.omitted:
            parts.append(f"≥{figure.number(ranking.omitted)} more not listed")
        if known and (why := _no_interrupts(scene)):
            parts.append(why)
        return " · ".join(["vhost queues, worst first", *parts])

    def _kept(self, scene: Scene, place: QueuePlace, one: Ranked) -> tuple[Ranked, TableRow]:
        kept = self._idle.get(place)
        return kept if kept is not None and kept[0] is one else (one, _row(scene, one))


def _no_interrupts(scene: Scene) -> str:
    """Why the columns of interrupt times are empty; nothing when their probe measures, or soon will."""
    state = scene.state.probes.get(INTERRUPTS)
    if state is None or state.status == "off":
        return "irq: not in this recording" if scene.replay is not None else f"irq: profile {PROFILE} has it"
    return "" if state.measuring or not state.settled else f"irq: {INTERRUPTS} {state.status}"


def block() -> Block:
    """The table of all queues."""
    table = AllQueues()
    return Block(
        name="vhost-all",
        title=table.title,
        columns=COLUMNS,
        rows=table.rows,
        note=lambda scene: why_silent(scene, VHOST if VHOST in scene.state.probes else RINGS),
        probe=VHOST,
    )


def _row(scene: Scene, one: Ranked) -> TableRow:
    return TableRow(one.queue.subject, partial(_cells, scene, one))


def detail(scene: Scene, subject: Subject, width: int) -> Iterator[Line]:
    """For the page of a queue: the stages of both ways side by side, and the slowest that were sampled."""
    queue = next((queue for queue in queues(scene) if subject in queue.rows), None)
    if queue is None:
        return
    yield status_of(queue, found_of(scene)).line()
    yield from _workers(scene, queue)
    yield from _ring(scene, queue)
    yield from _indices(scene, queue)
    yield from _lines(scene, queue)
    yield []
    yield from _way(scene, queue, INTERRUPTS, width)
    yield from _way(scene, queue, KICKS, width)


def _way(scene: Scene, queue: Queue, way: str, width: int) -> Iterator[Line]:
    manifest = scene.manifests.get(way)
    yield [(f"  {manifest.histograms['stages'].title if manifest else way}, since attached", "head")]
    found = stages(scene, queue, way, of_total=True)
    if not found:
        why = why_silent(scene, way, way_out="")
        yield [(f"  {why}", "dim")]
        yield []
        return
    whole = found["total"].total if "total" in found else None
    yield from side_by_side(
        {name: one.total for name, one in found.items()}, whole, "ns", stage_words(scene, way), width
    )
    if whole is None:
        yield [("  Slow ones are not known: this kernel does not tell the last point of this way", "dim")]
        yield []
        return
    yield from _slow(scene, queue, way)


def _workers(scene: Scene, queue: Queue) -> Iterator[Line]:
    """Threads that ran for it in the last interval, where, and how late they came."""
    table = scene.state.table(VHOST, "workers")
    scheduled = percentile_ns(scene, "scheduled", queue.labels())
    comes = figure.duration(wake_ns(scene, queue))
    late = f"runs {comes} after a wake-up, waits {figure.duration(scheduled)} for a CPU (p99)"
    for row in table.moving() if table else []:
        if (row.labels.get("device"), row.labels.get("netns"), row.labels.get("queue")) != queue.place:
            continue
        busy = row.per_s("cpu_ns")
        share = figure.percent(None if busy is None else busy / 1e7)
        where = f"{share} of CPU {figure.number(row.gauges.get('cpu'))}, node {figure.number(row.gauges.get('node'))}"
        yield [("  worker        ", "dim"), (figure.safe(row.labels.get("worker"), 32), "strong"), (f" {where}", "")]
        yield [("                ", "dim"), (late, "")]


def _ring(scene: Scene, queue: Queue) -> Iterator[Line]:
    """How full the tap's ring is when a packet comes, and how many flows share it."""
    if queue.ring is None:
        return
    occupancy = scene.state.histogram(RINGS, "occupancy", queue.labels())
    waiting = occupancy.percentile(99.0, "delta") if occupancy and occupancy.delta.count else None
    words = f"{figure.number(waiting)} of {figure.number(queue.ring.gauges.get('size'))} packets in it (p99)"
    row = scene.state.row(RINGS, "spread", queue.labels())
    flows = f", at least {figure.number(row.gauges.get('flows'))} flows" if row else ""
    yield [("  tap's ring    ", "dim"), (words + flows, "")]
    sampled = [event.fields for event in _samples(scene, queue, RINGS)]
    whose = Counter(flow_text(fields) for fields in sampled if fields.get("source"))
    for flow, count in whose.most_common(MAX_FLOWS):
        share = f"{figure.percent(100 * count / len(sampled))} of {figure.things(len(sampled), 'samples')}: "
        yield [("                ", "dim"), (share, "strong"), (flow, "")]


def _indices(scene: Scene, queue: Queue) -> Iterator[Line]:
    """What the rings between guest and vhost said at the end of the last run, and the samples of runs before it."""
    for title, row in (("ring to guest", queue.to_guest), ("ring from it", queue.from_guest)):
        if row is not None and (said := guest_ring.told(row.gauges)):
            yield [(f"  {title:<14}", "dim"), (said, "")]
            yield [("                ", "dim"), (f"it {guest_ring.interrupt(row.gauges)}", "")]
    sampled = _samples(scene, queue, VHOST)[-MAX_RUNS:]
    if sampled:
        yield []
        yield [("  Indices of its rings over time (samples of runs)", "head")]
    for event in reversed(sampled):
        fields = event.fields
        way = "to guest " if fields.get("direction") == "rx" else "from it  "
        moved = f"{figure.things(_ns(fields.get('packets')), 'packets')}, {_ns(fields.get('signals'))} interrupts"
        ring = ", ".join(f"{name.removesuffix('_idx')} {_ns(fields.get(name))}" for name in _OVER_TIME)
        yield [(f"  {clock(event.happened_ns)} {way}", "dim"), (f"{ring}: {moved}", "")]


def _lines(scene: Scene, queue: Queue) -> Iterator[Line]:
    """The interrupt lines that vhost signals for it, and what KVM makes of the signals."""
    for wire in scene.state.rows(LINES, "wires"):
        if (wire.labels.get("device"), wire.labels.get("netns"), wire.labels.get("queue")) != queue.place:
            continue
        way = "to guest" if wire.labels.get("direction") == "rx" else "from it"
        gsi = wire.labels.get("gsi")
        line = scene.state.row(LINES, "lines", row_key({"vm": wire.labels.get("vm"), "gsi": gsi}))
        signals = figure.rate(wire.per_s("signals"), "signals")
        accepted = figure.rate(line.per_s("accepted") if line is not None else None, "interrupts")
        where = f" by APIC {figure.number(line.gauges.get('apic'))}" if line is not None else ""
        yield [
            ("  irq line      ", "dim"),
            (f"GSI {figure.safe(gsi)} {way}: {signals}, {accepted} accepted{where}", ""),
        ]


_OVER_TIME = ("avail_idx", "taken_idx", "used_idx", "used_event")


def _samples(scene: Scene, queue: Queue, probe: str) -> list[Event]:
    """Samples of a probe that are of this queue, by the probe itself or by what looks closer."""
    probes = [scene.state.probes[name] for name in (probe, probe + SUFFIX) if name in scene.state.probes]
    return [event for one in probes for event in one.events if _is_of(event, queue)]


def _is_of(event: Event, queue: Queue) -> bool:
    return (event.fields.get("device"), event.fields.get("netns"), event.fields.get("queue")) == queue.place


def _slow(scene: Scene, queue: Queue, way: str) -> Iterator[Line]:
    probe = scene.state.probes[way]
    served, one = ("packets", "interrupts") if way == INTERRUPTS else ("kicks", "kicks")
    wanted = (queue.device, queue.number)
    slow = [event.fields for event in probe.events if (event.fields.get("device"), event.fields.get("queue")) == wanted]
    slow.sort(key=lambda fields: -_ns(fields.get("total_ns")))
    if not slow:
        hint = "none over the threshold" if probe.mode == "details" else f"{way} in details mode samples them"
        yield [(f"  Slow {one}: {hint}", "dim")]
        yield []
        return
    yield [(f"  Slowest {one} among the samples", "head")]
    for fields in slow[:MAX_SLOW]:
        parts = [f"{stage} {figure.duration(_ns(fields.get(_field(stage))))}" for stage in stage_words(scene, way)]
        count = figure.safe(fields.get(served), 12)
        yield [(f"  {figure.duration(_ns(fields.get('total_ns')))}: {', '.join(parts)}; {count} {served}", "")]
    yield []


def _field(stage: str) -> str:
    return stage.lower().replace("-", "_") + "_ns"


def _ns(value: object) -> int:
    return value if isinstance(value, int) else 0


def _cells(scene: Scene, one: Ranked) -> dict[str, Cell]:
    at = _Shown(scene, one)
    if scene.comparison is None:
        return cells(COLUMNS, at)
    return cells(COLUMNS, at) | _change_cells(scene, scene.comparison.reference, one.queue, at.stages.get("total"))


def _change_cells(scene: Scene, reference: Reference, queue: Queue, total: HistogramState | None) -> dict[str, Cell]:
    """How long interrupts take, where that is measured; else what comes to the guest."""
    probes, manifests = scene.state.probes, scene.manifests
    if total is not None and total.delta.count and INTERRUPTS in manifests:
        late = reference.percentile(probes[INTERRUPTS], manifests[INTERRUPTS], "stages", total, 99.0)
        return baseline_cells.cells(late, "irq")
    row = queue.to_guest
    if row is None or VHOST not in manifests:
        return baseline_cells.cells(None)
    packets = next(value for value in manifests[VHOST].tables["queues"].value if value.name == "packets")
    return baseline_cells.cells(reference.value(probes[VHOST], manifests[VHOST], "queues", row, packets), "rx")
