"""The OVS pane: is every datapath well, which ports ask user space and how soon they are answered, who causes it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from netconsole.base import figure
from netconsole.telemetry.tables import HistogramState, RowState
from netconsole.telemetry.words import UNKNOWN
from netconsole.tui.panes.common import baseline_cells
from netconsole.tui.panes.common.baseline_cells import NS_PER_PERCENT
from netconsole.tui.panes.common.flow_text import flow_text
from netconsole.tui.panes.common.states import RowStatus, status
from netconsole.tui.panes.common.tables import MAX_ROWS, SPARK, Block, class_cell, seen_share
from netconsole.tui.panes.ovs.datapaths import (
    DROPS,
    FLOWS,
    UPCALLS,
    Bridges,
    Datapath,
    Port,
    bridges,
    datapath_status,
    datapaths,
    found_of,
    handlers,
    hit_pct,
    place_of,
    port_status,
    ports,
    rows_of,
)
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.scene.silent import STANDS_STILL, why_silent
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.look import Tone

VSWITCHD = "ovs-vswitchd"
HEALTH_COLUMNS = (
    TableColumn("datapath", "datapath", 12, grow=1, most=24),
    TableColumn("kind", "kind", 10, spare=5),
    TableColumn("state", "state", 18, grow=1, most=24),
    TableColumn("handlers", "handlers", 8, right=True),
    TableColumn("lost", "lost/s", 6, right=True),
    TableColumn("lost_total", "lost", 7, right=True, spare=3),
    TableColumn("lookups", "lookup/s", 8, right=True, spare=6),
    TableColumn("hit", "hit %", 6, right=True, spare=1),
    TableColumn("flows", "flows/limit", 12, right=True, spare=2),
    TableColumn("masks", "masks/pkt", 9, right=True, spare=8),
    TableColumn("dump", "dump", 7, right=True, spare=7),
    TableColumn("puts", "puts/s", 6, right=True, spare=9),
    TableColumn("history", "trend of misses", 15, spare=10, grow=1, most=SPARK),
)
PORT_COLUMNS = (
    TableColumn("port", "port", 8, grow=2, most=15),
    TableColumn("vm", "VM", 8, grow=2, most=24, spare=9),
    TableColumn("bridge", "bridge", 8, spare=2, grow=1, most=15),
    TableColumn("datapath", "datapath", 10, spare=6),
    TableColumn("kind", "kind", 6, spare=7),
    TableColumn("state", "state", 15, grow=1, most=20),
    TableColumn("upcalls", "upcall/s", 8, right=True),
    TableColumn("total", "total", 9, right=True, spare=4),
    TableColumn("p50", "p50", 8, right=True),
    TableColumn("p99", "p99", 8, right=True),
    TableColumn("failed", "lost/s", 6, right=True),
    TableColumn("unanswered", "no answer", 9, right=True, spare=1),
    TableColumn("dropped", "drop/s", 6, right=True, spare=8),
    TableColumn("late", "late/s", 6, right=True, spare=10),
    TableColumn("history", "upcall trend", 12, spare=5, grow=2, most=SPARK),
)
CAUSE_COLUMNS = (
    TableColumn("port", "port", 8, grow=1, most=15),
    TableColumn("flow", "flow", 32, grow=6, most=90),
    TableColumn("upcalls", "upcall/s", 8, right=True),
    TableColumn("share", "share %", 7, right=True, spare=1),
    TableColumn("total", "total", 7, right=True, spare=2),
)
DROP_COLUMNS = (
    TableColumn("class", "", 2),
    TableColumn("what", "why", 19),
    TableColumn("port", "port", 8, grow=2, most=15),
    TableColumn("count", "pkts/s", 7, right=True),
    TableColumn("total", "total", 8, right=True),
    TableColumn("bridge", "bridge", 8, spare=1, grow=1, most=15),
    TableColumn("vm", "VM", 8, grow=1, most=24, spare=4),
    TableColumn("reason", "reason", 20, grow=1, most=28, spare=2),
    TableColumn("location", "location", 16, grow=1, most=24, spare=5),
    TableColumn("history", "trend", 12, spare=3, grow=1, most=SPARK),
)
HANDLER_COLUMNS = (
    TableColumn("handler", "handler", 10, grow=1, most=15),
    TableColumn("cpu_pct", "CPU %", 6, right=True),
    TableColumn("answered", "answer/s", 8, right=True),
    TableColumn("wait_p50", "wait p50", 8, right=True, spare=2),
    TableColumn("wait_p99", "wait p99", 8, right=True),
    TableColumn("wakeups", "wake/s", 6, right=True, spare=3),
    TableColumn("cpu", "CPU", 4, right=True, spare=4),
    TableColumn("tid", "thread", 7, right=True, spare=5),
)


def health_block(probe: str) -> Block:
    """Datapaths, the worst first, and ovs-vswitchd itself. ``probe``: that of which nothing is shown without rows."""
    return Block(
        "ovs-health", _health_title, HEALTH_COLUMNS, health_rows, lambda scene: why_silent(scene, probe), probe
    )


def ports_block() -> Block:
    """Upcalls by port and kind."""
    return Block("ovs-ports", _ports_title, PORT_COLUMNS, port_rows, lambda scene: why_silent(scene, UPCALLS), UPCALLS)


def causes_block() -> Block:
    """The flows that cause most upcalls."""
    return Block(
        "ovs-causes",
        lambda _: "Top causes of upcalls",
        CAUSE_COLUMNS,
        cause_rows,
        lambda scene: why_silent(scene, UPCALLS),
        UPCALLS,
    )


def drops_block() -> Block:
    """What the datapath drops, by reason and port; suspicious before benign."""
    return Block("ovs-drops", _drops_title, DROP_COLUMNS, drop_rows, lambda scene: why_silent(scene, DROPS), DROPS)


def handlers_block() -> Block:
    """The handler threads of ovs-vswitchd."""
    return Block(
        "ovs-handlers",
        _handlers_title,
        HANDLER_COLUMNS,
        handler_rows,
        lambda scene: why_silent(scene, UPCALLS),
        UPCALLS,
    )


def health_rows(scene: Scene) -> list[TableRow]:
    """Every datapath, the worst first, then ovs-vswitchd."""
    found = found_of(scene)
    ranked = sorted(
        ((datapath_status(scene, one, found), one) for one in datapaths(scene)), key=lambda pair: pair[0].urgency
    )
    shown = [_datapath_row(scene, state, one) for state, one in ranked]
    return [*shown, *(_vswitchd_row(scene, row) for row in rows_of(scene, FLOWS, "vswitchd"))]


def port_rows(scene: Scene) -> list[TableRow]:
    """Every port that asked, the worst state first, then the one that asks most."""
    found = found_of(scene)
    judged = [(port_status(port, found), port) for port in ports(scene)]
    judged.sort(key=lambda pair: (pair[0].urgency, *_worth(pair[1].row, "upcalls")))
    of_ports = bridges(scene)
    return [
        TableRow(Subject(UPCALLS, "table", "upcalls", port.row.key), partial(_port_cells, scene, state, port, of_ports))
        for state, port in judged[:MAX_ROWS]
    ]


def cause_rows(scene: Scene) -> list[TableRow]:
    """The flows that cause upcalls, those of the last interval first."""
    rows = list(rows_of(scene, UPCALLS, "flows"))
    rows.sort(key=lambda row: _worth(row, "upcalls"))
    whole = sum(row.per_s("upcalls") or 0.0 for row in rows)
    return [
        TableRow(Subject(UPCALLS, "table", "flows", row.key), partial(_cause_cells, scene, row, whole))
        for row in rows[:MAX_ROWS]
    ]


def handler_rows(scene: Scene) -> list[TableRow]:
    """The handler threads, the busiest first."""
    found = sorted(handlers(scene), key=lambda pair: _worth(pair[0], "cpu_ns"))
    return [
        TableRow(Subject(UPCALLS, "table", "handlers", row.key), partial(_handler_cells, scene, row, waits))
        for row, waits in found[:MAX_ROWS]
    ]


def drop_rows(scene: Scene) -> list[TableRow]:
    """Drops by reason and port: those that move first, suspicious ones before a flow's own decision."""
    rows = list(rows_of(scene, DROPS, "drops"))
    rows.sort(key=lambda row: (not row.per_s("count"), row.labels.get("class") == "benign", *_worth(row, "count")))
    of_ports = bridges(scene)
    return [
        TableRow(Subject(DROPS, "table", "drops", row.key), partial(_drop_cells, scene, row, of_ports))
        for row in rows[:MAX_ROWS]
    ]


