"""An empty pane says what Enter starts, forecasts it, starts it, and ends it when its time is over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from netconsole.base.errors import Unable
from netconsole.probes.catalogue import load_all
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import ProbeChoice, Profile
from netconsole.telemetry.frames import Mode, Scalar
from netconsole.tui import start_probe
from netconsole.tui.app import ConsoleApp
from netconsole.tui.host_view import WatchedHost
from tests.support.tui.played import PROFILE, PlayedSession
from tests.support.tui.running import Running
from tests.support.tui.scenes import host


@dataclass
class Started:
    """An enforcer that starts everything, and forecasts what it is told to."""

    above: str | None = None
    refusal: str = ""
    begun: list[tuple[str, Mode | str, Mapping[str, Scalar]]] = field(default_factory=list)
    read: int = 0
    actions: tuple[()] = ()
    pinned: frozenset[str] = frozenset()
    lowered: tuple[()] = ()
    profile: Profile = PROFILE

    def forecast_now(self, manifest: Manifest, _mode: Mode, _knobs: Mapping[str, Scalar]) -> tuple[str, str | None]:
        return f"{manifest.name} in summary: at least 134 ns a run", self.above

    def begin(self, manifest: Manifest, wanted: ProbeChoice) -> Future[None]:
        if self.refusal:
            raise Unable(self.refusal)
        self.begun.append((manifest.name, wanted.mode, wanted.knobs))
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def is_read(self) -> None:
        self.read += 1

    def governs(self, _probe: str) -> bool:
        return False


@asynccontextmanager
async def with_empty_panes(enforcer: Started) -> AsyncIterator[Running]:
    session = PlayedSession(host(12))
    app = ConsoleApp(WatchedHost(session, PROFILE, load_all()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        one = Running(app, pilot, session)
        await one.play(3)
        app.watched.enforcer = enforcer  # type: ignore[assignment]
        await one.press("0")  # a pane knows that it is empty when it was drawn once
        yield one


async def test_the_governor_knows_when_somebody_looks_through_the_console() -> None:
    enforcer = Started()
    async with with_empty_panes(enforcer) as one:
        before = enforcer.read
        await one.play(2)
        assert enforcer.read == before, "drawing by itself is not reading"
        await one.press("4", "down")
        assert enforcer.read > before


async def test_an_empty_pane_says_what_enter_starts_and_enter_starts_it() -> None:
    enforcer = Started()
    async with with_empty_panes(enforcer) as one:
        text = await one.play()
        assert "Enter starts flow_top for 10 min, and says what it costs." in text
        text = await one.press("enter")
        assert enforcer.begun == [("flow_top", "summary", {})]
        assert "flow_top runs for 10 min: at least 134 ns a run" in text


async def test_what_exceeds_the_budget_needs_a_second_press() -> None:
    enforcer = Started(above="kernel time 12 % of 5 %")
    async with with_empty_panes(enforcer) as one:
        text = await one.press("enter")
        assert "over the budget: kernel time 12 % of 5 %; Enter again starts it anyway" in text
        assert enforcer.begun == []
        await one.press("enter")
        assert [name for name, *_ in enforcer.begun] == ["flow_top"]


async def test_a_refusal_is_said() -> None:
    async with with_empty_panes(Started(refusal="needs root")) as one:
        assert "refused: needs root" in await one.press("enter")


async def test_it_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_probe, "FOR_S", 0.01)
    async with with_empty_panes(Started()) as one:
        await one.press("enter")
        while "flow_top was stopped" not in one.text():
            await one.pilot.pause(0.01)
        assert one.session.asked == [("flow_top", "off", None)]


async def test_a_pane_with_figures_keeps_its_enter() -> None:
    enforcer = Started()
    async with with_empty_panes(enforcer) as one:
        await one.press("1", "enter")
        assert enforcer.begun == [] and one.app.screen is not one.main
