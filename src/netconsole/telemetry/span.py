"""What happened in a stretch of time: the figures of a state since a mark. Marks are totals of probes at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from netconsole.telemetry.frames import Buckets, Event
from netconsole.telemetry.histogram import since
from netconsole.telemetry.state import ProbeState, State
from netconsole.telemetry.tables import RowKey, RowState, TableState


@dataclass(frozen=True, slots=True)
class ProbeTotals:
    """What a probe had counted at a moment."""

    counters: Mapping[str, int]
    rows: Mapping[tuple[str, RowKey], Mapping[str, int]]
    histograms: Mapping[tuple[str, RowKey], Buckets]
    programs: Mapping[str, tuple[int, int, int]]
    elapsed_ns: int
    read_mono_ns: int | None
    events: Mapping[str, int]
    ledger: Mapping[str, int]
    arrived: int
    tick: int = 0


NOTHING = ProbeTotals({}, {}, {}, {}, 0, None, {}, {}, 0)
"""At its first frame."""


def probe_totals(probe: ProbeState) -> ProbeTotals:
    """The totals of a probe now."""
    return ProbeTotals(
        {name: counter.count.total for name, counter in probe.counters.items()},
        {
            (table.name, key): {name: count.total for name, count in row.counts.items()}
            for table in probe.tables.values()
            for key, row in table.rows.items()
        },
        {(group.name, key): row.total for group in probe.histograms.values() for key, row in group.rows.items()},
        probe.cost.sums(),
        probe.cost.elapsed_ns,
        probe.cost.read_mono_ns,
        {name: count.total for name, count in probe.cost.events.items()},
        {name: count.total for name, count in probe.cost.ledger.items()},
        probe.events_arrived,
        probe.timeline.tick,
    )


def totals_before(probe: ProbeState) -> ProbeTotals:
    """The totals when its last interval began, of its rows and its ledger."""
    now = probe_totals(probe)
    rows = dict(now.rows)
    ledger = {name: count.total - count.delta for name, count in probe.cost.ledger.items()}
    for table in probe.tables.values():
        for row in table.moving():
            rows[table.name, row.key] = {name: one.total - (one.delta or 0) for name, one in row.counts.items()}
    return replace(now, rows=rows, ledger=ledger)


def has_gone_back(probe: ProbeState, start: ProbeTotals) -> bool:
    """Whether a counter is lower than at the start: then the probe was loaded again, and counts from 0."""
    return any(counter.count.total < start.counters.get(name, 0) for name, counter in probe.counters.items())


def rows_since(table: TableState, start: ProbeTotals) -> Iterator[tuple[RowState, dict[str, int]]]:
    """The rows that have counted something since ``start``, or have gauges, with their counts since."""
    for key, row in table.rows.items():
        before = start.rows.get((table.name, key), {})
        counts = {name: since(count.total, before.get(name, 0)) for name, count in row.counts.items()}
        if any(counts.values()) or row.gauges:
            yield row, counts


def figures(rows: Iterable[tuple[RowState, dict[str, int]]]) -> list[dict[str, str | int | float | None]]:
    """Rows with what they have counted: labels, counts and gauges by name."""
    return [{**row.labels, **counts, **row.gauges} for row, counts in rows]


def ledger_since(probe: ProbeState, start: ProbeTotals) -> dict[str, int]:
    """What its ledger has grown by since ``start``."""
    grown = {name: since(count.total, start.ledger.get(name, 0)) for name, count in probe.cost.ledger.items()}
    return {name: value for name, value in grown.items() if value}


def events_since(probe: ProbeState, start: ProbeTotals) -> list[Event]:
    """The samples that have arrived since ``start``, as far as they are kept."""
    arrived = probe.events_arrived - start.arrived
    return list(probe.events)[-arrived:] if arrived > 0 else []


@dataclass(frozen=True, slots=True)
class Span:
    """The figures of a state since the marks of its probes; of one without a mark since its first frame."""

    state: State
    marks: Mapping[str, ProbeTotals] = field(default_factory=dict)

    def moved(self, probe: str, table: str) -> Iterator[tuple[RowState, dict[str, int]]]:
        """The rows of a table that have counted something, or have gauges, with what they have counted."""
        known = self.state.table(probe, table)
        if known is not None:
            yield from rows_since(known, self.marks.get(probe, NOTHING))

    def rows(self, probe: str, table: str) -> list[dict[str, str | int | float | None]]:
        """The same: labels, counts and gauges by name."""
        return figures(self.moved(probe, table))

    def events(self, probe: str) -> list[Event]:
        """The samples of a probe that are kept, the oldest first."""
        known = self.state.probes.get(probe)
        return events_since(known, self.marks.get(probe, NOTHING)) if known is not None else []

    def ledger(self, probe: str) -> dict[str, int]:
        """What a probe has missed."""
        known = self.state.probes.get(probe)
        return ledger_since(known, self.marks.get(probe, NOTHING)) if known is not None else {}
