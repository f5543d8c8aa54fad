"""Computes the change that a probe causes, with its confidence interval, and compares it with the noise floor.

A pair is a stretch with the probe and the two stretches without it, before and after. It is compared with the geometric
mean of those two, so that a steady drift of the machine cancels out. The interval is Student's t over the logarithms of
the ratios. The noise floor is the same comparison with nothing attached.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from netconsole.base import student_t

CONFIDENCE = 0.99
"""Each probe has sixteen figures. With 95 %, one of them would be wrong for nearly every probe."""
MIN_PAIRS = 5
METHOD = (
    f"Student's t interval, {CONFIDENCE:.0%}, over the log ratios of pairs (a stretch with probes, against the"
    " geometric mean of the stretches without, before and after it); the noise floor is the farther end of the same"
    " interval for pairs in which nothing was attached"
)

LoadVerdict = Literal["no measurable change", "slower", "faster"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and its interval of CONFIDENCE."""

    value: float
    low: float
    high: float

    @property
    def holds_zero(self) -> bool:
        """Whether there may be no change."""
        return self.low <= 0.0 <= self.high

    @property
    def farther_end(self) -> float:
        """The distance from 0 of the end that is farther away."""
        return max(abs(self.low), abs(self.high))


def log_ratio(before: float, during: float, after: float) -> float:
    """The log ratio of a stretch to the geometric mean of those before and after it. All must be positive."""
    return math.log(during) - (math.log(before) + math.log(after)) / 2


def mean_interval(values: Sequence[float]) -> Interval:
    """The mean of at least two values, by Student's t."""
    import statistics  # only here: what reads a calibration needs none

    mean = statistics.fmean(values)
    half = student_t.quantile(len(values) - 1, CONFIDENCE) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def change_pct(log_ratios: Sequence[float]) -> Interval:
    """The change in percent that these pairs show."""
    found = mean_interval(log_ratios)
    value, low, high = (100 * math.expm1(one) for one in (found.value, found.low, found.high))
    return Interval(value, low, high)


def verdict(change: Interval, floor_pct: float, worse: Literal["up", "down"]) -> LoadVerdict:
    """Whether a change in percent is more than chance, and more than the noise floor."""
    if change.holds_zero or abs(change.value) <= floor_pct:
        return "no measurable change"
    return "slower" if (change.value > 0) == (worse == "up") else "faster"
