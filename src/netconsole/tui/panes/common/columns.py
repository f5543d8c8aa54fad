"""What stands in a column: each is declared once, with one of these values or a function of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from netconsole.base import figure
from netconsole.telemetry.example import flow_text
from netconsole.telemetry.frames import Label
from netconsole.telemetry.state import ProbeState
from netconsole.telemetry.tables import HistogramState, RowKey, RowState
from netconsole.tui.panes.common import baseline_cells
from netconsole.tui.panes.common.baseline_cells import NS_PER_PERCENT
from netconsole.tui.panes.common.states import RowStatus
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.look import Tone

SPARK = 24
"""Samples (one an interval) that a sparkline in a table shows at most; it takes the room that is left."""
TOTAL_COLUMNS = 9
"""Totals below ten million with all their digits."""

_NUMBERED = ("device", "netns", "vm")
"""Labels whose names often differ at their end alone: it stays where there is no room ..."""
_TAIL = 3
"""... so many characters of it."""

Value: TypeAlias = Callable[[Any], Cell]
"""Makes a cell of a :class:`Shown` row, or of what else the rows of a table are made of."""


@dataclass(frozen=True)
class Shown:
    """A row of a probe's table in a scene; None where the probe does not tell it. Or one of its histograms."""

    scene: Scene
    probe: str
    name: str
    """Of the table, or of the histogram."""
    row: RowState | None = None
    times: HistogramState | None = None
    """How long its things take."""
    status: RowStatus | None = None
    key: RowKey | None = field(default=None, kw_only=True)
    """Of the row, where it is known."""

    @property
    def state(self) -> ProbeState | None:
        """Of its probe."""
        return self.scene.state.probes.get(self.probe)

    @property
    def labels(self) -> Mapping[str, Label]:
        """Of the row, or of the histogram."""
        of = self.row if self.row is not None else self.times
        return of.labels if of is not None else {}

    @property
    def rate_mark(self) -> str:
        """What stands before its rates."""
        table = self.scene.state.table(self.probe, self.name)
        return self.state.rate_mark(table) if self.state is not None and table is not None else ""

    @property
    def subject(self) -> Subject:
        """What the row is known by."""
        if self.row is not None:
            return Subject(self.probe, "table", self.name, self.row.key if self.key is None else self.key)
        return Subject(self.probe, "histogram", self.name, self.times.key if self.times is not None else ())

    def per_s(self, name: str) -> float | None:
        """A count per second; None where it is not known."""
        return self.row.per_s(name) if self.row is not None else None

    def gauge(self, name: str) -> float | None:
        """A gauge; None where it is not known."""
        return self.row.gauges.get(name) if self.row is not None else None

    def line(self, columns: Sequence[TableColumn], ranks: str = "") -> TableRow:
        """The row of a table on the screen. ``ranks``: the count that is held against the baseline; else the p99."""
        return TableRow(self.subject, lambda: self.cells(columns, ranks))

    def cells(self, columns: Sequence[TableColumn], ranks: str = "") -> dict[str, Cell]:
        """Those of the columns, and of the baseline."""
        return cells(columns, self) | self.baseline(ranks)

    def baseline(self, ranks: str = "") -> dict[str, Cell]:
        """Its figure held against the baseline, while there is one."""
        if self.row is not None:
            return baseline_cells.of_value(self.scene, self.probe, self.name, self.row, ranks)
        if self.times is not None:
            return baseline_cells.of_percentile(self.scene, self.probe, self.name, self.times, 99.0)
        return {}


def cells(columns: Sequence[TableColumn], of: Any) -> dict[str, Cell]:
    """The cells of one row."""
    return {column.name: column.value(of) for column in columns}


def text_cell(value: object, tone: Tone = "") -> Cell:
    """A name or a number, made harmless for a terminal."""
    sort = float(value) if isinstance(value, int) else None if value is None else str(value)
    return Cell(label_text(value), sort, tone)


def label_text(value: object) -> str:
    """A label as it is shown; outside text becomes harmless here."""
    return figure.safe(value, 64) if value != "" else figure.UNKNOWN


