"""Measures and records without a screen: starts, waits until every probe is settled, measures, and always cleans up.

Progress goes to standard error. SIGINT, SIGTERM and SIGHUP end the run early, with all that was measured until the end
of the current interval. A second signal ends it at once.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Event

import msgspec

from netconsole.base import figure
from netconsole.base.output import print_progress
from netconsole.findings.incidents import Incidents
from netconsole.probes.manifest import Manifest
from netconsole.recording.recorder import Recorder
from netconsole.run.assembly import LiveRun
from netconsole.run.stop import Interrupted, Stop, signals
from netconsole.snapshot import builder
from netconsole.snapshot.document import Snapshot
from netconsole.telemetry.action import BudgetAction, describe
from netconsole.telemetry.frames import SourceName
from netconsole.telemetry.session import News, ReadsWhole, Session
from netconsole.telemetry.state import State
from netconsole.telemetry.words import short_reason
from netconsole_collector.kernel import heap

SETTLE_LIMIT_S = 60.0
"""How long to wait for probes. The run then goes on without those that are not attached."""
LAST_INTERVAL_LIMIT_S = 3.0
"""How long to wait for the end of the last interval."""
_COUNTDOWN_COLUMNS = 40
_FOR_EVER_S = 10 * 365 * 86400.0


def measure(live: LiveRun, duration_s: float, note: str | None = None) -> Snapshot:
    """Run for ``duration_s`` after every probe is attached or was refused, then close the session.

    Raises Interrupted when a signal came before measuring began.
    """
    return measure_together([live], duration_s, note)[0]


def measure_together(lives: Sequence[LiveRun], duration_s: float, note: str | None = None) -> list[Snapshot]:
    """The same of several hosts in one span: all begin, and all end, when each has been asked to read at once.

    The spans differ by what asking a host and its reading take. Raises Interrupted as :func:`measure`.
    """
    stop = Stop()
    sessions, interval_s = [live.session for live in lives], max(live.plan.interval_s for live in lives)
    for live in lives:
        live.session.on_news(stop.heard)
        live.enforcer.on_action(_say_action)
    with signals(stop), contextlib.ExitStack() as closing:
        for session in sessions:
            closing.enter_context(contextlib.closing(session))
        for live in lives:
            live.start()
        if not stop.wait(lambda: all(one.settled() for one in sessions), SETTLE_LIMIT_S) and stop.requested:
            raise Interrupted("ended while the probes were starting")
        heap.trim()  # of what starting has taken
        # Begin and end with whole intervals, so that everything in between is counted exactly. Begin and end with a
        # reading of everything, or what is read less often would have losses of before, and lack the last ones.
        _next_interval(sessions, stop, interval_s, _read_whole(sessions, at_once=True))
        if stop.requested:
            raise Interrupted("ended while the probes were starting")
        for live in lives:
            _say_refused(live.session, live.plan.manifests)
        parts = [_Measured(live, duration_s) for live in lives]
        probes = figure.things(sum(part.probes for part in parts), "probes")
        _say(f"measuring with {probes} for {duration_s:g} s; Ctrl-C ends early and keeps what was measured")
        countdown = Countdown(duration_s)
        if duration_s > interval_s:
            before_s = round(interval_s * 1e9)
            stop.wait(lambda: countdown.is_on() and all(one.has_measured(before_s) for one in parts), duration_s + 10)
        whole = _read_whole(sessions)
        countdown.end()
        if stop.requested or not stop.wait(
            lambda: all(one.has_measured() for one in parts) and _are_set(whole), 2 * interval_s + 10
        ):
            _next_interval(sessions, stop, interval_s, whole)
        if len(lives) > 1:
            _next_interval(sessions, stop, interval_s, _read_whole(sessions, at_once=True))
        taken = [part.snapshot(note) for part in parts]  # one right after the other: intervals go on
        facts = [dict(live.facts()) for live in lives]
        return [msgspec.structs.replace(one, facts=read) for one, read in zip(taken, facts, strict=True)]


class _Measured:
    """One host of a measurement, from the moment when it begins."""

    def __init__(self, live: LiveRun, duration_s: float) -> None:
        self._live, self._session = live, live.session
        with self._session.view() as state:
            self._start = builder.totals(state)
            self._begun = _intervals(state)
            self.probes = sum(probe.measuring for probe in state.probes.values())
        self._until_ns = self._start.mono_ns + round(duration_s * 1e9)
        # What was lost before is in no table either.
        self._incidents = Incidents(live.plan.watched, live.plan.profile.budget)
        self._session.on_news(partial(_observe, self._session, self._incidents))

    def has_measured(self, before_ns: int = 0) -> bool:
        """Whether its time is over, or will be after so many nanoseconds."""
        return _has_measured(self._session, self._begun, self._until_ns - before_ns)

    def snapshot(self, note: str | None) -> Snapshot:
        """Up to now, without facts."""
        from netconsole.findings.places_of_snapshot import whole_snapshot  # late: measuring needs none of it

        plan, line = self._live.plan, self._session.connection().line
        with self._session.view() as state:
            actions, log = self._live.enforcer.actions, self._incidents.log
            return whole_snapshot(state, plan.watched, plan.profile, self._start, log, {}, note, actions, line)


def record(live: LiveRun, recorder: Recorder, duration_s: float | None) -> bool:
    """Record for ``duration_s`` after every probe is attached or was refused, then close session and recorder.

    None: until a signal comes, or the recorder ends by itself. Returns whether a BPF probe was attached; without one in
    the run, whether any probe measures. Raises Interrupted when a signal came before the recording began.
    The log of incidents is recorded, too.
    """
    session, interval_s, manifests = live.session, live.plan.interval_s, live.plan.watched
    stop = Stop()
    session.on_news(stop.heard)
    incidents = Incidents(manifests, live.plan.profile.budget)
    session.on_news(partial(_observe, session, incidents))
    recorder.log = incidents.saved
    live.enforcer.on_action(_say_action)
    with signals(stop), contextlib.closing(recorder), contextlib.closing(session):
        live.start()
        if not stop.wait(lambda: session.settled() and _closed(session) > 0, SETTLE_LIMIT_S) and stop.requested:
            raise Interrupted("ended while the probes were starting")
        heap.trim()  # of what starting has taken
        attached = _say_refused(session, manifests)
        with session.view() as state:
            begun, now_ns = _intervals(state), builder.totals(state).mono_ns
        until_ns = None if duration_s is None else now_ns + round(duration_s * 1e9)
        session.attach(recorder)
        length = "until Ctrl-C" if duration_s is None else f"for {duration_s:g} s; Ctrl-C ends early and keeps it"
        _say(f"recording to {figure.safe(recorder.progress.path)} {length}")

        def is_over() -> bool:
            has_measured = until_ns is not None and _has_measured(session, begun, until_ns)
            return has_measured or recorder.progress.ended is not None

        limit_s = _FOR_EVER_S if duration_s is None else duration_s + interval_s + 10
        if not stop.wait(is_over, limit_s):
            _next_interval([session], stop, interval_s)
        return attached


def _observe(session: Session, incidents: Incidents, _news: News) -> None:
    """Update the incidents after an interval."""
    connection = session.connection()
    with session.view() as state:
        incidents.update(state, connection)
    incidents.look_into(session)


class Countdown:
    """Shows on a terminal how many seconds are left, in one line that is written over. It shows nothing elsewhere."""

    def __init__(self, duration_s: float) -> None:
        self._until_s = time.monotonic() + duration_s
        self._shown: int | None = None
        self._has_terminal = sys.stderr is not None and sys.stderr.isatty()

    def is_on(self) -> bool:
        """Shows the time that is left, once a second. Always True, to be asked beside what is waited for."""
        left_s = max(0, math.ceil(self._until_s - time.monotonic()))
        if self._has_terminal and left_s != self._shown:
            self._shown = left_s
            self._write(f"netconsole: {left_s} s left")
        return True

    def end(self) -> None:
        """Leaves an empty line to write on."""
        if self._shown is not None:
            self._write("")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            # Back to the first column: what else is said meanwhile is written over it.
            print(f"\r{text:{_COUNTDOWN_COLUMNS}}\r", end="", file=sys.stderr, flush=True)


def outcome(taken: Snapshot, output: Path | None, is_redacted: bool) -> str:
    """What a person wants to know at the end: whether something stands out, the worst of it, and the file's name."""
    file = f"{figure.safe(output)} is written; " if output is not None else ""
    if not taken.incidents:
        count = sum(data.status in ("attached", "degraded") for data in taken.probes.values())
        said = f"nothing stands out in {figure.things(count, 'probes')}" if count else "nothing was measured"
        return file + said
    worst = taken.incidents[0]
    what = "" if is_redacted else f" {figure.safe(worst.what)}{'' if worst.ended is None else ' (ended)'}"
    return f"{file}{figure.things(len(taken.incidents), 'incidents')}, the worst: {worst.level}{what}"


