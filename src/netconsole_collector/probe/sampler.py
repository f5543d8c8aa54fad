"""Samples in time: attaches the programs of a probe for a share of each period, as its knob seen_pct says.

All sampled probes are attached at the same moment, each for its own share. A pause is of random length, so that nothing
periodic is always seen or never. What attaching and detaching costs bounds how often it is done.
"""

import random
import threading
import time
from typing import Callable, Dict, List, Mapping, Optional, Tuple

from netconsole_collector.kernel.clock import mono_ns
from netconsole_collector.kernel.statistics import StatisticsWindow
from netconsole_collector.probe.attached_program import Released
from netconsole_collector.probe.running import RunningProbe

PERIOD_NS = 1000000000
MAX_PERIOD_NS = 30 * PERIOD_NS
PAUSE_NS = 200000000
"""The mean pause is at least so long, and none is shorter than half of it: a hook that comes back sooner than 0.1 s has
to wait for the kernel (docs/design/overhead.md, "What attaching costs")."""
SWITCHING_SHARE = 0.01
"""What attaching and detaching may take of a core."""
HELD_NS = 20000000
HELD_SHARE = 0.1
"""While programs are attached, the kernel's statistics are on for this share of the time, and at least for that long:
they cost more than a short program does."""
_LOOK_AGAIN_NS = 20000000
"""While attachments are being closed."""


class Closing:
    """Closes attachments in a thread: the kernel waits in each until no CPU runs the program."""

    def __init__(self) -> None:
        self.cpu_ns = 0
        """What closing has taken of the CPU. Who counts it sets it back to 0."""
        self._thread: Optional[threading.Thread] = None

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def close(self, links: List[Released]) -> None:
        """Closes them in this order, after those of the last call."""
        self._thread = threading.Thread(target=self._close, args=(links, self._thread), daemon=True)
        self._thread.start()

    def _close(self, links: List[Released], before: Optional[threading.Thread]) -> None:
        if before is not None:
            before.join()
        for link in links:
            link.close()
        self.cpu_ns += cpu_ns()


