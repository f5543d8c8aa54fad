"""What a VM asks of block devices, for its page: rates, how long that takes and where, and the limits of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from netconsole.base import figure
from netconsole.report.blocks import Heading, Note, ReportBlock, ScaledBar, ScaledPath, TextTable
from netconsole.snapshot.document import Snapshot, number
from netconsole.snapshot.guest_io import EACH, STAGES, GuestIo, guest_ios
from netconsole.snapshot.machine_figures import MachineFigures, SnapshotRow

PROBE, ON_THE_WAY, LIMITS = "block_path", "virtio_blk", "io_limits"
_COLUMNS = ("ios", "bytes", "errors", "requeues")
_STAGES = ("kick", "B2-B3", EACH, "B4-B5", "total")
_NAMES = {"B1-B2": ("kick", "to QEMU"), "B2-B3": ("QEMU", "to the device"), "B4-B5": ("interrupt", "to the guest")}
_NO_DEVICE = (
    "Its device on this host is not known: none was asked for as many bytes (the host's page cache, a network disk, a"
    " format such as qcow2), or several were."
)
_REST = "The rest is the guest's driver and its exits, before the kick and until a CPU of it has taken the interrupt"


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
        yield Heading("From its kick to its interrupt (p99; * of the I/Os that were alone in flight)")
        head = ["device", "operation", "thread", "I/Os", "alone", "kick → QEMU", "QEMU → device*", "device"]
        head += ["device → interrupt*", "total*"]
        yield TextTable(head, ways, frozenset(range(3, len(head))))
    limits = [_limit(one, row) for row in one.rows(LIMITS, "limits") if row.get("vm") == one.name]
    if limits:
        yield Heading("Limits of its I/O (io.max)")
        yield TextTable(["device", "what", "used per second", "limit per second"], limits, frozenset({2, 3}))


def of_guest(one: MachineFigures, guest: Snapshot) -> Iterator[ReportBlock]:
    """The way of the machine's I/Os through both, as the guest has measured them in the same span."""
    yield Heading("From the guest's queue to this host's device: means")
    ways = guest_ios(one, guest)
    for way in ways:
        yield Note(_said(way))
        yield ScaledPath(f"{way.disk}, {way.operation}", "ns", list(_bars(way)))
    if not ways:
        yield Note("The guest asked no virtio disk for anything.")
    elif any(len(way.stages_ns) == 1 for way in ways):
        yield Note(f"{_REST}; and QEMU, which is divided where nearly each I/O is alone in flight.")
    elif any(way.stages_ns for way in ways):
        yield Note(f"{_REST}.")


def _said(way: GuestIo) -> str:
    ios = figure.things(way.ios, f"{way.operation}s")
    if way.device is None:
        return f"{figure.safe(way.disk)}: {ios}. {_NO_DEVICE}"
    said = f"{figure.safe(way.disk)}: {ios}, {figure.count(way.host_ios)} on this host at {figure.safe(way.device)}"
    if way.virtualisation_pct is None:
        return f"{said}: their times cannot be compared."
    return f"{said}: virtualisation is {figure.percent(way.virtualisation_pct)}."


def _bars(way: GuestIo) -> Iterator[ScaledBar]:
    """From top to bottom."""
    yield _bar(way, "queue", "of the guest", way.queue_ns)
    if not way.stages_ns:
        yield _bar(way, "disk", "of the guest", way.whole_ns)
        return
    device = figure.safe(way.device)
    for stage in STAGES:
        ns = way.stages_ns.get(stage)
        if ns is not None and stage in _NAMES:
            yield _bar(way, *_NAMES[stage], ns)
        elif ns is not None and way.device_ns is not None:
            yield _bar(way, "queue, limit", device, ns - way.device_ns)
            yield _bar(way, "device", device, way.device_ns)
        elif ns is not None:
            yield _bar(way, "device", device, ns)
    yield _bar(way, "rest", "of the guest", way.rest_ns, False)


def _bar(way: GuestIo, name: str, where: str, ns: float | None, measured: bool = True) -> ScaledBar:
    whole_ns = way.whole_ns + (way.queue_ns or 0.0)
    pct = 100.0 * ns / whole_ns if ns is not None and whole_ns > 0 else None
    share = "" if pct is None else "< 1 %" if 0 < pct < 1 else figure.percent(pct, digits=2)
    return ScaledBar(name, where, ns, figure.duration(ns), share, measured)


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
