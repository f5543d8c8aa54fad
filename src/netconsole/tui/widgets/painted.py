"""Widgets made of lines of text that refresh only the pieces that changed since the last time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from netconsole.base import figure
from netconsole.tui.widgets.look import CURSOR, STYLES, Tone

Piece: TypeAlias = tuple[str, Tone]
"""A text and its tone. Outside text in it has passed figure.safe(): it is never markup."""
Line: TypeAlias = Sequence[Piece]


class Painted(Widget):
    """Shows what :meth:`line` returns for each of its lines; call :meth:`repaint` when that may have changed."""

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._drawn: dict[int, Line] = {}
        self._highlighted_drawn: int | None = None

    def line(self, y: int) -> Line:
        """The pieces of line ``y``; what is missing of the width is blank."""
        raise NotImplementedError

    def highlighted(self) -> int | None:
        """The line that is shown as the cursor's, if any."""
        return None

    def text(self) -> str:
        """What is shown, as plain text: for tests."""
        return "\n".join("".join(text for text, _ in self.line(y)).rstrip() for y in range(self.size.height))

    def repaint(self) -> None:
        """Refresh the pieces that differ from those on the screen."""
        regions: list[Region] = []
        highlighted = self.highlighted()
        moved = highlighted != self._highlighted_drawn
        for y in range(self.size.height):
            new = self.line(y)
            old = self._drawn.get(y)
            self._drawn[y] = new
            if old is None or (moved and y in (highlighted, self._highlighted_drawn)):
                regions.append(Region(0, y, self.size.width, 1))
            elif old != new:
                regions.extend(_differences(old, new, y, self.size.width))
        self._highlighted_drawn = highlighted
        if regions:
            self.refresh(*regions)

    def on_resize(self) -> None:
        self._drawn.clear()
        self.repaint()

    def render_line(self, y: int) -> Strip:
        pieces = self._drawn.get(y)
        if pieces is None:
            pieces = self._drawn[y] = self.line(y)
        segments = _segments(pieces, y == self.highlighted())
        return Strip(segments).adjust_cell_length(self.size.width)


def cells(line: Line) -> int:
    """The width of a line in terminal columns."""
    return sum(figure.width(text) for text, _ in line)


def spread(left: Line, right: Line, width: int) -> Line:
    """``left`` and ``right`` at the two ends of a line; ``left`` is cut where they would meet."""
    room = width - cells(right) - 1
    if room <= 0:
        return cut(right, width)
    kept = cut(left, room)
    return [*kept, (" " * (room + 1 - cells(kept)), ""), *right]


def cut(line: Line, width: int) -> Line:
    """At most ``width`` columns of a line; what was cut ends in ``…``."""
    kept: list[Piece] = []
    room = width
    for text, tone in line:
        columns = figure.width(text)
        if columns > room:
            if room > 0:
                kept.append((figure.fit(text, room), tone))
            break
        kept.append((text, tone))
        room -= columns
    return kept


def _segments(line: Line, highlighted: bool) -> list[Segment]:
    """Neighbouring pieces of one style become one segment: the fewer styles, the fewer bytes."""
    if highlighted:
        return [Segment("".join(text for text, _ in line), CURSOR)]
    merged: list[tuple[str, Style]] = []
    for text, tone in line:
        shown = text.lstrip(" ") if tone not in _BLANK_SHOWS else text
        for part, style in ((text[: len(text) - len(shown)], STYLES[""]), (shown, STYLES[tone])):
            if merged and merged[-1][1] is style:
                merged[-1] = (merged[-1][0] + part, style)
            elif part:
                merged.append((part, style))
    return [Segment(text, style) for text, style in merged]


_BLANK_SHOWS: tuple[Tone, ...] = ("", "here")
"""Tones of which a blank is more than a blank."""


def _differences(old: Line, new: Line, y: int, width: int) -> list[Region]:
    """The parts of line ``y`` that differ; a line that is cut into other pieces than before is refreshed whole."""
    if len(old) != len(new):
        return [Region(0, y, width, 1)]
    regions: list[Region] = []
    x = 0
    for before, after in zip(old, new, strict=True):
        columns = figure.width(after[0])
        if before != after:
            if figure.width(before[0]) != columns:
                return [Region(0, y, width, 1)]
            regions.append(Region(x, y, columns, 1))
        x += columns
    return regions
