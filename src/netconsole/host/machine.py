"""Measures how busy this machine was just before this program began to measure."""

from __future__ import annotations

import time
from dataclasses import dataclass

from netconsole.far import child
from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.sources.machine import busy_and_all_ms

LEAST_MS = 300
"""CPU time of all CPUs. A shorter time gives no useful figure, because the kernel counts in ticks of 10 ms."""


@dataclass(slots=True)
class _Before:
    """The time between the start of this program and the start of measuring."""

    own_s: float
    machine_ms: tuple[int, int]
    host: Here
    is_over: bool = False
    busy_pct: float | None = None


_before: _Before | None = None


def begin(host: Here = HERE) -> None:
    """Call this when the program starts. The time before measuring lasts until the first :func:`before_pct`."""
    global _before
    _before = _Before(time.process_time(), busy_and_all_ms(host), host)


def before_pct() -> float | None:
    """Percent of all CPUs that others kept busy before measuring; None when that time was too short.

    The first call ends that time.
    """
    if _before is None:
        return None
    if not _before.is_over:
        _before.is_over = True
        busy, all_of_it = (
            now - then for now, then in zip(busy_and_all_ms(_before.host), _before.machine_ms, strict=True)
        )
        own_ms = (time.process_time() - _before.own_s + child.early_cpu_s()) * 1000
        if all_of_it >= LEAST_MS:
            _before.busy_pct = 100 * max(0.0, busy - own_ms) / all_of_it
    return _before.busy_pct
