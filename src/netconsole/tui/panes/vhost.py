"""The queues of all virtual machines, worst first: one row each, joined from the probes between tap and guest.

A row is put together only when it is in sight; to rank them takes the counts of the rows alone. What a probe that does
not run would tell is unknown, and the others are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from netconsole import figure
from netconsole.frames import Label
from netconsole.state import ProbeState
from netconsole.tables import HistogramState, RowKey, RowState, TableState, row_key
from netconsole.tui.panes.scene import Evidence, Scene, why_silent
from netconsole.tui.panes.tables import MAX_ROWS, SPARK, Block
from netconsole.tui.widgets.bars import bar, bars
from netconsole.tui.widgets.columns import Cell, Column, Row
from netconsole.tui.widgets.look import LEVEL_TONES, Tone
from netconsole.tui.widgets.painted import Line

VHOST, RINGS, INTERRUPTS = "vhost_queues", "tun_queues", "irq_path"
STAGES = ("S1-S2", "S2-S3", "S3-S4", "S4-S5")
STAGE_WORDS = {"S1-S2": "tap → vhost", "S2-S3": "vhost → signal", "S3-S4": "signal → KVM", "S4-S5": "KVM → APIC"}
LATE_NS = 1_000_000
"""A worker that comes a millisecond after it was woken is late: a hundred times what it takes on an idle CPU."""
STAGE_LINES = 10
STAGE_BAR_COLUMNS = 10
MAX_SLOW = 8
"""Slow interrupts that the page of a queue lists."""

_LEVELS = ("!!", "!", "?", "ok", "off")

COLUMNS = (
    Column("vm", "VM", 8, grow=2, most=24),
    Column("device", "dev", 6, grow=1, most=15),
    Column("queue", "q", 3, right=True),
    Column("state", "state", 11, grow=1, most=26),
    Column("to_guest", "rx/s", 6, right=True),
    Column("from_guest", "tx/s", 6, right=True, spare=4),
    Column("depth", "free buf", 9, right=True, spare=6),
    Column("dropped", "drop/s", 6, right=True),
    Column("wake", "wake p99", 8, right=True, spare=3),
    Column("irq_p50", "irq p50", 8, right=True, spare=8),
    Column("irq_p99", "irq p99", 8, right=True, spare=1),
    Column("stage", "most of it", 10, spare=7),
    Column("signals", "irq/s", 6, right=True, spare=9),
    Column("suppressed", "polled %", 8, right=True, spare=10),
    Column("history", "rx trend", 10, spare=5, grow=2, most=SPARK),
)


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue of a tap. Rows of probes that do not know it are None."""

    device: Label
    netns: Label
    number: Label
    vm: Label
    to_guest: RowState | None = None
    from_guest: RowState | None = None
    ring: RowState | None = None

    @property
    def key(self) -> RowKey:
        """What the cursor is bound to, whichever probes run."""
        return row_key({"device": self.device, "netns": self.netns, "queue": self.number})

    @property
    def evidence(self) -> Evidence:
        """The row that Enter leads to: vhost's for packets to the guest, else what there is."""
        if self.to_guest is None and self.from_guest is None and self.ring is not None:
            return Evidence(RINGS, "table", "queues", self.ring.key)
        row = self.to_guest or self.from_guest
        return Evidence(VHOST, "table", "queues", self.key if row is None else row.key)

    def labels(self, **more: Label) -> RowKey:
        """The key of a histogram of this queue."""
        return row_key({"device": self.device, "vm": self.vm, "netns": self.netns, "queue": self.number, **more})


def block() -> Block:
    """The table of all queues."""
    return Block(
        name="vhost-all",
        title=_title,
        columns=COLUMNS,
        rows=rows,
        note=lambda scene: why_silent(scene, VHOST if VHOST in scene.state.probes else RINGS),
        probe=VHOST,
    )


