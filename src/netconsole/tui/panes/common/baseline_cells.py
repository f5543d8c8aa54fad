"""A figure compared with the baseline, in words and figures: ``×4.5 worse``, ``+76.2 us``."""

from __future__ import annotations

from collections.abc import Iterator

from netconsole.base import figure
from netconsole.compare.document import said
from netconsole.compare.reference import FigureChange
from netconsole.probes.polarity import TIME_UNITS
from netconsole.telemetry.tables import HistogramState, RowState
from netconsole.tui.scene.scene import Scene
from netconsole.tui.widgets.columns import Cell, TableColumn
from netconsole.tui.widgets.look import Tone
from netconsole.tui.widgets.painted import Line, Piece

COLUMNS = (
    TableColumn("vs_baseline", "vs baseline", 14, spare=4),
    TableColumn("change", "change", 9, right=True, spare=8),
)
"""Of every table while there is a baseline."""
NS_PER_PERCENT = 1e7
"""Nanoseconds in a second that make one percent of a core."""
TONES: dict[str, Tone] = {"worse": "look", "better": "ok", "more": "", "less": "", "same": "dim"}


def ratio(change: FigureChange) -> str:
    """How many times the baseline, and whether that is worse: ``×4.50 worse``; ``all`` where rows were added up."""
    whole = "all " if change.together else ""
    if change.ratio is None:
        return f"{whole}new, {change.word}" if change.word != "same" else f"{whole}same"
    return f"{whole}×{figure.number(change.ratio)} {change.word}"


def difference(change: FigureChange) -> str:
    """Now less baseline, with its sign and unit."""
    written = said(abs(change.difference), change.unit)
    return f"{'-' if change.difference < 0 else '+'}{written}"


def cells(change: FigureChange | None, of: str = "") -> dict[str, Cell]:
    """The cells of :data:`COLUMNS`; unknown without a baseline. ``of`` says which figure, where it varies."""
    if change is None:
        return {"vs_baseline": Cell(figure.UNKNOWN, tone="dim"), "change": Cell(figure.UNKNOWN, tone="dim")}
    tone = TONES[change.word]
    size = change.ratio if change.ratio is not None else float("inf") if change.now else 1.0
    return {
        "vs_baseline": Cell(f"{of} {ratio(change)}".lstrip(), size, tone),
        "change": Cell(_short(change), change.difference, tone),
    }


def of_value(scene: Scene, probe: str, table: str, row: RowState, name: str) -> dict[str, Cell]:
    """The cells for a value of a table's row; none while there is no baseline."""
    if scene.comparison is None:
        return {}
    state, manifest = scene.state.probes.get(probe), scene.manifests.get(probe)
    spec = manifest.tables.get(table) if manifest is not None else None
    value = next((one for one in spec.value if one.name == name), None) if spec is not None else None
    if state is None or manifest is None or value is None:
        return cells(None)
    return cells(scene.comparison.reference.value(state, manifest, table, row, value))


def of_percentile(scene: Scene, probe: str, name: str, one: HistogramState, percent: float) -> dict[str, Cell]:
    """The cells for a percentile of a histogram; none while there is no baseline."""
    if scene.comparison is None:
        return {}
    state, manifest = scene.state.probes.get(probe), scene.manifests.get(probe)
    if state is None or manifest is None:
        return cells(None)
    return cells(scene.comparison.reference.percentile(state, manifest, name, one, percent))


def lines(figures: list[tuple[str, FigureChange | None]], name: str, why_not: str | None) -> Iterator[Line]:
    """For the page of a row: every figure of the last interval beside that of the baseline."""
    yield [("  Against baseline ", "head"), (figure.safe(name, 64), "head"), (", the last interval", "dim")]
    if why_not is not None:
        yield [(f"  not compared: {figure.safe(why_not)}", "look")]
    for title, change in figures if why_not is None else ():
        head: Piece = (f"  {figure.safe(title, 18):<18}", "dim")
        if change is None:
            yield [head, ("the baseline lacks this figure, or this interval does", "dim")]
            continue
        values = f"{said(change.now, change.unit)}, baseline {said(change.baseline, change.unit)}"
        yield [
            head,
            (figure.fit(values, 44), ""),
            (f" {ratio(change)}, {difference(change)}", TONES[change.word]),
        ]
    yield []


def _short(change: FigureChange) -> str:
    """The difference for a column of nine cells; packets, bytes and the like are named by the column beside it."""
    sign, size = "-" if change.difference < 0 else "+", abs(change.difference)
    if change.unit == "ns/s":
        return sign + figure.percent(size / NS_PER_PERCENT)
    if change.unit in TIME_UNITS:
        return sign + figure.duration(size, change.unit)
    return f"{sign}{figure.number(size)}{'/s' if change.unit.endswith('/s') else ''}"
