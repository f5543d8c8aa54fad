"""What the tables of the disk pane have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from netconsole.base import figure
from netconsole.telemetry.frames import Event, Label
from netconsole.telemetry.tables import HistogramState, RowState, row_key
from netconsole.tui.panes.common.columns import Shown, text_cell
from netconsole.tui.scene.scene import Scene
from netconsole.tui.widgets.columns import Cell
from netconsole.tui.widgets.painted import Line

TIMES = "times"
_MAX_SLOW = 8
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


def times_by(scene: Scene, probe: str, row: RowState, name: str, values: Iterable[str]) -> dict[str, HistogramState]:
    """The histograms of a row's labels, but for the label ``name``: by each of its ``values`` that has one."""
    found = {value: scene.state.histogram(probe, TIMES, row_key({**row.labels, name: value})) for value in values}
    return {value: times for value, times in found.items() if times is not None}


def slowest(
    scene: Scene, probe: str, row: RowState, same: Iterable[str], things: str, what: Callable[[Event], str]
) -> Iterator[Line]:
    """The slowest samples that have the ``same`` labels as a row, with ``what`` is said of each; else why none."""
    state, labels = scene.state.probes[probe], {name: row.labels.get(name) for name in same}
    slow = [one for one in state.events if all(one.fields.get(name) == label for name, label in labels.items())]
    slow.sort(key=lambda event: -number(event.fields.get("total_ns")))
    if not slow:
        hint = "none over the threshold" if state.mode == "details" else f"{probe} in details mode samples them"
        yield [(f"  Slow {things}: {hint}", "dim")]
        return
    yield [(f"  Slowest {things} among the samples", "head")]
    for event in slow[:_MAX_SLOW]:
        total = figure.fit(figure.duration(number(event.fields.get("total_ns"))), 8, right=True)
        yield [(f"  {total} ", "strong"), (what(event), "")]
