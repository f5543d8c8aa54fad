"""The wizard's ping: who cannot be entered or cannot watch says so, the others go on, and each ends with a document."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from netconsole.base.errors import Unable
from netconsole.ping.capture import Role
from netconsole.ping.echo_log import EchoLog
from netconsole.ping.vantage import VANTAGE_POINTS, Between
from netconsole.run import ping_capture, ping_run, ping_watch
from netconsole.run.ping_capture import VantageRun
from netconsole.run.ping_plan import PingPlan, PingTraffic, PlannedPoint
from netconsole.run.ping_watch import PingWatch
from netconsole.sources.ping_ends import PingEnd
from netconsole.telemetry.frames import ProbeStatus
from netconsole.telemetry.session import Connection, Phase
from netconsole.telemetry.state import ProbeState, State

LIMIT_S = 30.0
FAR = "ssh://far"


class Watched:
    """In place of a session whose probe has this state."""

    def __init__(self, role: Role, status: ProbeStatus) -> None:
        self.phase: Phase = "live"
        self.closed = False
        self.state = State()
        name = VANTAGE_POINTS[role].probe
        self.state.probes[name] = ProbeState(name, "collector", status, attach=["raw_tracepoint:x"])

    @contextlib.contextmanager
    def view(self) -> Iterator[State]:
        yield self.state

    def connection(self) -> Connection:
        return Connection(self.phase)

    def settled(self) -> bool:
        return True

    def on_news(self, _heard: object) -> None: ...
    def attach(self, _log: object) -> None: ...
    def start(self) -> None: ...
    def close(self) -> None:
        self.closed = True


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> dict[Role, Watched]:
    """By vantage point; that of the sender's host watches, that of the receiver's cannot."""
    made: dict[Role, Watched] = {
        "sender-host": Watched("sender-host", "attached"),
        "receiver-host": Watched("receiver-host", "unsupported"),
    }

    def approach(place: str | None, may_ask: bool) -> Any:
        def enter(_modules: Sequence[str]) -> None:
            if place == FAR:
                raise Unable(f"{FAR}: ssh asks for a password")

        assert not may_ask
        return SimpleNamespace(enter=enter, close=lambda: None)

    def vantage_run(role: Role, between: Between, *_: object) -> VantageRun:
        session: Any = made[role]
        return VantageRun(role, between, session, EchoLog())

    monkeypatch.setattr(ping_watch, "Approach", approach)
    monkeypatch.setattr(ping_watch, "vantage_run", vantage_run)
    monkeypatch.setattr(ping_run, "collect", lambda _: {})
    monkeypatch.setattr(ping_capture, "LAST_INTERVAL_LIMIT_S", 0.01)
    return made


def watch(*points: tuple[Role, str], sent_at: str | None = None) -> PingWatch:
    end = PingEnd("192.0.2.1")
    made = PingPlan(end, end, "ping-1", PingTraffic(), sent_at=sent_at)
    made.points = [PlannedPoint(role, place, Between()) for role, place in points]
    watching = PingWatch(made, {})
    watching.start()
    return watching


def until(true: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(round(LIMIT_S / 0.01)):
        if true():
            return
        pause.wait(0.01)
    raise AssertionError("it takes too long")


def phases(watching: PingWatch) -> list[str]:
    return [one.phase for one in watching.progress()]


def test_one_that_is_not_reached_and_one_that_cannot_watch_hold_up_nobody(sessions: dict[Role, Watched]) -> None:
    watching = watch(("sender-host", "here"), ("receiver-host", "here"), ("receiver-vm", FAR))
    until(lambda: phases(watching) == ["watching", "failed", "failed"])
    whys = [one.why for one in watching.progress()]
    assert (
        whys[0] == "raw_tracepoint:x" and "echo_host cannot run" in whys[1] and whys[2].startswith(f"{FAR}: ssh asks")
    )
    assert watching.told == "netconsole sends nothing: somebody else pings" and not watching.is_over
    taken = watching.finish()
    assert list(taken) == ["sender-host"] and taken["sender-host"].run == "ping-1"
    assert phases(watching) == ["ended", "failed", "failed"]
    assert all(one.closed for one in sessions.values())


def test_it_is_over_when_none_goes_on(sessions: dict[Role, Watched]) -> None:
    watching = watch(("sender-host", "here"))
    until(lambda: phases(watching) == ["watching"])
    sessions["sender-host"].phase = "lost"
    until(lambda: watching.is_over)
    assert "the collector was lost" in " ".join(watching.finish()["sender-host"].notes)


def test_where_nobody_can_send_it_says_so_and_watches(sessions: dict[Role, Watched]) -> None:
    watching = watch(("sender-host", "here"), ("sender-vm", FAR), sent_at=FAR)
    until(lambda: phases(watching) == ["watching", "failed"] and "ping there by hand" in watching.told)
    watching.close()
    until(lambda: watching.is_over)


def test_where_nothing_can_watch_it_is_over(sessions: dict[Role, Watched]) -> None:
    watching = watch(("receiver-vm", FAR))
    until(lambda: watching.is_over)
    assert watching.finish() == {} and phases(watching) == ["failed"]
