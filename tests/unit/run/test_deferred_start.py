"""Dear probes of the first glance: they start behind the open console, as far as the budget has room for them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from netconsole.base.errors import Unable
from netconsole.budget import forecaster
from netconsole.budget.forecast import HookRates, forecast
from netconsole.budget.forecaster import Forecasts
from netconsole.far.host import AnyHost
from netconsole.probes import catalogue
from netconsole.probes.manifest import Manifest
from netconsole.profile.loader import load
from netconsole.profile.plan import plan
from netconsole.profile.profile import Budget, ProbeChoice, Profile
from netconsole.run import assembly
from netconsole.run.preflight import RunPlan, defer_expensive
from netconsole.telemetry.action import BudgetAction
from netconsole.telemetry.frames import Mode, ProbeStatus, Scalar
from netconsole.telemetry.request import ProbeRequest
from netconsole.telemetry.session import News
from netconsole.telemetry.state import State

LIMIT_S = 300.0
MANIFESTS = catalogue.load_all([Path(__file__).parents[3] / "probes"])
QUEUES, RINGS = "vhost_queues", "tun_queues"


class FakeSession:
    """What the collector's part would be: it remembers what was loaded and said."""

    def __init__(self) -> None:
        self.state = State()
        self.said: dict[str, tuple[ProbeStatus, str | None]] = {}
        self.loaded: list[str] = []
        self.done = threading.Event()
        self.news: Callable[[News], None] = lambda _: None

    @contextlib.contextmanager
    def view(self) -> Iterator[State]:
        yield self.state

    def on_news(self, callback: Callable[[News], None]) -> None:
        self.news = callback

    def say(self, probe: str, state: ProbeStatus, mode: Mode, why: str | None = None, help: str | None = None) -> None:
        self.said[probe] = (state, why)
        self._ended()

    def load(self, request: ProbeRequest) -> Future[None]:
        self.loaded.append(request.name)
        self._ended()
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _ended(self) -> None:
        off = [name for name, (state, _) in self.said.items() if state == "off"]
        if len(self.loaded) + len(off) == len(self.said):
            self.done.set()


class FakeGoverning:
    """Remembers what it was told; its budget has room for 10 % of a core."""

    def __init__(self) -> None:
        self.profile = Profile("summary", budget=Budget(kernel_cpu_pct=10.0))
        self.told: list[BudgetAction] = []
        self.left_out: dict[str, str] = {}

    def note(self, action: BudgetAction) -> None:
        self.told.append(action)

    def leave_out(self, because: dict[str, str]) -> None:
        self.left_out = dict(because)


def begun(
    monkeypatch: pytest.MonkeyPatch, costs: dict[str, float] | None, knobs: Mapping[str, Scalar] | None = None
) -> tuple[FakeSession, FakeGoverning]:
    """Two probes that will cost so much; None: nobody can tell."""

    def forecast_now(wanted: list[tuple[Manifest, Mode]], host: AnyHost) -> Forecasts:
        if costs is None:
            raise Unable("no BPF here")
        made = [forecast(manifest, mode, HookRates({}), None) for manifest, mode in wanted]
        return Forecasts([replace(one, by_cpu={0: costs[one.probe]}) for one in made], None)

    monkeypatch.setattr(forecaster, "forecast_now", forecast_now)
    session, enforcer = FakeSession(), FakeGoverning()
    requests = [ProbeRequest(QUEUES, knobs=knobs or {}), ProbeRequest(RINGS)]
    one = assembly.DeferredStart(session, enforcer, MANIFESTS, requests)  # type: ignore[arg-type]
    one.start()
    assert set(session.said.values()) == {("compiling", None)}
    session.news("status")
    session.news("interval")  # once is enough
    assert session.done.wait(LIMIT_S)
    return session, enforcer


def test_what_fits_is_started_and_its_forecast_told(monkeypatch: pytest.MonkeyPatch) -> None:
    session, enforcer = begun(monkeypatch, {QUEUES: 4.0, RINGS: 3.0})
    assert session.loaded == [QUEUES, RINGS]
    assert [(one.probe, one.action) for one in enforcer.told] == [(QUEUES, "forecast"), (RINGS, "forecast")]


def test_a_share_of_the_time_costs_that_share(monkeypatch: pytest.MonkeyPatch) -> None:
    session, enforcer = begun(monkeypatch, {QUEUES: 90.0, RINGS: 3.0}, {"seen_pct": 5})
    assert session.loaded == [QUEUES, RINGS] and not enforcer.left_out


def test_the_dearest_that_does_not_fit_is_off_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    session, enforcer = begun(monkeypatch, {QUEUES: 9.0, RINGS: 3.0})
    assert session.loaded == [RINGS]
    state, why = session.said[QUEUES]
    assert state == "off"
    assert (why or "").startswith("not started: vhost_queues in summary: ")
    assert list(enforcer.left_out) == [QUEUES]


def test_where_nothing_can_be_forecast_all_start(monkeypatch: pytest.MonkeyPatch) -> None:
    session, enforcer = begun(monkeypatch, None)
    assert session.loaded == [QUEUES, RINGS]
    assert [(one.action, one.because) for one in enforcer.told] == [("no forecast", "no BPF here")]


def test_only_summaries_that_nobody_named_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netconsole.host.identity.shows_module", lambda name: name in ("vhost_net", "tun"))
    profile = load("summary", MANIFESTS)
    requests = plan(profile, MANIFESTS)
    assert {one.name for one in defer_expensive(RunPlan(profile, MANIFESTS, requests))} == {QUEUES, RINGS}
    assert {one.name for one in defer_expensive(RunPlan(profile, MANIFESTS, requests, [QUEUES]))} == {RINGS}
    own = Profile("mine", probes={QUEUES: ProbeChoice("summary")}, stated=frozenset({f"probes.{QUEUES}.mode"}))
    assert defer_expensive(RunPlan(own, MANIFESTS, plan(own, MANIFESTS))) == []
