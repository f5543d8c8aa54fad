"""What the page of a VM says of the block devices that it asks."""

from __future__ import annotations

from typing import Any

import msgspec

from netconsole.report.blocks import TextTable
from netconsole.report.of_disks import of_disks
from netconsole.snapshot.document import SCHEMA, Snapshot
from netconsole.snapshot.machine_figures import MachineFigures

ROW: dict[str, Any] = {"device": "sdb", "operation": "read", "process": "qemu", "pid": 7, "vm": "web"}
NOTHING = {"errors": 0, "requeues": 0}


def snapshot(**probes: Any) -> Snapshot:
    document = {
        "schema": SCHEMA,
        "created": "2026-11-28T01:02:03Z",
        "netconsole": "0.1.0",
        "host": {"name": "hv1", "kernel": "6.1"},
        "profile": {"name": "disk"},
        "duration_s": 10.0,
        "probes": probes,
    }
    return msgspec.convert(document, Snapshot)


def tables(taken: Snapshot, vm: str = "web") -> list[list[list[str]]]:
    return [block.rows for block in of_disks(MachineFigures(taken, vm)) if isinstance(block, TextTable)]


def test_what_a_vm_asks_is_added_up_and_its_slowest_is_said() -> None:
    rows = [
        {**ROW, "ios": 900, "bytes": 9_000_000, **NOTHING},
        {**ROW, "process": "kworker", "pid": 0, "ios": 100, "bytes": 1_000_000, "errors": 3, "requeues": 1},
        {**ROW, "vm": "db", "ios": 5, "bytes": 5, **NOTHING},
    ]
    times = [
        {"unit": "ns", "count": 9, "p99": 2_000_000.0, "labels": {**ROW, "stage": "device"}},
        {"unit": "ns", "count": 9, "p99": 3_000_000.0, "labels": {**ROW, "pid": 0, "stage": "device"}},
        {"unit": "ns", "count": 9, "p99": 9_000_000.0, "labels": {**ROW, "vm": "db", "stage": "device"}},
    ]
    block = {"status": "attached", "tables": {"ios": rows}, "histograms": {"times": {"unit": "ns", "by": times}}}
    limit = {"vm": "web", "device": "sdb", "what": "reads", "passed": 190, "limit_per_s": 20}
    limits = {"status": "attached", "tables": {"limits": [limit, {**limit, "vm": "db"}]}}
    assert tables(snapshot(block_path=block, io_limits=limits)) == [
        [["sdb", "read", "100 I/Os/s", "1.00M bytes/s", "–", "3 ms", "3", "1"]],
        [["sdb", "reads", "19", "20"]],
    ]


def test_where_nobody_looked_nothing_is_said() -> None:
    assert tables(snapshot()) == []
    assert tables(snapshot(block_path={"status": "failed", "why": "no BTF"})) == []
