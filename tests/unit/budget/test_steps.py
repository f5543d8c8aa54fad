"""The governor step by step: worked examples of docs/design/governor.md, at its limits and one step beside them."""

from __future__ import annotations

import pytest

from netconsole.budget.governor import Decision, Governor, Reading
from netconsole.budget.ladder import Rung, ladder
from netconsole.profile.profile import Budget, Enforcement

DETAILS = ladder("details", {"events_per_s": 100, "threshold_us": 0}, ("counters", "summary", "details"))
"""Costs 1, 0.97, 0.95, 0.85, 0.5 and 0 of the kernel time."""


def governor(action: Enforcement = "degrade", **probes: tuple[Rung, ...]) -> Governor:
    one = Governor(Budget(kernel_cpu_pct=2.0, action=action))
    for name, rungs in (probes or {"drops": DETAILS}).items():
        one.add(name, rungs)
    return one


def said(moves: list[Decision]) -> list[tuple[str, str]]:
    return [(move.action.probe, move.action.action) for move in moves]


def cost(pct: float) -> dict[str, Reading]:
    return {"drops": Reading(pct, 0.0)}


# ---- down ----


@pytest.mark.parametrize(
    ("pct", "action"),
    [(2.0, []), (2.001, ["summary instead of details"]), (2.117, ["summary instead of details"]),
     (2.119, ["counters alone"]),
     (3.599, ["counters alone"]), (3.601, ["counters alone"]), (5000.0, ["counters alone"])],
)  # fmt: skip
def test_as_many_steps_are_given_up_as_bring_it_to_nine_tenths_of_the_limit(pct: float, action: list[str]) -> None:
    """2.117 x 0.85 and 3.599 x 0.5 are just below 1.8."""
    moves = governor().observe(1.0, cost(pct))
    assert [move.action.action for move in moves] == action
    for move in moves:
        assert (move.action.at_s, move.action.measured, move.action.limit) == (1.0, pct, 2.0)
        assert move.action.because == "kernel time of all probes, % of one core"


@pytest.mark.parametrize(("again", "action"), [(3.599, []), (3.601, ["detached"]), (5000.0, ["detached"])])
def test_a_second_figure_in_a_row_detaches(again: float, action: list[str]) -> None:
    """A single one may be of a machine that is overloaded, or of a program that lost its CPU."""
    one = governor()
    one.observe(1.0, cost(again / 0.5))
    assert [move.action.action for move in one.observe(2.0, cost(again if action else 1.8))] == action
    other = governor()
    other.observe(1.0, cost(5000.0))
    other.observe(2.0, cost(1.9))
    assert not other.observe(3.0, cost(5000.0)), "not in a row"
    assert [move.action.action for move in other.observe(4.0, cost(5000.0))] == ["detached"]


def test_after_two_actions_that_were_not_enough_the_third_one_detaches() -> None:
    one = governor(drops=(*DETAILS[:5], Rung("counters", "less", 0.4, 0.0), DETAILS[5]))
    actions = [said(one.observe(float(second), cost(2.05))) for second in (1, 2, 3, 4)]
    assert actions == [
        [("drops", "summary instead of details")],
        [("drops", "counters alone")],
        [("drops", "detached")],
        [("", "over the budget, and nothing more can be given up")],
    ]


def test_the_dearest_of_several_goes_first_and_then_the_next() -> None:
    one = governor(a=DETAILS, b=DETAILS)
    readings = {"a": Reading(2.0, 0.0), "b": Reading(1.9, 0.0)}
    # 2.0 x 0.5 + 1.9 = 2.9; then b is dearer: 1.0 + 1.9 x 0.5 = 1.95; then a again: 0 + 0.95, with the next figure.
    assert said(one.observe(1.0, readings)) == [("a", "counters alone"), ("b", "counters alone")]
    assert said(one.observe(2.0, {"a": Reading(1.1, 0.0), "b": Reading(1.0, 0.0)})) == [("a", "detached")]


def test_figures_that_come_within_half_a_second_were_measured_before() -> None:
    one = governor()
    assert one.observe(1.0, cost(2.1))
    assert one.observe(1.49, cost(2.1)) == []
    assert one.observe(1.5, cost(2.1))


