"""Any table or histogram of any probe as rows: its manifest says what the columns are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

from netconsole.base import figure
from netconsole.base.timestamps import clock
from netconsole.probes.knobs import filters_set, filters_text
from netconsole.probes.manifest import ColumnSpec, HistogramSpec, Manifest, TableSpec
from netconsole.probes.ratios import is_too_few
from netconsole.profile.profile import Profile
from netconsole.profile.scope import is_host_wide, said
from netconsole.telemetry.frames import Label, Mode
from netconsole.telemetry.state import ProbeState
from netconsole.telemetry.tables import HistogramState, RowKey, RowState
from netconsole.telemetry.words import URGENCY
from netconsole.tui.panes.common import baseline_cells
from netconsole.tui.panes.common.baseline_cells import NS_PER_PERCENT
from netconsole.tui.panes.common.columns import (
    SPARK,
    TOTAL_COLUMNS,
    Shown,
    Value,
    busy,
    gauge,
    history,
    interval_counts,
    label,
    longest,
    rate,
    samples,
    took,
    total,
    trend,
)
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.scene.silent import why_silent
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.look import LEVEL_TONES

MAX_ROWS = 2000
"""Rows of one table that are drawn; more than anyone reads, few enough to sort every second."""

QUIET_AFTER_NS = 60 * 10**9
"""On the overview a row that has counted nothing for so long makes room for others."""

MEANING = "meaning"
"""The label that says in words what a counter counts: the last one to shrink."""
_LABEL_WIDTHS: dict[str, tuple[int, int, int]] = {
    # shown as: least width, growth, most width
    "symbol": (14, 3, 30),
    "drop_reason": (13, 3, 26),
    "socket": (16, 3, 44),
    "address": (12, 3, 39),
    "stack": (24, 9, 160),
    "process": (8, 2, 16),
    "text": (8, 2, 15),
    "netns": (6, 1, 12),
    "port": (5, 0, 5),
    "cpu": (3, 0, 3),
    "l4": (6, 0, 8),
    "softirq": (7, 0, 9),
    "xmit": (6, 1, 12),
}
_ORDER = ("class", "reason", "location", "device", "vm", "queue", "direction", "cpu", "softirq", "process", "worker",
          "socket", "port", "address", "protocol", "peer", "source", "target")  # fmt: skip
"""Labels in the order in which people ask for them; others follow as the manifest has them."""
_EXTRA = {"netns": 19, "provenance": 18, "ethertype": 16, "l4": 13, MEANING: 1, "class": 0}
"""How labels are shown that can be done without when there is little room; the highest goes first."""
_FIRST_SPARES = (0, 2, 1)
"""Of the first three labels: the first always stays, the others longer than any figure but the most important."""
_LABEL_SPARE = 10
"""Every other label can go before a figure does."""
_TREND_SPARE = 12
_SHORT = {
    "packets": "pkts",
    "bytes": "B",
    "errors": "err",
    "drops": "drop",
    "dropped": "drop",
    "requeues": "requ",
    "overlimits": "overl",
    "protocol": "proto",
}
"""Words of column heads; the details have them in full."""
TOO_FEW = "too few"
"""In a cell: the page of the row says too few of what."""
CLASS_LEVELS = {"suspicious": "!", "benign": "ok", "unknown": "?"}
"""A class of drops as a level, which takes two cells; the details have the word."""


@dataclass(frozen=True)
class Block:
    """A table of a pane: its columns, and functions of the scene for its rows, title and empty state."""

    name: str
    title: Callable[[Scene], str]
    columns: tuple[TableColumn, ...]
    rows: Callable[[Scene], list[TableRow]]
    note: Callable[[Scene], str]
    probe: str | None = None
    heads: bool = True
    has_news: bool = False
    """Whether new rows are put where they rank at once (:class:`netconsole.tui.widgets.linetable.StableOrder`)."""

    def rows_of(self, scene: Scene) -> list[TableRow]:
        """Its rows, made once for a picture: tables, tabs and marks ask for them."""
        if id(self) not in scene.made:  # the overview has a block of the same name
            scene.made[id(self)] = self.rows(scene)
        return cast(list[TableRow], scene.made[id(self)])

    def columns_of(self, scene: Scene) -> tuple[TableColumn, ...]:
        """The columns, and before the trend those of the baseline while there is one."""
        if scene.comparison is None or self.probe is None:
            return self.columns
        at = next((place for place, column in enumerate(self.columns) if column.name == "history"), len(self.columns))
        return (*self.columns[:at], *baseline_cells.COLUMNS, *self.columns[at:])


def table_block(manifest: Manifest, name: str, brief: bool = False) -> Block:
    """The block of a probe's table. ``brief``: rows that have stood still for a minute make room."""
    spec = manifest.tables[name]
    probe = manifest.name
    holds_times = any(value.unit == "ns" for value in spec.value)
    return Block(
        name=f"{probe}-{name}",
        title=lambda scene: _title(scene, manifest, spec.title or manifest.title, spec.counter, holds_times, name),
        columns=tuple(_table_columns(spec)),
        rows=lambda scene: table_rows(scene, probe, name, spec, brief),
        note=lambda scene: (
            _why_not_in_mode(scene, probe, spec.modes) or _quiet(scene, probe, name) or why_silent(scene, probe)
        ),
        probe=probe,
    )


