"""The part of a snapshot that one probe fills: its counters, rows, histograms, events, ledger and cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from netconsole.probes.knobs import filters_set
from netconsole.probes.manifest import Manifest
from netconsole.probes.polarity import Polarity
from netconsole.probes.ratios import ratio
from netconsole.snapshot.document import (
    ColumnData,
    Counter,
    ExampleData,
    HistogramData,
    ProbeData,
    SnapshotValue,
    TableColumns,
)
from netconsole.telemetry import histogram
from netconsole.telemetry.frames import Buckets
from netconsole.telemetry.ledger import UNSEEN
from netconsole.telemetry.span import ProbeTotals, events_since, figures, ledger_since, rows_since
from netconsole.telemetry.state import ProbeState
from netconsole.telemetry.tables import HistogramsState, TableState

NEVER_SETTLED = "the probe was not attached in time"
COLLECTOR_RESTARTED = "the collector was lost and started again: nobody watched meanwhile"
SOURCE_RESTARTED = "its source was lost and started again: the figures begin there"
MAX_PARTS = 20
"""Of a row's history: enough to tell a steady loss from a burst."""
HISTORY_AGREES = 2.0
"""A row's history that is off its count by more than this factor is left out: the state forgets that of idle rows.
Intervals are not all equally long, so that it is never quite its count."""


def probe_data(
    probe: ProbeState,
    manifest: Manifest | None,
    start: ProbeTotals,
    duration_ns: int,
    restarted: str | None,
    until: str | None = None,
) -> ProbeData:
    """What a probe measured since ``start``, in ``duration_ns``.

    ``restarted``: why it has not measured all the time. ``until``: when it was detached or lost, if it had measured.
    """
    why = "; ".join(part for part in (probe.why, probe.help) if part) or None
    status = probe.status
    if not probe.settled:
        status, why = "failed", NEVER_SETTLED
    elif probe.measuring and restarted:
        status, why = "degraded", restarted
    if not probe.measuring and until is None:
        return ProbeData(status=status, why=why, mode=probe.mode, version=manifest.version if manifest else None)
    ledger = ledger_since(probe, start)
    seen_ns = max(0, duration_ns - ledger.get(UNSEEN, 0) * 1_000_000)
    return ProbeData(
        status=status,
        why=why,
        mode=probe.mode,
        version=manifest.version if manifest else None,
        attach=list(probe.attach),
        filters=dict(filters_set(probe.knobs)),
        counters={
            name: _counter(
                name,
                counter.count.total - start.counters.get(name, 0),
                manifest,
                seen_ns if counter.is_partial else duration_ns,
                seen_ns,
            )
            for name, counter in probe.counters.items()
        },
        tables={table.name: _rows(table, manifest, start) for table in probe.tables.values()},
        columns={table.name: _columns(table, manifest) for table in probe.tables.values()},
        histograms={group.name: _histogram(group, manifest, start) for group in probe.histograms.values()},
        events=_events(probe, start),
        cost=_probe_cost(probe, start),
        ledger=ledger,
        duration_s=round(seen_ns / 1e9, 6),
        history=_history(probe, start),
        row_history=_row_history(probe, manifest, start, seen_ns),
        row_errors=_row_errors(probe, manifest, start),
        row_examples=_row_examples(probe, start),
        until=until,
    )


def _counter(name: str, total: int, manifest: Manifest | None, duration_ns: int, probes_ns: int) -> Counter:
    spec = manifest.counters.get(name) if manifest else None
    return Counter(
        total=total,
        per_s=total * 1e9 / duration_ns if duration_ns else None,
        unit=spec.unit if spec else "",
        worse=spec.worse if spec else None,
        duration_s=None if duration_ns == probes_ns else round(duration_ns / 1e9, 6),
    )


def _rows(table: TableState, manifest: Manifest | None, start: ProbeTotals) -> list[dict[str, SnapshotValue]]:
    """Labels, counts and gauges by name. Ratios are of the whole time, not of its last interval."""
    spec = manifest.tables.get(table.name) if manifest else None
    counted = list(rows_since(table, start))
    rows = figures(counted)
    for column in spec.value if spec else ():
        if column.part and spec is not None:
            for row, (_, counts) in zip(rows, counted, strict=True):
                row[column.name] = ratio(spec, column, counts)
    return rows


def _columns(table: TableState, manifest: Manifest | None) -> TableColumns:
    spec = manifest.tables.get(table.name) if manifest else None
    if spec is None:
        return TableColumns()
    values = {
        column.name: ColumnData(column.unit, "max" if column.kind == "max" else "sum", column.worse)
        for column in spec.value
    }
    return TableColumns(labels=list(spec.labels), values=values)


def _histogram(group: HistogramsState, manifest: Manifest | None, start: ProbeTotals) -> HistogramData:
    unit = ""
    each: list[tuple[dict[str, SnapshotValue], Buckets]] = []
    for key, row in group.rows.items():
        unit = row.unit
        grown = histogram.subtract(row.total, start.histograms.get((group.name, key), histogram.EMPTY))
        if grown.count:
            each.append((dict(row.labels), grown))
    by = (
        [_histogram_data(one, unit, labels) for labels, one in each]
        if len(each) > 1 or any(ls for ls, _ in each)
        else []
    )
    spec = manifest.histograms.get(group.name) if manifest else None
    return _histogram_data(histogram.add(one for _, one in each), unit, by=by, worse=spec.worse if spec else None)


