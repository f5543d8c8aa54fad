"""The statistics of a comparison (docs/use/comparison.md): is a change beyond chance, and how much do shapes differ?

Pure functions of numbers. Every ``p`` is the probability of a change that is at least as large, when nothing has
changed. ``n`` is a number of samples; at most EFFECTIVE_SAMPLES of them count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

BucketRanges: TypeAlias = Sequence[tuple[float, float, int]]
"""A histogram: low, high (exclusive) and count of each bucket, ascending."""
EFFECTIVE_SAMPLES = 2000
"""Packets that wait in one queue wait together: a million of them are not a million independent observations."""
_EXACT_BELOW = 60
"""Smaller counts are tested exactly. For larger ones the normal approximation is good to a few percent."""
_MAD_TO_SIGMA = 1.4826


def rate_p(before: float, before_s: float, now: float, now_s: float, ratio: float = 1.0, burst: float = 1.0) -> float:
    """Tests two counts over two times: do their rates differ by a factor of at most ``ratio``?

    Given the sum of two Poisson counts, one of them is binomial. ``burst`` events count as one. A ``ratio`` over 1
    allows a change in both directions.
    """
    first, second = before / burst, now / burst
    if before_s <= 0 or now_s <= 0 or first + second == 0:
        return 1.0
    if second / now_s >= first / before_s:
        share = before_s / (before_s + ratio * now_s)
        return min(1.0, 2 * binomial_tail(first, first + second, share))
    share = now_s / (now_s + ratio * before_s)
    return min(1.0, 2 * binomial_tail(second, first + second, share))


def share_p(above_before: float, n_before: float, above_now: float, n_now: float, burst: float = 1.0) -> float:
    """Tests two shares (of samples above a limit): are they the same? ``burst`` samples count as one."""
    if n_before <= 0 or n_now <= 0:
        return 1.0
    n_before, above_before = _believed(n_before, above_before, burst)
    n_now, above_now = _believed(n_now, above_now, burst)
    both = (above_before + above_now) / (n_before + n_now)
    if both <= 0 or both >= 1:
        return 1.0
    if above_before + above_now < _EXACT_BELOW:  # rare events: a Poisson distribution
        expected = n_before / (n_before + n_now)
        if above_now / n_now >= above_before / n_before:
            return min(1.0, 2 * binomial_tail(above_before, above_before + above_now, expected))
        return min(1.0, 2 * binomial_tail(above_now, above_before + above_now, 1 - expected))
    deviation = math.sqrt(both * (1 - both) * (1 / n_before + 1 / n_now))
    return two_sided((above_now / n_now - above_before / n_before) / deviation)


def binomial_tail(k: float, n: float, share: float) -> float:
    """P(X ≤ k) of a binomial distribution. ``k`` and ``n`` may have fractions; they are rounded to the safe side."""
    if share <= 0 or k >= n:
        return 1.0
    k, n = math.ceil(k), math.ceil(n)
    if k >= n:
        return 1.0
    if share >= 1:
        return 0.0
    if k <= _EXACT_BELOW:
        # From the largest term down. Each term is computed from the one before.
        term = math.exp(_log_choose(n, k) + k * math.log(share) + (n - k) * math.log1p(-share))
        total, odds = term, (1 - share) / share
        for i in range(k, 0, -1):
            term *= i / (n - i + 1) * odds
            total += term
        return min(1.0, total)
    # The angular transformation is closer in the tails than the plain normal one.
    z = 2 * math.sqrt(n) * (math.asin(math.sqrt(share)) - math.asin(math.sqrt(min(1.0, (k + 0.5) / n))))
    return 0.5 * math.erfc(z / math.sqrt(2))


def spread(values: Sequence[float]) -> float | None:
    """Scaled median absolute deviation: the standard deviation of normal values. None for fewer than three."""
    if len(values) < 3:
        return None
    middle = median(values)
    # The median of few deviations is too small on average (Croux and Rousseeuw 1992): n / (n - 0.8), and more below 10.
    correction = {3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}
    factor = correction.get(len(values), len(values) / (len(values) - 0.8))
    return _MAD_TO_SIGMA * factor * median([abs(value - middle) for value in values])


def dispersion(series: Iterable[Sequence[float]], typical: float, weight: float) -> float:
    """Variance divided by mean of the counts of equal intervals, over all runs; at least 1.0.

    It is 1.0 when events come alone (Poisson), and about the size of a burst when they come in bursts. Each run is
    compared with its own mean, so differences between runs do not count. The ``typical`` value has the weight of
    ``weight`` intervals: a few seconds of data say little, a minute says nearly all.
    """
    squares = expected = 0.0
    degrees = 0
    for counts in series:
        if len(counts) < 2 or not any(counts):
            continue
        mean = sum(counts) / len(counts)
        squares += sum((count - mean) * (count - mean) for count in counts)
        expected += mean * (len(counts) - 1)
        degrees += len(counts) - 1
    found = squares / expected if expected else 0.0
    return max(1.0, (typical * weight + found * degrees) / (weight + degrees))


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two middle ones."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def two_sided(z: float) -> float:
    """P(|Z| ≥ |z|) of a standard normal."""
    return math.erfc(abs(z) / math.sqrt(2))


def false_discovery_limit(ps: Iterable[float], rate: float) -> float:
    """Benjamini-Hochberg: the largest p of a finding, so that at most a share ``rate`` of the findings is chance.

    When nothing has changed, ``rate`` is also the probability of any finding.
    """
    ordered = sorted(ps)
    limit = 0.0
    for position, p in enumerate(ordered, 1):
        if p <= rate * position / len(ordered):
            limit = p
    return limit


def shape_distance(first: BucketRanges, second: BucketRanges, floor: float = 0.0) -> float:
    """Wasserstein-1 distance between two histograms on a log2 scale: 1.0 is as if every sample had doubled or halved.

    Buckets are ``(low, high, count)``. All samples of a bucket count as its middle. A value below ``floor`` counts as
    ``floor``, so that small differences that do not matter for a percentile do not matter for a shape.
    """
    steps = _cumulated(first, second, floor)
    return math.fsum(abs(before - now) * (following - at) for (at, before, now), (following, _, _) in pairwise(steps))


def shape_p(first: BucketRanges, second: BucketRanges, floor: float = 0.0) -> float:
    """Kolmogorov-Smirnov test: do both histograms come from one distribution? Buckets make it more cautious."""
    n, m = (min(EFFECTIVE_SAMPLES, sum(count for _, _, count in one)) for one in (first, second))
    if not n or not m:
        return 1.0
    largest = max(abs(before - now) for _, before, now in _cumulated(first, second, floor))
    root = math.sqrt(n * m / (n + m))
    x = (root + 0.12 + 0.11 / root) * largest
    if x < 0.3:
        return 1.0
    return min(1.0, max(0.0, 2 * math.fsum((-1) ** (k - 1) * math.exp(-2 * k * k * x * x) for k in range(1, 40))))


def _cumulated(first: BucketRanges, second: BucketRanges, floor: float) -> list[tuple[float, float, float]]:
    """(log2 of the position, share of the first up to here, share of the second), ascending."""
    counts: dict[float, list[float]] = {}
    for side, buckets in enumerate((first, second)):
        total = sum(count for _, _, count in buckets) or 1
        for low, high, count in buckets:
            counts.setdefault(max(floor, (low + high) / 2), [0.0, 0.0])[side] += count / total
    result = []
    before = now = 0.0
    for position in sorted(counts):
        before, now = before + counts[position][0], now + counts[position][1]
        result.append((math.log2(position) if position > 0 else -1.0, before, now))
    return result


def _believed(n: float, above: float, burst: float) -> tuple[float, float]:
    believed = min(n, EFFECTIVE_SAMPLES) / burst
    return believed, above * believed / n


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
