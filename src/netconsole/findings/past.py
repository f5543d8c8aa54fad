"""Judges a percentile by its own past: what is late on one host is usual on another."""

from __future__ import annotations

from netconsole.telemetry.histogram import percentile, subtract
from netconsole.telemetry.tables import HistogramState

MIN_SAMPLES = 10
"""A percentile of fewer samples is not compared with a limit."""
MIN_PAST = 100
"""So many samples before the interval are enough to tell what is usual."""


def usual(row: HistogramState, percent: float) -> float | None:
    """The percentile of all samples before this interval; None where there are too few."""
    past = subtract(row.total, row.delta)
    return percentile(past, percent) if past.count >= MIN_PAST else None


def is_later(row: HistogramState, percent: float, over: float, times: float, before: float | None = None) -> bool:
    """Whether a percentile of the interval is above ``over``, and so many times what it was ``before``.

    ``before`` is :func:`usual` where it is left out. What is not known is not late.
    """
    now = row.percentile(percent, "delta") if row.delta.count >= MIN_SAMPLES else None
    before = usual(row, percent) if before is None else before
    return now is not None and before is not None and now > over and now > times * before
