"""A snapshot as a report: the short form first (what stands out, the cost, what was not measured); then the figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from netconsole.base import figure
from netconsole.probes.knobs import filters_text
from netconsole.probes.manifest import Manifest
from netconsole.probes.polarity import TIME_UNITS
from netconsole.profile.scope import words
from netconsole.report.blocks import (
    Bars,
    Curve,
    Document,
    Heading,
    Note,
    Quoted,
    ReportBlock,
    SummaryLine,
    SummaryLines,
    TextTable,
)
from netconsole.report.of_cpus import cpu_map, cpu_table
from netconsole.report.of_ping import ping_blocks
from netconsole.report.of_places import drop_places, losses_held_against, mirror_ledger
from netconsole.report.of_samples import samples
from netconsole.report.of_vm import of_all_vms
from netconsole.report.short_form import (
    MAX_GAPS,
    MAX_OVER,
    MAX_STANDING_OUT,
    budget_rows,
    first,
    gaps,
    kept,
    packet_text,
    standing_out_lines,
    sum_of,
)
from netconsole.snapshot.document import (
    ColumnData,
    HistogramData,
    ProbeData,
    Snapshot,
    SnapshotValue,
    TableColumns,
    number,
    seconds,
)
from netconsole.telemetry.ledger import LEDGER_COUNTS, UNSEEN
from netconsole.telemetry.words import probe_state

MAX_ROWS = 30
"""A report shows only the largest rows of a table. The JSON document has all rows."""
MAX_HISTOGRAMS = 12
MAX_LINES = 200
"""Of the output of a command."""
FACT_AREAS = (
    "kernel/", "cpu/", "memory/", "module/", "conntrack/", "ovs/", "vm/", "nic/", "tc/",
    "netns/", "sysctl/net.core.",
)  # fmt: skip
"""A report lists the facts of these areas, in this order. The JSON document has all facts."""
MAX_FACTS = 300
NOTE = "Note"
"""The heading above the user's note."""


def of_snapshot(
    snapshot: Snapshot, manifests: Mapping[str, Manifest] | None = None, most: int = MAX_STANDING_OUT
) -> Document:
    """The report of a snapshot; at most so many lines say what stands out before the rest.

    From ``manifests`` come titles, rules for findings, and what a probe cannot see.
    """
    manifests = manifests or {}
    host = snapshot.host
    subtitle = (
        f"{snapshot.created}, {snapshot.duration_s:.3g} s, profile {snapshot.profile.name}; "
        f"kernel {host.kernel} ({host.arch}), {host.os}, {figure.count(host.cpus)} CPUs; "
        f"netconsole {snapshot.netconsole}"
    )
    blocks: list[ReportBlock] = [Heading(NOTE), Note(" ".join(snapshot.note.split()))] if snapshot.note else []
    lines = standing_out_lines(snapshot, manifests)
    blocks += _scope(snapshot, manifests)
    blocks += [Heading("What stands out"), *first(lines, most)]
    blocks += [Heading("What watching cost"), *first(kept(snapshot), MAX_OVER)]
    blocks += [Heading("Not measured"), *first(gaps(snapshot), MAX_GAPS)]
    return Document(f"netconsole snapshot of {host.name}", subtitle, blocks, _behind(snapshot, manifests, lines[most:]))


def _scope(snapshot: Snapshot, manifests: Mapping[str, Manifest]) -> Iterator[ReportBlock]:
    """What alone the report is about."""
    scope, wide = snapshot.profile.scope, snapshot.profile.host_wide
    if scope:
        titles = [manifests[name].title if name in manifests else name for name in wide]
        beside = f" Host-wide all the same: {', '.join(titles)}." if titles else ""
        yield Note(f"Scope: only {words(scope)}.{beside}")


