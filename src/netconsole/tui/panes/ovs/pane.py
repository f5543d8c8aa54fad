"""The OVS pane: is every datapath well, which ports ask user space and how soon they are answered, who causes it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from netconsole.base import figure
from netconsole.telemetry.tables import RowState
from netconsole.telemetry.words import UNKNOWN
from netconsole.tui.panes.common.baseline_cells import NS_PER_PERCENT
from netconsole.tui.panes.common.columns import (
    SPARK,
    Shown,
    busy,
    flow,
    gauge,
    history,
    label,
    rate,
    state,
    text_cell,
    took,
    total,
)
from netconsole.tui.panes.common.states import RowStatus, status
from netconsole.tui.panes.common.tables import MAX_ROWS, Block, row_class, seen_share
from netconsole.tui.panes.ovs.datapaths import (
    DROPS,
    FLOWS,
    UPCALLS,
    Datapath,
    bridges,
    datapath_status,
    datapaths,
    found_of,
    handlers,
    hit_pct,
    place_of,
    port_status,
    ports,
)
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.scene.silent import STANDS_STILL, why_silent
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow

VSWITCHD = "ovs-vswitchd"


@dataclass(frozen=True)
class ShownPort(Shown):
    """A row with the name of its port's bridge, and the rate of which its own is a share."""

    bridge: str | None = None
    whole: float | None = None


def _lookups(at: Shown) -> Cell:
    hits, misses = at.per_s("hits"), at.per_s("misses")
    rate = None if hits is None or misses is None else hits + misses
    return Cell(figure.number(rate), rate)


def _hit(at: Shown) -> Cell:
    """Never rounded up to 100: one lookup in ten thousand that misses is an upcall."""
    percent = hit_pct(at.row) if at.row is not None else None
    is_nearly_all = percent is not None and 99 < percent < 100
    return Cell(f"{min(percent or 0.0, 99.99):.2f}" if is_nearly_all else figure.number(percent), percent)


def _handlers(at: Shown) -> Cell:
    count = gauge("handlers")(at)
    return count._replace(tone="act" if count.sort == 0 else "")


def _flows(at: Shown) -> Cell:
    flows, limit, used = (at.gauge(name) for name in ("flows", "flow_limit", "limit_used_pct"))
    return Cell(f"{figure.number(flows)}/{figure.number(limit)}", used if used is not None else flows)


def _share(at: ShownPort) -> Cell:
    rate = at.per_s("upcalls")
    percent = 100 * rate / at.whole if rate is not None and at.whole else None
    return Cell(figure.number(None if percent is None else round(percent)), percent)


def _why(at: Shown) -> Cell:
    reason = str(at.labels.get("reason"))
    return text_cell(at.scene.manifests[DROPS].tables["drops"].label("reason").words.get(reason, reason))