def _why_not_in_mode(scene: Scene, probe: str, modes: Sequence[Mode]) -> str:
    """What to say of a table that is only filled in other modes than the probe's; else nothing."""
    state = scene.state.probes.get(probe)
    if state is None or not state.measuring or state.mode in modes:
        return ""
    way_out = "" if scene.replay is not None else f"; press e and set {probe} to {' or '.join(modes)}"
    return f"not watched in mode {state.mode}, to save cost{way_out}"


def _quiet(scene: Scene, probe: str, name: str) -> str:
    """What to say where all rows made room."""
    state = scene.state.probes.get(probe)
    table = state.tables.get(name) if state else None
    return f"nothing for a minute; {len(table.rows)} quiet rows are in its pane" if table and table.rows else ""


def histogram_block(manifest: Manifest, name: str) -> Block:
    """The block of a probe's histograms of one name."""
    spec = manifest.histograms[name]
    probe = manifest.name
    return Block(
        name=f"{probe}-{name}",
        title=lambda scene: _title(scene, manifest, spec.title or manifest.title, None, True),
        columns=tuple(_histogram_columns(spec)),
        rows=lambda scene: histogram_rows(scene, probe, name, spec),
        note=lambda scene: why_silent(scene, probe),
        probe=probe,
    )


def table_rows(scene: Scene, probe: str, name: str, spec: TableSpec, brief: bool = False) -> list[TableRow]:
    """The rows, those that are worth most first: as urgent as they are marked, then by rate, then by total."""
    state = scene.state.probes.get(probe)
    table = state.tables.get(name) if state else None
    if state is None or table is None:
        return []
    rows: Iterable[tuple[RowKey, RowState]] = table.rows.items()
    if brief:
        since_ns = (scene.state.sources[state.source].closed_wall_ns or 0) - QUIET_AFTER_NS
        rows = [one for one in rows if one[1].moving or one[1].last_active_ns >= since_ns or not one[1].counts]
    table_is: tuple[str, Literal["table"], str] = (probe, "table", name)
    marks = {row[3]: known.level for row, known in scene.verdicts.items() if row[:3] == table_is}
    ranked = sorted(rows, key=lambda one: _worth(one[0], one[1], spec, marks))
    hidden = [_label_column(spec.label(label)) for label in spec.labels if label not in (spec.columns or spec.labels)]
    columns = [*_table_columns(spec), *hidden]  # which are searched, too
    return [
        TableRow(Subject(*table_is, key), partial(_cells, scene, probe, name, key, row, columns, spec.sort))
        for key, row in ranked[:MAX_ROWS]
    ]


def _cells(
    scene: Scene, probe: str, name: str, key: RowKey, row: RowState, columns: Sequence[TableColumn], ranks: str
) -> dict[str, Cell]:
    """Of one row: few of thousands are looked at, and for the others nothing is made."""
    return Shown(scene, probe, name, row, key=key).cells(columns, ranks)


def row_class(at: Shown) -> Cell:
    """The class of a row of drops as a level; a finding of the row may be worse."""
    level = at.scene.level(_class_level(at.labels, at.scene.manifests[at.probe].tables[at.name], "?"), at.subject)
    return Cell(level, f"{URGENCY[level]} {at.labels.get('class')}", LEVEL_TONES[level])


def _class_level(labels: Mapping[str, Label], spec: TableSpec, unknown: str) -> str:
    """Of a row that is not judged otherwise: the kernel gives what is harmless no reason, or that of a loss."""
    level = CLASS_LEVELS.get(str(labels.get("class")), unknown)
    cause = spec.causes.of(labels) if level != "ok" and spec.causes is not None else None
    return "ok" if cause is not None and cause.kind == "harmless" else level


