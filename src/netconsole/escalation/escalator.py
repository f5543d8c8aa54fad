"""Carries out a profile's escalations: details of one device or flow for a while, a snapshot, the frames around it.

The details run in a second instance of the probe with its own filters. The first one goes on counting everything in
summary. The session calls the escalator after every interval, in a thread of the session.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from netconsole.base import figure, paths
from netconsole.base.errors import BadInput, Unable
from netconsole.base.fact_keys import FactData
from netconsole.base.files import write_whole
from netconsole.budget.enforcer import Enforcer
from netconsole.escalation import crossings
from netconsole.escalation.crossings import Crossing
from netconsole.escalation.investigation import EVENTS_PER_S, FOR_S, KERNEL_CPU_PCT, Investigation
from netconsole.escalation.namespaces import NamespaceInodes
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.host import identity
from netconsole.probes.manifest import Manifest
from netconsole.profile.escalation_rules import SUFFIX, Escalation
from netconsole.profile.plan import plan
from netconsole.profile.profile import Profile
from netconsole.recording import recorder
from netconsole.recording.flight_recorder import FlightRecorder
from netconsole.snapshot import builder
from netconsole.snapshot.document import Snapshot
from netconsole.telemetry.action import BudgetAction
from netconsole.telemetry.frames import Host, Mode, Scalar
from netconsole.telemetry.session import Expandable, News
from netconsole.telemetry.state import State
from netconsole.telemetry.tables import RowKey

MAX_FILES = 200
"""With this many files in the directory, no escalation starts any more. Somebody must look at them first."""
START_LIMIT_S = 120.0
"""How long to wait until the details are attached."""
OVER_FOR = 2
"""Intervals in a row over the rule's own limit before the details end early."""


@dataclass(slots=True)
class _Running:
    """An escalation: details that run, or have ended while the frames after them are still kept."""

    crossing: Crossing
    name: str
    """Name of the second instance."""
    since: builder.Totals
    started_s: float
    stem: str
    began_s: float | None = None
    """When the details were first seen to run. Compiling takes a while, and much longer on a busy host."""
    ends_s: float | None = None
    """When the frames after the details are complete; None while the details run."""
    over: int = 0
    refused: str | None = None
    taken: Snapshot | None = None
    asked: Investigation | None = None
    """What the user investigates; None when a rule started the details. It writes no files."""
    profile: Profile = field(default_factory=lambda: Profile(""))
    facts: Future[Mapping[str, FactData]] = field(default_factory=Future)
    """How the host was configured at the crossing. They are read in a thread: those of a far host take a while."""


