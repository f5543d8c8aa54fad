"""A change is reported once: as that of a counter's rows, or as the counter's; rows that are no fault are left out."""

from __future__ import annotations

import pytest

from netconsole.compare.judge import Judged, Statistic
from netconsole.compare.labels import Names
from netconsole.compare.metrics import Identity, Metric, MetricKind, Metrics, Worse
from netconsole.compare.sums import change_of, rests, said_once
from tests.support import made_up

COUNTER: Identity = ("p", "counter", "drops", ())
CPUS: Identity = ("p", "table", "softirqs.runs", ())


def row(reason: str, column: str = "drops.count", kind: MetricKind = "table") -> Identity:
    return ("p", kind, column, (("reason", reason),))


def judged(identity: Identity, change: float, counter: Identity | None = None, worse: Worse = "up") -> Judged:
    metric = Metric(identity, "packets", worse, counter=counter)
    return Judged(metric, Statistic("rate", 10.0, 10.0 + change, None, 0.001), "packets/s", True, 1.0)


def said(*certain: Judged, also: tuple[Judged, ...] = ()) -> tuple[list[Identity], dict[Identity, float]]:
    """What is left of these, and the share of each row; ``also`` was judged and is not certain."""
    left, parts = said_once([*certain], {one.metric.identity: one for one in (*certain, *also)})
    return [one.metric.identity for one in left], {identity: share for identity, (_, share) in parts.items()}


def test_a_change_is_now_less_the_baseline() -> None:
    assert change_of(judged(COUNTER, 5.0)) == 5.0 and change_of(judged(COUNTER, -5.0)) == -5.0


@pytest.mark.parametrize(("of_rows", "is_counter_left"), [((30.0, 20.0), False), ((30.0, 19.9), True)])
def test_a_counter_is_left_out_when_its_rows_have_half_of_its_change(
    of_rows: tuple[float, float], is_counter_left: bool
) -> None:
    rows = [judged(row(name), change, COUNTER) for name, change in zip("AB", of_rows, strict=True)]
    left, parts = said(judged(COUNTER, 100.0), *rows)
    assert left == [COUNTER] * is_counter_left + [row("A"), row("B")]
    assert parts == pytest.approx({row("A"): of_rows[0] / 100, row("B"): of_rows[1] / 100})


def test_a_counter_that_did_not_change_has_no_parts() -> None:
    assert said(judged(COUNTER, 0.0), judged(row("A"), 30.0, COUNTER)) == ([COUNTER, row("A")], {})


def test_a_row_that_is_no_fault_is_no_part_of_one() -> None:
    benign = judged(row("A"), 90.0, COUNTER, worse=None)
    assert said(judged(COUNTER, 100.0), benign) == ([COUNTER, row("A")], {})
    neutral = judged(COUNTER, 100.0, worse=None)
    assert said(neutral, benign) == ([row("A")], {row("A"): 0.9})


def test_of_a_sum_over_cpus_the_sum_is_said_if_it_is_certain_and_else_the_busiest() -> None:
    busiest, whole = judged(row("busiest", "softirqs.runs"), 80.0, CPUS), judged(CPUS, 100.0)
    assert said(whole, busiest) == ([CPUS], {})
    assert said(busiest, also=(whole,)) == ([row("busiest", "softirqs.runs")], {})


def metrics(*found: Metric) -> Metrics:
    one = Metrics(made_up.snapshot(1), Names({}))
    for metric in found:
        one.add(metric)
    return one


def drops(count: int, benign: int, other: int = 0) -> tuple[Metric, Metrics]:
    """A counter of drops, and its snapshot with so many of them in a benign row and in one for another reason."""
    counter = Metric(COUNTER, "packets", "up", count=count, parts=[1.0])
    rows = [
        Metric(row("benign"), "packets", None, count=benign, counter=COUNTER),
        Metric(row("bad"), "packets", "up", count=other, counter=COUNTER),
    ]
    return counter, metrics(counter, *rows)


def test_benign_rows_are_no_part_of_a_counter_on_both_sides() -> None:
    (now, here), (was, there) = drops(100, 60, 40), drops(50, 45, 5)
    ((metric, past, sides),) = rests([(now, [was], [there])], here, set())
    assert (metric.count, metric.is_rest, metric.parts) == (40, True, None)
    assert [one and one.count for one in past] == [5] and sides == [there]


def test_rows_that_cannot_be_compared_are_left_out_too() -> None:
    (now, here), (was, there) = drops(100, 60, 40), drops(50, 45, 5)
    ((metric, past, _),) = rests([(now, [was], [there])], here, {row("bad")})
    assert metric.count == 0 and [one and one.count for one in past] == [0]


def test_where_rows_do_not_add_up_in_all_snapshots_the_rest_is_not_known() -> None:
    (now, here), was = drops(100, 60, 40), Metric(COUNTER, "packets", "up", count=50)
    ((metric, past, _),) = rests([(now, [was], [metrics(was)])], here, set())
    assert (metric, past) == (now, [was])
    empty = Metric(COUNTER, "packets", "up", count=0)
    ((metric, _, _),) = rests([(now, [empty, None], [metrics(empty), metrics()])], here, set())
    assert metric.count == 40  # a counter of nothing has no rows, and lacks none


def test_a_counter_without_benign_rows_stays_whole() -> None:
    (now, here), (was, there) = drops(100, 0, 100), drops(50, 0, 50)
    ((metric, past, _),) = rests([(now, [was], [there])], here, set())
    assert (metric, past) == (now, [was]) and not metric.is_rest


def test_of_columns_that_add_up_to_one_counter_the_largest_counts() -> None:
    counter, side = drops(100, 30, 70)
    side.add(Metric(row("benign", "drops.other"), "packets", None, count=50, counter=COUNTER))
    side.add(Metric(row("x", "drops.other"), "packets", None, count=10, counter=COUNTER))
    ((metric, _, _),) = rests([(counter, [], [])], side, set())
    assert metric.count == 100 - 60
