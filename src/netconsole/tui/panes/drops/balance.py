"""The balance: losses that the kernel counts by itself, held against what probes saw, by stage and device."""

from __future__ import annotations

from netconsole.base import figure
from netconsole.snapshot.balance import SEEN_BY, balance_sums, is_filtered, level_of
from netconsole.snapshot.document import BalanceData
from netconsole.tui.panes.common.tables import Block
from netconsole.tui.scene.scene import Scene
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.look import LEVEL_TONES

NAME = "balance"
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
    return Block(
        NAME, lambda scene: _title(_of(scene), _is_away(scene)), COLUMNS, lambda scene: _table(_of(scene)), _note
    )


def _of(scene: Scene) -> list[BalanceData]:
    return scene.balance.of(scene.state) if scene.balance is not None else []


def _table(rows: list[BalanceData]) -> list[TableRow]:
    return [TableRow((row.stage, row.device, row.netns), _cells(row)) for row in rows]


def _cells(row: BalanceData) -> dict[str, Cell]:
    level = level_of(row)
    unexplained = "filtered" if is_filtered(row) else "unknown" if row.hidden_by else figure.count(row.unexplained)
    device = figure.safe(row.device, 40) if row.device else "all CPUs" if row.stage == "backlog" else ""
    netns = "" if row.netns in (None, "", "host") else f"netns {figure.safe(row.netns, 40)}"
    place = f"{device} ({netns})" if device and netns else device or netns or "host"
    return {
        "level": Cell(level, level, LEVEL_TONES[level]),
        "stage": Cell(row.stage, row.stage),
        "place": Cell(place, place, ends=(device, f" ({figure.safe(row.netns, 40)})") if device and netns else None),
        "entered": Cell(figure.number(row.entered), row.entered),
        "left": Cell(figure.number(row.left), row.left),
        "dropped": Cell(figure.count(row.dropped), row.dropped),
        "unexplained": Cell(unexplained, row.unexplained),
        "coverage": Cell(figure.number(row.coverage_pct), row.coverage_pct),
    }


def _is_away(scene: Scene) -> bool:
    drops = scene.state.probes.get(SEEN_BY)
    return drops is None or not drops.measuring


def _title(rows: list[BalanceData], is_away: bool) -> str:
    sums = balance_sums(rows)
    said = "Balance"
    if sums.lost:
        said += f" · probes saw {figure.percent(sums.seen_pct)} of what the kernel counts as lost"
    if is_away and rows:
        said += f" · {SEEN_BY} is not attached now"
    if sums.hidden:
        said += f" · the filter by {', '.join(sums.filters)} hides {figure.count(sums.hidden)}"
    if sums.unknown:
        said += f" · {figure.count(sums.unknown)} more are unknown: {SEEN_BY} has as many in no row"
    return said


def _note(scene: Scene) -> str:
    drops = scene.state.probes.get(SEEN_BY)
    if drops is not None and drops.measuring and drops.mode == "counters":
        return "kernel_drops counts alone: there is nothing to compare"
    return "the kernel has counted no loss since the probes began"
