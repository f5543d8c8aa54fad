"""Runs the console on this terminal: prepares the terminal, shows the session, and cleans up at the end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from netconsole.recording.replay_session import ReplaySession
from netconsole.session.protocol import HasCollector
from netconsole.tui.terminal import capabilities
from netconsole.tui.terminal.lifeline import EXIT_INTERRUPTED, Lifeline, print_quietly

if TYPE_CHECKING:
    from netconsole.budget.enforcer import Enforcer
    from netconsole.escalation.escalator import Escalator
    from netconsole.probes.manifest import Manifest
    from netconsole.profile.profile import Profile
    from netconsole.recording.recorder import Recorder
    from netconsole.session.protocol import Session
    from netconsole.tui.app import NamedSnapshots, ReadFacts

EXIT_DONE = 0
EXIT_BAD_USAGE = 2


def run(
    session: Session,
    profile: Profile,
    manifests: Mapping[str, Manifest],
    enforcer: Enforcer | None = None,
    read_facts: ReadFacts | None = None,
    baseline: NamedSnapshots | None = None,
    recorder: Recorder | None = None,
    escalator: Escalator | None = None,
) -> int:
    """Starts a session and shows it until the user or a signal ends it. Returns the exit code.

    When it returns, the session is closed and the terminal is as it was before.
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
    kill = session.kill if isinstance(session, HasCollector) else None
    lifeline = Lifeline(sys.stdin.fileno(), session.close, ask_to_leave, kill_session=kill)
    lifeline.start()
    started_s = time.monotonic()
    try:
        if enforcer is not None:
            enforcer.start()
        session.start()
        from netconsole.base.errors import BadInput
        from netconsole.tui.actions import load_keys
        from netconsole.tui.app import ConsoleApp
        from netconsole.tui.terminal.driver import ConsoleDriver

        try:
            keymap = load_keys()
        except BadInput as error:
            print_quietly(f"netconsole: {error}")
            return EXIT_BAD_USAGE
        ConsoleDriver.terminal = screen
        if isinstance(session, ReplaySession):
            from netconsole.tui.replay_app import ReplayApp

            app = ReplayApp(session, profile, manifests, keymap, lifeline)
        else:
            app = ConsoleApp(session, profile, manifests, keymap, lifeline, enforcer, read_facts, baseline, escalator)
        if recorder is not None:
            app.recordings.adopt(recorder)
        app.run(mouse=False)
        session.close()
        app.recordings.close()
        print_quietly(app.farewell(started_s))
        return EXIT_INTERRUPTED if lifeline.reason else app.return_code or EXIT_DONE
    finally:
        session.close()
        if recorder is not None:
            recorder.close()
        lifeline.finish()
