"""The host in front: its news, its moment on the screen (now, paused, in the past), and when it is drawn."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from textual import events
from textual.screen import Screen

from netconsole.base import figure
from netconsole.compare.live import LiveComparison
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import ProbeChoice
from netconsole.telemetry.action import BudgetAction, describe
from netconsole.telemetry.session import HasCollector, Session
from netconsole.tui.host_view import WatchedHost
from netconsole.tui.panes.catalogue import panes
from netconsole.tui.panes.overview.header import Pause, stated_age_s
from netconsole.tui.rewinding import by_seconds, by_steps
from netconsole.tui.scene import live_scope
from netconsole.tui.scene.scene import LOOK_EVERY_S, Scene
from netconsole.tui.screens.main import MainScreen
from netconsole.tui.screens.pages.text_page import OverScreen
from netconsole.tui.start_probe import EmptyPane
from netconsole.tui.terminal.app import TerminalApp
from netconsole.tui.terminal.lifeline import Lifeline
from netconsole.tui.terminal.threads import in_thread
from netconsole.tui.widgets.look import Tone

if TYPE_CHECKING:
    from netconsole.recording.player import Player

AT_LEAST_EVERY_S = 1.9
"""The screen is drawn this often even without news, so that its clock goes on."""

LEAVE_WITHIN_S = 2.0
"""A second press within this time ends the console although something is not finished."""


@runtime_checkable
class Over(Protocol):
    """A screen above the main one that is drawn from a scene."""

    def draw(self, scene: Scene) -> None:
        """Shows the scene."""


class HostApp(TerminalApp):
    """A subclass says what the keys do."""

    def __init__(
        self, watched: WatchedHost | None, keymap: Mapping[str, str] | None = None, lifeline: Lifeline | None = None
    ) -> None:
        """``watched``: the host in front; None when none is yet (the rack)."""
        super().__init__(keymap, lifeline)
        self._front = watched
        self._seen: tuple[object, ...] = ()
        self._drawn_s = 0.0
        self._stated_s: int | None = None
        self._empty_pane = EmptyPane(self, lambda: self.watched, self.begin, self.say_of)
        self._asked_to_leave_s = -LEAVE_WITHIN_S
        self._is_going = False
        """Whether a thread goes to another moment."""

    @property
    def watched(self) -> WatchedHost:
        """The host in front."""
        assert self._front is not None
        return self._front

    @property
    def session(self) -> Session:
        """Of the host in front, like what follows."""
        return self.watched.session

    @property
    def manifests(self) -> Mapping[str, Manifest]:
        return self.watched.manifests

    @property
    def pause(self) -> Pause:
        return self.watched.pause

    @property
    def comparison(self) -> LiveComparison | None:
        return self.watched.comparison

    @property
    def main(self) -> MainScreen:
        return self.watched.main

    # ---- start and end

    def get_default_screen(self) -> Screen[None]:
        return self.main

    def follow(self, watched: WatchedHost) -> None:
        """Listens to the news of a host from now on, and remembers them."""
        watched.rewinding.begin(watched.profile)
        watched.session.on_news(self.pump.news)
        if watched.enforcer is not None:
            watched.enforcer.on_action(partial(self._show_action, watched))
            for action in watched.enforcer.actions:
                self._show_action(watched, action)

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and self._front is not None and self._front.enforcer is not None:
            self._front.enforcer.is_read()
        await super().on_event(event)

    def own_pids(self) -> Sequence[int]:
        return self.session.pids() if isinstance(self.session, HasCollector) else ()

    # ---- drawing

    @contextlib.contextmanager
    def scene(self) -> Iterator[Scene]:
        """The moment to draw: now, or the moment of the pause. It does not change inside the ``with``."""
        with self.watched.scene(self.delay_s(), self.output()) as scene:
            yield scene

    def _observe(self) -> bool:
        """Updates findings and comparison with the news, drawn or not. Returns whether there is something to draw.

        There is, when an interval of the collector ended, a probe changed its state, or the figures on the screen are
        about to be older than the header says. What the console itself measures is drawn at the next such moment.
        """
        seen = self._news_of()
        now_s = time.monotonic()
        if seen == self._seen and self._stated_age_holds() and now_s - self._drawn_s < AT_LEAST_EVERY_S:
            return False
        self._seen, self._drawn_s = seen, now_s
        return True

    def _news_of(self) -> tuple[object, ...]:
        """Observes what is followed. Returns what differs when there is something to draw."""
        return self.watched.observe()

    def _stated_age_holds(self) -> bool:
        age_s = self.session.age_s()
        return self._stated_s is None or age_s is None or age_s + LOOK_EVERY_S <= self._stated_s

    def draw(self) -> None:
        """Draws the screen in front. The screens below it are drawn when they are in front again."""
        if not self.is_running:
            return
        self.drawn()
        self.draw_host()

    def draw_host(self) -> None:
        """Draws a screen of the host in front."""
        screen = self.screen
        promise = self._empty_pane.promise()
        with self.scene() as scene:
            self._stated_s = stated_age_s(scene)
            if screen is self.main or (isinstance(screen, OverScreen) and screen.keeps_scope):
                scene = live_scope.narrowed(scene, self.main.scope)
            if screen is self.main:
                self.main.draw(scene, self.pause, self.session.kind, time.monotonic(), promise)
            elif isinstance(screen, Over):
                screen.draw(scene)

    def say(self, text: str, tone: Tone = "") -> None:
        """Shows a message on the main screen, and on the page above it."""
        self.say_of(self.watched, text, tone)

    def say_of(self, watched: WatchedHost, text: str, tone: Tone = "") -> None:
        """The same about one host: it is shown where that host is."""
        watched.main.say(text, tone)
        for screen in self.screen_stack if watched is self.watched else ():
            if isinstance(screen, OverScreen):  # also below a dialog that is about to close
                screen.say(text, tone)

    def begin(self, watched: WatchedHost, manifest: Manifest, wanted: ProbeChoice) -> Future[None]:
        """Starts a probe that is not in the session of a host, and adds its tables. Raises Unable."""
        assert watched.enforcer is not None
        future = watched.enforcer.begin(manifest, wanted)
        self.call_later(watched.main.renew, panes(self.manifests, {*watched.probes_here(), manifest.name}))
        return future

    def _show_action(self, watched: WatchedHost, action: BudgetAction) -> None:
        """Shows what the governor of a host has done. Thread-safe."""
        probe = f"{figure.safe(action.probe, 48)}: " if action.probe else ""
        self.call_later(self.say_of, watched, f"{probe}{figure.safe(describe(action), 200)}", "look")
        if watched.enforcer is not None:
            watched.profile = watched.enforcer.profile

    # ---- pause and past

    def action_pause(self) -> None:
        """First press: holds the order of rows. Second: holds the screen. Third: live again. Of the past: now."""
        if self.watched.rewinding.place is not None:
            self.watched.rewinding.show(None)
        else:
            self.watched.next_pause()
        self.draw()

    def action_step(self, count: int) -> None:
        """One interval back or forward, in what is remembered of this session."""
        self._go(by_steps(count))

    def action_jump_by(self, seconds: int) -> None:
        """Seconds back or forward."""
        self._go(by_seconds(seconds))

    def _go(self, move: Callable[[Player], object]) -> None:
        watched = self.watched
        if not self._is_going:
            self._is_going = True

            def work() -> None:
                self.call_later(self._arrived, watched, watched.rewinding.go(move))

            in_thread(self, work, partial(self._not_gone, watched))

    def _not_gone(self, watched: WatchedHost, why: str) -> None:
        self._is_going = False
        self.say_of(watched, why, "act")

    def _arrived(self, watched: WatchedHost, player: Player | None) -> None:
        """Shows where a move has led. The end of what is remembered is now."""
        self._is_going = False
        is_past = player is not None and not player.at_end
        watched.rewinding.show(player if is_past else None)
        if not is_past:
            self.say_of(
                watched, "this is now; , goes back" if player else "nothing is remembered to go back to", "look"
            )
        self.draw()

    def action_now(self) -> None:
        """Back to what happens now."""
        self.watched.rewinding.show(None)
        self.draw()

    def action_leave(self) -> None:
        """Ends the console. Asks for a second press where that would cut something off."""
        unfinished, now_s = self._unfinished(), time.monotonic()
        if unfinished and not self.screen.is_modal and now_s - self._asked_to_leave_s > LEAVE_WITHIN_S:
            self._asked_to_leave_s = now_s
            self.say(f"{'; '.join(unfinished)}: press again to end all of it", "look")
        else:
            super().action_leave()

    def _unfinished(self) -> list[str]:
        """What the end of the console would cut off, in words."""
        return self.watched.unfinished()
