"""Which way a figure is worse where its manifest does not say: by what kind of figure it is, its unit and its name."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, TypeAlias

Polarity: TypeAlias = Literal["up", "down", "none"]
POLARITIES: tuple[Polarity, ...] = ("up", "down", "none")
FigureKind: TypeAlias = Literal["count", "gauge", "histogram"]

TIME_UNITS = frozenset({"ns", "us", "ms", "s"})
_UP_IS_WORSE = (
    "drop", "error", "errs", "lost", "loss", "miss", "retrans", "fail", "overrun", "overlimit", "squeez", "requeue",
    "timeout", "reset", "busy", "overflow", "full", "exhaust", "backlog", "stall", "stuck", "starv", "unanswered",
    "refused", "collision",
)  # fmt: skip
"""Beginnings of words."""
_DOWN_IS_WORSE = ("hit", "hits", "success", "successes")


@lru_cache(maxsize=4096)
def polarity(kind: FigureKind, name: str, unit: str) -> Polarity:
    """Losses, errors and waits up, hits down, the rest neither.

    A time is a wait where it is measured one by one (a histogram, a maximum). A sum of times is work or idleness, which
    goes with the traffic: neither.
    """
    words = re.findall(r"[a-z]+", name.lower())
    if any(word in _DOWN_IS_WORSE for word in words):
        return "down"
    if any(word.startswith(_UP_IS_WORSE) for word in words):
        return "up"
    return "up" if unit in TIME_UNITS and kind != "count" else "none"
