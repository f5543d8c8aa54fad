"""io_limits: what the control groups of VMs let them ask of each block device, and how much of that they use.

An I/O that its group holds back waits before any tracepoint of the block layer: no probe sees it, and the device looks
idle. What the group has let through is counted behind the limit. So a machine that has used its limit in an interval
was held back by it. Groups of version 2 have io.max and io.stat, those of version 1 blkio.throttle, whose counts are of
what came: there it may be more than the limit.
"""

import re
from typing import Dict, List, NamedTuple, Optional, Tuple

from netconsole_collector.primitives.here import HERE, Here, text_of
from netconsole_collector.sources.base import (
    Json,
    KernelSource,
    RowLabels,
    RowMaker,
    SourceError,
    SourceReading,
    SourceRow,
)
from netconsole_collector.sources.new_processes import NewProcesses, words
from netconsole_collector.sources.vm import qemu
from netconsole_collector.sources.vm.cpu_limits import GROUPS, groups_of

MAX_ROWS = 4096
LOOK_EVERY = 5
"""Intervals between two looks for new QEMU processes, and at the limits of those that are known."""
YOUNG_LOOKS = 3
LIMITS = {
    "rbps": ("rbytes", "read bytes"),
    "wbps": ("wbytes", "written bytes"),
    "riops": ("rios", "reads"),
    "wiops": ("wios", "writes"),
}
"""What a limit bounds: its counter in io.stat, and its name in words (Documentation/admin-guide/cgroup-v2.rst)."""
_OLD_LIMITS = {"rbps": "read_bps", "wbps": "write_bps", "riops": "read_iops", "wiops": "write_iops"}
_OLD_COUNTERS = {"io_service_bytes": ("rbytes", "wbytes"), "io_serviced": ("rios", "wios")}
"""Files of version 1, without their beginning (Documentation/admin-guide/cgroup-v1/blkio-controller.rst)."""
_THROTTLE = "blkio.throttle."
_DEVICE = re.compile(r"[0-9]{1,9}:[0-9]{1,9}")

Numbers = Dict[str, Dict[str, int]]
"""By device number and by name."""


class IoLimit(NamedTuple):
    """So much per second of a device, by its number."""

    group: str
    device: str
    kind: str
    per_s: int


class IoLimits(KernelSource):
    """See the module."""

    def __init__(self, host: Here = HERE) -> None:
        self._host = host
        self._rows = RowMaker(("passed",), MAX_ROWS)
        self._processes = NewProcesses(host, YOUNG_LOOKS)
        self._machines: Dict[str, str] = {}
        self._limits: Dict[str, List[IoLimit]] = {}
        """By process."""
        self._passed: Dict[Tuple[str, str, str], int] = {}
        self._look_in = 0
        self._said_empty = False

    def finds_any(self) -> bool:
        """Whether a QEMU process runs now."""
        return any(qemu.is_qemu(self._arguments(pid)) for pid in self._processes.all())

    def read(self, reading: SourceReading) -> List[Json]:
        """One row per limit. Raises SourceError while no QEMU runs, after one empty table that says so."""
        self._look_in -= 1
        if self._look_in <= 0:
            self._look_in = LOOK_EVERY
            self._look()
        said: Dict[str, Numbers] = {}
        found: List[SourceRow] = []
        passed: Dict[Tuple[str, str, str], int] = {}
        for pid, limits in self._limits.items():
            for limit in limits:
                if limit.group not in said:
                    said[limit.group] = passed_by(self._host, limit.group)
                found.append(self._row(self._machines[pid], limit, said[limit.group], passed, reading.interval_ns))
        self._passed = passed
        rows, full, omitted = self._rows.rows(found)
        if not self._machines and self._said_empty:
            raise SourceError("no QEMU runs here", state="unsupported")
        self._said_empty = full and not self._machines
        return [reading.table("io_limits", "limits", (rows, full, omitted))]

    def _row(
        self,
        vm: str,
        limit: IoLimit,
        said: Numbers,
        passed: Dict[Tuple[str, str, str], int],
        interval_ns: int,
    ) -> SourceRow:
        """A group that has asked a device for nothing yet has no line of it."""
        counter, what = LIMITS[limit.kind]
        key = limit[:3]
        now = passed[key] = said.get(limit.device, {}).get(counter, 0)
        before = self._passed.get(key)
        used: Optional[float] = None
        if before is not None and now >= before and interval_ns > 0 and limit.per_s:
            used = round(100.0 * (now - before) * 1e9 / interval_ns / limit.per_s, 1)
        labels: RowLabels = {
            "vm": vm,
            "device": device_name(self._host, limit.device),
            "what": what,
            "group": limit.group,
        }
        return labels, (now,), {"limit_per_s": limit.per_s, "used_pct": used}

    def _look(self) -> None:
        """For new QEMU processes, for those that have ended, and at the limits of all."""
        for pid in self._processes.look(set(self._machines)):
            arguments = self._arguments(pid)
            if qemu.is_qemu(arguments):
                self._machines[pid] = qemu.machine_of(arguments, pid)
        self._limits = {}
        for pid in list(self._machines):
            groups = groups_of(self._host, pid, "blkio")
            if groups:
                self._limits[pid] = limits_of(self._host, groups)
            else:
                del self._machines[pid]
                self._processes.forget(pid)

    def _arguments(self, pid: str) -> List[str]:
        return words(text_of(self._host, "/proc/{}/cmdline".format(pid)))


