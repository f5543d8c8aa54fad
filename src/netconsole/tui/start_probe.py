"""Starts the probe that an empty pane lacks, for ten minutes: what it costs is forecast first, and said."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeAlias

from netconsole.base import figure
from netconsole.base.errors import Unable
from netconsole.probes.manifest import Manifest
from netconsole.profile.loader import choice
from netconsole.profile.profile import ProbeChoice
from netconsole.tui.host_view import WatchedHost
from netconsole.tui.terminal.app import TerminalApp
from netconsole.tui.terminal.threads import in_thread
from netconsole.tui.widgets.look import Tone

FOR_S = 600.0
"""A probe that was started for an empty pane ends after so long."""


StartThere: TypeAlias = Callable[[WatchedHost, Manifest, ProbeChoice], Future[None]]
"""Starts a probe that the session of a host lacks. Raises Unable."""
SayOf: TypeAlias = Callable[[WatchedHost, str, Tone], None]
"""Shows a message where the host is shown."""


class EmptyPane:
    """What Enter does where a pane has nothing to show. The event loop calls its methods, unless they say otherwise."""

    def __init__(self, app: TerminalApp, front: Callable[[], WatchedHost], begin: StartThere, say_of: SayOf) -> None:
        self._app = app
        self._front = front
        self._begin_there = begin
        self._say_of = say_of
        self._warned: str | None = None
        """The probe that would exceed the budget. It is started when the user presses Enter again."""

    def probe(self) -> str | None:
        """The first probe of the pane in front that can be started; None where there is none, or figures are shown.

        Not while the state is held: the session is asked.
        """
        watched = self._front()
        pane = watched.main.view.pane
        if not watched.main.is_empty or watched.enforcer is None:
            return None
        can = {*watched.startable(), *_ended(watched)}
        return next((name for name in pane.probes if name in can), None)

    def promise(self) -> str:
        """What Enter does, in a sentence; empty where it does nothing."""
        name = self.probe()
        return f"Enter starts {name} for {figure.lasted(FOR_S)}, and says what it costs." if name else ""

    def start(self) -> None:
        """Forecasts the probe, and starts it where the budget has room for it, or at the second time."""
        name, watched = self.probe(), self._front()
        if name is None:
            self._app.say("nothing can be started here", "look")
            return
        self._app.say("measuring for a moment what it would cost…")
        ask = partial(self._look_ahead, watched, watched.manifests[name])
        in_thread(self._app, ask, lambda why: self._say_of(watched, why, "act"))

    def _look_ahead(self, watched: WatchedHost, manifest: Manifest) -> None:
        """Makes the forecast. Runs in a thread: hooks are counted for half a second."""
        assert watched.enforcer is not None
        try:
            told, above = watched.enforcer.forecast_now(manifest, "summary", _wanted(watched, manifest).knobs)
        except Unable as error:
            told, above = f"no forecast: {error}", None
        self._app.call_later(self._begin, watched, manifest, told, above)

    def _begin(self, watched: WatchedHost, manifest: Manifest, told: str, above: str | None) -> None:
        name = manifest.name
        if above is not None and self._warned != name:
            self._warned = name
            self._say_of(watched, f"over the budget: {above}; Enter again starts it anyway", "act")
            return
        self._warned = None
        wanted = _wanted(watched, manifest)
        try:
            if name in _ended(watched):
                future = watched.session.reload(name, "summary", wanted.knobs)
            else:
                future = self._begin_there(watched, manifest, wanted)
        except Unable as error:
            self._say_of(watched, f"refused: {figure.safe(error)}", "act")
            return
        future.add_done_callback(partial(self._answered, watched, name, told))

    def _answered(self, watched: WatchedHost, name: str, told: str, future: Future[None]) -> None:
        """Shows the answer of the collector. Called by a thread of the session."""
        error = future.exception()
        if error is not None:
            self._app.call_later(self._say_of, watched, f"refused: {figure.safe(error)}", "act")
            return
        until = f"{name} runs for {figure.lasted(FOR_S)}: {told.removeprefix(f'{name} in summary: ')}"
        self._app.call_later(self._say_of, watched, until, "ok")
        self._app.call_later(self._app.set_timer, FOR_S, partial(self._end, watched, name))

    def _end(self, watched: WatchedHost, name: str) -> None:
        watched.session.unload(name, "its ten minutes are over")
        self._say_of(watched, f"{name} was stopped: its ten minutes are over", "look")


def _wanted(watched: WatchedHost, manifest: Manifest) -> ProbeChoice:
    """The probe in mode summary, with the filters of the profile that it has."""
    filters = {name: value for name, value in watched.profile.filters.items() if name in manifest.knobs}
    return choice({"mode": "summary", **filters}, manifest)


def _ended(watched: WatchedHost) -> list[str]:
    """The probes of the session that are switched off."""
    with watched.session.view() as state:
        return [name for name, probe in state.probes.items() if probe.status == "off" and name in watched.manifests]
