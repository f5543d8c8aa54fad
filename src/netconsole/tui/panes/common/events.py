"""Sampled details of all probes, newest first."""

from __future__ import annotations

import time
from collections.abc import Mapping

from netconsole.base import figure
from netconsole.telemetry.frames import Event, Scalar
from netconsole.tui.panes.common.tables import Block
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole_collector.names.implied_labels import BROUGHT

MAX_ROWS = 500


def events_block() -> Block:
    """The block of all events."""
    columns = (
        TableColumn("time", "time", 12),
        TableColumn("probe", "probe", 14, spare=1),
        TableColumn("what", "what", 20, grow=1),
    )
    return Block("events", _title, columns, rows, _note)


def rows(scene: Scene) -> list[TableRow]:
    """The newest events of every probe. A key stays the key of its event while others come in."""
    arrived = []
    for probe in scene.state.probes.values():
        first = probe.events_arrived - len(probe.events)
        arrived += [
            (event, probe.name, first + place)
            for place, event in enumerate(probe.events)
            if scene.has(probe.name, event.fields)
        ]
    arrived.sort(key=lambda one: (one[0].happened_ns, one[2]), reverse=True)
    return [_row(event, probe, number) for event, probe, number in arrived[:MAX_ROWS]]


def find(scene: Scene, subject: Subject) -> Event | None:
    """The event of a row; None when newer ones have pushed it out."""
    probe = scene.state.probes.get(subject.probe)
    if probe is None:
        return None
    place = int(subject.name) - (probe.events_arrived - len(probe.events))
    return probe.events[place] if 0 <= place < len(probe.events) else None


def share_seen(scene: Scene) -> str:
    """What share of what happened these samples are, since the probes were attached; empty without any."""
    seen = sum(p.cost.events["seen"].total for p in scene.state.probes.values() if "seen" in p.cost.events)
    shown = sum(len(probe.events) for probe in scene.state.probes.values())
    if not seen or not shown:
        return ""
    percent = figure.percent(100 * shown / seen)
    return f"showing {figure.count(shown)} of {figure.count(seen)} events ({percent}); the rest is only counted"


def clock(wall_ns: int) -> str:
    """Local time of day to the millisecond."""
    return time.strftime("%H:%M:%S", time.localtime(wall_ns / 1e9)) + f".{wall_ns // 1_000_000 % 1000:03}"


def _title(scene: Scene) -> str:
    return " · ".join(part for part in ("Events", share_seen(scene)) if part)


def _note(scene: Scene) -> str:
    probes = [
        name for name, manifest in scene.manifests.items() if "details" in manifest.modes and name in scene.state.probes
    ]
    if not probes:
        return "no probe of this profile samples events"
    modes = {scene.state.probes[name].mode for name in probes}
    if "details" not in modes:
        said = " and ".join(sorted(modes))
        return f"mode {said} only counts; for samples press i on a row, or e and set {probes[0]} to details"
    return "no events yet"


def _row(event: Event, probe: str, number: int) -> TableRow:
    what = describe(event.fields)
    cells = {"time": clock_cell(event), "probe": Cell(figure.safe(probe, 48), probe), "what": Cell(what, what)}
    return TableRow(Subject(probe, "event", str(number), ()), cells)


def clock_cell(event: Event) -> Cell:
    """When it happened."""
    return Cell(clock(event.happened_ns), float(event.happened_ns))


def describe(fields: Mapping[str, Scalar | list[str]]) -> str:
    """The fields of an event in one line: what, where and who first, by value alone; then the others with their names.

    What is the same for nearly every event, and stacks, are left to the details.
    """
    told = [figure.safe(fields[name], 64) for name in _FIRST if fields.get(name) not in (None, "")]
    if fields.get("source") not in (None, ""):
        told.append(f"{_end(fields, 'source')} → {_end(fields, 'target')}")
    known = {*_FIRST, *_ENDS, *_LEFT_OUT}
    told += [
        f"{figure.safe(name, 32)} {figure.safe(value, 64)}"
        for name, value in fields.items()
        if name not in known and not isinstance(value, list) and value not in (None, "", 0)
    ]
    return "  ".join(told)


_FIRST = ("what", "reason", "location", "device", "process", "protocol")
_ENDS = ("source", "source_port", "target", "target_port")
_LEFT_OUT = ("mono_ns", *BROUGHT["drop_reason"], "ethertype", "netns", "cpu", "packet")


def _end(fields: Mapping[str, Scalar | list[str]], name: str) -> str:
    address, port = figure.safe(fields.get(name), 64), fields.get(f"{name}_port")
    if not port:
        return address
    return f"[{address}]:{figure.safe(port)}" if ":" in address else f"{address}:{figure.safe(port)}"
