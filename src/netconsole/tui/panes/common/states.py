"""The state of a row: its worst finding, else whether something passes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from netconsole.base import figure
from netconsole.findings.match import RowVerdict
from netconsole.telemetry.words import GOOD, IDLE, UNKNOWN, URGENCY, said
from netconsole.tui.widgets.columns import Cell
from netconsole.tui.widgets.look import LEVEL_TONES
from netconsole.tui.widgets.painted import Line

_MOST = 40
"""Columns of a word, which may be a name from outside."""


class RowStatus(NamedTuple):
    """A level, a word, and what the word means where it does not explain itself."""

    level: str
    word: str
    means: str = ""

    @property
    def needs_a_look(self) -> bool:
        return self.level in ("!!", "!")

    @property
    def urgency(self) -> int:
        """The lower, the worse."""
        return URGENCY[self.level]

    def text(self, word: str = "") -> str:
        """``!! no handler``, ``ok``. ``word``: instead of its own."""
        return figure.safe(said(self.level, word or self.word), _MOST)

    def cell(self, word: str = "") -> Cell:
        """Sorts the worst first."""
        return Cell(self.text(word), float(self.urgency), LEVEL_TONES[self.level])

    def line(self) -> Line:
        """For the page of a row."""
        means = f": {self.means}" if self.means else ""
        return [("  state         ", "dim"), (self.text(), LEVEL_TONES[self.level]), (means, "")]


def status(found: RowVerdict | None, rates: Iterable[float | None]) -> RowStatus:
    """Of a row with this finding, through which so much passes."""
    if found is not None:
        return RowStatus(found.level, found.word, found.means)
    known = list(rates)
    if not known or None in known:
        return RowStatus(*UNKNOWN)
    return RowStatus(*(GOOD if any(known) else IDLE))
