"""The history of a row at full width: times on the axis, its peak, and where its incidents begin and end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from netconsole.base import figure
from netconsole.base.timestamps import clock
from netconsole.findings.incident import Incident
from netconsole.profile.escalation_rules import SUFFIX
from netconsole.tui.panes import advice, row_page
from netconsole.tui.panes.overview import stands_out
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.widgets.painted import Line
from netconsole.tui.widgets.spark import chart, condense

EDGE = 11
"""Cells at the left, for the figures of the axis."""
_CLOCK_CELLS = 8
_TIMES_EVERY = 20
"""Cells from one time on the axis to the next, at least."""


@dataclass(frozen=True)
class History:
    """The samples of a row, the oldest first; ``until_ns`` is the end of the last one (wall clock)."""

    what: str
    unit: str
    values: Sequence[float | None]
    tick: int
    until_ns: int
    interval_ns: int


def history(scene: Scene, subject: Subject) -> History | None:
    """None of what is no row of a table and no histogram, and where none is kept."""
    state = scene.state.probes.get(subject.probe)
    manifest = scene.manifests.get(subject.probe.removesuffix(SUFFIX))
    if state is None or manifest is None:
        return None
    source = scene.state.sources[state.source]
    until_ns, interval_ns = source.closed_wall_ns or 0, source.usual_interval_ns
    values: Sequence[float | None] = ()
    what, unit, tick = "p99 of each interval", "", 0
    if subject.kind == "table" and (table := state.tables.get(subject.name)) is not None:
        spec = manifest.tables[subject.name]
        values, tick = table.history(subject.key, spec.sort), table.timeline.tick
        what, unit = row_page.sorted_by(spec), row_page.time_unit(spec)
    elif subject.kind == "histogram" and (group := state.histograms.get(subject.name)) is not None:
        row = group.rows.get(subject.key)
        values, tick = group.history(subject.key), group.timeline.tick
        unit = row.unit if row is not None else ""
    known_from = next((place for place, value in enumerate(values) if value is not None), None)
    if known_from is None:
        return None
    return History(what, unit, values[known_from:], tick, until_ns, interval_ns)


def lines(scene: Scene, subject: Subject, width: int, height: int) -> list[Line]:
    """The chart in ``height`` lines: title, peak, bars, incidents, axis."""
    known = history(scene, subject)
    who = advice.named(scene, subject)
    title: Line = [(f" {row_page.table_title(scene, subject)}{f': {who}' if who else ''}  ", "strong")]
    if known is None:
        return [title, [("  no history is kept of it, or it is gone", "look")]]
    columns = max(10, width - EDGE - 1)
    each = max(1, columns // len(known.values))
    shown = [value for value in condense(known.values, columns, known.tick) for _ in range(each)]
    together = -(-len(known.values) // columns)
    cell_ns = together * known.interval_ns // each
    first_ns = known.until_ns - len(shown) * cell_ns
    top = max((value for value in shown if value is not None), default=0.0)
    step = figure.duration(together * known.interval_ns)
    title = [*title, (f"{known.what}; a {'cell' if each == 1 else 'step'} is {step}", "dim")]
    bars = max(3, height - 5)
    made: list[Line] = [title, [(f"  peak {_written(top, known.unit)} at {_peak_clock(known)}", "")]]
    for place, text in enumerate(chart(shown, len(shown), bars, top)):
        at = top * (bars - place) / bars
        edge = _written(at, known.unit) if place in (0, bars // 2) else "0" if place == bars - 1 else ""
        made.append([(f"{figure.fit(edge, EDGE - 1, right=True)} ", "dim"), (text, "trend")])
    return [*made, *_spans(scene, subject, first_ns, cell_ns, len(shown)), _axis(first_ns, cell_ns, len(shown))]


def _written(value: float, unit: str) -> str:
    return figure.quantity(value, unit) if unit else f"{figure.number(value)}/s"


def _peak_clock(known: History) -> str:
    """When its largest sample was taken."""
    values = [(value, place) for place, value in enumerate(known.values) if value is not None]
    if not values:
        return figure.UNKNOWN
    _, place = max(values)
    return clock(known.until_ns - (len(known.values) - place - 1) * known.interval_ns)


def _spans(scene: Scene, subject: Subject, first_ns: int, cell_ns: int, columns: int) -> Iterator[Line]:
    """A line with the incidents that the row proves: where each begins and ends."""
    log = scene.log or scene.findings
    cells = [" "] * columns
    for one in log:
        if subject in stands_out.proofs(one):
            for begin_ns, end_ns in _times(one):
                begin, end = (
                    round((at_ns - first_ns) / cell_ns) for at_ns in (begin_ns, end_ns or first_ns + columns * cell_ns)
                )
                for at in range(max(0, begin), min(columns, end + 1)):
                    cells[at] = "="
                if 0 <= begin < columns:
                    cells[begin] = "["
                if end_ns is not None and 0 <= end < columns:
                    cells[end] = "]"
    if any(cell != " " for cell in cells):
        yield [(f"{'incident':>{EDGE - 1}} ", "dim"), ("".join(cells), "look")]


def _times(one: Incident) -> Iterator[tuple[int, int | None]]:
    for before in one.before:
        yield before.since_ns, before.ended_ns
    yield one.since_ns, one.ended_ns


def _axis(first_ns: int, cell_ns: int, columns: int) -> Line:
    """Times below the bars, each at the cell where it begins."""
    text = ""
    for at in range(0, max(1, columns - _CLOCK_CELLS), max(_TIMES_EVERY, columns // 4)):
        text = f"{text:<{at}}{clock(first_ns + at * cell_ns)}"
    return [(" " * EDGE + text, "dim")]
