"""Empties the text caches of Rich from time to time, so that the console's memory does not grow.

Rich keeps every text that it has cut or measured, and live figures are new texts every second. Its caches hold up to
16 384 entries of about 1 kB: 16 MB of texts that do not come again.
"""

from __future__ import annotations

from rich.cells import cached_cell_len
from rich.segment import Segment

EVERY_DRAWINGS = 60
"""About a minute. The caches stay small, and texts that stay the same for a while are still found in them."""


def forget() -> None:
    """Empties the caches."""
    Segment._split_cells.cache_clear()
    cached_cell_len.cache_clear()
