"""Lists of CPUs as the kernel writes them: 0-3,8."""

from __future__ import annotations

MAX_RUN = 8192
"""CPUs that one part of a list can name: what is read from a file may hold any number."""


def cpus_of(text: str) -> set[int]:
    """The CPUs of a list. Parts that are no numbers are left out."""
    found: set[int] = set()
    for run in text.split(","):
        low, _, high = run.strip().partition("-")
        if low.isdecimal() and (high.isdecimal() or not high) and len(low) < 7 and len(high) < 7:
            found.update(range(int(low), min(int(high or low), int(low) + MAX_RUN) + 1))
    return found
