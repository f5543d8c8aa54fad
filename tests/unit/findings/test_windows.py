"""What rows did in the last minute, in figures: means, shares, pauses, what is new, what is late by its past."""

from __future__ import annotations

from collections import deque

import pytest

from netconsole.findings.windows import (
    LONG,
    MIN_PAST,
    MIN_SAMPLES,
    NEW_TIMES,
    SHORT,
    Family,
    Move,
    Window,
    Windows,
    interval_s,
    is_later,
    usual,
)
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Buckets
from netconsole.telemetry.histogram import add, index
from netconsole.telemetry.state import State
from netconsole.telemetry.tables import HistogramState, RowState
from tests.unit.telemetry.test_state import SECOND, Stream, row

ROW = RowState({"device": "lo"}, {}, {}, 0, 0)
FAMILY = Family("p", "drops", "count")


def window(*moves: tuple[int, int] | tuple[int, int, float]) -> Window:
    return Window(ROW, sum(move[1] for move in moves), deque(Move(*move) for move in moves))


def test_a_mean_is_over_all_intervals_those_without_a_move_too() -> None:
    one = window((91, 30), (95, 5), (100, 15))
    assert one.mean_per_s(100, 10, 1.0) == 5.0
    assert one.mean_per_s(100, 10, 2.0) == 2.5, "intervals of two seconds"
    assert one.mean_per_s(100, 9, 1.0) == pytest.approx(20 / 9), "the move of interval 91 is the tenth before"
    assert [one.moved_in(100, intervals) for intervals in (1, 5, 6, 9, 10)] == [1, 1, 2, 2, 3]


def test_a_share_is_of_what_its_gauge_grew_by_since_the_first_move() -> None:
    one = window((91, 30, 1000.0), (95, 5, 1500.0), (100, 15, 3000.0))
    assert one.share_pct(100, 10) == pytest.approx(100 * 20 / 2000), "the first move only says where the gauge was"
    assert one.share_pct(100, 9) == pytest.approx(100 * 15 / 1500)
    assert one.share_pct(100, 1) == 0.0, "of a single move nothing can be said"
    assert window((95, 5), (100, 15)).share_pct(100, 10) is None, "without the gauge"
    assert window((95, 5, 100.0), (100, 15, 100.0)).share_pct(100, 10) == 0.0
    assert window((95, 5, 100.0), (100, 900, 200.0)).share_pct(100, 10) == 100.0


def test_a_share_of_a_count_is_known_from_the_first_move_on() -> None:
    moves = deque([Move(95, 5, 1000, grown=50), Move(100, 15, 1200, grown=150)])
    one = Window(ROW, 20, moves)
    assert one.share_pct(100, 10) == pytest.approx(100 * 20 / 250), "also of what stood still meanwhile"
    assert one.share_pct(100, 1) == pytest.approx(10.0)
    assert Window(ROW, 5, deque([Move(100, 5, 1000, grown=0)])).share_pct(100, 1) == 0.0


def test_moves_belong_together_up_to_a_pause() -> None:
    one = window((10, 1), (15, 2), (21, 3), (22, 4))
    assert [move.tick for move in one.since(5)] == [21, 22]
    assert [move.tick for move in one.since(6)] == [10, 15, 21, 22]
    assert window().since(5) == []


def seen(begun: int, *moves: tuple[int, int]) -> tuple[Windows, Window]:
    windows = Windows({})
    windows._begun[FAMILY] = begun
    return windows, window(*moves)


@pytest.mark.parametrize(("before", "is_new"), [(0, True), (1, True), (2, False)])
def test_new_is_ten_times_what_it_was_in_the_minute_before(before: int, is_new: bool) -> None:
    """Two in a second now; in the 50 s before, 10 are 0.2 a second and 11 are more than a tenth."""
    windows, one = seen(0, *([(45, 9 + before)] if before else []), (95, 20))
    assert windows.is_new(FAMILY, one, 100) is is_new
    assert (LONG, SHORT, NEW_TIMES) == (60, 10, 10.0)


def test_nothing_is_new_before_a_minute_was_looked_at() -> None:
    windows, one = seen(41, (95, 20))
    assert not windows.is_new(FAMILY, one, 100)
    assert windows.is_new(FAMILY, one, 101)
    assert not Windows({}).is_new(FAMILY, one, 100), "never looked at"


