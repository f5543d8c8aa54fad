"""The statistics of a comparison, against exact sums, worked examples and the properties that the names promise."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netconsole.compare.significance import (
    EFFECTIVE_SAMPLES,
    binomial_tail,
    dispersion,
    false_discovery_limit,
    median,
    rate_p,
    shape_distance,
    shape_p,
    share_p,
    spread,
    two_sided,
)


def exact_tail(k: int, n: int, share: Fraction) -> float:
    """P(X ≤ k), summed up."""
    return float(sum(math.comb(n, i) * share**i * (1 - share) ** (n - i) for i in range(k + 1)))


@pytest.mark.parametrize("n", [1, 2, 7, 40, 200])
@pytest.mark.parametrize("share", [Fraction(1, 10), Fraction(1, 2), Fraction(2, 3)])
def test_the_tail_of_a_binomial_is_the_sum_of_its_terms(n: int, share: Fraction) -> None:
    for k in {0, 1, n // 3, n // 2, n - 1}:
        if k <= 60:
            assert binomial_tail(k, n, float(share)) == pytest.approx(exact_tail(k, n, share), rel=1e-9)


@pytest.mark.parametrize(("k", "n"), [(80, 200), (90, 200), (100, 200), (110, 200), (90, 300)])
def test_large_counts_are_approximated_to_a_few_percent(k: int, n: int) -> None:
    share = Fraction(1, 2) if n == 200 else Fraction(1, 3)
    assert binomial_tail(k, n, float(share)) == pytest.approx(exact_tail(k, n, share), rel=0.05)


def test_the_ends_of_a_binomial_are_certain() -> None:
    assert binomial_tail(5, 5, 0.3) == binomial_tail(6, 5, 0.3) == binomial_tail(0, 5, 0.0) == 1.0
    assert binomial_tail(4, 5, 1.0) == binomial_tail(4, 5, 1.5) == 0.0
    assert binomial_tail(4.2, 4.9, 0.5) == binomial_tail(3.5, 3.9, 0.5) == 1.0
    assert binomial_tail(4.5, 4.9, 0.5) == 1.0, "rounded up, all of them are at most that"
    assert binomial_tail(1.2, 5.0, 0.5) == pytest.approx(exact_tail(2, 5, Fraction(1, 2)))
    assert binomial_tail(1.0, 4.2, 0.5) == pytest.approx(exact_tail(1, 5, Fraction(1, 2)))


def test_two_counts_of_one_rate_are_judged_by_the_binomial_between_them() -> None:
    """10 and 30 events in equal times: the first of 40 coins, both ways."""
    expected = 2 * exact_tail(10, 40, Fraction(1, 2))
    assert rate_p(10, 5.0, 30, 5.0) == pytest.approx(expected)
    assert rate_p(30, 5.0, 10, 5.0) == pytest.approx(expected)
    assert rate_p(10, 5.0, 30, 15.0) == 1.0, "the same rate"
    assert rate_p(10, 5.0, 60, 10.0) == pytest.approx(2 * exact_tail(10, 70, Fraction(1, 3)))
    assert rate_p(60, 10.0, 10, 5.0) == pytest.approx(2 * exact_tail(10, 70, Fraction(1, 3)))


def test_a_ratio_allows_a_change_in_both_directions() -> None:
    """Twice the rate is allowed: of three events the first side has one."""
    assert rate_p(10, 5.0, 30, 5.0, ratio=2.0) == pytest.approx(2 * exact_tail(10, 40, Fraction(1, 3)))
    assert rate_p(30, 5.0, 10, 5.0, ratio=2.0) == pytest.approx(2 * exact_tail(10, 40, Fraction(1, 3)))
    assert rate_p(10, 5.0, 20, 5.0, ratio=2.0) == 1.0


def test_events_that_come_at_once_count_as_one() -> None:
    assert rate_p(100, 5.0, 300, 5.0, burst=10.0) == pytest.approx(rate_p(10, 5.0, 30, 5.0))
    assert rate_p(0, 5.0, 0, 5.0) == rate_p(1, 0.0, 5, 1.0) == rate_p(1, 1.0, 5, 0.0) == 1.0


def test_rare_shares_are_judged_as_counts_in_two_times() -> None:
    expected = 2 * exact_tail(2, 22, Fraction(1, 2))
    assert share_p(2, 1000, 20, 1000) == pytest.approx(expected)
    assert share_p(20, 1000, 2, 1000) == pytest.approx(expected)
    assert share_p(2, 500, 20, 1000) == pytest.approx(2 * exact_tail(2, 22, Fraction(1, 3)))
    assert share_p(20, 1000, 2, 500) == pytest.approx(2 * exact_tail(2, 22, Fraction(1, 3)))
    assert share_p(2, 1000, 2, 1000) == 1.0


def test_frequent_shares_are_judged_by_the_normal_distribution() -> None:
    """100 of 1000 against 150 of 1000: p = 0.125 in both, deviation sqrt(p q (1/n + 1/m))."""
    z = 0.05 / math.sqrt(0.125 * 0.875 * 2 / 1000)
    assert share_p(100, 1000, 150, 1000) == pytest.approx(math.erfc(z / math.sqrt(2)))
    assert share_p(30, 1000, 30, 1000) == 1.0, "60 in all: the first count that is not rare"
    # One event on the edge between the two ways.
    assert share_p(29, 1000, 30, 1000) == pytest.approx(min(1.0, 2 * exact_tail(29, 59, Fraction(1, 2))))


def test_no_more_than_two_thousand_samples_count() -> None:
    assert EFFECTIVE_SAMPLES == 2000
    assert share_p(20_000, 200_000, 30_000, 200_000) == pytest.approx(share_p(200, 2000, 300, 2000))
    assert share_p(200, 2000, 300, 2000, burst=4.0) == pytest.approx(share_p(50, 500, 75, 500))
    assert share_p(0, 0, 0, 10) == share_p(0, 10, 0, 0) == 1.0
    assert share_p(5, 0, 5, 10) == share_p(5, 10, 5, 0) == share_p(0, 9, 0, 9) == share_p(9, 9, 9, 9) == 1.0


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3.0], 3.0), ([1.0, 3.0], 2.0), ([5.0, 1.0, 3.0], 3.0), ([4.0, 1.0, 3.0, 10.0], 3.5)],
)
def test_the_median_is_the_middle_or_the_mean_of_the_two_middle_ones(values: list[float], expected: float) -> None:
    assert median(values) == expected


@pytest.mark.parametrize(
    ("count", "correction"),
    [
        (3, 1.495),
        (4, 1.363),
        (5, 1.206),
        (6, 1.200),
        (7, 1.140),
        (8, 1.129),
        (9, 1.107),
        (10, 10 / 9.2),
        (20, 20 / 19.2),
    ],
)
def test_the_spread_is_the_scaled_and_corrected_median_deviation(count: int, correction: float) -> None:
    """Croux and Rousseeuw 1992."""
    values = [float(number) for number in range(count)]
    middle = (count - 1) / 2
    deviations = sorted(abs(value - middle) for value in values)
    mad = (deviations[(count - 1) // 2] + deviations[count // 2]) / 2
    assert spread(values) == pytest.approx(1.4826 * correction * mad)


def test_two_values_tell_no_spread() -> None:
    assert spread([1.0, 2.0]) is None and spread([]) is None


def test_dispersion_is_variance_by_mean_over_all_runs_each_with_its_own_mean() -> None:
    # Means 5 and 50; squares 50 and 200; expected 5 + 50; degrees 1 + 1.
    runs = [[0.0, 10.0], [40.0, 60.0]]
    found = (50 + 200) / 55
    assert dispersion(runs, 1.0, 0.0) == pytest.approx(found)
    assert dispersion(runs, 4.0, 1.0) == pytest.approx((4 + found * 2) / 3)
    assert dispersion([[3.0, 3.0, 3.0]], 1.0, 0.0) == 1.0, "at least that of single events"
    assert dispersion([], 4.0, 1.0) == 4.0
    assert dispersion([[7.0], [0.0, 0.0]], 4.0, 1.0) == 4.0, "one part, or no event, tells nothing"


def test_two_sided_is_the_share_beyond_in_both_directions() -> None:
    assert two_sided(1.959964) == two_sided(-1.959964) == pytest.approx(0.05, rel=1e-5)
    assert two_sided(0.0) == 1.0


def test_the_limit_of_false_discoveries_is_that_of_benjamini_and_hochberg() -> None:
    """Their own example (1995, table of 15 p-values, rate 0.05): four are found."""
    ps = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.759]
    ps.append(1.0)
    assert false_discovery_limit(ps, 0.05) == 0.0095
    assert false_discovery_limit(reversed(ps), 0.05) == 0.0095
    assert false_discovery_limit([0.05], 0.05) == 0.05
    assert false_discovery_limit([0.06, 0.06], 0.05) == false_discovery_limit([], 0.05) == 0.0
    assert false_discovery_limit([0.04, 0.05], 0.05) == 0.05, "the last that is below its line, not the first above"


def test_a_shape_that_doubled_is_one_apart() -> None:
    first, second = [(10.0, 12.0, 100), (20.0, 24.0, 100)], [(20.0, 24.0, 50), (40.0, 48.0, 50)]
    assert shape_distance(first, second) == pytest.approx(1.0)
    assert shape_distance(second, first) == pytest.approx(1.0)
    assert shape_distance(first, first) == 0.0
    assert shape_distance(first, second, floor=44.0) == 0.0, "all that is below the floor is the floor"
    # Half of the samples are four times as large.
    assert shape_distance([(1.0, 1.0, 4)], [(1.0, 1.0, 2), (4.0, 4.0, 2)]) == pytest.approx(1.0)
    assert shape_distance([(0.0, 0.0, 1)], [(1.0, 1.0, 1)]) == pytest.approx(1.0), "0 lies one below 1"


def test_shapes_are_tested_by_kolmogorov_and_smirnov() -> None:
    first, second = [(1.0, 1.0, 100), (2.0, 2.0, 100)], [(1.0, 1.0, 60), (2.0, 2.0, 140)]
    root = math.sqrt(100)
    x = (root + 0.12 + 0.11 / root) * 0.2
    expected = 2 * sum((-1) ** (k - 1) * math.exp(-2 * k * k * x * x) for k in range(1, 40))
    assert shape_p(first, second) == pytest.approx(expected)
    # Three halves of a unit: the second term of the sum counts too.
    assert shape_p([(1.0, 1.0, 10)], [(1.0, 1.0, 7), (2.0, 2.0, 3)]) == pytest.approx(0.675, abs=0.01)
    assert shape_p(first, first) == 1.0 == shape_p(first, []) == shape_p([], first)
    assert shape_p(first, second, floor=3.0) == 1.0
    large = (
        [(low, high, 1000 * count) for low, high, count in first],
        [(low, high, 1000 * count) for low, high, count in second],
    )
    as_believed = (
        [(low, high, 10 * count) for low, high, count in first],
        [(low, high, 10 * count) for low, high, count in second],
    )
    assert shape_p(*large) == pytest.approx(shape_p(*as_believed))


counts = st.integers(0, 400)


@settings(max_examples=60)
@given(counts, counts, st.floats(0.5, 20), st.floats(0.5, 20), st.floats(1.0, 4.0))
def test_exchanging_the_sides_changes_no_probability(
    first: int, second: int, first_s: float, second_s: float, ratio: float
) -> None:
    there, back = rate_p(first, first_s, second, second_s, ratio), rate_p(second, second_s, first, first_s, ratio)
    assert 0.0 <= there <= 1.0
    assert there == pytest.approx(back)
