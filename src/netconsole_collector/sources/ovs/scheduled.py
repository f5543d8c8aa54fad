"""Reads how the PMD threads of ovs-vswitchd were scheduled: each should have a CPU for itself (proc(5))."""

import re
from typing import Dict, NamedTuple, Optional, Tuple

from netconsole_collector.primitives.here import HERE, Here, text_of
from netconsole_collector.sources import scheduler
from netconsole_collector.sources.base import Accumulator
from netconsole_collector.sources.ovs.unixctl import PROGRAM_COMMS

SCHEDULED = ("cpu_ns", "waited_ns", "voluntary", "involuntary", "migrations")
LOOK_EVERY = 10
"""Readings after which all threads are looked through again."""
_PMD = re.compile(r"pmd-c(\d{1,5})/id:\d*")
_OLD_PMD = re.compile(r"pmd\d+")
"""Before 2.11 a name has the number of the thread in place of its core."""


class Schedule(NamedTuple):
    """Of a thread: its counts (SCHEDULED) since it was read first, and for which share it waited for its CPU."""

    totals: Tuple[Optional[int], ...]
    waits_pct: Optional[float]


class ThreadSchedule:
    """The PMD threads of one process after another."""

    def __init__(self, host: Here = HERE) -> None:
        self._host = host
        self._pid = 0
        self._look_in = 0
        self._tids: Dict[int, str] = {}
        self._counted = Accumulator(SCHEDULED)

    def look(self, pid: int) -> None:
        """Find the threads by their core."""
        self._look_in -= 1
        if pid == self._pid and self._look_in > 0:
            return
        self._pid, self._look_in = pid, LOOK_EVERY
        try:
            tids = self._host.names("/proc/{}/task".format(pid))
        except OSError:
            tids = []
        named = [(core, tid) for tid in tids for core in [self._named(tid)] if core is not None]
        bound = [(core, tid) for tid in tids for core in [self._nameless(tid)] if core is not None]
        self._tids = dict(bound + named)
        self._counted.keep([(pid, tid) for tid in self._tids.values()])

    def of(self, core: Optional[int]) -> Optional[Schedule]:
        """How the thread of this core was scheduled; None where it is not known."""
        tid = None if core is None else self._tids.get(core)
        if tid is None:
            self._look_in = 0 if core is not None else self._look_in  # it is new, perhaps
            return None
        where = self._where(tid)
        status = scheduler.status_of(self._host, where)
        books = self._text(tid, "schedstat").split()[:2]
        is_known = len(books) == 2 and all(map(str.isdigit, books)) and books[0] != "0"  # 0: nothing is counted
        ran, waited = [int(one) for one in books] if is_known else (None, None)
        if not status:
            self._look_in = 0  # it has ended
            return None
        switches = [scheduler.count_of(status, name) for name in (scheduler.VOLUNTARY, scheduler.INVOLUNTARY)]
        values = (ran, waited, *switches, scheduler.migrations_of(self._host, where))
        key = self._pid, tid
        deltas = self._counted.take(key, values)
        grown = deltas[0] + deltas[1] if deltas and ran is not None else 0
        waits_pct = round(100 * deltas[1] / grown, 1) if deltas and grown else None
        totals = self._counted.total(key)
        return Schedule(tuple(None if one is None else total for one, total in zip(values, totals)), waits_pct)

    def _named(self, tid: str) -> Optional[int]:
        """The core of a PMD thread: the CPU to which it is bound, else what its name says."""
        name = self._text(tid, "comm").strip()
        named = _PMD.match(name)
        if not (named or _OLD_PMD.fullmatch(name)):
            return None
        bound = self._bound(tid)
        return int(named.group(1)) if bound is None and named else bound

    def _nameless(self, tid: str) -> Optional[int]:
        """The CPU to which a thread is bound that has the name of its process: a name of over 15 bytes was refused."""
        is_nameless = tid != str(self._pid) and self._text(tid, "comm").strip() in PROGRAM_COMMS
        return self._bound(tid) if is_nameless else None

    def _bound(self, tid: str) -> Optional[int]:
        only = scheduler.status_of(self._host, self._where(tid)).get("Cpus_allowed_list", "")
        return int(only) if only.isdigit() and len(only) < 7 else None

    def _where(self, tid: str) -> str:
        return "/proc/{}/task/{}".format(self._pid, tid)

    def _text(self, tid: str, file: str) -> str:
        return text_of(self._host, "{}/{}".format(self._where(tid), file))
