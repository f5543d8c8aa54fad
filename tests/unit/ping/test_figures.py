"""Figures of several echoes, and sums of times: worked examples, computed another way."""

from __future__ import annotations

import statistics

import pytest

from netconsole.ping.analysis.figures import difference_is_chance, interval, of_values, percentile
from netconsole.ping.analysis.times import PathFigure, combined, of_packets, shown
from netconsole.ping.capture import TimeSummary

VALUES = [7.0, 1.0, 4.0, 2.0, 11.0]
ONE, OTHER = (7, 1), (7, 2)


def test_figures_are_those_of_the_textbook() -> None:
    found = of_values(VALUES)
    assert (found.mean, found.n, found.min, found.p50, found.max) == (5.0, 5, 1.0, 4.0, 11.0)
    assert found.stdev == pytest.approx(statistics.stdev(VALUES))
    assert [found.p90, found.p99] == pytest.approx([9.4, 10.84])  # between 7 and 11: 0.6 and 0.96
    assert of_values([3.0]) == TimeSummary(3.0, 1)


@pytest.mark.parametrize(("percent", "value"), [(0, 1.0), (25, 2.0), (50, 4.0), (60, 5.2), (100, 11.0)])
def test_a_percentile_lies_between_the_two_nearest(percent: float, value: float) -> None:
    assert percentile(sorted(VALUES), percent) == pytest.approx(value)


@pytest.mark.parametrize(
    ("n", "t"),
    [(2, 12.706), (5, 2.776), (21, 2.086), (61, 2.000), (121, 1.980), (201, 1.9719), (100_000, 1.9719)],
)
def test_an_interval_is_as_wide_as_the_table_of_students_t_says(n: int, t: float) -> None:
    """From 200 degrees of freedom on it stays as it is: 1.972, and 1.960 for the normal distribution."""
    low, high = interval(100.0, 3.0, n) or (0.0, 0.0)
    assert [100.0 - low, high - 100.0] == pytest.approx([t * 3.0 / n**0.5] * 2, rel=3e-4)


@pytest.mark.parametrize(("stdev", "n"), [(None, 9), (1.0, None), (1.0, 1)])
def test_there_is_no_interval_where_nobody_knows_how_much_values_vary(stdev: float | None, n: int | None) -> None:
    assert interval(5.0, stdev, n) is None
    assert difference_is_chance(5.0, stdev, n, 6.0, 1.0, 9) is difference_is_chance(5.0, 1.0, 9, 6.0, stdev, n) is None


def test_welchs_test_agrees_with_tables() -> None:
    # Equal spread and size: degrees of freedom 2 (n - 1) = 8, t = 2.306 is the table's 5 % (two-sided), 3.355 its 1 %.
    for t, chance in ((2.306, 0.05), (3.355, 0.01)):
        apart = t * (2 * 4.0 / 5) ** 0.5
        assert difference_is_chance(10.0 + apart, 2.0, 5, 10.0, 2.0, 5) == pytest.approx(chance, rel=2e-3)
    # One that does not vary: n - 1 = 4 degrees of the other; the table has 2.776.
    assert difference_is_chance(10.0, 2.0, 5, 10.0 + 2.776 * 2 / 5**0.5, 0.0, 5) == pytest.approx(0.05, rel=2e-3)
    # Unequal spread: 9/5 and 16/9 in a variance, 10.6 degrees, so 10; the table has 2.228.
    apart = 2.228 * (9 / 5 + 16 / 9) ** 0.5
    assert difference_is_chance(10.0, 3.0, 5, 10.0 + apart, 4.0, 9) == pytest.approx(0.05, rel=2e-3)
    # Two values against one spread of none: a single degree of freedom, 12.706.
    assert difference_is_chance(10.0, 2.0, 2, 10.0 + 12.706 * 2**0.5, 0.0, 2) == pytest.approx(0.05, rel=2e-3)
    assert difference_is_chance(1.0, 0.0, 5, 1.0, 0.0, 5) == 1.0
    assert difference_is_chance(1.0, 0.0, 5, 1.1, 0.0, 5) == 0.0


def test_sums_are_made_echo_by_echo_where_all_are_known() -> None:
    whole, inner = of_packets({ONE: 10.0, OTHER: 20.0}), of_packets({ONE: 1.0, OTHER: 5.0})
    assert (whole.mean, whole.n) == (15.0, 2)
    assert combined([whole], [inner]) == PathFigure(12.0, 2, {ONE: 9.0, OTHER: 15.0})
    assert combined([whole, inner]).values == {ONE: 11.0, OTHER: 25.0}
    fewer = of_packets({ONE: 1.0})
    assert combined([whole], [fewer]) == PathFigure(14.0, 1)  # of different echoes: of means, and as sure as the fewest
    assert combined([whole, PathFigure(2.0, 7)], [fewer]) == PathFigure(16.0, 1)
    assert combined([whole], [PathFigure(2.0, None)]) == PathFigure(13.0, None)


def test_a_time_is_shown_with_its_share_of_the_round_trip() -> None:
    time = of_packets({ONE: 10.0, OTHER: 20.0})
    whole = PathFigure(60.0, 2)
    found = shown(time, True, "here", "what", "A", whole, at_most_us=3.0, contains=["E"])
    assert (found.mean_us, found.n, found.by, found.share_pct) == (15.0, 2, "packets", 25.0)
    assert (found.min_us, found.p50_us, found.max_us) == (10.0, 15.0, 20.0) and found.measured
    assert found.interval_us == interval(15.0, 50**0.5, 2) and (found.at_most_us, found.contains) == (3.0, ["E"])
    for round_trip, share in ((0.001, 1.5e6), (0.0009, None)):
        assert shown(time, True, "", "", "", PathFigure(round_trip, 2)).share_pct == (share and pytest.approx(share))
    means = shown(PathFigure(5.0, 4, None, TimeSummary(5.0, 4, stdev=2.0)), False, "", "", "", whole)
    assert (means.by, means.n, means.stdev_us) == ("means", 4, 2.0) and not means.measured
    unknown = shown(None, True, "here", "what", "A", whole, why="no capture")
    assert (unknown.mean_us, unknown.measured, unknown.share_pct, unknown.why) == (None, False, None, "no capture")
