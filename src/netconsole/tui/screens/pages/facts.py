"""The screen of the host's facts: its configuration, each fact with its source, an unknown one with the reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import Input

from netconsole.base import figure
from netconsole.base.fact_keys import FactData
from netconsole.tui import actions
from netconsole.tui.screens.pages.text_page import wrap
from netconsole.tui.terminal.threads import in_thread
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.lines import Lines
from netconsole.tui.widgets.linetable import LineTable
from netconsole.tui.widgets.painted import Line
from netconsole.tui.widgets.table_model import TableModel

FactsByKey = Mapping[str, FactData]
NOT_KNOWN = "not known: this session has no facts of the measured host"
TOLD_LINES = 3
COLUMNS = (
    TableColumn("fact", "fact", 30, grow=2, most=60),
    TableColumn("value", "value", 24, grow=4),
    TableColumn("source", "source", 20, grow=2, most=50, spare=1),
)


class FactsScreen(Screen[None]):
    """All facts in a table with a filter (/). A thread reads them once, when the screen opens."""

    BINDINGS: ClassVar[list[BindingType]] = [*actions.bindings("over"), *actions.bindings("facts")]

    def __init__(self, read: Callable[[], FactsByKey] | None) -> None:
        """``read`` is None when nobody can read the facts: not every recording has them."""
        super().__init__()
        self._read = read

    def compose(self) -> ComposeResult:
        yield LineTable(TableModel("facts", "Facts of the host", COLUMNS), id="facts")
        yield Lines(id="told")
        yield Lines(id="over-footer")
        box = Input(id="filter", compact=True, placeholder="show facts that contain…")
        box.display = False
        yield box

    def on_mount(self) -> None:
        self.query_one("#over-footer", Lines).show(
            [(" /", "key"), (" filter ", "dim"), ("↑ ↓", "key"), (" scroll ", "dim"), ("Esc", "key"), (" back", "dim")]
        )
        table = self.query_one(LineTable)
        table.focus()
        if self._read is None:
            table.show([], time.monotonic(), note=NOT_KNOWN)
            return
        table.show([], time.monotonic(), note="reading…")
        in_thread(self, self._load, self._failed)

    def _load(self) -> None:
        assert self._read is not None
        facts = self._read()
        self.app.call_later(self._show, facts)

    def _show(self, facts: FactsByKey) -> None:
        if not self.is_mounted:
            return
        unknown = sum(fact.value is None for fact in facts.values())
        title = f"Facts of the host · {len(facts)}" + (f", {unknown} unknown" if unknown else "")
        rows = [_row(name, fact) for name, fact in sorted(facts.items())]
        self.query_one(LineTable).show(rows, time.monotonic(), title, "no facts")
        self._tell_row()

    def _failed(self, why: str) -> None:
        if self.is_mounted:
            self.query_one(LineTable).show([], time.monotonic(), note=why)

    # ---- keys

    def action_back(self) -> None:
        """Removes the filter; without a filter, closes the screen."""
        shown = self.query_one(LineTable)
        if shown.table.filter:
            shown.set_filter("")
            self.query_one("#filter", Input).value = ""
        else:
            self.dismiss()

    def action_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.value = self.query_one(LineTable).table.filter
        box.display = True
        self.set_focus(box)

    @on(Input.Changed, "#filter")
    def _filter_changed(self, event: Input.Changed) -> None:
        self.query_one(LineTable).set_filter(event.value)
        self._tell_row()

    @on(Input.Submitted, "#filter")
    def _filter_done(self) -> None:
        self.query_one("#filter").display = False
        self.query_one(LineTable).focus()

    def on_key(self, event: events.Key) -> None:
        self.call_later(self._tell_row)
        if event.key == "escape" and isinstance(self.focused, Input):
            event.stop()
            event.prevent_default()
            self.query_one(LineTable).set_filter("")
            self._filter_done()

    def _tell_row(self) -> None:
        """Shows the whole value of the row below the table."""
        table = self.query_one(LineTable).table
        row = table.row(table.cursor_key)
        if row is not None:
            line: Line = [(f" {row.cells['fact'].text} = ", "strong"), (row.cells["value"].text, "")]
            self.query_one("#told", Lines).show(*wrap(line, self.size.width)[:TOLD_LINES])


def _row(name: str, fact: FactData) -> TableRow:
    if fact.value is None:
        value = Cell(f"? unknown: {figure.safe(fact.why or 'no reason known', 400)}", tone="unknown")
    else:
        written = ", ".join(map(str, fact.value)) if isinstance(fact.value, list) else _written(fact.value)
        value = Cell(figure.safe(written, 2000) or '""', written)
    cells = {
        "fact": Cell(figure.safe(name, 200), name),
        "value": value,
        "source": Cell(figure.safe(fact.source, 200), fact.source, "dim"),
    }
    return TableRow(name, cells)


def _written(value: str | int | float | bool) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
