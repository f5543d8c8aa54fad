"""The state of one source of frames: whether its stream is complete, its age, and what its process uses."""

from __future__ import annotations

from collections import deque

from msgspec import field

from netconsole.telemetry import frames
from netconsole.telemetry.frames import Int, Natural, Sentence
from netconsole.telemetry.saved import Saved
from netconsole.telemetry.series import Series, Timeline

USUAL_OF = 10
"""Intervals."""


class SourceState(Saved):
    """The stream of one source, and its process."""

    timeline: Timeline = field(default_factory=Timeline)
    cpu_pct: float | None = None
    """CPU of its process, percent of one core; None where the host does not show it."""
    cpu_ns: Natural = 0
    """All CPU time of its process since this state began."""
    rss_kb: Natural | None = None
    pss_kb: Natural | None = None
    intervals: Natural = 0
    interval_ns: Natural | None = None
    closed_mono_ns: Int | None = None
    """When the figures of the last whole interval were read (CLOCK_MONOTONIC of the measured host)."""
    closed_wall_ns: Int | None = None
    restarts: Natural = 0
    frames_lost: Natural = 0
    """Frames that never arrived, by gaps in their sequence numbers."""
    intervals_missed: Natural = 0
    bye: Sentence | None = None
    _first_seq: Int | None = None
    _last_seq: Int = 0
    _received: Natural = 0
    _lost_before: Natural = 0
    """Frames lost before the last restart."""
    _lost_seen: Natural = 0
    """``frames_lost`` when the last interval ended."""

    def __post_init__(self) -> None:
        self._cpu_history = Series()
        self._lengths: deque[int] = deque(maxlen=USUAL_OF)
        self._unsteady_tick = 0
        """The last interval in which probes were compiled, attached or changed."""

    def number(self, seq: int) -> None:
        """Count a frame by its sequence number. The order of arrival does not matter."""
        if self._first_seq is None:
            self._first_seq = self._last_seq = seq
        self._last_seq = max(self._last_seq, seq)
        self._received += 1
        lost = self._last_seq - self._first_seq + 1 - self._received
        self.frames_lost = self._lost_before + max(0, lost)

    def restart(self) -> None:
        """A new stream begins, and its sequence numbers start again."""
        self._lost_before = self.frames_lost
        self._first_seq, self._last_seq, self._received = None, 0, 0
        self.bye = None

    def use(self, frame: frames.Cost, tick: int) -> None:
        """Add what its process used in interval ``tick``."""
        usage = frame.usage
        if usage is None:
            self.cpu_pct = None
            return
        self.rss_kb, self.pss_kb = usage.rss_kb, usage.pss_kb
        self.cpu_pct = None
        if usage.cpu_ns is not None and frame.interval_ns > 0:
            self.cpu_pct = 100 * usage.cpu_ns / frame.interval_ns
            self.cpu_ns = frames.added(self.cpu_ns, usage.cpu_ns)
        self._cpu_history.put(tick, self.cpu_pct)

    def close(self, frame: frames.Cost) -> None:
        """End the interval with its last frame."""
        whole = self.frames_lost == self._lost_seen
        self._lost_seen = self.frames_lost
        self.timeline.close(frame.mono_ns, whole)
        self.intervals += 1
        self.interval_ns = frame.interval_ns
        self._lengths.append(frame.interval_ns)
        self.closed_mono_ns, self.closed_wall_ns = frame.mono_ns, frame.wall_ns

    @property
    def usual_interval_ns(self) -> int:
        """The median of the last intervals: the one in which a session ends may have a hundredth of their length."""
        return sorted(self._lengths)[len(self._lengths) // 2] if self._lengths else self.interval_ns or 1_000_000_000

    def mark_unsteady(self) -> None:
        """Probes are compiled, attached or changed in the current interval."""
        self._unsteady_tick = self.timeline.tick + 1

    def steady_cpu_history(self, count: int) -> list[float | None]:
        """As :meth:`cpu_history`, of the intervals since probes were last changed."""
        since = self.timeline.tick - self._unsteady_tick
        return self.cpu_history(min(count, since)) if since > 0 else []

    def cpu_history(self, count: int) -> list[float | None]:
        """CPU time of its process in percent of one core, oldest first; None is unknown."""
        return self._cpu_history.values(self.timeline, count)