@pytest.mark.parametrize(("events", "acts"), [(100.0, False), (125.0, False), (125.1, True)])
def test_a_burst_is_up_to_a_quarter_above_the_limit(events: float, acts: bool) -> None:
    one = Governor(Budget(events_per_s=100, action="degrade"))
    one.add("drops", DETAILS)
    assert bool(one.observe(1.0, {"drops": Reading(0.1, events)})) is acts


def test_a_burst_that_ended_is_forgotten() -> None:
    one = Governor(Budget(events_per_s=100, action="degrade"))
    one.add("drops", DETAILS)
    for second, events in enumerate([110, 110, 90, 110, 110], 1):
        assert one.observe(float(second), {"drops": Reading(0.1, events)}) == []
    assert one.observe(6.0, {"drops": Reading(0.1, 110.0)})


def test_what_is_pinned_is_named_when_it_alone_is_left() -> None:
    one = governor(a=DETAILS, b=DETAILS)
    one.pin("b", 0.0)
    readings = {"a": Reading(0.5, 0.0), "b": Reading(2.5, 0.0)}
    assert said(one.observe(1.0, readings)) == [
        ("a", "counters alone"),
        ("", "over the budget, and what costs is pinned (b)"),
    ]
    assert said(one.observe(2.0, readings)) == [("a", "detached")], "said once"
    assert one.observe(3.0, {"b": Reading(2.5, 0.0)}) == []
    assert (one.pinned, set(one.lowered)) == (frozenset("b"), {"a"})


def test_a_stop_needs_two_intervals_and_is_final() -> None:
    one = governor("stop")
    assert one.observe(1.0, cost(2.1)) == []
    assert said(one.observe(2.0, cost(2.1))) == [("drops", "stopped")]
    assert all(not one.observe(float(second), cost(0.0)) for second in range(3, 200))


def test_a_warning_is_said_once_and_taken_back_from_nine_tenths_on() -> None:
    one = governor("warn")
    over = [("", "over the budget, and the profile only warns")]
    assert said(one.observe(1.0, cost(2.1))) == over
    assert one.observe(2.0, cost(2.1)) == one.observe(3.0, cost(1.9)) == one.observe(4.0, cost(1.81)) == []
    assert said(one.observe(5.0, cost(1.8))) == [("", "within the budget again")]
    assert one.observe(6.0, cost(1.8)) == []
    assert said(one.observe(7.0, cost(2.1))) == over


def test_our_own_processes_are_told_of_after_ten_intervals_above_their_limit() -> None:
    one = Governor(Budget(user_cpu_pct=5.0, action="degrade"))
    over, at = {"user_cpu_pct": 5.1}, {"user_cpu_pct": 5.0}
    told = [bool(one.observe(float(second), {}, over)) for second in range(1, 13)]  # type: ignore[arg-type]
    assert told == [False] * 9 + [True, False, False]
    assert one.observe(20.0, {}, at) == []  # type: ignore[arg-type]
    told = [bool(one.observe(float(second), {}, over)) for second in range(21, 32)]  # type: ignore[arg-type]
    assert told == [False] * 9 + [True, False]


# ---- up ----


def lowered(pct: float, at_s: float = 1.0) -> Governor:
    one = governor()
    assert said(one.observe(at_s, cost(pct))) == [("drops", "counters alone")]
    return one


@pytest.mark.parametrize(
    ("pct", "says", "mode"),
    [(0.6, "back to details", "details"), (0.61, "partly back: 25 events/s instead of 100", "details"),
     (0.7, "partly back: summary instead of details", "summary")],
)  # fmt: skip
def test_it_comes_back_as_far_as_six_tenths_of_the_limit_allow(pct: float, says: str, mode: str) -> None:
    """From half of the cost: 0.6 becomes 1.2 in details, and 0.7 becomes 1.19 in summary."""
    one = lowered(3.5)
    for second in range(2, 12):
        assert one.observe(float(second), cost(pct)) == []
    (move,) = one.observe(12.0, cost(pct))
    assert move.rung is not None and (move.action.action, move.rung.mode) == (says, mode)
    assert move.action.because.startswith("there was room for 10 s")
    assert (move.action.measured, move.action.limit) == (pct, 2.0)


