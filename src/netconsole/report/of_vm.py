"""One virtual machine as a report: what caps it, what excludes the rest, and its threads, queues and links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict

import msgspec

from netconsole.base import figure
from netconsole.findings import guest_ring
from netconsole.report.blocks import Document, Heading, Note, ReportBlock, SummaryLine, SummaryLines, TextTable
from netconsole.report.formats import rendered
from netconsole.report.of_cpus import cpu_map
from netconsole.report.of_disks import of_disks, of_guest
from netconsole.snapshot.caps import Cap, caps, verdict
from netconsole.snapshot.document import Snapshot, number
from netconsole.snapshot.guest_io import guest_ios
from netconsole.snapshot.machine_figures import MachineFigures, SnapshotRow, bits_per_s, machines, role
from netconsole.telemetry.example import flow_text
from netconsole_collector.names.fact_keys import key as fact_key

SCHEMA = "netconsole.vm/1"
MAX_ROWS, MAX_VMS = 40, 200
_WORDS: Mapping[str, str] = {"caps": "!!", "free": "ok", "unknown": "?"}
_WAYS: Mapping[str, str] = {"rx": "to the guest", "tx": "from the guest"}


def of_vm(snapshot: Snapshot, name: str, guest: Snapshot | None = None) -> Document:
    """The page of a machine of the snapshot. ``guest``: what was measured inside it in the same span."""
    one = MachineFigures(snapshot, name)
    found = caps(one)
    first = verdict(found)
    blocks: list[ReportBlock] = [SummaryLines([SummaryLine(_WORDS[first.state], first.text)])]
    blocks += [Heading("What may cap it"), SummaryLines([_line(cap) for cap in found])]
    blocks += _incidents(one)
    blocks += _threads(one)
    blocks += cpu_map(snapshot, name)
    blocks += _queues(one)
    blocks += _links(one)
    blocks += of_disks(one)
    blocks += of_guest(one, guest) if guest is not None else []
    blocks += _facts(one)
    return Document(f"VM {name}", _when(snapshot), blocks)


def page(snapshot: Snapshot, name: str | None, form: str, guest: Snapshot | None = None) -> tuple[bytes, bool]:
    """The page of a machine, or without a name a line for each, in a format; and whether something caps one of them.

    ``guest``: as :func:`of_vm`.
    """
    names = machines(snapshot) if name is None else [name]
    found = {one: caps(MachineFigures(snapshot, one)) for one in names}
    is_capped = any(verdict(one).state == "caps" for one in found.values())
    if form == "json":
        listed: list[dict[str, object]] = [
            {"vm": one, "verdict": verdict(cap), "caps": cap} for one, cap in found.items()
        ]
        if guest is not None and name is not None:
            listed[0]["guest_ios"] = [
                {**asdict(io), "rest_ns": io.rest_ns, "virtualisation_pct": io.virtualisation_pct}
                for io in guest_ios(MachineFigures(snapshot, name), guest)
            ]
        return msgspec.json.encode({"schema": SCHEMA, "created": snapshot.created, "vms": listed}) + b"\n", is_capped
    if name is not None:
        return rendered(of_vm(snapshot, name, guest), form), is_capped
    blocks = list(of_all_vms(snapshot)) or [Note("No QEMU process was seen.")]
    return rendered(Document("Virtual machines", _when(snapshot), blocks), form), is_capped


def of_all_vms(snapshot: Snapshot) -> Iterator[ReportBlock]:
    """One line for each machine: what caps it."""
    names = machines(snapshot)
    if names:
        yield Heading("Virtual machines, and what caps each")
        lines = [(name, verdict(caps(MachineFigures(snapshot, name)))) for name in names]
        lines.sort(key=lambda line: line[1].state != "caps")
        told = [SummaryLine(_WORDS[cap.state], f"{name}: {cap.text.removeprefix(name + ': ')}") for name, cap in lines]
        yield SummaryLines(told[:MAX_VMS])
        if len(told) > MAX_VMS:
            yield Note(f"{figure.things(len(told) - MAX_VMS, 'more VMs')} stand in the JSON document.")


def _when(snapshot: Snapshot) -> str:
    return f"on {snapshot.host.name}, {snapshot.created}, {snapshot.duration_s:.3g} s, profile {snapshot.profile.name}"


def _line(cap: Cap) -> SummaryLine:
    return SummaryLine(_WORDS[cap.state], cap.text)


def _incidents(one: MachineFigures) -> Iterator[ReportBlock]:
    found = one.incidents()
    if found:
        yield Heading("What stands out at it")
        yield SummaryLines(
            [SummaryLine(told.level, told.what, " ".join(told.next), tuple(told.commands)) for told in found]
        )


def _threads(one: MachineFigures) -> Iterator[ReportBlock]:
    rows = one.threads()
    if rows:
        yield Heading("Threads")
        shares = [[_pct(one, row, "ran_ns"), _pct(one, row, "waited_ns")] for row in rows]
        lines = [
            [
                role(row),
                figure.safe(row.get("tid")),
                ran,
                waited,
                _count(row.get("involuntary")),
                _count(row.get("migrations")),
                _count(row.get("cpu")),
                figure.safe(row.get("allowed") or figure.UNKNOWN),
            ]
            for row, (ran, waited) in zip(rows, shares, strict=True)
        ]
        head = ["thread", "tid", "of a core", "waits for a CPU", "times preempted", "moved", "CPU", "may run on"]
        yield TextTable(head, lines[:MAX_ROWS], frozenset({1, 2, 3, 4, 5, 6}), max(0, len(lines) - MAX_ROWS))


def _queues(one: MachineFigures) -> Iterator[ReportBlock]:
    lines = []
    for probe, lost in (("tun_queues", "ring_full"), ("vhost_queues", "starved_runs")):
        for row in one.queues(probe):
            way = _WAYS.get(str(row.get("direction")), "ring of the tap")
            rate = figure.rate(one.per_s(probe, row, "packets"), "packets")
            wrong = f"{_count(row.get(lost))} {'did not fit' if lost == 'ring_full' else 'runs without buffers'}"
            lines.append([figure.safe(row.get("device")), figure.safe(row.get("queue")), way, rate, wrong])
    if lines:
        yield Heading("Queues")
        head = ["device", "queue", "direction", "rate", "what went wrong"]
        yield TextTable(head, sorted(lines)[:MAX_ROWS], frozenset({1, 3}), max(0, len(lines) - MAX_ROWS))
    yield from _rings(one)


def _rings(one: MachineFigures) -> Iterator[ReportBlock]:
    """The indices of each ring between guest and vhost, at the end of the last run."""
    lines = []
    for row in one.queues("vhost_queues"):
        if (ring := guest_ring.indices(row)) is not None:
            place = [
                figure.safe(row.get("device")),
                figure.safe(row.get("queue")),
                _WAYS.get(str(row.get("direction")), ""),
            ]
            counts = [str(count) for count in (ring.offered, ring.taken, ring.used, ring.left)]
            lines.append([*place, *counts, guest_ring.interrupt(row)])
    if lines:
        yield Heading("Rings of the guest at the end of the last run: buffers")
        head = ["device", "queue", "direction", "offered to", "taken to", "back to", "left", "the guest"]
        yield TextTable(head, sorted(lines)[:MAX_ROWS], frozenset({1, 3, 4, 5, 6}), max(0, len(lines) - MAX_ROWS))
    yield from _flows(one)


def _flows(one: MachineFigures) -> Iterator[ReportBlock]:
    """Whose packets fill the rings of its taps, where packets were sampled (tun_queues in mode details)."""
    data = one.snapshot.probes.get("tun_queues")
    sampled = [event for event in (data.events if data is not None else ()) if event.get("device") in one.taps]
    found = Counter((str(event.get("device")), str(event.get("queue")), flow_text(event)) for event in sampled)
    of_queue = Counter((str(event.get("device")), str(event.get("queue"))) for event in sampled)
    lines = [
        [figure.safe(device), figure.safe(queue), figure.percent(100 * count / of_queue[device, queue]), flow]
        for (device, queue, flow), count in found.most_common(MAX_ROWS)
    ]
    if lines:
        yield Heading(f"Flows that fill its taps, in {figure.things(len(sampled), 'samples')}")
        head = ["device", "queue", "of the queue's samples", "flow"]
        yield TextTable(head, lines, frozenset({1, 2}), max(0, len(found) - MAX_ROWS))


def _links(one: MachineFigures) -> Iterator[ReportBlock]:
    lines = [
        [
            str(row["device"]),
            bits_per_s(8 * one.per_s("link_rates", row, "tx_bytes")),
            figure.rate(one.per_s("link_rates", row, "tx_packets"), "packets"),
            bits_per_s(8 * one.per_s("link_rates", row, "rx_bytes")),
            figure.rate(one.per_s("link_rates", row, "rx_packets"), "packets"),
            figure.count(int((number(row.get("tx_drops")) or 0) + (number(row.get("rx_drops")) or 0))),
        ]
        for row in one.links()
    ]
    if lines:
        yield Heading("Links")
        yield TextTable(["device", "to it", "", "from it", "", "lost"], lines, frozenset({1, 2, 3, 4, 5}))
    elif one.ports:
        yield Note(f"Ports of Open vSwitch: {', '.join(one.ports)}.")


def _facts(one: MachineFigures) -> Iterator[ReportBlock]:
    wanted = [fact_key("vm", one.name, ""), *(fact_key("ovs", "interface", port, "") for port in one.ports)]
    wanted += [fact_key(area, tap, "") for tap in one.taps for area in ("nic", "tc")]
    rows = [
        [name, str(fact.value)]
        for name, fact in one.snapshot.facts.items()
        if name.startswith(tuple(wanted)) and fact.value is not None
    ]
    if rows:
        yield Heading("Configuration")
        yield TextTable(["fact", "value"], rows[:MAX_ROWS], omitted=max(0, len(rows) - MAX_ROWS))


def _pct(one: MachineFigures, row: SnapshotRow, column: str) -> str:
    return figure.percent(one.per_s("thread_waits", row, column) / 1e7)


def _count(value: object) -> str:
    found = number(value)
    return figure.UNKNOWN if found is None else figure.count(int(found))
