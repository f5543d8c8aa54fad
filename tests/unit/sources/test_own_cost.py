"""self_cost says how busy the measured host is, in percent of all its CPUs, now and before the console measured."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from netconsole.host import machine
from netconsole.host.here import Here
from netconsole.sources import own_cost
from netconsole.sources.base import FrameMaker
from netconsole.sources.own_cost import OwnCost
from netconsole.telemetry.frames import Table


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


@pytest.mark.proves("self_cost", "tables.machine.{machine_cpu_pct,before_cpu_pct}", "modes.summary")
def test_the_host_s_load_now_and_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guest time is user time already. Steal is time that nobody here had; iowait is idle."""
    stat = Stat(tmp_path)
    monkeypatch.setattr(time, "process_time", lambda: 7.0)  # this process takes nothing
    monkeypatch.setattr(own_cost, "HERE", stat.host)
    machine.begin(stat.host)
    stat.go_on(user=20, idle=60)
    own = OwnCost(stat.host)
    own.open()
    stat.go_on(user=30, nice=1, system=2, irq=3, softirq=4, steal=5, guest=30, idle=40, iowait=15)
    (table,) = own.read(FrameMaker())
    assert isinstance(table, Table)
    (row,) = table.rows
    assert row.gauges == {"machine_cpu_pct": 45.0, "before_cpu_pct": 25.0}
    assert (row.counts["busy_ms"].delta, row.counts["all_ms"].delta) == (450, 1000)
