"""What stands out in one interval: every row, histogram or state that a rule speaks of, before causes are joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

from netconsole.base import figure
from netconsole.budget.spending import Limit, Spending, spendings
from netconsole.findings.rules import (
    MIN_SAMPLES,
    commands,
    fits,
    say,
    supersedes,
    words_of_histogram,
    words_of_table,
)  # fmt: skip
from netconsole.findings.windows import LONG, SHORT, Family, Window, Windows
from netconsole.probes.manifest import ColumnSpec, FindingSpec, Manifest
from netconsole.profile.profile import Budget
from netconsole.session.protocol import Connection
from netconsole.telemetry.frames import Label
from netconsole.telemetry.ledger import LEDGER_COUNTS, LEDGER_FAULTS
from netconsole.telemetry.state import ProbeState, State
from netconsole.telemetry.tables import RowKey

Level: TypeAlias = Literal["ok", "!", "!!", "?"]
EvidenceKind: TypeAlias = Literal["table", "histogram", "probe", "collector"]
Say: TypeAlias = Callable[[float, int | None, bool, bool], str]
"""The sentence, given a rate or value, a total, whether both are lower bounds, and whether the value is a peak."""

OVER_BUDGET_AFTER = 10
"""Intervals in a row for what watching costs: starting up is dear, and over by then."""
HISTORY = 60
"""Samples of the sparkline beside an incident: one minute."""
DIRECTIONS = ("rx_packets", "tx_packets")
MAX_PER_RULE = 50
AT_ONCE_FACTOR = 10.0
"""A rate so many times over its limit is said after one interval, whatever its level."""
LASTS = {SHORT: 3, LONG: 5}
"""In how many intervals at least a small rate must have moved, to be called lasting."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where the proof is: a row of a table, one histogram, a probe's status, or the collector's (``probe`` empty)."""

    kind: EvidenceKind
    probe: str
    name: str = ""
    key: RowKey = ()


@dataclass(frozen=True, slots=True)
class Match:
    """What stands out in one interval.

    ``value`` is a rate per second, or a gauge or percentile in ``unit``; ``weight`` is events per second that it
    explains.
    """

    evidence: Evidence
    cause: str
    level: Level
    sentence: Say
    value: float
    weight: float
    place: Mapping[str, Label] = field(default_factory=dict)
    labels: Mapping[str, Label] = field(default_factory=dict)
    unit: str = ""
    next: str = ""
    commands: tuple[str, ...] = ()
    history: tuple[float | None, ...] = ()
    specific: int = 0
    explains: tuple[str, ...] = ()
    share_pct: float | None = None
    family: Family | None = None
    """What its row counts; None for gauges, percentiles and states, which have no total."""
    lasting: bool = False
    needed: int = 1
    """In how many intervals in a row it must be found before it is said."""


def matches(
    state: State,
    manifests: Mapping[str, Manifest],
    windows: Windows,
    budget: Budget | None = None,
    connection: Connection | None = None,
) -> list[Match]:
    """Everything that stands out in this one interval."""
    if connection is not None and connection.phase == "lost":
        # What the probes last said is old: only the loss itself is known.
        return [_collector_lost(connection)]
    found = list(_costs(state, budget or Budget()))
    packets = Packets(state)
    for probe in state.probes.values():
        manifest = manifests.get(probe.name)
        found.extend(_status(probe, manifest))
        if manifest is None or not probe.measuring:
            continue
        of_probe: dict[Evidence, Match] = {}
        for rule in manifest.findings:
            of_rule = (
                _of_histograms(probe, rule) if rule.histogram else _of_table(probe, manifest, rule, windows, packets)
            )
            for match in sorted(of_rule, key=lambda match: -match.weight)[:MAX_PER_RULE]:
                known = of_probe.get(match.evidence)
                if known is None or supersedes(match.level, known.level):
                    of_probe[match.evidence] = match
                    if known is not None and known.family is None and known.cause == match.cause:
                        found.append(known)  # a state that goes on when what is counted in it has stopped
        found.extend(of_probe.values())
    return found


