"""Columns, cells and rows of a line table, and how the columns share the width of the screen."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from netconsole.tui.widgets.look import Tone

GAP = 1
"""Blank cells between columns."""


@dataclass(frozen=True)
class TableColumn:
    """One column. ``width`` and ``most`` are its least and its greatest width.

    Columns with ``grow`` share the cells that are left over, in proportion to it. When the table is too narrow, columns
    are left out: the highest ``spare`` first. A column with 0 always stays.
    """

    name: str
    title: str
    width: int
    right: bool = False
    grow: int = 0
    most: int = 1000
    spare: int = 0
    value: Callable[[Any], Cell] = field(default=lambda _: Cell(""), compare=False)
    """Makes its cell of what a row is of."""


class Cell(NamedTuple):
    """What a cell shows, and the value to sort by. None is unknown, and always comes last.

    ``ends``, where the text has no room: a head, which is cut, and a tail, which stays as far as half the room.
    ``sentence``: who, why, and how much, of which the cause is cut last.
    ``short``: what it is in the style of figures, where one of its column that is seen has no room for all digits.
    With ``history`` the cell is a sparkline of the values that it returns, in ``unit``. Only visible rows call it.
    """

    text: str
    sort: float | str | None = None
    tone: Tone = ""
    history: Callable[[], Sequence[float | None]] | None = None
    unit: str = ""
    ends: tuple[str, str] | None = None
    sentence: tuple[str, str, str] | None = None
    short: str = ""


class TableRow:
    """One row: the cursor stays on its ``key``, and ``cells`` are by column name. Texts have passed figure.safe().

    Cells may be a function. Then they are only made when needed: a table may have thousands of rows. Rows stand above
    those of a higher ``last``, whatever their order is held at.
    """

    __slots__ = ("_cells", "_make", "key", "last")

    def __init__(self, key: Hashable, cells: dict[str, Cell] | Callable[[], dict[str, Cell]], last: int = 0) -> None:
        self.key = key
        self.last = last
        self._make = cells if callable(cells) else None
        self._cells = {} if callable(cells) else cells

    @property
    def cells(self) -> dict[str, Cell]:
        """The cells by column name."""
        if self._make is not None:
            self._cells, self._make = self._make(), None
        return self._cells

    def contains(self, needle: str) -> bool:
        """Whether the text of any cell contains ``needle`` (in lower case)."""
        return any(needle in cell.text.lower() for cell in self.cells.values())


class PlacedColumn(NamedTuple):
    """A column with its place on the line."""

    column: TableColumn
    x: int
    width: int


_LATER = 1000
"""What is added to the ``spare`` of a column that the user did not choose, once he has chosen others."""


def chosen(columns: Sequence[TableColumn], choice: Mapping[str, bool]) -> list[TableColumn]:
    """The columns that the user wants: ``choice`` is by name, True shown, False hidden. One column always stays.

    Where there is little room, the columns that he did not choose are left out before those that he did.
    """
    kept = [column for column in columns if choice.get(column.name, True)] or list(columns[:1])
    if True not in choice.values():
        return kept
    return [
        column if not column.spare or column.name in choice else replace(column, spare=column.spare + _LATER)
        for column in kept
    ]


def place(columns: Sequence[TableColumn], width: int) -> list[PlacedColumn]:
    """Gives each column its place and width. Columns that do not fit, and can be spared, are left out."""
    kept = list(columns)
    while len(kept) > 1 and _least(kept) > width:
        dispensable = [column for column in kept if column.spare]
        if not dispensable:
            break
        kept.remove(max(reversed(dispensable), key=lambda column: column.spare))
    extra = max(0, width - _least(kept))
    widths = {column.name: column.width for column in kept}
    growing = [column for column in kept if column.grow and column.most > column.width]
    while extra > 0 and growing:
        shares = sum(column.grow for column in growing)
        given = 0
        for column in growing:
            room = column.most - widths[column.name]
            part = min(room, max(1, extra * column.grow // shares), extra - given)
            widths[column.name] += part
            given += part
        if given == 0:
            break
        extra -= given
        growing = [column for column in growing if widths[column.name] < column.most]
    placed = []
    x = 0
    for column in kept:
        cells = max(0, min(widths[column.name], width - x))
        placed.append(PlacedColumn(column, x, cells))
        x += cells + GAP
    return placed


def _least(columns: Sequence[TableColumn]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)
