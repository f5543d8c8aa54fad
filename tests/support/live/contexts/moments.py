"""When something happened, as the test's own clock has it: between which moments."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

MS = 1_000_000
Span: TypeAlias = tuple[int, int]
"""Between which bounds a moment or a time lies, in ns."""


def wait(ms: float) -> None:
    """Busy: whoever sleeps is woken late."""
    end = time.monotonic_ns() + ms * MS
    while time.monotonic_ns() < end:
        pass


def at(call: Callable[[], object]) -> Span:
    """Between which moments it was called."""
    before = time.monotonic_ns()
    call()
    return before, time.monotonic_ns()


def elapsed(began: Span, ended: Span) -> Span:
    """Between which bounds the time lies from one moment to the other."""
    return ended[0] - began[1], ended[1] - began[0]


def lies(value: int, *bounds: Span) -> bool:
    """Between the sums of the bounds."""
    return sum(low for low, _ in bounds) <= value <= sum(high for _, high in bounds)