class Packets:
    """How many packets pass each device, and the whole host: what a loss is a share of."""

    def __init__(self, state: State) -> None:
        self._by_device: dict[tuple[Label, Label], tuple[float, RowKey]] = {}
        links = state.probes.get("link_rates")
        self._table = links.tables.get("links") if links is not None and links.measuring else None
        for row in self._table.rows.values() if self._table is not None else ():
            rates = [rate for name in DIRECTIONS if (rate := row.per_s(name)) is not None]
            if rates:
                place = row.labels.get("netns") or "host", row.labels.get("device")
                self._by_device[place] = max(rates), row.key

    def per_s(self, labels: Mapping[str, Label], intervals: int = 1) -> float | None:
        """Of the device that these labels name, in its busier direction; None when it is not known.

        Over so many intervals, or over the last one where more are not known.
        """
        rate, key = self._by_device.get((labels.get("netns") or "host", labels.get("device")), (None, None))
        if self._table is None or key is None or intervals == 1:
            return rate
        past = [self._table.history(key, name, intervals) for name in DIRECTIONS]
        means = [sum(one or 0.0 for one in samples) / intervals for samples in past if samples]
        return max(means, default=rate)


def is_lower_bound(probe: ProbeState) -> bool:
    """Whether the probe missed some of what it counts in the last interval.

    A packet that could not be parsed is counted all the same, unless a filter asks for what was not found in it.
    """
    ledger = probe.cost.ledger
    is_filtered = any(probe.knobs.get(name) for name in ("address", "port", "protocol"))
    entries = [entry for entry in LEDGER_COUNTS if entry != "parse_failed" or is_filtered]
    return any(ledger[entry].delta for entry in entries if entry in ledger)


def looked_at(state: State, manifests: Mapping[str, Manifest]) -> str:
    """What was looked at when nothing stands out: `nothing stands out in 7 probes; ovs_flows: no Open vSwitch here`."""
    measuring = [probe for probe in state.probes.values() if probe.measuring]
    waiting = [figure.safe(probe.name) for probe in state.probes.values() if not probe.settled]
    parts = []
    if measuring:
        parts.append(f"nothing stands out in {len(measuring)} probe{'s' if len(measuring) != 1 else ''}")
    if waiting:
        parts.append(f"still to come: {', '.join(waiting)}")
    silent: dict[str, list[str]] = {}
    for probe in state.probes.values():
        if probe.status in ("unsupported", "off"):
            # The rest of a reason tells what exactly is missing: the probe's own page has it.
            reason = (probe.why or probe.status).partition("; ")[0]
            silent.setdefault(reason, []).append(figure.safe(probe.name))
    parts += [f"{', '.join(names)}: {figure.safe(reason)}" for reason, names in silent.items()]
    return "; ".join(parts) or "nothing is measured yet"


def _fixed(sentence: str) -> Say:
    return lambda *_unused: sentence


def _collector_lost(connection: Connection) -> Match:
    why = figure.safe(connection.why or "no reason known")
    wait = "" if connection.retry_in_s is None else f"; it starts again in {connection.retry_in_s:.0f} s"
    return Match(
        Evidence("collector", ""), "collector-lost", "!!", _fixed(f"the collector was lost: {why}{wait}"), 0.0,
        float("inf"),
        next="All figures are from before the loss. If it goes on, `netconsole doctor` says what is missing.",
    )  # fmt: skip


