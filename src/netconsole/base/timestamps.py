"""Times of day as the documents write them."""

from __future__ import annotations

import time
from datetime import datetime, timezone


def utc(at_s: float | None = None) -> str:
    """Seconds since 1970, or now, such as 2026-11-20T21:00:00Z."""
    return datetime.fromtimestamp(time.time() if at_s is None else at_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
