"""Several hosts: a line for each, whatever the others do; Enter opens one, Esc comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from textual.pilot import Pilot

from netconsole.probes import catalogue
from netconsole.run.assembly import LiveRun
from netconsole.run.cost_here import CostHere
from netconsole.run.preflight import RunPlan
from netconsole.run.rack import RackPhase
from netconsole.telemetry.session import Connection, LineState
from netconsole.tui import rack_app
from netconsole.tui.rack_app import RackApp
from netconsole.tui.screens.rack import RackScreen
from tests.support.fake_collector import Scenario
from tests.support.tui.pictures import is_picture
from tests.support.tui.played import PROFILE, PlayedSession, screen_text
from tests.support.tui.scenes import PROBE_DIRECTORY, host, interval

SIZES = [(80, 24), (120, 40)]
LINE = LineState("ssh://hv", 0.052, 0.026, 0.0, 1234.0)
SUDO = "sudo on the host asks for a password, and there is no terminal to type one"
MANIFESTS = catalogue.load_all([PROBE_DIRECTORY])


class Machine:
    """A host of the rack whose session is played."""

    def __init__(self, name: str, phase: RackPhase = "measured", why: str = "") -> None:
        self.name, self.phase, self.why = name, phase, why
        self.begun = 0
        self.session = PlayedSession()
        self.session.standing = Connection("live", line=LINE)
        self.run: LiveRun | None = None
        if phase == "measured":
            self.measure()

    def measure(self) -> None:
        self.phase = "measured"
        plan = RunPlan(PROFILE, MANIFESTS, ())
        run: Any = SimpleNamespace(plan=plan, session=self.session, enforcer=None, escalator=None, facts=dict)
        self.run = run

    def begin(self) -> None:
        self.begun += 1
        self.phase = "connecting"


class Racked:
    """The application, its pilot and its hosts."""

    def __init__(self, app: RackApp, pilot: Pilot[None], machines: list[Machine]) -> None:
        self.app, self.pilot, self.machines = app, pilot, machines

    async def press(self, *keys: str) -> str:
        await self.pilot.press(*keys)
        return await self.text()

    async def text(self) -> str:
        """What the screen shows when all news has been seen."""
        for _ in range(3):
            self.app.pump.news()
            await self.pilot.pause()
        await self.app.workers.wait_for_complete()
        self.app.action_redraw()
        await self.pilot.pause()
        return screen_text(self.app)


class CostIsKnown:
    """What it costs here, in place of a reading."""

    def read(self) -> CostHere:
        return CostHere(3.14, 150_000, 9)


@asynccontextmanager
async def rack(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Racked]:
    """A host with trouble, a quiet one, one whose line is lost, one that asks, one that is refused, one on its way."""
    monkeypatch.setattr(rack_app, "CostHereReader", CostIsKnown)
    monkeypatch.setattr(rack_app, "monotonic", lambda: 100.0)
    machines = [
        Machine("hv-1"),
        Machine("root@hv-2:2222"),
        Machine("hv-3"),
        Machine("hv-4", "asks", SUDO),
        Machine("hv-5", "refused", "no answer from the host (timed out): \x1b[2J check that the host is up"),
        Machine("hv-6", "connecting"),
    ]
    app = RackApp(machines, PROFILE, MANIFESTS)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        machines[0].session.play(host(12))
        for tick in range(3):
            machines[0].session.play(interval(Scenario(), 100 + tick))
            await pilot.pause()
        machines[1].session.play(Scenario().hello().status("kernel_drops").counters("kernel_drops", drops=(0, 0)).end())
        lost = Connection("lost", "the ssh connection broke", 2.0, line=LINE)
        machines[2].session.play(Scenario().hello().status("kernel_drops").end())
        machines[2].session.standing, machines[2].session.age = lost, 7.2
        yield Racked(app, pilot, machines)


@pytest.mark.parametrize("size", SIZES)
async def test_it_looks_as_it_did(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    async with rack(size, monkeypatch) as one:
        is_picture(f"rack-{size[0]}x{size[1]}", await one.text() + "\n")


@pytest.mark.parametrize("size", SIZES)
async def test_each_host_has_its_line_whatever_the_others_do(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rack(size, monkeypatch) as one:
        lines = {line.split()[1]: line for line in (await one.text()).splitlines()[3:9]}
        assert "LIVE 52 ms" in lines["root@hv-2:2222"] and "nothing stands out" in lines["root@hv-2:2222"]
        assert "!!" in (await one.text()).splitlines()[3] and "FULL_RING" in await one.text()
        assert any("LINE LOST" in line for line in lines.values())
        text = await one.text()
        assert "!! asks" in text and "!! refused" in text and "connecting…" in text
        assert "\x1b" not in text and "3 of 6 measured" in text and "here 3.1 % of a core · 146 MB" in text


async def test_the_sentence_below_is_whole_and_enter_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rack((80, 24), monkeypatch) as one:
        text = " ".join((await one.press("down", "down", "down")).split())
        assert f"hv-4: {SUDO}. Leave (q) and start again" in text
        text = " ".join((await one.press("down")).split())
        assert "hv-5: no answer from the host (timed out): \\x1b[2J check that" in text and "Enter: now" in text
        assert "hv-5: connecting…" in await one.press("enter")
        assert one.machines[4].begun == 1


async def test_enter_opens_a_host_and_esc_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rack((120, 40), monkeypatch) as one:
        text = await one.press("enter")
        assert "STANDS OUT" in text and "Esc hosts" in text and "Hosts ·" not in text
        assert "Queues" in await one.press("5")
        await one.press("slash", *"eth1", "enter")
        assert "Hosts ·" not in await one.press("escape"), "the first Esc takes the filter away"
        assert "Hosts · 3 of 6 measured" in await one.press("escape")
        assert isinstance(one.app.screen, RackScreen)
        text = await one.press("down", "enter")
        assert "nothing" in text and "FULL_RING" not in text, "that is another host"
        await one.press("h", "up", "enter")
        assert one.app.main.current == "queues", "the first one is where it was left"


async def test_enter_on_an_incident_opens_its_page_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rack((120, 40), monkeypatch) as one:
        text = await one.press("tab", "down", "enter")
        assert "iperf3" in text and "Esc q back" in text
        assert "Esc hosts" in await one.press("escape")
        assert "Hosts ·" in await one.press("escape")


async def test_what_acts_on_a_host_needs_one_that_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rack((120, 40), monkeypatch) as one:
        before = await one.text()
        assert await one.press("i", "x", "v", "Z", "y", "p", "w", "e", "s", "b") == before
        assert "One line for each host" in await one.press("question_mark")
        assert "Hosts ·" in await one.press("escape")
        titles = {entry.name for entry in one.app.findable(one.app.screen)}
        assert titles == {"Screenshot", "Help", "Quit"}


async def test_a_host_that_comes_later_gets_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rack((120, 40), monkeypatch) as one:
        late = one.machines[5]
        late.session.play(host(12))
        late.measure()
        assert "4 of 6 measured" in await one.text()
        assert "netconsole: hv-6: watched for" in one.app.farewell(0.0)


async def test_what_was_said_of_a_host_is_shown_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rack((120, 40), monkeypatch) as one:
        await one.press("enter")
        other = one.app._met["root@hv-2:2222"]
        one.app.say_of(other, "kernel_drops: lowered", "look")
        assert "lowered" not in await one.text()
        await one.press("escape", "down", "enter")
        assert "kernel_drops: lowered" in await one.text()
