"""The screen to choose a baseline from a list, or none. The list says what each baseline is good for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from netconsole.base import figure
from netconsole.base.errors import BadInput
from netconsole.compare import baseline
from netconsole.compare.baseline import Summary
from netconsole.host import identity
from netconsole.snapshot.document import HostData, Snapshot
from netconsole.telemetry.frames import Host
from netconsole.tui import actions
from netconsole.tui.terminal.threads import in_thread
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.lines import Lines
from netconsole.tui.widgets.linetable import LineTable
from netconsole.tui.widgets.look import Tone
from netconsole.tui.widgets.table_model import TableModel

NONE = ""
"""The key of the row that stops comparing."""
COLUMNS = (
    TableColumn("name", "baseline", 16, grow=1, most=40),
    TableColumn("runs", "runs", 4, right=True),
    TableColumn("created", "last run", 20, spare=3),
    TableColumn("profiles", "profile", 12, grow=1, most=24, spare=2),
    TableColumn("notes", "good for", 30, grow=4, spare=1),
)


class BaselinesScreen(Screen[None]):
    """Enter chooses, Esc changes nothing. A thread reads the baselines: they may be large."""

    BINDINGS: ClassVar[list[BindingType]] = list(actions.bindings("over"))

    def __init__(
        self,
        profile: str,
        current: str | None,
        choose: Callable[[str | None, Sequence[Snapshot]], None],
        host: Host | None = None,
    ) -> None:
        """``choose`` is called with the name and the snapshots of the chosen baseline.

        ``host``: the one that is measured; None: this one.
        """
        super().__init__()
        self._host = host
        self._profile = profile
        self._current = current
        self._choose = choose
        self._busy = False

    def compose(self) -> ComposeResult:
        yield LineTable(TableModel("baselines", "Baselines", COLUMNS), id="baselines")
        yield Lines(id="told")
        yield Lines(id="over-footer")

    def on_mount(self) -> None:
        self.query_one("#over-footer", Lines).show(
            [
                (" Enter", "key"),
                (" choose ", "dim"),
                ("↑ ↓", "key"),
                (" baseline ", "dim"),
                ("Esc", "key"),
                (" back", "dim"),
            ]
        )
        table = self.query_one(LineTable)
        table.show([], time.monotonic(), note="reading the baselines…")
        table.focus()
        in_thread(self, self._read, self._refused)

    def action_back(self) -> None:
        self.dismiss()

    def _read(self) -> None:
        here = self._host or identity.describe()
        found = baseline.summaries(HostData(name=here.name, kernel=here.kernel), self._profile)
        self.app.call_later(self._show, found)

    def _show(self, found: Sequence[Summary]) -> None:
        if not self.is_mounted:
            return
        rows = [_row(one, self._current) for one in found]
        if self._current is not None:
            rows.insert(0, TableRow(NONE, {"name": Cell("no baseline"), "notes": Cell("takes it away", tone="dim")}))
        note = "no baselines yet; netconsole baseline save NAME FILE… makes one from snapshots"
        self.query_one(LineTable).show(rows, time.monotonic(), note=note)
        self._tell_row()

    def on_key(self) -> None:
        self.call_later(self._tell_row)

    def _tell_row(self) -> None:
        """Shows all notes on the baseline under the cursor."""
        table = self.query_one(LineTable).table
        row = table.row(table.cursor_key)
        if row is not None and not self._busy:
            self._tell(row.cells["notes"].text, row.cells["notes"].tone)

    @on(LineTable.Opened)
    def _opened(self, message: LineTable.Opened) -> None:
        message.stop()
        if self._busy or not isinstance(message.key, str):
            return
        if message.key == NONE:
            self._choose(None, ())
            self.dismiss()
            return
        self._busy = True
        self._tell(f"reading {figure.safe(message.key, 40)}…", "")
        in_thread(self, lambda: self._load(str(message.key)), self._refused)

    def _load(self, name: str) -> None:
        try:
            snapshots = baseline.of_snapshots(name).snapshots
        except BadInput as error:
            self.app.call_later(self._refused, str(error))
        else:
            self.app.call_later(self._chosen, name, snapshots)

    def _refused(self, why: str) -> None:
        self._busy = False
        self._tell(why, "act")

    def _chosen(self, name: str, snapshots: Sequence[Snapshot]) -> None:
        self._choose(name, snapshots)
        self.dismiss()

    def _tell(self, text: str, tone: Tone) -> None:
        if self.is_mounted:
            self.query_one("#told", Lines).show([(f" {text}", tone)])


def _row(one: Summary, current: str | None) -> TableRow:
    named = f"{one.name} (in use)" if one.name == current else one.name
    tone: Tone = "" if one.snapshots else "act"
    cells = {
        "name": Cell(figure.safe(named, 80), one.name, "strong"),
        "runs": Cell(figure.count(one.snapshots) if one.snapshots else figure.UNKNOWN, one.snapshots),
        "created": Cell(figure.safe(one.created, 20) or figure.UNKNOWN, one.created),
        "profiles": Cell(figure.safe(", ".join(one.profiles), 40) or figure.UNKNOWN),
        "notes": Cell(figure.safe("; ".join(one.notes), 200), tone=tone),
    }
    return TableRow(one.name, cells)
