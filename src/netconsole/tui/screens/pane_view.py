"""A pane on the main screen: which of its tables are shown, and where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from netconsole.findings.match import RANK, Level
from netconsole.tui.panes.catalogue import Pane, PlacedBlock, left_out
from netconsole.tui.panes.common.tables import Block
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.widgets.lines import Lines
from netconsole.tui.widgets.linetable import LineTable
from netconsole.tui.widgets.look import LEVEL_TONES
from netconsole.tui.widgets.painted import Line, Piece, cells, cut, spread

SIDE_BY_SIDE_COLUMNS = 110
"""From this width on, two tables can stand side by side."""
LEAST_TABLE_LINES = 6
"""Title, heads and four rows. When the tables of a pane would get fewer lines, there are tabs."""
TITLE_AND_HEADS = 2


class PaneView(Vertical):
    """One pane: all its tables, or one table at a time with tabs."""

    def __init__(self, pane: Pane) -> None:
        super().__init__(id=f"pane-{pane.name}")
        self.pane = pane
        self.tables = {placed.block.name: _table(placed) for placed in pane.blocks}
        self.tabs = Lines(id=f"tabs-{pane.name}")
        self.tabs.add_class("tabs")
        self.active = pane.blocks[0].block.name if pane.blocks else ""
        self.one_at_a_time = False
        self.maximised = False
        """Whether the user wants one table alone; the others are under tabs."""
        self.hidden = left_out(None, pane)
        """Blocks that are left out now: they have nothing to show."""
        self.quiet: list[PlacedBlock] = []
        """Those of them that had no row so far: one line names them."""
        self._filled: set[str] = set()
        """Blocks that had rows once: a table that empties stays where it is."""
        self.line = Lines(id=f"quiet-{pane.name}")
        self.line.add_class("quiet")

    def compose(self) -> ComposeResult:
        yield self.tabs
        for row in self.pane.rows:
            with Horizontal(classes="row"):
                for placed in row:
                    yield self.tables[placed.block.name]
        yield self.line

    def tables_shown(self) -> Iterator[tuple[PlacedBlock, LineTable]]:
        """The tables on the screen, in reading order."""
        for placed in self.blocks:
            table = self.tables[placed.block.name]
            if table.display and (not self.one_at_a_time or self._shown(placed)):
                yield placed, table

    def lay_out(self, width: int, height: int) -> None:
        """Arranges the tables: all of them where there is room, else one table under tabs."""
        blocks = self.blocks
        self.line.display = bool(self.quiet)
        height -= len(self.quiet[:1])
        there = [row for row in ([p for p in row if p in blocks] for row in self.pane.rows) if row]
        rows = len(there)
        fixed = [row[0].lines or 0 for row in there]
        low = height < sum(fixed) + LEAST_TABLE_LINES * sum(1 for lines in fixed if not lines)
        narrow = any(len(row) > 1 for row in there) and width < SIDE_BY_SIDE_COLUMNS
        self.one_at_a_time = len(blocks) > 1 and (low or narrow or self.maximised)
        roomy = height >= 2 * LEAST_TABLE_LINES + 4 and not self.maximised
        self.answer_first = self.one_at_a_time and rows > 1 and bool(fixed[0]) and roomy
        if self.active in self.hidden or (self.answer_first and self.active == blocks[0].block.name):
            self.active = blocks[1 if self.answer_first else 0].block.name
        self.tabs.display = self.one_at_a_time
        for container, row in zip(self.query(".row"), self.pane.rows, strict=True):
            shown = [placed for placed in row if self._wanted(placed)]
            container.display = bool(shown)
            for placed in row:
                table = self.tables[placed.block.name]
                table.display = placed in shown
                table.set_class(placed in shown[:-1], "beside")
            lines = row[0].lines
            if lines and self.answer_first:
                lines = LEAST_TABLE_LINES if height < 30 else lines
            container.styles.height = lines if lines and (not self.one_at_a_time or self.answer_first) else "1fr"

    def without_rows(self, scene: Scene) -> frozenset[str]:
        """The blocks that are left out now: of what is not here, and those without a row, unless none has one.

        On the overview an empty table is an answer. A user who wants one table alone (z) has tabs of all.
        """
        absent = left_out(scene, self.pane)
        blocks = [placed for placed in self.pane.blocks if placed.block.name not in absent]
        self.quiet = []
        if self.pane.probes and self.pane.name != "overview" and not self.maximised:
            fresh = [placed.block for placed in blocks if placed.block.name not in self._filled]
            self._filled |= {block.name for block in fresh if block.rows_of(scene)}
            without = [placed for placed in blocks if placed.block.name not in self._filled]
            self.quiet = without if len(without) < len(blocks) else []
        return absent | {placed.block.name for placed in self.quiet}

    def _quiet_line(self, scene: Scene) -> Line:
        """What has no row, and why not: nothing happened, or nobody watches."""
        by_why: dict[str, list[str]] = {"quiet": [], "not watched": []}
        for placed in self.quiet:
            by_why["quiet" if placed.block.note(scene).startswith("nothing") else "not watched"].append(placed.tab)
        said = "; ".join(f"{why}: {', '.join(tabs)}" for why, tabs in by_why.items() if tabs)
        return spread([(f" {said}", "dim")], [("z", "key"), (" all tables ", "dim")], self.size.width)

    answer_first = False
    """Whether the first table (what stands out) stays above the table of the current tab."""

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
        """Shows the scene in the visible tables."""
        wanted = []
        for placed, table in self.tables_shown():
            block = placed.block
            table.columns = block.columns_of(scene)
            rows = block.rows_of(scene)
            wanted.append(len(rows) + TITLE_AND_HEADS)
            table.show(rows, now_s, block.title(scene), block.note(scene))
        if self.quiet:
            self.line.show(self._quiet_line(scene))
        if self.answer_first and len(wanted) > 1:
            self._share(wanted[0], wanted[1])
        if self.one_at_a_time:
            # A pane that has just come to the front does not know its own size yet.
            self.tabs.show(self._tab_line(self.size.width or self.app.size.width, table_levels(scene, self.blocks)))

    def _share(self, first: int, chosen: int) -> None:
        """Gives the first table the lines that it needs, as far as the table below it leaves them free."""
        free = self.size.height - 1 - max(LEAST_TABLE_LINES, chosen)
        lines = max(LEAST_TABLE_LINES, min(first, free, self.blocks[0].lines or 0))
        self.query(".row").first().styles.height = lines

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


def _table(placed: PlacedBlock) -> LineTable:
    block = placed.block
    return LineTable(
        block.name,
        placed.tab,
        block.columns,
        heads=block.heads,
        has_news=block.has_news,
        id=f"table-{block.name}",
    )