def _behind(snapshot: Snapshot, manifests: Mapping[str, Manifest], others: list[SummaryLine]) -> list[ReportBlock]:
    """All tables, histograms and settings."""
    blocks: list[ReportBlock] = []
    if others:
        blocks += [Heading("What else stands out"), SummaryLines(others)]
    blocks += _commands(snapshot)
    if snapshot.ping is not None:
        blocks += [Heading("A ping between two VMs"), *ping_blocks(snapshot.ping, formulas=False)]
    blocks += of_all_vms(snapshot)
    blocks += cpu_map(snapshot)
    blocks += cpu_table(snapshot)
    blocks += mirror_ledger(snapshot)
    blocks += drop_places(snapshot)
    blocks += losses_held_against(snapshot)
    for name, probe in snapshot.probes.items():
        if probe.has_measured:
            blocks += _probe(name, probe, snapshot, manifests.get(name))
    blocks += [Heading("Budget"), *_budget(snapshot)]
    blocks += [Heading("Cost by probe"), *_cost(snapshot)]
    blocks += _not_measured(snapshot)
    blocks += _cannot_see(snapshot, manifests)
    if snapshot.governor:
        blocks += [Heading("Actions of the governor"), _rows(snapshot.governor)]
    if snapshot.facts:
        blocks += [Heading("Configuration of the host"), *_facts(snapshot)]
    return blocks


def _commands(snapshot: Snapshot) -> Iterator[ReportBlock]:
    """What those said that were run by hand."""
    if snapshot.commands:
        yield Heading("What commands said")
    for one in snapshot.commands or ():
        ended = f", ended with status {one.status}" if one.status else ""
        cut = ", its beginning is cut off" if one.is_cut else ""
        yield Note(f"{one.at}{ended}{cut}")
        told = [line.expandtabs() for line in (one.output or "").splitlines()]
        more = [f"({len(told) - MAX_LINES} more lines are in the JSON document)"] if len(told) > MAX_LINES else []
        nothing = one.why or "the command printed nothing"
        yield Quoted([f"$ {one.command}", *(told[:MAX_LINES] or [f"({nothing})"]), *more])


def _budget(snapshot: Snapshot) -> Iterator[ReportBlock]:
    rows = list(budget_rows(snapshot))
    if rows:
        yield TextTable(["what", "measured", "budget", "state"], rows, frozenset({1, 2}))
    else:
        yield Note("The profile sets no budget.")


def _not_measured(snapshot: Snapshot) -> Iterator[ReportBlock]:
    rows = [
        [name, probe_state(probe.status), probe.why or "no reason given"]
        for name, probe in snapshot.probes.items()
        if probe.status != "attached"
    ]
    if rows:
        yield Heading("Probes that measured nothing, or not everything")
        yield TextTable(["probe", "state", "why"], rows)


def _cannot_see(snapshot: Snapshot, manifests: Mapping[str, Manifest]) -> Iterator[ReportBlock]:
    rows = [[name, manifests[name].cannot_see] for name in snapshot.probes if name in manifests]
    rows = [row for row in rows if row[1]]
    if rows:
        yield Heading("What the probes cannot see")
        yield TextTable(["probe", "what it cannot see"], rows)


def _probe(name: str, probe: ProbeData, snapshot: Snapshot, manifest: Manifest | None) -> list[ReportBlock]:
    title = f"{manifest.title} ({name})" if manifest else name
    blocks: list[ReportBlock] = [Heading(title)]
    if probe.until:
        blocks.append(Note(f"It was detached or lost at {probe.until}: the figures are of the time until then."))
    scope = snapshot.profile.scope  # which is said at the top
    if filters := {label: value for label, value in (probe.filters or {}).items() if label not in scope}:
        blocks.append(Note(f"Only what passes the filter {filters_text(filters)}."))
    lost = {entry for entry in LEDGER_COUNTS if probe.ledger.get(entry)}
    if probe.counters:
        less = bool(lost - {UNSEEN, "unlisted"})
        rows = [
            [
                counter,
                figure.count(data.total, less or (UNSEEN in lost and not data.duration_s)),
                figure.rate(data.per_s, data.unit, less),
            ]
            for counter, data in probe.counters.items()
        ]
        blocks.append(TextTable(["counter", "total", "per second"], rows, frozenset({1, 2})))
    blocks += [
        Curve(counter, "per s", values)
        for counter, values in probe.history.items()
        if counter in probe.counters and len(values) > 1 and any(values)
    ]
    for table, cells in probe.tables.items():
        if cells:
            errors = {key: of_rows for key, of_rows in probe.row_errors.items() if key.startswith(f"{table}.")}
            packets = [packet_text(one, snapshot.created[:10]) for one in probe.row_examples.get(table, ())]
            columns = probe.columns.get(table)
            blocks.append(_table(table, cells, columns, seconds(snapshot, name), lost, errors, packets))
    for histogram, data in probe.histograms.items():
        blocks += _histogram(histogram, data)
    if unseen_ms := probe.ledger.get(UNSEEN):
        seen_s = probe.duration_s or 0.0
        share = figure.percent(100 * seen_s / (seen_s + unseen_ms / 1000))
        blocks.append(
            Note(
                f"The probe was attached for {share} of the time: rates are of that time (≈), totals are"
                " lower bounds (≥)."
            )
        )
    if probe.row_errors:
        blocks.append(Note(_scaled(probe)))
    if untimed := probe.ledger.get("unmeasured"):
        blocks.append(
            Note(
                f"Of the counted packets or calls, {figure.count(untimed)} were not timed: histograms lack them,"
                " times are estimates (≈)."
            )
        )
    blocks += samples(probe.events)
    if all(isinstance(one, (Heading, Note)) for one in blocks):
        blocks.append(Note("The probe ran and counted nothing."))
    return blocks


