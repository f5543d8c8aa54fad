"""The checks of a breakdown at their limits: what must add up, and what may be below zero."""

from __future__ import annotations

import math
from typing import Any

import pytest

from netconsole.ping.analysis.closure import ENOUGH, OF_MEANS, WHOLE_US, checks
from netconsole.ping.analysis.echoes import ROUNDING_US
from netconsole.ping.analysis.merge import CaptureFile, JoinedCaptures, RoleTimes
from netconsole.ping.breakdown import SCHEMA, Breakdown, BreakdownCheck, PathTime, TimesBy
from netconsole.ping.capture import SCHEMA as CAPTURE
from netconsole.ping.capture import EchoSummary, EchoTimes, PingCapture, Role, TimeSummary

ROLE: Role = "sender-vm"
ERROR_US = 1.5
SLACK_US = ROUNDING_US + 2 * ERROR_US
A_BIT = 1e-3


def role_of(echoes: list[EchoTimes], summary: EchoSummary | None = None) -> RoleTimes:
    capture = PingCapture(CAPTURE, ROLE, error_us=ERROR_US)
    return RoleTimes(ROLE, [CaptureFile("a", capture)], {(7, one.seq): one for one in echoes}, summary=summary)


def breakdown(**changes: Any) -> Breakdown:
    made: dict[str, Any] = {
        "round_trip_us": 100.0,
        "paired_packets": 1,
        "segments": {"A": PathTime(60.0, 1, True), "U_sender": PathTime(40.0, 1, False)},
        "stages": {},
        "parts": {"sender_host_us": 70.0, "physical_network_us": 30.0},
        "layers": {"vm_internal_us": 100.0, "host_internal_us": None},
        "checks": [],
    }
    return Breakdown(SCHEMA, **{**made, **changes})


def found(name: str, of: Breakdown | None = None, role: RoleTimes | None = None) -> BreakdownCheck:
    roles = {ROLE: role or role_of([])}
    (one,) = [one for one in checks(of or breakdown(), JoinedCaptures(roles)) if one.check == name]
    return one


def off_by(us: float, seq: int = 0) -> EchoTimes:
    return EchoTimes(seq, 7, request_us=10.0, between_us=80.0, reply_us=10.0, total_us=100.0 - us)


@pytest.mark.parametrize("sign", [1, -1])
def test_an_echo_may_be_off_by_its_rounding_and_twice_its_error(sign: int) -> None:
    assert (ROUNDING_US, ENOUGH, OF_MEANS, WHOLE_US) == (0.21, 0.95, 0.01, 0.5)
    name = f"{ROLE} adds up"
    good, bad = off_by(sign * (SLACK_US - A_BIT)), off_by(sign * (SLACK_US + A_BIT))
    assert found(name, role=role_of([good])).ok
    one = found(name, role=role_of([bad]))
    assert not one.ok and one.size_us == pytest.approx(SLACK_US + A_BIT)
    assert "for 0 of 1 echoes, within 3.21 us" in one.detail


@pytest.mark.parametrize(("bad", "is_ok"), [(1, True), (2, False)])
def test_one_echo_in_twenty_may_be_off(bad: int, is_ok: bool) -> None:
    echoes = [off_by(50.0 * (seq < bad), seq) for seq in range(20)]
    one = found(f"{ROLE} adds up", role=role_of(echoes))
    assert one.ok is is_ok and one.size_us == 50.0
    partly = EchoTimes(20, 7, request_us=1.0, total_us=9.0)  # cannot be held against anything
    assert "of 20 echoes" in found(f"{ROLE} adds up", role=role_of([*echoes, partly])).detail