def test_where_there_is_no_room_nothing_comes_back() -> None:
    one = lowered(3.5)
    assert all(not one.observe(float(second), cost(0.75)) for second in range(2, 100))


def test_the_time_of_room_begins_anew_after_an_interval_without() -> None:
    one = lowered(3.5)
    for second in range(2, 9):
        one.observe(float(second), cost(0.1))
    one.observe(9.0, cost(1.3))
    assert all(not one.observe(float(second), cost(0.1)) for second in range(10, 20))
    assert one.observe(20.0, cost(0.1))


def until_back(one: Governor, second: int) -> int:
    """The second in which it is back, when it is calm from this one on."""
    while not one.observe(float(second), cost(0.0)):
        second += 1
    return second


@pytest.mark.parametrize(("again_s", "waits_s"), [(41, 20), (42, 10)])
def test_what_is_given_up_again_within_thirty_seconds_waits_twice_as_long(again_s: int, waits_s: int) -> None:
    one = lowered(3.5)
    assert until_back(one, 2) == 12
    one.observe(float(again_s), cost(3.5))
    assert until_back(one, again_s + 1) == again_s + 1 + waits_s


def test_waiting_is_forgotten_after_it_went_well_and_the_reason_says_the_time_that_it_was_low() -> None:
    one = lowered(3.5)
    until_back(one, 2)
    one.observe(20.0, cost(3.5))
    assert until_back(one, 21) == 41
    one.observe(100.0, cost(3.5))  # 59 s later: no relapse
    for second in range(101, 121):
        assert one.observe(float(second), cost(0.0)) == []
    (move,) = one.observe(121.0, cost(0.0))
    assert move.action.because.startswith("there was room for 20 s")
    one.observe(200.0, cost(3.5))
    assert until_back(one, 201) == 211, "ten seconds again"


def test_of_several_the_one_that_adds_least_comes_back_first_and_one_at_a_time() -> None:
    one = governor(a=DETAILS, b=DETAILS)
    one.observe(1.0, {"a": Reading(3.0, 0.0), "b": Reading(2.9, 0.0)})
    assert len(one.lowered) == 2
    low = {"a": Reading(0.0, 0.0), "b": Reading(0.0, 0.0)}
    back = [move.action.probe for second in range(2, 40) for move in one.observe(float(second), low) if move.rung]
    assert back[:2] == ["a", "b"]
    assert [len(one.observe(float(second), low)) for second in range(40, 42)] == [0, 0]


def test_a_detached_probe_comes_back_by_one_step_to_be_measured() -> None:
    one = governor()
    for second in (1, 2):
        one.observe(float(second), cost(5.0))
    assert one.lowered["drops"].mode == "off"
    (move,) = [move for second in range(3, 14) for move in one.observe(float(second), {})]
    assert move.rung is not None and move.rung.mode == "counters"
    assert (move.action.action, move.action.measured) == ("partly back: counters alone", None)


def test_while_one_limit_is_exceeded_nothing_comes_back() -> None:
    one = Governor(Budget(kernel_cpu_pct=2.0, events_per_s=100, action="degrade"))
    one.add("drops", DETAILS)
    one.add("other", ladder("summary", {}, ("summary",)), pinned=True)
    one.observe(1.0, cost(3.5))
    busy = {"drops": Reading(0.0, 0.0), "other": Reading(0.0, 110.0)}
    moves = [move for second in range(2, 60) for move in one.observe(float(second), busy)]
    assert all(move.rung is None for move in moves)


# ---- the ladder ----


def test_every_step_of_a_ladder_has_its_knobs_and_its_share() -> None:
    assert ladder("details", {"events_per_s": 100, "threshold_us": 50}, ("counters", "summary", "details")) == (
        Rung("details", "details", 1.0, 1.0),
        Rung("details", "25 events/s instead of 100", 0.97, 0.25, {"events_per_s": 25}),
        Rung("details", "threshold 200 µs instead of 50", 0.95, 0.125, {"events_per_s": 25, "threshold_us": 200}),
        Rung("summary", "summary instead of details", 0.85, 0.0),
        Rung("counters", "counters alone", 0.5, 0.0),
        Rung("off", "detached", 0.0, 0.0),
    )
    assert ladder("summary", {}, ("counters", "summary"), counts_by_fewer=True)[1].kernel_share == 0.1
    assert [one.mode for one in ladder("counters", {}, ("counters",))] == ["counters", "off"]


