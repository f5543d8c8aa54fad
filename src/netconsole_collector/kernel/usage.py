"""What a process uses: CPU time and memory. Of the collector itself also what its compile workers take."""

import os
import resource
from typing import Any, Dict, Iterable, Optional, Union

_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
_NS_PER_TICK = 1000000000 // os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12
"""Fields of /proc/PID/stat behind the name (proc(5))."""
_PSS_EVERY = 5
"""The proportional set size is read only so often: for it the kernel has to walk over all our pages."""


class UsageReader:
    """Reads the `usage` of a cost frame."""

    def __init__(self) -> None:
        self._cpu_ns = _cpu_ns()
        self._pss_kb: Optional[int] = None
        self._readings = 0

    def read(self, workers: Iterable[int] = ()) -> Dict[str, Any]:
        """CPU time since the last reading, and memory now. ``workers``: ids of the processes that compile now.

        The kernel adds the time of such a process to ours when it has ended: that would be seconds in one interval.
        """
        now_ns = max(self._cpu_ns, _cpu_ns() + sum(map(cpu_ns, workers)))  # clock ticks are coarse
        used, self._cpu_ns = now_ns - self._cpu_ns, now_ns
        if self._readings % _PSS_EVERY == 0:
            self._pss_kb = pss_kb()
        self._readings += 1
        return {"cpu_ns": used, "rss_kb": rss_kb(), "pss_kb": self._pss_kb}


def _cpu_ns() -> int:
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return int(sum(part.ru_utime + part.ru_stime for part in parts) * 1e9)


def cpu_ns(pid: int) -> int:
    """CPU time of a process in ns; 0 when it is gone."""
    try:
        with open("/proc/{}/stat".format(pid), "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return (int(fields[_UTIME]) + int(fields[_STIME])) * _NS_PER_TICK
    except (OSError, ValueError, IndexError):
        return 0


def rss_kb(pid: Union[int, str] = "self") -> Optional[int]:
    """None when it is gone."""
    try:
        with open("/proc/{}/statm".format(pid)) as file:
            return int(file.read().split()[1]) * _PAGE_KB
    except (OSError, ValueError, IndexError):
        return None


def pss_kb(pid: Union[int, str] = "self") -> Optional[int]:
    """None when it is gone, and before 4.14, which has no smaps_rollup. The kernel walks over all its pages for it."""
    try:
        with open("/proc/{}/smaps_rollup".format(pid)) as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    except (OSError, ValueError, StopIteration):
        return None