def test_what_is_forgotten_is_gone() -> None:
    windows, one = seen(0, (95, 20))
    windows._windows[FAMILY] = {ROW.key: one}
    windows.forget(FAMILY, ROW.key)
    assert windows.of(FAMILY) == {} == windows.of(Family("other", "t", "v"))


def test_an_interval_is_a_second_before_there_was_one() -> None:
    state = State()
    assert interval_s(state, "p") == 1.0
    state.collector.interval_ns = 250_000_000
    assert interval_s(state, "p") == 0.25


def test_a_session_that_ends_within_an_interval_makes_no_rate_of_it() -> None:
    """Its last figures come milliseconds after those before; a mean over ten intervals is still over ten seconds."""
    state = State()
    stream = Stream(state)
    for _ in range(3):
        stream.end()
    state.apply(frames.Cost(**stream.stamp(None), interval_ns=SECOND // 400))
    assert state.collector.interval_ns == SECOND // 400 and interval_s(state, "p") == 1.0


# ---- late by its own past ----


def times(ns: int, count: int) -> Buckets:
    return Buckets(count=count, sum=ns * count, min=ns, max=ns, buckets=[(index(ns), count)] if count else [])


def histogram(now: Buckets, past: Buckets) -> HistogramState:
    return HistogramState({}, "ns", now, add([past, now]), 1.0, 1, 1)


def test_what_is_usual_needs_a_hundred_samples_before_this_interval() -> None:
    assert (MIN_PAST, MIN_SAMPLES) == (100, 10)
    assert usual(histogram(times(9000, 50), times(1000, 99)), 99) is None
    found = usual(histogram(times(9000, 50), times(1000, 100)), 99)
    assert found == pytest.approx(1000, rel=0.0625)


@pytest.mark.parametrize(
    ("now_ns", "count", "over", "times_past", "late"),
    [
        (9000, 10, 5000.0, 3.0, True),
        (9000, 9, 5000.0, 3.0, False),  # too few samples
        (9000, 10, 9500.0, 3.0, False),  # not above the limit
        (9000, 10, 5000.0, 10.0, False),  # not so many times the past
    ],
)
def test_late_is_above_the_limit_and_its_own_past(
    now_ns: int, count: int, over: float, times_past: float, late: bool
) -> None:
    row = histogram(times(now_ns, count), times(1000, 1000))
    assert is_later(row, 50, over, times_past) is late
    assert is_later(row, 50, over, times_past, before=1.0) is (late or (times_past == 10.0 and count >= 10))


def test_what_has_no_past_is_not_late() -> None:
    assert not is_later(histogram(times(9000, 50), times(1000, 5)), 50, 1.0, 1.0)


def test_a_bounded_number_of_rows_is_followed_and_those_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netconsole.findings.windows.MAX_ROWS", 2)
    stream = Stream(State())
    stream.hello()
    stream.status()
    windows = Windows({})
    windows._families = {"p": {Family("p", "t", "n")}}
    for total in (1, 2):
        stream.table(*(row(name, 1, total) for name in "abc"))
        stream.end()
        windows.update(stream.state)
        windows.update(stream.state)  # looked at twice: one move
    followed = windows.of(Family("p", "t", "n"))
    assert [(one.row.labels["device"], one.total, len(one.moves)) for one in followed.values()] == [
        ("a", 2, 2),
        ("b", 2, 2),
    ]


def test_moves_of_intervals_that_nobody_looked_at_count_and_old_ones_leave() -> None:
    stream = Stream(State())
    stream.hello()
    stream.status()
    windows, family = Windows({}), Family("p", "t", "n")
    windows._families = {"p": {family}}
    for total, look in ((5, True), (9, False), (12, True)):
        stream.table(row("a", 1, total))
        stream.end()
        if look:
            windows.update(stream.state)
    (one,) = windows.of(family).values()
    assert [(move.tick, move.delta) for move in one.moves] == [(1, 1), (3, 7)]
    for _ in range(LONG - 1):
        stream.table()
        stream.end()
        windows.update(stream.state)
    assert [move.tick for move in one.moves] == [3], "62 has the sixty intervals from 3 on"
    stream.table()
    stream.end()
    windows.update(stream.state)
    assert windows.of(family) == {}
