"""AGAINST BASELINE: the findings of the last window of a few seconds, ranked as a comparison ranks them."""

from __future__ import annotations

import time
from typing import NamedTuple

from netconsole.base import figure
from netconsole.compare.document import Finding, said
from netconsole.tui.panes.common.tables import Block
from netconsole.tui.scene.scene import Scene
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.look import Tone

NAME = "against"


class Key(NamedTuple):
    """What the row of a finding stands for: its metric."""

    metric: str


MAX_SHOWN = 50
_WORDS: dict[str, tuple[str, Tone]] = {"worse": ("!", "look"), "better": ("ok", "ok"), "different": ("~", "")}


def block() -> Block:
    """The block of the overview; it is there while there is a baseline."""
    columns = (
        TableColumn("level", "", 2),
        TableColumn("word", "", 9),
        TableColumn("what", "", 30, grow=6),
        TableColumn("figures", "", 28, grow=1, most=40),
        TableColumn("ratio", "", 7, right=True),
        TableColumn("facts", "", 18, grow=2, spare=2),
    )
    return Block(NAME, _title, columns, rows, _note, heads=False)


def rows(scene: Scene) -> list[TableRow]:
    """The findings that lasted two windows, the worst first."""
    window = scene.comparison.window if scene.comparison is not None else None
    return [_row(one) for one in window.findings[:MAX_SHOWN]] if window is not None else []


def _title(scene: Scene) -> str:
    comparison = scene.comparison
    if comparison is None:
        return "AGAINST BASELINE"
    parts = [f"AGAINST BASELINE {figure.safe(comparison.reference.name, 32)}"]
    window = comparison.window
    if window is not None:
        worse = sum(one.direction == "worse" for one in window.findings)
        if window.comparison.verdict == "unknown":
            parts.append("nothing compared")
        else:
            parts.append(f"{worse} worse" if worse else "nothing worse")
            parts.append(f"of {window.comparison.compared} figures")
        age_s = max(0, int(time.monotonic() - window.ended_s))
        parts.append(f"the {window.window_s:.0f} s until {age_s} s ago")
    return " · ".join(parts)


def _note(scene: Scene) -> str:
    comparison = scene.comparison
    if comparison is None:
        return "no baseline; press b to choose one"
    if comparison.error is not None:
        return f"not compared: {figure.safe(comparison.error)}"
    if comparison.window is None:
        return "measuring the first windows"
    if comparison.window.comparison.verdict == "unknown":
        return f"nothing could be compared: {figure.safe(comparison.window.comparison.why_unknown)}"
    left_out = comparison.window.comparison.not_comparable
    why = f"; not compared: {figure.safe(left_out[0].metric, 40)}: {figure.safe(left_out[0].why)}" if left_out else ""
    return f"nothing differs from the baseline beyond chance{why}"


def _row(one: Finding) -> TableRow:
    level, tone = _WORDS[one.direction]
    probe, _, name, *labels = one.metric.split("/", 3)
    what = " ".join([probe.replace("_", " "), name, *labels])
    statistic = "" if one.statistic in ("rate", "value") else f"{one.statistic} "
    ratio = f"×{figure.number(one.ratio)}" if one.ratio is not None else "new" if not one.baseline else "gone"
    facts = f"changed: {', '.join(one.facts)}" if one.facts else ""
    cells = {
        "level": Cell(level, float(one.rank), tone),
        "word": Cell(one.direction, one.direction, tone),
        "what": Cell(figure.safe(what), what),
        "figures": Cell(f"{statistic}{said(one.baseline, one.unit)} → {said(one.current, one.unit)}", one.difference),
        "ratio": Cell(ratio, one.ratio, tone),
        "facts": Cell(figure.safe(facts), facts, "dim"),
    }
    return TableRow(Key(one.metric), cells)