def test_a_probe_that_can_be_attached_for_a_share_of_the_time_goes_down_by_that_before_it_only_counts() -> None:
    rungs = ladder("summary", {"seen_pct": 100}, ("summary",))
    assert [(one.says, one.kernel_share, dict(one.knobs)) for one in rungs] == [
        ("summary", 1.0, {}),
        ("summary, 50 % of the time", 0.5, {"seen_pct": 50}),
        ("summary, 25 % of the time", 0.25, {"seen_pct": 25}),
        ("summary, 10 % of the time", 0.1, {"seen_pct": 10}),
        ("summary, 4 % of the time", 0.04, {"seen_pct": 4}),
        ("detached", 0.0, {}),
    ]
    counting = ladder("details", {"seen_pct": 100}, ("counters", "summary", "details"), counts_by_fewer=True)
    assert [(one.mode, round(one.kernel_share, 3)) for one in counting] == [
        ("details", 1.0),
        ("summary", 0.85),
        ("summary", 0.475),
        ("summary", 0.287),
        ("summary", 0.175),
        ("summary", 0.13),
        ("counters", 0.1),
        ("off", 0.0),
    ]
    assert "seen_pct" not in counting[1].knobs, "all of the time first"
    own = ladder("summary", {"seen_pct": 20}, ("summary",))
    assert [(one.says, one.kernel_share) for one in own[1:3]] == [
        ("summary, 10 % of the time", 0.5),
        ("summary, 4 % of the time", 0.2),
    ]


@pytest.mark.parametrize(
    ("pct", "action"),
    [(3.0, "summary, 50 % of the time"), (7.0, "summary, 25 % of the time"), (17.9, "summary, 10 % of the time"),
     (44.9, "summary, 4 % of the time"), (46.0, "summary, 4 % of the time")],
)  # fmt: skip
def test_in_a_storm_it_is_attached_for_the_share_that_the_budget_pays(pct: float, action: str) -> None:
    one = governor(drops=ladder("summary", {"seen_pct": 100}, ("summary",)))
    assert said(one.observe(1.0, cost(pct))) == [("drops", action)]
    assert pct < 46.0 or said(one.observe(2.0, cost(pct / 2))) == [("drops", "detached")]


def test_after_a_storm_it_is_attached_all_the_time_again_as_soon_as_that_fits() -> None:
    one = governor(drops=ladder("summary", {"seen_pct": 100}, ("summary",)))
    one.observe(1.0, cost(17.0))
    actions = [said(one.observe(float(second), cost(1.7))) for second in range(2, 30)]
    assert not any(actions), "the storm goes on"
    actions = [said(one.observe(float(second), cost(0.1))) for second in range(30, 45)]
    assert [action for action in actions if action] == [[("drops", "back to summary")]]


def test_it_comes_back_by_the_share_that_there_is_room_for() -> None:
    one = governor(drops=ladder("summary", {"seen_pct": 100}, ("summary",)))
    one.observe(1.0, cost(17.0))
    actions = [said(one.observe(float(second), cost(0.4))) for second in range(30, 45)]
    assert next(action for action in actions if action) == [("drops", "partly back: summary, 25 % of the time")]


@pytest.mark.parametrize(
    ("events", "says"), [(5, []), (6, ["5 events/s instead of 6"]), (24, ["6 events/s instead of 24"])]
)
def test_five_events_a_second_are_the_least(events: int, says: list[str]) -> None:
    rungs = ladder("details", {"events_per_s": events}, ("summary", "details"))
    assert [one.says for one in rungs if "events/s" in one.says] == says
    if says:
        assert rungs[1].events_share == int(says[0].split()[0]) / events


@pytest.mark.parametrize(("flows", "fewer"), [(1, 8), (2, 16), (16384, 65536), (65535, 65536)])
def test_details_of_fewer_flows_are_of_an_eighth_and_of_one_in_65536_at_least(flows: int, fewer: int) -> None:
    rungs = ladder("details", {"flows_one_in": flows}, ("summary", "details"))
    assert rungs[1] == Rung("details", f"details of 1 flow in {fewer}", 0.95, 0.5, {"flows_one_in": fewer})


