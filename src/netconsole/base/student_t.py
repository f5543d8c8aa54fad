"""Student's t distribution for whole degrees of freedom, exact."""

from __future__ import annotations

import math


def within(t: float, degrees: int) -> float:
    """P(|T| <= t) for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = 0.0
    for power in range(odd, degrees - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def beyond(t: float, degrees: int) -> float:
    """P(|T| >= |t|): the two-sided p; 1 without a degree of freedom."""
    return max(0.0, 1 - within(abs(t), degrees)) if degrees > 0 else 1.0


def quantile(degrees: int, confidence: float) -> float:
    """The two-sided quantile, by bisection."""
    low, high = 0.0, 1e4
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, degrees) < confidence else (low, middle)
    return high
