"""What stands out by the rules beside the probes: rows of tables, and percentiles of histograms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from netconsole.findings.causes import ANYWHERE
from netconsole.findings.match import Evidence, Late, Match
from netconsole.findings.rules import (
    commands,
    fits,
    is_urgent,
    rule_of,
    say,
    state_of,
    words_of_gauges,
    words_of_histogram,
    words_of_table,
)
from netconsole.findings.share import Packets
from netconsole.findings.windows import LONG, MIN_SAMPLES, PAUSE, SHORT, Family, Window, Windows
from netconsole.probes.manifest import ColumnSpec, FindingSpec, Manifest
from netconsole.snapshot.passing import passing
from netconsole.telemetry.frames import Label
from netconsole.telemetry.ledger import LEDGER_COUNTS
from netconsole.telemetry.state import ProbeState
from netconsole.telemetry.tables import RowKey, TableState

HISTORY = 60
"""Samples of the sparkline beside an incident: one minute."""
RULE = "rule"
"""In the place of an incident that is of one row: its rule."""
AT_ONCE_FACTOR = 10.0
"""A rate so many times over its limit is said after one interval, whatever its level."""
HANDFUL = 10
"""Fewer packets in a minute are to look at (``!``), also where a rule says to act."""
LATE_AFTER = 2.0
"""A table that is of so many intervals or more was read late."""
LASTS = {SHORT: 3, LONG: 5}
"""In how many intervals at least a small rate must have moved, to be called lasting."""


def is_lower_bound(probe: ProbeState) -> bool:
    """Whether the probe missed some of what it counts in the last interval.

    A packet that could not be parsed is counted all the same, unless a filter asks for what was not found in it.
    """
    ledger = probe.cost.ledger
    is_filtered = any(probe.knobs.get(name) for name in ("address", "port", "protocol"))
    entries = [entry for entry in LEDGER_COUNTS if entry != "parse_failed" or is_filtered]
    return any(ledger[entry].delta for entry in entries if entry in ledger)


def _place(rule: FindingSpec, labels: Mapping[str, Label], kind: str) -> dict[str, Label]:
    """Where a row is. A rule that names no cause of its own is one cause for each row."""
    if rule.cause:
        return {name: labels.get(name) for name in rule.place}
    return {**labels, RULE: f"{kind} {rule.table} {rule.value}"}


def _elsewhere(rule: FindingSpec, labels: Mapping[str, Label]) -> dict[str, Label]:
    """The other place where the loss of a row may be told; empty where the row names none."""
    found = {name: labels.get(label) for name, label in rule.elsewhere.items()}
    return {} if any(value in ANYWHERE for value in found.values()) else found


def of_table(
    probe: ProbeState, manifest: Manifest, rule: FindingSpec, windows: Windows, packets: Packets, length_s: float
) -> Iterator[Match]:
    table = probe.tables.get(rule.table)
    spec = manifest.tables.get(rule.table)
    column = next((column for column in spec.value if column.name == rule.value), None) if spec else None
    if table is None or spec is None or column is None:
        return
    if column.kind == "max":
        for row in table.rows.values():
            value = row.gauges.get(rule.value)
            one = rule_of(rule, spec.causes, row.labels) if value is not None and value > rule.over else None
            if value is not None and one is not None:
                words = words_of_gauges(spec, row.gauges)
                yield _match(
                    probe, one, column, words, row.labels, row.key, float(value), is_urgent(one, value), (), None
                )  # fmt: skip
        return
    family = Family(probe.name, rule.table, rule.value)
    for key, window in windows.of(family).items():
        one = rule_of(rule, spec.causes, window.row.labels)
        if one is None:
            continue
        is_new = partial(windows.is_new, family, window, probe.timeline.tick)
        judged = _judged(probe, one, window, packets, length_s, is_new)
        if judged is None:
            continue
        value, lasting, share = judged
        words = words_of_gauges(spec, window.row.gauges)
        late = _late(window, rule.value, table, length_s)
        yield _match(
            probe, one, column, words, window.row.labels, key, value,
            is_urgent(one, value) and not lasting and not _is_a_handful(one, window, probe.timeline.tick),
            tuple(table.history(key, rule.value, HISTORY)), family, share, lasting, late,
        )  # fmt: skip


def _is_a_handful(rule: FindingSpec, window: Window, tick: int) -> bool:
    """Whether so few were counted in the last minute that nobody has to act now. Where each one counts it is not."""
    return rule.over >= 1.0 and sum(move.likely for move in window.moves if move.tick > tick - LONG) < HANDFUL


def _judged(
    probe: ProbeState,
    rule: FindingSpec,
    window: Window,
    packets: Packets,
    length_s: float,
    is_new: Callable[[], bool],
) -> tuple[float, bool, float | None] | None:
    """The rate per second to be said of a row, whether it is small and lasting, and its share in percent if known.

    None: it does not stand out.
    """
    tick = probe.timeline.tick
    newest = window.moves[-1]
    # One packet alone is no rate, though an interval may be a little shorter than a second.
    moves_now = newest.tick == tick and newest.likely > min(1.0, rule.over)
    rate = (window.row.per_s(rule.value) or 0.0) if moves_now else 0.0
    at_once = rule.at_once if rule.at_once is not None else rule.over * (1 if rule.level == "!!" else AT_ONCE_FACTOR)
    if rate > rule.over and rate >= at_once:
        share = _share_pct(rule, window, packets, PAUSE, tick, SHORT)
        if not rule.share_of or share is None or share >= (rule.share_pct or 0.0):
            return rate, False, share
    for intervals, least in ((SHORT, rule.over), (LONG, rule.lasting)):
        if least is None or window.moved_in(tick, intervals) < LASTS[intervals]:
            continue
        if window.mean_per_s(tick, intervals, length_s) <= least:
            continue
        # What it was as long as it moved: a mean of now falls when all is over.
        mean = window.mean_per_s(window.moves[-1].tick, intervals, length_s)
        share = _share_pct(rule, window, packets, LONG, tick, intervals)
        if rule.share_pct is None or share is None or share >= rule.share_pct:
            return mean, True, share
        # Ten times as much as in the minute before, and not because there is more traffic.
        labels = window.row.labels
        if (
            not rule.share_of
            and is_new()
            and not packets.are_new(labels, passing(rule.cause, rule.value, labels).counter)
        ):
            return mean, True, share
    return None


def _share_pct(
    rule: FindingSpec, window: Window, packets: Packets, gap: int, tick: int, intervals: int
) -> float | None:
    """The share of what came in the same time; None when that is not known."""
    if rule.share_of:
        return window.share_pct(tick, intervals)
    return packets.share_pct(rule, window, gap)


def _match(
    probe: ProbeState,
    rule: FindingSpec,
    column: ColumnSpec,
    gauges: Mapping[str, str],
    labels: Mapping[str, Label],
    key: RowKey,
    value: float,
    urgent: bool,
    history: tuple[float | None, ...],
    family: Family | None,
    share: float | None = None,
    lasting: bool = False,
    late: Late | None = None,
) -> Match:
    return Match(
        Evidence("table", probe.name, rule.table, key),
        rule.cause or f"{probe.name}/{rule.table}/{rule.value}",
        "ok" if rule.level == "ok" else "!!" if urgent else "!",
        partial(_say_row, rule, column, gauges),
        value,
        value,
        _place(rule, labels, "table"),
        labels,
        column.unit,
        rule.next,
        commands(rule, labels),
        history,
        rule.specific,
        rule.explains,
        _elsewhere(rule, labels),
        share,
        family,
        lasting,
        joins=rule.joins,
        state=state_of(rule, labels),
        late=late,
        share_of=column.unit if rule.share_of else "packets",
    )


def _late(window: Window, value: str, table: TableState, length_s: float) -> Late | None:
    """None of a row that is read in every interval. A whole table is late where its source was slow."""
    last_ns = window.row.read_ns(value)
    if window.span_ns:
        return Late(last_ns - window.span_ns, window.counted)
    read_ns = next((end_ns - begin_ns for _, begin_ns, end_ns in table.spans()), 0)
    if read_ns <= LATE_AFTER * length_s * 1e9:
        return None
    return Late(last_ns - read_ns, window.moves[-1].likely)


def _say_row(
    rule: FindingSpec,
    column: ColumnSpec,
    gauges: Mapping[str, str],
    labels: Mapping[str, Label],
    rate: float,
    total: int | None,
    at_least: bool | str,
    total_at_least: bool | str,
    is_peak: bool,
) -> str:
    said = words_of_table(rule, column, rate, total, at_least, total_at_least, is_peak)
    return say(rule, labels, {**gauges, **said})


def _say_percentile(
    rule: FindingSpec,
    unit: str,
    per_s: float | None,
    count: int,
    half: float | None,
    labels: Mapping[str, Label],
    value: float,
    _total: int | None,
    _at_least: bool | str,
    _total_at_least: bool | str,
    _is_peak: bool,
) -> str:
    return say(rule, labels, words_of_histogram(value, unit, per_s, count, half))


def of_histograms(probe: ProbeState, rule: FindingSpec, windows: Windows) -> Iterator[Match]:
    group = probe.histograms.get(rule.table)
    for row in group.rows.values() if group else ():
        value = row.percentile(rule.percentile, "delta")
        if value is None or value <= rule.over or row.delta.count < MIN_SAMPLES or not fits(rule, row.labels):
            continue
        is_far = rule.times_past is None or value > rule.times_past * rule.over
        if not is_far and not windows.is_later(probe.name, rule, row, rule.percentile):
            continue
        half = row.percentile(50.0, "delta")
        said = replace(rule, say=rule.say_half) if rule.say_half and half is not None and half > rule.over else rule
        words = said, row.unit, row.per_s, row.total.count, half
        yield Match(
            Evidence("histogram", probe.name, rule.table, row.key),
            rule.cause or f"{probe.name}/{rule.table}",
            "!!" if rule.level == "!!" else "!",
            partial(_say_percentile, *words),
            value,
            (row.per_s or 0.0) * (1 - rule.percentile / 100),
            _place(rule, row.labels, "histogram"),
            row.labels,
            row.unit,
            rule.next,
            commands(rule, row.labels),
            tuple(group.history(row.key, HISTORY)) if group else (),
            rule.specific,
            rule.explains,
            needed=2,
            state=state_of(rule, row.labels),
        )
