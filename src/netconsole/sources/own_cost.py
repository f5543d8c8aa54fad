"""self_cost: what the console itself uses, and next to it how busy the whole machine is."""

from __future__ import annotations

import os
import time
from typing import ClassVar

import psutil

from netconsole.frames import AnyFrame, Row, Usage
from netconsole.sources.base import FrameMaker

PSS_EVERY = 5
"""The kernel walks our page tables for PSS: about 1 ms, so not at every interval."""


class OwnCost:
    """See the module. ``usage`` is of this process; the runner sends it at the end of the interval."""

    name: ClassVar[str] = "self_cost"

    def __init__(self) -> None:
        self._process = psutil.Process(os.getpid())
        self._cpu_ns = time.process_time_ns()
        self._machine: tuple[float, float] | None = None
        self._reading = 0
        self._pss_kb: int | None = None

    def open(self) -> None:
        """Begin to count."""
        self._machine_cpu_pct()

    def read(self, make: FrameMaker) -> list[AnyFrame]:
        """The machine's one row."""
        gauges: dict[str, int | float | None] = {"machine_cpu_pct": self._machine_cpu_pct()}
        return [make.table(self.name, "machine", [Row(labels={}, counts={}, gauges=gauges)], full=True)]

    def close(self) -> None:
        """Nothing is held."""

    def usage(self) -> Usage:
        """CPU time since the last call, memory now."""
        now = time.process_time_ns()
        used, self._cpu_ns = now - self._cpu_ns, now
        if self._reading % PSS_EVERY == 0:
            self._pss_kb = self._pss()
        self._reading += 1
        return Usage(cpu_ns=used, rss_kb=self._process.memory_info().rss // 1024, pss_kb=self._pss_kb)

    def _pss(self) -> int | None:
        try:
            pss = getattr(self._process.memory_full_info(), "pss", None)
        except psutil.Error:
            return None
        return None if pss is None else int(pss) // 1024

    def _machine_cpu_pct(self) -> float | None:
        """Busy share of all CPUs since the last call; None at the first."""
        times = psutil.cpu_times()
        # guest time is in user time already; steal is time that was not ours, but nor was it idle.
        idle = times.idle + getattr(times, "iowait", 0.0)
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        last, self._machine = self._machine, (idle, total)
        if last is None or total <= last[1]:
            return None
        return max(0.0, min(100.0, 100 * (1 - (idle - last[0]) / (total - last[1]))))
