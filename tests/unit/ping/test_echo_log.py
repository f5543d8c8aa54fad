"""The echoes of a capture: what became of each, which are of this ping, and what hostile frames can do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netconsole.ping import echo_log
from netconsole.ping.capture import EchoOutcome, IrqTimes, KickTimes
from netconsole.ping.echo_log import IRQ_POINTS, KICK_POINTS, POINTS, Echo, EchoLog, Watched
from netconsole.telemetry.frames import Records, Scalar
from netconsole.telemetry.state import State

MS = 1_000_000
LIMIT_S = 0.1
COLUMNS = ["source", "target", "id", "seq", *POINTS, "request_in", "request_out", "duplicates", "repeated", "flags"]


def row(seq: int, *at_ms: int, source: str = "192.0.2.1", target: str = "192.0.2.2", id: int = 7) -> list[Scalar]:
    at_ns = [at * MS for at in at_ms] + [0] * (4 - len(at_ms))
    return [source, target, id, seq, *at_ns, "tap0", "eth0" if len(at_ms) > 1 else "", 0, 0, 0]


def given_rows(log: EchoLog, *rows: list[Scalar], columns: list[str] = COLUMNS, at_ms: int = 0) -> EchoLog:
    stamp: dict[str, Any] = {"seq": 1, "mono_ns": at_ms * MS, "wall_ns": at_ms * MS + 5, "probe": "echo_host"}
    log.take(State(), [Records(**stamp, name="echoes", columns=columns, records=list(rows))])
    return log


@pytest.mark.parametrize(
    ("at_ms", "now_ms", "outcome"),
    [
        ((10, 11, 12, 13), 13, "answered"),
        ((10, 11, 12, 110), 500, "answered"),
        ((10, 11, 12, 111), 500, "late"),
        ((10,), 109, "unfinished"),
        ((10, 11, 12), 109, "unfinished"),
        ((10,), 110, "request_lost_inside"),
        ((10, 11), 110, "lost_outside"),
        ((10, 11, 12), 110, "reply_lost_inside"),
        ((10, 0, 0, 20), 500, "answered"),
    ],
)
def test_what_became_of_an_echo(at_ms: tuple[int, ...], now_ms: int, outcome: EchoOutcome) -> None:
    [echo] = given_rows(EchoLog(), row(1, *at_ms)).echoes()
    assert echo.outcome(now_ms * MS, LIMIT_S) == outcome


@pytest.mark.parametrize(
    ("at_ms", "watched", "outcome"),
    [
        ((10,), Watched((True, False, True, True)), "timeout"),
        ((10, 11), Watched((True, True, False, True)), "timeout"),
        ((10, 11, 12), Watched((True, True, True, False)), "timeout"),
        ((10, 11), Watched(answers_itself=True), "request_lost_inside"),
        ((10,), Watched((True, False, True, True), answers_itself=True), "request_lost_inside"),
        ((10,), Watched((True, True, False, True), answers_itself=True), "timeout"),
    ],
)
def test_what_nobody_watched_is_no_place_of_a_loss(
    at_ms: tuple[int, ...], watched: Watched, outcome: EchoOutcome
) -> None:
    [echo] = given_rows(EchoLog(), row(1, *at_ms)).echoes()
    assert echo.outcome(500 * MS, LIMIT_S, watched) == outcome


def test_times_are_microseconds_and_unknown_ones_are_none() -> None:
    log = given_rows(EchoLog(), row(1, 10, 12, 15, 19), row(2, 10, 0, 15))
    whole, part = (echo.times("answered") for echo in log.echoes())
    assert (whole.request_us, whole.between_us, whole.reply_us, whole.total_us) == (2000, 3000, 4000, 9000)
    assert (part.request_us, part.between_us, part.reply_us, part.total_us) == (None, None, None, None)
    assert (whole.id, whole.seq, whole.at_ns) == (7, 1, 10 * MS)


def test_stages_of_vhost_are_those_of_the_echo_itself() -> None:
    columns = [*COLUMNS, *IRQ_POINTS, *KICK_POINTS]
    whole = row(1, 40, 41, 60, 61) + [at * MS for at in (41, 43, 46, 50, 55, 34, 36, 39)]
    polled = row(2, 40, 41, 60, 61) + [at * MS for at in (41, 43, 0, 0, 0, 0, 0, 0)]
    without = row(3, 40, 41, 60, 61) + [at * MS for at in (41, 0, 0, 0, 0, 0, 0, 0)]
    first, second, third = given_rows(EchoLog(), whole, polled, without, columns=columns).echoes()
    assert first.irq_times() == IrqTimes(1, 7, 2000, 3000, 4000, 5000, 14000, 41 * MS)
    assert first.kick_times(receiver=False) == KickTimes(1, 7, 2000, 3000, 1000, 6000, 34 * MS)
    assert first.kick_times(receiver=True) == KickTimes(1, 7, 2000, 3000, 21000, 26000, 34 * MS)
    assert second.irq_times() == IrqTimes(2, 7, 2000, at_ns=41 * MS)
    assert (second.kick_times(receiver=False), third.irq_times()) == (None, None)


def test_a_record_that_comes_again_takes_the_place_of_itself() -> None:
    log = given_rows(given_rows(EchoLog(), row(1, 10)), row(1, 10, 11), row(1, 10, 11, 12, 13))
    [echo] = log.echoes()
    assert echo.total_ns == 3 * MS
    assert [dict(one) for one in log.devices] == [{"tap0": 1}, {"eth0": 1}, {}, {}]


def test_numbers_that_come_again_are_another_echo() -> None:
    log = given_rows(EchoLog(), row(1, 10, 11, 12, 13), row(1, 900, 901, 902, 903))
    assert [echo.at_ns[0] for echo in log.echoes()] == [10 * MS, 900 * MS]


@pytest.mark.parametrize(
    ("addresses", "kept"),
    [
        ((), 3),
        (("192.0.2.2",), 2),
        (("192.0.2.1", "192.0.2.2"), 1),
        (("192.0.2.2", "192.0.2.1"), 1),
        (("192.0.2.0/24",), 3),
        (("2001:db8::1",), 0),
    ],
)
def test_other_pings_are_counted_and_not_kept(addresses: tuple[str, ...], kept: int) -> None:
    rows = [row(1, 10), row(2, 10, target="192.0.2.3"), row(3, 10, source="192.0.2.9")]
    log = given_rows(given_rows(EchoLog(addresses), *rows), *rows)
    assert (len(log), log.others) == (kept, 3 - kept)


def test_a_document_has_room_for_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(echo_log, "MAX_ECHOES", 2)
    log = given_rows(EchoLog(), row(1, 10), row(2, 11), row(3, 12))
    given_rows(log, row(1, 10, 11))  # one that is there goes on
    assert ([echo.seq for echo in log.echoes()], log.over) == ([1, 2], 1)


def test_the_clocks_are_those_of_the_first_and_of_the_last_frame() -> None:
    log = EchoLog()
    for at_ms in (1, 2, 3):
        given_rows(log, at_ms=at_ms)
    assert log.clocks == [(1 * MS, 1 * MS + 5), (3 * MS, 3 * MS + 5)]


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20) | st.floats()


@given(st.lists(st.lists(scalars, max_size=16), max_size=4), st.lists(st.sampled_from(COLUMNS), max_size=16))
def test_whatever_a_stream_sends_is_an_echo_or_nothing(rows: list[list[Scalar]], columns: list[str]) -> None:
    for echo in given_rows(EchoLog(("192.0.2.1",)), *rows, columns=columns).echoes():
        assert isinstance(echo, Echo)
