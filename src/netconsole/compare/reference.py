"""Compares single figures of a running session with a baseline. It finds the baseline's figure once, and keeps it.

Rows are matched as in :mod:`netconsole.compare.compare`: by probe, name and labels, with stable names for volatile
labels. When several rows then have the same labels (a softirq on all CPUs), their sum is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from netconsole.base.fact_keys import FactData
from netconsole.compare.comparable import other_scope, probe_differs, within
from netconsole.compare.compare import not_zero
from netconsole.compare.judge import MIN_RATIO, least_difference
from netconsole.compare.labels import Meanings, MetricLabels, Names
from netconsole.compare.metrics import (
    EVENT_SIZES,
    NO_MANIFESTS,
    Identity,
    MetricKind,
    Metrics,
    flatten,
    metric_key,
)
from netconsole.compare.significance import median
from netconsole.probes.knobs import filters_set
from netconsole.probes.manifest import ColumnSpec, Manifest
from netconsole.probes.polarity import Polarity
from netconsole.snapshot.document import ProbeData, Snapshot, seconds
from netconsole.telemetry.histogram import add, percentile
from netconsole.telemetry.state import ProbeState
from netconsole.telemetry.tables import HistogramState, RowKey, RowState

MIN_EVENTS_PER_S = 1.0
"""A smaller difference of a rate counts as the same."""
_OF_TABLES: tuple[MetricKind, ...] = ("table", "gauge")
_MAX_KNOWN = 100_000
"""The most figures to keep: more than any host shows at once."""

Word: TypeAlias = Literal["worse", "better", "more", "less", "same"]
ReadFigure: TypeAlias = Callable[[Metrics], float | None]


@dataclass(frozen=True, slots=True)
class FigureChange:
    """One figure and the baseline's, both in ``unit``. ``together``: they are the sum of several rows."""

    now: float
    baseline: float
    unit: str
    word: Word
    together: bool = False

    @property
    def ratio(self) -> float | None:
        """Now divided by baseline. None when the baseline is 0."""
        return self.now / self.baseline if self.baseline else None

    @property
    def difference(self) -> float:
        """Now minus baseline."""
        return self.now - self.baseline


@dataclass(frozen=True, slots=True)
class _Typical:
    """Median, lowest and highest value of the baseline's runs."""

    value: float
    low: float
    high: float


@dataclass(slots=True)
class _RowGroup:
    """The rows of one table by their stable labels. It is valid as long as the table has the same rows."""

    rows: object = None
    size: int = -1
    labels: dict[RowKey, MetricLabels] = field(default_factory=dict)
    members: dict[MetricLabels, list[RowKey]] = field(default_factory=dict)


