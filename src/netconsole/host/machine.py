"""Measures how busy the whole machine is, also just before this program began to measure. The same figure as sar's."""

from __future__ import annotations

import errno
import time
from dataclasses import dataclass

from netconsole.base.errors import HostLost
from netconsole.host.target import Target
from netconsole_collector.primitives.here import HERE

STAT = "/proc/stat"
LEAST_MS = 300
"""CPU time of all CPUs. A shorter time gives no useful figure, because the kernel counts in ticks of 10 ms."""
_TICK_MS = 10.0
"""USER_HZ is 100 on every architecture that runs KVM (include/uapi/asm-generic/param.h)."""


@dataclass(slots=True)
class _Before:
    """The time between the start of this program and the start of measuring."""

    own_s: float
    machine_ms: tuple[int, int]
    target: Target
    is_over: bool = False
    busy_pct: float | None = None


_before: _Before | None = None


def begin(target: Target = HERE) -> None:
    """Call this when the program starts. The time before measuring lasts until the first :func:`before_pct`."""
    global _before
    _before = _Before(time.process_time(), busy_and_all_ms(target), target)


def before_pct() -> float | None:
    """Percent of all CPUs that others kept busy before measuring; None when that time was too short.

    The first call ends that time.
    """
    if _before is None:
        return None
    if not _before.is_over:
        _before.is_over = True
        busy, all_of_it = (
            now - then for now, then in zip(busy_and_all_ms(_before.target), _before.machine_ms, strict=True)
        )
        own_ms = (time.process_time() - _before.own_s) * 1000
        if all_of_it >= LEAST_MS:
            _before.busy_pct = 100 * max(0.0, busy - own_ms) / all_of_it
    return _before.busy_pct


def busy_and_all_ms(target: Target = HERE) -> tuple[int, int]:
    """Busy time and all time of all CPUs since boot, in milliseconds (fs/proc/stat.c, show_stat). Raises OSError."""
    fields = target.read(STAT).decode("ascii", "replace").split("\n", 1)[0].split()[1:]
    try:
        ticks = [int(field) for field in fields]
    except ValueError:
        raise HostLost(errno.EPROTO, f"{STAT} has no times of CPUs") from None
    # User time includes guest time (the last two). Steal counts as busy: in that time the CPU was not free for us.
    total, idle = sum(ticks[:8]), sum(ticks[3:5])
    return round((total - idle) * _TICK_MS), round(total * _TICK_MS)
