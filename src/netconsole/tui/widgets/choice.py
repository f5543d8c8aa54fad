"""A field to choose one of a few words, with ← → or the space bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from netconsole.tui.widgets.painted import Line, Painted, Piece


class Choice(Painted, can_focus=True):
    """Shows all words. The chosen one is in brackets, and in reverse video while the field has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,space", "turn(1)", show=False),
        Binding("left", "turn(-1)", show=False),
        Binding("enter", "done", show=False),
    ]

    class Changed(Message):
        """Another word was chosen."""

    class Submitted(Message):
        """Enter was pressed."""

    def __init__(self, words: Sequence[str], value: str | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.words = tuple(words)
        self.value = self.words[0] if value is None else value

    def choose(self, word: str) -> None:
        """Chooses a word. Does nothing when it is not one of the words."""
        if word in self.words:
            self.value = word
            self.repaint()

    def line(self, y: int) -> Line:
        if y:
            return []
        pieces: list[Piece] = []
        for word in self.words:
            chosen = word == self.value
            left, right = ("[", "]") if chosen else (" ", " ")
            pieces.append(
                (f"{left}{word}{right}", "here" if chosen and self.has_focus else "strong" if chosen else "dim")
            )
        return pieces

    def action_turn(self, step: int) -> None:
        self.value = self.words[(self.words.index(self.value) + step) % len(self.words)]
        self.repaint()
        self.post_message(self.Changed())

    def action_done(self) -> None:
        self.post_message(self.Submitted())

    def on_focus(self) -> None:
        self.repaint()

    def on_blur(self) -> None:
        self.repaint()
