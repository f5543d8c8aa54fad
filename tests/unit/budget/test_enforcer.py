"""Moves of the governor become commands of the session, with their reason; what the user does meanwhile counts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from netconsole.budget import enforcer as enforcer_module
from netconsole.budget.enforcer import Enforcer
from netconsole.budget.governor import OVERHEAD_AFTER
from netconsole.budget.sampling import OFTEN_S
from netconsole.probes.catalogue import shipped
from netconsole.profile import spending
from netconsole.profile.profile import Budget, ProbeChoice, Profile, ProfileMode
from netconsole.profile.spending import Limit
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Mode, Scalar
from netconsole.telemetry.request import ProbeRequest
from netconsole.telemetry.session import CommandError, News
from netconsole.telemetry.state import State

NAME = "kernel_drops"
MANIFEST = shipped(NAME)
DETAILS = {**MANIFEST.knobs, "events_per_s": 100}
PROFILE = Profile(
    "test", budget=Budget(kernel_cpu_pct=2.0, action="degrade"), probes={NAME: ProbeChoice("details", knobs=DETAILS)}
)
SUMMARY = replace(PROFILE, probes={NAME: ProbeChoice("summary", knobs=DETAILS)})
SECOND_NS = 1_000_000_000
RUN_NS = 150


class FakeSession:
    """Does what it is told at once, and says so in frames as the collector does."""

    def __init__(self) -> None:
        self.state = State()
        self.done: list[tuple[str, str | None, str | None]] = []
        self.refuses = False
        self.is_slow = False
        self.is_often: list[bool] = []
        self.bounds: list[float | None] = []
        self.said: list[tuple[object, ...]] = []
        self._seq = 0
        self._news: list[Callable[[News], None]] = []
        self.status("attached", "details", DETAILS)

    def frame(self, kind: type[frames.AnyFrame], **values: Any) -> None:
        self._seq += 1
        self.state.apply(kind(seq=self._seq, wall_ns=0, **{"mono_ns": self.now_ns, **values}))

    now_ns = SECOND_NS

    def status(self, state: str, mode: str, knobs: Mapping[str, Scalar], why: str | None = None) -> None:
        self.frame(frames.Status, probe=NAME, state=state, mode=mode, knobs=dict(knobs), why=why)

    def second(self, kernel_pct: float, in_window: bool = True, drops: int = 0, taken_pct: float = 0.0) -> None:
        """An interval in which the probe cost so much, as a statistics window told if there was one, and counted.

        ``taken_pct``: of the CPU, while a run had it; it is measured with the run.
        """
        self.now_ns += SECOND_NS
        window = frames.Statistics(window_ns=SECOND_NS, interval_ns=SECOND_NS, estimated=False)
        run_time_ns = round(kernel_pct / 100 * SECOND_NS)
        runs = run_time_ns // RUN_NS
        run_time_ns += round(taken_pct / 100 * SECOND_NS)
        program = frames.Program(name="drop", attach="here", run_count=runs, run_time_ns=run_time_ns, missed=0)
        if not in_window:
            window, program = frames.Statistics(0, SECOND_NS, True), frames.Program("drop", "here", 0, 0, 0)
        if self.state.probes[NAME].measuring:
            values = {"drops": frames.Count(drops, drops)}
            self.frame(frames.Counters, probe=NAME, interval_ns=SECOND_NS, values=values)
            self.frame(frames.Cost, probe=NAME, interval_ns=SECOND_NS, programs=[program], statistics=window)
        self.end_interval()

    def measure_another(self) -> None:
        """A figure of a probe beside it."""
        window = frames.Statistics(window_ns=SECOND_NS, interval_ns=SECOND_NS, estimated=False)
        program = frames.Program(name="other", attach="there", run_count=1, run_time_ns=100, missed=0)
        self.frame(frames.Cost, probe="other", interval_ns=SECOND_NS, programs=[program], statistics=window)

    def end_interval(self) -> None:
        self.frame(frames.Cost, interval_ns=SECOND_NS)
        for callback in self._news:
            callback("interval")

    @contextlib.contextmanager
    def view(self) -> Iterator[State]:
        yield self.state

    def on_news(self, callback: Callable[[News], None]) -> None:
        self._news.append(callback)

    def sample_often(self, is_often: bool) -> None:
        self.is_often.append(is_often)

    def bound(self, kernel_cpu_pct: float | None) -> None:
        self.bounds.append(kernel_cpu_pct)

    def say_action(self, *action: object) -> None:
        self.said.append(action)

    def set(
        self, probe: str, mode: Mode | None = None, knobs: Mapping[str, Scalar] | None = None, why: str | None = None
    ) -> Future[None]:
        return self._do("set", mode, knobs, why)

    def reload(
        self, probe: str, mode: Mode | None = None, knobs: Mapping[str, Scalar] | None = None, why: str | None = None
    ) -> Future[None]:
        return self._do("reload", mode, knobs, why)

    def load(self, request: ProbeRequest, why: str | None = None) -> Future[None]:
        return self._do("load", request.mode, request.knobs, why)

    def unload(self, probe: str, why: str | None = None) -> Future[None]:
        return self._do("unload", None, None, why)

    def _do(self, what: str, mode: Mode | None, knobs: Mapping[str, Scalar] | None, why: str | None) -> Future[None]:
        self.done.append((what, mode, why))
        future: Future[None] = Future()
        if self.refuses:
            future.set_exception(CommandError("not today"))
            return future
        if self.is_slow:
            return future
        if what == "unload":
            self.status("off", self.state.probes[NAME].mode, {}, why)
        else:
            self.status("attached", mode or "summary", knobs or {}, why)
        future.set_result(None)
        return future


def governed(profile: Profile = PROFILE) -> tuple[FakeSession, Enforcer]:
    session = FakeSession()
    enforcer = Enforcer(session, profile, {NAME: MANIFEST})  # type: ignore[arg-type]
    enforcer.start()
    session.second(0.1)
    return session, enforcer


def test_an_excess_is_answered_with_a_command_that_says_why() -> None:
    session, enforcer = governed()
    session.second(3.0)
    ((what, mode, why),) = session.done
    assert (what, mode) == ("set", "counters")
    assert why is not None and "the limit is 2 %" in why and session.state.probes[NAME].why == why
    assert [(action.probe, action.measured, action.limit) for action in enforcer.actions] == [(NAME, 3.0, 2.0)]


def test_figures_that_were_looked_at_already_are_no_second_excess() -> None:
    session, _ = governed()
    session.second(2.1)
    assert len(session.done) == 1
    for _ in range(4):
        session.second(0.0, in_window=False)  # between two windows nothing is known
    assert len(session.done) == 1
    session.second(2.1)
    assert len(session.done) == 2


def test_a_run_whose_cpu_was_taken_away_is_measured_again_before_anything_is_given_up() -> None:
    session, _ = governed()
    session.second(1.0, taken_pct=18.0)
    assert not session.done
    session.second(3.0, taken_pct=18.0)
    assert [(what, mode) for what, mode, _ in session.done] == [("set", "counters")], "twice in a row is once too often"
    session.second(3.0, taken_pct=18.0)
    assert [(what, mode) for what, mode, _ in session.done[1:]] == [("unload", None)]


def test_what_was_detached_comes_back_a_rung_and_then_as_it_was_asked_for() -> None:
    session, _ = governed()
    session.second(100.0)
    session.second(100.0)
    assert [what for what, _, _ in session.done] == ["set", "unload"]
    for _ in range(11):
        session.second(0.0)
    assert [(what, mode) for what, mode, _ in session.done[2:]] == [("reload", "counters")]
    for _ in range(11):
        session.second(0.0)
    assert [(what, mode) for what, mode, _ in session.done[3:]] == [("set", "details")]
    assert session.state.probes[NAME].knobs == DETAILS
    assert session.state.probes[NAME].why is None, "what is as it was asked for needs no reason"


def test_the_user_undoes_and_pins_and_unpins() -> None:
    session, enforcer = governed()
    session.second(3.0)
    assert enforcer.toggle_pin(NAME) and enforcer.pinned == {NAME}
    assert session.state.probes[NAME].mode == "details"
    for _ in range(5):
        session.second(3.0)
    assert session.state.probes[NAME].mode == "details"
    assert any("pinned" in action.action and not action.probe for action in enforcer.actions)
    assert enforcer.toggle_pin(NAME) and not enforcer.pinned
    session.second(3.0)
    assert session.state.probes[NAME].mode == "counters"
    assert not enforcer.toggle_pin("nonsense")


def test_every_action_is_a_frame_whoever_it_is_of() -> None:
    session, enforcer = governed()
    session.second(3.0)
    enforcer.toggle_pin(NAME)
    for _ in range(5):
        session.second(3.0)
    enforcer.toggle_pin(NAME)
    enforcer.note(replace(enforcer.actions[-1], action="somebody else's"))
    told = [(one.probe, one.action, one.because, one.measured, one.limit) for one in enforcer.actions]
    assert session.said == told and len(told) >= 5
    assert {one[0] for one in told} == {NAME, ""}


def test_what_the_user_sets_is_what_it_comes_back_to() -> None:
    session, enforcer = governed()
    session.status("attached", "summary", {**DETAILS, "port": 53})
    session.second(0.1)
    assert enforcer.actions[-1].because == "the user changed it"
    session.second(3.0)
    assert session.state.probes[NAME].mode == "counters"
    for _ in range(11):
        session.second(0.0)
    assert session.state.probes[NAME].mode == "summary" and session.state.probes[NAME].knobs["port"] == 53


def test_a_jump_of_what_a_summary_counts_is_measured_at_once_and_not_for_ever() -> None:
    session, _ = governed(SUMMARY)
    session.status("attached", "summary", DETAILS)
    session.second(0.1, drops=5_000)
    assert session.is_often == [True, False], "there are no details any more"
    session.second(0.1, in_window=False, drops=5_000)
    session.second(0.1, in_window=False, drops=100_000)
    assert session.is_often == [True, False, True]
    assert not session.done, "an estimate is no reason to give anything up"
    session.second(3.0, drops=200_000)
    assert [what for what, _, _ in session.done] == ["set"]
    for _ in range(round(OFTEN_S)):
        session.second(1.5, drops=200_000)
    assert session.is_often == [True, False, True, False]


def test_where_nothing_is_given_up_nothing_has_to_be_measured_closely() -> None:
    session, _ = governed(replace(SUMMARY, budget=Budget(kernel_cpu_pct=2.0, action="warn")))
    session.status("attached", "summary", DETAILS)
    for drops in (5_000, 500_000):
        session.second(0.1, in_window=False, drops=drops)
    assert True not in session.is_often


def test_a_refused_command_is_said() -> None:
    session, enforcer = governed()
    session.refuses = True
    session.second(3.0)
    assert [action.because for action in enforcer.actions if action.action == "could not be changed"] == ["not today"]


def test_what_is_not_done_yet_is_no_change_of_the_users() -> None:
    session, enforcer = governed()
    session.is_slow = True
    for _ in range(3):
        session.second(2.1)
    assert [action.because for action in enforcer.actions if "user" in action.because] == []
    assert enforcer.lowered == (NAME,)


def test_the_governor_is_told_of_memory_in_megabytes_of_1024_kb(monkeypatch: pytest.MonkeyPatch) -> None:
    session, enforcer = governed()
    seen: list[Mapping[str, float | None]] = []
    observe = enforcer._governor.observe

    def watched(at_s: float, readings: Any, overheads: Any, may_raise: bool) -> Any:
        seen.append(overheads)
        return observe(at_s, readings, overheads, may_raise)

    monkeypatch.setattr(enforcer._governor, "observe", watched)
    for kb, mb in ((3 * 1024, 3.0), (None, None)):
        monkeypatch.setattr(spending, "memory_kb", lambda _, kb=kb: kb)
        monkeypatch.setattr(spending, "user_cpu_pct", lambda _, mb=mb: mb)
        session.second(0.1)
        assert seen[-1] == {"user_cpu_pct": mb, "memory_mb": mb}


def test_whoever_looks_through_the_console_stops_no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = replace(SUMMARY, budget=Budget(user_cpu_pct=5.0, action="stop"))
    monkeypatch.setattr(spending, "user_cpu_pct", lambda _: 11.0)
    session, enforcer = governed(profile)
    for _ in range(3 * OVERHEAD_AFTER):
        enforcer.is_read()
        session.second(0.1)
    for _ in range(spending.STEADY_INTERVALS - 1):  # the median is still of when it was read
        session.second(0.1)
    assert not session.done and not enforcer.actions
    for _ in range(OVERHEAD_AFTER + 1):
        session.second(0.1)
    assert session.done, "without a reader it is what is measured that costs too much"


def test_what_was_refused_is_asked_for_again() -> None:
    session, enforcer = governed()
    session.refuses = True
    session.second(3.0)
    session.refuses = False
    for _ in range(2):
        session.second(3.0)
    assert [(what, mode) for what, mode, _ in session.done][:2] == [("set", "counters")] * 2
    assert enforcer.lowered == (NAME,)


@pytest.mark.parametrize(("action", "bound"), [("warn", None), ("degrade", 2.0), ("stop", 2.0)])
def test_the_kernel_keeps_the_bound_where_something_is_to_be_done_about_it(action: Any, bound: float | None) -> None:
    session, _ = governed(replace(PROFILE, budget=Budget(kernel_cpu_pct=2.0, action=action)))
    assert session.bounds == [bound]


def test_an_escalation_is_given_up_at_once_but_for_a_low_rate_of_packets() -> None:
    _, enforcer = governed()
    asked: list[str] = []

    def give_up(why: str) -> bool:
        asked.append(why)
        return True

    enforcer.give_up_first = give_up
    assert enforcer._is_given_up({"kernel_cpu_pct"}) and enforcer._is_given_up({"events_per_s"})
    per_packet: set[Limit] = {"ns_per_packet"}
    others: set[Limit] = {"memory_mb"}
    for limits in (set[Limit](), others, per_packet, per_packet, others, per_packet, per_packet):
        assert not enforcer._is_given_up(limits)
    assert enforcer._is_given_up({"ns_per_packet"}), "the third in a row"
    assert asked == ["the budget is exceeded"] * 3
    enforcer.give_up_first = None
    assert not enforcer._is_given_up({"kernel_cpu_pct"})


@pytest.mark.parametrize("is_pinned", [False, True])
def test_after_its_time_the_profile_goes_back_to_what_it_inherits(is_pinned: bool) -> None:
    base = Profile("base", budget=Budget(action="warn"), probes={NAME: ProbeChoice("summary")})
    session, enforcer = governed(replace(PROFILE, ttl_s=5.0, base=base))
    if is_pinned:
        enforcer.toggle_pin(NAME)
    for _ in range(6):
        session.second(0.1)
    assert enforcer.profile is base
    assert session.bounds == [2.0, None], "in the kernel, too"
    assert session.state.probes[NAME].mode == ("details" if is_pinned else "summary")
    assert enforcer.actions[-1].because.endswith("was for 5 s")


def test_what_the_user_starts_has_the_profiles_filters_and_stays_when_its_time_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(enforcer_module, "require", lambda requests: None)
    base = Profile("base", budget=Budget(kernel_cpu_pct=2.0, action="degrade"))
    session, enforcer = governed(replace(PROFILE, ttl_s=5.0, base=base, filters={"port": 53}))
    session.status("off", "details", {})
    session.second(0.1)
    enforcer.begin(MANIFEST, ProbeChoice("summary")).result(0)
    assert session.done[-1][:2] == ("load", "summary") and session.state.probes[NAME].knobs["port"] == 53
    assert (enforcer.actions[-1].action, enforcer.actions[-1].because) == (
        "started in mode summary",
        "the user asked for it",
    )
    for _ in range(6):
        session.second(0.1)
    assert enforcer.profile is base
    assert session.state.probes[NAME].mode == "summary" and session.state.probes[NAME].measuring
    session.second(100.0)
    assert enforcer.lowered == (NAME,), "it is governed like the others"


@pytest.mark.parametrize("mode", ["summary", "details"])
def test_the_limit_that_a_profile_gives_a_probe_alone_holds_for_its_summary(mode: ProfileMode) -> None:
    knobs = {**DETAILS, "seen_pct": 100}
    budget = Budget(kernel_cpu_pct=20.0, action="degrade")
    profile = Profile("test", budget=budget, probes={NAME: ProbeChoice(mode, kernel_cpu_pct=1.0, knobs=knobs)})
    session, enforcer = governed(profile)
    session.status("attached", mode, knobs)
    for _ in range(3):
        session.second(7.0)
    seen_pct = session.state.probes[NAME].knobs["seen_pct"]
    assert isinstance(seen_pct, int) and (seen_pct < 100) is (mode == "summary")
    assert [why for _, _, why in session.done] == [None] * len(session.done), "it is as the profile wants it"
    assert enforcer.lowered == ()


def test_one_figure_is_no_second_excess_of_its_own_limit_when_another_probe_has_a_new_one() -> None:
    knobs = {**DETAILS, "seen_pct": 100}
    own = ProbeChoice("summary", kernel_cpu_pct=1.0, knobs=knobs)
    budget = Budget(kernel_cpu_pct=20.0, action="degrade")
    session, _ = governed(Profile("test", budget=budget, probes={NAME: own}))
    session.status("attached", "summary", knobs)
    for _ in range(2):
        session.second(0.1)
    session.second(7.0)
    session.frame(frames.Status, probe="other", state="attached", mode="summary", knobs={}, why=None)
    for _ in range(3):
        session.measure_another()
        session.second(0.0, in_window=False)
    assert session.done == []
    session.second(7.0)
    assert len(session.done) == 1


def test_what_goes_back_to_what_its_own_limit_asks_for_has_no_reason_of_the_budget() -> None:
    knobs = {**DETAILS, "seen_pct": 100}
    budget = Budget(kernel_cpu_pct=20.0, action="degrade")
    own = ProbeChoice("summary", kernel_cpu_pct=1.0, knobs=knobs)
    session, enforcer = governed(Profile("test", budget=budget, probes={NAME: own}))
    session.status("attached", "summary", knobs)
    for _ in range(3):
        session.second(7.0)
    for _ in range(13):
        session.second(0.45)
    assert session.state.probes[NAME].knobs["seen_pct"] == 25, "of the smallest share"
    assert session.done == [("set", "summary", None)] * 2 and enforcer.lowered == ()


def sampled() -> tuple[FakeSession, Enforcer]:
    """Of a probe that has only summary, and may be attached for a share of the time."""
    knobs = {**DETAILS, "seen_pct": 100}
    session = FakeSession()
    enforcer = Enforcer(session, SUMMARY, {NAME: replace(MANIFEST, knobs=knobs, modes=("summary",))})  # type: ignore[arg-type]
    session.status("attached", "summary", knobs)
    enforcer.start()
    return session, enforcer


def test_what_it_cost_before_says_nothing_once_it_is_attached_for_a_share_of_the_time() -> None:
    session, enforcer = sampled()
    session.second(0.1)
    session.second(17.0)
    assert session.state.probes[NAME].knobs["seen_pct"] == 10
    assert enforcer.actions[-1].action == "summary, 10 % of the time"
    for _ in range(5):
        session.second(0.0, in_window=False)
    assert len(session.done) == 1, "its first period goes on"
    session.second(1.7)
    session.second(2.5)
    assert [action.action for action in enforcer.actions] == ["summary, 10 % of the time", "summary, 4 % of the time"]


def test_the_figure_of_all_the_time_says_nothing_of_a_share_while_others_are_measured() -> None:
    session, _ = sampled()
    session.frame(frames.Status, probe="other", state="attached", mode="summary")
    session.second(0.1)
    session.second(17.0)
    assert len(session.done) == 1
    for _ in range(5):
        session.measure_another()
        session.second(0.0, in_window=False)
    assert len(session.done) == 1, "its first period goes on"


def test_where_the_kernel_measures_nothing_the_budget_goes_on_after_the_first_share_of_the_time() -> None:
    """By calibration: rates are of the time that was seen, and in the rest it costs nothing."""
    session, _ = sampled()
    session.state.probes[NAME].per_count = {(NAME, "summary"): ("drops", 100.0)}

    def seen_pct() -> int:
        return int(str(session.state.probes[NAME].knobs["seen_pct"]))

    def second(per_s: int) -> None:
        share = seen_pct() / 100
        session.now_ns += SECOND_NS
        # Its first share goes on in the whole interval: that says nothing of the rest, which is yet to come.
        seen_ns = None if share == 1 else SECOND_NS
        values = {"drops": frames.Count(round(per_s * (seen_ns or SECOND_NS) / SECOND_NS), 0)}
        session.frame(frames.Counters, probe=NAME, interval_ns=SECOND_NS, values=values, seen_ns=seen_ns)
        session.frame(frames.Cost, probe=NAME, interval_ns=SECOND_NS)
        session.end_interval()

    second(300_000)
    assert seen_pct() == 50
    second(300_000)
    assert session.state.probes[NAME].kernel_cpu_pct == pytest.approx(1.5)
    for _ in range(5):
        second(900_000)
    assert seen_pct() < 50, "it is limited as before"


def test_nothing_comes_back_while_nobody_knows_what_a_share_costs() -> None:
    session, enforcer = sampled()
    session.frame(frames.Status, probe="other", state="attached", mode="summary")
    session.second(0.1)
    session.second(17.0)
    for _ in range(30):
        session.measure_another()
        session.second(0.0, in_window=False)
    assert [action.action for action in enforcer.actions] == ["summary, 10 % of the time"]


def test_what_it_does_needs_nothing_of_the_sessions_state_under_its_own_lock() -> None:
    """Who holds the state may ask for its actions: both would wait for each other."""
    session, enforcer = sampled()
    viewed = session.view

    def view() -> Any:
        assert not enforcer._lock._is_owned()  # type: ignore[attr-defined]
        return viewed()

    session.view = view  # type: ignore[method-assign]
    session.second(0.1)
    session.second(17.0)
    assert session.state.probes[NAME].knobs["seen_pct"] == 10
    enforcer.toggle_pin(NAME)
    assert session.state.probes[NAME].knobs["seen_pct"] == 100
