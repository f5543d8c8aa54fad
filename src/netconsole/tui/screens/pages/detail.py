"""The evidence of one row. All keys of the main screen work here too: they go back there first where they must."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.message import Message

from netconsole.tui import actions
from netconsole.tui.panes import advice, row_page
from netconsole.tui.panes.overview import header
from netconsole.tui.panes.overview.header import Pause
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.screens.pages.text_page import OverScreen
from netconsole.tui.widgets.painted import Line, Piece

_LEFT_OUT = ("unfilter", "start")
"""Actions of the main screen whose keys mean something else here."""


class DetailScreen(OverScreen):
    """Findings, advice, history, histogram and losses of a row. It is updated while it is open."""

    BINDINGS: ClassVar[list[BindingType]] = [one for one in actions.bindings("main") if one.id not in _LEFT_OUT]

    class Wanted(Message):
        """An action of the main screen was asked for."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    def __init__(
        self,
        subject: Subject,
        pause: Callable[[], Pause],
        kind: str,
        now_s: Callable[[], float],
        without: frozenset[str] = frozenset(),
    ) -> None:
        """``pause``, ``kind`` and ``now_s`` are what the header says of the session.

        ``without``: actions that the footer leaves out because they cannot be used here.
        """
        super().__init__()
        self.subject = subject
        self._pause = pause
        self._kind = kind
        self._now_s = now_s
        self._without = without
        self._vain: frozenset[str] = frozenset()
        self._others: Sequence[Subject] = ()
        self._came_from: list[Subject] = []

    def heading(self, scene: Scene, width: int) -> Line:
        return header.first_line(scene, self._pause(), self._kind, self._now_s(), width)

    def page(self, scene: Scene, width: int) -> Sequence[Line]:
        self._others = advice.elsewhere(scene, self.subject)
        self._vain = advice.vain_keys(scene, self.subject, self.subject.probe)
        return row_page.lines(scene, self.subject, width)

    def keys(self) -> Line:
        others = [("", "Enter", "what also shows it")] if self._others else []
        keys = [
            ("", "Esc q", "back"),
            ("investigate", "i", "investigate"),
            ("run", "x", "run"),
            ("copy", "y", "copy"),
            *others,
            ("knobs", "e", "knobs"),
            ("snapshot", "s", "snapshot"),
            ("help", "?", "help"),
        ]
        pieces: list[Piece] = []
        without = self._without | self._vain
        for action_id, key, word in keys:
            if action_id not in without:
                pieces += [(f" {key}", "key"), (f" {word} ", "dim")]
        return pieces

    # ---- actions

    def action_back(self) -> None:
        """Goes back to the row where the user was: one page, or the main screen."""
        if self._came_from:
            self._show(self._came_from.pop())
        else:
            self.dismiss()

    def action_open(self) -> None:
        """Goes to the row of another table that proves the same."""
        if self._others:
            self.turn_to(self._others[0])

    def turn_to(self, subject: Subject) -> None:
        """Shows the page of another row; Esc comes back to this one."""
        self._came_from.append(self.subject)
        self._show(subject)

    def action_pane(self, name: str) -> None:
        self._leave_for(f"pane('{name}')")

    def action_next_table(self, step: int) -> None:
        self._leave_for(f"next_table({step})")

    def action_filter(self) -> None:
        self._leave_for("filter")

    def action_maximise(self) -> None:
        self._leave_for("maximise")

    def action_columns(self) -> None:
        self._leave_for("columns")

    def _leave_for(self, action: str) -> None:
        self.post_message(self.Wanted(action))

    def _show(self, subject: Subject) -> None:
        self.subject = subject
        self.top()
        self.app.call_later(self.app.run_action, "redraw")
