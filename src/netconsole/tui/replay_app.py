"""The console for a recording: the same panes, and keys to move in time. Nothing in a recording can be changed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar

from textual.binding import BindingType

from netconsole.base import figure
from netconsole.findings.places_of_snapshot import whole_snapshot
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Profile
from netconsole.recording.replay_session import ReplaySession
from netconsole.snapshot import builder
from netconsole.snapshot.document import Snapshot
from netconsole.tui import actions
from netconsole.tui.app import ConsoleApp
from netconsole.tui.host_view import WatchedHost
from netconsole.tui.remembered import Remembered
from netconsole.tui.scene.scene import Scene
from netconsole.tui.terminal.lifeline import Lifeline

_READ_ONLY = "this is a replay: a recording cannot be changed"


class ReplayApp(ConsoleApp):
    """A console whose session is a recording."""

    BINDINGS: ClassVar[list[BindingType]] = list(actions.bindings("replay"))
    SCOPES = ("app", "main", "replay")

    def __init__(
        self,
        session: ReplaySession,
        profile: Profile,
        manifests: Mapping[str, Manifest],
        keymap: Mapping[str, str] | None = None,
        lifeline: Lifeline | None = None,
        remembered: Remembered | None = None,
    ) -> None:
        facts = session.facts
        read = (lambda: facts) if facts else None
        host = WatchedHost(session, profile, manifests, read_facts=read, remembered=remembered)
        super().__init__(host, keymap, lifeline)
        self.replayed = session
        self.main.header_lines = 3
        self.main.without = frozenset({"hosts", "knobs", "investigate", "pin", "record", "baseline"})

    @contextlib.contextmanager
    def scene(self) -> Iterator[Scene]:
        """The current moment of the replay."""
        replayed = self.replayed
        with super().scene() as scene:
            standing, log, verdicts = replayed.standing(), replayed.incidents(), replayed.verdicts()
            yield replace(
                scene, findings=standing, log=log, verdicts=verdicts, actions=replayed.actions(),
                replay=replayed.position(),
            )  # fmt: skip

    def _observe(self) -> bool:
        """Whether the replay has moved since it was last drawn."""
        with self.session.view() as state:
            seen = (self.replayed.position(), id(state))
        changed = seen != self._seen
        self._seen = seen
        return changed

    def farewell(self, started_s: float) -> str:
        place = self.replayed.position()
        at = f"{figure.elapsed(place.at_s)} of {figure.elapsed(place.length_s)}"
        snapshots = self.watched.snapshots
        kept = f"; snapshot in {figure.safe(snapshots[-1])}" if snapshots else ""
        return f"netconsole: left the recording of {figure.safe(place.host.name, 64)} at {at}{kept}"

    # ---- actions

    def action_pause(self) -> None:
        """Pauses, or plays again."""
        self.replayed.toggle()
        self._moved()

    def action_step(self, count: int) -> None:
        self.replayed.step(count)
        self._moved()

    def action_jump_by(self, seconds: int) -> None:
        self.replayed.seek_by(seconds)
        self._moved()

    def action_speed(self, step: int) -> None:
        self.replayed.faster(step)
        self._moved()

    def action_since(self) -> None:
        self.replayed.set_since()
        self.say("mark set: the next snapshot (s) starts here", "ok")
        self._moved()

    def action_time(self) -> None:
        from netconsole.tui.screens.jump import JumpScreen

        if self.screen is self.main:
            self.push_screen(JumpScreen(self.replayed))

    @property
    def watch_ping(self) -> None:
        """Nothing is watched in a replay: the wizard joins files."""

    def action_snapshot(self) -> None:
        """A snapshot from the mark, or from the beginning, to this moment. The replay pauses first."""
        from netconsole.tui.screens.snapshot import SnapshotScreen

        watched = self.watched
        self.replayed.pause()
        place = self.replayed.position()
        begin = f"the mark at {figure.elapsed(place.since_s)}" if place.since_s else "the beginning"
        stretch = f"of the recording, from {begin} to {figure.elapsed(place.at_s)}"
        write = partial(self._write, watched)
        self.push_screen(SnapshotScreen(self.session, self._take, write, partial(self._written, watched), stretch))

    def _take(self, _since: builder.Totals, note: str | None) -> Snapshot:
        with self.session.view() as state:
            since, actions = self.replayed.since(), self.replayed.actions()
            log = self.replayed.incidents()
            facts = self.replayed.facts
            return whole_snapshot(state, self.manifests, self.watched.profile, since, log, facts, note, actions)

    def take_of_vm(self) -> Callable[[builder.Totals], Snapshot]:
        """Of the recording up to where it is played: figures of an interval say little while it stands still."""
        return lambda since: self._take(since, None)

    def action_knobs(self, probe: str | None = None) -> None:
        self.say(_READ_ONLY, "look")

    def action_investigate(self) -> None:
        self.say(_READ_ONLY, "look")

    def action_pin(self) -> None:
        self.say(_READ_ONLY, "look")

    def action_record(self) -> None:
        self.say("this is already a recording", "look")

    def action_baseline(self) -> None:
        self.say("write a snapshot (s); `netconsole compare` compares it with a baseline", "look")

    def _moved(self) -> None:
        """Redraws at once, so that the header shows the effect of the key. The figures come with the session's news."""
        self.call_later(self.action_redraw)
