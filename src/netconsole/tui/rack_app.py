"""The console of several hosts: the rack comes first, `Enter` opens a host's console, `Esc` comes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from textual.screen import Screen

from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Profile
from netconsole.run.assembly import LiveRun
from netconsole.run.cost_here import CostHere, CostHereReader
from netconsole.run.rack import RackPhase
from netconsole.telemetry.session import Connection
from netconsole.telemetry.state import State
from netconsole.tui import actions
from netconsole.tui.app import ConsoleApp
from netconsole.tui.farewell import describe_end
from netconsole.tui.host_app import Over
from netconsole.tui.host_view import WatchedHost, watched_run
from netconsole.tui.panes.rack import RackLine, standing
from netconsole.tui.remembered import Remembered
from netconsole.tui.scene.scene import Scene
from netconsole.tui.screens.rack import RackHelpScreen, RackScreen
from netconsole.tui.terminal.lifeline import Lifeline
from netconsole.tui.terminal.threads import in_thread
from netconsole.tui.widgets.look import Tone

if TYPE_CHECKING:
    from netconsole.tui.screens.find import Findable

COST_EVERY_S = 5.0
"""What it costs here is read so often: each reading takes some milliseconds."""
RACK_ACTIONS = frozenset({"screenshot", "help", "quit"})
"""The actions of the console that the rack has too."""
_OF_A_HOST = frozenset({"investigate", "run", "vm", "chart", "copy", "pause", "record", "step", "jump_by"})


class RackedHost(Protocol):
    """What the application needs of a host (netconsole.run.rack)."""

    name: str
    phase: RackPhase
    why: str
    run: LiveRun | None

    def begin(self) -> None:
        """Enters it once more."""


class RackApp(ConsoleApp):
    """See the module. The sessions go on whatever is in front."""

    def __init__(
        self,
        hosts: Sequence[RackedHost],
        profile: Profile,
        manifests: Mapping[str, Manifest],
        keymap: Mapping[str, str] | None = None,
        lifeline: Lifeline | None = None,
        remembered: Remembered | None = None,
    ) -> None:
        super().__init__(None, keymap, lifeline)
        self._remembered = remembered
        self._hosts = {host.name: host for host in hosts}
        self._met: dict[str, WatchedHost] = {}
        """Those that are measured."""
        self._profile = profile
        self._rack_manifests = manifests
        self._rack = RackScreen()
        self._reader = CostHereReader()
        self._cost_here: CostHere | None = None
        self._began_s = monotonic()

    def get_default_screen(self) -> Screen[None]:
        return self._rack

    def on_rack_screen_ready(self) -> None:
        """Begins to draw."""
        self.begin_to_draw()
        self._read_cost()
        self.set_interval(COST_EVERY_S, self._read_cost)

    def on_main_screen_ready(self) -> None:
        """A host was opened for the first time."""
        self.action_redraw()

    def own_pids(self) -> Sequence[int]:
        """All collectors are on other hosts."""
        return ()

    # ---- drawing

    def _news_of(self) -> tuple[object, ...]:
        self._meet()
        phases = tuple((host.phase, host.why) for host in self._hosts.values())
        return (phases, self._cost_here, *(watched.observe() for watched in self._met.values()))

    def _meet(self) -> None:
        """Follows the hosts that are measured since the last time."""
        for name, host in self._hosts.items():
            live = host.run
            if live is None or name in self._met:
                continue
            watched = self._met[name] = watched_run(live, self._remembered)
            watched.main.without = frozenset()
            self.install_screen(watched.main, f"host {name}")
            self.follow(watched)
            self._rack.say("")  # it may have been said that it connects

    def _stated_age_holds(self) -> bool:
        return self._front is None or super()._stated_age_holds()

    def draw_host(self) -> None:
        if self._front is not None:
            super().draw_host()
        elif self.screen is self._rack:
            now_s = monotonic()
            found = [self._line(host) for host in self._hosts.values()]
            self._rack.draw(found, self._profile.name, now_s - self._began_s, self._cost_here, now_s)
        elif isinstance(self.screen, Over):
            self.screen.draw(Scene(State(), self._rack_manifests, self._profile, Connection("live")))

    def _line(self, host: RackedHost) -> RackLine:
        watched = self._met.get(host.name)
        if watched is None:
            return RackLine(host.name, host.phase, host.why)
        with watched.scene(self.delay_s(), self.output()) as scene:
            return RackLine(host.name, host.phase, host.why, standing(scene))

    def say(self, text: str, tone: Tone = "") -> None:
        if self._front is not None:
            super().say(text, tone)
        else:
            self._rack.say(text, tone)

    def say_of(self, watched: WatchedHost, text: str, tone: Tone = "") -> None:
        if self._front is not None:
            super().say_of(watched, text, tone)
        else:
            watched.main.say(text, tone)

    def _read_cost(self) -> None:
        in_thread(self, self._keep_cost, self._rack.say)

    def _keep_cost(self) -> None:
        self._cost_here = self._reader.read()
        self.pump.news()

    # ---- actions

    async def on_rack_screen_chosen(self, message: RackScreen.Chosen) -> None:
        """Opens a host, or tries once more to enter it."""
        host, watched = self._hosts[message.host], self._met.get(message.host)
        if watched is None:
            if host.phase in ("refused", "asks"):
                host.begin()
            self._rack.say(f"{host.name}: connecting…", "look")
            return
        self._rack.say("")
        self._front = watched
        await self.push_screen(watched.main)
        if message.subject is not None and message.subject.probe:
            self.open(message.subject)  # it is drawn when it is there
        else:
            self.action_redraw()

    async def action_hosts(self) -> None:
        """Goes back to the rack."""
        if self._front is None or self.screen is not self.main:
            return
        self._front = None
        await self.pop_screen()
        self.action_redraw()

    def _unfinished(self) -> list[str]:
        return [f"{name}: {what}" for name, one in self._met.items() for what in one.unfinished()]

    def action_help(self) -> None:
        if self._front is not None:
            super().action_help()
        elif self.screen is self._rack:
            self.push_screen(RackHelpScreen(self.keys))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What acts on a host does nothing while none is open."""
        if self._front is None and action in _OF_A_HOST:
            return False
        return super().check_action(action, parameters)

    def findable(self, screen: Screen[object]) -> Iterator[Findable]:
        """Of the host in front; before one is, what the rack can do."""
        if self._front is not None:
            yield from super().findable(screen)
            return
        from netconsole.tui.screens.find import Findable

        for action in actions.ACTIONS:
            if action.id in RACK_ACTIONS:
                keys = actions.written(action, self.keys)
                yield Findable(action.title, keys, action.help, partial(self.run_action, action.call))

    def close_files(self) -> None:
        for watched in self._met.values():
            watched.recordings.close()
            watched.rewinding.end()

    def farewell(self, started_s: float) -> str:
        """The message after the exit: of every host that was measured."""
        told = [
            describe_end(one.session, started_s, one.snapshots, list(one.findings.log), name) + one.recordings.told()
            for name, one in self._met.items()
        ]
        return "\n".join(told) or "netconsole: no host was measured"
