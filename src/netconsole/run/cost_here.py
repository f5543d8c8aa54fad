"""What measuring far hosts costs on this machine: this process, its ssh processes, and compilers while they run."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class CostHere:
    """CPU in percent of one core, of the time since the last reading (None: the first one); memory (PSS) in kB."""

    cpu_pct: float | None
    memory_kb: int
    processes: int


class CostHereReader:
    """Reads it. That takes some milliseconds (the kernel walks page tables): not on the event loop."""

    def __init__(self) -> None:
        self._own = psutil.Process(os.getpid())
        self._before: tuple[float, float] | None = None

    def read(self) -> CostHere:
        """The cost now."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        used_s = time.process_time() + ended.ru_utime + ended.ru_stime
        memory_kb = _pss_kb(self._own)
        children = self._own.children(recursive=True)
        for child in children:
            with contextlib.suppress(psutil.Error):
                times = child.cpu_times()
                used_s += times.user + times.system
                memory_kb += _pss_kb(child)
        now_s, before = time.monotonic(), self._before
        self._before = now_s, used_s
        cpu_pct = None
        if before is not None and now_s > before[0]:
            cpu_pct = 100 * max(0.0, used_s - before[1]) / (now_s - before[0])
        return CostHere(cpu_pct, memory_kb, 1 + len(children))


def _pss_kb(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        found = process.memory_full_info()
        return int(getattr(found, "pss", found.rss)) // 1024
    return 0
