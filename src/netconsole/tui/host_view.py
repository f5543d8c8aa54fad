"""A measured host as the console shows it: its session, what stands out there, and what its user has chosen."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from netconsole.base.fact_keys import FactData
from netconsole.budget.enforcer import Enforcer
from netconsole.compare.live import LiveComparison
from netconsole.compare.reference import Reference
from netconsole.escalation.investigation import Investigation
from netconsole.findings.incident import Incident
from netconsole.findings.incidents import Incidents
from netconsole.findings.match import RowName, RowVerdict
from netconsole.findings.places_of_snapshot import whole_snapshot
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Profile
from netconsole.profile.scope import said
from netconsole.snapshot import builder
from netconsole.snapshot.balance_watch import BalanceWatch
from netconsole.snapshot.document import CommandData, Snapshot
from netconsole.telemetry.session import Session
from netconsole.telemetry.state import State
from netconsole.telemetry.tables import RowKey
from netconsole.tui.panes.catalogue import panes
from netconsole.tui.panes.overview.header import Pause
from netconsole.tui.recordings import Recordings
from netconsole.tui.remembered import Remembered
from netconsole.tui.rewinding import Rewinding
from netconsole.tui.scene.scene import Output, Scene
from netconsole.tui.scene.silent import OF_EVERY_PROGRAM
from netconsole.tui.screens.main import MainScreen
from netconsole_collector.compile.refused import NOT_LOADED
from netconsole_collector.kernel import attach, modules
from netconsole_collector.sources.base import SourceError
from netconsole_collector.sources.known import KNOWN

if TYPE_CHECKING:
    from netconsole.run.assembly import LiveRun
    from netconsole.tui.screens.ping_wizard.state import WizardState

ReadFacts: TypeAlias = Callable[[], Mapping[str, FactData]]


class Investigator(Protocol):
    """Who can start details of one row (the escalator)."""

    investigation: Investigation | None

    def investigate(self, probe: str, labels: RowKey) -> str:
        """Starts them, or ends those that run. Returns what is done, in one line. Raises Unable."""


class _Moment(NamedTuple):
    """State, age of the figures and findings at one moment."""

    state: State
    age_s: float | None
    standing: Sequence[Incident]
    log: Sequence[Incident]
    verdicts: Mapping[RowName, RowVerdict]


class WatchedHost:
    """See the module. The event loop calls its methods, unless they say otherwise."""

    def __init__(
        self,
        session: Session,
        profile: Profile,
        manifests: Mapping[str, Manifest],
        enforcer: Enforcer | None = None,
        read_facts: ReadFacts | None = None,
        investigator: Investigator | None = None,
        remembered: Remembered | None = None,
    ) -> None:
        """``read_facts`` reads the configuration of the host. None when nobody can read it.

        ``remembered``: what the user has chosen of tables before.
        """
        self.session = session
        self.profile = profile
        self.manifests = manifests
        self.enforcer = enforcer
        self.read_facts = read_facts
        self.investigator = investigator
        self.machines: Mapping[str, AbstractSet[str]] = {}
        """The devices of each VM, as the facts of the host had them when they were read last."""
        self.pause = Pause()
        self.comparison: LiveComparison | None = None
        self.findings = Incidents(manifests, profile.budget)
        self.balance = BalanceWatch()
        self.rewinding = Rewinding(session, manifests, self.findings.saved)
        self.recordings = Recordings(session, manifests, self.findings.saved, self.rewinding)
        self.snapshots: list[Path] = []
        """Snapshots written so far."""
        self.ran: dict[str, CommandData] = {}
        """What commands of findings said when they were run last."""
        self.ping: WizardState | None = None
        """What was entered and measured in the wizard for a ping."""
        self.main = MainScreen(panes(manifests, self.probes_here()), remembered)
        self._sources = SourcesHere()
        self._standing: Sequence[Incident] = ()
        self._frozen: _Moment | None = None
        """When the screen was paused."""

    @contextlib.contextmanager
    def scene(self, delay_s: float, output: Output) -> Iterator[Scene]:
        """The moment to draw: now, or the moment of the pause. It does not change inside the ``with``."""
        connection = self.session.connection()
        enforcer = self.enforcer
        done = (enforcer.actions, enforcer.pinned, enforcer.lowered) if enforcer else ((), frozenset[str](), ())

        def made(at: _Moment, age_s: float | None) -> Scene:
            picture = at.state, self.manifests, self.profile, connection, age_s, delay_s, output, at.standing
            asked = self.investigator.investigation if self.investigator is not None else None
            return Scene(
                *picture, *done, self.comparison, self.recordings.progress, log=at.log, investigation=asked,
                balance=self.balance, verdicts=at.verdicts,
            )  # fmt: skip

        place = self.rewinding.place
        if place is not None:
            with self.session.view() as state:
                now_ns = state.collector.closed_mono_ns
            log, verdicts = tuple(place.findings.log), place.findings.verdicts
            moment = _Moment(place.state, None, place.standing, log, verdicts)
            actions, position = tuple(place.actions), self.rewinding.position(now_ns)
            yield replace(made(moment, None), replay=position, actions=actions, comparison=None, balance=None)
            return
        if self._frozen is not None:
            age_s, held_s = self._frozen.age_s, time.monotonic() - self.pause.since_s
            yield made(self._frozen, None if age_s is None else age_s + held_s)
            return
        age_s = self.session.age_s()
        with self.session.view() as state:
            yield made(self._moment(state, age_s), age_s)

    def observe(self) -> tuple[object, ...]:
        """Updates findings and comparison with the news. Returns what differs when there is something to draw."""
        connection = self.session.connection()
        with self.session.view() as state:
            self._standing = self.findings.update(state, connection)
            self.findings.look_into(self.session)
            self.balance.update(state)
            statuses = tuple(probe.status for probe in state.probes.values())
            if self.comparison is not None:
                self.comparison.tick(state)
            return state.collector.intervals, connection.phase, statuses

    def next_pause(self) -> None:
        """First: holds the order of rows. Second: holds the screen. Third: live again."""
        now_s = time.monotonic()
        if self.pause.step == "live":
            self.pause = Pause("order", now_s)
        elif self.pause.step == "order":
            age_s = self.session.age_s()
            with self.session.view() as state:
                self._frozen = self._moment(copy.deepcopy(state), age_s)
            self.pause = Pause("screen", now_s)
        else:
            self._frozen = None
            self.pause = Pause()

    def _moment(self, state: State, age_s: float | None) -> _Moment:
        return _Moment(state, age_s, self._standing, tuple(self.findings.log), self.findings.verdicts)

    def unfinished(self) -> list[str]:
        """What the end of the console would cut off, in words."""
        recording = self.recordings.progress
        running = ["the recording goes on"] if recording is not None and recording.ended is None else []
        asked = self.investigator.investigation if self.investigator is not None else None
        if asked is not None and not asked.why:
            running.append(f"the investigation has {asked.left_s:.0f} s left")
        return running

    def probes_here(self) -> set[str]:
        """The probes of the session, and those that run in the console itself."""
        with self.session.view() as state:
            names = set(state.probes)
        own = {name for name in self.profile.probes if name in self.manifests and self.manifests[name].source != "bpf"}
        return names | own

    def startable(self) -> list[str]:
        """Probes that are not in the session, if they can be started and may run on this host."""
        if self.enforcer is None:
            return []
        here = None
        if self.session.connection().line is None:
            with self.session.view() as state:
                known = set(state.probes)
            own = (one.source for name, one in self.manifests.items() if one.source != "bpf" and name not in known)
            here = self._sources.find(own)
        with self.session.view() as state:
            return startable(state, self.manifests, here)

    def pinnable(self, probe: str | None) -> str | None:
        """The probe that ``u`` acts on: this one, else the one that was lowered last. None where none is governed."""
        if self.enforcer is None:
            return None
        wanted = probe or next(reversed(self.enforcer.lowered), None)
        return wanted if wanted is not None and self.enforcer.governs(wanted) else None

    def compared_with(self, name: str, snapshots: Sequence[Snapshot]) -> LiveComparison:
        """The comparison of its figures with those of a baseline. Any thread: large snapshots take a while."""
        facts = self.read_facts() if self.read_facts is not None else {}
        reference = Reference(name, snapshots, facts, self.manifests, said(self.profile))
        return LiveComparison(self.session, self.manifests, lambda: self.profile, reference, facts, self.read_facts)

    def take(self, since: builder.Totals, note: str | None, facts: Mapping[str, FactData] | None = None) -> Snapshot:
        """A snapshot of it. Any thread. ``facts``: None to read them now."""
        if facts is None:
            facts = self.read_facts() if self.read_facts is not None else {}
        with self.session.view() as state:
            actions = self.enforcer.actions if self.enforcer is not None else ()
            line, log = self.session.connection().line, self.findings.log
            return whole_snapshot(state, self.manifests, self.profile, since, log, facts, note, actions, line)

    def taker(self) -> Callable[[builder.Totals], Snapshot]:
        """Takes snapshots one after another, for which facts are read once. Of the past: all up to what is shown."""
        facts = cache(lambda: self.read_facts() if self.read_facts is not None else {})
        place = self.rewinding.place
        if place is None:
            return lambda since: self.take(since, None, facts())
        state, log, actions = place.state, tuple(place.findings.log), tuple(place.actions)
        begin = builder.totals_at_start(state)
        return lambda _: whole_snapshot(state, self.manifests, self.profile, begin, log, facts(), actions=actions)


def watched_run(live: LiveRun, remembered: Remembered | None = None) -> WatchedHost:
    """The host of a run."""
    plan = live.plan
    return WatchedHost(
        live.session, plan.profile, plan.manifests, live.enforcer, live.facts, live.escalator, remembered
    )


LOOK_AGAIN_S = 5.0
"""An empty pane asks at each drawing."""


class SourcesHere:
    """What sources find on this host: Open vSwitch or VMs, say. Not while the state is held.

    An ovs-vswitchd that does not answer takes a quarter of a second, so it is asked every LOOK_AGAIN_S at most.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked_s = float("-inf")
        self._found: dict[str, bool] = {}

    def find(self, sources: Iterable[str]) -> set[str]:
        """Those of these sources that find something."""
        if self._clock() - self._looked_s >= LOOK_AGAIN_S:
            self._looked_s, self._found = self._clock(), {}
        found = set()
        for source in sources:
            if source not in self._found:
                self._found[source] = _finds(source)
            if self._found[source]:
                found.add(source)
        return found