class Reference:
    """A baseline of one or more snapshots. Not thread-safe, except :attr:`metrics`, which never changes."""

    def __init__(
        self,
        name: str,
        snapshots: Sequence[Snapshot],
        facts: Mapping[str, FactData],
        manifests: Mapping[str, Manifest] = NO_MANIFESTS,
        scope: Mapping[str, str] | None = None,
    ) -> None:
        """``facts`` are of the measured host. They say which VM its taps and threads belong to.

        ``scope``: what is measured now (:func:`netconsole.profile.scope.said`).
        """
        self.name = name
        self._scope = scope or {}
        narrow = [within(snapshot, self._scope, manifests) for snapshot in snapshots]
        self.metrics = [_without_rows(flatten(snapshot, manifests)) for snapshot in narrow]
        self.learn(facts)

    def learn(self, facts: Mapping[str, FactData]) -> None:
        """Takes newer facts of the measured host."""
        self._names = Names(facts)
        self._groups: dict[tuple[str, str], _RowGroup] = {}
        self._typical: dict[tuple[Identity, str], _Typical | None] = {}
        self._usable: dict[str, tuple[tuple[object, ...], list[Metrics], str | None]] = {}

    def knows_device(self, device: str) -> bool:
        """Whether the facts name the VM of this tap."""
        return device in self._names.taps

    @property
    def other_scope(self) -> str | None:
        """Why no figure at all can be compared: all runs are of another scope. None where some may."""
        reasons = [other_scope(self._scope, one.snapshot.profile.scope) for one in self.metrics]
        return None if None in reasons else reasons[0]

    def why_not(self, probe: ProbeState, manifest: Manifest) -> str | None:
        """Why the figures of a probe cannot be compared with the baseline. None when they can."""
        return self._sides(probe, manifest)[1]

    def counter(self, probe: ProbeState, manifest: Manifest, name: str) -> FigureChange | None:
        """Compares the rate of a counter in the last interval. None when one side is not known."""
        counter, spec = probe.counters.get(name), manifest.counters.get(name)
        now = counter.count.per_s if counter else None
        if now is None or spec is None:
            return None
        typical = self._count(probe, manifest, (manifest.name, "counter", name, ()), spec.unit)
        return None if typical is None else _figure_change(now, typical, spec.unit, spec.worse, True)

    def value(
        self, probe: ProbeState, manifest: Manifest, table: str, row: RowState, value: ColumnSpec
    ) -> FigureChange | None:
        """Compares the rate of a row in the last interval, or its gauge. None when one side is not known."""
        spec, rows = manifest.tables[table], probe.tables[table].rows
        group = self._group(manifest, table, rows, row.key, spec.labels)
        labels = group.labels.get(row.key)
        if labels is None:
            return None
        keys = group.members[labels]
        members = [rows[key] for key in keys if key in rows]
        is_gauge = value.kind == "max"
        figures = [one.gauges.get(value.name) if is_gauge else one.per_s(value.name) for one in members]
        known = [one for one in figures if one is not None]
        if not known:
            return None
        name = f"{table}.{value.name}" if len(spec.value) > 1 else table
        worse: Polarity = "none" if ("class", "benign") in labels else value.worse
        identity: Identity = (manifest.name, "gauge" if is_gauge else "table", name, labels)
        typical = self._count(probe, manifest, identity, value.unit)
        if typical is None:
            return None
        now = max(known) if is_gauge else sum(known)
        return _figure_change(now, typical, value.unit, worse, not is_gauge, len(members) > 1)

    def percentile(
        self, probe: ProbeState, manifest: Manifest, histogram: str, row: HistogramState, percent: float
    ) -> FigureChange | None:
        """Compares a percentile of the last interval. None when one side has no samples."""
        rows = probe.histograms[histogram].rows
        group = self._group(manifest, histogram, rows, row.key)
        labels = group.labels.get(row.key)
        if labels is None:
            return None
        members = [rows[key] for key in group.members[labels] if key in rows]
        now = percentile(add(one.delta for one in members), percent)
        identity: Identity = (manifest.name, "histogram", histogram, labels)

        def reading(side: Metrics) -> float | None:
            metric = side.by_identity.get(identity)
            if metric is None or metric.histogram is None or metric.unit not in ("", row.unit):
                return None
            return metric.histogram.percentile(percent)

        typical = self._reading(probe, manifest, identity, f"{percent:g}", reading)
        if now is None or typical is None:
            return None
        worse = manifest.histograms[histogram].worse
        return _figure_change(now, typical, row.unit, worse, False, len(members) > 1)

    def locate(
        self, probes: Mapping[str, ProbeState], manifests: Mapping[str, Manifest], metric: str
    ) -> tuple[str, Literal["table", "histogram"], str, RowKey] | None:
        """The first row of a comparison's metric: probe, kind, name and key. None when there is none."""
        name = metric.partition("/")[0]
        probe, manifest = probes.get(name), manifests.get(name)
        if probe is None or manifest is None:
            return None
        metric = metric.removesuffix(",cpu=busiest").removesuffix("/cpu=busiest")
        for table, state in probe.tables.items():
            spec = manifest.tables.get(table)
            values = spec.value if spec else ()
            titles = [f"{table}.{value.name}" if len(values) > 1 else table for value in values]
            for key in state.rows if spec else ():
                labels = self._group(manifest, table, state.rows, key, spec.labels if spec else None).labels[key]
                if any(metric_key(name, kind, title, labels) == metric for title in titles for kind in _OF_TABLES):
                    return name, "table", table, key
        for histogram, group in probe.histograms.items():
            for key in group.rows:
                labels = self._group(manifest, histogram, group.rows, key).labels[key]
                if metric_key(name, "histogram", histogram, labels) == metric:
                    return name, "histogram", histogram, key
        return None

    def _count(self, probe: ProbeState, manifest: Manifest, identity: Identity, unit: str) -> _Typical | None:
        def reading(side: Metrics) -> float | None:
            metric = side.by_identity.get(identity)
            if metric is None:
                return 0.0 if identity[1] != "gauge" and not_zero(identity, side, "baseline") is None else None
            if metric.unit not in ("", unit):
                return None
            return metric.value if metric.kind == "gauge" else metric.count / seconds(side.snapshot, identity[0])

        return self._reading(probe, manifest, identity, "", reading)

    def _reading(
        self, probe: ProbeState, manifest: Manifest, identity: Identity, what: str, reading: ReadFigure
    ) -> _Typical | None:
        sides, _ = self._sides(probe, manifest)
        key = identity, what
        if key not in self._typical:
            if len(self._typical) >= _MAX_KNOWN:
                self._typical.clear()
            known = [value for side in sides if (value := reading(side)) is not None]
            self._typical[key] = _Typical(median(known), min(known), max(known)) if known else None
        return self._typical[key]

    def _sides(self, probe: ProbeState, manifest: Manifest) -> tuple[list[Metrics], str | None]:
        """The snapshots of the baseline that a running probe can be compared with; if there are none, the reason."""
        filters = filters_set(probe.knobs)
        standing = probe.status, probe.mode, tuple(probe.attach), tuple(filters.items())
        found = self._usable.get(manifest.name)
        if found is None or found[0] != standing:
            now = ProbeData(
                probe.status, mode=probe.mode, version=manifest.version, attach=list(probe.attach),
                filters=dict(filters),
            )  # fmt: skip
            reasons, sides = [], []
            for side in self.metrics:
                past = side.snapshot.probes.get(manifest.name)
                why = other_scope(self._scope, side.snapshot.profile.scope) or probe_differs(
                    now, past, seconds(side.snapshot, manifest.name)
                )
                sides.append(side) if why is None else reasons.append(why)
            found = self._usable[manifest.name] = standing, sides, None if sides else reasons[0]
            self._typical = {key: known for key, known in self._typical.items() if key[0][0] != manifest.name}
        return found[1], found[2]

    def _group(
        self,
        manifest: Manifest,
        name: str,
        rows: Mapping[RowKey, RowState] | Mapping[RowKey, HistogramState],
        wanted: RowKey,
        order: Sequence[str] | None = None,
    ) -> _RowGroup:
        """The rows of a table by their stable labels. ``order``: the order of labels, by default that of each row."""
        group = self._groups.setdefault((manifest.name, name), _RowGroup())
        if group.rows is rows and group.size == len(rows) and wanted in group.labels:
            return group
        known, group.rows, group.size = group.labels, rows, len(rows)
        group.labels, group.members = {}, {}
        meanings = Meanings(manifest, name)
        for key, row in rows.items():
            labels = known.get(key)
            if labels is None:
                labels = self._names.stable(meanings, [(label, row.labels.get(label)) for label in order or row.labels])
            group.labels[key] = labels
            group.members.setdefault(labels, []).append(key)
        return group


def _figure_change(
    now: float, typical: _Typical, unit: str, worse: Polarity, per_second: bool, together: bool = False
) -> FigureChange:
    """A figure with its change in a word. It is "same" within the baseline's range, or with a small difference."""
    floor = MIN_EVENTS_PER_S * EVENT_SIZES.get(unit, 1.0) if per_second else least_difference(unit)
    least, most = sorted((abs(now), abs(typical.value)))
    word: Word
    if typical.low <= now <= typical.high or abs(now - typical.value) < floor or most < MIN_RATIO * least:
        word = "same"
    elif worse == "none":
        word = "more" if now > typical.value else "less"
    else:
        word = "worse" if (now > typical.value) == (worse == "up") else "better"
    return FigureChange(now, typical.value, f"{unit}/s" if per_second else unit, word, together)


def _without_rows(metrics: Metrics) -> Metrics:
    """Removes the documents of the metrics: they would take memory as long as the console runs."""
    snapshot = metrics.snapshot
    probes = {
        name: msgspec.structs.replace(probe, tables={}, histograms={}, events=[], history={}, row_history={})
        for name, probe in snapshot.probes.items()
    }
    metrics.snapshot = msgspec.structs.replace(snapshot, probes=probes)
    return metrics
