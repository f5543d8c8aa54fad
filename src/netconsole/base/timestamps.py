"""Times of day as the documents write them."""

from __future__ import annotations

import time
from datetime import datetime, timezone


def clock(wall_ns: int) -> str:
    """Local time of day to the second."""
    return time.strftime("%H:%M:%S", time.localtime(wall_ns / 1e9))


def utc(at_s: float | None = None) -> str:
    """Seconds since 1970, or now, such as 2026-11-20T21:00:00Z."""
    return datetime.fromtimestamp(time.time() if at_s is None else at_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