def _health_title(scene: Scene) -> str:
    """What is worst, in one sentence."""
    found = found_of(scene)
    states = [(datapath_status(scene, one, found), one.name) for one in datapaths(scene)]
    states += [(_process_status(scene, row), VSWITCHD) for row in rows_of(scene, FLOWS, "vswitchd")]
    worst, name = min(states, key=lambda one: one[0].urgency, default=(RowStatus(*UNKNOWN), ""))
    if not worst.needs_a_look:
        return "Open vSwitch"
    return f"Open vSwitch · {figure.safe(name, 32)}: {figure.safe(worst.means or worst.word, 80)}"


def _ports_title(scene: Scene) -> str:
    parts = ["Upcalls by port"]
    state = scene.state.probes.get(UPCALLS)
    if state is not None and state.measuring and state.mode == "counters":
        parts.append(STANDS_STILL)
    upcalls = state.counters.get("upcalls") if state else None
    if state is not None and upcalls is not None:
        now_at_least, at_least = state.counters_lack_now, not state.is_exact("upcalls")
        count = upcalls.count
        parts.append(f"{figure.number(count.per_s, now_at_least)}/s, {figure.count(count.total, at_least)} in total")
        for name, words in (("failed", "lost"), ("unanswered", "unanswered")):
            counted = state.counters.get(name)
            if counted is not None and counted.count.total:
                parts.append(f"{figure.count(counted.count.total, not state.is_exact(name))} {words}")
        parts += seen_share(state)
    return " · ".join(parts)


