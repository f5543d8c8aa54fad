"""A threshold arms details of what crossed it alone, for a time and a budget; what was around it is kept."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from netconsole.base.errors import BadInput, Unable
from netconsole.base.fact_keys import FactData
from netconsole.budget.enforcer import Enforcer
from netconsole.cli.main import run
from netconsole.escalation import namespaces
from netconsole.escalation.crossings import focus, worst
from netconsole.escalation.escalator import Escalator
from netconsole.far.address import Address
from netconsole.far.host import ThisHost
from netconsole.host import identity
from netconsole.probes.catalogue import shipped
from netconsole.profile.escalation_rules import SUFFIX, Escalation
from netconsole.profile.loader import load_file
from netconsole.profile.profile import Budget, ProbeChoice, Profile
from netconsole.recording.flight_recorder import MAX_WEIGHT, FlightRecorder
from netconsole.recording.reader import Recording
from netconsole.recording.recorder import describe
from netconsole.telemetry import frames
from netconsole.telemetry.request import ProbeRequest
from netconsole.telemetry.session import News
from netconsole.telemetry.state import State
from tests.support.stamp import Stamp

NAME = "kernel_drops"
MANIFESTS = {name: shipped(name) for name in (NAME, "tx_queue_latency")}
RULE = Escalation(NAME, "drops", "count", None, 100.0, {"reason": ("FULL_RING",)}, for_s=3.0, keep_s=2.0, pause_s=10.0)
LATE = Escalation("tx_queue_latency", "wait", "", 99.0, 1_000_000.0)
PROFILE = Profile("night", probes={NAME: ProbeChoice()}, escalations=[RULE])
SECOND_NS = 1_000_000_000
FACTS = {"vm/web/net/0/tap": FactData("tap0", "/proc")}
LABELS = {"device": "tap0", "netns": "4026532007", "reason": "FULL_RING", "protocol": "UDP"}


class FakeSession:
    """Does what it is told, in frames of its own."""

    def __init__(self) -> None:
        self.state = State()
        self.loaded: list[ProbeRequest] = []
        self.unloaded: list[tuple[str, str | None]] = []
        self._sinks: list[FlightRecorder] = []
        self._news: list[Callable[[News], None]] = []
        self._seq = 0
        self.now_ns = SECOND_NS
        self.status(NAME, "attached", "summary")

    def frame(self, kind: type[frames.AnyFrame], **values: Any) -> None:
        self._seq += 1
        made = kind(seq=self._seq, wall_ns=self.now_ns, mono_ns=self.now_ns, **values)
        for sink in self._sinks:
            sink.take(self.state, [made])
        self.state.apply(made)

    def status(self, probe: str, state: str, mode: str) -> None:
        self.frame(frames.Status, probe=probe, state=state, mode=mode)

    def second(self, drops: int = 0, pct: float = 0.1, labels: Mapping[str, object] = LABELS) -> None:
        """An interval with so many drops."""
        self.now_ns += SECOND_NS
        row = frames.Row(labels=dict(labels), counts={"count": frames.Count(drops, drops)})  # type: ignore[arg-type]
        for probe in [name for name, one in self.state.probes.items() if one.measuring]:
            self.frame(frames.Table, probe=probe, name="drops", interval_ns=SECOND_NS, full=False, rows=[row])
            window = frames.Statistics(window_ns=SECOND_NS, interval_ns=SECOND_NS, estimated=False)
            program = frames.Program("drop", "here", 1, round(pct / 100 * SECOND_NS), 0)
            self.frame(frames.Cost, probe=probe, interval_ns=SECOND_NS, programs=[program], statistics=window)
        self.frame(frames.Cost, interval_ns=SECOND_NS)
        for callback in self._news:
            callback("interval")

    @contextlib.contextmanager
    def view(self) -> Iterator[State]:
        yield self.state

    def on_news(self, callback: Callable[[News], None]) -> None:
        self._news.append(callback)

    def attach(self, sink: FlightRecorder) -> None:
        self._sinks.append(sink)

    def load(self, request: ProbeRequest, why: str | None = None) -> Future[None]:
        self.loaded.append(request)
        self.status(request.name, "attached", request.mode)
        return self._done()

    def unload(self, probe: str, why: str | None = None) -> Future[None]:
        self.unloaded.append((probe, why))
        self.status(probe, "off", "details")
        return self._done()

    def sample_often(self, is_often: bool) -> None:
        pass

    def bound(self, kernel_cpu_pct: float | None) -> None:
        pass

    def say_action(self, *_: object) -> None:
        pass

    def _done(self) -> Future[None]:
        future: Future[None] = Future()
        future.set_result(None)
        return future


def started(tmp_path: Path, profile: Profile = PROFILE) -> tuple[FakeSession, Enforcer, Escalator]:
    session = FakeSession()
    enforcer = Enforcer(session, profile, MANIFESTS)  # type: ignore[arg-type]
    escalator = Escalator(session, enforcer, MANIFESTS, tmp_path, read_facts=lambda: FACTS)  # type: ignore[arg-type]
    escalator.start()
    enforcer.start()
    session.second()
    return session, enforcer, escalator


def test_a_crossing_arms_details_of_that_device_and_steps_back_after_its_time(tmp_path: Path) -> None:
    session, enforcer, escalator = started(tmp_path)
    session.second(drops=100)
    assert not session.loaded, "at the threshold is not over it"
    session.second(drops=200)
    (request,) = session.loaded
    assert (request.name, request.mode) == (NAME + SUFFIX, "details")
    assert request.kernel_cpu_pct == RULE.kernel_cpu_pct == 1.0, "the kernel itself keeps them to that"
    assert {name: request.knobs[name] for name in ("device", "netns", "protocol", "events_per_s")} == {
        "device": "tap0",
        "netns": 4026532007,
        "protocol": "udp",
        "events_per_s": 50.0,
    }
    for _ in range(3):
        session.second(drops=200)
    assert not session.unloaded, "the first of these saw them run"
    session.second(drops=200)
    assert session.unloaded == [(NAME + SUFFIX, "details ended: the 3 s are over")]
    for _ in range(4):
        session.second(drops=200)
    escalator.close()
    (snapshot,) = tmp_path.glob("*.json")
    document = json.loads(snapshot.read_text())
    assert document["probes"][NAME + SUFFIX]["mode"] == "details" and "tap0 FULL_RING: 200/s" in document["note"]
    recording = Recording(snapshot.with_suffix(".ncrec"))
    assert recording.begin.mono_ns <= 2 * SECOND_NS < recording.end.mono_ns, "also what was before it"
    assert recording.header.facts == FACTS and document["facts"]["vm/web/net/0/tap"]["value"] == "tap0"
    recording.close()
    told = [action.action for action in enforcer.actions]
    assert told[0].startswith("details of device=tap0") and told[1] == "details ended" and "snapshot" in told[2]
    assert len(session.loaded) == 1, "it pauses"


def test_after_its_pause_it_arms_again(tmp_path: Path) -> None:
    session, _, escalator = started(tmp_path)
    session.second(drops=200)
    for _ in range(15):
        session.second(drops=200)
    assert len(session.loaded) == 2
    escalator.close()


@pytest.mark.parametrize(
    ("pct", "budget", "why"), [(1.5, 50.0, "the limit is 1 %"), (0.9, 1.0, "the budget is exceeded")]
)
def test_details_end_early_above_their_own_budget_and_before_anything_else_is_given_up(
    pct: float, budget: float, why: str, tmp_path: Path
) -> None:
    profile = Profile(
        "night", budget=Budget(kernel_cpu_pct=budget, action="degrade"), probes=PROFILE.probes, escalations=[RULE]
    )
    session, enforcer, escalator = started(tmp_path, profile)
    session.second(drops=200, pct=0.1)
    for _ in range(2):
        session.second(drops=200, pct=pct)
    assert why in str(session.unloaded[0][1])
    assert not enforcer.lowered
    escalator.close()


def test_what_names_no_device_is_not_armed(tmp_path: Path) -> None:
    session, enforcer, escalator = started(tmp_path)
    session.second(drops=200, labels={"device": "", "netns": None, "reason": "FULL_RING", "protocol": "UDP"})
    assert not session.loaded and "no device or flow" in enforcer.actions[0].because
    escalator.close()


def test_without_rules_nothing_is_watched(tmp_path: Path) -> None:
    session, enforcer, escalator = started(tmp_path, Profile("plain", probes=PROFILE.probes))
    session.second(drops=10_000)
    assert not session.loaded and not enforcer.actions
    escalator.close()


def test_a_row_narrows_as_far_as_it_names_something() -> None:
    knobs = MANIFESTS[NAME].knobs
    assert focus((("address", "192.0.2.1"), ("port", 53)), knobs, lambda _: None) == {
        "address": "192.0.2.1",
        "port": 53,
    }
    assert focus((("device", "x" * 40),), knobs, lambda _: None) is None, "no name of a device"
    assert focus((("protocol", "TCP"),), knobs, lambda _: None) is None


def test_a_percentile_crosses_too() -> None:
    state = State()
    stamp: Stamp = {"seq": 1, "mono_ns": SECOND_NS, "wall_ns": 0}
    state.apply(frames.Status(**stamp, probe="tx_queue_latency", state="attached", mode="summary"))
    for device, index in (("eth0", 200), ("eth1", 20)):
        buckets = frames.Buckets(100, 1, 1, 10**9, [(index, 100)])
        labels: dict[str, frames.Label] = {"device": device, "queue": 3}
        state.apply(
            frames.Histogram(
                **stamp, probe="tx_queue_latency", name="wait", interval_ns=SECOND_NS, unit="ns", labels=labels,
                delta=buckets, total=buckets,
            )
        )  # fmt: skip
    crossing = worst(state, LATE)
    assert crossing is not None and dict(crossing.labels)["device"] == "eth0"
    assert "eth0 queue 3: p99" in crossing.says


def test_the_flight_recorder_keeps_so_many_seconds_and_no_more_than_it_has_room_for(tmp_path: Path) -> None:
    flight, state = FlightRecorder(10.0), State()
    for second in range(1, 60):
        stamp: Stamp = {"seq": second, "mono_ns": second * SECOND_NS, "wall_ns": second}
        batch: list[frames.AnyFrame] = [frames.Cost(**stamp, interval_ns=SECOND_NS)]
        flight.take(state, batch)
        state.apply(batch[0])
    flight.write(tmp_path / "a.ncrec", describe(PROFILE, {}, MANIFESTS, identity.describe()))
    recording = Recording(tmp_path / "a.ncrec")
    assert 10 <= (recording.end.mono_ns - recording.begin.mono_ns) / SECOND_NS <= 15
    recording.close()
    rows = [frames.Row(labels={"n": n}, counts={}) for n in range(MAX_WEIGHT // 10)]
    flight.hold()
    for second in range(60, 90):
        stamp = {"seq": second, "mono_ns": second * SECOND_NS, "wall_ns": second}
        flight.take(state, [frames.Table(**stamp, name="t", interval_ns=SECOND_NS, full=True, rows=rows)])
        assert flight.weight <= MAX_WEIGHT
    assert flight.was_cut


def test_every_mistake_of_a_rule_is_in_one_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("""
[budget]
events_per_s = 10
[probes.kernel_drops]
mode = "summary"
[[escalate]]
probe = "kernel_dops"
[[escalate]]
probe = "kernel_drops"
table = "drops"
value = "coont"
for = "5 minutes"
where = { colour = "red" }
[[escalate]]
probe = "tx_queue_latency"
histogram = "wait"
value = "count"
over = 1
events_per_s = 20
""")
    with pytest.raises(BadInput) as error:
        load_file(path, MANIFESTS)
    found = str(error.value)
    for part in (
        'did you mean "kernel_drops"',
        'escalate[1].value: expected one of count, found "coont"',
        "escalate[1].over: missing",
        "escalate[1].for: expected a time",
        "escalate[1].where.colour: unknown label",
        "escalate[2].probe: tx_queue_latency does not run in this profile",
        "escalate[2].value: contradicts histogram",
        "escalate[2].events_per_s: contradicts budget.events_per_s = 10: details may take 20",
    ):
        assert part in found
    assert run(["profiles", "check", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == len(error.value.problems) >= 8


QUIET = Profile("summary", budget=Budget(events_per_s=0.0, action="degrade"), probes={NAME: ProbeChoice()})
KEY = tuple(sorted(LABELS.items()))


def test_what_the_user_investigates_is_of_that_row_alone_and_ends_after_its_time(tmp_path: Path) -> None:
    session, _, escalator = started(tmp_path, QUIET)
    limits = "30 s, at most 50 samples/s and 1 % of a core"
    said = escalator.investigate(NAME, KEY)
    assert said == f"{limits}: investigating device=tap0 netns=4026532007 protocol=udp; i ends it"
    (request,) = session.loaded
    assert (request.mode, request.knobs["device"], request.knobs["events_per_s"]) == ("details", "tap0", 50.0)
    assert request.kernel_cpu_pct == 1.0
    fields = {"device": "tap0", "source": "192.0.2.1", "source_port": 9, "target": "192.0.2.2", "target_port": 53}
    for reason in ("FULL_RING", "FULL_RING", "NO_SOCKET"):
        session.frame(frames.Event, probe=NAME + SUFFIX, name="drop", fields={**fields, "reason": reason})
    for _ in range(30):
        session.second(drops=200)
    assert not session.unloaded, "the first of these saw it run"
    session.second(drops=200)
    assert session.unloaded == [(NAME + SUFFIX, "details ended: the 30 s are over")]
    one = escalator.investigation
    assert one is not None and (one.samples, one.others, one.why) == (2, 1, "the 30 s are over")
    assert one.groups["flow"] == {"192.0.2.1:9 → 192.0.2.2:53": 2} and one.groups["port"] == {"53": 2}
    escalator.close()
    assert list(tmp_path.iterdir()) == [], "it writes no files"


def test_the_governor_and_an_investigation_do_not_fight(tmp_path: Path) -> None:
    session, enforcer, escalator = started(tmp_path, QUIET)
    escalator.investigate(NAME, KEY)
    for _ in range(5):
        count = frames.Count(delta=40, total=200)
        session.frame(frames.Cost, probe=NAME + SUFFIX, interval_ns=SECOND_NS, events={"submitted": count})
        session.second(drops=200)
    assert not session.unloaded and not enforcer.lowered
    assert not escalator.end_details("the budget is exceeded")


def test_asked_again_an_investigation_ends_and_another_one_has_to_wait(tmp_path: Path) -> None:
    session, _, escalator = started(tmp_path, QUIET)
    escalator.investigate(NAME, KEY)
    with pytest.raises(Unable, match="details of tap0 FULL_RING run already"):
        escalator.investigate(NAME, (("device", "tap1"),))
    assert "ended" in escalator.investigate(NAME, KEY)
    assert session.unloaded == [(NAME + SUFFIX, "details ended: you ended it")]
    assert "tap1" in escalator.investigate(NAME, (("device", "tap1"),))
    with pytest.raises(Unable, match="has no mode details"):
        escalator.investigate("link_rates", KEY)


class StalledHost(ThisHost):
    """A far host that answers when it is let."""

    address = Address("far")  # type: ignore[assignment]


def test_a_far_host_that_does_not_answer_holds_up_no_interval(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers, asked = threading.Event(), threading.Semaphore(0)

    def inode(host: object, name: str) -> int:
        asked.release()
        assert answers.wait(60)
        return 77

    monkeypatch.setattr(namespaces, "namespace_inode", inode)
    session = FakeSession()
    enforcer = Enforcer(session, PROFILE, MANIFESTS)  # type: ignore[arg-type]
    escalator = Escalator(session, enforcer, MANIFESTS, tmp_path, StalledHost())  # type: ignore[arg-type]
    escalator.start()
    there = {**LABELS, "netns": "red"}
    session.second(200, labels=there)
    assert asked.acquire(timeout=60)
    session.second(200, labels=there)
    assert session.loaded == [] and not asked.acquire(blocking=False)
    answers.set()
    for thread in threading.enumerate():
        if thread.name == "namespace":
            thread.join(60)
    session.second(200, labels=there)
    assert session.loaded[0].knobs["netns"] == 77
    assert "netns=red " in enforcer.actions[-1].action
    escalator.close()
