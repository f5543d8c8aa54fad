"""The disk pane: what each VM and process asks of each block device, and how long it takes there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from netconsole.base import figure
from netconsole.telemetry.frames import Event
from netconsole.telemetry.tables import HistogramState, RowState, row_key
from netconsole.tui.panes.common.columns import SPARK, Shown, Value, gauge, history, label, rate, took
from netconsole.tui.panes.common.stages import side_by_side
from netconsole.tui.panes.common.tables import MAX_ROWS, Block
from netconsole.tui.panes.disk.rows import TIMES, activity, number, slowest, times_by, who
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.scene.silent import why_silent
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.painted import Line

IOS, DEVICES = "ios", "devices"
_SAME = ("device", "operation", "process", "pid")
"""What a sample has of the labels of its row."""
STAGES = {"queue": "waits in the queue", "device": "on the device", "whole": "from begin to end"}
"""What each stage is, in words."""


@dataclass(frozen=True)
class _ShownIos(Shown):
    """What one submitter asks of one device, with how long that takes by stage."""

    stages: Mapping[str, HistogramState] = field(default_factory=dict)


def _of_stage(percent: float, *names: str) -> Value:
    """The percentile of the first of these stages that it has."""
    of = took(percent)

    def value(at: _ShownIos) -> Cell:
        times = next((at.stages[name] for name in names if name in at.stages), None)
        return of(Shown(at.scene, at.probe, TIMES, times=times))

    return value


def _in_flight(at: Shown) -> Cell:
    """Of the whole device."""
    device = at.scene.state.row(at.probe, DEVICES, row_key({"device": at.labels.get("device")}))
    return gauge("in_flight")(Shown(at.scene, at.probe, DEVICES, device))


COLUMNS = (
    TableColumn("who", "VM, process", 11, grow=2, most=24, value=who),
    TableColumn("device", "device", 8, grow=1, most=16, value=label("device")),
    TableColumn("operation", "op", 7, value=label("operation")),
    TableColumn("ios", "IO/s", 6, right=True, value=rate("ios")),
    TableColumn("bytes", "B/s", 6, right=True, value=rate("bytes")),
    TableColumn("queue", "queue p99", 9, right=True, spare=3, value=_of_stage(99.0, "queue")),
    TableColumn("device_p50", "dev p50", 8, right=True, spare=4, value=_of_stage(50.0, "device", "whole")),
    TableColumn("device_p99", "dev p99", 8, right=True, value=_of_stage(99.0, "device", "whole")),
    TableColumn("in_flight", "flying", 6, right=True, spare=5, value=_in_flight),
    TableColumn("errors", "err/s", 5, right=True, spare=1, value=rate("errors", "act")),
    TableColumn("requeues", "requ/s", 6, right=True, spare=2, value=rate("requeues", "look")),
    TableColumn("merges", "merge/s", 7, right=True, spare=6, value=rate("merges")),
    TableColumn("pid", "pid", 7, right=True, spare=8, value=label("pid")),
    TableColumn("history", "IO trend", 10, spare=7, grow=2, most=SPARK, value=history("ios")),
)


def block(probe: str) -> Block:
    """One line for each device, operation and submitter."""
    return Block(
        "disk-ios",
        lambda scene: _title(scene, probe),
        COLUMNS,
        lambda scene: rows(scene, probe),
        lambda scene: why_silent(scene, probe),
        probe,
    )


def rows(scene: Scene, probe: str) -> list[TableRow]:
    """Those who ask most first; then those who ask no more."""
    found = sorted(scene.state.rows(probe, IOS), key=activity(IOS))[:MAX_ROWS]
    return [_shown(scene, probe, row).line(COLUMNS, "ios") for row in found]


def detail(scene: Scene, subject: Subject, width: int) -> Iterator[Line]:
    """For the page of a row: the stages side by side, and the slowest samples."""
    row = next((one for one in scene.state.rows(subject.probe, IOS) if one.key == subject.key), None)
    if row is None:
        return
    found = times_by(scene, subject.probe, row, "stage", STAGES)
    yield [("  How long it takes, since attached", "head")]
    if found:
        yield from side_by_side({name: one.total for name, one in found.items()}, None, "ns", STAGES, width)
    requests, unqueued = row.total("requests"), row.total("unqueued")
    if requests and unqueued:
        share = figure.percent(100 * unqueued / requests)
        yield [(f"  Of {share} of its requests no insert was seen: their time in the queue is not known", "dim")]
    yield []
    yield from slowest(scene, subject.probe, row, _SAME, "I/Os", _said)


def _shown(scene: Scene, probe: str, row: RowState) -> _ShownIos:
    return _ShownIos(scene, probe, IOS, row, stages=times_by(scene, probe, row, "stage", STAGES))


def _title(scene: Scene, probe: str) -> str:
    found = list(scene.state.rows(probe, IOS))
    devices = {row.labels.get("device") for row in found}
    active = sum(1 for row in found if row.per_s("ios"))
    return f"Block devices · {figure.things(len(devices), 'devices')} · {active} active rows"


def _said(event: Event) -> str:
    fields = event.fields
    queue, device = (figure.duration(number(fields.get(f"{name}_ns"))) for name in ("queue", "device"))
    where = f"{figure.number(number(fields.get('bytes')))}B at sector {number(fields.get('sector'))}"
    return f"queue {queue}, device {device}; {where}"