def _drops_title(scene: Scene) -> str:
    state = scene.state.probes.get(DROPS)
    drops = state.counters.get("drops") if state else None
    if state is None or drops is None:
        return "Drops in the datapath"
    rate = figure.number(drops.count.per_s, state.counters_lack_now)
    total = figure.count(drops.count.total, not state.is_exact("drops"))
    return f"Drops in the datapath · {rate}/s, {total} in total"


def _handlers_title(scene: Scene) -> str:
    rows = rows_of(scene, UPCALLS, "handlers")
    known = [rate for row in rows if (rate := row.per_s("cpu_ns")) is not None]
    parts = [f"Handlers of {VSWITCHD}", f"{len(rows)} that ran"] if rows else [f"Handlers of {VSWITCHD}"]
    if known:
        parts.append(f"{figure.percent(round(sum(known) / NS_PER_PERCENT, 1))} of a core")
    return " · ".join(parts)


def _datapath_row(scene: Scene, state: RowStatus, datapath: Datapath) -> TableRow:
    row = datapath.row
    if row is not None:
        return TableRow(Subject(FLOWS, "table", "datapaths", row.key), partial(_datapath_cells, scene, state, row))
    first = datapath.ports[0]
    cells = {"datapath": Cell(figure.safe(datapath.name, 64), str(datapath.name)), "state": state.cell()}
    lost = sum(port.row.per_s("failed") or 0.0 for port in datapath.ports)
    cells["lost"] = Cell(figure.number(lost, _bounds(scene, UPCALLS).now), lost, "act" if lost else "dim")
    unknown = {column.name: Cell(figure.UNKNOWN) for column in HEALTH_COLUMNS if column.name not in cells}
    return TableRow(Subject(UPCALLS, "table", "upcalls", first.row.key), {**unknown, **cells})


def _datapath_cells(scene: Scene, state: RowStatus, row: RowState) -> dict[str, Cell]:
    gauges = row.gauges
    hits, misses, lost = (row.per_s(name) for name in ("hits", "misses", "lost"))
    looked_up = None if hits is None or misses is None else hits + misses
    hit = hit_pct(row)
    handlers, flows, limit = gauges.get("handlers"), gauges.get("flows"), gauges.get("flow_limit")
    used = gauges.get("limit_used_pct")
    return {
        "datapath": Cell(figure.safe(row.labels.get("datapath"), 64), str(row.labels.get("datapath"))),
        "kind": Cell(figure.safe(row.labels.get("kind"), 16), str(row.labels.get("kind"))),
        "state": state.cell(),
        "handlers": Cell(figure.number(handlers), handlers, "act" if handlers == 0 else ""),
        "lost": Cell(figure.number(lost), lost, "act" if lost else "dim"),
        "lost_total": Cell(figure.number(row.total("lost")), row.total("lost")),
        "lookups": Cell(figure.number(looked_up), looked_up),
        "hit": Cell(_hit(hit), hit),
        "flows": Cell(f"{figure.number(flows)}/{figure.number(limit)}", used if used is not None else flows),
        "masks": Cell(figure.number(gauges.get("masks_per_packet")), gauges.get("masks_per_packet")),
        "dump": Cell(figure.duration(gauges.get("dump_ms"), "ms"), gauges.get("dump_ms")),
        "puts": Cell(""),
        "history": Cell("", history=partial(_history, scene, FLOWS, "datapaths", row, "misses")),
        **baseline_cells.of_value(scene, FLOWS, "datapaths", row, "misses"),
    }