@pytest.mark.parametrize("sign", [1, -1])
def test_means_may_be_off_by_a_hundredth_more(sign: int) -> None:
    most = SLACK_US + 0.01 * 100.0
    for us, is_ok in ((most - A_BIT, True), (most + A_BIT, False)):
        between = TimeSummary(80.0 + sign * us)
        means = EchoSummary(TimeSummary(10.0), between, TimeSummary(10.0), TimeSummary(100.0))
        one = found(f"{ROLE} adds up", role=role_of([], means))
        assert one.ok is is_ok and one.size_us == pytest.approx(sign * us)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("parts add up", {"parts": {"sender_host_us": 70.0, "physical_network_us": 33.0}}),
        ("segments add up", {"segments": {"A": PathTime(63.0, 1, True), "U_sender": PathTime(40.0, 1, False)}}),
        ("layers add up", {"layers": {"vm_internal_us": 103.0}}),
    ],
)
def test_what_the_document_is_made_of_adds_up(name: str, changes: dict[str, Any]) -> None:
    assert found(name).ok and found(name).size_us == 0.0
    one = found(name, breakdown(**changes))
    assert not one.ok and one.size_us == pytest.approx(3.0)


def test_without_remainders_what_rounding_leaves_is_allowed() -> None:
    for us, is_ok in ((ROUNDING_US - A_BIT, True), (ROUNDING_US + A_BIT, False)):
        segments = {"A": PathTime(100.0 + us, 1, True)}
        assert found("segments add up", breakdown(segments=segments)).ok is is_ok
    exact = {"A": PathTime(60.0 + A_BIT, 1, True), "U_sender": PathTime(40.0, 1, False)}
    assert not found("segments add up", breakdown(segments=exact)).ok


@pytest.mark.parametrize(
    ("changes", "unknown"),
    [({"round_trip_us": None}, "the round trip"), ({"parts": {"sender_host_us": None}}, "one of the three parts")],
)
def test_what_is_not_known_is_not_checked(changes: dict[str, Any], unknown: str) -> None:
    one = found("adds up", breakdown(**changes))
    assert not one.ok and f"{unknown} is not known" in one.detail


def test_stages_may_be_off_by_half_a_microsecond_each_and_a_hundredth() -> None:
    most = 0.5 * 5 + 0.01 * 40.0
    for us, is_ok in ((most - A_BIT, True), (most + A_BIT, False), (-most - A_BIT, False)):
        rows = {name: PathTime(10.0, 1, True) for name in ("s1_s2", "s2_s3", "s3_s4")}
        rows |= {"s4_s5": PathTime(10.0 + us, 1, True), "total": PathTime(40.0, 1, True)}
        one = found("stages of E add up", breakdown(stages={"E": rows}))
        assert one.ok is is_ok and one.size_us == pytest.approx(us)


@pytest.mark.parametrize("name", ["U_sender", "U_receiver", "C+J"])
def test_a_remainder_may_be_below_zero_by_the_errors_of_its_captures(name: str) -> None:
    for us, is_ok in ((-ERROR_US, True), (-ERROR_US - A_BIT, False), (0.0, True)):
        segments = {name: PathTime(us, 1, False, formula="x - y", by="packets")}
        one = found(f"{name} is not below zero", breakdown(segments=segments), role_of([off_by(0)]))
        assert one.ok is is_ok and one.size_us == us and "x - y" in one.detail
    reasons: dict[TimesBy, str] = {"packets": "the segments overlap", "means": "the means are of different echoes"}
    for by, reason in reasons.items():
        segments = {name: PathTime(-9.0, 1, False, by=by)}
        told = found(f"{name} is not below zero", breakdown(segments=segments)).detail
        assert reason in told and ("what lies inside took longer" in told) == (name == "C+J")


def test_a_half_may_be_below_zero_by_what_its_clocks_can_be_off() -> None:
    most = 4.0 + ROUNDING_US
    for us, is_told in ((-most + A_BIT, False), (-most - A_BIT, True), (2.0, False)):
        half = PathTime(us, 1, False, accuracy_us=4.0)
        made = checks(breakdown(halves={"U_sender": {"request": half}}), JoinedCaptures({}))
        told = [one for one in made if one.check == "clocks of U_sender"]
        assert len(told) == is_told and all(not one.ok and one.size_us == us for one in told)
    assert math.isclose(most, 4.21)
