"""Keeps ten minutes of one figure in constant memory, for sparklines: one sample per interval, with gaps.

A :class:`Timeline` counts the intervals of one source of frames. A :class:`Series` holds samples by interval. An
interval without a sample is a 0, or unknown (None) if the timeline says that it was missed. So figures that do not
change cost nothing, and most rows of a large table do not change.
"""

from __future__ import annotations

import math
from array import array
from collections import deque

from netconsole.telemetry.frames import Int, Natural
from netconsole.telemetry.saved import Saved

SAMPLES = 600
"""Ten minutes at one sample per second."""

_UNKNOWN = math.nan
_IDLE = -1.0
"""No sample. Figures with a history are never negative."""


class Timeline(Saved):
    """Counts intervals, and remembers which were missed (lost frames, or no collector)."""

    tick: Natural = 0
    last_mono_ns: Int | None = None
    _begun: bool = False

    def __post_init__(self) -> None:
        self._missed: deque[int] = deque(maxlen=SAMPLES)

    def begin(self, mono_ns: int, interval_ns: int) -> int:
        """Note a figure read at ``mono_ns``. The first one of an interval shows how many intervals were missed."""
        if self._begun:
            return 0
        self._begun = True
        missed = 0
        if self.last_mono_ns is not None and interval_ns > 0:
            steps = round((mono_ns - self.last_mono_ns) / interval_ns)
            missed = min(SAMPLES, max(0, steps - 1))
        for _ in range(missed):
            self.tick += 1
            self._missed.append(self.tick)
        return missed

    def close(self, mono_ns: int, whole: bool) -> None:
        """End the interval. If it is not ``whole``, figures without a sample are unknown, not 0."""
        self.tick += 1
        self.last_mono_ns = mono_ns
        self._begun = False
        if not whole:
            self._missed.append(self.tick)

    def missed(self) -> frozenset[int]:
        """The missed intervals among the last SAMPLES."""
        return frozenset(tick for tick in self._missed if tick > self.tick - SAMPLES)


class Series:
    """The last SAMPLES values of one figure (single precision), with the time of the first one."""

    __slots__ = ("_first", "_last", "_values")

    def __init__(self) -> None:
        self._values = array("f", bytes(4 * SAMPLES))
        self._first: int | None = None
        self._last = 0

    def put(self, tick: int, value: float | None) -> None:
        """Write the sample of interval ``tick``. Skipped intervals have no sample."""
        if self._first is None:
            self._first = self._last = tick
        if tick < self._last:
            return
        for passed in range(max(self._last + 1, tick - SAMPLES + 1), tick):
            self._values[passed % SAMPLES] = _IDLE
        self._values[tick % SAMPLES] = _UNKNOWN if value is None else value
        self._last = tick

    def values(self, timeline: Timeline, count: int = SAMPLES, idle: float | None = 0.0) -> list[float | None]:
        """The last ``count`` samples, oldest first, ending with the current interval; None is unknown.

        ``idle``: the value of an interval without a sample: 0 for a count, None for a percentile.
        """
        missed = timeline.missed()
        now = timeline.tick
        result: list[float | None] = []
        for tick in range(now - min(count, SAMPLES) + 1, now + 1):
            if self._first is None or tick < self._first:
                result.append(None)
                continue
            value = _IDLE if tick > self._last else self._values[tick % SAMPLES]
            if value == _IDLE:
                result.append(None if tick in missed else idle)
            else:
                result.append(None if math.isnan(value) else value)
        return result