def _histogram_data(
    one: Buckets,
    unit: str,
    labels: dict[str, SnapshotValue] | None = None,
    by: Iterable[HistogramData] = (),
    worse: Polarity | None = None,
) -> HistogramData:
    return HistogramData(
        unit=unit,
        count=one.count,
        sum=one.sum if one.count else None,
        min=one.min,
        max=one.max,
        p50=histogram.percentile(one, 50),
        p90=histogram.percentile(one, 90),
        p99=histogram.percentile(one, 99),
        p999=histogram.percentile(one, 99.9),
        buckets=[(*map(float, histogram.bounds(index)), n) for index, n in sorted(one.buckets)],  # type: ignore[misc]
        labels=labels or {},
        by=list(by),
        worse=worse,
    )


def _events(probe: ProbeState, start: ProbeTotals) -> list[dict[str, Any]]:
    kept = events_since(probe, start)
    return [{"name": event.name, "wall_ns": event.wall_ns, **event.fields} for event in kept]


def _history(probe: ProbeState, start: ProbeTotals) -> dict[str, list[float | None]]:
    intervals = max(0, probe.timeline.tick - start.tick)
    found = {name: probe.counter_history(name, intervals) for name in probe.counters}
    for table in probe.tables.values():
        found |= {f"{table.name}.{column}": values for column, values in table.sums(intervals).items()}
    return {name: [None if value is None else round(value, 3) for value in values] for name, values in found.items()}


def _row_history(
    probe: ProbeState, manifest: Manifest | None, start: ProbeTotals, duration_ns: int
) -> dict[str, list[list[float]]]:
    """The histories of single rows, of the columns that add up; a long run's in fewer parts."""
    intervals = max(0, probe.timeline.tick - start.tick)
    found = {}
    for table in probe.tables.values():
        spec = manifest.tables.get(table.name) if manifest else None
        for column in spec.value if spec else ():
            if column.kind != "max":
                rows = [
                    _parts(
                        table.history(row.key, column.name, intervals), counts.get(column.name, 0), duration_ns / 1e9
                    )
                    for row, counts in rows_since(table, start)
                ]
                if any(rows):
                    found[f"{table.name}.{column.name}"] = rows
    return found


def _row_errors(probe: ProbeState, manifest: Manifest | None, start: ProbeTotals) -> dict[str, list[int]]:
    """By how much the counts of rows may be off, where any is."""
    found = {}
    for table in probe.tables.values():
        spec = manifest.tables.get(table.name) if manifest else None
        for column in spec.value if spec else ():
            errors = [row.error(column.name) for row, _ in rows_since(table, start)]
            if any(errors):
                found[f"{table.name}.{column.name}"] = errors
    return found


def _row_examples(probe: ProbeState, start: ProbeTotals) -> dict[str, list[ExampleData | None]]:
    """The latest packets of rows, where any is known."""
    found = {}
    for table in probe.tables.values():
        examples = [row.example for row, _ in rows_since(table, start)]
        if any(examples):
            found[table.name] = [None if one is None else ExampleData.of(one) for one in examples]
    return found


def _parts(per_s: Sequence[float | None], count: int, span_s: float) -> list[float]:
    """Rates of equal parts of the run; nothing where they do not add up to the count."""
    rates = [rate or 0.0 for rate in per_s]  # before its first movement a row stood still
    events = sum(rates) / len(rates) * span_s if rates else 0.0
    if not count / HISTORY_AGREES <= events <= count * HISTORY_AGREES or not events:
        return []
    size = -(-len(rates) // MAX_PARTS)
    whole = range(0, len(rates) - size + 1, size)
    return [round(sum(rates[first : first + size]) / size, 3) for first in whole]


# ---- cost ----


def _probe_cost(probe: ProbeState, start: ProbeTotals) -> dict[str, Any]:
    runs, time_ns = _scaled(probe, start)
    calibrated_ns = _calibrated(probe, start) if time_ns is None else None
    events = {name: count.total - start.events.get(name, 0) for name, count in probe.cost.events.items()}
    full = probe.cost.ledger.get("map_full")
    return {
        "run_count": runs,
        "run_time_ns": calibrated_ns if time_ns is None else time_ns,
        "ns_per_run": time_ns / runs if runs and time_ns is not None else None,
        "estimated": probe.cost.estimated or calibrated_ns is not None,
        "calibrated": calibrated_ns is not None,
        "submitted": events.get("submitted"),
        "suppressed": events.get("suppressed"),
        "lost": events.get("lost"),
        "map_full": None if full is None else full.total - start.ledger.get("map_full", 0),
    }


def _scaled(probe: ProbeState, start: ProbeTotals) -> tuple[int | None, int | None]:
    """Runs and run time in the whole time, scaled from what its figures stand for. None without a figure.

    The first figure may stand for time before ``start``, too, and after the last one there is none yet.
    """
    elapsed_ns = probe.cost.elapsed_ns - start.elapsed_ns
    runs = time_ns = 0.0
    measured = False
    for name, (whole_ns, run_count, run_time_ns) in probe.cost.sums().items():
        before = start.programs.get(name, (0, 0, 0))
        whole_ns -= before[0]
        if whole_ns <= 0:
            continue
        measured = True
        share = elapsed_ns / whole_ns
        runs += (run_count - before[1]) * share
        time_ns += (run_time_ns - before[2]) * share
    return (round(runs), round(time_ns)) if measured else (None, None)


def _calibrated(probe: ProbeState, start: ProbeTotals) -> int | None:
    """Run time from the calibrated cost of a count, where the kernel does not measure it. None where it does."""
    known = None if probe.cost.measurable else probe.per_count.get((probe.name, probe.mode))
    counter = probe.counters.get(known[0]) if known is not None else None
    if known is None or counter is None:
        return None
    return round((counter.count.total - start.counters.get(known[0], 0)) * known[1])
