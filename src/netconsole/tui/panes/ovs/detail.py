"""What the page of an OVS row has besides its own figures: errors, causes, CPUs, flows, and the slowest samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from netconsole.base import figure
from netconsole.telemetry.example import flow_text
from netconsole.telemetry.frames import Label
from netconsole.telemetry.tables import RowState
from netconsole.tui.panes.ovs.datapaths import (
    DROPS,
    FLOWS,
    UPCALLS,
    datapath_status,
    datapaths,
    found_of,
    port_status,
    ports,
)
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.widgets.painted import Line

MOST = 8
"""Lines of one list."""
MAX_FLOW = 256
_FIGURE_COLUMNS = 10


def of_datapath(scene: Scene, subject: Subject, _width: int) -> Iterator[Line]:
    """Its state, on which CPUs it asks user space, and which flows are new in it."""
    found = next((one for one in datapaths(scene) if one.row is not None and one.row.key == subject.key), None)
    if found is None:
        return
    yield from [datapath_status(scene, found, found_of(scene)).line(), []]
    cpus = [row for row in scene.state.rows(UPCALLS, "cpus") if row.labels.get("datapath") == found.name]
    yield from _ranked(
        scene, UPCALLS, "Upcalls by CPU", cpus, "upcalls", lambda row: f"CPU {row.labels.get('cpu')}, {_kind(row)}"
    )
    yield from _new_flows(scene, found.name)


def of_vswitchd(scene: Scene, _evidence: Subject, _width: int) -> Iterator[Line]:
    """The flows that it has put last, in any datapath."""
    yield from _new_flows(scene)


def of_port(scene: Scene, subject: Subject, _width: int) -> Iterator[Line]:
    """Its state, why upcalls are lost, which flows cause them, and the slowest answers that were sampled."""
    found = next((one for one in ports(scene) if one.row.key == subject.key), None)
    if found is None:
        return
    labels = found.row.labels
    yield from [port_status(found, found_of(scene)).line(), []]
    place = ("datapath", "port", "netns", "kind")
    lost = [row for row in scene.state.rows(UPCALLS, "failures") if _same(row.labels, labels, place)]
    yield from _ranked(
        scene, UPCALLS, "Lost, by error", lost, "count", lambda row: figure.safe(row.labels.get("error"), 32)
    )
    flows = [row for row in scene.state.rows(UPCALLS, "flows") if _same(row.labels, labels, ("port", "netns"))]
    yield from _ranked(scene, UPCALLS, "Flows that cause them", flows, "upcalls", lambda row: flow_text(row.labels))
    yield from _slow(scene, labels)


def of_drop(scene: Scene, subject: Subject, _width: int) -> Iterator[Line]:
    """The flows whose packets are dropped there."""
    labels = dict(subject.key)
    place = ("location", "port", "netns", "reason")
    flows = [row for row in scene.state.rows(DROPS, "flows") if _same(row.labels, labels, place)]
    yield from _ranked(
        scene, DROPS, "Flows whose packets are dropped", flows, "count", lambda row: flow_text(row.labels)
    )


def _kind(row: RowState) -> str:
    return figure.safe(row.labels.get("kind"), 16)


def _same(one: Mapping[str, Label], other: Mapping[str, Label], names: Sequence[str]) -> bool:
    return all(one.get(name) == other.get(name) for name in names)


def _ranked(
    scene: Scene, probe: str, title: str, rows: Sequence[RowState], value: str, what: Callable[[RowState], str]
) -> Iterator[Line]:
    """The largest rows of the probe with their rate and total; nothing when there is none."""
    if not rows:
        return
    state = scene.state.probes[probe]
    ordered = sorted(rows, key=lambda row: (-(row.per_s(value) or 0.0), -(row.total(value) or 0)))
    left = f", {len(rows) - MOST} more" if len(rows) > MOST else ""
    yield [(f"  {title}{left}", "head")]
    for row in ordered[:MOST]:
        rate = figure.fit(f"{figure.number(row.per_s(value), state.lacks_now)}/s", _FIGURE_COLUMNS, right=True)
        total = figure.fit(figure.count(row.total(value), bool(state.at_least())), _FIGURE_COLUMNS, right=True)
        yield [(f"  {rate}", "strong"), (f" {total} in all  ", "dim"), (what(row), "")]
    yield []


def _new_flows(scene: Scene, datapath: Label = None) -> Iterator[Line]:
    """The flows that were put last, of one datapath or of all, in ovs-vswitchd's own words."""
    probe = scene.state.probes[FLOWS]
    found = [event for event in probe.events if datapath in (None, event.fields.get("datapath"))]
    if not found:
        hint = "none so far" if probe.mode == "details" else f"{FLOWS} in details mode lists them"
        yield [(f"  New flows: {hint}", "dim")]
        yield []
        return
    yield [("  New flows, the last ones first", "head")]
    for event in found[: -MOST - 1 : -1]:
        yield [(f"  {figure.safe(event.fields.get('match'), MAX_FLOW)}", "")]
        yield [("      → ", "dim"), (figure.safe(event.fields.get("actions"), MAX_FLOW), "strong")]
    yield []


def _slow(scene: Scene, labels: Mapping[str, Label]) -> Iterator[Line]:
    probe = scene.state.probes[UPCALLS]
    wanted = [event.fields for event in probe.events if event.fields.get("port") == labels.get("port")]
    wanted.sort(key=lambda fields: -_ns(fields.get("latency_ns")))
    if not wanted:
        hint = "none over the threshold" if probe.mode == "details" else f"{UPCALLS} in details mode samples them"
        yield [(f"  Slow answers: {hint}", "dim")]
        yield []
        return
    yield [("  Slowest answers among the samples", "head")]
    for fields in wanted[:MOST]:
        took = figure.fit(figure.duration(_ns(fields.get("latency_ns"))), _FIGURE_COLUMNS, right=True)
        handler = figure.safe(fields.get("handler"), 32)
        yield [(f"  {took} ", "strong"), (flow_text(fields), ""), (f"  by {handler}", "dim")]
    yield []


def _ns(value: object) -> int:
    return value if isinstance(value, int) else 0
