"""Figures of several echoes: mean, percentiles and the confidence interval of the mean."""

from __future__ import annotations

import math
from collections.abc import Sequence

from netconsole.base import student_t
from netconsole.ping.capture import TimeSummary

CONFIDENCE = 0.95
_MOST_DEGREES = 200
"""Student's t hardly changes above."""


def of_values(values: Sequence[float]) -> TimeSummary:
    """The figures of one time of several echoes; ``values`` must not be empty."""
    ordered, n = sorted(values), len(values)
    mean = math.fsum(ordered) / n
    if n == 1:
        return TimeSummary(mean, 1)
    stdev = math.sqrt(math.fsum((value - mean) ** 2 for value in ordered) / (n - 1))
    p50, p90, p99 = (percentile(ordered, percent) for percent in (50, 90, 99))
    return TimeSummary(mean, n, ordered[0], p50, p90, p99, ordered[-1], stdev)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The percentile of ascending values, between the two nearest."""
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def interval(mean: float, stdev: float | None, n: int | None) -> tuple[float, float] | None:
    """The confidence interval of a mean. None where nobody knows how much the values vary."""
    if stdev is None or n is None or n < 2:
        return None
    reach = student_t.quantile(min(n - 1, _MOST_DEGREES), CONFIDENCE) * stdev / math.sqrt(n)
    return mean - reach, mean + reach


def difference_is_chance(
    now: float, now_stdev: float | None, now_n: int | None, then: float, then_stdev: float | None, then_n: int | None
) -> float | None:
    """Welch's test: the chance that two means differ so much by chance. None where the variation is not known."""
    if now_stdev is None or then_stdev is None or now_n is None or then_n is None or min(now_n, then_n) < 2:
        return None
    one, other = now_stdev**2 / now_n, then_stdev**2 / then_n
    if one + other <= 0:
        return 1.0 if now == then else 0.0
    t = (now - then) / math.sqrt(one + other)
    degrees = (one + other) ** 2 / (one**2 / (now_n - 1) + other**2 / (then_n - 1))
    return student_t.beyond(t, max(1, min(int(degrees), _MOST_DEGREES)))