def _status(probe: ProbeState, manifest: Manifest | None) -> Iterator[Match]:
    title = manifest.title if manifest else figure.safe(probe.name)
    place: dict[str, Label] = {"probe": probe.name}
    evidence = Evidence("probe", probe.name)
    if probe.status == "failed":
        why = figure.safe(probe.why or "no reason known")
        help = figure.safe(probe.help) if probe.help else "`netconsole doctor` says more."
        yield Match(evidence, "not-measured", "?", _fixed(f"{title}: not measured: {why}"), 0.0, 0.0, place, next=help)
    if manifest is None and probe.why and probe.measuring:
        yield Match(
            evidence, "escalated", "!", _fixed(f"{title} {figure.safe(probe.why)}"), 0.0, 0.0, place,
            next="Its samples are in the pane Events. It goes back to summary by itself and writes a snapshot.",
        )  # fmt: skip
    elif manifest is not None and probe.why and probe.status in ("attached", "off"):
        # Nothing is missing in the kernel, and yet there is a reason: it was changed to keep the budget.
        back = "It comes back by itself when the budget has room. Press u to get it back now, at any cost."
        yield Match(
            evidence, "budget-kept", "!", _fixed(f"{title}: {figure.safe(probe.why)}"), 0.0, 0.0, place,
            next=figure.safe(probe.help) if probe.help else back,
        )  # fmt: skip
    if not probe.measuring:
        return
    ledger = probe.cost.ledger
    moving = {name: ledger[name].delta for name in LEDGER_FAULTS if name in ledger and ledger[name].delta}
    if moving:
        what = ", ".join(f"{figure.number(delta)} {name.replace('_', ' ')}" for name, delta in moving.items())
        yield Match(
            evidence, "lower-bound", "?", _fixed(f"{title}: counts are a lower bound: {what} in this interval"), 0.0,
            float(sum(moving.values())), place,
            next="The ledger of the probe says what was missed; docs/reference/frames.md explains it.",
        )  # fmt: skip


def _costs(state: State, budget: Budget) -> Iterator[Match]:
    for one in spendings(state, budget):
        if one.word == "over":
            unit, of = _COSTS[one.name]
            what = f"{figure.number(one.measured)}{unit} {of}{_dearest(state, one)}"
            sentence = f"watching costs {what}; budget {figure.number(one.limit)}{unit}"
            yield Match(
                Evidence("collector", ""), f"over-budget-{one.name}", "!", _fixed(sentence), 0.0, 0.0,
                next="Switch off or filter the most expensive probe (pane Cost), or take a smaller profile.",
                needed=OVER_BUDGET_AFTER,
            )  # fmt: skip


_COSTS: dict[Limit, tuple[str, str]] = {
    "kernel_cpu_pct": (" %", "of a core in the kernel"),
    "ns_per_packet": (" ns", "of kernel time per received packet"),
    "user_cpu_pct": (" %", "of a core in console and collector"),
    "memory_mb": (" MB", "in console and collector"),
    "events_per_s": (" events/s", "from the probes"),
}


def _dearest(state: State, one: Spending) -> str:
    if one.name not in ("kernel_cpu_pct", "ns_per_packet"):
        return ""
    dearest = max(state.probes.values(), key=lambda probe: probe.kernel_cpu_pct or 0.0)
    return f", most of it {figure.safe(dearest.name)} ({figure.percent(dearest.kernel_cpu_pct)})"


def _place(rule: FindingSpec, labels: Mapping[str, Label], kind: str) -> dict[str, Label]:
    """Where a row is. A rule that names no cause of its own is one cause for each row."""
    if rule.cause:
        return {name: labels.get(name) for name in rule.place}
    return {**labels, "rule": f"{kind} {rule.table} {rule.value}"}


def _of_table(
    probe: ProbeState, manifest: Manifest, rule: FindingSpec, windows: Windows, packets: Packets
) -> Iterator[Match]:
    table = probe.tables.get(rule.table)
    spec = manifest.tables.get(rule.table)
    column = next((column for column in spec.value if column.name == rule.value), None) if spec else None
    if table is None or column is None:
        return
    if column.kind == "max":
        for row in table.rows.values():
            value = row.gauges.get(rule.value)
            if value is not None and value > rule.over and fits(rule, row.labels):
                yield _match(probe, rule, column, row.labels, row.key, float(value), rule.level == "!!", (), None)
        return
    family = Family(probe.name, rule.table, rule.value)
    at_least = is_lower_bound(probe)
    for key, window in windows.of(family).items():
        if not fits(rule, window.row.labels):
            continue
        judged = _judged(probe, rule, window, packets)
        if judged is None:
            continue
        value, lasting, share_of = judged
        share = None if not share_of else min(100.0, 100 * value / (share_of + value))
        yield _match(
            probe, rule, column, window.row.labels, key, value, rule.level == "!!" and not lasting,
            tuple(table.history(key, rule.value, HISTORY)), family, share, lasting, at_least,
        )  # fmt: skip


