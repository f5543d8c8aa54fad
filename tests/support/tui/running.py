"""Runs the console on a played session, for tests that press keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from textual.pilot import Pilot

from netconsole.base.fact_keys import FactData
from netconsole.probes import catalogue
from netconsole.snapshot.document import Snapshot
from netconsole.tui.app import ConsoleApp
from netconsole.tui.host_view import WatchedHost
from netconsole.tui.screens.main import MainScreen
from netconsole.tui.widgets.table_model import TableModel
from tests.support.fake_collector import Scenario
from tests.support.tui.played import PROFILE, PlayedSession, screen_text
from tests.support.tui.scenes import PROBE_DIRECTORY, host, interval

FACTS = {
    "kernel/release": FactData(value="6.1.0-56-amd64", source="/proc/sys/kernel/osrelease"),
    "nic/[bold]x/offload/rx-gro": FactData(value=True, source="ethtool -k"),
    "cpu/governor": FactData(source="/sys/devices/system/cpu", why="no frequency scaling here"),
}


class Running:
    """The application, its pilot and its session."""

    def __init__(self, app: ConsoleApp, pilot: Pilot[None], session: PlayedSession) -> None:
        self.app = app
        self.pilot = pilot
        self.session = session
        self.tick = 100

    async def press(self, *keys: str) -> str:
        """Press keys; what the screen shows then."""
        await self.pilot.press(*keys)
        return await self.settled()

    async def type(self, text: str) -> str:
        """Type a text."""
        return await self.press(*("space" if key == " " else key for key in text))

    async def play(self, intervals: int = 1, **options: int) -> str:
        """Intervals of the host go by; what the screen shows then."""
        for _ in range(intervals):
            self.tick += 1
            self.session.play(interval(Scenario(), self.tick, **options))
            await self.pilot.pause()
        return await self.settled()

    def text(self) -> str:
        """What the screen shows now."""
        return screen_text(self.app)

    def table(self, name: str) -> TableModel:
        """A table of the pane in front."""
        return self.main.view.tables[name]

    @property
    def main(self) -> MainScreen:
        """The main screen, also while another lies over it."""
        return self.app.main

    async def settled(self) -> str:
        """What the screen shows when threads have done their work."""
        await self.app.workers.wait_for_complete()
        comparison = self.app.comparison
        if comparison is not None:
            comparison.join()
        for _ in range(3):
            await self.pilot.pause()
        return self.text()


Kind = TypeVar("Kind", bound=Running)


@asynccontextmanager
async def running_as(
    kind: type[Kind],
    size: tuple[int, int],
    session: PlayedSession | None = None,
    facts: Mapping[str, FactData] | None = None,
    baseline: tuple[str, Sequence[Snapshot]] | None = None,
    **options: Any,
) -> AsyncIterator[Kind]:
    """The console on a host with trouble, unless it is another session; ``facts`` is None where nobody knows them."""
    session = session or PlayedSession(host(12))
    manifests = catalogue.load_all([PROBE_DIRECTORY])
    read_facts = None if facts is None else lambda: facts
    app = ConsoleApp(WatchedHost(session, PROFILE, manifests, read_facts=read_facts, **options), baseline=baseline)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        one = kind(app, pilot, session)
        await one.play(3)
        yield one


@asynccontextmanager
async def running(
    size: tuple[int, int] = (120, 40), facts: Mapping[str, FactData] | None = FACTS, **options: Any
) -> AsyncIterator[Running]:
    """The console on a host with trouble whose facts are known."""
    async with running_as(Running, size, facts=facts, **options) as one:
        yield one
