"""Runs the console on this terminal: prepares the terminal, shows the session, and cleans up at the end."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from netconsole.recording.replay_session import ReplaySession
from netconsole.telemetry.session import HasCollector
from netconsole.tui.terminal import capabilities
from netconsole.tui.terminal.lifeline import EXIT_INTERRUPTED, Lifeline, print_quietly
from netconsole.tui.widgets.ascii_text import to_ascii

if TYPE_CHECKING:
    from netconsole.probes.manifest import Manifest
    from netconsole.profile.profile import Profile
    from netconsole.recording.recorder import Recorder
    from netconsole.run.assembly import LiveRun
    from netconsole.run.rack import Rack
    from netconsole.telemetry.session import Session
    from netconsole.tui.app import ConsoleApp, NamedSnapshots

    MakeApp: TypeAlias = Callable[[Mapping[str, str], Lifeline], ConsoleApp]

EXIT_DONE = 0
EXIT_BAD_USAGE = 2
COLLECT_AFTER = 10_000, 20, 50
"""Objects, and collections of the younger generation, after which circles of them are looked for. Python's own
thresholds look through the state of the host every few seconds: a fifth of the CPU of a console with 200 queues."""


def run_live(live: LiveRun, baseline: NamedSnapshots | None, recorder: Recorder | None) -> int:
    """Starts a run and shows it until the user or a signal ends it. Returns the exit code.

    When it returns, the session is closed and the terminal is as it was before.
    """
    if recorder is not None:
        live.session.attach(recorder)

    def made(keymap: Mapping[str, str], lifeline: Lifeline) -> ConsoleApp:
        from netconsole.tui.app import ConsoleApp
        from netconsole.tui.host_view import watched_run
        from netconsole.tui.remembered import Remembered, file_of_user

        watched = watched_run(live, Remembered(file_of_user()))
        if recorder is not None:
            watched.recordings.adopt(recorder)
        return ConsoleApp(watched, keymap, lifeline, baseline)

    try:
        return _shown(live.start, live.session.close, made, live.session.kill)
    finally:
        live.session.close()
        if recorder is not None:
            recorder.close()


def run(session: Session, profile: Profile, manifests: Mapping[str, Manifest]) -> int:
    """The same for a session without a budget, such as a recording."""

    def made(keymap: Mapping[str, str], lifeline: Lifeline) -> ConsoleApp:
        if isinstance(session, ReplaySession):
            from netconsole.tui.remembered import Remembered, file_of_user
            from netconsole.tui.replay_app import ReplayApp

            return ReplayApp(session, profile, manifests, keymap, lifeline, Remembered(file_of_user()))
        from netconsole.tui.app import ConsoleApp
        from netconsole.tui.host_view import WatchedHost

        return ConsoleApp(WatchedHost(session, profile, manifests), keymap, lifeline)

    kill = session.kill if isinstance(session, HasCollector) else None
    return _shown(session.start, session.close, made, kill)


def run_rack(rack: Rack, profile: Profile, manifests: Mapping[str, Manifest]) -> int:
    """The same for several hosts, which have been opened."""

    def made(keymap: Mapping[str, str], lifeline: Lifeline) -> ConsoleApp:
        from netconsole.tui.rack_app import RackApp
        from netconsole.tui.remembered import Remembered, file_of_user

        app = RackApp(rack.hosts, profile, manifests, keymap, lifeline, Remembered(file_of_user()))
        rack.on_change(app.pump.news)
        return app

    return _shown(lambda: None, rack.close, made)


def _shown(
    begin: Callable[[], None], close: Callable[[], None], made: MakeApp, kill: Callable[[], None] | None = None
) -> int:
    """Shows an application until the user or a signal ends it.

    ``close`` ends what is measured, ``kill`` what has not closed in time.
    """
    try:
        screen = capabilities.require()
    except capabilities.NoTerminal as error:
        print_quietly(f"netconsole: {error}")
        return EXIT_BAD_USAGE
    capabilities.prepare(screen, os.environ)
    # Textual is imported further down: it reads the environment when it is imported, so the terminal is prepared
    # first. The session starts before that, so that the probes compile during the import.
    app: ConsoleApp | None = None
    ask_to_leave = lambda: app.leave() if app is not None else None  # noqa: E731
    lifeline = Lifeline(sys.stdin.fileno(), close, ask_to_leave, kill_session=kill)
    lifeline.start()
    started_s = time.monotonic()
    try:
        begin()
        from netconsole.base.errors import BadInput
        from netconsole.tui.actions import load_keys
        from netconsole.tui.terminal.driver import ConsoleDriver
        from netconsole.tui.widgets.painted import Painted

        try:
            keymap = load_keys()
        except BadInput as error:
            print_quietly(f"netconsole: {error}")
            return EXIT_BAD_USAGE
        ConsoleDriver.terminal = screen
        Painted.in_ascii = not screen.unicode
        app = made(keymap, lifeline)
        gc.freeze()  # what is loaded stays
        gc.set_threshold(*COLLECT_AFTER)
        app.run(mouse=False)
        lifeline.screen_closed()
        close()
        app.close_files()
        farewell = app.farewell(started_s)
        print_quietly(farewell if screen.unicode else to_ascii(farewell))
        return EXIT_INTERRUPTED if lifeline.reason else app.return_code or EXIT_DONE
    finally:
        close()
        lifeline.finish()
