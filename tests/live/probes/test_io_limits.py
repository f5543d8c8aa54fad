"""io_limits sees a VM that is held back by its own control group, which no block device shows."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.live.disks import PAGE, limited, loop
from tests.support.live.measurement import SEEN, Measurement

PROBE = "io_limits"
VM = f"made-limited-{os.getpid()}"
READS_PER_S = 40
READS = 4 * READS_PER_S


@pytest.mark.proves("io_limits", "tables.limits.{vm,device,what,group,passed,limit_per_s,used_pct}")
def test_a_vm_that_uses_up_its_own_limit(tmp_path: Path) -> None:
    """In whole seconds, to a quarter; and the device is idle most of that time."""
    with (
        loop(tmp_path / "image") as disk,
        disk.asked_by(VM, "read", READS) as process,
        limited(disk, READS_PER_S, process.pid) as group,
        closing(Measurement(1000)) as host,
    ):
        host.load(PROBE)
        host.load("block_path", device=disk.name)
        host.begin()
        print(file=process.stdin, flush=True)
        used: list[float] = []

        def is_used() -> bool:
            used.extend(float(row.gauges["used_pct"] or 0) for row in host.rows(PROBE, "limits", vm=VM))
            return any(75 <= one <= 125 for one in used)

        host.until(is_used, f"a second in which the limit is used: {used}")
        [row] = host.rows(PROBE, "limits", vm=VM)
        assert row.labels == {"vm": VM, "device": disk.name, "what": "reads", "group": group}
        assert row.gauges["limit_per_s"] == READS_PER_S
        host.until(lambda: host.total(PROBE, "limits", "passed", vm=VM) == READS, "all of them in its group")
        host.settle()
        # What was held back is asked for by kernel workers: it still is the VM's.
        ios, size = (host.total("block_path", "ios", name, vm=VM) for name in ("ios", "bytes"))
        assert SEEN * READS <= ios <= READS and size == ios * PAGE
        assert host.total("block_path", "ios", "ios", device=disk.name) == ios
        assert {row.labels["process"] for row in host.rows("block_path", "ios", vm=VM)} >= {"kworker"}
        times = [one.total for one in host.histograms("block_path", "times", device=disk.name)]
        assert sum(one.sum for one in times) < 1e9 < 1e9 * READS / READS_PER_S
