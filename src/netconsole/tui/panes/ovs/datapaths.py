"""The datapaths of Open vSwitch and the ports that ask user space, joined from the OVS probes, with their states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from netconsole.findings.match import RowName, RowVerdict
from netconsole.telemetry.frames import Label
from netconsole.telemetry.tables import HistogramState, RowKey, RowState, row_key
from netconsole.tui.panes.common.states import RowStatus, status
from netconsole.tui.scene.scene import Scene

FLOWS, UPCALLS, DROPS = "ovs_flows", "ovs_upcalls", "ovs_drops"

Bridges: TypeAlias = dict[tuple[Label, Label], str]
"""The name of a bridge, by datapath and port."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port that asks user space, for one kind of upcall, and how long its answers take."""

    row: RowState
    latency: HistogramState | None


@dataclass(slots=True)
class Datapath:
    """A datapath as ovs_flows tells of it (None: it does not), and the ports of it that ask."""

    name: Label
    row: RowState | None = None
    ports: list[Port] = field(default_factory=list)


def bridges(scene: Scene) -> Bridges:
    """The bridge of every port that ovs_flows knows one of: the kernel knows no bridges."""
    found: Bridges = {}
    for row in scene.state.rows(FLOWS, "ports"):
        if row.labels.get("bridge"):
            found[place_of(row)] = found[None, row.labels.get("port")] = str(row.labels["bridge"])
    return found


def place_of(row: RowState) -> tuple[Label, Label]:
    """Datapath (None where a row does not tell it) and port: a port may leave one datapath and come to another."""
    return row.labels.get("datapath"), row.labels.get("port")


def ports(scene: Scene) -> list[Port]:
    """Every port that has asked user space, by kind of upcall."""
    return [
        Port(row, scene.state.histogram(UPCALLS, "latency", row.key)) for row in scene.state.rows(UPCALLS, "upcalls")
    ]


def datapaths(scene: Scene) -> list[Datapath]:
    """Every datapath that a probe knows."""
    found: dict[Label, Datapath] = {}
    for row in scene.state.rows(FLOWS, "datapaths"):
        name = row.labels.get("datapath")
        found[name] = Datapath(name, row)
    for port in ports(scene):
        name = port.row.labels.get("datapath")
        found.setdefault(name, Datapath(name)).ports.append(port)
    return list(found.values())


def found_of(scene: Scene) -> dict[RowKey, RowVerdict]:
    """The worst of what findings say of each port: of what it asks, of its errors, of the answers."""
    return scene.worst_by(_port_of)


def _port_of(row: RowName) -> RowKey | None:
    probe, _, name, key = row
    is_of_port = probe == UPCALLS and name in ("upcalls", "failures", "latency")
    return tuple(pair for pair in key if pair[0] != "error") if is_of_port else None


def port_status(port: Port, found: Mapping[RowKey, RowVerdict]) -> RowStatus:
    """The state of a port."""
    return status(found.get(port.row.key), [port.row.per_s(name) for name in ("upcalls", "failed", "unanswered")])


def datapath_status(scene: Scene, datapath: Datapath, found: Mapping[RowKey, RowVerdict]) -> RowStatus:
    """The state of a datapath: its worst port counts as well."""
    row = datapath.row
    known = [verdict for port in datapath.ports if (verdict := found.get(port.row.key)) is not None]
    own = scene.verdicts.get((FLOWS, "table", "datapaths", row.key)) if row is not None else None
    worst = min([*known, own] if own is not None else known, key=lambda one: one.rank, default=None)
    if worst is None and row is None:
        return min((port_status(port, found) for port in datapath.ports), key=lambda one: one.urgency)
    return status(worst, [row.per_s("hits"), row.per_s("misses")] if row is not None else [])


def hit_pct(row: RowState) -> float | None:
    """Share of the interval's packets that found a flow, in percent; None without packets."""
    hits, misses = row.per_s("hits"), row.per_s("misses")
    if hits is None or misses is None or not hits + misses:
        return None
    return 100 * hits / (hits + misses)


def handlers(scene: Scene) -> Iterator[tuple[RowState, HistogramState | None]]:
    """The handler threads of ovs-vswitchd, and how long each waits for a CPU."""
    for row in scene.state.rows(UPCALLS, "handlers"):
        key = row_key({name: row.labels.get(name) for name in ("handler", "tid")})
        yield row, scene.state.histogram(UPCALLS, "scheduled", key)