def histogram_rows(scene: Scene, probe: str, name: str, spec: HistogramSpec) -> list[TableRow]:
    """One row per histogram, the highest p99 of the last interval first; then those that stand still."""
    state = scene.state.probes.get(probe)
    group = state.histograms.get(name) if state else None
    if state is None or group is None:
        return []
    ranked = sorted(group.rows.values(), key=_lateness)[:MAX_ROWS]
    columns = _histogram_columns(spec)
    return [Shown(scene, probe, name, times=one).line(columns) for one in ranked]


def value_columns(spec: TableSpec) -> list[ColumnSpec]:
    """The values of a table, that by which it is ranked first."""
    values = [value for value in spec.value if value.name]
    return sorted(values, key=lambda value: value.name != spec.sort)


def _values_shown(spec: TableSpec) -> list[ColumnSpec]:
    """The values that have a column."""
    values = value_columns(spec)
    if not spec.columns:
        return values
    by_name = {value.name: value for value in values}
    shown = [by_name[name] for name in spec.columns if name in by_name]
    return sorted(shown, key=lambda value: value.name != spec.sort)


def _title(
    scene: Scene, manifest: Manifest, title: str, counter: str | None, holds_times: bool, table: str = ""
) -> str:
    state = scene.state.probes.get(manifest.name)
    if state is None:
        return title
    parts = [title, *_narrowed(scene.profile, manifest, state)]
    count = state.counters[counter].count if counter in state.counters else None
    if count is not None and counter is not None:
        unit = manifest.counters[counter].unit
        rate = figure.rate(count.per_s, unit, state.counters_lack_now)
        parts.append(f"{rate}, {figure.count(count.total, not state.is_exact(counter))} in total")
    if holds_times and state.cost.unmeasured:
        timed = sum(one.delta.count for group in state.histograms.values() for one in group.rows.values())
        parts.append(f"≈ {figure.percent(100 * timed / (timed + state.cost.unmeasured))} timed")
    parts += seen_share(state)
    known = state.tables.get(table)
    if known is not None and known.omitted:
        parts.append(f"the busiest {figure.number(len(known.rows))}, {figure.number(known.omitted)} more are counted")
    since_ns = state.unwatched_since_ns(known) if known is not None and known.rows else None
    if since_ns is not None:
        parts.append(f"rows until {clock(since_ns)}: not watched since")
    if state.status not in ("attached", "off"):
        parts.append(state.status)
    return " · ".join(parts)


def _narrowed(profile: Profile, manifest: Manifest, state: ProbeState) -> list[str]:
    """To what the probe is narrowed beyond the scope, which the header has; or that the scope does not narrow it."""
    scope = {name: profile.filters[name] for name in said(profile)}
    filters = {name: value for name, value in filters_set(state.knobs).items() if scope.get(name) != value}
    if is_host_wide(profile, manifest):
        return ["host-wide"]
    return [f"only {filters_text(filters)}"] if filters else []


def seen_share(state: ProbeState) -> list[str]:
    """Says of a probe that is attached for a share of the time that its figures are of that share."""
    return [] if state.seen_pct is None else [f"≈ seen {figure.percent(state.seen_pct)} of the time"]


def _key_names(spec: HistogramSpec) -> list[str]:
    """The labels of a histogram's own key, in its order."""
    return [column.name for column in spec.key if column.name and not column.type.startswith("pad[")]


def _table_columns(spec: TableSpec) -> list[TableColumn]:
    columns = _label_columns(spec, spec.labels)
    for place, value in enumerate(_values_shown(spec)):
        usual = 0 if place == 0 else 3 + place
        head, spare = _value_head(value), usual if value.spare is None else value.spare
        least = max(7, min(8, len(head)) if value.unit == "ns" and value.kind != "max" else len(head))
        columns.append(TableColumn(value.name, head, least, right=True, spare=spare, value=_value_of(spec, value)))
        if place == 0 and value.kind != "max" and value.unit != "ns":
            of = total(value.name, is_whole=True)
            counted = head.removesuffix("/s") if value.unit == "bytes" else "total"
            columns.append(TableColumn("total", counted, TOTAL_COLUMNS, right=True, spare=2, value=of))
    per = NS_PER_PERCENT if any(value.name == spec.sort and value.unit == "ns" for value in spec.value) else 1.0
    trend_of = history(spec.sort, per)
    columns.append(TableColumn("history", "trend", 12, spare=_TREND_SPARE, grow=2, most=SPARK, value=trend_of))
    return columns


