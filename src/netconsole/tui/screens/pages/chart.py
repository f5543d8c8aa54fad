"""The history of a row over the whole screen, and below it, if wanted, that of the row charted before."""

from __future__ import annotations

from collections.abc import Sequence

from netconsole.tui.panes import row_chart
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.screens.pages.text_page import OverScreen
from netconsole.tui.widgets.painted import Line

_FOOTER_LINES = 1


class ChartScreen(OverScreen):
    """It goes on with every interval. ``Z`` shows and hides the other row."""

    def __init__(self, subject: Subject, before: Subject | None) -> None:
        super().__init__()
        self.subject = subject
        self._before = before
        self._is_double = False

    def keys(self) -> Line:
        line = super().keys()
        return line if self._before is None else [*line, ("Z", "key"), (" the row charted before ", "dim")]

    def page(self, scene: Scene, width: int) -> Sequence[Line]:
        height = self.size.height - _FOOTER_LINES
        if self._before is None or not self._is_double:
            return row_chart.lines(scene, self.subject, width, height)
        upper = row_chart.lines(scene, self.subject, width, height // 2)
        return [*upper, *row_chart.lines(scene, self._before, width, height - len(upper))]

    def turn(self) -> None:
        """Shows the other row too, or hides it."""
        self._is_double = self._before is not None and not self._is_double
        self.app.call_later(self.app.run_action, "redraw")
