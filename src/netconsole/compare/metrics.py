"""Flattens a snapshot to metrics that can be compared: counts, gauges and histograms by key.

A key is ``probe/kind/name``, with ``/label=value,…`` where there are labels. Volatile labels already have their stable
names (:mod:`netconsole.compare.labels`). Rows that then have the same key are added up.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, TypeAlias

from netconsole.base import figure
from netconsole.compare.labels import Meanings, MetricLabels, Names
from netconsole.compare.significance import EFFECTIVE_SAMPLES
from netconsole.probes.manifest import Manifest, TableSpec
from netconsole.probes.meaning import BY_NAME
from netconsole.probes.polarity import FigureKind, Polarity, polarity
from netconsole.probes.ratios import is_too_few, ratio, too_few
from netconsole.snapshot.document import (
    MAX_COUNT,
    MEASURED,
    Bucket,
    ColumnData,
    HistogramData,
    ProbeData,
    Snapshot,
    SnapshotValue,
    TableColumns,
)
from netconsole.telemetry.ledger import ROWS_LOST

Worse: TypeAlias = Literal["up", "down"] | None
MetricKind: TypeAlias = Literal["counter", "table", "gauge", "histogram"]
ColumnKey: TypeAlias = tuple[str, MetricKind, str]
"""Probe, kind and name of a counter, or of a table's column: the same for all its rows."""
Identity: TypeAlias = tuple[str, MetricKind, str, MetricLabels]
"""Probe, kind, name and labels of a metric. Its key is the same as text."""

NO_MANIFESTS: Mapping[str, Manifest] = {}
OWN_COST = "self_cost"
"""How busy the machine was, and what watching cost. These are conditions of a measurement, not results."""
EVENT_SIZES = {"ns": 1e6, "us": 1e3, "ms": 1.0, "bytes": 65536.0, "kB": 64.0}
"""A sum of times or bytes has no events to count: 1 ms, or 64 kB, counts as one event."""
_LABEL_NAMES = frozenset({"queue", "node", "vcpu", "vq", "numa_node", "code", "errno", "mark", "zone", *BY_NAME})
"""Names of numbers that are labels, for a snapshot that does not declare its columns."""
_UNQUOTED = re.compile(r"[^\x00-\x1f,=/\"\\\x7f]*")


@dataclass(slots=True)
class Metric:
    """One figure. A count has ``count`` over the snapshot's time, a gauge ``value``, a histogram ``buckets``."""

    identity: Identity
    unit: str
    worse: Worse
    count: int = 0
    value: float | None = None
    histogram: Distribution | None = None
    counter: Identity | None = None
    """The counter that this row is a part of. For the busiest CPU: the sum that it is a part of."""
    is_rest: bool = False
    """Of a counter: whether rows that are no fault, or cannot be compared, were subtracted from its count."""
    benign: Worse = None
    """Of a row of class benign: the direction that is worse, when it is new or takes much of the traffic."""
    parts: list[float] | None = None
    """Of a count: the events in each of the equal parts of the snapshot's time. None when that is not known."""
    is_ratio: bool = False
    """Of a gauge: whether it is a ratio of two counts over the snapshot's time."""
    too_few: str = ""
    """Why a ratio says nothing."""

    @property
    def key(self) -> str:
        """``probe/kind/name[/labels]``."""
        return metric_key(*self.identity)

    @property
    def probe(self) -> str:
        """The name of its probe."""
        return self.identity[0]

    @property
    def kind(self) -> MetricKind:
        """Counter, table, gauge or histogram."""
        return self.identity[1]

    @property
    def name(self) -> str:
        """Its name within the probe. For a table with several values it is ``table.column``."""
        return self.identity[2]

    @property
    def labels(self) -> MetricLabels:
        """Its labels with their values."""
        return self.identity[3]


