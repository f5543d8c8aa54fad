"""Histograms against the values that they were made of: buckets, percentiles, sums and differences."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netconsole.telemetry.frames import Buckets
from netconsole.telemetry.histogram import EMPTY, add, bounds, index, percentile, since, subtract

U64 = 2**64 - 1
values = st.one_of(
    st.integers(0, 40), st.integers(0, 64).map(lambda bits: min(U64, 1 << bits)), st.integers(0, U64), st.just(U64)
)
samples = st.lists(values, min_size=1, max_size=30)


def of(*counted: int) -> Buckets:
    """The histogram of these values."""
    buckets = sorted(Counter(map(index, counted)).items())
    low, high = (min(counted), max(counted)) if counted else (None, None)
    return Buckets(count=len(counted), sum=sum(counted), min=low, max=high, buckets=buckets)


@pytest.mark.parametrize(
    ("value", "bucket"),
    [(0, 0), (7, 7), (8, 8), (15, 15), (16, 16), (17, 16), (18, 17), (31, 23), (32, 24), (1000, 63), (1 << 32, 240)],
)
def test_a_bucket_begins_where_the_page_says(value: int, bucket: int) -> None:
    """docs/reference/frames.md: bucket i begins at i for i < 8, else at (8 + i % 8) << (i // 8 - 1)."""
    assert index(value) == bucket
    low, high = bounds(bucket)
    assert low == (bucket if bucket < 8 else (8 + bucket % 8) << (bucket // 8 - 1))
    assert low <= value < high == bounds(bucket + 1)[0]


@settings(max_examples=60)
@given(values)
def test_every_value_is_in_its_bucket_to_the_last_one_of_64_bits(value: int) -> None:
    bucket = index(value)
    low, high = bounds(bucket)
    assert low <= value < high and index(high - 1) == index(low) == bucket <= 495
    assert high - low == 1 or (high - low) / low <= 0.125, "half a bucket is 6.25 %"


@settings(max_examples=60)
@given(samples, st.floats(0.1, 100.0))
def test_a_percentile_is_the_middle_of_the_bucket_of_the_sample_with_that_rank(counted: list[int], part: float) -> None:
    """The smallest rank with at least this share of all samples at or below it; never beyond a value that was seen."""
    nth = sorted(counted)[max(1, math.ceil(len(counted) * part / 100)) - 1]
    low, high = bounds(index(nth))
    expected = min(max((low + high - 1) / 2, min(counted)), max(counted))
    assert percentile(of(*counted), part) == expected


def test_percentiles_of_ten_samples_are_those_that_one_counts_on_fingers() -> None:
    ten = of(*range(8), 8, 9)  # each in a bucket of its own
    assert [percentile(ten, part) for part in (10, 11, 50, 51, 90, 91, 99, 100)] == [0, 1, 4, 5, 8, 9, 9, 9]
    assert percentile(ten, 0) == 0
    assert percentile(EMPTY, 50) is None


def test_without_extremes_a_percentile_is_the_middle_of_its_bucket() -> None:
    """5 s in nanoseconds: 2^32 and what is above are as right as a microsecond."""
    long = 5_000_000_000
    low, high = bounds(index(long))
    bare = Buckets(count=3, sum=3 * long, min=None, max=None, buckets=[(index(long), 3)])
    assert percentile(bare, 50) == (low + high - 1) / 2
    assert percentile(of(long, long, long), 50) == long, "min and max are exact"


@settings(max_examples=40)
@given(st.lists(samples, max_size=4))
def test_a_sum_of_histograms_is_that_of_all_their_values(several: list[list[int]]) -> None:
    assert add(of(*one) for one in several) == of(*(value for one in several for value in one))


def test_histograms_without_extremes_take_none_away() -> None:
    nothing = Buckets(count=1, sum=3, min=None, max=None, buckets=[(3, 1)])
    assert add([nothing, of(5, 9)]) == Buckets(count=3, sum=17, min=5, max=9, buckets=[(3, 1), (5, 1), (9, 1)])
    assert add([of(5, 9), of(2, 20), nothing]).min == 2 and add([of(5, 9), of(2, 20)]).max == 20
    assert add([]) == EMPTY


@settings(max_examples=60)
@given(samples, samples)
def test_a_difference_is_what_was_added_between_two_readings(before: list[int], more: list[int]) -> None:
    found, exact = subtract(of(*before, *more), of(*before)), of(*more)
    assert (found.count, found.sum, found.buckets) == (exact.count, exact.sum, exact.buckets)
    low, high = bounds(index(min(more)))[0], bounds(index(max(more)))[1] - 1
    everything = [*before, *more]
    assert (found.min, found.max) == (max(low, min(everything)), min(high, max(everything)))


def test_a_difference_to_nothing_is_the_reading_itself_and_one_to_itself_is_empty() -> None:
    now = of(3, 1000)
    assert subtract(now, EMPTY) is now
    assert subtract(now, now) == EMPTY


def test_the_extremes_of_a_difference_without_extremes_are_those_of_its_buckets() -> None:
    before = Buckets(count=1, sum=20, min=None, max=None, buckets=[(index(20), 1)])
    now = Buckets(count=3, sum=1120, min=None, max=None, buckets=[(index(20), 1), (index(100), 1), (index(1000), 1)])
    found = subtract(now, before)
    assert (found.min, found.max) == (bounds(index(100))[0], bounds(index(1000))[1] - 1)


def test_a_bucket_that_was_created_anew_has_all_that_it_has_and_the_sum_is_estimated() -> None:
    """It was evicted with 5 samples, and has 2 again: these are new. Of the other bucket one sample is new."""
    before = Buckets(count=8, sum=8000, min=10, max=1000, buckets=[(10, 5), (index(1000), 3)])
    now = Buckets(count=6, sum=4021, min=10, max=1000, buckets=[(10, 2), (index(1000), 4)])
    found = subtract(now, before)
    assert (found.count, found.buckets) == (3, [(10, 2), (index(1000), 1)])
    assert found.sum == round(10 * 2 + (960 + 1023) / 2)


def test_a_total_that_fell_belongs_to_something_new() -> None:
    assert [since(*one) for one in ((7, 5), (5, 5), (3, 5), (0, 5))] == [2, 0, 3, 0]