def _judged(
    probe: ProbeState, rule: FindingSpec, window: Window, packets: Packets
) -> tuple[float, bool, float | None] | None:
    """The rate per second to be said of a row, whether it is small and lasting, and the packets that it is a share of.

    None: it does not stand out.
    """
    tick = probe.timeline.tick
    now = window.row.per_s(rule.value) or 0.0
    rate = now if window.moves[-1].tick == tick else 0.0
    at_once = rule.at_once if rule.at_once is not None else rule.over * (1 if rule.level == "!!" else AT_ONCE_FACTOR)
    if rate > rule.over and rate >= at_once:
        return rate, False, packets.per_s(window.row.labels)
    interval_s = _interval_s(window)
    for intervals, least in ((SHORT, rule.over), (LONG, rule.lasting)):
        if least is None or window.moved_in(tick, intervals) < LASTS[intervals]:
            continue
        mean = window.mean_per_s(tick, intervals, interval_s)
        if mean <= least:
            continue
        share_of = packets.per_s(window.row.labels, intervals)  # as long as the loss is looked at
        if rule.share_pct is None or share_of is None or 100 * mean >= rule.share_pct * (share_of + mean):
            return mean, True, share_of
    return None


def _interval_s(window: Window) -> float:
    """The length of the row's last interval, as its own count and rate tell it; a second when nothing moved."""
    for count in window.row.counts.values():
        if count.delta and count.per_s:
            return count.delta / count.per_s
    return 1.0


def _match(
    probe: ProbeState,
    rule: FindingSpec,
    column: ColumnSpec,
    labels: Mapping[str, Label],
    key: RowKey,
    value: float,
    is_urgent: bool,
    history: tuple[float | None, ...],
    family: Family | None,
    share: float | None = None,
    lasting: bool = False,
    at_least: bool = False,
) -> Match:
    return Match(
        Evidence("table", probe.name, rule.table, key),
        rule.cause or f"{probe.name}/{rule.table}/{rule.value}",
        "!!" if is_urgent else "!",
        partial(_say_row, rule, column, dict(labels), at_least),
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
        share,
        family,
        lasting,
    )


def _say_row(
    rule: FindingSpec,
    column: ColumnSpec,
    labels: Mapping[str, Label],
    at_least: bool,
    rate: float,
    total: int | None,
    is_bound: bool,
    is_peak: bool,
) -> str:
    return say(rule, labels, words_of_table(rule, column, rate, total, is_bound or at_least, is_peak))


def _say_percentile(
    rule: FindingSpec,
    labels: Mapping[str, Label],
    unit: str,
    per_s: float | None,
    count: int,
    value: float,
    _total: int | None,
    _is_bound: bool,
    _is_peak: bool,
) -> str:
    return say(rule, labels, words_of_histogram(value, unit, per_s, count))


def _of_histograms(probe: ProbeState, rule: FindingSpec) -> Iterator[Match]:
    group = probe.histograms.get(rule.table)
    percent = rule.percentile or 99.0
    for row in group.rows.values() if group else ():
        value = row.percentile(percent, "delta")
        if value is None or value <= rule.over or row.delta.count < MIN_SAMPLES or not fits(rule, row.labels):
            continue
        words = rule, dict(row.labels), row.unit, row.per_s, row.total.count
        yield Match(
            Evidence("histogram", probe.name, rule.table, row.key),
            rule.cause or f"{probe.name}/{rule.table}",
            "!!" if rule.level == "!!" else "!",
            partial(_say_percentile, *words),
            value,
            (row.per_s or 0.0) * (1 - percent / 100),
            _place(rule, row.labels, "histogram"),
            row.labels,
            row.unit,
            rule.next,
            commands(rule, row.labels),
            tuple(group.history(row.key, HISTORY)) if group else (),
            rule.specific,
            rule.explains,
            needed=2,
        )
