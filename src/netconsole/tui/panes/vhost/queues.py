"""The queues of all virtual machines, joined from the probes between tap and guest, and ranked with the worst first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from netconsole.findings.match import RowName, RowVerdict
from netconsole.telemetry.frames import Label
from netconsole.telemetry.tables import HistogramState, RowKey, RowState, row_key
from netconsole.tui.panes.common.states import RowStatus, status
from netconsole.tui.scene.scene import Scene, Subject

VHOST, RINGS, INTERRUPTS, KICKS = PROBES = "vhost_queues", "tun_queues", "irq_path", "tx_kick_path"

QueuePlace: TypeAlias = tuple[Label, Label, Label]
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
    def place(self) -> QueuePlace:
        """What no other queue of the host has."""
        return self.device, self.netns, self.number

    @property
    def subject(self) -> Subject:
        """The row that Enter leads to: vhost's for packets to the guest, else what there is."""
        return self.rows[0]

    @property
    def rows(self) -> list[Subject]:
        """All rows that are of this queue; never empty."""
        pairs = ((VHOST, self.to_guest), (VHOST, self.from_guest), (RINGS, self.ring))
        return [Subject(probe, "table", "queues", row.key) for probe, row in pairs if row is not None]

    def labels(self, **more: Label) -> RowKey:
        """The key of a histogram of this queue."""
        return row_key({"device": self.device, "vm": self.vm, "netns": self.netns, "queue": self.number, **more})


@dataclass(frozen=True, slots=True)
class Ranked:
    """A queue with its state."""

    status: RowStatus
    queue: Queue


class Ranking:
    """All queues, the worst first: by state, then by packets lost, then by packets moved; idle ones as they come.

    Keeps what stands still: an interval costs what moves in it, not what there is.
    """

    def __init__(self) -> None:
        self.active: list[Ranked] = []
        self.idle: dict[QueuePlace, Ranked] = {}
        self.omitted = 0
        """Rows that were not sent or kept."""
        self._known: list[dict[RowKey, RowState]] = []
        self._sizes: list[int] = []
        self._queues: dict[QueuePlace, Queue] = {}
        self._scene: Scene | None = None

    def update(self, scene: Scene) -> None:
        """Take over what the scene tells; nothing when it is the one of the last time."""
        if scene is self._scene:
            return
        self._scene = scene
        tables = [table for probe in (VHOST, RINGS) if (table := scene.state.table(probe, "queues")) is not None]
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
        found = found_of(scene)
        looked_at.update(place for place in found if place in self._queues)
        judged = [Ranked(status_of(self._queues[place], found), self._queues[place]) for place in looked_at]
        self.active = sorted((one for one in judged if one.status.level != "off"), key=_worth)
        for one in judged:
            if one.status.level == "off":
                self.idle[one.queue.place] = one
            else:
                self.idle.pop(one.queue.place, None)


def queues(scene: Scene) -> list[Queue]:
    """Every queue that a probe knows."""
    found: dict[QueuePlace, dict[str, RowState]] = {}
    for probe in (VHOST, RINGS):
        for row in scene.state.rows(probe, "queues"):
            direction = row.labels.get("direction") if probe == VHOST else "ring"
            found.setdefault(_place(row), {})[str(direction)] = row
    return [
        Queue(device, netns, number, _vm(by), by.get("rx"), by.get("tx"), by.get("ring"))
        for (device, netns, number), by in found.items()
    ]


def overflowing(scene: Scene, subject: Subject) -> Subject | None:
    """The ring of a queue whose row this is, while packets find it full: whose they are can be sampled.

    vhost runs seldom for such a queue, and never for one that is stuck.
    """
    if subject.probe not in (VHOST, RINGS) or subject.name != "queues":
        return None
    ring = next((queue.ring for queue in queues(scene) if subject in queue.rows), None)
    return Subject(RINGS, "table", "queues", ring.key) if ring is not None and ring.moved("ring_full") else None


def found_of(scene: Scene) -> dict[QueuePlace, RowVerdict]:
    """The worst of what findings say of each queue: of its ring, its workers, its interrupts."""
    return scene.worst_by(queue_of)


def queue_of(row: RowName) -> QueuePlace | None:
    """The queue that a row of any probe between tap and guest is about."""
    labels = dict(row[3])
    return (labels.get("device"), labels.get("netns"), labels.get("queue")) if row[0] in PROBES else None


def status_of(queue: Queue, found: Mapping[QueuePlace, RowVerdict]) -> RowStatus:
    """The state of a queue."""
    rows = (queue.to_guest, queue.from_guest, queue.ring)
    return status(found.get(queue.place), [row.per_s("packets") for row in rows if row is not None])


def wake_ns(scene: Scene, queue: Queue) -> float | None:
    """The p99 from a wake-up to the worker's run, of the later of both directions; None when there was none."""
    found = [percentile_ns(scene, "wake", queue.labels(direction=direction)) for direction in ("rx", "tx")]
    return max((value for value in found if value is not None), default=None)


def percentile_ns(scene: Scene, histogram: str, key: RowKey) -> float | None:
    """The p99 of the interval in a histogram of vhost's workers; None when it has no samples."""
    one = scene.state.histogram(VHOST, histogram, key)
    return one.percentile(99.0, "delta") if one is not None and one.delta.count else None


def stages(scene: Scene, queue: Queue, way: str = INTERRUPTS, of_total: bool = False) -> dict[str, HistogramState]:
    """The histograms of a queue's way, by stage and "total"; those with samples now, or ever."""
    found = {}
    for stage in (*stage_words(scene, way), "total"):
        one = scene.state.histogram(way, "stages", queue.labels(stage=stage))
        if one is not None and (of_total or one.delta.count):
            found[stage] = one
    return found


def stage_words(scene: Scene, way: str) -> Mapping[str, str]:
    """The stages of a way through a queue in order, and from where to where each is, as its probe's manifest says."""
    manifest = scene.manifests.get(way)
    return manifest.histograms["stages"].label("stage").words if manifest else {}


def dominating(found: dict[str, HistogramState]) -> tuple[str, float] | None:
    """The stage that takes most of the interval's time, and its share in percent; None without samples."""
    whole = found["total"].delta.sum if "total" in found else 0
    parts = {name: one.delta.sum for name, one in found.items() if name != "total"}
    if not whole or not parts:
        return None
    stage = max(parts, key=lambda name: parts[name])
    return stage, 100 * parts[stage] / whole


def _place(row: RowState) -> QueuePlace:
    return row.labels.get("device"), row.labels.get("netns"), row.labels.get("queue")


def _vm(by: dict[str, RowState]) -> Label:
    return next((row.labels.get("vm") for row in by.values() if row.labels.get("vm")), None)


def _worth(one: Ranked) -> tuple[float, float, float, str]:
    """What a queue is ranked by; equal ones have an order of their own, so that none jumps."""
    queue = one.queue
    dropped = (queue.ring.per_s("ring_full") if queue.ring else None) or 0.0
    moved = sum(row.per_s("packets") or 0.0 for row in (queue.to_guest, queue.from_guest) if row is not None)
    return one.status.urgency, -dropped, -moved, str(queue.place)
