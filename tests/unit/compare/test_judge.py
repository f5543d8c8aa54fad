"""One metric against a baseline, by the rules of docs/use/comparison.md, at their boundaries."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from netconsole.compare.judge import (
    Counted,
    Judged,
    Spreads,
    Statistic,
    counted,
    enough,
    judge_count,
    judge_gauge,
    judge_histogram,
    lasting,
    least_difference,
    log_rates,
    log_values,
)
from netconsole.compare.metrics import Distribution, Metric
from netconsole.compare.significance import rate_p, share_p, spread

DROPS = ("p", "counter", "drops", ())
WAIT = ("p", "histogram", "wait", ())


def metric(count: int = 0, parts: Sequence[float] | None = None, unit: str = "packets") -> Metric:
    return Metric(("p", "counter", "drops", ()), unit, "up", count=count, parts=None if parts is None else list(parts))


def even(count: int, seconds: int = 10) -> Metric:
    """A count that came evenly."""
    return metric(count, [count / seconds] * seconds)


def judged(now: Metric, *before: Metric | None, seconds: float = 10.0, burst: float = 1.0) -> Judged:
    found = judge_count(now, seconds, [(one, seconds) for one in before], Spreads(), burst)
    assert found is not None
    return found


# ---- what a finding is ----


def test_the_probability_of_a_figure_is_multiplied_by_how_many_were_looked_at() -> None:
    one = Judged(metric(), Statistic("p99", 1.0, 2.0, None, 0.004), "us", True, 1.0)
    assert one.p == 0.004
    one.statistics = [one.stands_for] * 4
    assert one.p == pytest.approx(0.016)
    one.stands_for.p = 0.3
    assert one.p == 1.0


@pytest.mark.parametrize(
    ("baseline", "current", "ratio", "log2"),
    [
        (4.0, 8.0, 2.0, 1.0),
        (8.0, 4.0, 0.5, -1.0),
        (0.0, 3.0, None, 20.0),
        (3.0, 0.0, None, -20.0),
        (0.0, 0.0, None, 0.0),
    ],
)
def test_a_change_from_or_to_nothing_has_no_ratio_and_is_as_large_as_can_be(
    baseline: float, current: float, ratio: float | None, log2: float
) -> None:
    one = Statistic("rate", baseline, current, None, 1.0)
    assert (one.ratio, one.log2_ratio) == (ratio, log2)
    assert Statistic("rate", None, current or 1.0, None, 1.0).ratio is None


# ---- counts ----


@pytest.mark.parametrize(
    ("before", "now", "large"),
    [
        (40, 50, True),
        (40, 49, False),
        (39, 49, True),
        (8, 17, False),
        (8, 18, True),
        (0, 10, True),
        (0, 9, False),
        (60, 45, True),
        (50, 41, False),
    ],
)
def test_a_count_is_large_enough_from_a_factor_of_1_25_and_ten_events_on(before: int, now: int, large: bool) -> None:
    assert judged(even(now), even(before)).large is large


def test_ten_milliseconds_of_a_sum_of_times_are_ten_events() -> None:
    """A sum of times has no events to count: one millisecond, or 64 kB, is taken as one."""
    assert judged(metric(10_000_000, unit="ns"), metric(0, unit="ns")).large
    assert not judged(metric(9_999_999, unit="ns"), metric(0, unit="ns")).large
    assert judged(metric(655_360, unit="bytes"), metric(0, unit="bytes")).large
    assert not judged(metric(655_359, unit="bytes"), metric(0, unit="bytes")).large
    one = judged(metric(20_000_000, unit="ns"), metric(10_000_000, unit="ns"))
    assert (one.stands_for.baseline, one.stands_for.current, one.unit) == (1e6, 2e6, "ns/s")


def test_a_single_snapshot_must_differ_by_more_than_a_factor_of_two() -> None:
    one = judged(even(300), even(100))
    # Even parts: nothing came at once, and the guess of four counts as one part beside 18 degrees of freedom.
    burst = max(1.0, (4.0 * 1.0 + 0.0) / 19)
    assert one.p == pytest.approx(rate_p(100, 10, 300, 10, ratio=2.0, burst=burst))
    assert judged(even(200), even(100)).p == 1.0
    assert [one.name for one in judged(even(300), even(100)).statistics] == ["rate"]


def test_the_least_certain_of_two_snapshots_counts() -> None:
    one = judged(even(300), even(100), even(20))
    assert one.p == pytest.approx(rate_p(100, 10, 300, 10, ratio=2.0))
    assert one.stands_for.baseline == 6.0, "the median of 10 and 2 a second"


def test_without_a_series_the_given_burst_counts_as_one_event() -> None:
    one = judged(metric(400), metric(100), burst=4.0)
    assert one.p == pytest.approx(rate_p(100, 10, 400, 10, ratio=2.0, burst=4.0))


def test_nothing_on_both_sides_is_no_figure() -> None:
    assert judge_count(metric(0), 10.0, [(None, 10.0), (metric(0), 10.0)], Spreads(), 1.0) is None
    assert judged(metric(0), metric(100)).stands_for.current == 0.0


def test_the_size_of_a_change_is_counted_with_one_event_more_on_both_sides() -> None:
    assert judged(even(63), even(0)).size == pytest.approx(6.0)
    assert judged(even(0), even(63)).size == pytest.approx(-6.0)


def test_with_three_snapshots_a_change_must_be_beyond_their_spread_and_their_nearest() -> None:
    before = [even(100), even(104), even(96)]
    one = judged(even(200), *before)
    assert one.large and one.p < 1e-3 and one.stands_for.baseline == 10.0
    assert one.stands_for.spread == pytest.approx(10.0 * 0.05, rel=0.3), "the least spread is 5 %"
    assert judged(even(128), even(100), even(127), even(100)).p == 1.0, "within a factor of 1.25 of the nearest"
    assert judged(even(40), *before).p < 1e-3
    assert judged(even(79), even(100), even(80), even(100)).p == 1.0
    assert judged(even(126), even(100), even(30), even(300)).p == 1.0, "within the range of the baseline"


def test_from_nothing_the_factor_of_a_single_snapshot_takes_the_place_of_the_spread() -> None:
    one = judged(even(20), *[even(0)] * 3)
    assert one.p == pytest.approx(rate_p(0, 30, 20, 10, ratio=2.0))
    assert one.stands_for.baseline == 0.0 and one.stands_for.spread == 0.0


# ---- what lasts ----


def test_a_burst_is_no_lasting_loss_and_a_loss_of_two_a_second_is() -> None:
    assert lasting(Counted(2000, 10.0, [0.0] * 9 + [2000.0])) == Counted(0.0, 10.0, [0.0] * 10)
    even_loss = Counted(20, 10.0, [2.0] * 10)
    assert lasting(even_loss) == even_loss
    # Three standard deviations and one event above the median: 4 + 3 * 2 + 1 = 11.
    assert lasting(Counted(136, 10.0, [4.0] * 9 + [100.0])) == Counted(47.0, 10.0, [4.0] * 9 + [11.0])
    assert lasting(Counted(47, 10.0, [4.0] * 9 + [11.0])) == Counted(47.0, 10.0, [4.0] * 9 + [11.0])


def test_what_lasts_is_known_from_three_parts_on() -> None:
    assert lasting(Counted(5, 10.0, [2.0, 3.0])) is None and lasting(Counted(5, 10.0)) is None
    assert lasting(Counted(6, 3.0, [2.0, 2.0, 2.0])) == Counted(6.0, 3.0, [2.0, 2.0, 2.0])
    assert lasting(Counted(0, 10.0)) == Counted(0.0, 10.0, ())


def test_a_count_with_bursts_is_looked_at_both_ways_and_pays_for_it() -> None:
    burst = metric(1100, [10.0] * 5 + [1010.0] + [10.0] * 4)
    one = judged(metric(400, [40.0] * 10), burst)
    assert [statistic.name for statistic in one.statistics] == ["rate", "lasting"]
    assert one.stands_for.name == "lasting"
    assert one.p == pytest.approx(2 * one.stands_for.p)
    assert one.stands_for.current == 40.0
    # 10 + 3 * sqrt(10) + 1 events of the burst are left.
    assert one.stands_for.baseline == pytest.approx((90 + 11 + 3 * math.sqrt(10)) / 10)


def test_the_count_of_a_snapshot_is_in_events() -> None:
    assert counted(None, 3.0) == Counted(0.0, 3.0)
    assert counted(metric(2_000_000, unit="ns"), 4.0) == Counted(2.0, 4.0, None)
    assert counted(metric(30, [10, 20]), 2.0).per_s == 15.0
    assert log_rates([Counted(0.0, 10.0), Counted(9.5, 10.0)]) == [math.log(0.05), math.log(1.0)]
    assert log_values([None, 0.0, 1.0, math.e]) == [0.0, 1.0]


# ---- spreads ----


def test_a_spread_is_drawn_towards_what_is_typical_with_the_weight_of_four() -> None:
    spreads = Spreads()
    wild, steady = [0.0, 1.0, 2.0], [0.0, 0.0, 0.0]
    for _ in range(3):
        spreads.learn("p50", wild)
    spreads.learn("p50", [1.0, 2.0])  # too few to tell anything
    typical = spread(wild)
    assert typical is not None
    assert spreads.of("p50", wild) == pytest.approx(typical)
    # Never less than a third of the typical one; weights 4 and 2.
    expected = math.exp((4 * math.log(typical) + 2 * math.log(typical / 3)) / 6)
    assert spreads.of("p50", steady) == pytest.approx(expected)
    assert spreads.of("p50", [0.0, 1.0]) is None


def test_no_spread_is_less_than_the_least_one() -> None:
    spreads = Spreads()
    # Nothing learned: typical is the least one, 20 %. Own: a third of it, or half of the least, the larger: 10 %.
    assert spreads.of("p99", [1.0] * 5) == 0.2
    own = spread([0.0, 0.5, 1.0])
    assert own is not None
    assert spreads.of("p99", [0.0, 0.5, 1.0]) == pytest.approx(math.exp((4 * math.log(0.2) + 2 * math.log(own)) / 6))


# ---- gauges ----


def gauge(value: float | None, unit: str = "packets") -> Metric:
    return Metric(("p", "gauge", "depth", ()), unit, "up", value=value)


def test_a_gauge_needs_three_snapshots_and_is_compared_with_their_spread() -> None:
    assert judge_gauge(gauge(9.0), [1.0, 1.0], Spreads()) is None
    assert judge_gauge(gauge(None), [1.0, 1.0, 1.0], Spreads()) is None
    one = judge_gauge(gauge(1000.0), [10.0, 11.0, 9.0], Spreads())
    assert one is not None and one.large and one.p < 0.001
    assert (one.stands_for.baseline, one.stands_for.current, one.unit) == (10.0, 1000.0, "packets")
    assert one.size == pytest.approx(math.log2(1001 / 11))
    same = judge_gauge(gauge(10.5), [10.0, 11.0, 9.0], Spreads())
    assert same is not None and same.p == 1.0 and not same.large


def test_a_longest_time_varies_by_a_factor_of_3_6() -> None:
    longest = judge_gauge(gauge(30_000_000.0, "ns"), [10e6, 11e6, 9e6], Spreads())
    depth = judge_gauge(gauge(30_000_000.0), [10e6, 11e6, 9e6], Spreads())
    assert longest is not None and depth is not None
    assert longest.p > 0.4 > depth.p
    assert longest.stands_for.spread == pytest.approx(1.28 * 10e6)
    assert longest.size == pytest.approx(math.log2(31 / 11)), "a millisecond of it is one event"


# ---- histograms ----


def times(*buckets: tuple[float, float, int]) -> Distribution:
    count = sum(n for _, _, n in buckets)
    return Distribution(count, sum((low + high) / 2 * n for low, high, n in buckets), list(buckets))


def of_histogram(now: Distribution, *before: Distribution, unit: str = "us") -> Judged | None:
    return judge_histogram(Metric(WAIT, unit, "up", histogram=now), before, Spreads())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "percent", "known"),
    [
        (10, 50.0, True),
        (9, 50.0, False),
        (50, 90.0, True),
        (49, 90.0, False),
        (500, 99.0, True),
        (499, 99.0, False),
        (10, 10.0, False),
    ],
)
def test_a_percentile_is_compared_with_five_samples_beyond_it(count: int, percent: float, known: bool) -> None:
    assert enough(times((1.0, 2.0, count)), percent) is known


def test_a_single_snapshots_percentiles_have_margins_and_no_mean() -> None:
    """Samples beyond twice the baseline's percentile, of p99 four times; four of them count as one."""
    before = times((10.0, 11.0, 900), (20.0, 22.0, 100))
    now = times((10.0, 11.0, 500), (40.0, 44.0, 500))
    one = of_histogram(now, before)
    assert one is not None
    by_name = {statistic.name: statistic for statistic in one.statistics}
    assert list(by_name) == ["p50", "p90", "p99"]
    # p90 moved from the first bucket to [40, 44): beyond 11 are 100 before, beyond 22 are 500 now.
    assert by_name["p90"].p == pytest.approx(share_p(100, 1000, 500, 1000, 4.0))
    # p99 moved from [20, 22) to [40, 44): nothing was beyond 22; beyond 88 is nothing now.
    assert by_name["p99"].p == 1.0
    assert by_name["p99"].spread is None and one.large


