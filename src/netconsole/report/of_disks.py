"""What a VM asks of block devices, for its page: rates, how long that takes and where, and the limits of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from netconsole.base import figure
from netconsole.report.blocks import Heading, ReportBlock, TextTable
from netconsole.snapshot.document import number
from netconsole.snapshot.machine_figures import MachineFigures, SnapshotRow

PROBE, ON_THE_WAY, LIMITS = "block_path", "virtio_blk", "io_limits"
_COLUMNS = ("ios", "bytes", "errors", "requeues")
_STAGES = ("B1-B2", "B2-B3", "B3-B4", "B4-B5", "total")


def of_disks(one: MachineFigures) -> Iterator[ReportBlock]:
    """A line for each device and operation of the machine, and one for each limit; nothing where nobody looked."""
    rows = [row for row in one.rows(PROBE, "ios") if row.get("vm") == one.name]
    lines = [_line(one, place, rows) for place in sorted({_place(row) for row in rows})]
    if lines:
        yield Heading("What it asks of block devices")
        head = ["device", "operation", "rate", "bytes", "queue p99", "device p99", "errors", "put back"]
        yield TextTable(head, lines, frozenset(range(2, len(head))))
    ways = [_way(one, row) for row in one.rows(ON_THE_WAY, "ios") if row.get("vm") == one.name]
    if ways:
        yield Heading("From its kick to its interrupt (p99 of the I/Os that were alone in flight)")
        head = ["device", "operation", "thread", "I/Os", "alone", "kick → QEMU", "QEMU → device", "device"]
        head += ["device → interrupt", "total"]
        yield TextTable(head, ways, frozenset(range(3, len(head))))
    limits = [_limit(one, row) for row in one.rows(LIMITS, "limits") if row.get("vm") == one.name]
    if limits:
        yield Heading("Limits of its I/O (io.max)")
        yield TextTable(["device", "what", "used per second", "limit per second"], limits, frozenset({2, 3}))


def _place(row: SnapshotRow) -> tuple[str, str]:
    return str(row.get("device")), str(row.get("operation"))


def _line(one: MachineFigures, place: tuple[str, str], rows: list[SnapshotRow]) -> list[str]:
    """Of all processes and workers that ask for it."""
    mine = [row for row in rows if _place(row) == place]
    ios, size, errors, requeues = (sum(number(row.get(name)) or 0 for row in mine) for name in _COLUMNS)
    per_s = [one.per_s(PROBE, {"sum": count}, "sum") for count in (ios, size)]
    where = {"device": place[0], "operation": place[1]}
    times = [figure.duration(_late(one, PROBE, "times", {**where, "stage": name})) for name in ("queue", "device")]
    rates = [figure.rate(per_s[0], "I/Os"), figure.rate(per_s[1], "bytes")]
    return [figure.safe(place[0]), place[1], *rates, *times, figure.count(int(errors)), figure.count(int(requeues))]


def _way(one: MachineFigures, row: SnapshotRow) -> list[str]:
    """Of one thread of QEMU that asks a device."""
    where = {name: row.get(name) for name in ("device", "operation", "thread", "tid")}
    counts = [figure.count(int(number(row.get(name)) or 0)) for name in ("ios", "timed")]
    times = [figure.duration(_late(one, ON_THE_WAY, "stages", {**where, "stage": stage})) for stage in _STAGES]
    return [*(figure.safe(where[name]) for name in ("device", "operation", "thread")), *counts, *times]


def _late(one: MachineFigures, probe: str, name: str, labels: Mapping[str, object]) -> float | None:
    """The p99 of a stage of the machine, the highest of those with these labels; None where none was timed."""
    found = one.snapshot.probes[probe].histograms.get(name)
    wanted = {"vm": one.name, **labels}
    parts = [part for part in (found.by if found is not None else ()) if wanted.items() <= part.labels.items()]
    return max((part.p99 for part in parts if part.p99 is not None), default=None)


def _limit(one: MachineFigures, row: SnapshotRow) -> list[str]:
    names = [figure.safe(row.get(name)) for name in ("device", "what")]
    return [*names, figure.number(one.per_s(LIMITS, row, "passed")), figure.number(number(row.get("limit_per_s")))]
