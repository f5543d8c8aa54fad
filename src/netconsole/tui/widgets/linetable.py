"""The widget that shows tables: only the cells that changed are sent. Its keys go to the table with the focus.

Textual's DataTable sends all its cells at every change (35 kB/s for four small tables), and its memory grows with every
update.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.geometry import Region
from textual.message import Message

from netconsole.tui import actions
from netconsole.tui.widgets.columns import TableRow
from netconsole.tui.widgets.painted import Line, Painted
from netconsole.tui.widgets.table_model import TableModel


class TableKeys(Painted, can_focus=True):
    """Shows tables. The keys go to one of them."""

    BINDINGS: ClassVar[list[BindingType]] = list(actions.bindings("table"))

    @property
    def in_front(self) -> TableModel | None:
        """The table that the keys go to; None: there is none now."""
        raise NotImplementedError

    class Opened(Message):
        """Enter was pressed on a row."""

        def __init__(self, table: TableModel, key: Hashable) -> None:
            super().__init__()
            self.table = table
            self.key = key

    class Chosen(Message):
        """The user has chosen another order, or a row that stays on top."""

        def __init__(self, table: TableModel) -> None:
            super().__init__()
            self.table = table

    class Moved(Message):
        """Other rows became visible. Call :meth:`TableModel.show` again, so that their histories are read."""

    def settle(self) -> None:
        """What the tables show has changed."""
        self.repaint()
        if self.in_front is not None and self.in_front.lacks_history:
            self.post_message(self.Moved())

    # ---- keys

    def action_cursor(self, steps: int) -> None:
        if self.in_front is not None:
            self.in_front.move(steps)
            self.settle()

    def action_page(self, pages: int) -> None:
        if self.in_front is not None:
            self.in_front.page(pages)
            self.settle()

    def action_edge(self, end: int) -> None:
        if self.in_front is not None:
            self.in_front.to_edge(end)
            self.settle()

    def action_open(self) -> None:
        if self.in_front is not None and self.in_front.cursor_key is not None:
            self.in_front.hold_cursor()
            self.post_message(self.Opened(self.in_front, self.in_front.cursor_key))

    def action_sort(self, step: int) -> None:
        if self.in_front is not None:
            self.in_front.sort_by_next(step)
            self._chosen(self.in_front)

    def action_reverse(self) -> None:
        if self.in_front is not None:
            self.in_front.turn_round()
            self._chosen(self.in_front)

    def action_keep(self) -> None:
        if self.in_front is not None and self.in_front.cursor_key is not None:
            self.in_front.keep_row()
            self._chosen(self.in_front)

    def _chosen(self, table: TableModel) -> None:
        self.settle()
        self.post_message(self.Chosen(table))

    # ---- events

    def on_focus(self) -> None:
        self.repaint()

    def on_blur(self) -> None:
        self.repaint()


class LineTable(TableKeys):
    """Shows one table."""

    def __init__(self, table: TableModel, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.table = table
        table.on_change = self.settle

    @property
    def in_front(self) -> TableModel:
        return self.table

    def show(self, rows: Sequence[TableRow], now_s: float, title: str | None = None, note: str = "") -> None:
        """Takes the rows of a new interval (:meth:`TableModel.show`)."""
        self.table.show(rows, now_s, title, note)
        self.settle()

    def set_filter(self, text: str) -> None:
        """Shows only rows with a cell that contains ``text``."""
        self.table.set_filter(text)
        self.settle()

    def on_resize(self) -> None:
        self.table.put(Region(0, 0, *self.size))

    def line(self, y: int) -> Line:
        return self.table.line(y, self.has_focus)
