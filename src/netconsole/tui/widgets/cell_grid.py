"""Lines of cells of one letter each. The cursor moves in all four directions, and stays on its cell."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar, NamedTuple

from textual.binding import Binding, BindingType
from textual.message import Message

from netconsole.tui import actions
from netconsole.tui.widgets.look import Tone
from netconsole.tui.widgets.painted import Line, Painted, Piece, cells


class GridCell(NamedTuple):
    """A cell: its key, the column where it stands, its letter and tone."""

    key: Hashable
    x: int
    letter: str
    tone: Tone


class GridLine(NamedTuple):
    """A line: what stands at its left, and its cells. A title has none."""

    lead: Line
    cells: tuple[GridCell, ...]


class CellGrid(Painted, can_focus=True):
    """Enter opens the cell under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *actions.bindings("table"),
        Binding("left,h", "step(-1)", show=False),
        Binding("right,l", "step(1)", show=False),
    ]

    class Opened(Message):
        """Enter was pressed on a cell."""

        def __init__(self, key: Hashable) -> None:
            super().__init__()
            self.key = key

    class Moved(Message):
        """The cursor is on another cell."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.cursor: Hashable | None = None
        self._lines: Sequence[GridLine] = ()
        self._where: dict[Hashable, tuple[int, int]] = {}
        """The line and the place in it, by key."""
        self._top = 0

    def show(self, lines: Sequence[GridLine], cursor: Hashable | None = None) -> None:
        """Shows these lines. The cursor stays; it is on ``cursor`` if it was on none that is there."""
        self._lines = lines
        self._where = {cell.key: (y, at) for y, line in enumerate(lines) for at, cell in enumerate(line.cells)}
        if self.cursor not in self._where:
            self.cursor = cursor if cursor in self._where else next(iter(self._where), None)
        self._settle()

    def line(self, y: int) -> Line:
        index = self._top + y
        if index >= len(self._lines):
            return []
        lead, found = self._lines[index]
        pieces: list[Piece] = list(lead)
        x = cells(lead)
        for cell in found:
            pieces += [(" " * (cell.x - x), ""), (cell.letter, "here" if cell.key == self.cursor else cell.tone)]
            x = cell.x + 1
        return [piece for piece in pieces if piece[0]]

    def action_step(self, steps: int) -> None:
        """To the next or the previous cell."""
        keys = list(self._where)
        if self.cursor in self._where:
            self._go(keys[max(0, min(len(keys) - 1, keys.index(self.cursor) + steps))])

    def action_cursor(self, steps: int) -> None:
        """Up or down: to the nearest cell of another line."""
        if self.cursor not in self._where:
            return
        y, at = self._where[self.cursor]
        x = self._lines[y].cells[at].x
        full = [number for number, line in enumerate(self._lines) if line.cells]
        there = full[max(0, min(len(full) - 1, full.index(y) + steps))]
        self._go(min(self._lines[there].cells, key=lambda cell: abs(cell.x - x)).key)

    def action_page(self, pages: int) -> None:
        self.action_cursor(pages * max(1, self.size.height - 2))

    def action_edge(self, end: int) -> None:
        self.action_step(end * len(self._where))

    def action_open(self) -> None:
        if self.cursor in self._where:
            self.post_message(self.Opened(self.cursor))

    def _go(self, key: Hashable) -> None:
        if key != self.cursor:
            self.cursor = key
            self._settle()
            self.post_message(self.Moved())

    def on_resize(self) -> None:
        self._drawn.clear()
        self._settle()

    def _settle(self) -> None:
        """Scrolls so that the cursor is visible, with the title above it where that is the line before."""
        height = self.size.height
        y, _ = self._where.get(self.cursor, (0, 0)) if self.cursor is not None else (0, 0)
        self._top = max(min(self._top, len(self._lines) - height), 0)
        if height > 0:
            self._top = max(min(self._top, max(0, y - 1)), y - height + 1)
        self.repaint()
