"""What the tables of the disk pane have in common."""

from __future__ import annotations

from collections.abc import Callable

from netconsole.telemetry.frames import Label
from netconsole.telemetry.tables import RowState
from netconsole.tui.panes.common.columns import Shown, text_cell
from netconsole.tui.widgets.columns import Cell

MAX_SLOW = 8
"""Slow ones that the page of a row lists."""


def who(at: Shown) -> Cell:
    """The VM, or else the process."""
    vm = at.labels.get("vm")
    return text_cell(vm if vm else at.labels.get("process"))


def activity(count: str) -> Callable[[RowState], tuple[float, int]]:
    """The busiest first, by this count."""
    return lambda row: (-(row.per_s(count) or 0.0), -(row.total(count) or 0))


def number(value: Label | object) -> int:
    """A field of a sample; 0 where it has none."""
    return value if isinstance(value, int) else 0
