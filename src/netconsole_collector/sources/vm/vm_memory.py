"""How often memory of a VM comes back from disk: what it pays where its control group, or the host, has too little.

The figure is that of the control group around the process. Where there is none it is the process's own, which lacks
most of its guest's: a worker of the kernel reads such a page in place of the virtual CPU (virt/kvm/async_pf.c), and
only the group is told by whose memory it is (count_memcg_event_mm in mm/filemap.c and mm/memory.c).
"""

from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from netconsole_collector.primitives.here import Here, text_of
from netconsole_collector.sources.base import Json, Pace, RowLabels, RowMaker, SourceReading, SourceRow
from netconsole_collector.sources.vm.cpu_limits import GROUPS, groups_of, pairs

_NONE = 1 << 62
"""A limit of version 1 that is none: the largest multiple of a page."""


class VmProcess(NamedTuple):
    """A QEMU process: the name of its machine, and how many of its own page faults have waited for a disk."""

    vm: str
    faults: int


class _Names(NamedTuple):
    used: str
    limits: Tuple[str, ...]
    faults: str


_SECOND = _Names("memory.current", ("memory.high", "memory.max"), "pgmajfault")
_FIRST = _Names("memory.usage_in_bytes", ("memory.limit_in_bytes",), "total_pgmajfault")


class VmMemory:
    """The table `memory` of vm_states. The files of large groups are dear to read, so it may be read less often."""

    def __init__(self, host: Here, max_rows: int) -> None:
        self._host = host
        self._rows = RowMaker(("faults",), max_rows)
        self._pace = Pace()
        self._since_ns = 0
        self._groups: Dict[str, Optional[Tuple[str, _Names]]] = {}
        self._last: List[SourceRow] = []

    def table(self, reading: SourceReading, processes: Mapping[str, VmProcess]) -> Json:
        """By process number."""
        self._since_ns += reading.interval_ns
        late_ns = 0
        if self._pace.is_due(reading.is_whole):
            began = self._host.cpu_s()
            self._groups = {pid: self._groups.get(pid) or self._group(pid) for pid in processes}
            self._last = list(self._readings(processes))
            self._pace.took(self._host.cpu_s() - began, reading.interval_ns)
            late_ns, self._since_ns = self._since_ns, 0
        rows, full, omitted = self._rows.rows(self._last)
        for row in rows if late_ns > reading.interval_ns else ():
            row["interval_ns"] = late_ns
        return reading.table("vm_states", "memory", (rows, full, omitted))

    def _readings(self, processes: Mapping[str, VmProcess]) -> Iterator[SourceRow]:
        for pid, one in processes.items():
            faults, used, limit = self._of_group(self._groups[pid])
            labels: RowLabels = {"vm": one.vm, "process": "qemu/" + pid}
            yield labels, (one.faults if faults is None else faults,), {"used": used, "limit": limit}

    def _group(self, pid: str) -> Optional[Tuple[str, _Names]]:
        """The innermost that accounts memory, and is not that of the whole host."""
        for group in reversed(groups_of(self._host, pid, "memory")):
            for names, least in ((_SECOND, 1), (_FIRST, 2)):  # those of version 1 begin with their controller
                if group.count("/") >= least and self._text(group, names.used):
                    return group, names
        return None

    def _of_group(self, found: Optional[Tuple[str, _Names]]) -> Tuple[Optional[int], Optional[int], Optional[int]]:
        """Its page faults, and its memory: used, and at most, in bytes. Null: it is not known, or has no limit."""
        if found is None:
            return None, None, None
        group, names = found
        stat = dict(pairs(self._text(group, "memory.stat"), " "))
        limits = [one for one in (_whole(self._text(group, name)) for name in names.limits) if one is not None]
        return _whole(stat.get(names.faults, "")), _whole(self._text(group, names.used)), min(limits, default=None)

    def _text(self, group: str, name: str) -> str:
        return text_of(self._host, "{}{}/{}".format(GROUPS, group, name))


def _whole(text: str) -> Optional[int]:
    number = int(text) if text.strip().isdigit() else None
    return number if number is not None and number < _NONE else None