# ---- what the profile keeps ----

KEPT = ladder("details", {"events_per_s": 100, "rows_one_in": 1}, ("counters", "summary", "details"), is_kept=True)
OTHER = ladder("summary", {"seen_pct": 100}, ("summary",))


def keeping(limit_pct: float = 2.0) -> Governor:
    one = Governor(Budget(kernel_cpu_pct=limit_pct, action="degrade"))
    one.add("drops", KEPT, kept=True)
    one.add("queues", OTHER)
    return one


def costs(drops: float, queues: float) -> dict[str, Reading]:
    return {"drops": Reading(drops, 0.0), "queues": Reading(queues, 0.0)}


def test_a_kept_probe_loses_samples_then_takes_a_share_and_is_never_without_rows() -> None:
    says = ["details", "25 events/s instead of 100", "summary instead of details"]
    assert [rung.says for rung in KEPT] == [*says, "rows of 1 packet in 4", "rows of 1 packet in 16", "detached"]
    assert [rung.mode for rung in KEPT] == ["details", "details", "summary", "summary", "summary", "off"]
    assert KEPT[4].knobs == {"rows_one_in": 16} and KEPT[4].kernel_share == pytest.approx(0.85 * (0.6 + 0.4 / 16))


def test_one_that_cannot_take_a_share_of_the_packets_takes_one_of_the_time() -> None:
    rungs = ladder("summary", {"seen_pct": 100}, ("counters", "summary"), is_kept=True)
    assert [rung.knobs.get("seen_pct") for rung in rungs[1:-1]] == [50, 25, 10, 4]
    assert [rung.mode for rung in rungs] == ["summary"] * 5 + ["off"]


def test_the_others_give_up_wholly_before_a_kept_probe_gives_up_anything() -> None:
    one = keeping()
    assert said(one.observe(1.0, costs(1.79, 0.3))) == [("queues", "summary, 4 % of the time")]
    assert said(one.observe(2.0, costs(1.79, 0.22))) == [("queues", "detached")]
    assert said(one.observe(3.0, costs(1.79, 0.0))) == []
    assert said(one.observe(4.0, costs(2.1, 0.0))) == [("drops", "summary instead of details")]


def test_a_kept_probe_stays_at_its_last_share_of_the_packets_however_dear_it_is() -> None:
    one = keeping()
    said_all = [said(one.observe(float(second), costs(9.7, 0.2))) for second in range(1, 30)]
    assert said_all[0] == [("queues", "summary, 4 % of the time"), ("drops", "rows of 1 packet in 16")]
    assert [moves for moves in said_all[1:] if moves] == [
        [("queues", "detached"), ("", "over the budget, and nothing more can be given up")]
    ]


def test_only_five_times_the_limit_three_times_in_a_row_detach_it_and_it_comes_back() -> None:
    one = keeping()
    at = [("drops", "detached") in said(one.observe(float(second), costs(10.01, 0.0))) for second in (1, 2, 3)]
    assert at == [False, False, True]
    calm = {"queues": Reading(0.0, 0.0)}
    back = [moves for second in range(4, 30) if (moves := said(one.observe(float(second), calm)))]
    assert next(moves for moves in back if moves[0][0]) == [("drops", "partly back: rows of 1 packet in 16")]


def test_what_is_kept_comes_back_first() -> None:
    one = keeping()
    one.observe(1.0, costs(3.0, 0.3))
    assert set(one.lowered) == {"drops", "queues"}
    back = [moves for second in range(2, 60) if (moves := said(one.observe(float(second), costs(0.0, 0.0))))]
    assert [moves[0][0] for moves in back[:2]] == ["drops", "queues"]


def test_a_single_figure_of_a_machine_that_lost_its_cpu_detaches_nothing_that_is_kept() -> None:
    one = keeping()
    for second, pct in enumerate((2.5, 2.5, 2.5, 1879.0, 2.5, 1879.0, 1879.0, 2.5)):
        assert ("drops", "detached") not in said(one.observe(float(second), costs(pct, 0.0)))
