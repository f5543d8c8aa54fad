"""The details page of one row."""

from __future__ import annotations

from collections.abc import Sequence

from netconsole.tui.panes import row_page
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.screens.over import OverScreen
from netconsole.tui.widgets.painted import Line


class DetailScreen(OverScreen):
    """History, histogram, losses and advice of a row. It is updated while it is open."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.subject = subject

    def page(self, scene: Scene, width: int) -> Sequence[Line]:
        return row_page.lines(scene, self.subject, width)
