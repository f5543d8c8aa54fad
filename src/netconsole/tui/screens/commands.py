"""Runs the commands that a finding advises: shows them first, then what they say. Each of them only reads."""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass

from netconsole.base import figure
from netconsole.base.timestamps import clock, utc
from netconsole.snapshot.document import CommandData
from netconsole.telemetry.request import CommandOutput
from netconsole.tui.scene.scene import Scene
from netconsole.tui.screens.pages.text_page import OverScreen
from netconsole.tui.terminal.threads import in_thread
from netconsole.tui.widgets.painted import Line

NOTHING = "the command printed nothing"
MAX_LINES = 2000
"""Of an output, from its beginning."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command said, and when (wall clock); or why it was not run."""

    output: CommandOutput | None
    why: str
    at_ns: int


class CommandsScreen(OverScreen):
    """The commands of a row's findings. :meth:`run` runs them, one after another."""

    def __init__(
        self,
        commands: Sequence[str],
        where: str,
        run: Callable[[str], CommandOutput],
        kept: MutableMapping[str, CommandData],
    ) -> None:
        """``where``: the host, as people call it. ``run`` raises OSError, with one sentence. ``kept``: for tickets."""
        super().__init__()
        self._commands, self._where, self._ask, self._kept = commands, where, run, kept
        self._ran: dict[str, Ran] = {}
        self._is_running = False

    def keys(self) -> Line:
        word = "running…" if self._is_running else "run again" if self._ran else f"run on {self._where}"
        return [
            (" x", "key"),
            (f" {word}  ", "dim"),
            ("Esc q", "key"),
            (" back  ", "dim"),
            ("↑ ↓", "key"),
            (" scroll", "dim"),
        ]

    def page(self, scene: Scene, width: int) -> Sequence[Line]:
        lines: list[Line] = [[(" Commands that look closer", "strong"), ("  each only reads", "dim")], []]
        for command in self._commands:
            lines.append([(" $ ", "head"), (command, "key")])
            lines += _said(self._ran[command]) if command in self._ran else []
        return lines

    def run(self) -> None:
        """Run them all, in a thread."""
        if not self._is_running:
            self._is_running = True
            self._footer()
            in_thread(self, self._run, self._ended)

    def _run(self) -> None:
        for command in self._commands:
            try:
                self._ran[command] = Ran(self._ask(command), "", time.time_ns())
            except OSError as error:
                self._ran[command] = Ran(None, error.strerror or str(error), time.time_ns())
            self._kept[command] = _kept(command, self._ran[command])
            self.app.call_later(self.app.run_action, "redraw")
        self.app.call_later(self._ended, "")

    def _ended(self, why: str) -> None:
        self._is_running = False
        self.say(why, "act")
        self.app.call_later(self.app.run_action, "redraw")


def _kept(command: str, ran: Ran) -> CommandData:
    at = utc(ran.at_ns / 1e9)
    if ran.output is None:
        return CommandData(at, command, why=ran.why)
    return CommandData(at, command, ran.output.text, ran.output.status, ran.output.is_cut)


def _said(ran: Ran) -> list[Line]:
    if ran.output is None:
        return [[("   ", ""), (figure.safe(ran.why), "act")], []]
    told = ran.output.text.splitlines() or [NOTHING]
    lines: list[Line] = [[("   ", ""), (figure.safe(line.expandtabs(), 500), "")] for line in told[:MAX_LINES]]
    if len(told) > MAX_LINES:
        lines.append([(f"   {len(told) - MAX_LINES} more lines", "dim")])
    ended = "" if ran.output.status == 0 else f", ended with status {ran.output.status}"
    cut = ", its beginning is cut off" if ran.output.is_cut else ""
    return [
        *lines,
        [(f"   {clock(ran.at_ns)}, took {figure.quantity(ran.output.seconds * 1e9, 'ns')}{ended}{cut}", "dim")],
        [],
    ]
