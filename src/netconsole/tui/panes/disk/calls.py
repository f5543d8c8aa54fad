"""What each VM and process reads, writes and synchronises as it sees that itself: calls on files and devices."""

from __future__ import annotations

from collections.abc import Iterator

from netconsole.base import figure
from netconsole.telemetry.frames import Event
from netconsole.telemetry.tables import RowState, row_key
from netconsole.tui.panes.common.columns import SPARK, Shown, history, label, rate, took
from netconsole.tui.panes.common.stages import share, side_by_side
from netconsole.tui.panes.common.tables import MAX_ROWS, Block
from netconsole.tui.panes.disk.rows import TIMES, activity, number, slowest, times_by, who
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.scene.silent import why_silent
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.painted import Line

CALLS = "calls"
_SAME = ("device", "file_system", "call", "way", "process", "pid")
"""What a sample has of the labels of its row."""
WAYS = {
    "cache": "from the page cache",
    "device": "a device was asked",
    "direct": "past the page cache",
    "buffered": "to the page cache",
    "synced": "and written out",
    "all": "fsync",
    "data": "fdatasync",
    "range": "sync_file_range",
}
"""What each way is, in words."""


def _waited(at: Shown) -> Cell:
    """How many of the calls waited, in percent."""
    calls, waited = at.per_s("calls"), at.per_s("waited")
    if not calls or waited is None:
        return Cell(figure.UNKNOWN)
    percent = 100 * waited / calls
    return Cell(figure.number(percent), percent, "" if waited else "dim")


COLUMNS = (
    TableColumn("who", "VM, process", 11, grow=2, most=24, value=who),
    TableColumn("call", "call", 6, value=label("call")),
    TableColumn("way", "way", 8, value=label("way")),
    TableColumn("device", "device", 8, grow=1, most=16, value=label("device")),
    TableColumn("file_system", "fs", 6, grow=1, most=10, spare=4, value=label("file_system")),
    TableColumn("calls", "calls/s", 7, right=True, value=rate("calls")),
    TableColumn("bytes", "B/s", 6, right=True, value=rate("bytes")),
    TableColumn("p50", "p50", 8, right=True, spare=3, value=took(50.0)),
    TableColumn("p99", "p99", 8, right=True, value=took(99.0)),
    TableColumn("waited", "waited %", 8, right=True, spare=1, value=_waited),
    TableColumn("asked", "asked B/s", 9, right=True, spare=5, value=rate("asked")),
    TableColumn("errors", "err/s", 5, right=True, spare=2, value=rate("errors", "act")),
    TableColumn("pid", "pid", 7, right=True, spare=7, value=label("pid")),
    TableColumn("history", "trend", 10, spare=6, grow=2, most=SPARK, value=history("calls")),
)


def block(probe: str) -> Block:
    """One line for each process, device, call and way."""
    return Block(
        "disk-calls",
        lambda scene: _title(scene, probe),
        COLUMNS,
        lambda scene: rows(scene, probe),
        lambda scene: why_silent(scene, probe),
        probe,
    )


def rows(scene: Scene, probe: str) -> list[TableRow]:
    """Those that call most first; then those that call no more."""
    found = sorted(scene.state.rows(probe, CALLS), key=activity(CALLS))[:MAX_ROWS]
    return [_shown(scene, probe, row).line(COLUMNS, CALLS) for row in found]


def detail(scene: Scene, subject: Subject, width: int) -> Iterator[Line]:
    """For the page of a row: the ways of this call side by side, and the slowest samples."""
    row = next((one for one in scene.state.rows(subject.probe, CALLS) if one.key == subject.key), None)
    if row is None:
        return
    found = times_by(scene, subject.probe, row, "way", WAYS)
    yield [(f"  How long each way of {row.labels.get('call')} takes here, since attached", "head")]
    if found:
        yield from side_by_side({name: one.total for name, one in found.items()}, None, "ns", WAYS, width)
    calls, waited = row.total("calls"), row.total("waited")
    if calls and waited is not None:
        yield [(f"  {share(waited, calls)} of its calls waited: the caller gave up the CPU", "dim")]
    yield []
    yield from slowest(scene, subject.probe, row, _SAME, "calls", _said)


def _shown(scene: Scene, probe: str, row: RowState) -> Shown:
    return Shown(scene, probe, CALLS, row, times=scene.state.histogram(probe, TIMES, row_key(row.labels)))


def _title(scene: Scene, probe: str) -> str:
    found = list(scene.state.rows(probe, CALLS))
    active = sum(1 for row in found if row.per_s(CALLS))
    return f"Calls on files and devices · {active} active rows"


def _said(event: Event) -> str:
    fields = event.fields
    asked = f"asked for {figure.number(number(fields.get('asked')))}B" if fields.get("asked") else "asked no device"
    waited = "" if fields.get("waited") else ", did not wait"
    return f"{figure.safe(fields.get('file'), 32)}: {figure.number(number(fields.get('bytes')))}B, {asked}{waited}"
