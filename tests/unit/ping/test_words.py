"""What a breakdown says in sentences: worked examples, one change at a time."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole.ping.breakdown import SCHEMA, Breakdown, BreakdownCheck, Loss, PathTime
from netconsole.ping.model import UNSEEN
from netconsole.ping.words import LEAST_US, ONE_HOST, STAGE_LETTERS, dominant, largest_stage, named, percent, sentences
from netconsole.ping.words import us as in_us


def time(mean_us: float | None, **more: Any) -> PathTime:
    return PathTime(mean_us, None if mean_us is None else 1, True, **more)


def breakdown(**changes: Any) -> Breakdown:
    """A round trip of 100 us: 30 in A, 70 in E."""
    made: dict[str, Any] = {
        "round_trip_us": 100.0,
        "paired_packets": 1,
        "segments": {
            "A": time(30.0, share_pct=30.0, where="sender-vm", what="request"),
            "E": time(70.0, share_pct=70.0, where="receiver-host", what="interrupt"),
            "F": time(None),
        },
        "stages": {},
        "parts": {},
        "layers": {"vm_internal_us": 30.0, "virtualization_measured_us": 70.0, "host_internal_us": None},
        "checks": [],
        "dominant": "E",
    }
    return Breakdown(SCHEMA, **{**made, **changes})


MOST = "Most time is in E (receiver-host, interrupt): 70.0 us of 100.0 us, 70 %."
LAYER = "The layer with most time is from taps to guests' interrupts: 70.0 us, 70 %."


@pytest.mark.parametrize(
    ("value", "plain", "signed"),
    [
        (None, "–", "–"),
        (12.34, "12.3", "+12.3"),
        (-12.36, "-12.4", "-12.4"),
        (-0.04, "0.0", "0.0"),
        (0.04, "0.0", "0.0"),
        (0.06, "0.1", "+0.1"),
    ],
)
def test_microseconds_have_one_decimal_and_zero_has_no_sign(value: float | None, plain: str, signed: str) -> None:
    assert (in_us(value), in_us(value, sign=True)) == (plain, signed)


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (-0.4, "-0.4 %"), (0.4, "0.4 %"), (12.6, "13 %"), (99.6, "99 %")]
)
def test_percentages_have_two_digits(value: float | None, text: str) -> None:
    assert percent(value) == text


def test_a_remainder_is_named_by_its_side() -> None:
    assert named("A", time(1.0, where="sender-vm", what="request")) == "A (sender-vm, request)"
    rest = time(1.0, where="sender", what=UNSEEN["sender"])
    assert named("U_sender", rest) == f"U_sender (sender's side, seen by no probe: {UNSEEN['sender']})"


def test_letters_stand_for_the_stages_in_a_table() -> None:
    assert STAGE_LETTERS == {
        "s1_s2": "S1→S2",
        "s2_s3": "S2→S3",
        "s3_s4": "S3→S4",
        "s4_s5": "S4→S5",
        "k1_k2": "K1→K2",
        "k2_k3": "K2→K3",
        "k3_k4": "K3→K4",
    }


def test_the_segment_with_most_time_is_the_dominant_one() -> None:
    assert dominant(breakdown()) == "E"
    assert dominant(breakdown(segments={"A": time(-3.0), "B": time(-2.0), "F": time(None)})) == "B"
    assert dominant(breakdown(segments={"F": time(None)})) is None


def test_the_largest_stage_is_one_that_is_known_and_not_the_total() -> None:
    rows = {"s1_s2": time(22.0), "s2_s3": time(40.0), "s3_s4": time(None), "total": time(70.0)}
    assert largest_stage(breakdown(stages={"E": rows}), "E") == ("s2_s3", 40.0)
    assert largest_stage(breakdown(stages={"E": rows}), "L") is None
    assert largest_stage(breakdown(stages={"E": {"s1_s2": time(None), "total": time(70.0)}}), "E") is None


def test_the_most_important_comes_first() -> None:
    assert sentences(breakdown()) == [MOST, LAYER]
    rows = {"s1_s2": time(22.0), "s4_s5": time(40.0), "total": time(70.0)}
    stage = "Of its 70.0 us, 40.0 us are in the stage S4→S5: from irqfd to the vCPU."
    assert sentences(breakdown(stages={"E": rows})) == [MOST, stage, LAYER]
    lower = sentences(breakdown(incomplete={"virtualization_measured_us": ["L"]}))
    assert lower == [MOST, LAYER.replace("70.0 us, ", "70.0 us or more, ")]
    assert sentences(breakdown(layers={"host_internal_us": None})) == [MOST]


def test_without_a_round_trip_there_are_no_shares() -> None:
    assert sentences(breakdown(round_trip_us=None)) == [
        "The round trip is not known: there is no capture of the machine that pings.",
        "Most time is in E (receiver-host, interrupt): 70.0 us.",
    ]
    assert sentences(breakdown(dominant=None, round_trip_us=0.0)) == []
    no_share = {"E": time(100.0, where="receiver-host", what="interrupt")}
    assert sentences(breakdown(segments=no_share, layers={})) == [
        "Most time is in E (receiver-host, interrupt): 100.0 us."
    ]


@pytest.mark.parametrize(
    ("us", "is_told"), [(LEAST_US - 1e-3, False), (LEAST_US + 1e-3, True), (5.0, True), (-5.0, False)]
)
def test_what_belongs_to_no_segment_is_said(us: float, is_told: bool) -> None:
    assert LEAST_US == 0.05
    said = sentences(breakdown(round_trip_us=100.0 + us, layers={}))
    assert len(said) == 1 + is_told
    if us == 5.0:
        assert said[0] == ("5.0 of 105.0 us, 4.8 %, cannot be given to a segment: captures are missing. Of the rest:")


def test_losses_and_what_is_to_be_noted_come_last_and_each_once() -> None:
    checks = [
        BreakdownCheck(ONE_HOST, True, "both ends are on one host: no network"),
        BreakdownCheck("fine", True, "holds"),
        BreakdownCheck("clock", False, "a clock was set"),
        BreakdownCheck("clock", False, "a clock was set"),
    ]
    losses = [Loss("lost here", 1, ["7/1"]), Loss("lost there", 2, ["7/2", "7/3"]), *[Loss("far", 1)] * 4]
    assert sentences(breakdown(checks=checks, losses=losses)) == [
        MOST,
        LAYER,
        "Both ends are on one host: no network.",
        "1 echo: lost here (7/1).",
        "2 echoes: lost there (7/2, 7/3).",
        *["1 echo: far."] * 3,
        "To be noted: a clock was set.",
    ]