@dataclass(slots=True)
class Distribution:
    """The samples of a histogram. ``sum`` is None when a part of it is not known."""

    count: int
    sum: float | None
    buckets: list[Bucket]

    @property
    def mean(self) -> float | None:
        """The exact mean. None when empty or not known."""
        return self.sum / self.count if self.count and self.sum is not None else None

    @property
    def mean_error(self) -> float:
        """Standard error of the mean. At most EFFECTIVE_SAMPLES samples count as independent."""
        n = sum(count for _, _, count in self.buckets)
        if not n:
            return 0.0
        mean = math.fsum((low + high) / 2 * count for low, high, count in self.buckets) / n
        variance = math.fsum(((low + high) / 2 - mean) ** 2 * count for low, high, count in self.buckets) / n
        return math.sqrt(variance / min(n, EFFECTIVE_SAMPLES))

    def percentile(self, percent: float) -> float | None:
        """The value below which ``percent`` of the samples are, interpolated within its bucket. None when empty.

        With the middle of the bucket, five runs would often have the same value, and so a spread of 0.
        """
        total = sum(count for _, _, count in self.buckets)
        rank = max(1.0, total * percent / 100)
        seen = 0
        for low, high, count in self.buckets:
            if count and seen + count >= rank:
                return low + (high - low) * (rank - seen) / count
            seen += count
        return None

    def above(self, limit: float) -> int:
        """Samples in buckets that begin at ``limit`` or above."""
        return sum(count for low, _, count in self.buckets if low >= limit)


@dataclass(slots=True)
class Metrics:
    """The metrics of one snapshot. ``partial`` tables have lost rows: there, a missing row is not known to be 0."""

    snapshot: Snapshot
    names: Names
    by_identity: dict[Identity, Metric] = field(default_factory=dict)
    partial: set[str] = field(default_factory=set)
    series: dict[ColumnKey, list[float]] = field(default_factory=dict)
    """Events in each interval of the snapshot, for counters and columns of tables."""
    manifests: Mapping[str, Manifest] = field(default_factory=dict)
    """Of the probes that are known here."""
    _meanings: dict[tuple[str, str], Meanings] = field(default_factory=dict)

    def add(self, metric: Metric) -> None:
        """Adds a metric."""
        self.by_identity[metric.identity] = metric

    def meanings(self, probe: str, name: str) -> Meanings:
        """What the labels of a table or histogram stand for."""
        found = self._meanings.get((probe, name))
        if found is None:
            found = self._meanings[probe, name] = Meanings(self.manifests.get(probe), name)
        return found


def flatten(snapshot: Snapshot, manifests: Mapping[str, Manifest] = NO_MANIFESTS) -> Metrics:
    """All metrics of the probes that measured. Without a probe's manifest, names of labels say what they stand for."""
    metrics = Metrics(snapshot, Names(snapshot.facts), manifests=manifests)
    for name, probe in snapshot.probes.items():
        if probe.status in MEASURED and name != OWN_COST:
            _counters(metrics, name, probe)
            for table, rows in probe.tables.items():
                if rows:
                    _table(metrics, name, probe, table, rows)
                if any(probe.ledger.get(entry) for entry in ROWS_LOST):
                    metrics.partial.add(f"{name}/table/{table}")
            for histogram, data in probe.histograms.items():
                _histogram(metrics, name, histogram, data)
    return metrics


def metric_key(probe: str, kind: MetricKind, name: str, labels: Iterable[tuple[str, SnapshotValue]] = ()) -> str:
    """The key of a metric. Label values that would be ambiguous are quoted as in JSON."""
    text = ",".join(f"{_quoted(label)}={_quoted(value)}" for label, value in labels)
    return f"{probe}/{kind}/{name}/{text}" if text else f"{probe}/{kind}/{name}"


def _counters(metrics: Metrics, name: str, probe: ProbeData) -> None:
    for counter, data in probe.counters.items():
        if data.total is not None:
            worse = _worse(data.worse, "count", counter, data.unit)
            count = data.total
            if data.duration_s and probe.duration_s is not None:
                count = round(count * probe.duration_s / data.duration_s)  # rates are of the probe's time
            metrics.add(Metric((name, "counter", counter, ()), data.unit, worse, count=count))
            series = _events_in_turn(probe.history.get(counter, ()), data.total, data.unit)
            metrics.series[name, "counter", counter] = series
            metrics.by_identity[name, "counter", counter, ()].parts = series or None


def _events_in_turn(per_s: Sequence[float | None], total: int, unit: str) -> list[float]:
    """The events in each of equal intervals, from their rates. Empty when there are no rates above 0."""
    known = [rate for rate in per_s if rate is not None and rate >= 0]
    whole, events = sum(known), total / EVENT_SIZES.get(unit, 1.0)
    return [rate / whole * events for rate in known] if 0 < whole < math.inf else []