def rows(scene: Scene) -> list[Row]:
    """All queues, the worst first: by state, then by packets lost, then by packets moved."""
    ranked = sorted(((*verdict(queue), queue) for queue in queues(scene)), key=lambda one: _worth(one[0], one[2]))
    return [
        Row(queue.evidence, partial(_cells, scene, queue, level, words)) for level, words, queue in ranked[:MAX_ROWS]
    ]


def queues(scene: Scene) -> list[Queue]:
    """Every queue that a probe knows."""
    found: dict[tuple[Label, Label, Label], dict[str, RowState]] = {}
    for probe in (VHOST, RINGS):
        for row in _rows_of(scene, probe):
            labels = row.labels
            place = (labels.get("device"), labels.get("netns"), labels.get("queue"))
            direction = labels.get("direction") if probe == VHOST else "ring"
            found.setdefault(place, {})[str(direction)] = row
    return [
        Queue(device, netns, number, _vm(by), by.get("rx"), by.get("tx"), by.get("ring"))
        for (device, netns, number), by in found.items()
    ]


def verdict(queue: Queue) -> tuple[str, str]:
    """The state of a queue as a level and in words. A stuck queue is named with what it waits for."""
    dropped = queue.ring.per_s("ring_full") if queue.ring else None
    row = queue.to_guest
    moved = row.per_s("packets") if row else None
    gauges = row.gauges if row else {}
    if dropped and row is not None and not moved:
        if gauges.get("starving"):
            told = "polls no more" if gauges.get("unsignalled_buffers") else "told, takes none"
            return "!!", f"stuck: guest {told}"
        return "!!", "stuck: worker asleep"
    if dropped:
        return "!!", "ring full"
    if row is not None and (row.per_s("starved_runs") or (gauges.get("starving") and not moved)):
        return "!", "no buffers"
    known = [one.per_s("packets") for one in (queue.to_guest, queue.from_guest, queue.ring) if one is not None]
    if not known or any(rate is None for rate in known):
        return "?", "unknown"
    return ("ok", "ok") if any(known) else ("off", "idle")


def stages(scene: Scene, queue: Queue, of_total: bool = False) -> dict[str, HistogramState]:
    """The interrupt path's histograms of a queue, by stage and "total"; those with samples now, or ever."""
    probe = scene.state.probes.get(INTERRUPTS)
    group = probe.histograms.get("stages") if probe else None
    found = {}
    for stage in (*STAGES, "total") if group else ():
        one = group.rows.get(queue.labels(stage=stage)) if group else None
        if one is not None and (of_total or one.delta.count):
            found[stage] = one
    return found


def dominating(found: dict[str, HistogramState]) -> tuple[str, float] | None:
    """The stage that takes most of the interval's time, and its share in percent; None without samples."""
    whole = found["total"].delta.sum if "total" in found else 0
    if not whole:
        return None
    stage = max(STAGES, key=lambda name: found[name].delta.sum if name in found else 0)
    return stage, 100 * found[stage].delta.sum / whole


def detail(scene: Scene, evidence: Evidence) -> Iterator[Line]:
    """For the page of a queue: its stages side by side, and its slowest interrupts that were sampled."""
    queue = next((queue for queue in queues(scene) if evidence in (queue.evidence, *_rows_as_evidence(queue))), None)
    if queue is None:
        return
    level, words = verdict(queue)
    yield [("  state         ", "dim"), (f"{level} {words}" if words != level else words, LEVEL_TONES[level])]
    yield []
    found = stages(scene, queue, of_total=True)
    if not found:
        yield [(f"  stages to the guest's interrupt: {why_silent(scene, INTERRUPTS)}", "dim")]
        yield []
        return
    yield from _side_by_side(found)
    yield from _slow(scene.state.probes[INTERRUPTS], queue)


