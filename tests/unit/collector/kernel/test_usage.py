"""What the collector uses: a compile worker's CPU time counts while it works, and not again when it has ended."""

from __future__ import annotations

import subprocess
import sys

from netconsole_collector.kernel.usage import UsageReader

WORK_NS = 300_000_000
WORKER = f"""
import sys, time
while time.process_time_ns() < {WORK_NS}: pass
print(flush=True)
sys.stdin.read()
"""
HALF_NS = WORK_NS // 2


def test_a_workers_time_is_counted_as_it_goes_and_once() -> None:
    reader = UsageReader()
    with subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        assert reader.read([worker.pid])["cpu_ns"] > HALF_NS
        assert reader.read([worker.pid])["cpu_ns"] < HALF_NS
    assert reader.read([worker.pid])["cpu_ns"] < HALF_NS, "it has ended, and nobody has its id"
    assert reader.read()["cpu_ns"] < HALF_NS


def test_a_worker_that_has_ended_unseen_is_counted_at_its_end() -> None:
    reader = UsageReader()
    subprocess.run([sys.executable, "-c", WORKER], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    assert reader.read()["cpu_ns"] > HALF_NS