class Escalator:
    """Watches for crossings of the rules of the profile that ``enforcer`` keeps."""

    def __init__(
        self,
        session: Expandable,
        enforcer: Enforcer,
        manifests: Mapping[str, Manifest],
        directory: Path | None = None,
        host: AnyHost = THIS_HOST,
        read_facts: Callable[[], Mapping[str, FactData]] = dict,
    ) -> None:
        """``directory``: where snapshots and recordings go; by default the user's data directory.

        ``host``: the one that is measured. ``read_facts``: reads its configuration; it raises nothing.
        """
        self._read_facts = read_facts
        self._namespaces = NamespaceInodes(host)
        self._described: Host | None = None
        self._session = session
        self._enforcer = enforcer
        self._manifests = manifests
        self._directory = paths.user_data() / "escalations" if directory is None else directory
        self._flight = FlightRecorder(max((rule.keep_s for rule in enforcer.profile.escalations), default=1.0))
        self._running: _Running | None = None
        self._quiet_until_s: dict[int, float] = {}
        """By number of the rule in the profile."""
        self._lock = threading.RLock()
        self._to_tell: list[BudgetAction] = []
        """Actions to report when the session's view is closed: those who hear of them may open it themselves."""
        self._writers: list[threading.Thread] = []
        self.investigation: Investigation | None = None
        """What the user investigates, or did last. It changes only while the session's view is held."""

    def start(self) -> None:
        """Follow the session. Call this before the session starts. Frames are kept if the profile has escalations."""
        if self._enforcer.profile.escalations:
            self._session.attach(self._flight)
            self._enforcer.give_up_first = self.end_details
        self._session.on_news(self._news)

    def investigate(self, probe: str, labels: RowKey) -> str:
        """Start details of this row alone, for a time and a budget of their own; stop them when they are of this row.

        Returns what is done, in one line. Raises Unable.
        """
        self._namespaces.ask(dict(labels))
        with self._lock:
            with self._session.view() as state:
                told = self._asked_for(state, probe, labels)
            self._tell_now()
        return told

    def _asked_for(self, state: State, probe: str, labels: RowKey) -> str:
        running = self._running
        if running is not None and running.asked is not None and running.asked.labels == labels:
            self._end_details(state, running, "you ended it")
            return "investigation ended; what it saw stays on the page"
        known, manifest = state.probes.get(probe), self._manifests.get(probe)
        if manifest is None or "details" not in manifest.modes:
            raise Unable(f"{figure.safe(probe, 48)} has no mode details to investigate with")
        if known is None or not known.measuring:
            raise Unable(f"{probe} does not run here")
        if running is not None:
            until = "" if running.ends_s is None else ", and the frames after it are kept for some seconds more"
            raise Unable(f"details of {figure.safe(running.crossing.says, 80)} run already{until}")
        filters = crossings.narrowing(labels, manifest.knobs, self._namespaces.inode)
        rule = Escalation(probe, "", "", None, 0.0, {}, FOR_S, EVENTS_PER_S, KERNEL_CPU_PCT)
        crossing = Crossing(rule, labels, 0.0, crossings.named(dict(labels)))
        one = Investigation(probe, labels, crossings.said(filters, labels))
        at_s = (state.collector.closed_mono_ns or 0) / 1e9
        one.begin(state.probes.get(one.name))
        self._load(state, crossing, filters, at_s, one)
        self.investigation = one
        of = one.filters or "all that this probe sees: this row names no device or flow"
        limits = f"{FOR_S:g} s, at most {EVENTS_PER_S:g} samples/s and {KERNEL_CPU_PCT:g} % of a core"
        self._tell(at_s, one.name, f"details of {of}", f"the user asked; {limits}")
        return f"{limits}: investigating {of}; i ends it"

    def end_details(self, because: str) -> bool:
        """End the details that a rule started. False when none run. What a user asked for has a budget of its own."""
        with self._lock:
            if self._running is None or self._running.ends_s is not None or self._running.asked is not None:
                return False
            with self._session.view() as state:
                self._end_details(state, self._running, because)
            self._tell_now()
            return True

    def close(self) -> None:
        """Write what there is of a running escalation, and wait until all files are written."""
        with self._lock:
            running, self._running = self._running, None
            if running is not None and running.asked is None:
                with self._session.view() as state:
                    running.taken = running.taken or self._snapshot(state, running)
                    self._write(running)
        for thread in self._writers:
            thread.join()

    # ---- every interval ----

    def _news(self, news: News) -> None:
        if news != "interval":
            return
        with self._lock:
            with self._session.view() as state:
                self._interval(state, (state.collector.closed_mono_ns or 0) / 1e9)
            self._tell_now()

    def _interval(self, state: State, at_s: float) -> None:
        if self._running is None:
            self._check_rules(state, at_s)
        elif self._running.ends_s is None:
            self._watch(state, self._running, at_s)
        elif at_s >= self._running.ends_s:
            running, self._running = self._running, None
            self._write(running)

    def _check_rules(self, state: State, at_s: float) -> None:
        for number, rule in enumerate(self._enforcer.profile.escalations):
            crossing = None if at_s < self._quiet_until_s.get(number, 0.0) else crossings.worst(state, rule)
            if crossing is None or not self._namespaces.is_ready(dict(crossing.labels)):
                continue
            self._quiet_until_s[number] = at_s + rule.for_s + rule.keep_s + rule.pause_s
            if self._start(state, crossing, at_s):
                return

    def _start(self, state: State, crossing: Crossing, at_s: float) -> bool:
        rule, manifest = crossing.rule, self._manifests[crossing.rule.probe]
        self._described = state.host
        filters = crossings.focus(crossing.labels, manifest.knobs, self._namespaces.inode)
        why_not = self._why_not(filters)
        if filters is None or why_not is not None:
            self._tell(at_s, rule.probe, "no details", f"{crossing.says}, but {why_not}", crossing)
            return False
        self._flight.hold()
        why = f"{crossing.says}, more than {rule.over:g}; for {rule.for_s:g} s at most"
        self._tell(at_s, rule.probe + SUFFIX, f"details of {crossings.said(filters, crossing.labels)}", why, crossing)
        running = self._load(state, crossing, filters, at_s, None, f"because of {why}")
        threading.Thread(target=self._keep_facts, args=(running.facts,), name="facts", daemon=True).start()
        return True

    def _keep_facts(self, kept: Future[Mapping[str, FactData]]) -> None:
        try:
            kept.set_result(self._read_facts())
        except BaseException as error:
            kept.set_exception(error)  # else who writes the files would wait for ever
            raise

    def _load(
        self,
        state: State,
        crossing: Crossing,
        filters: Mapping[str, Scalar],
        at_s: float,
        asked: Investigation | None,
        why: str | None = None,
    ) -> _Running:
        """Start the second instance of the probe, with these filters and the budget of the rule."""
        rule = crossing.rule
        known = self._manifests[rule.probe].knobs
        (request,) = plan(Profile(rule.probe), self._manifests, [rule.probe])
        knobs = {**request.knobs, **state.probes[rule.probe].knobs, **filters, "events_per_s": rule.events_per_s}
        knobs = {name: value for name, value in knobs.items() if name in known}
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime((state.collector.closed_wall_ns or 0) / 1e9))
        name, profile = rule.probe + SUFFIX, self._enforcer.profile
        running = self._running = _Running(crossing, name, builder.totals(state), at_s, f"{rule.probe}-{stamp}")
        running.asked, running.profile = asked, profile
        details = replace(request, name=name, mode="details", knobs=knobs, kernel_cpu_pct=rule.kernel_cpu_pct)
        future = self._session.load(details, why)
        future.add_done_callback(lambda done: self._answered(running, done))
        return running

    def _why_not(self, filters: Mapping[str, object] | None) -> str | None:
        if filters is None:
            return "it names no device or flow to filter by"
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            count = sum(1 for _ in self._directory.iterdir())
        except OSError as error:
            return f"{self._directory}: {(error.strerror or str(error)).lower()}"
        return f"{self._directory} has {count} files; remove those that you do not need" if count >= MAX_FILES else None

    def _answered(self, running: _Running, done: Future[None]) -> None:
        """Runs in a thread of the session, sometimes under our lock. The next interval acts on it."""
        error = done.exception()
        running.refused = None if error is None else str(error)

    def _watch(self, state: State, running: _Running, at_s: float) -> None:
        rule = running.crossing.rule
        probe = state.probes.get(running.name)
        if running.began_s is None and probe is not None and probe.measuring:
            running.began_s = at_s
        if running.asked is not None:
            running.asked.began_s, running.asked.now_s = running.began_s, at_s
            if probe is not None:
                running.asked.follow(probe)
        pct = probe.kernel_cpu_pct if probe is not None and probe.measuring else None
        running.over = running.over + 1 if pct is not None and pct > rule.kernel_cpu_pct else 0
        if running.refused is not None:
            self._end_details(state, running, f"refused: {running.refused}")
        elif running.over >= OVER_FOR:
            because = f"the samples took {figure.percent(pct)} of a core; the limit is {rule.kernel_cpu_pct:g} %"
            self._end_details(state, running, because)
        elif running.began_s is not None and at_s - running.began_s >= rule.for_s:
            self._end_details(state, running, f"the {rule.for_s:g} s are over")
        elif running.began_s is None and at_s - running.started_s >= START_LIMIT_S:
            self._end_details(state, running, f"they were not attached within {START_LIMIT_S:g} s")

    def _end_details(self, state: State, running: _Running, because: str) -> None:
        at_s = (state.collector.closed_mono_ns or 0) / 1e9
        if running.asked is not None:
            running.asked.why = because
            self._running = None
        else:
            running.taken = self._snapshot(state, running)
        running.ends_s = at_s + running.crossing.rule.keep_s
        self._session.unload(running.name, f"details ended: {because}").add_done_callback(lambda done: done.exception())
        self._tell(at_s, running.name, "details ended", because)

    # ---- snapshot and recording ----

    def _snapshot(self, state: State, running: _Running) -> Snapshot:
        """A snapshot from the crossing to now. The second instance must still measure."""
        manifest = self._manifests[running.crossing.rule.probe]
        rule = running.crossing.rule
        note = (
            f"Because of {running.crossing.says}, more than {rule.over:g}. The frames around it: {running.stem}.ncrec"
        )
        taken = builder.build(
            state,
            {**self._manifests, running.name: manifest},
            running.profile,
            running.since,
            note=note,
            actions=self._enforcer.actions,
        )
        from netconsole.findings.places_of_snapshot import with_drop_places  # late: few runs escalate

        return with_drop_places(taken, builder.span(state, running.since), self._manifests)

    def _write(self, running: _Running) -> None:
        """Write both files in a thread, because a disk may be slow."""
        flight = self._flight.copy()
        self._flight.release()
        host = self._described or identity.describe()
        thread = threading.Thread(target=self._write_files, args=(running, flight, host), name="escalation")
        self._writers = [one for one in self._writers if one.is_alive()] + [thread]
        thread.start()

    def _write_files(self, running: _Running, flight: FlightRecorder, host: Host) -> None:
        path = self._directory / f"{running.stem}.json"
        modes: dict[str, Mode] = {running.crossing.rule.probe: "summary", running.name: "details"}
        note = f"{running.crossing.says}, more than {running.crossing.rule.over:g}"
        facts = running.facts.result()
        header = recorder.describe(running.profile, modes, self._manifests, host, note, facts)
        try:
            flight.write(path.with_suffix(".ncrec"), header)
            if running.taken is not None:
                taken = msgspec.structs.replace(running.taken, facts=dict(facts))
                write_whole(path, msgspec.json.encode(taken) + b"\n")
        except (BadInput, OSError) as error:
            self._tell_later(running, "could not be written", str(error))
            return
        cut = "; the end is missing, there were too many frames" if flight.was_cut else ""
        self._tell_later(
            running, f"snapshot {path.name}", f"in {path.parent}, with the frames around it as .ncrec{cut}"
        )

    def _tell(self, at_s: float, probe: str, action: str, because: str, crossing: Crossing | None = None) -> None:
        measured, limit = (crossing.measured, crossing.rule.over) if crossing is not None else (None, None)
        self._to_tell.append(BudgetAction(at_s, probe, action, because, measured, limit))

    def _tell_now(self) -> None:
        told, self._to_tell = self._to_tell, []
        for action in told:
            self._enforcer.note(action)

    def _tell_later(self, running: _Running, action: str, because: str) -> None:
        with self._session.view() as state:
            at_s = (state.collector.closed_mono_ns or 0) / 1e9
        self._enforcer.note(BudgetAction(at_s, running.name, action, because))
