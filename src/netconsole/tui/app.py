"""The Textual application: connects the session, the pump, the screens and the actions."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from textual.binding import BindingType
from textual.screen import Screen

from netconsole.base import figure
from netconsole.base.fact_keys import FactData
from netconsole.compare.live import LiveComparison
from netconsole.snapshot.builder import Totals
from netconsole.snapshot.document import Snapshot
from netconsole.snapshot.machine_figures import devices_of
from netconsole.telemetry.session import Answerable
from netconsole.tui import actions, row_keys
from netconsole.tui.farewell import describe_end
from netconsole.tui.host_app import HostApp
from netconsole.tui.host_view import WatchedHost
from netconsole.tui.panes.catalogue import missing as missing_text
from netconsole.tui.panes.drops.places import DropPlaceKey
from netconsole.tui.panes.overview.against_baseline import Key as AgainstKey
from netconsole.tui.panes.overview.stands_out import IncidentKey
from netconsole.tui.scene import live_scope
from netconsole.tui.scene.scene import Subject
from netconsole.tui.scene.silent import why_silent
from netconsole.tui.screens.pages.text_page import OverScreen
from netconsole.tui.terminal.driver import ConsoleDriver
from netconsole.tui.terminal.lifeline import Lifeline
from netconsole.tui.terminal.threads import in_thread
from netconsole.tui.widgets.linetable import TableKeys

if TYPE_CHECKING:
    from netconsole.run.ping_plan import PingPlan
    from netconsole.tui.screens.find import Findable
    from netconsole.tui.screens.knobs import LookAhead
    from netconsole.tui.screens.pages.detail import DetailScreen
    from netconsole.tui.screens.ping_wizard.state import Watching, WizardState
    from netconsole.tui.screens.snapshot import Wanted

NamedSnapshots: TypeAlias = tuple[str, Sequence[Snapshot]]
"""A name and the snapshots under it."""


class ConsoleApp(HostApp):
    """The console: what its keys do."""

    CSS_PATH = "styles.tcss"
    TITLE = "netconsole"
    BINDINGS: ClassVar[list[BindingType]] = list(actions.bindings("app"))
    ENABLE_COMMAND_PALETTE = False
    SCOPES: ClassVar[tuple[actions.Scope, ...]] = ("app", "main")
    """The scopes whose actions can be found by name."""

    def __init__(
        self,
        watched: WatchedHost | None,
        keymap: Mapping[str, str] | None = None,
        lifeline: Lifeline | None = None,
        baseline: NamedSnapshots | None = None,
    ) -> None:
        """``watched``: the host in front; None when none is yet (the rack)."""
        super().__init__(watched, keymap, lifeline)
        self._first_baseline = baseline
        self._copied = row_keys.Copied()
        self._charted: Subject | None = None

    def on_main_screen_ready(self) -> None:
        """Begins to draw: the main screen is ready."""
        self.follow(self.watched)
        self.begin_to_draw()
        if self._first_baseline is not None:
            self.compare_with(*self._first_baseline)
            self._first_baseline = None

    # ---- actions

    def action_help(self) -> None:
        from netconsole.tui.screens.pages.help import HelpScreen

        if self.screen is self.main or (
            isinstance(self.screen, OverScreen) and not isinstance(self.screen, HelpScreen)
        ):
            from netconsole.tui import palette

            without = self.main.without | palette.outside(self.SCOPES)
            pane = self.main.view.pane
            with self.scene() as scene:
                missing = missing_text(scene, pane)
            self.push_screen(HelpScreen(pane, self.manifests, self.main.probe(), self.keys, without, missing))

    def action_knobs(self, probe: str | None = None) -> None:
        from netconsole.tui.screens.knobs import KnobsScreen, knobbed

        watched = self.watched
        names = [*knobbed(self.session, self.manifests), *watched.startable()]
        if not names:
            self.say("no probe of this session has knobs", "look")
            return
        here, pane = probe or self.main.probe(), self.main.view.pane
        wanted = pane.probes if here is None else (here,)
        first = next((one for one in wanted if one in names), names[0])
        if first not in wanted and (wanted or pane.missing):  # never the knobs of something else
            self.say(self._why_no_knobs(wanted[0]) if wanted else pane.missing, "look")
            return
        begin = None if watched.enforcer is None else partial(self.begin, watched)
        filters = watched.profile.filters
        self.push_screen(KnobsScreen(self.session, self.manifests, names, first, self._forecaster(), begin, filters))

    def _why_no_knobs(self, probe: str) -> str:
        with self.scene() as scene:
            state = scene.state.probes.get(probe)
            runs = state is not None and state.measuring
            return f"{probe} has no knobs" if runs else f"{why_silent(scene, probe, '')}; it cannot be started here"

    def _forecaster(self) -> LookAhead | None:
        """Forecasts the cost of a probe on the measured host. None when no probe can be started there."""
        return None if self.watched.enforcer is None else self.watched.enforcer.forecast_now

    def action_start(self) -> None:
        """Starts the probe that the empty pane in front lacks."""
        self._empty_pane.start()

    def action_pin(self) -> None:
        """Pins the probe of the row or table in front, else the probe that was lowered last. Unpins it next time."""
        enforcer, probe = self.watched.enforcer, self.watched.pinnable(self.main.probe())
        if enforcer is None or probe is None or not enforcer.toggle_pin(probe):
            self.say("choose a table or row of a running BPF probe first", "look")

    def action_snapshot(self) -> None:
        """Opens the dialog that measures and writes a snapshot."""
        from netconsole.tui.screens.snapshot import SnapshotScreen

        watched = self.watched
        if watched.rewinding.place is not None:
            self.say("a snapshot is of now: Esc goes there; w writes a recording that has the minutes before", "look")
            return
        write = partial(self._write, watched)
        written = partial(self._written, watched)
        self.push_screen(SnapshotScreen(self.session, watched.take, write, written, ran=[*watched.ran.values()]))

    def _write(self, watched: WatchedHost, taken: Snapshot, wanted: Wanted) -> None:
        """Writes a snapshot to a file. Runs in a thread. Raises BadInput."""
        from netconsole.base.files import write_whole
        from netconsole.report import ticket

        comparison = watched.comparison
        reference = ticket.reference(comparison.reference.name) if comparison is not None else None
        redactor = ticket.redactor(wanted.redact)
        write_whole(wanted.file, ticket.render(taken, wanted.form, watched.manifests, reference, redactor)[0])

    def _written(self, watched: WatchedHost, path: Path) -> None:
        watched.snapshots.append(path)
        here = Path.cwd()
        shown = path.relative_to(here) if path.is_relative_to(here) else path
        self.say_of(watched, f"snapshot written to {figure.safe(shown)}", "ok")

    def action_facts(self) -> None:
        from netconsole.tui.screens.pages.facts import FactsScreen

        self.push_screen(FactsScreen(self.watched.read_facts))

    def action_ping(self) -> None:
        """Opens the wizard for a ping, at the step where it was left."""
        from netconsole.tui.screens.ping_wizard.screen import PingScreen

        watched = self.watched
        if watched.ping is None:
            watched.ping = self._new_ping()
        line = self.session.connection().line
        also = (line.address,) if line is not None else ()
        self.push_screen(PingScreen(watched.ping, self.manifests, self.watch_ping, also))

    def _new_ping(self) -> WizardState:
        from netconsole.tui.screens.ping_wizard.state import WizardState

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
        self.push_screen(BaselinesScreen(self.watched.profile.name, current, self.compare_with, host))

    def compare_with(self, name: str | None, snapshots: Sequence[Snapshot] = ()) -> None:
        """Compares every figure with these snapshots from now on. None: stops comparing."""
        watched = self.watched
        if name is None:
            watched.comparison = None
            self.say("figures are no longer compared with a baseline")
            return
        self.say(f"baseline {figure.safe(name, 40)}: reading the configuration of the host…")
        in_thread(self, lambda: self._prepare(watched, name, snapshots), lambda why: self.say_of(watched, why, "act"))

    def _prepare(self, watched: WatchedHost, name: str, snapshots: Sequence[Snapshot]) -> None:
        """Computes the figures of the baseline. Runs in a thread: large snapshots take a while."""
        self.call_later(self._use, watched, watched.compared_with(name, snapshots))

    def _use(self, watched: WatchedHost, comparison: LiveComparison) -> None:
        watched.comparison = comparison
        name = figure.safe(comparison.reference.name, 40)
        why = comparison.reference.other_scope
        told = f"every figure is compared with the baseline {name}"
        self.say_of(
            watched, f"baseline {name}: nothing can be compared: {why}" if why else told, "act" if why else "ok"
        )
        self.action_redraw()

    def action_record(self) -> None:
        """Begins a recording in the working directory, or ends the running one."""
        watched = self.watched
        if watched.read_facts is None or watched.recordings.progress is not None:
            self._record(watched, {})
        else:
            in_thread(self, partial(self._read_and_record, watched), lambda why: self.say_of(watched, why, "act"))

    def _read_and_record(self, watched: WatchedHost) -> None:
        """A recording begins with the facts of its host. Runs in a thread: those of a far host take a while."""
        facts = watched.read_facts() if watched.read_facts is not None else {}
        self.call_later(self._begin_to_record, watched, facts)

    def _begin_to_record(self, watched: WatchedHost, facts: Mapping[str, FactData]) -> None:
        if watched.recordings.progress is None:  # the key was pressed once
            self._record(watched, facts)

    def _record(self, watched: WatchedHost, facts: Mapping[str, FactData]) -> None:
        self.say_of(
            watched, *watched.recordings.toggle(watched.profile, partial(self._recording_ended, watched), facts)
        )
        self.draw()

    def _recording_ended(self, watched: WatchedHost, why: str) -> None:
        """The recording has ended by itself. Called by a thread of the recorder."""
        self.call_later(self.say_of, watched, why, "act")

    def on_table_keys_opened(self, message: TableKeys.Opened) -> None:
        key = message.key
        subject = key.subject if isinstance(key, (IncidentKey, DropPlaceKey)) else key
        if isinstance(key, AgainstKey):
            subject = self._subject_of(key.metric)
        if isinstance(subject, Subject):
            if subject.probe:
                self.open(subject)
            else:
                self.call_later(self.main.action_pane, "cost")

    def open(self, subject: Subject) -> None:
        """Opens the page of a row, or turns the open page to it."""
        from netconsole.tui.screens.pages.detail import DetailScreen

        if isinstance(self.screen, DetailScreen):
            self.screen.turn_to(subject)
        else:
            self.push_screen(
                DetailScreen(subject, lambda: self.pause, self.session.kind, time.monotonic, self.main.without)
            )

    async def on_detail_screen_wanted(self, message: DetailScreen.Wanted) -> None:
        """A key of the main screen was pressed on a page above it."""
        while self.screen is not self.main:
            await self.pop_screen()
        await self.run_action(message.action, default_namespace=self.main)

    def subject_of_page(self) -> Subject | None:
        """The row of the page in front; None on any other screen."""
        return None if self.screen is self.main else self.subject()

    def subject(self) -> Subject | None:
        """The row that keys act on: of the page in front, else the one under the cursor."""
        return self._subject_on(self.screen)

    def _subject_on(self, screen: Screen[object]) -> Subject | None:
        from netconsole.tui.screens.glance import GlanceScreen
        from netconsole.tui.screens.pages.detail import DetailScreen

        if isinstance(screen, (DetailScreen, GlanceScreen)):
            return screen.subject
        return self.main.subject() if screen is self.main else None

    def action_investigate(self) -> None:
        """Starts details of the subject alone; its page shows what they find. Again: ends them."""
        watched, subject = self.watched, self.subject()
        investigator = watched.investigator
        if subject is None or investigator is None:
            self.say("choose a row first" if subject is None else "no row can be investigated here", "look")
            return
        with self.scene() as scene:
            wanted = row_keys.investigable(scene, subject)
        if isinstance(wanted, str):
            self.say(wanted, "look")
            return
        if self.subject_of_page() != wanted:
            self.open(wanted)

        def work() -> None:
            self.call_later(self.say_of, watched, *row_keys.investigate(investigator, wanted))

        in_thread(self, work, lambda why: self.say_of(watched, why, "act"))

    def action_run(self) -> None:
        """Shows the commands of the subject's findings. Again: runs them."""
        from netconsole.tui.screens.commands import CommandsScreen

        if isinstance(self.screen, CommandsScreen):
            self.screen.run()
            return
        subject, session = self.subject(), self.session
        with self.scene() as scene:
            commands = row_keys.runnable(scene, subject) if subject is not None else ()
        if not commands or not isinstance(session, Answerable):
            no_host = "a recording has no host to run a command on"
            self.say(no_host if commands else "no command belongs to this row", "look")
            return
        line = session.connection().line
        where = line.address if line is not None else "this host"
        self.push_screen(CommandsScreen(commands, where, partial(row_keys.run, session), self.watched.ran))

    def action_chart(self) -> None:
        """Shows the history of the subject over the whole screen; there, the one charted before below it."""
        from netconsole.tui.screens.pages.chart import ChartScreen

        if isinstance(self.screen, ChartScreen):
            self.screen.turn()
            return
        subject = self.subject()
        if subject is None or subject.kind not in ("table", "histogram"):
            self.say("choose a row of a table first", "look")
            return
        before = self._charted if self._charted != subject else None
        self._charted = subject
        self.push_screen(ChartScreen(subject, before))
        self.call_later(self.run_action, "redraw")

    def action_glance(self) -> None:
        """Shows a cell for each queue of a VM, port, PMD thread and block device."""
        from netconsole.tui.screens.glance import GlanceScreen

        if not isinstance(self.screen, GlanceScreen):
            self.push_screen(GlanceScreen(self.open))
            self.call_later(self.run_action, "redraw")

    def take_of_vm(self) -> Callable[[Totals], Snapshot]:
        """What makes the snapshots of which the page of a VM is made."""
        return self.watched.taker()

    def action_vm(self) -> None:
        """Shows the VM of the subject on one page."""
        from netconsole.tui.screens.pages.vm import VmScreen

        if isinstance(self.screen, VmScreen):
            return
        subject = self.subject()
        with self.scene() as scene:
            vm = row_keys.machine(scene, subject) if subject is not None else None
        if vm is None:
            self.say("choose a row of a VM, or of its tap", "look")
            return
        self._open_vm(vm)

    def _open_vm(self, vm: str) -> None:
        from netconsole.tui.screens.pages.vm import VmScreen

        is_past = self.session.kind == "recorded" or self.watched.rewinding.place is not None
        self.push_screen(VmScreen(vm, self.take_of_vm(), is_replayed=is_past))
        self.call_later(self.run_action, "redraw")

    def action_copy(self) -> None:
        """Copies the first command, finding or row text of the subject; when pressed again, the next of these."""
        subject = self.subject()
        if subject is None:
            self.say("choose a row first", "look")
            return
        with self.scene() as scene:
            word, text, place = self._copied.following(scene, subject)
        if ConsoleDriver.terminal.plain:
            self.say(f"no clipboard here; {word}: {text}", "look")
            return
        self.copy_to_clipboard(text)
        self.say(f"copied{place}: {text}", "ok")

    def _subject_of(self, metric: str) -> Subject:
        """The row that a finding of the comparison is about, else its probe."""
        with self.session.view() as state:
            found = self.comparison.reference.locate(state.probes, self.manifests, metric) if self.comparison else None
        probe = metric.partition("/")[0]
        return Subject(*found) if found is not None else Subject(probe, "probe", probe, ())

    async def action_find(self) -> None:
        """Finds by name what can run now, a VM, or a row of any table."""
        from netconsole.tui.screens.find import FindScreen

        if isinstance(self.screen, FindScreen):
            return
        below = self.screen
        await self.push_screen(FindScreen(list(self.findable(below))))
        in_thread(self, partial(self._read_machines, self.watched, below), partial(self.say_of, self.watched))

    def _read_machines(self, watched: WatchedHost, below: Screen[object]) -> None:
        """Some VMs have no row of a device: their ports are in user space, or they have disks alone. In a thread."""
        facts = watched.read_facts() if watched.read_facts is not None else {}
        self.call_later(self._know, watched, devices_of(facts), below)

    def _know(self, watched: WatchedHost, machines: Mapping[str, set[str]], below: Screen[object]) -> None:
        from netconsole.tui.screens.find import FindScreen

        watched.machines, scope = machines, watched.main.scope
        if scope is not None:
            watched.main.scope = scope.learn(machines)
            self.action_redraw()
        if isinstance(self.screen, FindScreen) and watched is self.watched:
            self.screen.offer(list(self.findable(below)))

    def findable(self, screen: Screen[object]) -> Iterator[Findable]:
        """All actions that can run now, panes, probes that can be started, VMs, and rows of all tables."""
        from netconsole.tui import palette
        from netconsole.tui.panes import named_rows
        from netconsole.tui.screens.find import Findable
        from netconsole.tui.screens.knobs import knobbed

        startable = self.watched.startable()
        has_knobs = bool(startable or knobbed(self.watched.session, self.manifests))
        with self.scene() as scene:
            hidden = palette.impossible(self.watched, scene, self._subject_on(screen), screen, has_knobs)
            known, rows = self.watched.machines, list(named_rows.named_rows(scene))
            machines = sorted({*named_rows.machines(scene), *known})
            scopes = [live_scope.of_device(scene, name) for name in named_rows.devices(scene)]
            scopes += live_scope.of_vms(scene, known)
        for action in sorted(actions.ACTIONS, key=palette.rank):
            if action.scope in (*self.SCOPES, "table") and action.id not in hidden:
                yield Findable(action.title, actions.written(action, self.keys), action.help, self._runner(action))
        for name in startable:
            yield Findable(f"Start {name}", "", self.manifests[name].summary, partial(self.action_knobs, name))
        for vm in machines:
            yield Findable(figure.safe(vm, 48), "", "the VM on one page, and what caps it", partial(self._open_vm, vm))
        for name, title, subject in rows:
            yield Findable(name, "", title, partial(self.open, subject))
        for scope in scopes:
            told = "this alone, in all panes; Esc shows all again"
            yield Findable(scope.words, "", told, partial(self._narrow, scope), scope.words.partition(" ")[0])

    async def _narrow(self, scope: live_scope.LiveScope) -> None:
        """Shows a device or a VM alone."""
        while self.screen is not self.main:
            await self.pop_screen()
        self.main.scope = scope
        self.action_redraw()

    def _runner(self, action: actions.Hotkey) -> Callable[[], Awaitable[object]]:
        async def run() -> None:
            if action.scope not in ("main", "table"):
                await self.run_action(action.call, default_namespace=self)
                return
            while self.screen is not self.main and not action.call.startswith("app."):
                await self.pop_screen()  # from the page of a row, as its key does
            table = self.main.table()
            if action.scope == "main":
                await self.run_action(action.call, default_namespace=self.main)
            elif table is not None:
                await self.run_action(action.call, default_namespace=self.main.desk)

        return run

    async def action_hosts(self) -> None:
        """There is only one."""

    def close_files(self) -> None:
        """Ends the recordings that run."""
        self.watched.recordings.close()
        self.watched.rewinding.end()

    def farewell(self, started_s: float) -> str:
        """The message after the exit."""
        watched = self.watched
        ended = describe_end(watched.session, started_s, watched.snapshots, list(watched.findings.log))
        return ended + watched.recordings.told()
