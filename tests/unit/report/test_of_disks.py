"""What the page of a VM says of the block devices that it asks."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from netconsole.report.blocks import Document, TextTable
from netconsole.report.formats.to_text import to_text
from netconsole.report.of_disks import of_disks, of_guest
from netconsole.report.of_vm import page
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
    late = {"kick": 1e6, "B1-B2": 9e5, "B2-B3": 2e6, "B3-B4": 2e6, "all": 3e6, "B4-B5": 4e6, "total": 7e6}
    stages = [{"unit": "ns", "count": 800, "p99": ns, "labels": {**row, "stage": stage}} for stage, ns in late.items()]
    always = {**row, "thread": "IO two", "tid": 9}
    stages.append({"unit": "ns", "count": 70, "p99": 5e6, "labels": {**always, "stage": "all"}})
    stages += [{"unit": "ns", "count": 1, "p99": 9e9, "labels": {**row, "vm": "db", "stage": "total"}}]
    probe = {
        "status": "attached",
        "tables": {"ios": [*rows, {**row, "vm": "db", "ios": 1, "timed": 1}]},
        "histograms": {"stages": {"unit": "ns", "by": stages}},
    }
    assert tables(snapshot(virtio_blk=probe)) == [
        [
            ["sdb", "read", "IO one", "900", "800", "1 ms", "2 ms", "3 ms", "4 ms", "7 ms"],
            ["sdb", "read", "IO two", "70", "0", "–", "–", "5 ms", "–", "–"],
        ]
    ]


def test_where_nobody_looked_nothing_is_said() -> None:
    assert tables(snapshot()) == []
    assert tables(snapshot(block_path={"status": "failed", "why": "no BTF"})) == []


QUEUES = {"device": "vda", "operation": "read", "process": "dd", "pid": 3}
STAGES = {"B1-B2": 1e6, "B2-B3": 2e6, "B3-B4": 3e6, "B4-B5": 4e6}


def seen_by_both(timed: int) -> tuple[Snapshot, Snapshot]:
    """A host and its guest. Each read of the guest's disk takes 12 ms, and 1 ms before that in its queue."""

    def times(labels: dict[str, Any], **means: float) -> list[dict[str, Any]]:
        stages = [(stage.replace("_", "-"), 100, mean) for stage, mean in means.items()]
        return [
            {"unit": "ns", "count": count, "sum": count * mean, "labels": {**labels, "stage": stage}}
            for stage, count, mean in stages
        ]

    def block(row: dict[str, Any], **means: float) -> dict[str, Any]:
        rows = [{**row, "ios": 100, "bytes": 409_600, **NOTHING}]
        return {
            "status": "attached",
            "tables": {"ios": rows},
            "histograms": {"times": {"unit": "ns", "by": times(row, **means)}},
        }

    row = {"vm": "web", "device": "sdb", "operation": "read", "thread": "IO one", "tid": 8}
    stages = [
        {"unit": "ns", "count": timed, "sum": timed * ns, "labels": {**row, "stage": stage}}
        for stage, ns in STAGES.items()
    ]
    stages.append({"unit": "ns", "count": 100, "sum": 100 * STAGES["B3-B4"], "labels": {**row, "stage": "all"}})
    probe = {
        "status": "attached",
        "tables": {"ios": [{**row, "ios": 100, "bytes": 409_600, "timed": timed}]},
        "histograms": {"stages": {"unit": "ns", "by": stages}},
    }
    host = snapshot(virtio_blk=probe, block_path=block(ROW, device=2.5e6))
    return host, snapshot(block_path=block(QUEUES, device=12e6, queue=1e6))


def said(host: Snapshot, guest: Snapshot) -> list[str]:
    return to_text(Document("t", "s", list(of_guest(MachineFigures(host, "web"), guest)))).splitlines()[3:]


def test_the_way_of_a_guests_ios_is_drawn_from_its_queue_to_the_hosts_device_and_back() -> None:
    lines = said(*seen_by_both(timed=100))
    assert lines[1] == "vda: 100 reads, 100 on this host at sdb: virtualisation is 75 %."
    assert [line.split("  ")[0] for line in lines[2:-1]] == [
        *("queue", "kick", "QEMU", "queue, limit", "device", "interrupt", "rest"),
    ], lines
    times = ["1 ms 7.7 %", "1 ms 7.7 %", "2 ms  15 %", "500 us 3.8 %", "2.50 ms  19 %", "4 ms  31 %", "2 ms  15 %"]
    assert all(time in line for time, line in zip(times, lines[2:-1], strict=True)), lines
    assert lines[-1].startswith("The rest is the guest's driver")


def test_a_share_that_is_small_is_not_none() -> None:
    host, guest = seen_by_both(timed=100)
    times = guest.probes["block_path"].histograms["times"]
    short = [msgspec.structs.replace(one, sum=1e6) if one.labels["stage"] == "queue" else one for one in times.by]
    times.by[:] = short
    (line,) = [line for line in said(host, guest) if line.startswith("queue  ")]
    assert "10 us < 1 %" in line


def test_where_several_ios_are_in_flight_qemu_is_in_the_rest() -> None:
    lines = said(*seen_by_both(timed=10))
    assert lines[1] == "vda: 100 reads, 100 on this host at sdb: virtualisation is 75 %."
    assert [line.split("  ")[0].strip() for line in lines[2:-1]] == ["queue", "queue, limit", "device", "rest"]
    assert "and QEMU, which is divided where nearly each I/O is alone in flight" in lines[-1]


def test_a_disk_without_a_device_here_is_said_and_not_divided() -> None:
    _, guest = seen_by_both(timed=100)
    lines = said(snapshot(), guest)
    assert lines[1].startswith("vda: 100 reads. Its device on this host is not known")
    assert [line.split("  ")[0].strip() for line in lines[2:]] == ["queue", "disk"]
    assert said(snapshot(), snapshot())[1:] == ["The guest asked no virtio disk for anything."]


def test_the_way_is_in_the_page_of_the_vm_and_in_its_document() -> None:
    host, guest = seen_by_both(timed=100)
    text = page(host, "web", "text", guest)[0].decode()
    assert "vda: 100 reads, 100 on this host at sdb" in text
    (way,) = json.loads(page(host, "web", "json", guest)[0])["vms"][0]["guest_ios"]
    assert way["stages_ns"] == STAGES and way["whole_ns"] == 12e6 and way["device"] == "sdb"
    assert (way["rest_ns"], way["virtualisation_pct"]) == (2e6, 75.0)
    assert "guest_ios" not in json.loads(page(host, "web", "json")[0])["vms"][0]