def _scaled(probe: ProbeData) -> str:
    worst = 0.0
    for key, errors in probe.row_errors.items():
        table, _, value = key.partition(".")
        totals = [number(row.get(value)) or 0.0 for row in probe.tables.get(table, [])]
        if largest := max(totals, default=0.0):
            worst = max(worst, 100 * errors[totals.index(largest)] / largest)
    return (
        "To keep the budget, rows were made of a share of the packets and scaled (≈): the largest is off by"
        f" {figure.percent(worst)} at most, 95 times in 100. Counters are exact."
    )


def _table(
    name: str,
    rows: list[dict[str, SnapshotValue]],
    columns: TableColumns | None,
    span_s: float,
    lost: AbstractSet[str],
    errors: Mapping[str, list[int]],
    packets: Sequence[str],
) -> TextTable:
    """``errors`` and ``packets`` (the latest of each row) are in the order of the rows; empty: not known."""
    if columns is None or not columns.values:
        return _rows(rows)
    main = next(iter(columns.values))
    labels = [label for label in columns.labels if any(row.get(label) not in (None, "") for row in rows)]
    values = [name for name in columns.values if any(row.get(name) for row in rows)] or [main]
    ranked = [value for value in values if columns.values[value].unit != figure.INDEX]
    ordered = sorted(
        enumerate(rows), key=lambda one: -max((number(one[1].get(value)) or 0.0 for value in ranked), default=0.0)
    )
    head = list(labels)
    for value in values:
        unit = columns.values[value].unit
        head.append(f"{value} ({unit})" if unit and unit not in TIME_UNITS else value)
        if columns.values[value].kind == "sum":
            head.append("per s")
    shown = []
    for place, row in ordered[:MAX_ROWS]:
        cells = [_text(row.get(label)) for label in labels]
        for value in values:
            of_rows = errors.get(f"{name}.{value}")
            is_scaled = bool(of_rows and of_rows[place])
            cells += _cells(row.get(value), columns.values[value], span_s, lost, is_scaled)
        shown.append(cells)
    numeric = frozenset(range(len(labels), len(head)))
    if len(packets) == len(rows) and any(packets):
        head.append("latest packet")
        for (place, _), cells in zip(ordered, shown, strict=False):
            cells.append(packets[place])
    return TextTable(head, shown, numeric, max(0, len(rows) - MAX_ROWS))


def _cells(
    value: SnapshotValue, column: ColumnData, span_s: float, lost: AbstractSet[str], is_scaled: bool
) -> list[str]:
    """The cells of one value. A sum has a second cell: its rate, or for a sum of times the time per second.

    A rate is of the time that was seen: it lacks nothing of the rest. ``is_scaled``: it was made of a share of the
    packets.
    """
    scaled = figure.ABOUT if is_scaled else ""
    total_lacks, rate_lacks = bool(lost) or scaled, bool(lost - {UNSEEN}) or scaled
    known = number(value)
    if column.kind == "max":
        has_own_form = column.unit in TIME_UNITS or column.unit == figure.INDEX
        return [figure.quantity(known, column.unit) if has_own_form else figure.number(known)]
    per_s = known / span_s if known is not None and span_s else None
    if column.unit in TIME_UNITS:
        return [
            figure.quantity(known, column.unit, total_lacks),
            figure.quantity(per_s, column.unit, rate_lacks),
        ]
    return [figure.count(value if isinstance(value, int) else None, total_lacks), figure.number(per_s, rate_lacks)]