def device_name(host: Here, number: str) -> str:
    """Of a block device; its number where it is gone."""
    try:
        return host.link("/sys/dev/block/" + number).rpartition("/")[2]
    except OSError:
        return number


def weight_of(host: Here, group: str) -> str:
    """The share of a device that a control group gets, where others ask as well; empty where it has none."""
    return _text(host, group, "io.weight").replace("default ", "").strip().replace("\n", ", ")


def limits_of(host: Here, groups: List[str]) -> List[IoLimit]:
    """Those that any of these control groups sets."""
    found = []
    for group in dict.fromkeys(groups):
        for device, values in _set_by(host, group).items():
            found += [IoLimit(group, device, kind, per_s) for kind, per_s in values.items() if kind in LIMITS and per_s]
    return found


def passed_by(host: Here, group: str) -> Numbers:
    """What a control group has let through, by device."""
    text = _text(host, group, "io.stat")
    if text:
        return numbers(text)
    found: Numbers = {}
    for name, (read, written) in _OLD_COUNTERS.items():
        for line in _text(host, group, _THROTTLE + name).splitlines():
            device, way, value = (line.split() + ["", "", ""])[:3]
            if way in ("Read", "Write") and value.isdigit():
                found.setdefault(device, {})[read if way == "Read" else written] = int(value)
    return found


def _set_by(host: Here, group: str) -> Numbers:
    text = _text(host, group, "io.max")
    if text:
        return numbers(text)
    found: Numbers = {}
    for kind, name in _OLD_LIMITS.items():
        for line in _text(host, group, "{}{}_device".format(_THROTTLE, name)).splitlines():
            device, _, value = line.partition(" ")
            if _DEVICE.fullmatch(device) and value.strip().isdigit():
                found.setdefault(device, {})[kind] = int(value)
    return found


def numbers(text: str) -> Numbers:
    """What is a number in lines such as "254:0 rbps=max wiops=120"."""
    found: Numbers = {}
    for line in text.splitlines():
        device, _, rest = line.partition(" ")
        if _DEVICE.fullmatch(device):
            pairs = (word.partition("=") for word in rest.split())
            found[device] = {name: int(value) for name, _, value in pairs if value.isdigit()}
    return found


def _text(host: Here, group: str, name: str) -> str:
    return text_of(host, "{}{}/{}".format(GROUPS, group, name))
