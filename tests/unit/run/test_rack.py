"""Several far hosts: who is late, asks or fails holds up nobody; questions come one after another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from netconsole.base.errors import BadInput, Unable
from netconsole.far.troubles import NeedsAnswer
from netconsole.profile.profile import Profile
from netconsole.run import rack as module
from netconsole.run.preflight import RunPlan
from netconsole.run.rack import MAX_HOSTS, Rack

PLAN = RunPlan(Profile("summary"), {}, ())
LIMIT_S = 30.0
Way = Callable[[bool], None]


class Hosts:
    """What entering each host does, by its name, in place of ssh; what has been closed."""

    def __init__(self) -> None:
        self.ways: dict[str, Way] = {}
        self.asked: list[str] = []
        self.closed: list[str] = []
        self.tried: list[str] = []

    def approach(self, text: str, may_ask: bool) -> Any:
        name = text.removeprefix("ssh://")

        def enter(_modules: Sequence[str]) -> Any:
            self.tried.append(name)
            if may_ask:
                self.asked.append(name)
            way = self.ways.get(name)
            if way is not None:
                way(may_ask)
            return SimpleNamespace(name=name)

        return SimpleNamespace(enter=enter, close=lambda: self.closed.append(name))


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Hosts:
    made = Hosts()

    @contextmanager
    def open_run(_plan: RunPlan, way: Any, **_options: Any) -> Any:
        host = way.enter(())
        try:
            yield SimpleNamespace(start=lambda: None)
        finally:
            made.closed.append(f"run of {host.name}")

    monkeypatch.setattr(module, "Approach", made.approach)
    monkeypatch.setattr(module, "open_run", open_run)
    return made


def phases(rack: Rack) -> list[str]:
    return [host.phase for host in rack.hosts]


def refuse(error: Exception) -> Way:
    def way(_may_ask: bool) -> None:
        raise error

    return way


def wait_for(gate: threading.Event, waits: threading.Event | None = None) -> Way:
    """``waits`` is set when it does."""

    def way(_may_ask: bool) -> None:
        if waits is not None:
            waits.set()
        gate.wait(LIMIT_S)

    return way


def opened(*names: str, patience_s: float = LIMIT_S) -> tuple[Rack, list[str]]:
    said: list[str] = []
    rack = Rack([f"ssh://{name}" for name in names], PLAN)
    rack.open(said.append, patience_s)
    return rack, said


def test_all_are_measured_and_closed(hosts: Hosts) -> None:
    rack, said = opened("a", "b")
    assert phases(rack) == ["measured", "measured"] and said == []
    rack.close()
    assert sorted(hosts.closed) == ["a", "b", "run of a", "run of b"]


def test_one_that_is_late_holds_up_nobody(hosts: Hosts) -> None:
    gate = threading.Event()
    hosts.ways["late"] = wait_for(gate)
    rack, _ = opened("a", "late", patience_s=0.2)
    assert phases(rack)[1] == "connecting"
    come = threading.Event()
    rack.on_change(lambda: come.set() if rack.hosts[1].phase == "measured" else None)
    gate.set()
    assert come.wait(LIMIT_S)
    rack.close()


@pytest.mark.parametrize(
    "error", [Unable("ssh://bad: no such host"), KeyError("nonsense"), ValueError("what it says\x1b[2J")]
)
def test_one_that_fails_says_so_on_its_own_line(hosts: Hosts, error: Exception) -> None:
    hosts.ways["bad"] = refuse(error)
    rack, _ = opened("bad", "a")
    assert phases(rack) == ["refused", "measured"]
    why = rack.hosts[0].why
    assert "\x1b" not in why and not why.startswith("ssh://") and why
    rack.close()


def test_questions_come_one_after_another_and_each_is_announced(hosts: Hosts) -> None:
    busy = threading.Lock()

    def asks(may_ask: bool) -> None:
        if not may_ask:
            raise NeedsAnswer("sudo there asks for a password")
        assert threading.current_thread() is threading.main_thread()
        assert busy.acquire(blocking=False), "another question is open"
        busy.release()

    hosts.ways["b"] = hosts.ways["c"] = asks
    rack, said = opened("a", "b", "c")
    assert phases(rack) == ["measured"] * 3
    assert sorted(hosts.asked) == ["b", "c"] and said == [f"{name} asks:" for name in hosts.asked]  # as they come
    rack.close()


def test_who_asks_when_the_screen_is_open_is_not_asked(hosts: Hosts) -> None:
    gate = threading.Event()

    def asks_late(_may_ask: bool) -> None:
        gate.wait(LIMIT_S)
        raise NeedsAnswer("ssh://late: sudo there asks for a password")

    hosts.ways["late"] = asks_late
    rack, said = opened("a", "late", patience_s=0.2)
    come = threading.Event()
    rack.on_change(lambda: come.set() if rack.hosts[1].phase == "asks" else None)
    gate.set()
    assert come.wait(LIMIT_S) and rack.hosts[1].why == "sudo there asks for a password"
    assert said == [] and hosts.asked == []
    rack.close()


def test_a_refused_one_is_tried_again_when_it_is_asked_for(hosts: Hosts) -> None:
    hosts.ways["bad"] = refuse(Unable("nothing answers"))
    rack, _ = opened("bad")
    assert phases(rack) == ["refused"]
    come = threading.Event()
    rack.on_change(lambda: come.set() if rack.hosts[0].phase == "measured" else None)
    hosts.ways.clear()
    rack.hosts[0].begin()
    assert come.wait(LIMIT_S)
    rack.hosts[0].begin()
    rack.close()
    assert hosts.tried == ["bad", "bad"] and hosts.closed.count("run of bad") == 1


def test_one_that_is_entered_after_the_end_is_closed_again(hosts: Hosts) -> None:
    gate, waits, left = threading.Event(), threading.Event(), threading.Event()
    hosts.ways["late"] = wait_for(gate, waits)
    rack, _ = opened("late", patience_s=0.1)
    rack.on_change(lambda: left.set() if rack.hosts[0].phase == "refused" else None)
    assert waits.wait(LIMIT_S)
    rack.close()
    gate.set()
    assert left.wait(LIMIT_S)
    assert "run of late" in hosts.closed and rack.hosts[0].run is None


def test_no_host_is_given_twice_and_a_rack_is_no_fleet() -> None:
    with pytest.raises(BadInput, match="ssh://a is given twice"):
        Rack(["ssh://a", "ssh://b", "ssh://a"], PLAN)
    with pytest.raises(BadInput, match=f"at most {MAX_HOSTS} hosts"):
        Rack([f"ssh://hv-{number}" for number in range(MAX_HOSTS + 1)], PLAN)
    with pytest.raises(BadInput, match="expected ssh://"):
        Rack(["ssh://a", "b"], PLAN)
