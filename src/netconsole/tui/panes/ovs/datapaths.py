"""The datapaths of Open vSwitch and the ports that ask user space, joined from the OVS probes, with their states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from netconsole.telemetry.frames import Label
from netconsole.telemetry.tables import HistogramState, RowKey, RowState, row_key
from netconsole.telemetry.words import GOOD, IDLE, UNKNOWN, URGENCY, trouble
from netconsole.tui.scene.scene import Scene

FLOWS, UPCALLS, DROPS = "ovs_flows", "ovs_upcalls", "ovs_drops"
SLOW_ANSWER_NS = 10_000_000
"""An upcall that takes longer holds up the first packet of a flow noticeably; usual are 0.1 to 1 ms."""
FULL_PCT = 90.0
SLOW_DUMP_MS = 1000.0
"""From 1300 ms on ovs-vswitchd lowers its flow limit (OVS ofproto/ofproto-dpif-upcall.c, udpif_revalidator)."""
NO_HANDLER, HANDLER_GONE, QUEUE_FULL = "ENOTCONN", "ECONNREFUSED", "EAGAIN"
LOST = {NO_HANDLER: "no handler", HANDLER_GONE: "handler gone", QUEUE_FULL: "queue full"}
"""Why an upcall did not reach user space, by its error, in words; other errors are said by name."""

Bridges: TypeAlias = dict[tuple[Label, Label], str]
"""The name of a bridge, by datapath and port."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port that asks user space, for one kind of upcall; ``errors`` are upcalls lost per second, by error."""

    row: RowState
    latency: HistogramState | None
    errors: dict[str, float]


@dataclass(slots=True)
class Datapath:
    """A datapath as ovs_flows tells of it (None: it does not), and the ports of it that ask."""

    name: Label
    row: RowState | None = None
    ports: list[Port] = field(default_factory=list)


def rows_of(scene: Scene, probe: str, table: str) -> Sequence[RowState]:
    """The rows of a probe's table; empty without it."""
    state = scene.state.probes.get(probe)
    found = state.tables.get(table) if state else None
    return list(found.rows.values()) if found else []


def bridges(scene: Scene) -> Bridges:
    """The bridge of every port that ovs_flows knows one of: the kernel knows no bridges."""
    found: Bridges = {}
    for row in rows_of(scene, FLOWS, "ports"):
        if row.labels.get("bridge"):
            found[place_of(row)] = found[None, row.labels.get("port")] = str(row.labels["bridge"])
    return found


def place_of(row: RowState) -> tuple[Label, Label]:
    """Datapath (None where a row does not tell it) and port: a port may leave one datapath and come to another."""
    return row.labels.get("datapath"), row.labels.get("port")


def histogram_of(scene: Scene, probe: str, name: str, key: RowKey) -> HistogramState | None:
    """A probe's histogram with exactly these labels."""
    state = scene.state.probes.get(probe)
    group = state.histograms.get(name) if state else None
    return group.rows.get(key) if group else None


def ports(scene: Scene) -> list[Port]:
    """Every port that has asked user space, by kind of upcall."""
    errors: dict[RowKey, dict[str, float]] = {}
    for row in rows_of(scene, UPCALLS, "failures"):
        lost = row.per_s("count")
        if lost:
            place = row_key({name: value for name, value in row.labels.items() if name != "error"})
            errors.setdefault(place, {})[str(row.labels.get("error"))] = lost
    return [
        Port(row, histogram_of(scene, UPCALLS, "latency", row.key), errors.get(row.key, {}))
        for row in rows_of(scene, UPCALLS, "upcalls")
    ]


def datapaths(scene: Scene) -> list[Datapath]:
    """Every datapath that a probe knows."""
    found: dict[Label, Datapath] = {}
    for row in rows_of(scene, FLOWS, "datapaths"):
        name = row.labels.get("datapath")
        found[name] = Datapath(name, row)
    for port in ports(scene):
        name = port.row.labels.get("datapath")
        found.setdefault(name, Datapath(name)).ports.append(port)
    return list(found.values())


def port_verdict(port: Port) -> tuple[str, str]:
    """The state of a port as a level and in words."""
    row = port.row
    if port.errors:
        error = max(port.errors, key=lambda name: port.errors[name])
        return trouble(LOST.get(error, f"lost: {error}"))
    rates = [row.per_s(name) for name in ("upcalls", "failed", "unanswered")]
    if any(rate is None for rate in rates):
        return UNKNOWN
    asked, failed, unanswered = rates
    if failed:
        return trouble("loses upcalls")
    if unanswered:
        return trouble("no answer")
    if port.latency is not None and (port.latency.percentile(99.0, "delta") or 0.0) > SLOW_ANSWER_NS:
        return trouble("slow answers")
    return GOOD if asked else IDLE


def verdict(datapath: Datapath) -> tuple[str, str]:
    """The state of a datapath as a level and in words, of which TROUBLES says more; its worst port counts as well."""
    row = datapath.row
    gauges = row.gauges if row is not None else {}
    if gauges.get("no_handler"):
        return trouble("no handler")
    judged = [port_verdict(port) for port in datapath.ports]
    judged.sort(key=lambda one: URGENCY[one[0]])
    if judged and judged[0][0] in ("!!", "!"):
        return judged[0]
    if row is None:
        return judged[0] if judged else UNKNOWN
    if row.per_s("lost"):
        return trouble("loses upcalls")
    if (gauges.get("limit_used_pct") or 0.0) > FULL_PCT:
        return trouble("table full")
    if (gauges.get("dump_ms") or 0.0) > SLOW_DUMP_MS:
        return trouble("slow dumps")
    looked_up = [row.per_s("hits"), row.per_s("misses")]
    if any(rate is None for rate in looked_up):
        return UNKNOWN
    return GOOD if any(looked_up) else IDLE


def hit_pct(row: RowState) -> float | None:
    """Share of the interval's packets that found a flow, in percent; None without packets."""
    hits, misses = row.per_s("hits"), row.per_s("misses")
    if hits is None or misses is None or not hits + misses:
        return None
    return 100 * hits / (hits + misses)


def handlers(scene: Scene) -> Iterator[tuple[RowState, HistogramState | None]]:
    """The handler threads of ovs-vswitchd, and how long each waits for a CPU."""
    for row in rows_of(scene, UPCALLS, "handlers"):
        key = row_key({name: row.labels.get(name) for name in ("handler", "tid")})
        yield row, histogram_of(scene, UPCALLS, "scheduled", key)
