"""Any table or histogram of any probe as rows: its manifest says what the columns are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from netconsole.base import figure
from netconsole.base.timestamps import clock
from netconsole.probes.knobs import filters_set, filters_text
from netconsole.probes.manifest import ColumnSpec, HistogramSpec, Manifest, TableSpec
from netconsole.profile.profile import Profile
from netconsole.profile.scope import is_host_wide, said
from netconsole.telemetry.frames import Label, Mode
from netconsole.telemetry.state import ProbeState
from netconsole.telemetry.tables import HistogramsState, HistogramState, RowKey, RowState, TableState
from netconsole.telemetry.words import URGENCY
from netconsole.tui.panes.common import baseline_cells
from netconsole.tui.panes.common.baseline_cells import NS_PER_PERCENT
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.scene.silent import why_silent
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.look import LEVEL_TONES, Tone

SPARK = 24
"""Samples (one an interval) that a sparkline in a table shows at most; it takes the room that is left."""
MAX_ROWS = 2000
"""Rows of one table that are drawn; more than anyone reads, few enough to sort every second."""

QUIET_AFTER_NS = 60 * 10**9
"""On the overview a row that has counted nothing for so long makes room for others."""

TOTAL_COLUMNS = 9
"""Totals below ten million with all their digits."""

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
_EXTRA = {"netns": 19, "provenance": 18, "ethertype": 16, "l4": 13}
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
    """Whether new rows are put where they rank at once (:class:`netconsole.tui.widgets.ordering.StableOrder`)."""

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
    rows: Iterable[RowState] = table.rows.values()
    if brief:
        since_ns = (scene.state.sources[state.source].closed_wall_ns or 0) - QUIET_AFTER_NS
        rows = [row for row in rows if row.moving or row.last_active_ns >= since_ns or not row.counts]
    table_is = (probe, "table", name)
    marks = {row[3]: known.level for row, known in scene.verdicts.items() if row[:3] == table_is}
    ranked = sorted(rows, key=lambda row: _worth(row, spec.sort, marks))
    labels = spec.labels
    return [
        TableRow(
            Subject(probe, "table", name, row.key),
            partial(_row_cells, scene, state, table, row, spec, labels),
        )
        for row in ranked[:MAX_ROWS]
    ]


def _row_cells(
    scene: Scene,
    probe: ProbeState,
    table: TableState,
    row: RowState,
    spec: TableSpec,
    labels: Sequence[str],
) -> dict[str, Cell]:
    cells = {label: _label_cell(spec.label(label), row.labels.get(label)) for label in labels}
    if "class" in cells:
        cells["class"] = class_cell(scene, Subject(probe.name, "table", table.name, row.key), row)
    for value in spec.value:
        cells.update(_value_cells(row, value, probe.rate_mark(table)))
    total = row.total(spec.sort)
    cells["total"] = Cell(total_cell(total, probe.total_mark(row, spec.sort)), total)
    cells["history"] = Cell("", history=partial(_history, table, row.key, spec))
    if scene.comparison is not None:
        value = next(one for one in spec.value if one.name == spec.sort)
        manifest = scene.manifests[probe.name]
        cells.update(baseline_cells.cells(scene.comparison.reference.value(probe, manifest, table.name, row, value)))
    return cells


def class_cell(scene: Scene, subject: Subject, row: RowState) -> Cell:
    """The class of a row of drops as a level; an incident that the row proves may be worse."""
    named = str(row.labels.get("class"))
    level = scene.level(CLASS_LEVELS.get(named, "?"), subject)
    return Cell(level, f"{URGENCY[level]} {named}", LEVEL_TONES[level])


def histogram_rows(scene: Scene, probe: str, name: str, spec: HistogramSpec) -> list[TableRow]:
    """One row per histogram, the highest p99 of the last interval first; then those that stand still."""
    state = scene.state.probes.get(probe)
    group = state.histograms.get(name) if state else None
    if state is None or group is None:
        return []
    ranked = sorted(group.rows.values(), key=_lateness)[:MAX_ROWS]
    return [
        TableRow(Subject(probe, "histogram", name, one.key), partial(_histogram_cells, scene, state, group, one, spec))
        for one in ranked
    ]


def _histogram_cells(
    scene: Scene, probe: ProbeState, group: HistogramsState, one: HistogramState, spec: HistogramSpec
) -> dict[str, Cell]:
    cells = {label: _label_cell(spec.label(label), one.labels.get(label)) for label in _key_names(spec)}
    lower_bound = bool(probe.lacks_now or probe.cost.unmeasured)
    cells["n"] = Cell(figure.number(one.per_s, lower_bound), one.per_s)
    for title, percent in (("p50", 50.0), ("p90", 90.0), ("p99", 99.0)):
        value = one.percentile(percent, "delta") if one.delta.count else None
        cells[title] = Cell(figure.quantity(value, one.unit), value)
    cells["max"] = Cell(figure.quantity(one.total.max, one.unit), one.total.max)
    cells["history"] = Cell("", history=partial(group.history, one.key, SPARK), unit=one.unit)
    if scene.comparison is not None:
        manifest = scene.manifests[probe.name]
        cells.update(
            baseline_cells.cells(scene.comparison.reference.percentile(probe, manifest, group.name, one, 99.0))
        )
    return cells


def label_text(name: str, value: Label) -> str:
    """A label as it is shown; outside text becomes harmless here."""
    return figure.safe(value, 64) if value != "" else figure.UNKNOWN


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
        least = 7 if value.unit == "ns" and value.kind != "max" else max(7, len(head))
        columns.append(TableColumn(value.name, head, least, right=True, spare=spare))
        if place == 0 and value.kind != "max" and value.unit != "ns":
            columns.append(TableColumn("total", "total", TOTAL_COLUMNS, right=True, spare=2))
    columns.append(TableColumn("history", "trend", 12, spare=_TREND_SPARE, grow=2, most=SPARK))
    return columns


def _histogram_columns(spec: HistogramSpec) -> list[TableColumn]:
    columns = _label_columns(spec, _key_names(spec))
    columns.append(TableColumn("n", "n/s", 6, right=True))
    columns += [
        TableColumn(name, name, 7, right=True, spare=spare) for name, spare in (("p50", 0), ("p90", 11), ("p99", 0))
    ]
    columns.append(TableColumn("max", "max ever", 8, right=True, spare=12))
    columns.append(TableColumn("history", "trend of p99", 14, spare=_LABEL_SPARE, grow=2, most=SPARK))
    return columns


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
        label = spec.label(name)
        shown_as = label.shown_as or name
        usual = 0 if name == "class" else _EXTRA.get(shown_as)
        spare = label.spare if label.spare is not None else usual
        columns.append(_label_column(label, next(first, _LABEL_SPARE) if spare is None else spare))
    return columns


def _label_column(label: ColumnSpec, spare: int = 0) -> TableColumn:
    name, shown_as = label.name, label.shown_as or "text"
    least, grow, most = _LABEL_WIDTHS.get(shown_as, (8, 1, 16))
    if name in ("cpu", "queue", "q"):
        least, grow, most = 3 if name == "cpu" else 5, 0, 5
    elif name == "class":
        return TableColumn(name, "", 2)
    elif name == "provenance":
        least, grow, most = 10, 0, 10
    head = label.head or _head(name)
    return TableColumn(
        name, head, max(least, min(len(head), 8)), right=shown_as == "cpu", grow=grow, most=most, spare=spare
    )


def _head(name: str) -> str:
    words = name.removesuffix("_ns").removesuffix("_us").split("_")
    return " ".join(_SHORT.get(word, word) for word in words)


def _label_cell(label: ColumnSpec, value: Label) -> Cell:
    sort: float | str | None = float(value) if isinstance(value, int) else value
    return Cell(label_text(label.name, label.words.get(str(value), value)), sort)


def _value_cells(row: RowState, value: ColumnSpec, mark: str) -> dict[str, Cell]:
    if value.kind == "max":
        gauge = row.gauges.get(value.name)
        shown = figure.duration(gauge) if value.unit == "ns" else figure.number(gauge)
        return {value.name: Cell(shown, gauge)}
    rate = row.per_s(value.name)
    tone: Tone = "" if rate else "dim"
    if value.unit == "ns":
        share = None if rate is None else rate / NS_PER_PERCENT
        return {value.name: Cell(_share(share, mark), share, tone)}
    return {value.name: Cell(figure.number(rate, mark), rate, tone)}


def _share(percent: float | None, mark: str) -> str:
    """A share of a core; below a tenth of a percent nobody wants to count zeros."""
    if percent is None or percent == 0 or percent >= 0.1:
        return figure.number(percent, mark)
    return "<0.1"


def _history(table: TableState, key: RowKey, spec: TableSpec) -> list[float | None]:
    """The trend of the value that ranks the table, in the unit of its column."""
    values = table.history(key, spec.sort, SPARK)
    if not any(value.name == spec.sort and value.unit == "ns" for value in spec.value):
        return values
    return [None if value is None else value / NS_PER_PERCENT for value in values]


def total_cell(total: int | None, mark: str) -> str:
    """All digits where they fit into the column; a count that was cut would be a wrong one."""
    exact = figure.count(total, mark)
    return exact if figure.width(exact) <= TOTAL_COLUMNS else figure.number(total, mark)


def _worth(row: RowState, value: str, marks: Mapping[RowKey, str]) -> tuple[float, ...]:
    """What proves an incident first, then what moves; of these what nobody wants, then by rate and total."""
    rank = URGENCY[marks.get(row.key, "off") if marks else "off"]
    if any(count.delta for count in row.counts.values()):
        rank = min(rank, URGENCY[CLASS_LEVELS.get(str(row.labels.get("class")), "ok")])
    others = sum(count.total for count in row.counts.values())
    return rank, -(row.per_s(value) or 0.0), -(row.total(value) or 0), -others


def _lateness(one: HistogramState) -> tuple[float, ...]:
    p99 = one.percentile(99, "delta") if one.delta.count else None
    return (0.0 if p99 is not None else 1.0, -(p99 or 0.0), -one.total.count)