def _side_by_side(found: dict[str, HistogramState]) -> Iterator[Line]:
    """One histogram beside the other, since attached, with what each adds to the whole."""
    width = 13 + STAGE_BAR_COLUMNS + 2
    whole = found["total"].total.sum if "total" in found else 0
    drawn = {stage: bars(one.total, STAGE_LINES) for stage, one in found.items()}
    yield [("  Stages from the tap to the guest's interrupt, since attached", "head")]
    heads = [f"{stage} {STAGE_WORDS.get(stage, '')}" for stage in drawn]
    yield [("  " + "".join(figure.fit(head, width) for head in heads), "strong")]
    for percent in (50.0, 99.0):
        texts = [f"p{percent:g} {figure.duration(one.percentile(percent), one.unit)}" for one in found.values()]
        yield [("  " + "".join(figure.fit(text, width) for text in texts), "")]
    shares = [figure.percent(100 * one.total.sum / whole if whole else None) for one in found.values()]
    yield [("  " + "".join(figure.fit(f"{share} of the time", width) for share in shares), "")]
    for place in range(max((len(lines) for lines in drawn.values()), default=0)):
        cells = []
        for stage, lines in drawn.items():
            if place >= len(lines):
                cells.append(" " * width)
                continue
            one = lines[place]
            largest = max(line.count for line in lines)
            span = figure.fit(f"< {figure.duration(one.high, found[stage].unit)}", 11, right=True)
            cells.append(figure.fit(f"{span} {bar(one.count / largest, STAGE_BAR_COLUMNS)}", width))
        yield [("  " + "".join(cells).rstrip(), "")]
    yield []


def _slow(probe: ProbeState, queue: Queue) -> Iterator[Line]:
    wanted = (queue.device, queue.number)
    slow = [event.fields for event in probe.events if (event.fields.get("device"), event.fields.get("queue")) == wanted]
    slow.sort(key=lambda fields: -_ns(fields.get("total_ns")))
    if not slow:
        hint = "none over the threshold" if probe.mode == "details" else "irq_path in details mode samples them"
        yield [(f"  Slow interrupts: {hint}", "dim")]
        yield []
        return
    yield [("  Slowest interrupts among the samples", "head")]
    for fields in slow[:MAX_SLOW]:
        parts = [f"{stage} {figure.duration(_ns(fields.get(_field(stage))))}" for stage in STAGES]
        packets = figure.safe(fields.get("packets"), 12)
        yield [(f"  {figure.duration(_ns(fields.get('total_ns')))}: {', '.join(parts)}; {packets} packets", "")]
    yield []


def _field(stage: str) -> str:
    return stage.lower().replace("-", "_") + "_ns"


def _ns(value: object) -> int:
    return value if isinstance(value, int) else 0


def _cells(scene: Scene, queue: Queue, level: str, words: str) -> dict[str, Cell]:
    tone = LEVEL_TONES[level]
    shown = words if level == words else f"{level} {words}"
    row = queue.to_guest
    found = stages(scene, queue)
    total = found.get("total")
    most = dominating(found)
    batches, suppressed = (row.per_s("batches"), row.per_s("suppressed")) if row else (None, None)
    polled = 100 * suppressed / batches if batches and suppressed is not None else None
    return {
        "vm": Cell(figure.safe(queue.vm, 64), str(queue.vm or "")),
        "device": Cell(figure.safe(queue.device, 64), str(queue.device)),
        "queue": Cell(figure.safe(queue.number, 12), queue.number if isinstance(queue.number, int) else None),
        "state": Cell(shown, float(_LEVELS.index(level)), tone),
        "to_guest": _rate(scene, VHOST, queue.to_guest, "packets"),
        "from_guest": _rate(scene, VHOST, queue.from_guest, "packets"),
        "depth": _depth(row),
        "dropped": _rate(scene, RINGS, queue.ring, "ring_full", "act"),
        "wake": _wake(scene, queue),
        "irq_p50": _percentile(total, 50.0),
        "irq_p99": _percentile(total, 99.0),
        "stage": Cell(f"{most[0]} {most[1]:.0f}%", most[0]) if most else Cell(figure.UNKNOWN),
        "signals": _rate(scene, VHOST, row, "signals"),
        "suppressed": Cell(figure.number(None if polled is None else round(polled)), polled),
        "history": Cell("", history=partial(_history, scene, queue)),
    }


