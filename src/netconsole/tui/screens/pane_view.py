"""A pane on the main screen: which of its tables are shown, and where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from textual.geometry import Region

from netconsole.findings.match import RANK, Level
from netconsole.tui.panes.catalogue import Pane, PlacedBlock, left_out
from netconsole.tui.panes.common.tables import Block
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.widgets.look import LEVEL_TONES
from netconsole.tui.widgets.painted import Line, Piece, cells, cut, spread
from netconsole.tui.widgets.table_model import TableModel

SIDE_BY_SIDE_COLUMNS = 110
"""From this width on, two tables can stand side by side."""
LEAST_TABLE_LINES = 6
"""Title, heads and four rows. When the tables of a pane would get fewer lines, there are tabs."""


class PaneView:
    """One pane: all its tables, or one table at a time with tabs. It is no widget, so another pane costs no layout."""

    def __init__(self, pane: Pane) -> None:
        self.pane = pane
        self.tables = {placed.block.name: _table(placed) for placed in pane.blocks}
        self.active = pane.blocks[0].block.name if pane.blocks else ""
        self.one_at_a_time = False
        self.answer_first = False
        """Whether the first table (what stands out) stays above the table of the current tab."""
        self.maximised = False
        """Whether the user wants one table alone; the others are under tabs."""
        self.hidden = left_out(None, pane)
        """Blocks that are left out now: they have nothing to show."""
        self.quiet: list[PlacedBlock] = []
        """Those of them that had no row so far: one line names them."""
        self._filled: set[str] = set()
        """Blocks that had rows once: a table that empties stays where it is."""
        self._width = self._height = 0
        self._tabs: Line = []
        self._quiet_line: Line = []

    def tables_shown(self) -> Iterator[tuple[PlacedBlock, TableModel]]:
        """The tables on the screen, in reading order."""
        for placed in self.blocks:
            if self._wanted(placed):
                yield placed, self.tables[placed.block.name]

    def lay_out(self, width: int, height: int) -> None:
        """Arranges the tables in so much room: all of them, or one under tabs where they would be too low."""
        self._width, self._height = width, height
        blocks = self.blocks
        height -= len(self.quiet[:1])
        there = [row for row in ([p for p in row if p in blocks] for row in self.pane.rows) if row]
        fixed = [row[0].lines or 0 for row in there]
        low = height < sum(fixed) + LEAST_TABLE_LINES * sum(1 for lines in fixed if not lines)
        narrow = any(len(row) > 1 for row in there) and width < SIDE_BY_SIDE_COLUMNS
        self.one_at_a_time = len(blocks) > 1 and (low or narrow or self.maximised)
        roomy = height >= 2 * LEAST_TABLE_LINES + 4 and not self.maximised
        self.answer_first = self.one_at_a_time and len(there) > 1 and bool(fixed[0]) and roomy
        if self.active in self.hidden or (self.answer_first and self.active == blocks[0].block.name):
            self.active = blocks[1 if self.answer_first else 0].block.name
        self._place(LEAST_TABLE_LINES if height < 30 else None)

    def _place(self, first: int | None = None) -> None:
        """Puts each table in its place. ``first``: the lines of the one that stays above the tabs."""
        rows = [row for row in ([p for p in row if self._wanted(p)] for row in self.pane.rows) if row]
        wanted = [0 if self.one_at_a_time else row[0].lines or 0 for row in rows]
        if self.answer_first:
            wanted[0] = first or rows[0][0].lines or 0
        y, end = int(self.one_at_a_time), self._height - len(self.quiet[:1])
        for number, (row, lines) in enumerate(zip(rows, wanted, strict=True)):
            others = wanted[number:].count(0)
            share = (end - y - sum(wanted[number:])) // others if others else 0
            bottom = y + (lines or max(0, share))
            for column, placed in enumerate(row):
                left, right = (edge * (self._width + 1) // len(row) for edge in (column, column + 1))
                self.tables[placed.block.name].put(Region(left, y, right - left - 1, bottom - y))
            y = bottom

    def line(self, y: int, in_front: TableModel | None) -> Line:
        """Its line ``y``. ``in_front``: the table that the keys go to."""
        if y == 0 and self.one_at_a_time:
            return self._tabs
        if self.quiet and y == self._height - 1:
            return self._quiet_line
        pieces: list[Piece] = []
        for _, table in self.tables_shown():
            at = table.region
            if at.y <= y < at.bottom:
                gap: list[Piece] = [(" ", "")] if at.x else []
                pieces += [*gap, *table.line(y - at.y, table is in_front)]
        return pieces

    def without_rows(self, scene: Scene) -> frozenset[str]:
        """The blocks that are left out now: of what is not here, and those without a row; where none has one, the first
        says so.

        On the overview an empty table is an answer. A user who wants one table alone (z) has tabs of all.
        """
        absent = left_out(scene, self.pane)
        blocks = [placed for placed in self.pane.blocks if placed.block.name not in absent]
        self.quiet = []
        if self.pane.probes and self.pane.name != "overview" and not self.maximised:
            fresh = [placed.block for placed in blocks if placed.block.name not in self._filled]
            self._filled |= {block.name for block in fresh if block.rows_of(scene)}
            without = [placed for placed in blocks if placed.block.name not in self._filled]
            self.quiet = without if len(without) < len(blocks) else without[1:]
        return absent | {placed.block.name for placed in self.quiet}

    def _said_quiet(self, scene: Scene) -> Line:
        """What has no row, and why not: nothing happened, or nobody watches."""
        by_why: dict[str, list[str]] = {"quiet": [], "not watched": []}
        for placed in self.quiet:
            by_why["quiet" if placed.block.note(scene).startswith("nothing") else "not watched"].append(placed.tab)
        said = "; ".join(f"{why}: {', '.join(tabs)}" for why, tabs in by_why.items() if tabs)
        return spread([(f" {said}", "dim")], [("z", "key"), (" all tables ", "dim")], self._width)

    @property
    def blocks(self) -> list[PlacedBlock]:
        """The blocks that are not left out now, in reading order."""
        return [placed for placed in self.pane.blocks if placed.block.name not in self.hidden]

    def _wanted(self, placed: PlacedBlock) -> bool:
        return placed.block.name not in self.hidden and (not self.one_at_a_time or self._shown(placed))

    def _shown(self, placed: PlacedBlock) -> bool:
        first = self.answer_first and placed.block.name == self.pane.blocks[0].block.name
        return first or placed.block.name == self.active

    def turn(self, step: int) -> None:
        """Goes to the next or the previous tab."""
        names = [placed.block.name for placed in self.blocks][1 if self.answer_first else 0 :]
        if names:
            at = names.index(self.active) if self.active in names else 0
            self.active = names[(at + step) % len(names)]

    def set_filter(self, text: str) -> None:
        """Its tables show only rows that contain this text; all rows, if it is empty."""
        for table in self.tables.values():
            table.set_filter(text)

    def draw(self, scene: Scene, now_s: float) -> None:
        """Gives the visible tables what the scene has for them."""
        shown = [(placed.block, table, placed.block.rows_of(scene)) for placed, table in self.tables_shown()]
        for block, table, rows in shown:
            table.columns = block.columns_of(scene)
            table.show(rows, now_s, block.title(scene), block.note(scene))
        if self.answer_first and len(shown) > 1:
            first, chosen = (table.lines_wanted() for _, table, _ in shown[:2])
            free = self._height - 1 - max(LEAST_TABLE_LINES, chosen)
            self._place(max(LEAST_TABLE_LINES, min(first, free, self.blocks[0].lines or 0)))
            for _, table, rows in shown:
                if table.lacks_history:  # other rows have come into sight
                    table.show(rows, now_s, note=table.note)
        if self.quiet:
            self._quiet_line = self._said_quiet(scene)
        if self.one_at_a_time:
            self._tabs = self._tab_line(self._width, table_levels(scene, self.blocks))

    def _tab_line(self, width: int, levels: Mapping[str, Level]) -> Line:
        """The tabs, those of tables where something stands out marked. Too many: the one in front, and the marked."""
        names = [(p.tab, p.block.name) for p in self.blocks][1 if self.answer_first else 0 :]
        pieces: list[Piece] = [(" ", "")]
        for tab, name in names:
            pieces += [(f" {tab} ", "here" if name == self.active else ""), *_mark(levels.get(name)), (" ", "")]
        if cells(pieces) > width:
            at = next((place for place, (_, name) in enumerate(names) if name == self.active), 0)
            tab, name = names[at]
            pieces = [(f" {tab} ", "here"), *_mark(levels.get(name)), (f" {at + 1} of {len(names)}; Tab: next", "dim")]
            others = [(levels[name], tab, place) for place, (tab, name) in enumerate(names, 1) if name in levels]
            for level, tab, place in sorted(others, key=lambda one: RANK[one[0]]):
                if place != at + 1:
                    pieces += [("; ", "dim"), *_mark(level), (f" {tab} ({place})", "")]
        return cut(pieces, width)


def table_levels(scene: Scene, blocks: Sequence[PlacedBlock]) -> dict[str, Level]:
    """The worst level of what stands out now, by the block that has its proof."""
    found = {placed.block.name: _levels_in(scene, placed.block) for placed in blocks}
    return {name: min(levels, key=RANK.__getitem__) for name, levels in found.items() if levels}


def _levels_in(scene: Scene, block: Block) -> list[Level]:
    """The levels of the rows of a block. Of one that is drawn in a way of its own, the rows have to be asked."""
    of_probe = {row: known.level for row, known in scene.verdicts.items() if row[0] == block.probe}
    if not of_probe or block.name.startswith(f"{block.probe}-"):
        return [level for (probe, _, name, _), level in of_probe.items() if block.name == f"{probe}-{name}"]
    return [level for row in block.rows_of(scene) if (level := of_probe.get(cast(Subject, row.key)))]


def _mark(level: Level | None) -> list[Piece]:
    return [] if level is None else [(level, LEVEL_TONES[level])]


def _table(placed: PlacedBlock) -> TableModel:
    block = placed.block
    return TableModel(block.name, placed.tab, block.columns, heads=block.heads, has_news=block.has_news)