def _say_refused(session: Session, manifests: Mapping[str, Manifest]) -> bool:
    """Say which probes do not run, and why. True when a BPF probe runs; where there is none, another."""
    silent: dict[tuple[str, str], list[str]] = {}
    with session.view() as state:
        count = len(state.probes)
        has_some = any(probe.measuring for probe in state.probes.values())
        absent = sum(probe.status == "unsupported" for probe in state.probes.values()) if has_some else 0
        for probe in state.probes.values():
            if not probe.measuring and not (absent and probe.status == "unsupported"):
                why = short_reason(probe.why or "no reason known")
                silent.setdefault((probe.status, why), []).append(probe.name)
        every = [probe.measuring for probe in state.probes.values()]
        own = [one.measuring for name, one in state.probes.items() if name in manifests and manifests[name].programs]
    if absent:
        _say(f"{absent} of {figure.things(count, 'probes')} cannot run here (netconsole doctor says why)")
    for (status, why), names in silent.items():
        _say(f"{', '.join(map(figure.safe, names))}: {status}: {figure.safe(why)}")
    return any(own or every)


def _read_whole(sessions: Iterable[Session], at_once: bool = False) -> list[Event]:
    return [session.read_whole(at_once) for session in sessions if isinstance(session, ReadsWhole)]


