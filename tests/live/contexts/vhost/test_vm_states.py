"""vm_states: a process that looks like QEMU, and the CPU time that it has used by the scheduler's own account."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netconsole.telemetry.frames import Row
from netconsole_collector.sources.vm.vm_states import VmStates
from tests.support.sources import tables_of

PROGRAM = """
import sys, time
for line in sys.stdin:
    end = time.process_time() + float(line)
    while time.process_time() < end:
        pass
    print("done", flush=True)
"""
TICKS_NS = 25_000_000
"""/proc tells CPU time in ticks of 10 ms, that of the user and that of the system."""


@pytest.mark.proves("vm_states", "tables.machines.{process,cpu_ns}")
def test_its_cpu_time_is_what_the_scheduler_says() -> None:
    """cpu_ns of its process."""
    command, pipe = ["qemu-system-made", "-c", PROGRAM, "-name", "busy"], subprocess.PIPE
    with subprocess.Popen(command, executable="/usr/bin/python3", stdin=pipe, stdout=pipe, text=True) as one:
        assert one.stdin is not None and one.stdout is not None
        source = VmStates()

        def row() -> Row:
            table, _memory = tables_of(source)
            return next(row for row in table.rows if row.labels["vm"] == "busy")

        def scheduled() -> int:
            return int(Path(f"/proc/{one.pid}/schedstat").read_text().split()[0])

        taken = []
        for seconds in (0.1, 0.4):
            one.stdin.write(f"{seconds}\n")
            one.stdin.flush()
            assert one.stdout.readline() == "done\n"
            read = row()
            taken.append((read.counts["cpu_ns"].total, scheduled()))
            assert read.labels["process"] == f"qemu/{one.pid}"
        one.stdin.close()
    (first, first_ns), (second, second_ns) = taken
    assert second - first == pytest.approx(second_ns - first_ns, abs=TICKS_NS)
    assert second_ns - first_ns > 12 * TICKS_NS


GUEST_MB, LIMIT_MB = 48, 24
TOUCHES = """
import mmap, sys
with open(sys.argv[3], "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
    for line in sys.stdin:
        print(sum(memory[at] for at in range(0, len(memory), mmap.PAGESIZE)), flush=True)
"""
"""It reads its memory from one end to the other, again and again: by the time it comes back, the begin is gone."""


@contextmanager
def small_group() -> Iterator[Path]:
    """A control group that may have LIMIT_MB of memory. Skips where there can be none."""
    first, second = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    top, name = (first, "memory.limit_in_bytes") if first.exists() else (second, "memory.max")
    if top is second and (second / "cgroup.controllers").exists():
        (second / "cgroup.subtree_control").write_text("+memory")
    group = top / f"netconsole-{os.getpid()}"
    group.mkdir()
    try:
        if not (group / name).exists():
            pytest.skip("cannot run here: no control groups of memory")
        (group / name).write_text(str(LIMIT_MB << 20))
        yield group
    finally:
        group.rmdir()


@pytest.mark.proves("vm_states", "tables.memory.{vm,process,faults,used,limit}")
def test_memory_that_comes_back_from_disk_is_what_its_group_counts() -> None:
    with small_group() as group, tempfile.NamedTemporaryFile(dir="/var/tmp") as guest:  # not in memory, as /tmp may be
        guest.write(bytes(GUEST_MB << 20))
        guest.flush()
        os.fsync(guest.fileno())
        os.posix_fadvise(guest.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        command, pipe = ["qemu-system-made", "-c", TOUCHES, "-name", "small", guest.name], subprocess.PIPE
        with subprocess.Popen(command, executable="/usr/bin/python3", stdin=pipe, stdout=pipe, text=True) as one:
            assert one.stdin is not None and one.stdout is not None
            (group / "cgroup.procs").write_text(str(one.pid))
            source = VmStates()

            def row() -> Row:
                _machines, memory = tables_of(source)
                return next(row for row in memory.rows if row.labels["vm"] == "small")

            first = row()
            assert first.labels["process"] == f"qemu/{one.pid}"
            for _ in range(3):
                one.stdin.write("again\n")
                one.stdin.flush()
                assert one.stdout.readline() == "0\n"
            last, counted = row(), dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            one.stdin.close()
    faults = last.counts["faults"].total
    assert faults == int(counted.get("total_pgmajfault") or counted["pgmajfault"]) > 0
    assert last.gauges["limit"] == LIMIT_MB << 20 >= (last.gauges["used"] or 0) > 0