BRIDGE = TableColumn("bridge", "bridge", 8, grow=1, most=15, spare=2, value=lambda at: text_cell(at.bridge))
HEALTH_COLUMNS = (
    TableColumn("datapath", "datapath", 12, grow=1, most=24, value=label("datapath")),
    TableColumn("kind", "kind", 10, spare=5, value=label("kind")),
    TableColumn("state", "state", 18, grow=1, most=24, value=state),
    TableColumn("handlers", "handlers", 8, right=True, value=_handlers),
    TableColumn("lost", "lost/s", 6, right=True, value=rate("lost", "act")),
    TableColumn("lost_total", "lost", 7, right=True, spare=3, value=total("lost")),
    TableColumn("lookups", "lookup/s", 8, right=True, spare=6, value=_lookups),
    TableColumn("hit", "hit %", 6, right=True, spare=1, value=_hit),
    TableColumn("flows", "flows/limit", 12, right=True, spare=2, value=_flows),
    TableColumn("masks", "masks/pkt", 9, right=True, spare=8, value=gauge("masks_per_packet")),
    TableColumn("dump", "dump", 7, right=True, spare=7, value=gauge("dump_ms", "ms")),
    TableColumn("puts", "puts/s", 6, right=True, spare=9),
    TableColumn("history", "trend of misses", 15, spare=10, grow=1, most=SPARK, value=history("misses")),
)
PORT_COLUMNS = (
    TableColumn("port", "port", 8, grow=2, most=15, value=label("port")),
    TableColumn("vm", "VM", 8, grow=2, most=24, spare=9, value=label("vm")),
    BRIDGE,
    TableColumn("datapath", "datapath", 10, spare=6, value=label("datapath")),
    TableColumn("kind", "kind", 6, spare=7, value=label("kind")),
    TableColumn("state", "state", 15, grow=1, most=20, value=state),
    TableColumn("upcalls", "upcall/s", 8, right=True, value=rate("upcalls")),
    TableColumn("total", "total", 9, right=True, spare=4, value=total("upcalls")),
    TableColumn("p50", "p50", 8, right=True, value=took(50)),
    TableColumn("p99", "p99", 8, right=True, value=took(99)),
    TableColumn("failed", "lost/s", 6, right=True, value=rate("failed", "act")),
    TableColumn("unanswered", "no answer", 9, right=True, spare=1, value=rate("unanswered", "act")),
    TableColumn("dropped", "drop/s", 6, right=True, spare=8, value=rate("dropped")),
    TableColumn("late", "late/s", 6, right=True, spare=10, value=rate("late", "look")),
    TableColumn("history", "upcall trend", 12, spare=5, grow=2, most=SPARK, value=history("upcalls")),
)
CAUSE_COLUMNS = (
    TableColumn("port", "port", 8, grow=1, most=15, value=label("port")),
    TableColumn("flow", "flow", 32, grow=6, most=90, value=flow),
    TableColumn("upcalls", "upcall/s", 8, right=True, value=rate("upcalls")),
    TableColumn("share", "share %", 7, right=True, spare=1, value=_share),
    TableColumn("total", "total", 7, right=True, spare=2, value=total("upcalls")),
)
DROP_COLUMNS = (
    TableColumn("class", "", 2, value=row_class),
    TableColumn("what", "why", 19, value=_why),
    TableColumn("port", "port", 8, grow=2, most=15, value=label("port")),
    TableColumn("count", "pkts/s", 7, right=True, value=rate("count")),
    TableColumn("total", "total", 8, right=True, value=total("count")),
    replace(BRIDGE, spare=1),
    TableColumn("vm", "VM", 8, grow=1, most=24, spare=4, value=label("vm")),
    TableColumn("reason", "reason", 20, grow=1, most=28, spare=2, value=label("reason", "dim")),
    TableColumn("location", "location", 16, grow=1, most=24, spare=5, value=label("location", "dim")),
    TableColumn("history", "trend", 12, spare=3, grow=1, most=SPARK, value=history("count")),
)
HANDLER_COLUMNS = (
    TableColumn("handler", "handler", 10, grow=1, most=15, value=label("handler")),
    TableColumn("cpu_pct", "CPU %", 6, right=True, value=busy("cpu_ns")),
    TableColumn("answered", "answer/s", 8, right=True, value=rate("answered")),
    TableColumn("wait_p50", "wait p50", 8, right=True, spare=2, value=took(50)),
    TableColumn("wait_p99", "wait p99", 8, right=True, value=took(99)),
    TableColumn("wakeups", "wake/s", 6, right=True, spare=3, value=rate("wakeups")),
    TableColumn("cpu", "CPU", 4, right=True, spare=4, value=gauge("cpu")),
    TableColumn("tid", "thread", 7, right=True, spare=5, value=label("tid")),
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
    return [*shown, *(_vswitchd_row(scene, row) for row in scene.state.rows(FLOWS, "vswitchd"))]


def port_rows(scene: Scene) -> list[TableRow]:
    """Every port that asked, the worst state first, then the one that asks most."""
    found = found_of(scene)
    judged = [(port_status(port, found), port) for port in ports(scene)]
    judged.sort(key=lambda pair: (pair[0].urgency, *_worth(pair[1].row, "upcalls")))
    of_ports = bridges(scene)
    shown = [
        ShownPort(scene, UPCALLS, "upcalls", one.row, one.latency, standing, of_ports.get(place_of(one.row)))
        for standing, one in judged[:MAX_ROWS]
    ]
    return [one.line(PORT_COLUMNS, "upcalls") for one in shown]


def cause_rows(scene: Scene) -> list[TableRow]:
    """The flows that cause upcalls, those of the last interval first."""
    rows = list(scene.state.rows(UPCALLS, "flows"))
    rows.sort(key=lambda row: _worth(row, "upcalls"))
    whole = sum(row.per_s("upcalls") or 0.0 for row in rows)
    shown = [ShownPort(scene, UPCALLS, "flows", row, whole=whole) for row in rows[:MAX_ROWS]]
    return [one.line(CAUSE_COLUMNS, "upcalls") for one in shown]


def handler_rows(scene: Scene) -> list[TableRow]:
    """The handler threads, the busiest first."""
    found = sorted(handlers(scene), key=lambda pair: _worth(pair[0], "cpu_ns"))
    shown = [Shown(scene, UPCALLS, "handlers", row, waits) for row, waits in found[:MAX_ROWS]]
    return [one.line(HANDLER_COLUMNS, "cpu_ns") for one in shown]


def drop_rows(scene: Scene) -> list[TableRow]:
    """Drops by reason and port: those that move first, suspicious ones before a flow's own decision."""
    rows = list(scene.state.rows(DROPS, "drops"))
    rows.sort(key=lambda row: (not row.per_s("count"), row.labels.get("class") == "benign", *_worth(row, "count")))
    of_ports = bridges(scene)
    shown = [ShownPort(scene, DROPS, "drops", row, bridge=of_ports.get(place_of(row))) for row in rows[:MAX_ROWS]]
    return [one.line(DROP_COLUMNS, "count") for one in shown]


def _health_title(scene: Scene) -> str:
    """What is worst, in one sentence."""
    found = found_of(scene)
    states = [(datapath_status(scene, one, found), one.name) for one in datapaths(scene)]
    states += [(_process_status(scene, row), VSWITCHD) for row in scene.state.rows(FLOWS, "vswitchd")]
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
    rows = scene.state.rows(UPCALLS, "handlers")
    known = [rate for row in rows if (rate := row.per_s("cpu_ns")) is not None]
    parts = [f"Handlers of {VSWITCHD}", f"{len(rows)} that ran"] if rows else [f"Handlers of {VSWITCHD}"]
    if known:
        parts.append(f"{figure.percent(round(sum(known) / NS_PER_PERCENT, 1))} of a core")
    return " · ".join(parts)


def _datapath_row(scene: Scene, standing: RowStatus, datapath: Datapath) -> TableRow:
    if datapath.row is not None:
        return Shown(scene, FLOWS, "datapaths", datapath.row, status=standing).line(HEALTH_COLUMNS, "misses")
    first = datapath.ports[0]
    cells = {"datapath": text_cell(datapath.name), "state": standing.cell()}
    lost = sum(port.row.per_s("failed") or 0.0 for port in datapath.ports)
    mark = Shown(scene, UPCALLS, "upcalls", first.row).rate_mark
    cells["lost"] = Cell(figure.number(lost, mark), lost, "act" if lost else "dim")
    unknown = {column.name: Cell(figure.UNKNOWN) for column in HEALTH_COLUMNS if column.name not in cells}
    return TableRow(Subject(UPCALLS, "table", "upcalls", first.row.key), {**unknown, **cells})


def _process_status(scene: Scene, row: RowState) -> RowStatus:
    """The state of ovs-vswitchd."""
    found = scene.verdicts.get((FLOWS, "table", "vswitchd", row.key))
    if found is None and row.gauges.get("silent") is not None:
        return RowStatus("ok", "answers")
    return status(found, [])


def _vswitchd_row(scene: Scene, row: RowState) -> TableRow:
    """ovs-vswitchd has no lookups and no flows of its own: those cells stay empty."""
    answer_ms, ago_s = row.gauges.get("answer_ms"), row.gauges.get("answered_ago_s")
    standing = _process_status(scene, row)
    words = standing.word
    if standing.level == "ok" and answer_ms is not None:
        words = f"answers in {figure.duration(answer_ms, 'ms')}"
    words += f" for {figure.duration(ago_s, 's')}" if row.gauges.get("silent") and ago_s is not None else ""
    cells = {column.name: Cell("") for column in HEALTH_COLUMNS}
    at = Shown(scene, FLOWS, "vswitchd", row)
    cells |= {"datapath": text_cell(VSWITCHD), "kind": text_cell("process"), "state": standing.cell(words)}
    cells |= {"handlers": gauge("handlers")(at), "puts": rate("flow_puts")(at)}
    return TableRow(Subject(FLOWS, "table", "vswitchd", row.key), cells)


def _worth(row: RowState, name: str) -> tuple[float, int, str]:
    """What moves most now, then what has moved most; rows that stand still for the same keep their places."""
    return -(row.per_s(name) or 0.0), -(row.total(name) or 0), str(row.key)
