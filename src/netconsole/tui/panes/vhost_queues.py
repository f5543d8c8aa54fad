"""The queues of all virtual machines, joined from the probes between tap and guest, and ranked with the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from netconsole.frames import Label
from netconsole.tables import HistogramState, RowKey, RowState, TableState, row_key
from netconsole.tui.panes.scene import Evidence, Scene

VHOST, RINGS, INTERRUPTS = "vhost_queues", "tun_queues", "irq_path"
STAGES = ("S1-S2", "S2-S3", "S3-S4", "S4-S5")
LEVELS = ("!!", "!", "?", "ok", "off")
"""The worst first."""

Place: TypeAlias = tuple[Label, Label, Label]
"""Device, network namespace and queue."""


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
    def place(self) -> Place:
        """What no other queue of the host has."""
        return self.device, self.netns, self.number

    @property
    def evidence(self) -> Evidence:
        """The row that Enter leads to: vhost's for packets to the guest, else what there is."""
        return self.rows[0]

    @property
    def rows(self) -> list[Evidence]:
        """All rows that are of this queue; never empty."""
        pairs = ((VHOST, self.to_guest), (VHOST, self.from_guest), (RINGS, self.ring))
        return [Evidence(probe, "table", "queues", row.key) for probe, row in pairs if row is not None]

    def labels(self, **more: Label) -> RowKey:
        """The key of a histogram of this queue."""
        return row_key({"device": self.device, "vm": self.vm, "netns": self.netns, "queue": self.number, **more})


@dataclass(frozen=True, slots=True)
class Ranked:
    """A queue with its state: a level and words."""

    level: str
    words: str
    queue: Queue


class Ranking:
    """All queues, the worst first: by state, then by packets lost, then by packets moved; idle ones as they come.

    Keeps what stands still: an interval costs what moves in it, not what there is.
    """

    def __init__(self) -> None:
        self.active: list[Ranked] = []
        self.idle: dict[Place, Ranked] = {}
        self.omitted = 0
        """Rows that were not sent or kept."""
        self._known: list[dict[RowKey, RowState]] = []
        self._sizes: list[int] = []
        self._queues: dict[Place, Queue] = {}
        self._scene: Scene | None = None

    def update(self, scene: Scene) -> None:
        """Take over what the scene tells; nothing when it is the one of the last time."""
        if scene is self._scene:
            return
        self._scene = scene
        tables = list(tables_of(scene))
        known = [table.rows for table in tables]
        sizes = [len(rows) for rows in known]
        same = len(known) == len(self._known) and all(a is b for a, b in zip(known, self._known, strict=True))
        self.omitted = sum(table.omitted for table in tables)
        if same and sizes == self._sizes:
            looked_at = {_place(row) for table in tables for row in table.moving()}
            looked_at.update(one.queue.place for one in self.active)
        else:
            self._known, self._sizes = known, sizes
            self._queues = {queue.place: queue for queue in queues(scene)}
            self.idle = {}
            looked_at = set(self._queues)
        judged = [Ranked(*verdict(self._queues[place]), self._queues[place]) for place in looked_at]
        self.active = sorted((one for one in judged if one.level != "off"), key=_worth)
        for one in judged:
            if one.level == "off":
                self.idle[one.queue.place] = one
            else:
                self.idle.pop(one.queue.place, None)


def queues(scene: Scene) -> list[Queue]:
    """Every queue that a probe knows."""
    found: dict[Place, dict[str, RowState]] = {}
    for probe in (VHOST, RINGS):
        for row in _rows_of(scene, probe):
            direction = row.labels.get("direction") if probe == VHOST else "ring"
            found.setdefault(_place(row), {})[str(direction)] = row
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


def tables_of(scene: Scene) -> Iterator[TableState]:
    """The tables whose rows are queues, of the probes that there are."""
    for probe in (VHOST, RINGS):
        state = scene.state.probes.get(probe)
        if state is not None and "queues" in state.tables:
            yield state.tables["queues"]


def _rows_of(scene: Scene, probe: str) -> Sequence[RowState]:
    state = scene.state.probes.get(probe)
    table = state.tables.get("queues") if state else None
    return list(table.rows.values()) if table else []


def _place(row: RowState) -> Place:
    return row.labels.get("device"), row.labels.get("netns"), row.labels.get("queue")


def _vm(by: dict[str, RowState]) -> Label:
    return next((row.labels.get("vm") for row in by.values() if row.labels.get("vm")), None)


def _worth(one: Ranked) -> tuple[float, ...]:
    queue = one.queue
    dropped = (queue.ring.per_s("ring_full") if queue.ring else None) or 0.0
    moved = sum(row.per_s("packets") or 0.0 for row in (queue.to_guest, queue.from_guest) if row is not None)
    return LEVELS.index(one.level), -dropped, -moved
