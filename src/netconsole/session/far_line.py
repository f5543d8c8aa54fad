"""The line to a far host: relates its clocks to ours by round trips, and measures what it carries.

A reply carries the far clocks at a moment between question and answer. In the middle they are known best: half the
round trip is the most that they can be off. The shortest round trip of the last minute counts, since clocks drift apart
by some ten microseconds per second. Frames get the times of this machine's clocks.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import NamedTuple

import msgspec

from netconsole.far.address import Address
from netconsole.host.collector_process import CollectorProcess
from netconsole.telemetry.frames import MOST, AnyFrame, Hello, Reply
from netconsole.telemetry.session import LineState

SOON_S, SELDOM_S = 0.2, 5.0
"""Time between two questions: at first, and when MANY have been answered."""
MANY = 5
KEEP_S = 60.0
RATE_OVER_S = 5.0
"""The rate of bytes is the mean of this time."""


class _Sample(NamedTuple):
    """One answer: when it came, how long it took, and far clocks minus ours in its middle. All in ns."""

    at_ns: int
    took_ns: int | None
    mono_ns: int
    wall_ns: int


class FarLine:
    """The line to one host. Frames arrive in one thread; :meth:`state` may be called in another."""

    def __init__(self, address: Address) -> None:
        self._address = str(address)
        self._lock = threading.Lock()
        self._asked: dict[int, int] = {}
        self._asked_ns = 0
        self._samples: deque[_Sample] = deque(maxlen=64)
        self._best: _Sample | None = None
        self._carried = (0, 0)
        self._bytes_per_s: float | None = None

    def is_due(self) -> bool:
        """Whether it is time for the next question."""
        every_s = SOON_S if len(self._samples) <= MANY else SELDOM_S
        return time.monotonic_ns() - self._asked_ns >= every_s * 1e9

    def asked(self, number: int) -> None:
        """The command of this number is sent now; its reply tells the time there."""
        self._asked_ns = time.monotonic_ns()
        self._asked = {number: self._asked_ns}

    def arrived(self, frame: AnyFrame, process: CollectorProcess) -> AnyFrame:
        """The frame with times of this machine's clocks."""
        now_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        if isinstance(frame, Hello):  # another boot, perhaps; until the first answer this is as good as it gets
            self._samples.clear()
            self._carried = (now_ns, process.received_bytes)
            self._use(_Sample(now_ns, None, frame.mono_ns - now_ns, frame.wall_ns - wall_ns))
        elif isinstance(frame, Reply) and frame.id in self._asked:
            took_ns = now_ns - self._asked.pop(frame.id)
            far_ns = took_ns // 2
            self._use(_Sample(now_ns, took_ns, frame.mono_ns + far_ns - now_ns, frame.wall_ns + far_ns - wall_ns))
        self._count(now_ns, process.received_bytes)
        return self.here(frame)

    def here(self, frame: AnyFrame) -> AnyFrame:
        """A frame with times of the far clocks, as one with times of ours."""
        best = self._best
        if best is None:
            return frame
        mono_ns, wall_ns = (_bounded(one) for one in (frame.mono_ns - best.mono_ns, frame.wall_ns - best.wall_ns))
        return msgspec.structs.replace(frame, mono_ns=mono_ns, wall_ns=wall_ns)

    def state(self) -> LineState:
        """What is known of it now."""
        with self._lock:
            best, rate = self._best, self._bytes_per_s
        if best is None or best.took_ns is None:
            return LineState(self._address, None, None, None, rate)
        took_s = best.took_ns / 1e9
        return LineState(self._address, took_s, took_s / 2, best.wall_ns / 1e9, rate)

    def _use(self, sample: _Sample) -> None:
        while self._samples and sample.at_ns - self._samples[0].at_ns > KEEP_S * 1e9:
            self._samples.popleft()
        self._samples.append(sample)
        timed = [one for one in self._samples if one.took_ns is not None]
        with self._lock:
            self._best = min(timed, key=lambda one: one.took_ns or 0) if timed else sample

    def _count(self, now_ns: int, received: int) -> None:
        then_ns, before = self._carried
        if now_ns - then_ns >= RATE_OVER_S * 1e9:
            with self._lock:
                self._bytes_per_s = (received - before) * 1e9 / (now_ns - then_ns)
            self._carried = (now_ns, received)


def _bounded(ns: int) -> int:
    """As a frame has room for, whatever the clocks there said."""
    return max(-MOST, min(ns, MOST))
