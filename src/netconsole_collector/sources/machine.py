"""machine: how busy all CPUs of the host are, from /proc/stat. The same figure as sar's."""

import errno
from typing import List, Optional, Tuple

from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.sources.base import Json, KernelSource, SourceError, SourceReading

STAT = "/proc/stat"
_TICK_MS = 10
"""USER_HZ is 100 on every architecture that runs KVM (include/uapi/asm-generic/param.h)."""


def busy_and_all_ms(host: Here = HERE) -> Tuple[int, int]:
    """Busy time and all time of all CPUs since boot, in milliseconds (fs/proc/stat.c, show_stat). Raises OSError."""
    fields = host.read(STAT).decode("ascii", "replace").split("\n", 1)[0].split()[1:]
    try:
        ticks = [int(field) for field in fields]
    except ValueError:
        raise OSError(errno.EPROTO, STAT + " has no times of CPUs") from None
    # User time includes guest time (the last two). Steal counts as busy: in that time the CPU was not free for us.
    total, idle = sum(ticks[:8]), sum(ticks[3:5])
    return (total - idle) * _TICK_MS, total * _TICK_MS


class MachineLoad(KernelSource):
    """See the module. The console adds how busy the host was before (src/netconsole/sources/own_cost.py)."""

    def __init__(self, host: Here = HERE) -> None:
        self._host = host
        self._last: Optional[Tuple[int, int]] = None
        self._totals = (0, 0)

    def open(self) -> None:
        """Raises SourceError when there is no /proc/stat."""
        self._last = self._now()

    def read(self, reading: SourceReading) -> List[Json]:
        """The machine's one row."""
        last, self._last = self._last, self._now()
        busy, whole = (max(0, new - old) for new, old in zip(self._last, last or self._last))
        self._totals = (self._totals[0] + busy, self._totals[1] + whole)
        counts = {
            "busy_ms": {"delta": busy, "total": self._totals[0]},
            "all_ms": {"delta": whole, "total": self._totals[1]},
        }
        gauges = {"machine_cpu_pct": 100 * busy / whole if whole else None, "before_cpu_pct": None}
        return [reading.table("self_cost", "machine", ([{"labels": {}, "counts": counts, "gauges": gauges}], True, 0))]

    def _now(self) -> Tuple[int, int]:
        try:
            return busy_and_all_ms(self._host)
        except OSError as error:
            raise SourceError("{} cannot be read: {}".format(STAT, error.strerror or error)) from None