def test_a_fall_is_a_rise_with_the_sides_exchanged() -> None:
    low, high = times((10.0, 11.0, 1000)), times((100.0, 110.0, 1000))
    up, down = of_histogram(high, low), of_histogram(low, high)
    assert up is not None and down is not None
    assert up.stands_for.p == pytest.approx(down.stands_for.p) and up.stands_for.p < 1e-12
    assert up.stands_for.log2_ratio == pytest.approx(-down.stands_for.log2_ratio)


def test_a_difference_of_less_than_a_microsecond_is_no_finding() -> None:
    assert [least_difference(unit) for unit in ("ns", "us", "ms", "s", "packets")] == [1000.0, 1.0, 0.001, 1e-6, 0.0]
    for ns, large in ((3900.0, False), (4100.0, True)):
        one = of_histogram(times((ns, ns, 1000)), times((3000.0, 3000.0, 1000)), unit="ns")
        assert one is not None and one.large is large


def test_with_three_snapshots_the_mean_counts_and_is_beyond_their_spread() -> None:
    before = [times((centre, centre * 1.1, 2000)) for centre in (100.0, 101.0, 99.0)]
    one = of_histogram(times((200.0, 220.0, 2000)), *before)
    assert one is not None
    by_name = {statistic.name: statistic for statistic in one.statistics}
    assert list(by_name) == ["p50", "p90", "p99", "mean"]
    assert by_name["mean"].baseline == pytest.approx(105.0) and by_name["mean"].current == pytest.approx(210.0)
    assert one.p == pytest.approx(min(1.0, 4 * one.stands_for.p)), "four were looked at"
    assert one.large and one.p < 0.01


def test_nothing_or_too_little_is_not_compared() -> None:
    assert of_histogram(times(), times((1.0, 2.0, 1000))) is None
    assert of_histogram(times((1.0, 2.0, 1000)), times()) is None
    assert of_histogram(times((1.0, 2.0, 9)), times((1.0, 2.0, 1000))) is None
