"""A Textual application on a terminal of the console's: when it draws, how it ends, what it sends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence

from rich.cells import cached_cell_len
from rich.segment import Segment
from textual import events
from textual.app import App
from textual.screen import Screen
from textual.widgets import Input

from netconsole.base import priority
from netconsole.tui.saved_files import picture, save
from netconsole.tui.scene.scene import LOOK_EVERY_S, Output
from netconsole.tui.terminal.driver import ConsoleDriver
from netconsole.tui.terminal.lifeline import Lifeline
from netconsole.tui.terminal.pump import Pump
from netconsole.tui.widgets.look import Tone

PRIORITY_EVERY_S = 2.0
"""How often the console looks whether many wait for a CPU."""
RATE_OVER_S = 2.0
"""The output rate is the mean of this time."""


class TerminalApp(App[None]):
    """A subclass says what is drawn. It tells ``lifeline`` when the user leaves, so that its deadline begins."""

    def __init__(self, keymap: Mapping[str, str] | None = None, lifeline: Lifeline | None = None) -> None:
        super().__init__(driver_class=ConsoleDriver, ansi_color=True)
        self.theme = "ansi-dark"
        self.keys = dict(keymap or {})
        self.pump = Pump(self.draw, self.backlog, self._observe)
        self._lifeline = lifeline
        self._drawings = 0
        self._sent = (time.monotonic(), 0)
        self._bytes_per_s: float | None = None

    def draw(self) -> None:
        """Draws the screen in front."""
        raise NotImplementedError

    def say(self, text: str, tone: Tone = "") -> None:
        """Shows a message."""
        raise NotImplementedError

    def _observe(self) -> bool:
        """Sees the news, and says whether there is something to draw."""
        raise NotImplementedError

    # ---- start and end

    def on_mount(self) -> None:
        self.set_keymap(self.keys)
        self.app_resume_signal.subscribe(self, self._paint_whole)
        self.screen_change_signal.subscribe(self, self._came_to_the_front)

    def begin_to_draw(self) -> None:
        """The first screen is ready."""
        self.pump.start()
        driver = self._driver
        if isinstance(driver, ConsoleDriver):
            driver.output.when_idle = self.pump.idle
        self.set_interval(LOOK_EVERY_S, self.pump.news)
        self.set_interval(PRIORITY_EVERY_S, self._look_at_priority)
        self.call_after_refresh(self._look_at_priority)
        self.pump.news()

    def own_pids(self) -> Sequence[int]:
        """Processes of ours on this machine that share the console's priority."""
        return ()

    def _look_at_priority(self) -> None:
        """On a host where many wait for a CPU, the console and its collector take a higher priority."""
        priority.OWN.look(priority.RUNNING, self.own_pids())

    def leave(self) -> None:
        """Ends the application. Thread-safe."""
        self.pump.stop()
        if isinstance(self._driver, ConsoleDriver):
            self._driver.hurry()
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the application has already ended
                loop.call_soon_threadsafe(self.exit)

    # ---- drawing

    def backlog(self) -> int:
        """The number of writes that the terminal has not taken yet."""
        return self._driver.backlog() if isinstance(self._driver, ConsoleDriver) else 0

    def delay_s(self) -> float:
        """How far the terminal may be behind what is drawn now."""
        return self._driver.flow.delay_s() if isinstance(self._driver, ConsoleDriver) else 0.0

    def output(self) -> Output:
        """What drawing costs."""
        return Output(self._output_rate(), self.pump.skipped)

    def drawn(self) -> None:
        """Call this at each drawing: it empties caches now and then."""
        self._drawings += 1
        if self._drawings % EVERY_DRAWINGS == 0:
            forget_texts()

    def action_redraw(self) -> None:
        """Draws at once, after the user has changed something on the screen."""
        if self.pump.running:
            self.draw()

    def _output_rate(self) -> float | None:
        driver = self._driver
        if not isinstance(driver, ConsoleDriver):
            return None
        now, written = time.monotonic(), driver.output.bytes_written
        then, before = self._sent
        if now - then >= RATE_OVER_S:
            self._bytes_per_s = (written - before) / (now - then)
            self._sent = (now, written)
        return self._bytes_per_s

    def _came_to_the_front(self, screen: Screen[object]) -> None:
        """Draws a screen that another one has covered: it shows figures of before. A new one asks by itself."""
        if screen.is_mounted:
            self.call_later(self.action_redraw)

    def _paint_whole(self, _app: App[object]) -> None:
        """Paints every cell: the terminal has shown something else. Textual itself paints only what differs."""
        screen = self.screen
        self._display(screen, screen._compositor.render_update(full=True, screen_stack=self._background_screens))

    # ---- events and actions

    def on_key(self, event: events.Key) -> None:
        """Gives a printable key to the text box that has just got the focus: it was typed for the box."""
        if event.is_printable and isinstance(self.focused, Input):
            event.stop()
            event.prevent_default()
            self.focused._forward_event(events.Key(event.key, event.character))

    def action_leave(self) -> None:
        if self._lifeline is not None:
            self._lifeline.leaving()
        else:
            self.leave()

    def action_screenshot(self, filename: str | None = None, path: str | None = None) -> None:
        """Writes the screen to an SVG file. Textual's file name and path are ignored: no file is overwritten."""
        _, told, tone = save("picture", "svg", picture(self.export_screenshot(title="netconsole")))
        self.say(told, tone)


EVERY_DRAWINGS = 60
"""About a minute. The caches stay small, and texts that stay the same for a while are still found in them."""


def forget_texts() -> None:
    """Empties the caches."""
    Segment._split_cells.cache_clear()
    cached_cell_len.cache_clear()
