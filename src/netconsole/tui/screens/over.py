"""A page above the main screen: a text to scroll. Esc goes back to the row where the user was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from netconsole.tui import actions
from netconsole.tui.scene.scene import Scene
from netconsole.tui.widgets.lines import Lines
from netconsole.tui.widgets.painted import Line, cells, cut
from netconsole.tui.widgets.reader import Reader


class OverScreen(Screen[None]):
    """A subclass defines :meth:`page`."""

    BINDINGS: ClassVar[list[BindingType]] = list(actions.bindings("over"))

    def compose(self) -> ComposeResult:
        yield Reader(id="page")
        yield Lines(id="over-footer")

    def on_mount(self) -> None:
        self.query_one(Reader).focus()
        footer: Line = [(" Esc", "key"), (" back  ", "dim"), ("↑ ↓", "key"), (" scroll  ", "dim")]
        self.query_one("#over-footer", Lines).show(footer)

    def page(self, scene: Scene, width: int) -> Sequence[Line]:
        """The lines of the page. Lines longer than the screen are wrapped."""
        raise NotImplementedError

    def draw(self, scene: Scene) -> None:
        """Shows the page as it is now."""
        width = self.size.width
        lines = [part for line in self.page(scene, width) for part in wrap(line, width)]
        self.query_one(Reader).show(lines)

    def on_resize(self) -> None:
        self.app.call_later(self.app.run_action, "redraw")

    def action_back(self) -> None:
        self.dismiss()


def wrap(line: Line, width: int) -> list[Line]:
    """Wraps a line. Its last piece is broken at spaces, and continues below the place where it began."""
    if not line or cells(line) <= width:
        return [line]
    *head, (text, tone) = line
    indent = cells(head)
    if indent > width * 2 // 3:
        return [cut(line, width)]
    lead = len(text) - len(text.lstrip())
    first_word, *words = text[lead:].split(" ")
    wrapped: list[Line] = []
    current = text[:lead] + first_word
    for word in words:
        candidate = f"{current} {word}"
        if cells([(candidate, tone)]) > width - indent - (lead if wrapped else 0):
            wrapped.append([(current, tone)])
            current = word
        else:
            current = candidate
    wrapped.append([(current, tone)])
    first, *rest = wrapped
    return [[*head, *first], *([(" " * (indent + lead), ""), *line] for line in rest)]
