"""The balance: losses that the kernel counts by itself, held against what probes saw, by stage and device."""

from __future__ import annotations

from netconsole.base import figure
from netconsole.findings.match import Level
from netconsole.snapshot.balance_watch import SEEN_BY
from netconsole.snapshot.document import BalanceData
from netconsole.tui.panes.common.tables import Block
from netconsole.tui.scene.scene import Scene
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.look import LEVEL_TONES

NAME = "balance"
CLOSED_PCT = 99.9
COLUMNS = (
    TableColumn("level", "", 2),
    TableColumn("stage", "stage", 14),
    TableColumn("place", "device", 12, grow=2, most=40),
    TableColumn("entered", "in", 8, right=True, spare=3),
    TableColumn("left", "out", 8, right=True, spare=4),
    TableColumn("dropped", "lost", 8, right=True),
    TableColumn("unexplained", "unexplained", 11, right=True),
    TableColumn("coverage", "seen %", 7, right=True),
)


def block() -> Block:
    """The block of the balance."""
    return Block(NAME, lambda scene: _title(_of(scene)), COLUMNS, lambda scene: _table(_of(scene)), _note)


def _of(scene: Scene) -> list[BalanceData]:
    return scene.balance.of(scene.state) if scene.balance is not None else []


def _table(rows: list[BalanceData]) -> list[TableRow]:
    return [TableRow((row.stage, row.device, row.netns), _cells(row)) for row in rows]


def _cells(row: BalanceData) -> dict[str, Cell]:
    level: Level = "ok" if (row.coverage_pct or 0.0) >= CLOSED_PCT else "!"
    device = figure.safe(row.device, 40) if row.device else "all CPUs" if row.stage == "backlog" else ""
    netns = "" if row.netns in (None, "", "host") else f"netns {figure.safe(row.netns, 40)}"
    place = f"{device} ({netns})" if device and netns else device or netns or "host"
    return {
        "level": Cell(level, level, LEVEL_TONES[level]),
        "stage": Cell(row.stage, row.stage),
        "place": Cell(place, place),
        "entered": Cell(figure.number(row.entered), row.entered),
        "left": Cell(figure.number(row.left), row.left),
        "dropped": Cell(figure.count(row.dropped), row.dropped),
        "unexplained": Cell(figure.count(row.unexplained), row.unexplained),
        "coverage": Cell(figure.number(row.coverage_pct), row.coverage_pct),
    }


def _title(rows: list[BalanceData]) -> str:
    lost, open_ = sum(row.dropped for row in rows), sum(row.unexplained for row in rows)
    if not lost:
        return "Balance"
    return f"Balance · probes saw {figure.number(100.0 * (lost - open_) / lost)} % of what the kernel counts as lost"


def _note(scene: Scene) -> str:
    drops = scene.state.probes.get(SEEN_BY)
    if drops is not None and drops.measuring and drops.mode == "counters":
        return "kernel_drops counts alone: there is nothing to compare"
    return "the kernel has counted no loss since the probes began"
