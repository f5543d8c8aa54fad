"""self_cost says how busy the measured host is, in percent of all its CPUs, now and before the console measured."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from netconsole.host import machine
from netconsole.sources import own_cost
from netconsole.sources.base import FrameMaker
from netconsole.sources.own_cost import OwnCost
from netconsole.telemetry.frames import Table
from netconsole_collector.primitives.here import Here


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


class Process:
    """This process, with as much memory as a test gives it."""

    rss, pss, asked = 0, 0, 0

    def memory_info(self) -> SimpleNamespace:
        return SimpleNamespace(rss=self.rss)

    def memory_full_info(self) -> SimpleNamespace:
        self.asked += 1
        return SimpleNamespace(pss=self.pss)


def test_what_the_console_takes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU time since the last reading; memory in kB of 1024 bytes, the expensive one at each fifth reading."""
    process, cpu_ns = Process(), iter(range(1_000, 8_000, 500))
    monkeypatch.setattr("psutil.Process", lambda _: process)
    monkeypatch.setattr(time, "process_time_ns", lambda: next(cpu_ns))
    own = OwnCost()
    seen = []
    for reading in range(7):
        process.rss, process.pss = 2048 * (reading + 1), 1024 * (reading + 1) + 1023
        seen.append(own.usage())
    assert [one.cpu_ns for one in seen] == [500] * 7
    assert [one.rss_kb for one in seen] == [2, 4, 6, 8, 10, 12, 14]
    assert [one.pss_kb for one in seen] == [1, 1, 1, 1, 1, 6, 6] and process.asked == 2


def test_each_interval_has_its_own_load_and_sums_go_on(tmp_path: Path) -> None:
    """A counter of the kernel that goes back a little (idle time does) is nothing. Every reading is whole."""
    stat = Stat(tmp_path)
    own, make = OwnCost(stat.host), FrameMaker()
    found = []
    for more in ({}, {"user": 30, "idle": 70}, {"user": 10, "idle": 10}, {}, {"user": -1}):
        stat.go_on(**more)
        (table,) = own.read(make)
        assert isinstance(table, Table) and table.full
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


def test_memory_that_cannot_be_told_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(Process):
        def memory_full_info(self) -> SimpleNamespace:
            raise psutil.AccessDenied

    for process in (Refused(), SimpleNamespace(memory_info=Process().memory_info, memory_full_info=SimpleNamespace)):
        monkeypatch.setattr("psutil.Process", lambda _, one=process: one)
        assert OwnCost().usage().pss_kb is None
