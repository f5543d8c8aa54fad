"""What makes a change a finding, and which way: the rules of docs/use/comparison.md at their limits."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole.compare import compare, sentences
from netconsole.compare.comparable import probe_differs
from netconsole.compare.compare import direction_of
from netconsole.compare.judge import Judged, Statistic
from netconsole.compare.labels import MetricLabels
from netconsole.compare.metrics import Metric, Worse
from netconsole.snapshot.document import ProbeData

TAP: MetricLabels = (("device", "tap0"),)


def judged(
    baseline: float,
    current: float,
    share: float | None = None,
    *,
    worse: Worse = "up",
    benign: Worse = None,
    labels: MetricLabels = TAP,
    name: str = "rate",
    size: float = 1.0,
    p: float = 0.001,
    unit: str = "packets",
) -> Judged:
    metric = Metric(("p", "table", "t", labels), unit, worse, benign=benign)
    one = Judged(metric, Statistic(name, baseline, current, None, p), "packets/s", True, size)
    one.share = share
    return one


@pytest.mark.parametrize(
    ("baseline", "current", "share", "is_loss"),
    [
        (0.0, 5.0, 0.001, True),  # new: from 0.1 % of the device's packets on
        (0.0, 5.0, 0.00099, False),
        (0.0, 5.0, None, True),  # new, and the packets are not known
        (3.0, 5.0, 0.01, True),  # more of them: from 1 % on
        (3.0, 5.0, 0.0099, False),
        (3.0, 5.0, None, False),
        (5.0, 3.0, 0.5, False),
        (5.0, 5.0, 0.5, False),
    ],
)
def test_benign_drops_are_a_loss_when_they_are_new_or_take_much_of_the_traffic(
    baseline: float, current: float, share: float | None, is_loss: bool
) -> None:
    one = judged(baseline, current, share)
    assert compare._is_loss(one) is is_loss
    one.large = False
    assert compare._is_loss(one) is False


@pytest.mark.parametrize(
    ("baseline", "current", "worse", "name", "direction"),
    [
        (1.0, 2.0, "up", "rate", "worse"),
        (2.0, 1.0, "up", "rate", "better"),
        (2.0, 1.0, "down", "rate", "worse"),
        (1.0, 2.0, "down", "rate", "better"),
        (1.0, 2.0, None, "rate", "different"),
        (1.0, 2.0, "up", "shape", "different"),
    ],
)
def test_a_change_is_worse_in_the_direction_of_its_metric(
    baseline: float, current: float, worse: Worse, name: str, direction: str
) -> None:
    assert direction_of(judged(baseline, current, worse=worse, name=name)) == direction


@pytest.mark.parametrize(
    ("received", "sent", "change", "share"),
    [
        (1000.0, 9.0, {}, 0.002),
        (1000.0, 9.0, {"labels": (*TAP, ("netns", "host"))}, 0.002),
        (1000.0, 9.0, {"labels": (*TAP, ("netns", "red"))}, None),
        (1000.0, 9.0, {"labels": (("device", "tap1"),)}, None),
        (0.0, 0.0, {}, None),
        (1.0, 9.0, {}, 1.0),  # no more than all of them, although it came in when the device was read
        (9.0, 6.0, {"labels": (*TAP, ("location", "__dev_queue_xmit"))}, 0.25),  # lost ones were not sent
        (9.0, 0.0, {"labels": (*TAP, ("reason", "FULL_RING"))}, 1.0),
        (1000.0, 9.0, {"unit": "bytes"}, None),
        (1000.0, 9.0, {"worse": None}, None),
        (1000.0, 9.0, {"worse": None, "benign": "up"}, 0.002),
        (1000.0, 9.0, {"worse": "down"}, None),
    ],
)
def test_a_loss_is_a_share_of_the_packets_of_its_device_in_its_direction(
    received: float, sent: float, change: dict[str, Any], share: float | None
) -> None:
    packets_per_s: dict[Any, dict[str, float]] = {"tap0": {"rx_packets": received, "tx_packets": sent}}
    assert compare._share(judged(1.0, 3.0, **change), packets_per_s) == share
    assert compare._share(judged(3.0, 1.0, **change), packets_per_s) is None, "less of it is no loss"


def test_worse_comes_first_then_the_larger_change_then_the_more_certain_one() -> None:
    ranked = [
        judged(1.0, 2.0, size=1.0),
        judged(1.0, 2.0, size=9.0, worse=None),
        judged(2.0, 1.0, size=-3.0),
        judged(2.0, 1.0, size=-2.04, p=1e-9),
        judged(2.0, 1.0, size=2.0, p=0.002),
        judged(2.0, 1.0, size=2.0, p=0.002, labels=(("device", "tap1"),)),
    ]
    assert sorted([*ranked[3:], *ranked[:3]], key=compare._importance) == ranked


@pytest.mark.parametrize(
    ("directions", "facts", "verdict"),
    [
        (["better", "worse"], False, "regressed"),
        (["better"], False, "changed"),
        (["different"], False, "changed"),
        ([], True, "changed"),
        ([], False, "same"),
    ],
)
def test_the_verdict_is_the_worst_that_there_is(directions: list[Any], facts: bool, verdict: str) -> None:
    assert compare._verdict(directions, facts) == verdict


PROBE = {"status": "attached", "version": 1, "mode": "summary", "attach": ["b", "a"]}


@pytest.mark.parametrize(
    ("now", "before", "shorter_s", "why"),
    [
        ({}, {}, 1.0, None),
        ({}, {}, 0.49, "one of the snapshots is shorter than 1 s"),
        ({}, {"attach": ["a", "b"]}, 9.0, None),
        ({}, {"attach": ["c"]}, 9.0, None),
        ({"status": "degraded"}, {"attach": ["a", "b"]}, 9.0, None),
        ({"status": "degraded"}, {"attach": ["a", "c"]}, 9.0, "one of the snapshots lacks an attach point: b, c"),
        ({}, {"attach": ["a"], "status": "degraded"}, 9.0, "one of the snapshots lacks an attach point: b"),
        ({"version": None}, {}, 9.0, None),
        ({}, {"version": None}, 9.0, None),
        ({"version": 2}, {}, 9.0, "the probe has version 2 now and had version 1: its figures mean something else"),
        ({"mode": "details"}, {}, 9.0, "the probe runs in mode details and ran in mode summary"),
        ({"filters": {"reason": "XDP"}}, {"filters": None}, 9.0, None),
        ({"filters": {"reason": "XDP"}}, {"filters": {"reason": "XDP"}}, 9.0, None),
        ({"filters": {"device": "vnet3"}}, {"filters": {"device": "vnet7"}}, 9.0, None),
        ({"filters": {"port": 53}}, {"filters": {}}, 9.0, "its filters differ: port=53 now, none in the baseline"),
        (
            {"filters": {}},
            {"filters": {"device": "eth0"}},
            9.0,
            "its filters differ: none now, device=eth0 in the baseline",
        ),
        ({"status": "failed"}, {}, 9.0, "failed in the current snapshot"),
        ({"status": "off", "why": "too dear"}, {"status": "failed"}, 9.0, "off in the current snapshot: too dear"),
        ({}, {"status": "failed"}, 9.0, "failed in the baseline"),
        ({"status": "failed"}, {"status": "failed"}, 9.0, "failed on both sides"),
    ],
)
def test_figures_of_a_probe_are_compared_when_both_sides_measured_the_same(
    now: dict[str, Any], before: dict[str, Any], shorter_s: float, why: str | None
) -> None:
    sides = [ProbeData(**{**PROBE, **side}) for side in (now, before)]
    assert probe_differs(sides[0], sides[1], shorter_s) == why


def test_a_probe_of_one_side_alone_is_not_compared() -> None:
    one = ProbeData("attached")
    assert probe_differs(None, one, 9.0) == "not in the current snapshot"
    assert probe_differs(one, None, 9.0) == "not in the baseline"


def test_a_part_of_a_counter_says_its_share_of_the_change_and_what_may_be_chance_says_so() -> None:
    one, counter = judged(1.0, 3.0, 0.002), ("p", "counter", "drops", ())
    assert compare._details(one, True, None) == ["0.2 % of the packets of its device"]
    said = compare._details(judged(1.0, 3.0), False, (counter, 0.254))  # type: ignore[arg-type]
    assert said == ["25 % of the change of p/counter/drops", "may be chance"]
    assert compare._details(judged(1.0, 3.0), True, (counter, 1.7)) == ["100 % of the change of p/counter/drops"]  # type: ignore[arg-type]
    assert compare._details(judged(1.0, 3.0), True, (counter, 0.0)) == []  # type: ignore[arg-type]
    better = judged(3.0, 1.0, 0.002)
    assert compare._details(better, True, None) == []
    better.metric.is_rest = True
    assert compare._details(better, True, None) == ["rows that are benign or not comparable are left out"]


def test_a_finding_shows_both_figures_their_ratio_and_the_spread() -> None:
    one = judged(2.0, 4.0)
    assert sentences.figures(one) == "2 packets/s → 4 packets/s (×2)"
    one.stands_for.spread = 0.5
    one.stands_for.name = "lasting"
    assert sentences.figures(one) == "lasting 2 packets/s → 4 packets/s (×2), the baseline's runs vary by 0.5 packets/s"
    one.stands_for.name, one.distance = "shape", 1.257
    text = sentences.figures(one)
    assert text == "the distribution has another shape, as if all values were ×2.39; its percentiles did not change"