def _process_status(scene: Scene, row: RowState) -> RowStatus:
    """The state of ovs-vswitchd."""
    found = scene.verdicts.get((FLOWS, "table", "vswitchd", row.key))
    if found is None and row.gauges.get("silent") is not None:
        return RowStatus("ok", "answers")
    return status(found, [])


def _vswitchd_row(scene: Scene, row: RowState) -> TableRow:
    """ovs-vswitchd has no lookups and no flows of its own: those cells stay empty."""
    gauges = row.gauges
    answer_ms, ago_s = gauges.get("answer_ms"), gauges.get("answered_ago_s")
    state = _process_status(scene, row)
    words = (
        f"answers in {figure.duration(answer_ms, 'ms')}"
        if state.level == "ok" and answer_ms is not None
        else state.word
    )
    words += f" for {figure.duration(ago_s, 's')}" if gauges.get("silent") and ago_s is not None else ""
    cells = {column.name: Cell("") for column in HEALTH_COLUMNS}
    handlers = gauges.get("handlers")
    cells |= {
        "datapath": Cell(VSWITCHD, VSWITCHD),
        "kind": Cell("process", "process"),
        "state": state.cell(words),
        "handlers": Cell(figure.number(handlers), handlers),
        "puts": Cell(figure.number(row.per_s("flow_puts")), row.per_s("flow_puts")),
    }
    return TableRow(Subject(FLOWS, "table", "vswitchd", row.key), cells)


def _port_cells(scene: Scene, state: RowStatus, port: Port, of_ports: Bridges) -> dict[str, Cell]:
    row = port.row
    bounds = _bounds(scene, UPCALLS)

    def rate(name: str, tone: Tone = "") -> Cell:
        value = row.per_s(name)
        return Cell(figure.number(value, bounds.now), value, tone if value else "dim")

    total, bridge = row.total("upcalls"), of_ports.get(place_of(row))
    return {
        "bridge": Cell(figure.safe(bridge, 64), bridge),
        "port": Cell(figure.safe(row.labels.get("port") or figure.UNKNOWN, 64), str(row.labels.get("port"))),
        "vm": Cell(figure.safe(row.labels.get("vm"), 64), str(row.labels.get("vm") or "")),
        "datapath": Cell(figure.safe(row.labels.get("datapath"), 64), str(row.labels.get("datapath"))),
        "kind": Cell(figure.safe(row.labels.get("kind"), 16), str(row.labels.get("kind"))),
        "state": state.cell(),
        "upcalls": rate("upcalls"),
        "total": Cell(figure.number(total, bounds.total), total),
        "p50": percentile_cell(port.latency, 50.0),
        "p99": percentile_cell(port.latency, 99.0),
        "failed": rate("failed", "act"),
        "unanswered": rate("unanswered", "act"),
        "dropped": rate("dropped"),
        "late": rate("late", "look"),
        "history": Cell("", history=partial(_history, scene, UPCALLS, "upcalls", row, "upcalls")),
        **baseline_cells.of_value(scene, UPCALLS, "upcalls", row, "upcalls"),
    }


def _cause_cells(scene: Scene, row: RowState, whole: float) -> dict[str, Cell]:
    bounds = _bounds(scene, UPCALLS)
    rate, total = row.per_s("upcalls"), row.total("upcalls")
    percent = 100 * rate / whole if rate is not None and whole else None
    flow = flow_text(row.labels)
    return {
        "port": Cell(figure.safe(row.labels.get("port"), 64), str(row.labels.get("port"))),
        "flow": Cell(flow, flow),
        "upcalls": Cell(figure.number(rate, bounds.now), rate, "" if rate else "dim"),
        "share": Cell(figure.number(None if percent is None else round(percent)), percent),
        "total": Cell(figure.number(total, bounds.total), total),
        **baseline_cells.of_value(scene, UPCALLS, "flows", row, "upcalls"),
    }


