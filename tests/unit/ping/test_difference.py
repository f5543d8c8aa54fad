"""Two breakdowns compared: worked examples, and each limit from both sides."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole.ping.analysis.difference import UNDIVIDED, compared, folded_times
from netconsole.ping.breakdown import SCHEMA, Breakdown, PathTime, TimeChange

LAYER_OF = {"A": "vm_internal_us", "B": "host_internal_us", "C+J": "physical_network_us"}


def time(mean_us: float | None, **more: Any) -> PathTime:
    return PathTime(mean_us, None if mean_us is None else 9, True, where="here", what="way", **more)


def case(
    round_trip: float | None = None, stdev: float | None = None, n: int = 9, **segments: float | None
) -> Breakdown:
    """A case of some segments. C+J is ``wire``. Without a round trip of its own it is their sum."""
    times = {name.replace("wire", "C+J"): us for name, us in segments.items()}
    whole = sum(us or 0.0 for us in times.values()) if round_trip is None else round_trip
    return Breakdown(
        SCHEMA,
        whole,
        n,
        {name: time(us) for name, us in times.items()},
        {},
        {"sender_host_us": whole - (times.get("C+J") or 0.0), "physical_network_us": times.get("C+J")},
        {layer: times[name] for name, layer in LAYER_OF.items() if name in times},
        [],
        PathTime(whole, n, True, stdev_us=stdev),
    )


def test_difference_ratio_and_share_of_each() -> None:
    found = compared(case(A=30.0, wire=170.0), case(A=40.0, wire=60.0), "before")
    assert found.round_trip == TimeChange(100.0, 200.0, 100.0, 2.0, 100.0)
    assert found.segments == {"A": TimeChange(40.0, 30.0, -10.0, 0.75, -10.0),
                              "C+J": TimeChange(60.0, 170.0, 110.0, 170 / 60, 110.0)}  # fmt: skip
    assert found.layers == {"vm_internal_us": found.segments["A"], "physical_network_us": found.segments["C+J"]}
    assert found.parts["sender_host_us"] == found.segments["A"]
    assert found.parts["receiver_host_us"] == TimeChange(None, None, None, None)
    assert (found.verdict, found.baseline, found.folded) == ("regressed", "before", [])
    assert found.findings == [
        "The round trip is 200.0 us, the baseline's 100.0 us: +100.0 us, 2.00 times the baseline's.",
        "C+J (here, way): +110.0 us (60.0 → 170.0), 110 % of the difference.",
        "By layer, most of it is the network between the hosts: +110.0 us (60.0 → 170.0), 110 % of the difference.",
    ]


@pytest.mark.parametrize(
    ("now", "then", "ratio"),
    [(10.0, 0.0, None), (10.0, -5.0, None), (-1.0, 5.0, None), (0.0, 5.0, 0.0), (1e11, 1e-300, None)],
)
def test_there_is_no_ratio_to_nothing_or_of_what_is_below_zero(now: float, then: float, ratio: float | None) -> None:
    assert compared(case(A=now), case(A=then)).segments["A"].ratio == ratio


@pytest.mark.parametrize(("us", "share"), [(0.05, 100.0), (0.049, None), (-0.05, 100.0), (-0.049, None)])
def test_a_difference_below_a_twentieth_of_a_microsecond_is_not_divided(us: float, share: float | None) -> None:
    found = compared(case(A=1.0 + us * 1.0001), case(A=1.0))
    assert found.segments["A"].share_pct == (share and pytest.approx(share))
    assert (found.findings[1:] == ["Both round trips take the same time."]) is (share is None)


def test_without_a_round_trip_nothing_is_compared() -> None:
    unknown = Breakdown(SCHEMA, None, 0, {"A": time(5.0)}, {}, {}, {}, [])
    for now, then in ((unknown, case(A=9.0)), (case(A=9.0), unknown)):
        found = compared(now, then)
        assert found.findings == ["The round trips cannot be compared: in one case the round trip is not known."]
        assert found.verdict == "same" and found.segments["A"].share_pct is None and UNDIVIDED not in found.segments
    assert compared(case(A=9.0), unknown).segments["A"].difference_us == 4.0


def test_what_belongs_to_no_segment_is_a_row_of_its_own() -> None:
    found = compared(case(120.0, A=30.0), case(100.0, A=40.0))
    assert found.segments[UNDIVIDED] == TimeChange(None, None, 30.0, None, 150.0)
    assert found.layers[UNDIVIDED].difference_us == 30.0 and UNDIVIDED not in found.parts
    assert found.findings[1:] == [
        "+30.0 us of the difference cannot be given to a segment: one case lacks captures.",
    ]
    for us, is_told in ((0.9e-6, False), (1.1e-6, True)):  # a millionth is rounding
        assert (UNDIVIDED in compared(case(2.0 + us, A=2.0), case(1.0, A=1.0)).segments) is is_told
    for us, is_told in ((90e-6, False), (110e-6, True)):  # of 100 us
        assert (UNDIVIDED in compared(case(200.0 + us, A=200.0), case(100.0, A=100.0)).segments) is is_told


def test_a_segment_of_one_case_alone_counts_in_the_remainder_of_both() -> None:
    now, then = case(A=30.0, L=20.0, U_sender=50.0), case(A=30.0, L=None, U_sender=90.0)
    assert folded_times(now, then) == ({"A": 30.0, "L": None, "U_sender": 70.0}, ["L"])
    assert folded_times(then, now) == ({"A": 30.0, "L": None, "U_sender": 90.0}, [])
    for current, baseline, sign in ((now, then, 1), (then, now, -1)):
        found = compared(current, baseline)
        assert found.folded == ["L"] and found.segments["U_sender"].difference_us == -20.0 * sign
        then_us, now_us = (None, 20.0) if sign > 0 else (20.0, None)
        assert found.segments["L"] == TimeChange(then_us, now_us, None, None)
        assert found.findings[-1] == (
            "Only one case measured L: both cases count that time in the remainder of its side."
        )
    no_rest = case(L=20.0, U_sender=None)
    assert folded_times(no_rest, then) == ({"L": 20.0, "U_sender": None}, [])


def test_a_layer_is_the_sum_of_its_segments() -> None:
    layers = {"host_internal_us": 30.0, "virtualization_unmeasured_us": 7.0}
    now = case(B=10.0, K=20.0, U_sender=3.0, U_receiver=4.0)
    then = case(B=1.0, K=2.0, U_sender=30.0, U_receiver=None)
    now.layers.update(layers)
    found = compared(now, then).layers
    assert list(found) == ["host_internal_us", "virtualization_unmeasured_us"]
    assert (found["host_internal_us"].baseline_us, found["host_internal_us"].current_us) == (3.0, 30.0)
    rest = found["virtualization_unmeasured_us"]
    assert (rest.baseline_us, rest.current_us) == (30.0, 7.0)
    assert list(compared(then, now).layers)[:2] == list(layers)


def test_stages_are_compared_where_both_cases_have_them() -> None:
    def with_stages(wake: float | None, total: float | None) -> Breakdown:
        made = case(E=total)
        made.stages["E"] = {"s1_s2": time(wake), "s2_s3": time(5.0), "s4_s5": time(1.0), "total": time(total)}
        return made

    now, then = with_stages(40.0, 50.0), with_stages(10.0, 18.0)
    found = compared(now, then).stages["E"]
    assert found["s1_s2"] == TimeChange(10.0, 40.0, 30.0, 4.0, 93.75)
    assert found["s3_s4"] == TimeChange(None, None, None, None)
    assert found["total"].difference_us == 32.0 and found["rest"] == TimeChange(2.0, 4.0, 2.0, 2.0, 6.25)
    assert compared(with_stages(40.0, None), then).stages["E"]["rest"].current_us is None
    assert compared(with_stages(None, 50.0), then).stages["E"]["rest"].current_us == 44.0
    told = (
        "The stage with most of it, S1→S2: vhost's worker wakes up and copies the packet to the guest:"
        " +30.0 us (10.0 → 40.0), 94 % of the difference."
    )
    assert any(text.endswith(told) for text in compared(now, then).findings)
    assert compared(now, case(E=18.0)).stages == compared(case(E=50.0), then).stages == {}


def test_three_segments_with_a_tenth_of_the_difference_are_named() -> None:
    then = case(A=10.0, B=10.0, K=10.0, M=10.0)

    def names(**segments: Any) -> list[str]:
        found = compared(case(**segments), then).findings
        return [text.partition(" (")[0] for text in found[1:] if "(here" in text]

    assert names(A=20.0, B=30.0, K=40.0, M=50.0) == ["M", "K", "B"]
    assert names(A=10.0, B=20.0, K=10.0, M=100.0) == ["M", "B"]  # 10 of 100 us
    assert names(A=10.0, B=19.9, K=10.0, M=100.1) == ["M"]
    assert names(A=10.0, B=11.0, K=9.5, M=9.8) == ["B"]
    assert names(A=12.0, B=8.0, K=0.0, M=9.0) == ["K", "B"]  # of what became shorter


@pytest.mark.parametrize(
    ("now", "then", "verdict"),
    [
        (15.0, 10.0, "regressed"),  # 5 us
        (14.9, 10.0, "same"),
        (70.4, 64.0, "regressed"),  # a tenth
        (109.9, 100.0, "same"),  # below a tenth
        (110.1, 100.0, "regressed"),
        (64.0, 70.4, "changed"),
        (100.0, 109.9, "same"),
        (5.0, -5.0, "regressed"),
    ],
)
def test_a_regression_is_a_tenth_and_five_microseconds(now: float, then: float, verdict: str) -> None:
    assert compared(case(A=now), case(A=then)).verdict == verdict


@pytest.mark.parametrize(("stdev", "verdict"), [(6.57, "regressed"), (6.67, "same"), (0.0, "regressed")])
def test_what_may_be_chance_is_no_regression(stdev: float, verdict: str) -> None:
    """Nine echoes each: of 16 degrees of freedom, t = 2.921 is the table's 1 %: a stdev of 6.63 for 9.13 us."""
    found = compared(case(29.13, stdev, A=29.13), case(20.0, stdev, A=20.0))
    assert found.verdict == verdict
