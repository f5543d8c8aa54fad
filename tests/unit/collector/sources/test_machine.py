"""self_cost says how busy the measured host is, in percent of all its CPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole_collector.primitives.here import Here
from netconsole_collector.sources.base import SourceError
from netconsole_collector.sources.machine import MachineLoad, busy_and_all_ms
from tests.support.sources import tables_of


class Stat:
    """/proc/stat of a host, in ticks of 10 ms: user, nice, system, idle, iowait, irq, softirq, steal, guest."""

    def __init__(self, root: Path) -> None:
        self.path = root / "proc" / "stat"
        self.path.parent.mkdir()
        self.host = Here(root)
        self.ticks = [100, 1, 100, 1000, 10, 1, 1, 1, 50]
        self.go_on()

    def go_on(self, **more: int) -> None:
        names = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest"]
        self.ticks = [now + more.get(name, 0) for name, now in zip(names, self.ticks, strict=True)]
        self.path.write_text(f"cpu  {' '.join(str(one) for one in self.ticks)} 0\ncpu0 1 2 3\n")


@pytest.mark.proves("self_cost", "tables.machine.machine_cpu_pct", "modes.summary")
def test_the_host_s_load_now(tmp_path: Path) -> None:
    """Guest time is user time already. Steal is time that nobody here had; iowait is idle."""
    stat = Stat(tmp_path)
    source = MachineLoad(stat.host)
    source.open()
    stat.go_on(user=30, nice=1, system=2, irq=3, softirq=4, steal=5, guest=30, idle=40, iowait=15)
    (table,) = tables_of(source)
    (row,) = table.rows
    assert row.gauges == {"machine_cpu_pct": 45.0, "before_cpu_pct": None}
    assert (row.counts["busy_ms"].delta, row.counts["all_ms"].delta) == (450, 1000)


def test_each_interval_has_its_own_load_and_sums_go_on(tmp_path: Path) -> None:
    """A counter of the kernel that goes back a little (idle time does) is nothing. Every reading is whole."""
    stat = Stat(tmp_path)
    source = MachineLoad(stat.host)
    found = []
    for more in ({}, {"user": 30, "idle": 70}, {"user": 10, "idle": 10}, {}, {"user": -1}):
        stat.go_on(**more)
        (table,) = tables_of(source)
        assert table.full
        (row,) = table.rows
        busy, whole = row.counts["busy_ms"], row.counts["all_ms"]
        found.append((busy.delta, busy.total, whole.delta, whole.total, row.gauges["machine_cpu_pct"]))
    assert found == [
        (0, 0, 0, 0, None),
        (300, 300, 1000, 1000, 30.0),
        (100, 400, 200, 1200, 50.0),
        (0, 400, 0, 1200, None),
        (0, 400, 0, 1200, None),
    ]


def test_what_is_no_time_is_said(tmp_path: Path) -> None:
    stat = Stat(tmp_path)
    stat.path.write_text("cpu x\n")
    with pytest.raises(OSError, match="/proc/stat has no times of CPUs"):
        busy_and_all_ms(stat.host)
    with pytest.raises(SourceError, match="/proc/stat cannot be read: /proc/stat has no times of CPUs"):
        MachineLoad(stat.host).open()
