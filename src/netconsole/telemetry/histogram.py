"""Computes with log-linear histograms: eight sub-buckets per power of two, as in probes/common/histograms.h.

The middle of a bucket stands for its values. The error is half the bucket's width: 6.25 % at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from netconsole.telemetry.frames import Buckets

EMPTY = Buckets(count=0, sum=0, min=None, max=None, buckets=[])


def index(value: int) -> int:
    """The bucket of a value ≥ 0."""
    if value < 8:
        return value
    power = value.bit_length() - 1
    return (power - 2) * 8 + ((value >> (power - 3)) & 7)


def bounds(bucket: int) -> tuple[int, int]:
    """The lowest value of a bucket, and the lowest of the next one."""
    if bucket < 8:
        return bucket, bucket + 1
    shift = bucket // 8 - 1
    low = (8 + bucket % 8) << shift
    return low, low + (1 << shift)


def percentile(histogram: Buckets, percent: float) -> float | None:
    """The value below which ``percent`` of the samples lie: a mid-bucket within min and max; None when empty."""
    middles = [((sum(bounds(bucket)) - 1) / 2, n) for bucket, n in sorted(histogram.buckets)]
    return value_below(middles, percent, histogram.min, histogram.max)


def value_below(
    middles: Sequence[tuple[float, int]], percent: float, least: float | None, most: float | None
) -> float | None:
    """The same of the middles of buckets in order, and how many are in each."""
    counted = sum(n for _, n in middles)
    rank = min(float(counted), max(1.0, counted * percent / 100))
    seen = 0
    for value, n in middles:
        seen += n
        if n and seen >= rank:
            value = value if least is None else max(value, least)
            return value if most is None else min(value, most)
    return None


def add(histograms: Iterable[Buckets]) -> Buckets:
    """The sum of several histograms of one unit."""
    merged: dict[int, int] = {}
    count = total = 0
    low: int | None = None
    high: int | None = None
    for one in histograms:
        count += one.count
        total += one.sum
        if one.min is not None:
            low = one.min if low is None else min(low, one.min)
        if one.max is not None:
            high = one.max if high is None else max(high, one.max)
        for bucket, n in one.buckets:
            merged[bucket] = merged.get(bucket, 0) + n
    return Buckets(count=count, sum=total, min=low, max=high, buckets=sorted(merged.items()))


def subtract(now: Buckets, before: Buckets) -> Buckets:
    """What was added between two readings of one histogram.

    ``min`` and ``max`` are exact when the histogram was empty before. Else they are the bounds of the outermost
    buckets, limited by the exact extremes since the probe was attached. A bucket with fewer samples than before was
    evicted and created again: all that it has now was added, and the sum is estimated from the buckets.
    """
    if before.count == 0:
        return now
    earlier = dict(before.buckets)
    grown = [(bucket, since(n, earlier.get(bucket, 0))) for bucket, n in sorted(now.buckets)]
    grown = [(bucket, n) for bucket, n in grown if n > 0]
    count, total = sum(n for _, n in grown), now.sum - before.sum
    if count != now.count - before.count:
        total = round(sum((low + high - 1) / 2 * n for (low, high), n in ((bounds(slot), n) for slot, n in grown)))
    low = high = None
    if grown:
        low, high = bounds(grown[0][0])[0], bounds(grown[-1][0])[1] - 1
        low = low if now.min is None else max(low, now.min)
        high = high if now.max is None else min(high, now.max)
    return Buckets(count=count, sum=total, min=low, max=high, buckets=grown)


def since(total: int, before: int) -> int:
    """What was added to a total since it was ``before``. A smaller total belongs to a row that was created again."""
    return total - before if total >= before else total
