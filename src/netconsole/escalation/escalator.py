"""Carries out a profile's escalations: details of one device or flow for a while, a snapshot, the frames around it.

The details are a second instance of the probe, with filters of its own, beside the one whose summary goes on counting
everything. It is told of every interval by the session, in the session's thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from netconsole.base import figure, paths
from netconsole.base.errors import BadInput
from netconsole.base.files import write_whole
from netconsole.budget.enforcer import Enforcer
from netconsole.escalation import crossings
from netconsole.escalation.crossings import Crossing
from netconsole.host.identity import namespace_inode
from netconsole.probes.manifest import Manifest
from netconsole.profile.escalation_rules import SUFFIX
from netconsole.profile.plan import plan
from netconsole.profile.profile import Profile
from netconsole.recording import recorder
from netconsole.recording.flight_recorder import FlightRecorder
from netconsole.recording.format import Header
from netconsole.session.protocol import Expandable, News
from netconsole.snapshot import builder
from netconsole.snapshot.document import Snapshot
from netconsole.telemetry.action import BudgetAction
from netconsole.telemetry.state import State

MAX_FILES = 200
"""So many files in the directory, and nothing is armed any more: somebody has to look at them first."""
START_LIMIT_S = 120.0
"""Details that are not attached by then are not going to be."""
OVER_FOR = 2
"""Intervals in a row above its own budget before the details end early."""


@dataclass(slots=True)
class _Armed:
    """Details that run, or ran and are still being watched for the seconds after."""

    crossing: Crossing
    name: str
    """Of the second instance."""
    since: builder.Totals
    armed_s: float
    stem: str
    began_s: float | None = None
    """When the details were seen to run: compiling them takes a while, and much longer where the host is busy."""
    ends_s: float | None = None
    """When the seconds after it have passed; None while the details run."""
    over: int = 0
    refused: str | None = None
    taken: Snapshot | None = None
    profile: Profile = field(default_factory=lambda: Profile(""))


class Escalator:
    """Watches for crossings of the rules of the profile that ``enforcer`` keeps."""

    def __init__(
        self,
        session: Expandable,
        enforcer: Enforcer,
        manifests: Mapping[str, Manifest],
        directory: Path | None = None,
    ) -> None:
        """``directory``: where snapshots and recordings go; by default the user's data directory."""
        self._session = session
        self._enforcer = enforcer
        self._manifests = manifests
        self._directory = paths.user_data() / "escalations" if directory is None else directory
        self._flight = FlightRecorder(max((rule.keep_s for rule in enforcer.profile.escalations), default=1.0))
        self._armed: _Armed | None = None
        self._quiet_until_s: dict[int, float] = {}
        """By place of the rule in the profile."""
        self._lock = threading.RLock()
        self._to_tell: list[BudgetAction] = []
        """Who is told may ask the session: so not while it is looked at."""
        self._writers: list[threading.Thread] = []

    def start(self) -> None:
        """Listen to the session, if the profile asks for anything. Call it before the session starts."""
        if self._enforcer.profile.escalations:
            self._session.attach(self._flight)
            self._session.on_news(self._news)
            self._enforcer.yields_first = self.stand_down

    def stand_down(self, because: str) -> bool:
        """End the details that run now. False when none do."""
        with self._lock:
            if self._armed is None or self._armed.ends_s is not None:
                return False
            with self._session.view() as state:
                self._step_back(state, self._armed, because)
            self._tell_now()
            return True

    def close(self) -> None:
        """Write what there is of an escalation that goes on, and wait for files that are being written."""
        with self._lock:
            armed, self._armed = self._armed, None
            if armed is not None:
                with self._session.view() as state:
                    armed.taken = armed.taken or self._snapshot(state, armed)
                    self._write(armed)
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
        if self._armed is None:
            self._look(state, at_s)
        elif self._armed.ends_s is None:
            self._watch(state, self._armed, at_s)
        elif at_s >= self._armed.ends_s:
            armed, self._armed = self._armed, None
            self._write(armed)

    def _look(self, state: State, at_s: float) -> None:
        for place, rule in enumerate(self._enforcer.profile.escalations):
            crossing = None if at_s < self._quiet_until_s.get(place, 0.0) else crossings.worst(state, rule)
            if crossing is None:
                continue
            self._quiet_until_s[place] = at_s + rule.for_s + rule.keep_s + rule.pause_s
            if self._arm(state, crossing, at_s):
                return

    def _arm(self, state: State, crossing: Crossing, at_s: float) -> bool:
        rule, manifest = crossing.rule, self._manifests[crossing.rule.probe]
        running = state.probes[rule.probe].knobs
        filters = crossings.focus(crossing.labels, manifest.knobs, namespace_inode)
        why_not = self._why_not(filters)
        if filters is None or why_not is not None:
            self._tell(at_s, rule.probe, "no details", f"{crossing.says}, but {why_not}", crossing)
            return False
        (request,) = plan(Profile(rule.probe), self._manifests, [rule.probe])
        knobs = {**request.knobs, **running, **filters, "events_per_s": rule.events_per_s}
        knobs = {name: value for name, value in knobs.items() if name in manifest.knobs}
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime((state.collector.closed_wall_ns or 0) / 1e9))
        name = rule.probe + SUFFIX
        armed = self._armed = _Armed(
            crossing, name, builder.mark(state), at_s, f"{rule.probe}-{stamp}", profile=self._enforcer.profile
        )
        self._flight.hold()
        narrowed = " ".join(f"{knob}={value}" for knob, value in filters.items())
        why = f"{crossing.says}, more than {rule.over:g}; for {rule.for_s:g} s at most"
        self._tell(at_s, name, f"details of {figure.safe(narrowed, 100)}", why, crossing)
        details = replace(request, name=name, mode="details", knobs=knobs, kernel_cpu_pct=rule.kernel_cpu_pct)
        future = self._session.load(details, f"because of {why}")
        future.add_done_callback(lambda done: self._answered(armed, done))
        return True

    def _why_not(self, filters: Mapping[str, object] | None) -> str | None:
        if filters is None:
            return "it names no device or flow to filter by"
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            count = sum(1 for _ in self._directory.iterdir())
        except OSError as error:
            return f"{self._directory}: {(error.strerror or str(error)).lower()}"
        return f"{self._directory} has {count} files; remove those that you do not need" if count >= MAX_FILES else None

    def _answered(self, armed: _Armed, done: Future[None]) -> None:
        """In the session's thread, sometimes under our lock. What it means is seen with the next interval."""
        error = done.exception()
        armed.refused = None if error is None else str(error)

    def _watch(self, state: State, armed: _Armed, at_s: float) -> None:
        rule = armed.crossing.rule
        probe = state.probes.get(armed.name)
        if armed.began_s is None and probe is not None and probe.measuring:
            armed.began_s = at_s
        pct = probe.kernel_cpu_pct if probe is not None and probe.measuring else None
        armed.over = armed.over + 1 if pct is not None and pct > rule.kernel_cpu_pct else 0
        if armed.refused is not None:
            self._step_back(state, armed, f"refused: {armed.refused}")
        elif armed.over >= OVER_FOR:
            because = f"{pct:.2g} % of a core, over their limit of {rule.kernel_cpu_pct:g} %"
            self._step_back(state, armed, because)
        elif armed.began_s is not None and at_s - armed.began_s >= rule.for_s:
            self._step_back(state, armed, f"their {rule.for_s:g} s are over")
        elif armed.began_s is None and at_s - armed.armed_s >= START_LIMIT_S:
            self._step_back(state, armed, f"not attached within {START_LIMIT_S:g} s")

    def _step_back(self, state: State, armed: _Armed, because: str) -> None:
        at_s = (state.collector.closed_mono_ns or 0) / 1e9
        armed.taken = self._snapshot(state, armed)
        armed.ends_s = at_s + armed.crossing.rule.keep_s
        self._session.unload(armed.name, f"stepped back: {because}").add_done_callback(lambda done: done.exception())
        self._tell(at_s, armed.name, "back to summary", because)

    # ---- what is kept of it ----

    def _snapshot(self, state: State, armed: _Armed) -> Snapshot:
        """From the crossing to now, with the second instance while it still measures."""
        manifest = self._manifests[armed.crossing.rule.probe]
        rule = armed.crossing.rule
        note = f"Because of {armed.crossing.says}, more than {rule.over:g}. The frames around it: {armed.stem}.ncrec"
        return builder.build(
            state,
            {**self._manifests, armed.name: manifest},
            armed.profile,
            armed.since,
            note=note,
            actions=self._enforcer.actions,
        )

    def _write(self, armed: _Armed) -> None:
        """Write both files, in a thread: a disk may be slow."""
        flight = self._flight.copy()
        self._flight.release()
        modes = {armed.crossing.rule.probe: "summary", armed.name: "details"}
        note = f"{armed.crossing.says}, more than {armed.crossing.rule.over:g}"
        header = recorder.describe(armed.profile, modes, self._manifests, note)  # type: ignore[arg-type]
        thread = threading.Thread(target=self._write_files, args=(armed, flight, header), name="escalation")
        self._writers = [one for one in self._writers if one.is_alive()] + [thread]
        thread.start()

    def _write_files(self, armed: _Armed, flight: FlightRecorder, header: Header) -> None:
        path = self._directory / f"{armed.stem}.json"
        try:
            flight.write(path.with_suffix(".ncrec"), header)
            if armed.taken is not None:
                write_whole(path, msgspec.json.encode(armed.taken) + b"\n")
        except (BadInput, OSError) as error:
            self._tell_later(armed, "could not be written", str(error))
            return
        cut = "; the end is missing, there were too many frames" if flight.was_cut else ""
        self._tell_later(armed, f"snapshot {path.name}", f"in {path.parent}, with the frames around it as .ncrec{cut}")

    def _tell(self, at_s: float, probe: str, action: str, because: str, crossing: Crossing | None = None) -> None:
        measured, limit = (crossing.measured, crossing.rule.over) if crossing is not None else (None, None)
        self._to_tell.append(BudgetAction(at_s, probe, action, because, measured, limit))

    def _tell_now(self) -> None:
        told, self._to_tell = self._to_tell, []
        for action in told:
            self._enforcer.note(action)

    def _tell_later(self, armed: _Armed, action: str, because: str) -> None:
        with self._session.view() as state:
            at_s = (state.collector.closed_mono_ns or 0) / 1e9
        self._enforcer.note(BudgetAction(at_s, armed.name, action, because))
