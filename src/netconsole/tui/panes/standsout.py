"""STANDS OUT: what is worth looking at, ranked, with where, how much and since when. The answer comes first."""

from __future__ import annotations

from netconsole.tui.panes.scene import Scene
from netconsole.tui.panes.tables import Block
from netconsole.tui.widgets.columns import Column, Row


def block() -> Block:
    """The block of the findings."""
    columns = (
        Column("level", "", 2),
        Column("topic", "", 8, spare=2),
        Column("say", "", 30, grow=4),
        Column("since", "", 16, spare=1),
        Column("history", "", 18, spare=3, grow=1, most=24),
    )
    return Block("standsout", lambda _: "STANDS OUT", columns, rows, note, heads=False)


def rows(scene: Scene) -> list[Row]:
    """The findings, the worst first."""
    return []


def note(scene: Scene) -> str:
    """What was looked at when nothing stands out."""
    return "nothing stands out"


def levels(scene: Scene) -> dict[str, str]:
    """The worst level by pane."""
    return {}