class Sampler:
    """Lets probes rest and wakes them.

    ``settle`` is called when programs have come back. ``failed`` is called for a probe whose maps cannot be written.
    """

    def __init__(
        self,
        probes: Mapping[str, RunningProbe],
        statistics: StatisticsWindow,
        settle: Callable[[List[RunningProbe]], None],
        failed: Callable[[RunningProbe, OSError], None],
        closing: Optional[Closing] = None,
        clock: Callable[[], int] = mono_ns,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._probes = probes
        self._statistics = statistics
        self._settle = settle
        self._failed = failed
        self._closing = closing or Closing()
        self._clock = clock
        self._chance = chance
        self._sampled: Dict[str, List[int]] = {}
        """The sampled probes, and those of their programs that come and go."""
        self._taken_pct: Dict[str, int] = {}
        """Their shares, as they were taken over."""
        self._ends: Dict[str, int] = {}
        """When those that are attached will rest."""
        self._covered_ns: Dict[str, int] = {}
        """Until when the runs of each are known: the end of its last period, or when it began to be sampled."""
        self._attached_ns: Dict[str, int] = {}
        """For how long those that rest again were attached in this period."""
        self._hold: Optional[Tuple[int, int]] = None
        """From when to when they are measured in this period, all at once; None before it is known, and after it."""
        self._is_holding = False
        self._began_ns = self._rested_ns = 0
        """When this period began, and since when the last probe rests."""
        self._next_ns: Optional[int] = None
        """When the next period begins; None while a probe is attached, or comes or goes."""
        self._is_attaching = False
        self._period_ns = PERIOD_NS
        self._attaching_ns = self._attaching_cpu_ns = 0
        """What attaching took in this period: by the clock, and of the CPU."""
        self._before: Optional[Tuple[int, int]] = None
        """What all switching took in the period before."""

    def deadline_ns(self) -> Optional[int]:
        """When :meth:`tick` has something to do; None when never."""
        if not self._sampled:
            return None
        if self._next_ns is not None:
            return self._next_ns
        if self._is_attaching:
            return self._began_ns  # at once
        if self._hold is not None:
            begin_ns, end_ns = self._hold
            return end_ns if self._is_holding else begin_ns
        return min(self._ends.values()) if self._ends else self._clock() + _LOOK_AGAIN_NS

    def changed(self) -> None:
        """Takes over what is to be sampled: call it when a probe has come, was configured, or has gone."""
        now = self._clock()
        for name in [name for name in self._sampled if name not in self._probes or not self._probes[name].is_sampled]:
            fds = self._sampled.pop(name)
            self._ends.pop(name, None)
            del self._covered_ns[name], self._taken_pct[name]
            self._attached_ns.pop(name, None)
            if name in self._probes:
                self._statistics.free(fds)
        for name, probe in self._probes.items():
            if probe.is_sampled and name not in self._sampled:
                if not self._sampled:
                    self._began_ns, self._period_ns, self._before = now, PERIOD_NS, None
                self._sampled[name], self._taken_pct[name] = probe.sampled_fds, probe.seen_pct
                self._covered_ns[name] = now
                self._statistics.sample(self._sampled[name])
                if self._is_attaching:
                    continue  # it gets its share with those that are coming back
                self._next_ns = None  # it is attached: its first share of a period begins now
                self._ends[name] = now + self._share_ns(probe)
                self._plan_hold(now)
            elif name in self._sampled and probe.seen_pct != self._taken_pct[name]:
                self._take_other_share(name, probe, now)
        if not self._ends:
            self._end_hold()
        if not self._sampled:
            self._next_ns, self._is_attaching = None, False

    def _take_other_share(self, name: str, probe: RunningProbe, now_ns: int) -> None:
        """What was measured of it in this period is of its share before, and stands for no other."""
        self._taken_pct[name] = probe.seen_pct
        self._covered_ns[name] = max(now_ns, self._covered_ns[name])
        self._statistics.sample(self._sampled[name])
        self._attached_ns.pop(name, None)
        if name in self._ends:
            self._ends[name] = now_ns + self._share_ns(probe)
            self._plan_hold(now_ns)

    def tick(self, now_ns: int) -> None:
        """Attaches or detaches what is due."""
        deadline = self.deadline_ns()
        if deadline is None or (now_ns < deadline and (self._next_ns is not None or self._ends)):
            return
        if self._next_ns is not None:
            self._began_ns, self._next_ns, self._is_attaching, self._attaching_cpu_ns = now_ns, None, True, 0
        if self._hold is not None:
            self._tick_hold(now_ns)
        if self._is_attaching and not self._attach_one():
            self._is_attaching = False
            self._wake(self._clock())
        for name in [name for name, end_ns in self._ends.items() if now_ns >= end_ns]:
            del self._ends[name]
            self._rest(self._probes[name])
        if self._sampled and not self._ends and not self._is_attaching and not self._closing.is_busy:
            self._plan()

    def _attach_one(self) -> bool:
        """One program at a time, because each may take long: frames and commands go on. False: all are attached."""
        before_ns = cpu_ns()
        is_one = any(self._probes[name].attach_next() for name in self._sampled)
        self._attaching_cpu_ns += cpu_ns() - before_ns
        return is_one

    def _wake(self, now_ns: int) -> None:
        for probe in [self._probes[name] for name in self._sampled]:
            try:
                probe.wake()
            except OSError as error:
                self._failed(probe, error)
        self._attaching_ns = now_ns - self._began_ns
        self._ends.update({name: now_ns + self._share_ns(self._probes[name]) for name in self._sampled})
        if self._ends:
            self._plan_hold(now_ns)
        self._settle([self._probes[name] for name in self._sampled])

    def _plan_hold(self, now_ns: int) -> None:
        """Chooses when all are measured: at a moment by chance, before the first of them rests."""
        attached_ns = min(self._ends.values()) - now_ns
        held_ns = min(attached_ns, max(HELD_NS, int(attached_ns * HELD_SHARE)))
        begin_ns = now_ns + int((attached_ns - held_ns) * self._chance())
        self._end_hold()
        self._hold = begin_ns, begin_ns + held_ns

    def _tick_hold(self, now_ns: int) -> None:
        assert self._hold is not None
        begin_ns, end_ns = self._hold
        if now_ns >= end_ns:
            self._end_hold()
        elif now_ns >= begin_ns and not self._is_holding:
            self._is_holding = True
            self._statistics.hold()

    def _end_hold(self) -> None:
        self._hold = None
        if self._is_holding:
            self._is_holding = False
            self._statistics.release()

    def _rest(self, probe: RunningProbe) -> None:
        self._rested_ns = self._clock()
        self._attached_ns[probe.name] = self._rested_ns - max(self._began_ns, self._covered_ns[probe.name])
        try:
            self._closing.close(probe.rest())
        except OSError as error:
            self._failed(probe, error)

    def _share_ns(self, probe: RunningProbe) -> int:
        return self._period_ns * probe.seen_pct // 100

    def _plan(self) -> None:
        """All rest, and are detached. Says when the next period begins, and how long it will be."""
        now = self._clock()
        shares = [self._probes[name].seen_pct for name in self._sampled]
        pause_ns = max(PAUSE_NS, self._period_ns * (100 - max(shares)) // 100)
        self._next_ns = max(now + PAUSE_NS // 2, self._rested_ns + int(pause_ns * (0.5 + self._chance())))
        for name, fds in self._sampled.items():
            period_ns = max(0, self._next_ns - self._covered_ns[name])
            self._statistics.cover(fds, self._attached_ns.pop(name, 0), period_ns)
            self._covered_ns[name] = max(self._next_ns, self._covered_ns[name])
        took = (self._attaching_ns + now - self._rested_ns, self._attaching_cpu_ns + self._closing.cpu_ns)
        self._closing.cpu_ns = 0
        # The lower of two: a machine that was busy once says nothing about the next time.
        wall_ns, busy_ns = map(min, took, self._before or took)
        self._before = took
        by_pause_ns = PAUSE_NS * 100 // (100 - max(shares))
        least_ns = max(PERIOD_NS, by_pause_ns, wall_ns * 100 // min(shares), int(busy_ns / SWITCHING_SHARE))
        self._period_ns = min(MAX_PERIOD_NS, least_ns)


def cpu_ns() -> int:
    """CPU time of this thread."""
    return int(time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) * 1e9)
