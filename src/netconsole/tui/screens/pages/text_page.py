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
from netconsole.tui.widgets.look import Tone
from netconsole.tui.widgets.painted import Line, cells, cut
from netconsole.tui.widgets.reader import Reader


class OverScreen(Screen[None]):
    """A subclass defines :meth:`page`."""

    BINDINGS: ClassVar[list[BindingType]] = list(actions.bindings("over"))
    keeps_scope: ClassVar[bool] = False
    """Whether it shows the device or VM alone that the main screen does. The page of one thing is about that."""

    def compose(self) -> ComposeResult:
        yield Lines(id="over-header")
        yield Reader(id="page")
        yield Lines(id="over-footer")

    def on_mount(self) -> None:
        self.set_focus(self.query_one("#page"))
        self._footer()

    def heading(self, _scene: Scene, _width: int) -> Line:
        """The line above the page; none where it is empty."""
        return []

    def keys(self) -> Line:
        """The keys that the last line names."""
        return [(" Esc q", "key"), (" back  ", "dim"), ("↑ ↓", "key"), (" scroll  ", "dim")]

    def say(self, text: str, tone: Tone = "") -> None:
        """Shows a message instead of the keys, until the next key or message. "" shows the keys again."""
        self._message = (text, tone) if text else None
        self._footer()

    _message: tuple[str, Tone] | None = None

    def _footer(self) -> None:
        if self.is_mounted:
            line = self.keys() if self._message is None else [(f" {self._message[0]}", self._message[1])]
            self.query_one("#over-footer", Lines).show(cut(line, self.size.width))

    def top(self) -> None:
        """Shows the beginning of the page again, and forgets what was said."""
        self._message = None
        self.query_one(Reader).action_edge(-1)

    def page(self, scene: Scene, width: int) -> Sequence[Line]:
        """The lines of the page. Lines longer than the screen are wrapped."""
        raise NotImplementedError

    def draw(self, scene: Scene) -> None:
        """Shows the page as it is now."""
        width = self.size.width
        lines = [part for line in self.page(scene, width) for part in wrap(line, width)]
        heading = self.heading(scene, width)
        self.query_one("#over-header", Lines).display = bool(heading)
        self.query_one("#over-header", Lines).show(heading)
        self.query_one(Reader).show(lines)
        self._footer()

    def on_key(self) -> None:
        if self._message is not None:
            self.say("")

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
