"""vm_states: a process that looks like QEMU, and the CPU time that it has used by the scheduler's own account."""

from __future__ import annotations

import subprocess
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
            (table,) = tables_of(source)
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