def _histogram(name: str, data: HistogramData) -> Iterator[ReportBlock]:
    parts = sorted(data.by or [data], key=lambda part: -(part.percentile(99) or 0.0))
    parts = [part for part in parts if part.count]
    labels = list(dict.fromkeys(label for part in parts for label in part.labels))
    rows = []
    for part in parts[:MAX_ROWS]:
        unit = part.unit or data.unit
        figures = [part.percentile(percent) for percent in (50, 90, 99, 99.9)]
        mean = part.sum / part.count if part.sum is not None else None
        rows.append(
            [_text(part.labels.get(label)) for label in labels]
            + [figure.count(part.count)]
            + [figure.quantity(value, unit) for value in (mean, *figures, part.max)]
        )
    if not rows:
        return
    head = [*labels, "samples", "mean", "p50", "p90", "p99", "p99.9", "max"]
    yield Note(f"Histogram {name}: the highest p99 comes first.")
    yield TextTable(head, rows, frozenset(range(len(labels), len(head))), max(0, len(parts) - MAX_ROWS))
    for part in parts[:MAX_HISTOGRAMS]:
        where = ", ".join(f"{label} {_text(value)}" for label, value in part.labels.items())
        marks = {f"p{percent}": value for percent in (50, 90, 99) if (value := part.percentile(percent)) is not None}
        yield Bars(f"{name} {where}".strip(), part.unit or data.unit, part.buckets, marks)


def _cost(snapshot: Snapshot) -> Iterator[ReportBlock]:
    cost = snapshot.cost
    yield TextTable(
        ["what", "measured"],
        [
            ["CPU time in the kernel, of one core", figure.percent(number(cost.get("kernel_cpu_pct")))],
            ["CPU time of collector and console, of one core", figure.percent(sum_of(cost, "cpu_pct"))],
            ["memory of collector and console (PSS)", figure.memory(sum_of(cost, "pss_kb"))],
            ["CPU time of the whole machine", figure.percent(number(cost.get("machine_cpu_pct")))],
            ["events suppressed", figure.number(number(cost.get("suppressed")))],
            ["events lost", figure.number(number(cost.get("lost")))],
        ],
        frozenset({1}),
    )
    rows = []
    for name, probe in snapshot.probes.items():
        if probe.cost.get("run_count") is not None:
            nanoseconds = number(probe.cost.get("run_time_ns"))
            span_ns = snapshot.duration_s * 1e9
            share = None if nanoseconds is None or not span_ns else 100 * nanoseconds / span_ns
            estimated = "estimated from windows" if probe.cost.get("estimated") else "measured"
            per_run = figure.duration(number(probe.cost.get("ns_per_run")))
            runs = figure.number(number(probe.cost.get("run_count")))
            rows.append([name, runs, per_run, figure.percent(share), estimated])
    if rows:
        yield TextTable(["probe", "runs", "per run", "of one core", ""], rows, frozenset({1, 2, 3}))


def _facts(snapshot: Snapshot) -> Iterator[ReportBlock]:
    chosen = [name for area in FACT_AREAS for name in snapshot.facts if name.startswith(area)]
    rows = []
    for name in chosen[:MAX_FACTS]:
        fact = snapshot.facts[name]
        value = ", ".join(fact.value) if isinstance(fact.value, list) else _text(fact.value)
        rows.append(
            [name, value if fact.value is not None else f"unknown: {fact.why or 'no reason given'}", fact.source]
        )
    yield TextTable(["fact", "value", "source"], rows, omitted=len(snapshot.facts) - len(rows))


def _rows(rows: list[dict[str, Any]]) -> TextTable:
    """A table of rows whose columns are not declared."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    shown = [[_text(row.get(name)) for name in columns] for row in rows[:MAX_ROWS]]
    return TextTable(columns, shown, omitted=max(0, len(rows) - MAX_ROWS))


def _text(value: object) -> str:
    if value is None:
        return figure.UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " < ".join(map(str, value))
    return str(value)
