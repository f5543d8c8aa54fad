"""Measures CPU time and memory to write, load and compare a snapshot of a large host: 200 VMs of 8 queues, 50 000 rows.

Each step runs in its own process, so that its peak memory is known. Limits: 2 s of CPU and 300 MB each.
usage: large_snapshot.py [--check]   with --check, it ends with 1 when a limit is exceeded
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from netconsole.base.files import write_whole
from netconsole.cli.main import run
from netconsole.report import of_snapshot, to_html
from netconsole.snapshot import document as snapshot_file
from netconsole.snapshot.document import Snapshot
from netconsole.telemetry.histogram import bounds, index

VMS, QUEUES, ROWS = 200, 8, 50_000
LIMIT_S, LIMIT_MB = 2.0, 300.0
STEPS = ("write", "load", "compare", "report")


def wait(chance: random.Random, device: str, queue: int) -> dict[str, Any]:
    """A histogram of one queue with some 40 buckets."""
    counts: dict[int, int] = {}
    for _ in range(200):
        bucket = index(int(20000 * chance.lognormvariate(0, 0.6)))
        counts[bucket] = counts.get(bucket, 0) + chance.randrange(1, 50)
    buckets = [[float(low), float(high), counts[i]] for i in sorted(counts) for low, high in [bounds(i)]]
    count = sum(counts.values())
    labels = {"device": device, "queue": queue}
    return {"unit": "ns", "count": count, "sum": 2.0e4 * count, "buckets": buckets, "labels": labels}


def made(seed: int) -> Snapshot:
    """The snapshot of such a host."""
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = [
        {
            "reason": f"REASON_{number % 40}", "class": "suspicious", "location": f"function_{number % 90}",
            "device": f"vnet{number % VMS}", "protocol": "TCP", "address": f"10.0.{number // 250}.{number % 250}",
            "port": 1000 + number % 97, "count": chance.randrange(1, 1000),
        }
        for number in range(ROWS)
    ]  # fmt: skip
    waits = [wait(chance, f"vnet{vm}", queue) for vm in range(VMS) for queue in range(QUEUES)]
    facts: dict[str, Any] = {}
    for vm in range(VMS):
        facts[f"vm/web-{vm}/net/0/tap"] = {"value": f"vnet{vm}", "source": "/proc", "volatile": True}
        for number in range(40):
            facts[f"nic/vnet{vm}/offload/feature-{number}"] = {"value": "on", "source": "ethtool -k"}
        for queue in range(QUEUES):
            facts[f"vm/web-{vm}/vcpu/{queue}/cpus"] = {"value": "0-95", "source": "/proc"}
    labels = ["reason", "class", "location", "device", "protocol", "address", "port"]
    columns = {"drops": {"labels": labels, "values": {"count": {"unit": "packets"}}}}
    document = {
        "schema": snapshot_file.SCHEMA, "created": "2026-11-20T21:00:00Z", "netconsole": "0.1.0",
        "host": {"name": "hv-017", "kernel": "6.1.0"}, "profile": {"name": "summary"}, "duration_s": 10.0,
        "probes": {
            "kernel_drops": {"status": "attached", "tables": {"drops": rows}, "columns": columns,
                             "counters": {"drops": {"total": sum(row["count"] for row in rows), "unit": "packets"}}},
            "tx_queue_latency": {"status": "attached", "histograms": {"wait": {"unit": "ns", "by": waits}}},
        },
        "facts": facts,
    }  # fmt: skip
    return msgspec.convert(document, Snapshot)


def step(name: str, folder: Path) -> None:
    """Do one step and print seconds and peak memory."""
    files = [folder / "0.json", folder / "1.json"]
    if name == "make":
        for seed, file in enumerate(files):
            write_whole(file, snapshot_file.encode(made(seed)))
        return
    first = snapshot_file.load(files[0]) if name in ("write", "report") else None
    started = time.process_time()
    if name == "write" and first is not None:
        write_whole(folder / "written.json", snapshot_file.encode(first))
    elif name == "load":
        snapshot_file.load(files[0])
    elif name == "compare":
        run(["compare", *map(str, files), "-o", str(folder / "compared.md")])
    elif first is not None:
        to_html(of_snapshot(first))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{time.process_time() - started:.3f} {peak_mb:.1f}")


def main() -> int:
    """Print one line per step; 1 when a limit is broken and that matters."""
    if len(sys.argv) == 3:
        step(sys.argv[1], Path(sys.argv[2]))
        return 0
    broken = False
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, __file__, "make", folder], check=True)
        size_mb = (Path(folder) / "0.json").stat().st_size / 1e6
        print(f"large snapshot: {VMS} VMs of {QUEUES} queues, {ROWS} rows, {size_mb:.1f} MB of JSON")
        for name in STEPS:
            answer = subprocess.run(
                [sys.executable, __file__, name, folder], check=True, stdout=subprocess.PIPE, text=True
            )
            seconds, peak_mb = map(float, answer.stdout.split())
            over = seconds > LIMIT_S or peak_mb > LIMIT_MB
            broken = broken or over
            said = "over the limit" if over else "ok"
            print(f"  {name:8} {seconds:5.2f} s of {LIMIT_S:g} s, peak {peak_mb:5.1f} MB of {LIMIT_MB:g} MB: {said}")
    return 1 if broken and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
