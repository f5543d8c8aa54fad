"""The Textual application: connects the session, the pump, the screens and the actions."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias, runtime_checkable

from textual import events
from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import Input

from netconsole.base import figure, priority
from netconsole.base.errors import Unable
from netconsole.base.fact_keys import FactData
from netconsole.budget.enforcer import Enforcer
from netconsole.compare.live import LiveComparison
from netconsole.compare.reference import Reference
from netconsole.escalation.investigation import Investigation
from netconsole.findings.incident import Incident, document, told
from netconsole.findings.incidents import Incidents
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import ProbeChoice, Profile
from netconsole.session.protocol import HasCollector, Session
from netconsole.snapshot import builder
from netconsole.snapshot.balance_watch import BalanceWatch
from netconsole.snapshot.document import Snapshot
from netconsole.telemetry.action import BudgetAction, describe
from netconsole.telemetry.state import State
from netconsole.telemetry.tables import RowKey
from netconsole.tui import actions
from netconsole.tui.panes.catalogue import panes
from netconsole.tui.panes.drops.places import DropPlaceKey
from netconsole.tui.panes.overview.against_baseline import Key as AgainstKey
from netconsole.tui.panes.overview.header import Pause, stated_age_s
from netconsole.tui.panes.overview.stands_out import IncidentKey
from netconsole.tui.recordings import Recordings
from netconsole.tui.saved_files import picture, save
from netconsole.tui.scene.scene import LOOK_EVERY_S, Output, Scene, Subject
from netconsole.tui.screens.main import MainScreen
from netconsole.tui.screens.over import OverScreen
from netconsole.tui.terminal import caches
from netconsole.tui.terminal.driver import ConsoleDriver
from netconsole.tui.terminal.lifeline import Lifeline
from netconsole.tui.terminal.pump import Pump
from netconsole.tui.terminal.threads import in_thread
from netconsole.tui.widgets.linetable import LineTable
from netconsole.tui.widgets.look import Tone

if TYPE_CHECKING:
    from netconsole.run.ping_plan import PingPlan
    from netconsole.tui.screens.detail import DetailScreen
    from netconsole.tui.screens.knobs import LookAhead
    from netconsole.tui.screens.ping_state import Watching, WizardState
    from netconsole.tui.screens.snapshot import Wanted

ReadFacts: TypeAlias = Callable[[], Mapping[str, FactData]]
NamedSnapshots: TypeAlias = tuple[str, Sequence[Snapshot]]
"""A name and the snapshots under it."""
RATE_OVER_S = 2.0
"""The output rate is the mean of this time."""
MAX_TOLD = 5
"""Incidents that the summary after the exit names."""
PRIORITY_EVERY_S = 2.0
"""How often the console looks whether many wait for a CPU."""
AT_LEAST_EVERY_S = 1.9
"""The screen is drawn this often even without news, so that its clock goes on."""


@runtime_checkable
class Over(Protocol):
    """A screen above the main one that is drawn from a scene."""

    def draw(self, scene: Scene) -> None:
        """Shows the scene."""


class Investigator(Protocol):
    """Who can start details of one row (the escalator)."""

    investigation: Investigation | None

    def investigate(self, probe: str, labels: RowKey) -> str:
        """Starts them, or ends those that run. Returns what is done, in one line. Raises Unable."""


class ConsoleApp(App[None]):
    """The console. It tells ``lifeline`` when the user leaves, so that its deadline begins."""

    CSS_PATH = "styles.tcss"
    TITLE = "netconsole"
    BINDINGS: ClassVar[list[BindingType]] = list(actions.bindings("app"))
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "colon"
    SCOPES: ClassVar[tuple[actions.Scope, ...]] = ("app", "main")
    """The scopes whose actions the command palette lists."""

    def __init__(
        self,
        session: Session,
        profile: Profile,
        manifests: Mapping[str, Manifest],
        keymap: Mapping[str, str] | None = None,
        lifeline: Lifeline | None = None,
        enforcer: Enforcer | None = None,
        read_facts: ReadFacts | None = None,
        baseline: NamedSnapshots | None = None,
        investigator: Investigator | None = None,
    ) -> None:
        """``read_facts`` reads the configuration of the measured host. None when nobody can read it."""
        super().__init__(driver_class=ConsoleDriver, ansi_color=True)
        self.theme = "ansi-dark"
        self.session = session
        self.profile = profile
        self.manifests = manifests
        self.keys = dict(keymap or {})
        self.pause = Pause()
        self.pump = Pump(self.draw, self.backlog, self._observe)
        self._findings = Incidents(manifests, profile.budget)
        self._balance = BalanceWatch()
        self._standing: Sequence[Incident] = ()
        self._seen: tuple[object, ...] = ()
        self._drawn_s = 0.0
        self._stated_s: int | None = None
        self._drawings = 0
        self._lifeline = lifeline
        self._investigator = investigator
        self._enforcer = enforcer
        self._frozen: tuple[State, Sequence[Incident], float | None, Sequence[Incident]] | None = None
        """State, findings and age of the figures when the screen was paused."""
        self._main = MainScreen(panes(manifests, self._probes_here()))
        self.snapshots: list[Path] = []
        """Snapshots written so far."""
        self._read_facts = read_facts
        self._first_baseline = baseline
        self.comparison: LiveComparison | None = None
        self.recordings = Recordings(session, manifests, self._findings.saved)
        self._sent = (time.monotonic(), 0)
        self._bytes_per_s: float | None = None
        self._copied: tuple[Subject | None, int] = (None, 0)
        """The row whose text was copied last, and which of its texts."""
        self._ping: WizardState | None = None
        """What was entered and measured in the wizard for a ping."""

    # ---- start and end

    def get_default_screen(self) -> Screen[None]:
        return self._main

    def on_mount(self) -> None:
        self.set_keymap(self.keys)

    def on_key(self, event: events.Key) -> None:
        """Gives a printable key to the text box that has just got the focus: it was typed for the box."""
        if event.is_printable and isinstance(self.focused, Input):
            event.stop()
            event.prevent_default()
            self.focused._forward_event(events.Key(event.key, event.character))

    def on_main_screen_ready(self) -> None:
        """Begins to draw: the main screen is ready."""
        self.pump.start()
        driver = self._driver
        if isinstance(driver, ConsoleDriver):
            driver.output.when_idle = self.pump.idle
        self.session.on_news(self.pump.news)
        if self._enforcer is not None:
            self._enforcer.on_action(self._show_action)
            for action in self._enforcer.actions:
                self._show_action(action)
        self.set_interval(LOOK_EVERY_S, self.pump.news)
        self.set_interval(PRIORITY_EVERY_S, self._look_at_priority)
        self.call_after_refresh(self._look_at_priority)
        self.pump.news()
        if self._first_baseline is not None:
            self.compare_with(*self._first_baseline)
            self._first_baseline = None

    def _look_at_priority(self) -> None:
        """On a host where many wait for a CPU, the console and its collector take a higher priority."""
        priority.OWN.look(priority.RUNNING, self.session.pids() if isinstance(self.session, HasCollector) else ())

    def leave(self) -> None:
        """Ends the application. Thread-safe."""
        self.pump.stop()
        if isinstance(self._driver, ConsoleDriver):
            self._driver.hurry()
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the application has already ended
                loop.call_soon_threadsafe(self.exit)

    def backlog(self) -> int:
        """The number of writes that the terminal has not taken yet."""
        return self._driver.backlog() if isinstance(self._driver, ConsoleDriver) else 0

    # ---- drawing

    @contextlib.contextmanager
    def scene(self) -> Iterator[Scene]:
        """The moment to draw: now, or the moment of the pause. It does not change inside the ``with``."""
        connection = self.session.connection()
        driver = self._driver
        delay_s = driver.flow.delay_s() if isinstance(driver, ConsoleDriver) else 0.0
        output = Output(self._output_rate(), self.pump.skipped)
        enforcer = self._enforcer
        done = (enforcer.actions, enforcer.pinned, enforcer.lowered) if enforcer else ((), frozenset[str](), ())

        def made(state: State, standing: Sequence[Incident], age_s: float | None) -> Scene:
            picture = state, self.manifests, self.profile, connection, age_s, delay_s, output, standing
            asked = self._investigator.investigation if self._investigator is not None else None
            return Scene(
                *picture, *done, self.comparison, self.recordings.progress, investigation=asked, balance=self._balance
            )

        if self._frozen is not None:
            state, standing, age_s, log = self._frozen
            held_s = time.monotonic() - self.pause.since_s
            yield replace(made(state, standing, None if age_s is None else age_s + held_s), log=log)
            return
        age_s = self.session.age_s()
        with self.session.view() as state:
            yield replace(made(state, self._standing, age_s), log=tuple(self._findings.log))

    def _observe(self) -> bool:
        """Updates findings and comparison with the news, drawn or not. Returns whether there is something to draw.

        There is, when an interval of the collector ended, a probe changed its state, or the figures on the screen are
        about to be older than the header says. What the console itself measures is drawn at the next such moment.
        """
        connection = self.session.connection()
        with self.session.view() as state:
            self._standing = self._findings.update(state, connection)
            self._balance.update(state)
            statuses = [probe.status for probe in state.probes.values()]
            seen = (state.collector.intervals, connection.phase, tuple(statuses))
            if self.comparison is not None:
                self.comparison.tick(state)
        now_s = time.monotonic()
        age_s = self.session.age_s()
        stated_age_holds = self._stated_s is None or age_s is None or age_s + LOOK_EVERY_S <= self._stated_s
        if seen == self._seen and stated_age_holds and now_s - self._drawn_s < AT_LEAST_EVERY_S:
            return False
        self._seen, self._drawn_s = seen, now_s
        return True

    def draw(self) -> None:
        """Draws the screen in front. The screens below it are drawn when they are in front again."""
        if not self.is_running:
            return
        screen = self.screen
        self._drawings += 1
        if self._drawings % caches.EVERY_DRAWINGS == 0:
            caches.forget()
        with self.scene() as scene:
            self._stated_s = stated_age_s(scene)
            if screen is self._main:
                self._main.draw(scene, self.pause, self.session.kind, time.monotonic())
            elif isinstance(screen, Over):
                screen.draw(scene)

    def say(self, text: str, tone: Tone = "") -> None:
        """Shows a message on the screen in front, and on the main one."""
        self._main.say(text, tone)
        if isinstance(self.screen, OverScreen):
            self.screen.say(text, tone)

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

    # ---- actions

    def action_leave(self) -> None:
        if self._lifeline is not None:
            self._lifeline.leaving()
        else:
            self.leave()

    def action_pause(self) -> None:
        """First press: holds the order of rows. Second: holds the screen. Third: live again."""
        now_s = time.monotonic()
        if self.pause.step == "live":
            self.pause = Pause("order", now_s)
        elif self.pause.step == "order":
            age_s = self.session.age_s()
            with self.session.view() as state:
                self._frozen = (copy.deepcopy(state), self._standing, age_s, tuple(self._findings.log))
            self.pause = Pause("screen", now_s)
        else:
            self._frozen = None
            self.pause = Pause()
        self.draw()

    def action_help(self) -> None:
        from netconsole.tui.screens.help import HelpScreen

        if self.screen is self._main or (
            isinstance(self.screen, OverScreen) and not isinstance(self.screen, HelpScreen)
        ):
            self.push_screen(HelpScreen(self._main.view.pane, self.manifests, self._main.probe(), self.keys))

    def action_knobs(self, probe: str | None = None) -> None:
        from netconsole.tui.screens.knobs import KnobsScreen, knobbed

        names = [*knobbed(self.session, self.manifests), *self._startable()]
        if not names:
            self.say("no probe of this session has knobs", "look")
            return
        wanted = probe or self._main.probe()
        first = wanted if wanted in names else names[0]
        begin = None if self._enforcer is None else self._begin
        filters = self.profile.filters
        self.push_screen(KnobsScreen(self.session, self.manifests, names, first, self._forecaster(), begin, filters))

    def _forecaster(self) -> LookAhead | None:
        """Forecasts the cost of a probe on the measured host. None when no probe can be started there."""
        return None if self._enforcer is None else self._enforcer.forecast_now

    def _startable(self) -> list[str]:
        """Probes that are not in the session, if they can be started."""
        with self.session.view() as state:
            return [] if self._enforcer is None else [name for name in self.manifests if name not in state.probes]

    def _begin(self, manifest: Manifest, wanted: ProbeChoice) -> Future[None]:
        """Starts a probe that is not in the session, and adds its tables. Raises Unable."""
        assert self._enforcer is not None
        future = self._enforcer.begin(manifest, wanted)
        self.call_later(self._main.renew, panes(self.manifests, {*self._probes_here(), manifest.name}))
        return future

    def action_pin(self) -> None:
        """Pins the probe of the row or table in front, else the probe that was lowered last. Unpins it next time."""
        enforcer = self._enforcer
        lowered = enforcer.lowered if enforcer is not None else ()
        probe = self._main.probe()
        if probe is None and lowered:
            probe = lowered[-1]
        if enforcer is None or probe is None or not enforcer.toggle_pin(probe):
            self.say("choose a table or row of a running BPF probe first", "look")

    def _show_action(self, action: BudgetAction) -> None:
        """Shows what the governor has done. Thread-safe."""
        probe = f"{figure.safe(action.probe, 48)}: " if action.probe else ""
        self.call_later(self.say, f"{probe}{figure.safe(describe(action), 200)}", "look")
        if self._enforcer is not None and self._enforcer.profile is not self.profile:
            self.profile = self._enforcer.profile

    def action_snapshot(self) -> None:
        """Opens the dialog that measures and writes a snapshot."""
        from netconsole.tui.screens.snapshot import SnapshotScreen

        self.push_screen(SnapshotScreen(self.session, self._take, self._write, self._written))

    def _take(self, since: builder.Totals, note: str | None) -> Snapshot:
        """Makes a snapshot. Runs in a thread."""
        facts = self._read_facts() if self._read_facts is not None else {}
        with self.session.view() as state:
            actions = self._enforcer.actions if self._enforcer is not None else ()
            incidents = document(self._findings.log, since.wall_ns)
            line = self.session.connection().line
            return builder.build(state, self.manifests, self.profile, since, facts, note, actions, incidents, line)

    def _write(self, taken: Snapshot, wanted: Wanted) -> None:
        """Writes a snapshot to a file. Runs in a thread. Raises BadInput."""
        from netconsole.base.files import write_whole
        from netconsole.report import ticket

        comparison = self.comparison
        reference = ticket.reference(comparison.reference.name) if comparison is not None else None
        redactor = ticket.redactor(wanted.redact)
        write_whole(wanted.file, ticket.render(taken, wanted.form, self.manifests, reference, redactor)[0])

    def _written(self, path: Path) -> None:
        self.snapshots.append(path)
        here = Path.cwd()
        shown = path.relative_to(here) if path.is_relative_to(here) else path
        self.say(f"snapshot written to {figure.safe(shown)}", "ok")

    def action_facts(self) -> None:
        from netconsole.tui.screens.facts import FactsScreen

        self.push_screen(FactsScreen(self._read_facts))

    def action_ping(self) -> None:
        """Opens the wizard for a ping, at the step where it was left."""
        from netconsole.tui.screens.ping import PingScreen

        if self._ping is None:
            self._ping = self._new_ping()
        line = self.session.connection().line
        also = (line.address,) if line is not None else ()
        self.push_screen(PingScreen(self._ping, self.manifests, self.watch_ping, also))

    def _new_ping(self) -> WizardState:
        from netconsole.tui.screens.ping_state import WizardState

        return WizardState()

    @property
    def watch_ping(self) -> Callable[[PingPlan], Watching] | None:
        """Makes what watches the vantage points of a plan. None where nothing can be measured."""
        from netconsole.run.ping_watch import PingWatch

        return lambda plan: PingWatch(plan, self.manifests)

    def action_baseline(self) -> None:
        from netconsole.tui.screens.baselines import BaselinesScreen

        current = self.comparison.reference.name if self.comparison is not None else None
        with self.session.view() as state:
            host = state.host
        self.push_screen(BaselinesScreen(self.profile.name, current, self.compare_with, host))

    def compare_with(self, name: str | None, snapshots: Sequence[Snapshot] = ()) -> None:
        """Compares every figure with these snapshots from now on. None: stops comparing."""
        if name is None:
            self.comparison = None
            self.say("figures are no longer compared with a baseline")
            return
        self.say(f"baseline {figure.safe(name, 40)}: reading the configuration of the host…")
        in_thread(self, lambda: self._prepare(name, snapshots), lambda why: self.say(why, "act"))

    def _prepare(self, name: str, snapshots: Sequence[Snapshot]) -> None:
        """Computes the figures of the baseline. Runs in a thread: large snapshots take a while."""
        facts = self._read_facts() if self._read_facts is not None else {}
        reference = Reference(name, snapshots, facts, self.manifests)
        comparison = LiveComparison(
            self.session, self.manifests, lambda: self.profile, reference, facts, self._read_facts
        )
        self.call_later(self._use, comparison)

    def _use(self, comparison: LiveComparison) -> None:
        self.comparison = comparison
        self.say(f"every figure is compared with the baseline {figure.safe(comparison.reference.name, 40)}", "ok")
        self.action_redraw()

    def action_record(self) -> None:
        """Begins a recording in the working directory, or ends the running one."""
        self.say(*self.recordings.toggle(self.profile, self._recording_ended))
        self.draw()

    def _recording_ended(self, why: str) -> None:
        """The recording has ended by itself. Called by a thread of the recorder."""
        self.call_later(self.say, why, "act")

    def action_screenshot(self, filename: str | None = None, path: str | None = None) -> None:
        """Writes the screen to an SVG file. Textual's file name and path are ignored: no file is overwritten."""
        _, told, tone = save("picture", "svg", picture(self.export_screenshot(title="netconsole")))
        self.say(told, tone)

    def on_line_table_opened(self, message: LineTable.Opened) -> None:
        key = message.key
        subject = key.subject if isinstance(key, (IncidentKey, DropPlaceKey)) else key
        if isinstance(key, AgainstKey):
            subject = self._subject_of(key.metric)
        if isinstance(subject, Subject):
            if subject.probe:
                self.open(subject)
            else:
                self.call_later(self._main.action_pane, "cost")

    def open(self, subject: Subject) -> None:
        """Opens the page of a row, or turns the open page to it."""
        from netconsole.tui.screens.detail import DetailScreen

        if isinstance(self.screen, DetailScreen):
            self.screen.turn_to(subject)
        else:
            self.push_screen(DetailScreen(subject, lambda: self.pause, self.session.kind, time.monotonic))

    async def on_detail_screen_wanted(self, message: DetailScreen.Wanted) -> None:
        """A key of the main screen was pressed on a page above it."""
        while self.screen is not self._main:
            await self.pop_screen()
        await self.run_action(message.action, default_namespace=self._main)

    def subject_of_page(self) -> Subject | None:
        """The row of the page in front; None on any other screen."""
        return None if self.screen is self._main else self.subject()

    def subject(self) -> Subject | None:
        """The row that keys act on: of the page in front, else the one under the cursor."""
        from netconsole.tui.screens.detail import DetailScreen

        if isinstance(self.screen, DetailScreen):
            return self.screen.subject
        if self.screen is not self._main:
            return None
        key = self._main.cursor_key()
        subject = key.subject if isinstance(key, (IncidentKey, DropPlaceKey)) else key
        return subject if isinstance(subject, Subject) else None

    def action_investigate(self) -> None:
        """Starts details of the subject alone; its page shows what they find. Again: ends them."""
        from netconsole.tui.panes import advice

        subject = self.subject()
        if subject is None or self._investigator is None:
            self.say("choose a row of a live session first", "look")
            return
        with self.scene() as scene:
            wanted = advice.investigable(scene, subject)
            state = scene.state.probes.get(subject.probe)
        if wanted is None:
            samples = state is not None and state.mode == "details"
            why = "its probe samples already: see Events (8)" if samples else "no probe that shows this can sample it"
            self.say(why, "look")
            return
        if self.subject_of_page() != wanted:
            self.open(wanted)
        in_thread(self, partial(self._investigate, self._investigator, wanted), lambda why: self.say(why, "act"))

    def _investigate(self, investigator: Investigator, wanted: Subject) -> None:
        """Starts or ends details. Runs in a thread: the name of a far host's namespace has to be asked for there."""
        try:
            told, tone = investigator.investigate(wanted.probe, wanted.key), "ok"
        except Unable as error:
            told, tone = str(error), "look"
        self.call_later(self.say, told, tone)

    def action_copy(self) -> None:
        """Copies the first command, finding or row text of the subject; when pressed again, the next of these."""
        from netconsole.tui.panes import advice

        subject = self.subject()
        if subject is None:
            self.say("choose a row first", "look")
            return
        with self.scene() as scene:
            texts = advice.copies(scene, subject)
        place = self._copied[1] + 1 if self._copied[0] == subject else 0
        self._copied = (subject, place)
        word, text = texts[place % len(texts)]
        if ConsoleDriver.terminal.plain:
            self.say(f"this terminal has no clipboard; {word}: {text}", "look")
            return
        self.copy_to_clipboard(text)
        more = f" {place % len(texts) + 1} of {len(texts)}" if texts[1:] else ""
        self.say(f"copied{more}: {text}", "ok")

    def _subject_of(self, metric: str) -> Subject:
        """The row that a finding of the comparison is about, else its probe."""
        with self.session.view() as state:
            found = self.comparison.reference.locate(state.probes, self.manifests, metric) if self.comparison else None
        probe = metric.partition("/")[0]
        return Subject(*found) if found is not None else Subject(probe, "probe", probe, ())

    def on_screen_resume(self) -> None:
        self.call_later(self.action_redraw)

    def get_system_commands(self, screen: Screen[object]) -> Iterator[SystemCommand]:
        """The commands of the palette: all actions, and all probes that can be started."""
        for action in actions.ACTIONS:
            if action.scope in self.SCOPES and action.id not in ("palette", "unfilter", "next", "previous"):
                yield SystemCommand(action.title, action.help, self._runner(action))
        for name in self._startable():
            yield SystemCommand(f"Start {name}", self.manifests[name].summary, partial(self.action_knobs, name))

    def _runner(self, action: actions.Hotkey):  # type: ignore[no-untyped-def]
        async def run() -> None:
            namespace = self._main if action.scope == "main" else self
            await self.run_action(action.call, default_namespace=namespace)

        return run

    def _probes_here(self) -> set[str]:
        """The probes of the session, and those that run in the console itself."""
        with self.session.view() as state:
            names = set(state.probes)
        own = {name for name in self.profile.probes if name in self.manifests and self.manifests[name].source != "bpf"}
        return names | own

    def farewell(self, started_s: float) -> str:
        """The message after the exit."""
        return describe_end(self.session, started_s, self.snapshots, list(self._findings.log)) + self.recordings.told()


def describe_end(session: Session, started_s: float, snapshots: list[Path], incidents: Sequence[Incident] = ()) -> str:
    """The message after the exit: how long it ran, what it cost, what went wrong, and the files it wrote."""
    with session.view() as state:
        elapsed = figure.elapsed(time.monotonic() - started_s)
        used = sum(source.cpu_ns for source in state.sources.values())
        kernel = sum(
            (program.cpu_pct or 0.0) / 100 * probe.cost.elapsed_ns
            for probe in state.probes.values()
            for program in probe.cost.programs.values()
        )
    cost = f"{figure.duration(used)} of CPU time in user space and {figure.duration(kernel)} in the kernel"
    lines = [f"watched for {elapsed}; every probe is removed", f"it cost {cost}"]
    if incidents:
        ended = sum(one.ended_ns is not None for one in incidents)
        lines.append(f"{len(incidents)} incident{'s' * (len(incidents) != 1)}, {ended} of them ended; the last ones:")
        lines += [f"  {one.level} {told(one)}" for one in incidents[-MAX_TOLD:]]
    lines += [f"snapshot in {figure.safe(snapshots[-1])}"] if snapshots else []
    return "\n".join(f"netconsole: {line}" for line in lines)
