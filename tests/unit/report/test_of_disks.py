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


def test_the_way_of_its_ios_is_said_by_stage_and_what_was_not_timed_is_unknown() -> None:
    """Of two threads; the stages of one were never known, for it always had several I/Os in flight."""
    row = {"vm": "web", "device": "sdb", "operation": "read", "thread": "IO one", "tid": 8}
    rows = [{**row, "ios": 900, "timed": 800}, {**row, "thread": "IO two", "tid": 9, "ios": 70, "timed": 0}]
    late = {"B1-B2": 1e6, "B2-B3": 2e6, "B3-B4": 3e6, "B4-B5": 4e6, "total": 7e6}
    stages = [{"unit": "ns", "count": 800, "p99": ns, "labels": {**row, "stage": stage}} for stage, ns in late.items()]
    stages += [{"unit": "ns", "count": 1, "p99": 9e9, "labels": {**row, "vm": "db", "stage": "total"}}]
    probe = {
        "status": "attached",
        "tables": {"ios": [*rows, {**row, "vm": "db", "ios": 1, "timed": 1}]},
        "histograms": {"stages": {"unit": "ns", "by": stages}},
    }
    assert tables(snapshot(virtio_blk=probe)) == [
        [
            ["sdb", "read", "IO one", "900", "800", "1 ms", "2 ms", "3 ms", "4 ms", "7 ms"],
            ["sdb", "read", "IO two", "70", "0", "–", "–", "–", "–", "–"],
        ]
    ]


def test_where_nobody_looked_nothing_is_said() -> None:
    assert tables(snapshot()) == []
    assert tables(snapshot(block_path={"status": "failed", "why": "no BTF"})) == []
