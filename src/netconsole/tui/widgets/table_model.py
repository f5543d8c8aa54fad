"""A table made of lines of text: what it shows, in which order, and where its cursor is.

It is no widget: one widget may show several tables (:mod:`netconsole.tui.widgets.linetable`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from textual.geometry import Region

from netconsole.base import figure
from netconsole.tui.widgets.columns import Cell, PlacedColumn, TableColumn, TableRow, chosen, place
from netconsole.tui.widgets.look import Tone
from netconsole.tui.widgets.painted import Line, Piece, folded
from netconsole.tui.widgets.spark import labelled

KeyT = TypeVar("KeyT", bound=Hashable)

HOLD_S = 5.0
"""Rows keep their places this long after a change of rank."""


class StableOrder:
    """Keeps keys in their places. A new ranking is used at most every HOLD_S seconds.

    Until then new keys come last, or with ``has_news`` above the first one that ranks below them: in a list of what
    happens, nobody looks at its end.
    """

    def __init__(self, has_news: bool = False) -> None:
        self._has_news = has_news
        self._order: list[Hashable] = []
        self._changed_s: float | None = None
        self.frozen = False
        """The user has paused the order: rows still come and go, but none moves."""

    def release(self) -> None:
        """The user has chosen another order: the next ranking is used at once."""
        self._changed_s = None

    def arrange(
        self, ranked: Sequence[KeyT], now_s: float, last: Mapping[Hashable, int] = MappingProxyType({})
    ) -> list[KeyT]:
        """The keys of ``ranked`` (best first) in the order for the screen at ``now_s``.

        Those of ``last`` go at once below those that are not in it or have a lower figure there.
        """
        due = self._changed_s is None or (not self.frozen and now_s - self._changed_s >= HOLD_S)
        result = list(ranked) if due else self._kept(ranked)
        if due and result != self._order:
            self._changed_s = now_s
        if last and not self.frozen:
            result.sort(key=lambda key: last.get(key, 0))
        self._order = list(result)
        return result

    def _kept(self, ranked: Iterable[KeyT]) -> list[KeyT]:
        present = dict.fromkeys(ranked)
        kept = [key for key in self._order if key in present]
        known = set(kept)
        new = [key for key in present if key not in known]
        if not self._has_news or self.frozen:
            return [*kept, *new]
        rank = {key: number for number, key in enumerate(present)}
        for key in new:
            place = next((at for at, other in enumerate(kept) if rank[other] > rank[key]), len(kept))
            kept.insert(place, key)
        return kept


_TITLE_LINES = 1
_WHOLE_INDENT = 4
_BLANK = Cell("")


class TableModel:
    """A table with a title. :meth:`show` gives it rows. It sorts and filters, and does not reorder too often."""

    def __init__(
        self,
        name: str,
        title: str,
        columns: Sequence[TableColumn],
        *,
        heads: bool = True,
        has_news: bool = False,
        is_led: bool = False,
    ) -> None:
        """``is_led``: the keys go to a field beside it, so its cursor is shown without the focus."""
        self.name = name
        self._is_led = is_led
        self.region = Region()
        """Where it stands in its widget. :meth:`put` changes that."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when somebody else than its widget has changed what it shows."""
        self.lacks_history = False
        """Whether other rows became visible: :meth:`show` reads their histories."""
        self.title = title
        self.columns = tuple(columns)
        self.choice: Mapping[str, bool] = {}
        """Columns that the user wants shown (True) or hidden (False), by name."""
        self.heads = heads
        self.note = ""
        """The text that is shown when there are no rows."""
        self.sort_column: str | None = None
        """None: the order in which the rows were given, the most important one first."""
        self.reverse = False
        self.filter = ""
        self.only: Callable[[Hashable], bool] | None = None
        """Which rows are shown, by their keys. None: all."""
        self.on_top: list[Hashable] = []
        """Rows that the user wants above all others."""
        self._order = StableOrder(has_news)
        self._rows: dict[Hashable, TableRow] = {}
        self._all: Sequence[TableRow] = ()
        self._keys: list[Hashable] = []
        self._cursor: Hashable | None = None
        self._chosen = False
        """Whether the user has moved the cursor. Until then it is always on the first row."""
        self._cursor_index = 0
        self._top = 0
        self._placed: list[PlacedColumn] = []
        self._shortened: set[str] = set()
        """Columns whose figures are short: a count that was cut would be a wrong one, and a column has one style."""
        self._histories: dict[tuple[Hashable, str], Sequence[float | None]] = {}
        self._in_sight: list[Hashable] = []
        self._now_s = 0.0

    # ---- contents

    @property
    def cursor_key(self) -> Hashable | None:
        """The key of the row under the cursor. None while the table is empty, or the filter leaves no row."""
        return self._cursor if self._keys else None

    @property
    def keys(self) -> list[Hashable]:
        """The keys of the rows that match the filter, in the order of the screen."""
        return list(self._keys)

    def row(self, key: Hashable | None) -> TableRow | None:
        """The row of a key. None when there is no such row."""
        return self._rows.get(key)

    def freeze_order(self, frozen: bool) -> None:
        """Keeps the rows in their order (True), or lets them move again (False)."""
        self._order.frozen = frozen

    def rank_anew(self) -> None:
        """The next rows answer another question: they stand in their own order, the cursor on the first."""
        self._order.release()
        self._chosen = False

    def show(self, rows: Sequence[TableRow], now_s: float, title: str | None = None, note: str = "") -> None:
        """Takes the rows of a new interval, the most important one first. ``now_s`` is of a monotonic clock.

        It reads the histories, so call it while the state does not change.
        """
        self._all = rows
        self._now_s = now_s
        self.title = self.title if title is None else title
        self.note = note
        self._arrange(fresh=True)

    def set_filter(self, text: str) -> None:
        """Shows only rows with a cell that contains ``text``. It is a plain text, not a pattern."""
        self.filter = text.lower()
        self._arrange()

    def put(self, region: Region) -> None:
        """Stands there in its widget from now on."""
        if region != self.region:
            self.region = region
            self._settle()

    @property
    def visible_columns(self) -> frozenset[str]:
        """The names of the columns that are on the screen."""
        return frozenset(placed.column.name for placed in self._placed if placed.width)

    def choose(self, choice: Mapping[str, bool]) -> None:
        """Shows and hides columns as the user wants."""
        self.choice = choice
        self._settle()
        self.on_change()

    def select(self, key: Hashable) -> None:
        """Puts the cursor on a row, if the table has it."""
        if key in self._rows:
            self._chosen = True
            self._cursor = key
            self._cursor_index = self._keys.index(key)
            self._settle()
            self.on_change()

    # ---- keys

    def move(self, steps: int) -> None:
        """Moves the cursor by rows."""
        if self._keys:
            self._cursor_index = max(0, min(len(self._keys) - 1, self._cursor_index + steps))
            self._chosen = self._cursor_index > 0
            self._cursor = self._keys[self._cursor_index]
            self._settle()

    def page(self, pages: int) -> None:
        """Moves the cursor by pages."""
        self.move(pages * max(1, self._body_lines() - 1))

    def to_edge(self, end: int) -> None:
        """Moves the cursor to the first (-1) or the last row (1)."""
        self.move(end * len(self._keys))

    def hold_cursor(self) -> None:
        """The user has chosen the row under the cursor: it stays there."""
        self._chosen = True

    def sort_by_next(self, step: int) -> None:
        """Sorts by the next or the previous visible column, figures before names. After the last: as given."""
        columns = sorted((one.column for one in self._placed if one.column.title), key=lambda one: not one.right)
        names: list[str | None] = [None, *(column.name for column in columns)]
        at = names.index(self.sort_column) if self.sort_column in names else 0
        self.sort_column = names[(at + step) % len(names)]
        self.reverse = False
        self._order_anew()

    def turn_round(self) -> None:
        """Reverses the order."""
        self.reverse = not self.reverse
        self._order_anew()

    def keep_row(self) -> None:
        """Keeps the row under the cursor on top, or lets it go again."""
        key = self.cursor_key
        if key in self.on_top:
            self.on_top.remove(key)
        elif key is not None:
            self.on_top.append(key)
        self._chosen = True
        self._order_anew()

    def _order_anew(self) -> None:
        self._order.release()
        self._arrange()

    # ---- drawing

    def line(self, y: int, has_focus: bool) -> Line:
        """Its line ``y``, as wide as the table. ``has_focus``: the keys go to it."""
        width = self.region.width
        if y == 0:
            return self._title_line(width, has_focus)
        if y == 1 and self.heads:
            return self._head_line(width)
        index = self._top + y - self._body_top()
        if index < len(self._keys):
            line = self._row_line(self._rows[self._keys[index]], width)
            is_under_cursor = index == self._cursor_index and (has_focus or self._is_led)
            return [(text, "cursor") for text, _ in line] if is_under_cursor else line
        if self._keys:
            return self._whole_line(index - len(self._keys), width, has_focus or self._is_led)
        return [(figure.fit(f" {self._note_line(index, width)}", width), "dim")]

    def lines_wanted(self) -> int:
        """The lines that it needs for all rows and, below them, the whole sentence of the one under the cursor."""
        return self._body_top() + len(self._keys) + len(self._whole_sentence())

    def _whole_line(self, free: int, width: int, has_focus: bool) -> Line:
        """A free line below the rows: what columns cut of the row under the cursor; without focus a sentence alone."""
        lines = self._whole_sentence() or (self._whole_words() if has_focus else [])
        is_last = free == self._body_lines() - len(self._keys) - 1
        text = " ".join(lines[free:]) if is_last else "".join(lines[free : free + 1])
        return [(figure.fit(" " * _WHOLE_INDENT + text, width), "dim")] if text else [(" " * width, "")]

    def _whole_sentence(self) -> list[str]:
        sentence = next((cell.text for _, cell in self._cut_cells() if cell.sentence is not None), "")
        return folded(sentence, self.region.width - _WHOLE_INDENT) if sentence else []

    def _whole_words(self) -> list[str]:
        cut = list(self._cut_cells())
        said = [f"{column.title}: {cell.text}" if column.title and cut[1:] else cell.text for column, cell in cut]
        return folded(" · ".join(said), self.region.width - _WHOLE_INDENT) if said else []

    def _cut_cells(self) -> Iterator[tuple[TableColumn, Cell]]:
        """Those of the row under the cursor whose text has no room in its column."""
        row = self._rows.get(self.cursor_key)
        cells = {} if row is None else row.cells
        for column, _, columns in self._placed:
            cell = cells.get(column.name, _BLANK)
            if not column.right and cell.history is None and figure.width(cell.text) > columns:
                yield column, cell

    def _note_line(self, index: int, width: int) -> str:
        """A line of what is said without rows. What has no room in the last line is cut there."""
        lines = folded(self._why_empty(), width - 1)
        return " ".join(lines[index:]) if index == self._body_lines() - 1 else "".join(lines[index : index + 1])

    def _why_empty(self) -> str:
        if self.filter:
            return "nothing matches the filter; Esc shows all"
        return "nothing of what is shown alone; Esc shows all" if self.only is not None and self._all else self.note

    def _arrange(self, fresh: bool = False) -> None:
        wanted = self._all if self.only is None else [row for row in self._all if self.only(row.key)]
        matching = [row for row in wanted if not self.filter or row.contains(self.filter)]
        ranked = self._sorted(matching)
        self._rows = {row.key: row for row in ranked}
        is_ranked = self.sort_column is None and not self.reverse
        last = {key: row.last for key, row in self._rows.items() if row.last} if is_ranked else {}
        self._keys = self._order.arrange(list(self._rows), self._now_s, last)
        if self.on_top:
            self._keys.sort(key=lambda key: key not in self.on_top)
        if not self._keys:
            self._cursor_index = 0
        elif self._chosen and self._cursor in self._rows:
            self._cursor_index = self._keys.index(self._cursor)
        else:
            self._cursor_index = min(self._cursor_index, len(self._keys) - 1) if self._chosen else 0
            self._cursor = self._keys[self._cursor_index]
        self._settle(fresh)

    def _sorted(self, rows: Sequence[TableRow]) -> list[TableRow]:
        column = self.sort_column
        if column is None:
            return list(reversed(rows)) if self.reverse else list(rows)
        known = [row for row in rows if row.cells.get(column, _BLANK).sort is not None]
        unknown = [row for row in rows if row.cells.get(column, _BLANK).sort is None]
        numbers = all(not isinstance(row.cells[column].sort, str) for row in known)
        key = (lambda row: row.cells[column].sort) if numbers else (lambda row: str(row.cells[column].sort).lower())
        return [*sorted(known, key=key, reverse=numbers != self.reverse), *unknown]

    def _body_top(self) -> int:
        return _TITLE_LINES + (1 if self.heads else 0)

    def _body_lines(self) -> int:
        return max(0, self.region.height - self._body_top())

    def _settle(self, fresh: bool = False) -> None:
        """Scrolls so that the cursor is visible."""
        lines = self._body_lines()
        self._top = max(min(self._top, len(self._keys) - lines), 0)
        if lines > 0:
            if self._cursor_index < self._top:
                self._top = self._cursor_index
            elif self._cursor_index >= self._top + lines:
                self._top = self._cursor_index - lines + 1
        columns = place(chosen(self.columns, self.choice), self.region.width - 1)
        self._placed = [at._replace(x=at.x + 1) for at in columns]
        in_sight = self._keys[self._top : self._top + lines]
        seen = [self._rows[key].cells for key in in_sight]
        self._shortened = {
            column.name
            for column, _, columns in self._placed
            if any(
                cell.short and figure.width(cell.text) > columns
                for cell in (cells.get(column.name, _BLANK) for cells in seen)
            )
        }
        if fresh:
            self._histories = {
                (key, name): cell.history()
                for key in in_sight
                for name, cell in self._rows[key].cells.items()
                if cell.history is not None
            }
        self.lacks_history = not fresh and (self.lacks_history or in_sight != self._in_sight)
        self._in_sight = in_sight

    def _title_line(self, width: int, has_focus: bool) -> Line:
        shown = len(self._keys)
        if self.filter:
            right = f" filter '{figure.safe(self.filter, 30)}': {shown} of {len(self._all)} ─"
        elif self.only is not None and shown < len(self._all):
            right = f" {shown} of {len(self._all)} ─"
        else:
            right = f" {self._cursor_index + 1} of {shown} ─" if shown > self._body_lines() else "─"
        tone: Tone = "strong" if not has_focus else "key"
        title = f" {self.title} "
        mark = "▸" if has_focus else "─"
        title = figure.fit(title, min(figure.width(title), max(0, width - 2)))
        room = width - 1 - figure.width(title)
        if figure.width(right) > room:
            right = ""
        rule = "─" * (room - figure.width(right))
        return [(mark, tone if has_focus else "dim"), (title, tone), (rule + right, "dim")]

    def _head_line(self, width: int) -> Line:
        pieces: list[Piece] = []
        x = 0
        for column, start, cells in self._placed:
            sorted_by = column.name == self.sort_column
            title = column.title + (("▴" if self.reverse else "▾") if sorted_by else "")
            pieces.append((" " * (start - x) + figure.fit(title, cells, column.right), "key" if sorted_by else "head"))
            x = start + cells
        pieces.append((" " * max(0, width - x), ""))
        return pieces

    def _row_line(self, row: TableRow, width: int) -> Line:
        pieces: list[Piece] = []
        x = 0
        for column, start, cells in self._placed:
            cell = row.cells.get(column.name, _BLANK)
            if start > x:
                is_kept = x == 0 and row.key in self.on_top
                pieces.append(("*" + " " * (start - 1) if is_kept else " " * (start - x), ""))
            text = cell.short if cell.short and column.name in self._shortened else cell.text
            if cell.history is not None:
                text = labelled(self._histories.get((row.key, column.name), ()), cells, cell.unit)
            tone = cell.tone if cell.history is None else cell.tone or "trend"
            if cell.ends is not None and figure.width(text) > cells:
                text = figure.fit_ends(*cell.ends, cells)
            elif cell.sentence is not None and figure.width(text) > cells:
                text = figure.fit_sentence(*cell.sentence, cells)
            pieces.append((figure.fit(text, cells, column.right), tone))
            x = start + cells
        pieces.append((" " * max(0, width - x), ""))
        return pieces