def _value_of(spec: TableSpec, value: ColumnSpec) -> Value:
    if value.part:
        return ratio_of(spec, value)
    if value.kind == "max":
        return gauge(value.name, "ns" if value.unit == "ns" else "")
    return busy(value.name) if value.unit == "ns" else rate(value.name)


def ratio_of(spec: TableSpec, value: ColumnSpec) -> Value:
    """A ratio of the interval, or that there was too little for it."""

    def cell(at: Shown) -> Cell:
        known = at.gauge(value.name)
        if known is None and at.row is not None and is_too_few(spec, interval_counts(at.row)):
            return Cell(TOO_FEW, None, "dim")
        return Cell(figure.number(known), known)

    return cell


def _histogram_columns(spec: HistogramSpec) -> list[TableColumn]:
    columns = _label_columns(spec, _key_names(spec))
    return [
        *columns,
        TableColumn("n", "n/s", 6, right=True, value=samples),
        TableColumn("p50", "p50", 7, right=True, value=took(50.0)),
        TableColumn("p90", "p90", 7, right=True, spare=11, value=took(90.0)),
        TableColumn("p99", "p99", 7, right=True, value=took(99.0)),
        TableColumn("max", "max ever", 8, right=True, spare=12, value=longest),
        TableColumn("history", "trend of p99", 14, spare=_LABEL_SPARE, grow=2, most=SPARK, value=trend),
    ]


def _value_head(value: ColumnSpec) -> str:
    if value.head:
        return value.head
    if value.kind == "max":
        return _head(value.name)
    if value.unit == "ns":
        return f"{_head(value.name)} %"
    return f"{_head(value.unit or value.name)}/s" if value.name == "count" else f"{_head(value.name)}/s"


def _label_columns(spec: TableSpec | HistogramSpec, labels: Sequence[str]) -> list[TableColumn]:
    """Those that the manifest names, in its order; else all, in the usual one."""
    if spec.columns:
        ordered = [name for name in spec.columns if name in labels]
    else:
        ordered = sorted(labels, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    columns: list[TableColumn] = []
    first = iter(_FIRST_SPARES)
    for name in ordered:
        its = spec.label(name)
        usual = _EXTRA.get(name, _EXTRA.get(its.shown_as or name))
        spare = its.spare if its.spare is not None else usual
        columns.append(_label_column(its, next(first, _LABEL_SPARE) if spare is None else spare))
    return columns


def _label_column(spec: ColumnSpec, spare: int = 0) -> TableColumn:
    name, shown_as = spec.name, spec.shown_as or "text"
    least, grow, most = _LABEL_WIDTHS.get(shown_as, (8, 1, 16))
    if name in ("cpu", "queue", "q"):
        least, grow, most = 3 if name == "cpu" else 5, 0, 5
    elif name == "class":
        return TableColumn(name, "", 2, value=row_class)
    elif name == "provenance":
        least, grow, most = 10, 0, 10
    elif name == MEANING:
        least, grow, most = 28, 4, 72
    head = spec.head or _head(name)
    width, is_right, of = max(least, min(len(head), 8)), shown_as == "cpu", label(name, words=spec.words)
    return TableColumn(name, head, width, right=is_right, grow=grow, most=most, spare=spare, value=of)


def _head(name: str) -> str:
    words = name.removesuffix("_ns").removesuffix("_us").split("_")
    return " ".join(_SHORT.get(word, word) for word in words)


def _worth(key: RowKey, row: RowState, spec: TableSpec, marks: Mapping[RowKey, str]) -> tuple[float, ...]:
    """What proves an incident first, then what moves; of these what nobody wants, then by rate and total."""
    rank = URGENCY[marks.get(key, "off")]
    if row.moving and any(count.delta for count in row.counts.values()):
        rank = min(rank, URGENCY[_class_level(row.labels, spec, "ok")])
    others = sum(count.total for count in row.counts.values())
    return rank, -(row.per_s(spec.sort) or 0.0), -(row.total(spec.sort) or 0), -others


def _lateness(one: HistogramState) -> tuple[float, ...]:
    p99 = one.percentile(99, "delta") if one.delta.count else None
    return (0.0 if p99 is not None else 1.0, -(p99 or 0.0), -one.total.count)
