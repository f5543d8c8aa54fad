"""Where echoes were lost, in the order of how many."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netconsole.ping.analysis.losses import located
from netconsole.ping.analysis.merge import CaptureFile, JoinedCaptures, RoleTimes
from netconsole.ping.breakdown import Loss
from netconsole.ping.capture import SCHEMA, EchoTimes, PingCapture

Ended = dict[int, str]


def role_of(
    role: Any, ended: Ended, answered: tuple[int, ...] = (), outcomes: dict[Any, int] | None = None
) -> RoleTimes:
    rows: Any = {(7, seq): EchoTimes(seq, 7, outcome=outcome) for seq, outcome in ended.items()}  # type: ignore[arg-type]
    capture = PingCapture(SCHEMA, role, outcomes=outcomes or {})
    return RoleTimes(role, [CaptureFile("a", capture)], {(7, seq): EchoTimes(seq, 7) for seq in answered}, rows)


def found(*roles: RoleTimes) -> list[Loss]:
    return located(JoinedCaptures({one.role: one for one in roles})).losses


def test_the_most_frequent_comes_first_and_five_are_named() -> None:
    rare: Ended = {0: "reply_lost_inside"}
    often: Ended = dict.fromkeys(range(1, 8), "request_lost_inside")
    assert found(role_of("sender-vm", {**rare, **often}, (9,))) == [
        Loss("request lost inside sender-vm", 7, [f"7/{seq}" for seq in range(1, 6)]),
        Loss("reply lost inside sender-vm", 1, ["7/0"]),
    ]


@pytest.mark.parametrize("outcome", ["lost_outside", "timeout"])
def test_what_the_next_place_did_not_see_was_lost_before_it(outcome: str) -> None:
    outer, inner = role_of("sender-vm", {1: outcome}), role_of("sender-host", {}, (2,))
    assert found(outer, inner) == [Loss("request lost between sender-vm and sender-host", 1, ["7/1"])]


@pytest.mark.parametrize(
    ("outcome", "where"),
    [
        ("lost_outside", "lost beyond receiver-vm"), ("timeout", "no answer came in time at receiver-vm"),
        ("late", "the answer came late at receiver-vm"),
        ("unfinished", "still under way at receiver-vm when the capture ended"),
        ("request_lost_inside", "request lost inside receiver-vm"),
        ("reply_lost_inside", "reply lost inside receiver-vm"),
    ],
)  # fmt: skip
def test_at_the_innermost_place_it_is_as_that_one_says(outcome: str, where: str) -> None:
    roles = role_of("sender-vm", {1: "timeout"}), role_of("receiver-vm", {1: outcome})
    assert found(*roles) == [Loss(where, 1, ["7/1"])]


def test_a_reply_was_lost_before_the_innermost_place_that_still_waits_for_it() -> None:
    waiting = [role_of(role, {1: "timeout"}) for role in ("sender-vm", "sender-host")]
    answered = [role_of(role, {}, (1,)) for role in ("receiver-host", "receiver-vm")]
    assert found(*waiting, *answered) == [Loss("reply lost between receiver-host and sender-host", 1, ["7/1"])]


def test_of_a_measurement_without_echoes_its_counts_are_told() -> None:
    outcomes: dict[Any, int] = {"answered": 90, "late": 3, "timeout": 0, "lost_outside": 4}
    assert found(role_of("sender-vm", {1: "unfinished"}, outcomes=outcomes)) == [
        Loss("lost beyond sender-vm", 4), Loss("the answer came late at sender-vm", 3),
        Loss("still under way at sender-vm when the capture ended", 1, ["7/1"]),
    ]  # fmt: skip


def test_what_was_answered_to_the_machine_that_pings_is_not_lost_whatever_others_lack() -> None:
    roles = role_of("sender-vm", {2: "timeout"}, (1,)), role_of("receiver-vm", {1: "request_lost_inside"})
    found = located(JoinedCaptures({one.role: one for one in roles}))
    assert found.losses == [Loss("request lost between sender-vm and receiver-vm", 1, ["7/2"])]
    (check,) = found.checks
    assert not check.ok and check.detail.endswith("and so not lost: 1 echo")


@pytest.mark.parametrize(
    ("answered", "losses", "unseen"),
    [
        (9, [Loss("request lost inside sender-vm", 1, ["7/1"])], None),
        (10, [Loss("the answer came late at sender-vm", 1, ["7/2"])], "1 echo"),
    ],
)
def test_the_senders_own_count_of_answers_is_right(answered: int, losses: list[Loss], unseen: str | None) -> None:
    role = role_of("sender-vm", {1: "request_lost_inside"} if unseen is None else {1: "lost_outside", 2: "late"})
    capture = msgspec.structs.replace(role.files[0].capture, sent={"sent": 10, "answered": answered})
    role.files = [CaptureFile("a", capture)]
    found = located(JoinedCaptures({"sender-vm": role}))
    assert found.losses == losses
    assert [one.detail.rpartition(": ")[2] for one in found.checks] == ([] if unseen is None else [unseen])


def test_where_some_were_answered_nobody_says_of_which_that_they_were_lost() -> None:
    role = role_of("sender-vm", {1: "lost_outside", 2: "lost_outside", 3: "lost_outside"})
    role.files = [CaptureFile("a", msgspec.structs.replace(role.files[0].capture, sent={"sent": 3, "answered": 2}))]
    found = located(JoinedCaptures({"sender-vm": role}))
    assert found.losses == [Loss("not seen beyond sender-vm", 3, ["7/1", "7/2", "7/3"])]
    assert found.checks[0].detail.endswith(": 2 echoes")
