"""Keeps memory flat: Rich remembers every text that it ever cut or measured, and live figures are new every second.

Its caches are bounded, but at 16 384 entries of about a kilobyte: 16 MB that a console of ten minutes does not need.
"""

from __future__ import annotations

from rich.cells import cached_cell_len
from rich.segment import Segment

EVERY_DRAWINGS = 60
"""A minute's texts are few enough to forget and often enough the same to be worth remembering."""


def forget() -> None:
    """Empty them."""
    Segment._split_cells.cache_clear()
    cached_cell_len.cache_clear()
