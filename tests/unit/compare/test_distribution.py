"""The samples of a snapshot's histogram: percentiles to the sample, mean and its error, and what is added up."""

from __future__ import annotations

import math

import pytest

from netconsole.compare.metrics import EVENT_SIZES, Distribution, added

TEN = Distribution(10, 55.0, [(float(n), float(n + 1), 1) for n in range(1, 11)])


@pytest.mark.parametrize(
    ("percent", "value"), [(1, 2.0), (10, 2.0), (50, 6.0), (55, 6.5), (90, 10.0), (99, 10.9), (100, 11.0)]
)
def test_a_percentile_lies_within_the_bucket_of_its_sample(percent: float, value: float) -> None:
    """Of ten samples in ten buckets, the fifth is p50; p55 lies halfway to the sixth."""
    assert TEN.percentile(percent) == pytest.approx(value)


def test_a_percentile_is_interpolated_in_its_bucket_and_skips_empty_ones() -> None:
    one = Distribution(8, None, [(0.0, 10.0, 0), (10.0, 20.0, 4), (20.0, 30.0, 0), (30.0, 50.0, 4)])
    assert [one.percentile(percent) for percent in (12.5, 25, 50, 75, 100)] == [12.5, 15.0, 20.0, 40.0, 50.0]
    assert Distribution(0, None, []).percentile(50) is None


def test_the_mean_is_exact_and_its_error_that_of_the_buckets() -> None:
    assert TEN.mean == 5.5
    assert Distribution(10, None, TEN.buckets).mean is None and Distribution(0, 0.0, []).mean is None
    middles = [n + 0.5 for n in range(1, 11)]
    variance = sum((middle - 6.0) ** 2 for middle in middles) / 10
    assert TEN.mean_error == pytest.approx(math.sqrt(variance / 10))
    many = Distribution(0, None, [(low, high, 1000) for low, high, _ in TEN.buckets])
    assert many.mean_error == pytest.approx(math.sqrt(variance / 2000)), "2000 of 10 000 count"
    assert Distribution(0, None, []).mean_error == 0.0


def test_what_begins_at_a_limit_is_above_it() -> None:
    assert [TEN.above(limit) for limit in (1.0, 1.1, 10.0, 10.1)] == [10, 9, 1, 0]


def test_distributions_add_up_bucket_by_bucket() -> None:
    both = added([Distribution(2, 3.0, [(1.0, 2.0, 2)]), Distribution(3, 9.0, [(1.0, 2.0, 1), (4.0, 5.0, 2)])])
    assert (both.count, both.sum, both.buckets) == (5, 12.0, [(1.0, 2.0, 3), (4.0, 5.0, 2)])
    assert added([TEN, Distribution(1, None, [(1.0, 2.0, 1)])]).sum is None


def test_a_millisecond_and_64_kB_are_one_event() -> None:
    assert EVENT_SIZES == {"ns": 1e6, "us": 1e3, "ms": 1.0, "bytes": 65536.0, "kB": 64.0}
