"""What measuring far hosts costs on this machine: this process, its ssh processes, and compilers while they run."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

from netconsole_collector.kernel.usage import cpu_ns, pss_kb, rss_kb


@dataclass(frozen=True, slots=True)
class CostHere:
    """CPU in percent of one core, of the time since the last reading (None: the first one); memory (PSS) in kB."""

    cpu_pct: float | None
    memory_kb: int
    processes: int


class CostHereReader:
    """Reads it. That takes some milliseconds (the kernel walks page tables): not on the event loop."""

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None

    def read(self) -> CostHere:
        """The cost now."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        used_s = time.process_time() + ended.ru_utime + ended.ru_stime
        children = _below(os.getpid())
        used_s += sum(map(cpu_ns, children)) / 1e9
        memory_kb = sum(pss_kb(pid) or rss_kb(pid) or 0 for pid in (os.getpid(), *children))
        now_s, before = time.monotonic(), self._before
        self._before = now_s, used_s
        cpu_pct = None
        if before is not None and now_s > before[0]:
            cpu_pct = 100 * max(0.0, used_s - before[1]) / (now_s - before[0])
        return CostHere(cpu_pct, memory_kb, 1 + len(children))


def _below(pid: int) -> list[int]:
    """The children of a process, and theirs."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has ended
            for child in map(int, children.read_text().split()):
                found += [child, *_below(child)]
    return found
