"""self_cost: the CPU and memory of the console itself, and how busy the measured host is."""

from __future__ import annotations

import os
import time
from typing import ClassVar

import psutil

from netconsole.host import machine
from netconsole.host.target import Target
from netconsole.sources.base import FrameMaker
from netconsole.telemetry.frames import AnyFrame, Usage
from netconsole_collector.primitives.here import HERE

PSS_EVERY = 5
"""Intervals between two readings of PSS. The kernel walks our page tables for it, which takes about 1 ms."""


class OwnCost:
    """See the module. ``usage`` is that of this process. The runner sends it at the end of the interval."""

    name: ClassVar[str] = "self_cost"

    def __init__(self, target: Target = HERE) -> None:
        self._target = target
        self._process = psutil.Process(os.getpid())
        self._cpu_ns = time.process_time_ns()
        self._before_pct: float | None = None
        self._machine: tuple[int, int] | None = None
        self._totals = (0, 0)
        self._reading = 0
        self._pss_kb: int | None = None

    def open(self) -> None:
        """Start counting. The load of this machine until now, minus our own, is how busy it was before."""
        self._before_pct = machine.before_pct() if self._target is HERE else None
        self._machine = machine.busy_and_all_ms(self._target)

    def read(self, make: FrameMaker) -> list[AnyFrame]:
        """The machine's one row."""
        last, now = self._machine, machine.busy_and_all_ms(self._target)
        self._machine = now
        busy, all_cpus = (max(0, new - old) for new, old in zip(now, last, strict=True)) if last else (0, 0)
        self._totals = (self._totals[0] + busy, self._totals[1] + all_cpus)
        counts = {
            "busy_ms": {"delta": busy, "total": self._totals[0]},
            "all_ms": {"delta": all_cpus, "total": self._totals[1]},
        }
        gauges: dict[str, int | float | None] = {
            "machine_cpu_pct": 100 * busy / all_cpus if all_cpus else None,
            "before_cpu_pct": self._before_pct,
        }
        return [make.table(self.name, "machine", [{"labels": {}, "counts": counts, "gauges": gauges}], full=True)]

    def close(self) -> None:
        """Nothing to release."""

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
