"""What watching far hosts costs here: the console's process and all below it."""

from __future__ import annotations

import os
import subprocess

from netconsole.run import cost_here
from netconsole.run.cost_here import CostHereReader
from netconsole_collector.kernel.usage import pss_kb

SHELL = ("sh", "-c", "exec 3<&0; cat <&3 & echo $!; wait")


def test_processes_below_those_below_it_are_counted() -> None:
    with subprocess.Popen(SHELL, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        below = int(shell.stdout.readline())
        assert cost_here._below(shell.pid) == [below]
        assert {shell.pid, below} <= set(cost_here._below(os.getpid()))
        cost = CostHereReader().read()
        assert cost.processes >= 3 and cost.cpu_pct is None
        assert cost.memory_kb >= (pss_kb(shell.pid) or 0) > 0


def test_the_second_reading_tells_what_was_used_since_the_first() -> None:
    reader = CostHereReader()
    reader.read()
    cost_pct = reader.read().cpu_pct
    assert cost_pct is not None and cost_pct > 0