def label(name: str, tone: Tone = "", words: Mapping[str, str] | None = None) -> Value:
    """A label of the row; in ``words`` where there are some for it."""

    def value(at: Shown) -> Cell:
        known = at.labels.get(name)
        cell = text_cell((words or {}).get(str(known), known), tone)
        return cell._replace(ends=(cell.text[:-_TAIL], cell.text[-_TAIL:])) if name in _NUMBERED else cell

    return value


def flow(at: Shown) -> Cell:
    """The flow that its labels tell of."""
    words = flow_text(at.labels)
    return Cell(words, words)


def state(at: Shown) -> Cell:
    """Its state in words."""
    return at.status.cell() if at.status is not None else Cell(figure.UNKNOWN)


def rate(name: str, tone: Tone = "") -> Value:
    """A count per second, in a tone where it is not 0."""

    def value(at: Shown) -> Cell:
        per_s = at.per_s(name)
        return Cell(figure.number(per_s, at.rate_mark), per_s, tone if per_s else "dim")

    return value


def busy(name: str) -> Value:
    """A sum of ns per second as a share of a core; below a tenth of a percent nobody wants to count zeros."""

    def value(at: Shown) -> Cell:
        ns = at.per_s(name)
        percent = None if ns is None else ns / NS_PER_PERCENT
        is_small = percent is not None and 0 < percent < 0.1
        return Cell("<0.1" if is_small else figure.number(percent, at.rate_mark), percent, "" if ns else "dim")

    return value


def total(name: str, is_whole: bool = False) -> Value:
    """A count since the probe was attached; ``is_whole``: with all its digits, where its column has room for them."""

    def value(at: Shown) -> Cell:
        count = at.row.total(name) if at.row is not None else None
        mark = at.state.total_mark(at.row, name) if at.state is not None and at.row is not None else ""
        return total_cell(count, mark) if is_whole else Cell(figure.number(count, mark), count)

    return value


def total_cell(count: int | None, mark: str) -> Cell:
    """A total with all its digits, where its column has room for those of all rows."""
    return Cell(figure.count(count, mark), count, short=figure.number(count, mark))


def gauge(name: str, unit: str = "") -> Value:
    """A gauge as it is now."""
    return lambda at: Cell(figure.quantity(at.gauge(name), unit), at.gauge(name))


def interval_counts(row: RowState) -> dict[str, int | None]:
    """What a row has counted in the last interval."""
    return {name: count.delta for name, count in row.counts.items()}


def history(name: str, per: float = 1.0) -> Value:
    """The trend of a count, in ``per`` of it."""

    def samples(at: Shown) -> list[float | None]:
        table = at.scene.state.table(at.probe, at.name)
        found = table.history(at.row.key, name, SPARK) if table is not None and at.row is not None else []
        return [None if one is None else one / per for one in found]

    return lambda at: Cell("", history=partial(samples, at))


def samples(at: Shown) -> Cell:
    """How many were timed per second."""
    lacks = at.state is not None and bool(at.state.lacks_now or at.state.cost.unmeasured)
    per_s = at.times.per_s if at.times is not None else None
    return Cell(figure.number(per_s, lacks), per_s, "" if per_s else "dim")


def took(percent: float) -> Value:
    """A percentile of how long they took in the last interval; unknown when nothing was timed in it."""

    def value(at: Shown) -> Cell:
        one = at.times
        known = one.percentile(percent, "delta") if one is not None and one.delta.count else None
        return Cell(figure.quantity(known, one.unit if one is not None else ""), known)

    return value


def longest(at: Shown) -> Cell:
    """The most that one took ever."""
    return Cell(figure.quantity(at.times.total.max, at.times.unit), at.times.total.max) if at.times else Cell("")


def trend(at: Shown) -> Cell:
    """The trend of the p99."""
    group = at.state.histograms.get(at.name) if at.state is not None else None
    if group is None or at.times is None:
        return Cell("")
    return Cell("", history=partial(group.history, at.times.key, SPARK), unit=at.times.unit)
