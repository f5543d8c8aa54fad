"""The echoes of one capture: what is left out and said, and sequences that begin again."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole.ping.analysis.echoes import (
    LONGEST_US,
    ROUNDING_US,
    WRAP,
    Echoes,
    completed_summary,
    keyed,
    named,
    read,
)
from netconsole.ping.capture import SCHEMA, EchoSummary, EchoTimes, PingCapture, TimeSummary

HALF = WRAP // 2


def echo(seq: int, total_us: float | None = 100.0, **more: Any) -> EchoTimes:
    return EchoTimes(seq, 7, total_us=total_us, **more)


def whole(seq: int, request: float, between: float, reply: float, total: float) -> EchoTimes:
    return echo(seq, total, request_us=request, between_us=between, reply_us=reply)


def found(*rows: EchoTimes) -> Echoes:
    return read(PingCapture(SCHEMA, "sender-vm", packets=list(rows)))


def said(*rows: EchoTimes) -> list[tuple[str, str]]:
    checks = found(*rows).checks
    assert not any(one.ok for one in checks)
    return [(one.check, one.detail) for one in checks]


def test_what_is_whole_is_kept_and_nothing_is_said() -> None:
    rows = [whole(seq, 10.0, 80.0, 10.0, 100.0) for seq in range(3)]
    assert found(*rows) == Echoes({(7, seq): rows[seq] for seq in range(3)})
    assert found() == Echoes() and (WRAP, ROUNDING_US, LONGEST_US) == (65_536, 0.21, 60e6)


def test_an_echo_without_an_answer_in_time_is_kept_apart() -> None:
    late, lost = echo(1, outcome="late"), echo(2, None, outcome="timeout")
    assert found(echo(0), late, lost) == Echoes({(7, 0): echo(0)}, {(7, 1): late, (7, 2): lost})


def test_the_first_of_two_records_counts() -> None:
    assert said(echo(1, 10.0), echo(2), echo(1, 20.0)) == [
        ("duplicates", "sender-vm: 1 echo: two records each, and the first counts (id 7 seq 1)")
    ]
    assert found(echo(1, 10.0), echo(1, 20.0)).times == {(7, 1): echo(1, 10.0)}


def test_more_than_one_reply_is_said() -> None:
    assert said(echo(1, duplicates=1), echo(2, duplicates=3), echo(3)) == [
        ("duplicate replies", "sender-vm: 2 echoes had more than one reply, and the first reply of each counts")
    ]


def test_a_time_below_zero_is_left_out_and_zero_is_not() -> None:
    rows = [whole(0, 0.0, 0.0, 0.0, 0.0), whole(1, -0.1, 80.0, 10.0, 89.9), echo(2, -1.0)]
    assert list(found(*rows).times) == [(7, 0)]
    why = "2 echoes: a time below zero, because a clock was set back (id 7 seq 1, id 7 seq 2)"
    assert said(*rows) == [("clock", f"sender-vm: {why}")]


@pytest.mark.parametrize(("count", "more"), [(5, ""), (6, " …")])
def test_five_echoes_are_named(count: int, more: str) -> None:
    names = ", ".join(f"id 7 seq {seq}" for seq in range(5))
    assert said(*[echo(seq, None) for seq in range(count)]) == [
        ("complete", f"sender-vm: {count} echoes: without a total time ({names}{more})")
    ]


def test_an_echo_is_named_as_people_write_it() -> None:
    assert named([(None, 3), (9, WRAP + 4), (0, 0)]) == ["seq 3", "id 9 seq 4", "id 0 seq 0"]


def test_a_step_of_the_clock_is_an_echo_of_minutes_among_short_ones() -> None:
    def left_out(*totals: float) -> list[int]:
        kept = found(*[echo(seq, total) for seq, total in enumerate(totals)]).times
        return [seq for seq in range(len(totals)) if (7, seq) not in kept]

    most = LONGEST_US
    assert left_out(100.0, 200.0, most + 1) == [2]
    assert left_out(100.0, 200.0, most) == []  # a minute may be
    assert left_out(most / 1000 - 1, most / 1000 - 1, most + 1) == [2]
    assert left_out(most / 1000 + 1, most / 1000 + 1, most + 1) == []  # the others take as long, to a thousandth
    assert left_out(0.0, 0.0, most + 1) == [2]
    assert left_out(100.0, most + 1, most + 1) == []  # most of them: so it is
    assert left_out(most * 3) == []
    [(check, detail)] = said(echo(0), echo(1), echo(2, most + 1))
    assert check == "clock" and "1 echo: more than a minute, where the others take far less" in detail


@pytest.mark.parametrize("missing", ["request_us", "between_us", "reply_us", "total_us"])
def test_the_one_time_that_is_missing_follows_from_the_others(missing: str) -> None:
    times: dict[str, Any] = {"request_us": 10.0, "between_us": 80.0, "reply_us": 7.0, "total_us": 97.0}
    row = EchoTimes(1, 7, **{name: us for name, us in times.items() if name != missing})
    assert found(row).times == {(7, 1): EchoTimes(1, 7, **times)}


def test_two_times_that_are_missing_stay_unknown() -> None:
    row = EchoTimes(1, 7, request_us=10.0, total_us=100.0)
    assert found(row).times == {(7, 1): row}
    assert said(EchoTimes(1, 7, request_us=10.0, reply_us=1.0))[0][0] == "complete"


@pytest.mark.parametrize("missing", ["request_us", "between_us", "reply_us", "total_us"])
def test_the_one_mean_that_is_missing_follows_too_and_is_as_sure_as_the_fewest(missing: str) -> None:
    means = {"request_us": (10.0, 9), "between_us": (80.0, 4), "reply_us": (7.0, None), "total_us": (97.0, 5)}
    known = {name: TimeSummary(*mean) for name, mean in means.items() if name != missing}
    made = getattr(completed_summary(EchoSummary(**known)), missing)
    assert made == TimeSummary(means[missing][0], 5 if missing == "between_us" else 4)


def test_means_that_do_not_follow_stay_unknown() -> None:
    for some in (
        EchoSummary(TimeSummary(10.0), None, None, TimeSummary(100.0)),
        EchoSummary(TimeSummary(10.0), TimeSummary(80.0)),
        EchoSummary(),
        EchoSummary(TimeSummary(10.0), TimeSummary(80.0), TimeSummary(7.0), TimeSummary(97.0)),
    ):
        assert completed_summary(some) is some


def keys(*rows: tuple[int, int]) -> list[tuple[int | None, int]]:
    return list(keyed([EchoTimes(seq, id) for id, seq in rows])[0])


def test_a_sequence_that_begins_again_goes_on() -> None:
    assert keys((7, 65_534), (7, 65_535), (7, 0), (7, 1)) == [(7, 65_534), (7, 65_535), (7, WRAP), (7, WRAP + 1)]
    # Each id for itself.
    assert keys((7, 65_535), (8, 3), (7, 0)) == [(7, 65_535), (8, 3), (7, WRAP)]


def test_a_late_record_is_of_the_round_before_and_the_next_goes_on() -> None:
    """It is one step back more: allowed for each half of a round that was seen."""
    before = [(7, seq) for seq in range(WRAP - HALF, WRAP - 1)]
    late = [(7, 0), (7, WRAP - 1), (7, 1)]
    assert keys(*before, *late)[-3:] == [(7, WRAP), (7, WRAP - 1), (7, WRAP + 1)]
    assert keys(*before[3:], *late)[-3:] == late


def test_half_a_round_back_is_a_late_record_and_one_more_is_a_new_round() -> None:
    assert keys((7, HALF), (7, 0)) == [(7, HALF), (7, 0)]
    assert keys((7, HALF + 1), (7, 0)) == [(7, HALF + 1), (7, WRAP)]
    assert keys((7, HALF + 1), (7, 0), (7, HALF)) == [(7, HALF + 1), (7, WRAP), (7, WRAP + HALF)]
    assert keys((7, HALF + 2), (7, 0), (7, HALF + 1)) == [(7, HALF + 2), (7, WRAP), (7, HALF + 1)]


def test_sequences_beyond_16_bits_were_counted_on_already() -> None:
    assert keys((7, WRAP), (7, 1)) == [(7, WRAP), (7, 1)]
    assert keys((7, WRAP - 1), (7, 1)) == [(7, WRAP - 1), (7, WRAP + 1)]


def test_rows_without_an_order_do_not_begin_again() -> None:
    """Two steps back in a few rows are no rounds: a round has 65 536 echoes."""
    assert keys((7, 60_000), (7, 1), (7, 50_000), (7, 2)) == [(7, 60_000), (7, 1), (7, 50_000), (7, 2)]
    # One id without an order is enough.
    assert keys((8, 1), (7, 60_000), (7, 1), (7, 50_000), (7, 2))[2] == (7, 1)


def test_rows_that_all_have_a_time_are_put_in_order() -> None:
    rows = [EchoTimes(0, 7, at_ns=30), EchoTimes(65_535, 7, at_ns=20), EchoTimes(65_534, 7, at_ns=0)]
    assert list(keyed(rows)[0]) == [(7, 65_534), (7, 65_535), (7, WRAP)]
    assert list(keyed([*rows[:2], EchoTimes(65_534, 7)])[0]) == [(7, 0), (7, 65_535), (7, 65_534)]