def _rate(scene: Scene, probe: str, row: RowState | None, name: str, tone: Tone = "") -> Cell:
    state = scene.state.probes.get(probe)
    value = row.per_s(name) if row else None
    return Cell(figure.number(value, bool(state and state.at_least())), value, tone if value else "dim")


def _depth(row: RowState | None) -> Cell:
    """Buffers that the guest has offered for what it receives, of its ring's size, at the end of the last run."""
    depth, size = (row.gauges.get("depth_buffers"), row.gauges.get("size_buffers")) if row else (None, None)
    if depth is None or not size:
        return Cell(figure.UNKNOWN)
    return Cell(f"{figure.number(depth)}/{figure.number(size)}", float(depth), "look" if not depth else "")


def _wake(scene: Scene, queue: Queue) -> Cell:
    """The later of both directions."""
    probe = scene.state.probes.get(VHOST)
    group = probe.histograms.get("wake") if probe else None
    values = []
    for direction in ("rx", "tx"):
        one = group.rows.get(queue.labels(direction=direction)) if group else None
        value = one.percentile(99.0, "delta") if one and one.delta.count else None
        if value is not None:
            values.append(value)
    late = max(values, default=None)
    return Cell(figure.duration(late), late, "look" if late and late > LATE_NS else "")


def _percentile(one: HistogramState | None, percent: float) -> Cell:
    value = one.percentile(percent, "delta") if one and one.delta.count else None
    return Cell(figure.duration(value, one.unit if one else "ns"), value)


def _history(scene: Scene, queue: Queue) -> Sequence[float | None]:
    for probe, row in ((VHOST, queue.to_guest), (RINGS, queue.ring)):
        table = scene.state.probes[probe].tables.get("queues") if row and probe in scene.state.probes else None
        if table is not None and row is not None:
            return table.history(row.key, "packets", SPARK)
    return []


def _title(scene: Scene) -> str:
    known = queues(scene)
    levels = [verdict(queue)[0] for queue in known]
    parts = [f"{len(known)} queues", f"{sum(level not in ('off', '?') for level in levels)} active"]
    parts += [f"{levels.count(level)} {level}" for level in ("!!", "!") if level in levels]
    omitted = sum(table.omitted for table in _tables(scene))
    if omitted:
        parts.append(f"≥{figure.number(omitted)} more not listed")
    return " · ".join(["vhost queues, worst first", *parts])


def _tables(scene: Scene) -> Iterator[TableState]:
    for probe in (VHOST, RINGS):
        state = scene.state.probes.get(probe)
        if state is not None and "queues" in state.tables:
            yield state.tables["queues"]


def _rows_of(scene: Scene, probe: str) -> Sequence[RowState]:
    state = scene.state.probes.get(probe)
    table = state.tables.get("queues") if state else None
    return list(table.rows.values()) if table else []


def _rows_as_evidence(queue: Queue) -> list[Evidence]:
    pairs = ((VHOST, queue.to_guest), (VHOST, queue.from_guest), (RINGS, queue.ring))
    return [Evidence(probe, "table", "queues", row.key) for probe, row in pairs if row is not None]


def _vm(by: dict[str, RowState]) -> Label:
    return next((row.labels.get("vm") for row in by.values() if row.labels.get("vm")), None)


def _worth(level: str, queue: Queue) -> tuple[float, ...]:
    dropped = (queue.ring.per_s("ring_full") if queue.ring else None) or 0.0
    moved = sum(row.per_s("packets") or 0.0 for row in (queue.to_guest, queue.from_guest) if row is not None)
    return _LEVELS.index(level), -dropped, -moved