def _table(metrics: Metrics, name: str, probe: ProbeData, table: str, rows: list[dict[str, SnapshotValue]]) -> None:
    columns = probe.columns.get(table) or _guessed(rows)
    labels = [label for label in columns.labels if label not in columns.values]
    described = _value_columns(name, probe, table, columns)
    known: dict[MetricLabels, dict[str, Metric]] = {}
    of_row: list[MetricLabels] = []
    per_cpu: dict[Identity, dict[SnapshotValue, int]] = {}
    meanings = metrics.meanings(name, table)
    on_cpu = meanings.first("cpu", labels)
    histories = {column: probe.row_history.get(f"{table}.{column}", ()) for column in described}
    for number, row in enumerate(rows):
        identity = metrics.names.stable(meanings, [(label, row.get(label)) for label in labels])
        of_row.append(identity)
        cells = known.get(identity)
        if cells is None:
            cells = known[identity] = _cells(name, described, identity)
        for column, metric in cells.items():
            value = row.get(column)
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                continue
            if not -MAX_COUNT <= value <= MAX_COUNT:
                continue
            if metric.kind == "gauge":
                metric.value = value if metric.value is None else max(metric.value, value)
            elif value > 0:
                in_turn = histories[column][number] if number < len(histories[column]) else ()
                _add_parts(metric, _events_in_turn(in_turn, int(value), metric.unit))
                metric.count += int(value)
                if metric.worse == "up" and on_cpu is not None and on_cpu in row:
                    cpus = per_cpu.setdefault(metric.identity, {})
                    cpus[row[on_cpu]] = cpus.get(row[on_cpu], 0) + int(value)
    manifest = metrics.manifests.get(name)
    if manifest is not None and table in manifest.tables:
        _set_ratios(known, manifest.tables[table], rows, of_row)
    for cells in known.values():
        for metric in cells.values():
            metrics.add(metric)
    for column, spec in described.items():
        per_s = probe.history.get(f"{table}.{column}", ())
        if per_s:
            total = sum(cells[column].count for cells in known.values())
            metrics.series[name, spec.kind, spec.name] = _events_in_turn(per_s, total, spec.unit)
    for whole, cpus in per_cpu.items():
        metrics.add(_busiest(metrics.by_identity[whole], max(cpus.values())))


def _set_ratios(
    known: Mapping[MetricLabels, Mapping[str, Metric]],
    spec: TableSpec,
    rows: Sequence[Mapping[str, SnapshotValue]],
    of_row: Sequence[MetricLabels],
) -> None:
    """Ratios are of the whole time. Each row weighs as much as it counted, unless that is too little."""
    ratios = [column for column in spec.value if column.part]
    if not ratios:
        return
    counted: dict[MetricLabels, dict[str, int]] = {}
    names = {name for column in ratios for name in (column.part, column.whole, spec.least[0])}
    for row, identity in zip(rows, of_row, strict=True):
        counts = {name: value for name in names if isinstance(value := row.get(name), int)}
        if not is_too_few(spec, counts):
            sums = counted.setdefault(identity, {})
            for name, count in counts.items():
                sums[name] = sums.get(name, 0) + count
    for identity, cells in known.items():
        for column in ratios:
            if (metric := cells.get(column.name)) is not None:
                metric.is_ratio, metric.value = True, ratio(spec, column, counted.get(identity, {}))
                metric.too_few = "" if identity in counted else too_few(spec)


def _add_parts(metric: Metric, parts: list[float]) -> None:
    """Adds the parts of one more row. The sum is None unless all rows have parts, and the same number of them."""
    if not metric.count:
        metric.parts = parts or None
    elif metric.parts is not None and len(parts) == len(metric.parts):
        metric.parts = [one + more for one, more in zip(metric.parts, parts, strict=True)]
    else:
        metric.parts = None


def _busiest(whole: Metric, count: int) -> Metric:
    """The share of the busiest CPU. Work moves between CPUs, but a CPU that has all of it is a bottleneck."""
    labels: MetricLabels = (*whole.labels, ("cpu", "busiest"))
    identity = (whole.probe, whole.kind, whole.name, labels)
    return replace(whole, identity=identity, count=count, counter=whole.identity, parts=None)


