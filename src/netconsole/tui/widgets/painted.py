"""The base of widgets that are made of lines of text: only the pieces that changed are refreshed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import ClassVar, TypeAlias

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from netconsole.base import figure
from netconsole.tui.widgets.ascii_text import SPELLED, to_ascii
from netconsole.tui.widgets.look import STYLES, Tone

Piece: TypeAlias = tuple[str, Tone]
"""A text and its tone. Text from outside has passed figure.safe(), and is never read as markup."""
Line: TypeAlias = Sequence[Piece]


class Painted(Widget):
    """Shows what :meth:`line` returns for each line. Call :meth:`repaint` when that may have changed."""

    in_ascii: ClassVar[bool] = False
    """Whether the terminal shows ASCII alone."""

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._drawn: dict[int, Line] = {}

    @property
    def size(self) -> Size:
        """What it had last, also while it is hidden. Textual's own looks for it on the screen, for each line anew."""
        return self.outer_size

    def line(self, y: int) -> Line:
        """The pieces of line ``y``. The rest of the line is blank."""
        raise NotImplementedError

    def text(self) -> str:
        """The text on the screen, for tests."""
        return "\n".join("".join(text for text, _ in self.line(y)).rstrip() for y in range(self.size.height))

    def repaint(self) -> None:
        """Refreshes the pieces that differ from those on the screen."""
        regions: list[Region] = []
        for y in range(self.size.height):
            new = self._spelled(y)
            old = self._drawn.get(y)
            self._drawn[y] = new
            if old is None:
                regions.append(Region(0, y, self.size.width, 1))
            elif old != new:
                regions.extend(_differences(old, new, y, self.size.width))
        if regions:
            self.refresh(*regions)

    def on_resize(self) -> None:
        self._drawn.clear()
        self.repaint()

    def render_line(self, y: int) -> Strip:
        pieces = self._drawn.get(y)
        if pieces is None:
            pieces = self._drawn[y] = self._spelled(y)
        return Strip(_segments(pieces)).adjust_cell_length(self.size.width)

    def _spelled(self, y: int) -> Line:
        line = self.line(y)
        return spelled(line) if self.in_ascii else line


def spelled(line: Line) -> Line:
    """The line with ``>=`` for ``≥``: it takes a blank before it, or one of the next two that are side by side."""
    if not any(sign in text for text, _ in line for sign in SPELLED):
        return line
    written: list[Piece] = []
    owed = 0
    for char, tone in ((char, tone) for text, tone in line for char in text):
        if char in SPELLED:
            if [one for one, _ in written[-2:]] == [" ", " "]:
                written.pop()
            else:
                owed += 1
            written.append((to_ascii(char), tone))
        elif char == " " and owed and written and written[-1][0] == " ":
            owed -= 1
        else:
            written.append((char, tone))
    return [("".join(text for text, _ in group), tone) for tone, group in groupby(written, key=lambda piece: piece[1])]


def cells(line: Line) -> int:
    """The width of a line in terminal columns."""
    return sum(figure.width(text) for text, _ in line)


def spread(left: Line, right: Line, width: int) -> Line:
    """A line with ``left`` at its left end and ``right`` at its right end. ``left`` is cut when there is no room."""
    room = width - cells(right) - 1
    if room <= 0:
        return cut(right, width)
    kept = cut(left, room)
    return [*kept, (" " * (room + 1 - cells(kept)), ""), *right]


def cut(line: Line, width: int) -> Line:
    """At most ``width`` columns of a line. A line that was cut ends in ``…``."""
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


def folded(text: str, width: int) -> list[str]:
    """A text in lines of at most this many columns, broken at spaces. A longer word has a line of its own."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if figure.width(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _segments(line: Line) -> list[Segment]:
    """Joins neighbouring pieces of the same style to one segment: fewer styles cost fewer bytes."""
    merged: list[tuple[str, Style]] = []
    for text, tone in line:
        shown = text.lstrip(" ") if tone not in _BLANK_SHOWS else text
        for part, style in ((text[: len(text) - len(shown)], STYLES[""]), (shown, STYLES[tone])):
            if merged and merged[-1][1] is style:
                merged[-1] = (merged[-1][0] + part, style)
            elif part:
                merged.append((part, style))
    return [Segment(text, style) for text, style in merged]


_BLANK_SHOWS: tuple[Tone, ...] = ("", "here", "cursor")
"""Tones whose blanks must keep their style."""


def _differences(old: Line, new: Line, y: int, width: int) -> list[Region]:
    """The parts of line ``y`` that differ. The whole line, when its pieces have other widths than before."""
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
