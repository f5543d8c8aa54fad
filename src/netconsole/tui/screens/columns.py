"""The list of the columns of a table: the user shows or hides each of them. The choice holds until the console ends."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from netconsole.tui import actions
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.lines import Lines
from netconsole.tui.widgets.linetable import LineTable
from netconsole.tui.widgets.painted import Line
from netconsole.tui.widgets.table_model import TableModel

_COLUMNS = (
    TableColumn("mark", "", 3),
    TableColumn("title", "column", 24),
    TableColumn("state", "state", 24, grow=1),
)


class ColumnsScreen(Screen[None]):
    """Space or Enter shows or hides the column under the cursor at once. Esc goes back to the table."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        *actions.bindings("over"),
        Binding("space", "turn", show=False),
        Binding("ctrl+c", "app.leave", show=False),
    ]

    def __init__(self, table: TableModel, choice: dict[str, bool]) -> None:
        """``choice`` is changed: True shown, False hidden, by the column's name."""
        super().__init__()
        self._table = table
        self._choice = choice

    @property
    def is_modal(self) -> bool:
        """The keys of the application do not work here."""
        return True

    def compose(self) -> ComposeResult:
        yield Lines(id="dialog-title")
        yield LineTable(TableModel("columns", "Columns", _COLUMNS), id="columns")
        yield Lines(id="over-footer")

    def on_mount(self) -> None:
        title: Line = [
            (f" Columns of {self._table.title.partition(' · ')[0]}", "strong"),
            ("  what you choose is remembered", "dim"),
        ]
        self.query_one("#dialog-title", Lines).show(title)
        footer: Line = [
            (" Space", "key"), (" show or hide  ", "dim"), ("↑ ↓", "key"), (" column  ", "dim"),
            ("Esc", "key"), (" back", "dim"),
        ]  # fmt: skip
        self.query_one("#over-footer", Lines).show(footer)
        self.set_focus(self.query_one("#columns", LineTable))
        self._show()

    def action_back(self) -> None:
        self.dismiss()

    @on(LineTable.Opened)
    def _opened(self, message: LineTable.Opened) -> None:
        message.stop()
        self.action_turn()

    def action_turn(self) -> None:
        """Hides the column under the cursor if it is on the screen; otherwise shows it."""
        name = self.query_one("#columns", LineTable).table.cursor_key
        if not isinstance(name, str):
            return
        shown = self._table.visible_columns
        if shown != {name}:  # a table without columns shows nothing
            self._choice[name] = name not in shown
            self._table.choose(self._choice)
        self._show()

    def _show(self) -> None:
        rows = [TableRow(column.name, self._cells(column)) for column in self._table.columns]
        self.query_one("#columns", LineTable).show(rows, 0.0)

    def _cells(self, column: TableColumn) -> dict[str, Cell]:
        is_shown = column.name in self._table.visible_columns
        if is_shown:
            state = "shown"
        elif self._choice.get(column.name) is False:
            state = "hidden"
        else:
            state = "no room: hide another column first"
        return {
            "mark": Cell("[x]" if is_shown else "[ ]", tone="ok" if is_shown else "dim"),
            "title": Cell(column.title or column.name, column.title or column.name),
            "state": Cell(state, state, "" if is_shown else "dim"),
        }
