"""Lines of text at the edges of the screen: header, tabs, cost strip, footer."""

from __future__ import annotations

from collections.abc import Sequence

from netconsole.tui.widgets.painted import Line, Painted


class Lines(Painted):
    """Shows the given lines, as many as it is high."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Line] = ()

    def show(self, *lines: Line) -> None:
        """Shows these lines."""
        self._lines = lines
        self.repaint()

    def line(self, y: int) -> Line:
        return self._lines[y] if y < len(self._lines) else []
