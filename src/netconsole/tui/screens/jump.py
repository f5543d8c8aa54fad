"""The dialog to go to a time in a recording."""

from __future__ import annotations

import time
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import Input

from netconsole.base import figure
from netconsole.recording.replay_session import ReplaySession, parse_time
from netconsole.tui import actions
from netconsole.tui.widgets.lines import Lines
from netconsole.tui.widgets.painted import Line

HINTS = ("12:03:30    a time of day", "90s 5m 50%  from the beginning", "+30s -5m    from here")


class JumpScreen(Screen[None]):
    """One field. Enter goes there, Esc stays."""

    BINDINGS: ClassVar[list[BindingType]] = list(actions.bindings("over"))

    def __init__(self, session: ReplaySession) -> None:
        super().__init__()
        self._session = session

    def compose(self) -> ComposeResult:
        yield Lines(id="dialog-title")
        yield Input(id="jump", compact=True)
        yield Lines(id="told")
        yield Lines(id="over-footer")

    def on_mount(self) -> None:
        place = self._session.position()
        begin, end = (
            time.strftime("%H:%M:%S", time.localtime(place.begin_wall_ns / 1e9 + seconds))
            for seconds in (0.0, place.length_s)
        )
        self.query_one("#dialog-title", Lines).show(
            [(" Go to a time", "strong"), (f"  the recording is from {begin} to {end}", "dim")]
        )
        hints: list[Line] = [[(f" {line}", "dim")] for line in HINTS]
        self.query_one("#told", Lines).show(*hints)
        self.query_one("#over-footer", Lines).show(
            [(" Enter", "key"), (" go there ", "dim"), (" Esc", "key"), (" stay ", "dim")]
        )
        self.query_one(Input).focus()

    def action_back(self) -> None:
        self.dismiss()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        place = self._session.position()
        at_s = parse_time(event.value, place)
        if at_s is None:
            length = figure.elapsed(place.length_s)
            told = f" {figure.safe(event.value, 40)!r} is not a time in this recording of {length}"
            self.query_one("#told", Lines).show([(told, "act")])
            return
        self._session.seek(at_s)
        self.dismiss()
