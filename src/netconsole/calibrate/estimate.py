"""From paired stretches to a change with its interval, held against the same comparison of nothing with nothing.

A pair is a stretch with the probe and the two without it on either side: what it is held against is their geometric
mean, so that a steady drift of the machine falls out. The interval is Student's t over the logarithms of the ratios.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from netconsole.base import student_t

CONFIDENCE = 0.99
"""Sixteen figures are looked at for every probe: with 95 %, one of them would be wrong for nearly each."""
MIN_PAIRS = 5
METHOD = (
    f"Student's t interval, {CONFIDENCE:.0%}, over the log ratios of pairs (a stretch with, against the geometric mean"
    " of those without before and after it); the noise floor is the farther end of the same interval for pairs in"
    " which nothing was attached"
)

Verdict = Literal["no measurable change", "slower", "faster"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and where it lies with CONFIDENCE."""

    value: float
    low: float
    high: float

    @property
    def holds_zero(self) -> bool:
        """Whether it may be nothing."""
        return self.low <= 0.0 <= self.high

    @property
    def farther_end(self) -> float:
        """The larger of the ends' sizes."""
        return max(abs(self.low), abs(self.high))


def log_ratio(before: float, during: float, after: float) -> float:
    """The logarithm of what a stretch came to against those around it. All must be positive."""
    return math.log(during) - (math.log(before) + math.log(after)) / 2


def mean_interval(values: Sequence[float]) -> Interval:
    """The mean of at least two values, by Student's t."""
    mean = statistics.fmean(values)
    half = student_t.quantile(len(values) - 1, CONFIDENCE) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def change_pct(log_ratios: Sequence[float]) -> Interval:
    """The change in percent that these pairs show."""
    found = mean_interval(log_ratios)
    value, low, high = (100 * math.expm1(one) for one in (found.value, found.low, found.high))
    return Interval(value, low, high)


def verdict(change: Interval, floor_pct: float, worse: Literal["up", "down"]) -> Verdict:
    """Whether a change in percent is more than chance and more than what nothing at all shows here."""
    if change.holds_zero or abs(change.value) <= floor_pct:
        return "no measurable change"
    return "slower" if (change.value > 0) == (worse == "up") else "faster"