def _drop_cells(scene: Scene, row: RowState, of_ports: Bridges) -> dict[str, Cell]:
    bounds = _bounds(scene, DROPS)
    labels = row.labels
    reason = str(labels.get("reason"))
    rate, total = row.per_s("count"), row.total("count")
    words = scene.manifests[DROPS].tables["drops"].label("reason").words
    what, bridge = words.get(reason, reason), of_ports.get(place_of(row))
    return {
        "bridge": Cell(figure.safe(bridge, 64), bridge),
        "class": class_cell(scene, Subject(DROPS, "table", "drops", row.key), row),
        "what": Cell(figure.safe(what, 64), what),
        "port": Cell(figure.safe(labels.get("port"), 64), str(labels.get("port"))),
        "count": Cell(figure.number(rate, bounds.now), rate, "" if rate else "dim"),
        "total": Cell(figure.number(total, bounds.total), total),
        "vm": Cell(figure.safe(labels.get("vm"), 64), str(labels.get("vm") or "")),
        "reason": Cell(figure.safe(reason, 64), reason, "dim"),
        "location": Cell(figure.safe(labels.get("location"), 64), str(labels.get("location")), "dim"),
        "history": Cell("", history=partial(_history, scene, DROPS, "drops", row, "count")),
        **baseline_cells.of_value(scene, DROPS, "drops", row, "count"),
    }


def _handler_cells(scene: Scene, row: RowState, waits: HistogramState | None) -> dict[str, Cell]:
    cpu_ns, answered, wakeups = (row.per_s(name) for name in ("cpu_ns", "answered", "wakeups"))
    percent = None if cpu_ns is None else cpu_ns / NS_PER_PERCENT
    cpu, tid = row.gauges.get("cpu"), row.labels.get("tid")
    return {
        "handler": Cell(figure.safe(row.labels.get("handler"), 64), str(row.labels.get("handler"))),
        "cpu_pct": Cell(figure.number(percent), percent),
        "answered": Cell(figure.number(answered), answered),
        "wait_p50": percentile_cell(waits, 50.0),
        "wait_p99": percentile_cell(waits, 99.0),
        "wakeups": Cell(figure.number(wakeups), wakeups),
        "cpu": Cell(figure.number(cpu), cpu),
        "tid": Cell(figure.safe(tid, 12), tid if isinstance(tid, int) else None),
        **baseline_cells.of_value(scene, UPCALLS, "handlers", row, "cpu_ns"),
    }


def percentile_cell(one: HistogramState | None, percent: float) -> Cell:
    """A percentile of the last interval; unknown when nothing was timed in it."""
    value = one.percentile(percent, "delta") if one is not None and one.delta.count else None
    return Cell(figure.quantity(value, one.unit if one is not None else "ns"), value)


def _hit(percent: float | None) -> str:
    """Never rounded up to 100: one lookup in ten thousand that misses is an upcall."""
    if percent is None or percent in (0.0, 100.0):
        return figure.number(percent)
    return f"{min(percent, 99.99):.2f}" if percent > 99 else figure.number(percent)


def _worth(row: RowState, name: str) -> tuple[float, int, str]:
    """What moves most now, then what has moved most; rows that stand still for the same keep their places."""
    return -(row.per_s(name) or 0.0), -(row.total(name) or 0), str(row.key)


class _Bounds(NamedTuple):
    """Which figures of a probe's rows are lower bounds: those of the last interval, and the totals."""

    now: bool
    total: bool


def _bounds(scene: Scene, probe: str) -> _Bounds:
    state = scene.state.probes.get(probe)
    return _Bounds(state.lacks_now, bool(state.at_least())) if state is not None else _Bounds(False, False)


def _history(scene: Scene, probe: str, table: str, row: RowState, name: str) -> Sequence[float | None]:
    found = scene.state.probes[probe].tables.get(table)
    return found.history(row.key, name, SPARK) if found is not None else []
