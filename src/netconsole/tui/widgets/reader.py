"""A text that can be scrolled, with the same keys as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from netconsole.tui import actions
from netconsole.tui.widgets.painted import Line, Painted, cut


class Reader(Painted, can_focus=True):
    """Lines to scroll. The last line on the screen says how many more there are."""

    BINDINGS: ClassVar[list[BindingType]] = list(actions.bindings("table"))

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Line] = ()
        self._top = 0

    def show(self, lines: Sequence[Line]) -> None:
        """Shows these lines. The place in the text stays."""
        self._lines = lines
        self.action_cursor(0)

    def line(self, y: int) -> Line:
        index = self._top + y
        below = len(self._lines) - self._top - self.size.height
        if below > 0 and y == self.size.height - 1:
            return [(f" ↓ {below + 1} more lines", "dim")]
        return cut(self._lines[index], self.size.width) if index < len(self._lines) else []

    def action_cursor(self, steps: int) -> None:
        self._top = max(0, min(len(self._lines) - self.size.height, self._top + steps))
        self.repaint()

    def action_page(self, pages: int) -> None:
        self.action_cursor(pages * max(1, self.size.height - 2))

    def action_edge(self, end: int) -> None:
        self.action_cursor(end * len(self._lines))
