"""What the collector itself uses: CPU time (with its compile workers) and memory."""

import os
import resource
from typing import Any, Dict, Optional

_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
_PSS_EVERY = 5
"""The proportional set size is read only so often: for it the kernel has to walk over all our pages."""


class UsageReader:
    """Reads the `usage` of a cost frame."""

    def __init__(self) -> None:
        self._cpu_ns = _cpu_ns()
        self._pss_kb: Optional[int] = None
        self._readings = 0

    def read(self) -> Dict[str, Any]:
        """CPU time since the last reading, and memory now."""
        cpu_ns = _cpu_ns()
        used, self._cpu_ns = cpu_ns - self._cpu_ns, cpu_ns
        if self._readings % _PSS_EVERY == 0:
            self._pss_kb = pss_kb()
        self._readings += 1
        return {"cpu_ns": used, "rss_kb": rss_kb(), "pss_kb": self._pss_kb}


def _cpu_ns() -> int:
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return int(sum(part.ru_utime + part.ru_stime for part in parts) * 1e9)


def rss_kb() -> Optional[int]:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * _PAGE_KB
    except (OSError, ValueError, IndexError):
        return None


def pss_kb() -> Optional[int]:
    """None before 4.14, which has no smaps_rollup."""
    try:
        with open("/proc/self/smaps_rollup") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    except (OSError, ValueError, StopIteration):
        return None