def startable(state: State, manifests: Mapping[str, Manifest], here: Collection[str] | None) -> list[str]:
    """Names of the probes that are not in the session and may run.

    ``here``: the sources that find something on this host; None of a far host, of which no file is read.
    """
    return [
        name for name, one in manifests.items() if name not in state.probes and _may_run(one, state, manifests, here)
    ]


def _may_run(manifest: Manifest, state: State, manifests: Mapping[str, Manifest], here: Collection[str] | None) -> bool:
    if manifest.source != "bpf":
        return here is None or manifest.source in here
    if any(_lacks(state, name) for name in OF_EVERY_PROGRAM):
        return False
    if _lacks(state, "kprobe") and attach.needing_kprobes(manifest.raw["programs"]):  # type: ignore[arg-type]
        return False
    return not manifest.module or not _is_absent(manifest.module, state, manifests, here is None)


def _finds(source: str) -> bool:
    """Whether a source finds on this host what it reads."""
    one = KNOWN[source]()
    try:
        one.open()
        return one.finds_any()
    except SourceError:
        return False
    finally:
        one.close()


def _lacks(state: State, name: str) -> bool:
    """Whether the host says that it cannot do this. What it did not say is tried."""
    found = state.capabilities.get(name)
    return found is not None and not found.ok


def _is_absent(module: str, state: State, manifests: Mapping[str, Manifest], is_far: bool) -> bool:
    """Another probe of the same module may have found out already."""
    said = NOT_LOADED.format(module)
    for name, probe in state.probes.items():
        if name in manifests and manifests[name].module == module:
            if probe.measuring:
                return False
            if probe.status == "unsupported" and probe.why == said:
                return True
    return not is_far and not modules.is_loaded(module)