def _are_set(reads: Iterable[Event]) -> bool:
    return all(read.is_set() for read in reads)


def _next_interval(sessions: Sequence[Session], stop: Stop, interval_s: float, reads: Iterable[Event] = ()) -> None:
    """Wait for the end of the current interval of each, and until all ``reads`` are set."""
    before = [_closed(session) for session in sessions]

    def has_ended() -> bool:
        return all(_closed(one) > last for one, last in zip(sessions, before, strict=True)) and _are_set(reads)

    stop.wait(has_ended, LAST_INTERVAL_LIMIT_S + interval_s - 1, stoppable=False)


def _has_measured(session: Session, begun: Mapping[SourceName, int], until_ns: int) -> bool:
    """Whether every source has ended an interval since, and measured for long enough.

    Half an interval may lack: ten intervals of 0.9996 s are enough for 10 s.
    """
    with session.view() as state:
        return all(
            state.sources[name].intervals > intervals
            and (state.sources[name].closed_mono_ns or 0) >= until_ns - (state.sources[name].interval_ns or 0) // 2
            for name, intervals in begun.items()
        )


def _intervals(state: State) -> dict[SourceName, int]:
    """How many each source has ended; without those that measure nothing, if any does."""
    measuring: set[SourceName] = {probe.source for probe in state.probes.values() if probe.measuring} or {"console"}
    return {name: source.intervals for name, source in state.sources.items() if name in measuring}


def _closed(session: Session) -> int:
    """Number of intervals: the collector's if it runs probes, else the console's."""
    with session.view() as state:
        has_collector = any(probe.measuring for probe in state.probes.values() if probe.source == "collector")
        return (state.collector if has_collector or state.collector.intervals else state.console).intervals


def _say_action(action: BudgetAction) -> None:
    probe = f"{figure.safe(action.probe)}: " if action.probe else ""
    _say(f"{probe}{figure.safe(describe(action))}")


def _say(line: str) -> None:
    print_progress(f"netconsole: {line}")
