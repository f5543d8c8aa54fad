"""All queues, ports, PMD threads and block devices at a glance: a cell for each, the one under the cursor in words."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult

from netconsole.tui.panes import glance
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.screens.pages.text_page import OverScreen, wrap
from netconsole.tui.widgets.cell_grid import CellGrid
from netconsole.tui.widgets.lines import Lines
from netconsole.tui.widgets.painted import Line, cut

CELL_LINES = 3
"""Of what is said of the cell under the cursor."""
_NOTHING: list[Line] = [
    [(" No probe here watches queues of VMs, ports, PMD threads or block devices.", "")],
    [(" In a live session Enter on an empty pane (2, 3, d) starts one.", "dim")],
]
"""Said where there is no cell."""


class GlanceScreen(OverScreen):
    """The arrows go from cell to cell, Enter opens the page of one."""

    keeps_scope = True

    def __init__(self, open_row: Callable[[Subject], None]) -> None:
        super().__init__()
        self._open = open_row
        self._places: dict[Subject, glance.GlancePlace] = {}

    def compose(self) -> ComposeResult:
        yield Lines(id="over-header")
        yield CellGrid(id="page")
        yield Lines(id="cell")
        yield Lines(id="legend")
        yield Lines(id="over-footer")

    @property
    def grid(self) -> CellGrid:
        """The cells."""
        return self.query_one(CellGrid)

    @property
    def subject(self) -> Subject | None:
        """What the cell under the cursor stands for."""
        return self._under_cursor.subject if self._under_cursor is not None else None

    @property
    def _under_cursor(self) -> glance.GlancePlace | None:
        return next((one for key, one in self._places.items() if key == self.grid.cursor), None)

    def keys(self) -> Line:
        keys = [
            ("Esc q", "back"),
            *([("← → ↑ ↓", "move"), ("Enter", "open"), ("Home", "first")] if self._places else []),
        ]
        return [piece for key, word in keys for piece in ((f" {key}", "key"), (f" {word} ", "dim"))]

    def draw(self, scene: Scene) -> None:
        width = self.size.width
        found = glance.places(scene)
        self._places = {one.subject: one for _, some in found for one in some}
        title = f" {scene.only} at a glance" if scene.only else " All at a glance"
        self.query_one("#over-header", Lines).show(cut([(title, "strong")], width))
        self.grid.show(list(glance.grid(found, width)), glance.worst(found))
        self.query_one("#legend", Lines).show(cut(glance.legend(found), width))
        self._say_cell()
        self._footer()

    def _say_cell(self) -> None:
        one, width = self._under_cursor, self.size.width
        lines = one.lines if one is not None else () if self._places else _NOTHING
        self.query_one("#cell", Lines).show(*[part for line in lines for part in wrap(line, width)][:CELL_LINES])

    def on_cell_grid_moved(self) -> None:
        self._say_cell()

    def on_cell_grid_opened(self, message: CellGrid.Opened) -> None:
        if isinstance(message.key, Subject):
            self._open(message.key)