@dataclass(frozen=True, slots=True)
class _Cell:
    """A value column of a table: what is the same for all rows."""

    kind: MetricKind
    name: str
    unit: str
    worse: Worse
    counter: Identity | None


def _value_columns(probe: str, data: ProbeData, table: str, columns: TableColumns) -> dict[str, _Cell]:
    rows, several = data.tables[table], len(columns.values) > 1
    found = {}
    for column, spec in columns.values.items():
        if spec.unit == figure.INDEX:
            continue
        kind: MetricKind = "gauge" if spec.kind == "max" else "table"
        name, words = f"{table}.{column}" if several else table, f"{table} {column}"
        worse = _worse(spec.worse, "gauge" if kind == "gauge" else "count", words, spec.unit)
        counter = _conserved(probe, data, column, rows, spec)
        found[column] = _Cell(kind, name, spec.unit, worse, counter)
    return found


def _cells(probe: str, columns: Mapping[str, _Cell], labels: MetricLabels) -> dict[str, Metric]:
    """The metrics of one row, still 0. More drops of class benign (no listener, a firewall) are not always worse."""
    benign = ("class", "benign") in labels
    return {
        name: Metric(
            (probe, column.kind, column.name, labels),
            column.unit,
            None if benign else column.worse,
            counter=column.counter,
            benign=column.worse if benign else None,
        )
        for name, column in columns.items()
    }


def _worse(said: Polarity | None, kind: FigureKind, name: str, unit: str) -> Worse:
    """The direction that is worse, from the snapshot, else the usual one for such figures."""
    known = said or polarity(kind, name, unit)
    return None if known == "none" else known


def _guessed(rows: list[dict[str, SnapshotValue]]) -> TableColumns:
    """Guesses labels and values of a table that does not declare them: numbers are values, except known labels."""
    names = dict.fromkeys(name for row in rows for name in row)
    values = [
        name
        for name in names
        if name not in _LABEL_NAMES
        and all(isinstance(row.get(name), (int, float)) and not isinstance(row.get(name), bool) for row in rows)
    ]
    return TableColumns([name for name in names if name not in values], {name: ColumnData() for name in values})


def _conserved(
    name: str, probe: ProbeData, column: str, rows: list[dict[str, SnapshotValue]], spec: ColumnData
) -> Identity | None:
    """The counter that is the sum of a column's rows, if there is one."""
    if spec.kind == "max" or not probe.counters:
        return None
    total = sum(value for row in rows if isinstance(value := row.get(column), int))
    for counter, data in probe.counters.items():
        if total and data.total == total:
            return name, "counter", counter, ()
    return None


def _histogram(metrics: Metrics, name: str, histogram: str, data: HistogramData) -> None:
    merged: dict[MetricLabels, list[HistogramData]] = {}
    meanings = metrics.meanings(name, histogram)
    for part in data.by or [data]:
        merged.setdefault(metrics.names.stable(meanings, part.labels.items()), []).append(part)
    for labels, members in merged.items():
        unit = members[0].unit or data.unit
        worse = _worse(data.worse, "histogram", histogram, unit)
        metrics.add(Metric((name, "histogram", histogram, labels), unit, worse, histogram=added(members)))


def added(parts: Iterable[HistogramData | Distribution]) -> Distribution:
    """The sum of several histograms of the same unit."""
    counts: dict[tuple[float, float], int] = {}
    total, samples = 0.0, 0
    whole = True
    for part in parts:
        samples += part.count
        whole = whole and (part.sum is not None or not part.count)
        total += part.sum or 0.0
        for low, high, count in part.buckets:
            counts[low, high] = counts.get((low, high), 0) + count
    buckets = [(low, high, count) for (low, high), count in sorted(counts.items())]
    return Distribution(samples, total if whole else None, buckets)


def _quoted(value: SnapshotValue) -> str:
    if isinstance(value, str):
        return _quoted_text(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


@lru_cache(maxsize=65536)
def _quoted_text(text: str) -> str:
    return text if _UNQUOTED.fullmatch(text) else json.dumps(text, ensure_ascii=False).replace("/", "\\/")
