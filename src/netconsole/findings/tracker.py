"""STANDS OUT: what is worth looking at, ranked, from the rules beside the probes and a few of our own.

:func:`matches` is a pure function of one interval. :class:`Findings` adds the memory that keeps the list calm: a
finding appears after two intervals, leaves after five quiet ones, and then is shown as ended for a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from netconsole.base import figure
from netconsole.budget.spending import Limit, Spending, spendings
from netconsole.findings.rules import fits, say
from netconsole.probes.manifest import FindingSpec, Manifest
from netconsole.profile.profile import Budget
from netconsole.session.protocol import Connection
from netconsole.telemetry.state import ProbeState, State
from netconsole.telemetry.tables import RowKey

Level: TypeAlias = Literal["ok", "!", "!!", "?"]
Kind: TypeAlias = Literal["table", "histogram", "probe", "collector"]

APPEARS_AFTER = 2
"""Intervals in a row."""
OVER_BUDGET_AFTER = 10
"""Intervals in a row for what watching costs: starting up is dear, and over by then."""
FACTS = ("lost", "failed", "ledger", "governed", "escalated")
"""A lost collector, a failed probe and a loss are facts and not measurements: these need not wait."""
BUDGET_RULES = ("kernel_cpu_pct", "ns_per_packet", "user_cpu_pct", "memory_mb", "events_per_s")
LEAVES_AFTER = 5
"""Quiet intervals in a row."""
ENDED_SHOWN = 60
"""Intervals for which an ended finding stays in the list."""
MIN_SAMPLES = 10
"""A percentile of fewer samples in an interval is not held against a limit."""
HISTORY = 60
"""Samples of the sparkline beside a finding: one minute."""
WORTH_SAYING = ("missed", "map_full", "unaccounted")
"""Ledger entries that are faults of the measurement; others are everyday, and are said beside the figures (≥)."""
MAX_PER_RULE = 50
MAX_FINDINGS = 200

_RANK: dict[Level, int] = {"!!": 0, "!": 1, "?": 2, "ok": 3}


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where the proof is: a row of a table, one histogram, a probe's status, or the collector's (``probe`` empty)."""

    kind: Kind
    probe: str
    name: str = ""
    key: RowKey = ()


@dataclass(frozen=True, slots=True)
class Match:
    """What stands out in one interval. ``weight`` is packets (or events) per second that it explains."""

    evidence: Evidence
    rule: str
    level: Level
    sentence: str
    weight: float
    next: str = ""
    history: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """A match that lasted. Times are wall clock in ns; ``ended_ns`` is when it was last seen, None while it lasts."""

    level: Level
    probe: str
    sentence: str
    since_ns: int
    ended_ns: int | None
    evidence: Evidence
    history: tuple[float | None, ...]
    next: str
    weight: float


@dataclass(slots=True)
class _Memory:
    match: Match
    since_ns: int
    last_ns: int
    seen: int = 1
    quiet: int = 0
    shown: bool = False


class Findings:
    """The list, interval by interval. One per session; not thread-safe."""

    def __init__(self, manifests: Mapping[str, Manifest], budget: Budget | None = None) -> None:
        self._manifests = manifests
        self._budget = budget or Budget()
        self._memory: dict[tuple[Evidence, str], _Memory] = {}
        self._interval = -1
        self._current: list[Finding] = []

    def update(self, state: State, connection: Connection | None = None) -> list[Finding]:
        """The findings after this interval, ranked; called again within the same interval it changes nothing.

        A collector that is lost ends no intervals, so then every call counts as one.
        """
        interval = state.collector.intervals + state.console.intervals * (state.collector.intervals == 0)
        lost = connection is not None and connection.phase == "lost"
        if interval == self._interval and not lost:
            return self._current
        self._interval = interval
        now_ns = max(state.collector.closed_wall_ns or 0, state.console.closed_wall_ns or 0)
        found = matches(state, self._manifests, self._budget, connection)
        self._remember({(match.evidence, match.rule): match for match in found}, now_ns)
        listed = [_finding(memory) for memory in self._memory.values() if memory.shown]
        self._current = sorted(listed, key=_rank)[:MAX_FINDINGS]
        return self._current

    def _remember(self, found: Mapping[tuple[Evidence, str], Match], now_ns: int) -> None:
        for key, match in found.items():
            memory = self._memory.get(key)
            if memory is None or memory.quiet >= LEAVES_AFTER:
                was_shown = memory is not None and memory.shown
                self._memory[key] = memory = _Memory(match, now_ns, now_ns)
                # What ended a moment ago and is back needs no second proof, but it is a new span of time.
                memory.shown = was_shown
            else:
                memory.match, memory.last_ns, memory.quiet = match, now_ns, 0
                memory.seen += 1
            # A collector that is lost, or a probe that failed, is a fact and not a measurement: no need to wait.
            is_fact = match.rule in FACTS
            needed = OVER_BUDGET_AFTER if match.rule in BUDGET_RULES else APPEARS_AFTER
            memory.shown = memory.shown or is_fact or memory.seen >= needed
        for key in [key for key in self._memory if key not in found]:
            memory = self._memory[key]
            memory.quiet += 1
            if not memory.shown or memory.quiet > LEAVES_AFTER + ENDED_SHOWN:
                del self._memory[key]


def matches(
    state: State, manifests: Mapping[str, Manifest], budget: Budget | None = None, connection: Connection | None = None
) -> list[Match]:
    """Everything that stands out in this one interval."""
    if connection is not None and connection.phase == "lost":
        # What the probes last said is old: only the loss itself is known.
        return [_collector_lost(connection)]
    found = list(_costs(state, budget or Budget()))
    for probe in state.probes.values():
        manifest = manifests.get(probe.name)
        found.extend(_status(probe, manifest))
        if manifest is None or not probe.measuring:
            continue
        of_probe: dict[Evidence, Match] = {}
        for number, rule in enumerate(manifest.findings):
            of_rule = _histogram_rule if rule.histogram else _table_rule
            for match in sorted(of_rule(probe, manifest, rule, number), key=lambda match: -match.weight)[:MAX_PER_RULE]:
                # A row is said once: by the strongest rule that fits it, of equally strong ones by the last.
                said = of_probe.get(match.evidence)
                if said is None or said.level != "!!" or match.level == "!!":
                    of_probe[match.evidence] = match
        found.extend(of_probe.values())
    return found


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


def _collector_lost(connection: Connection) -> Match:
    why = figure.safe(connection.why or "no reason known")
    wait = "" if connection.retry_in_s is None else f"; started again in {connection.retry_in_s:.0f} s"
    return Match(
        Evidence("collector", ""), "lost", "!!", f"the collector was lost: {why}{wait}", float("inf"),
        "All figures are as old as the loss. If it goes on, `netconsole doctor` says what this host lacks.",
    )  # fmt: skip


def _status(probe: ProbeState, manifest: Manifest | None) -> Iterator[Match]:
    title = manifest.title if manifest else figure.safe(probe.name)
    if probe.status == "failed":
        why = figure.safe(probe.why or "no reason known")
        help = figure.safe(probe.help) if probe.help else "`netconsole doctor` says more."
        yield Match(Evidence("probe", probe.name), "failed", "?", f"{title}: not measured: {why}", 0.0, help)
    if manifest is None and probe.why and probe.measuring:
        yield Match(
            Evidence("probe", probe.name), "escalated", "!", f"{title} {figure.safe(probe.why)}", 0.0,
            "Its samples are in Events; it steps back by itself and leaves a snapshot.",
        )  # fmt: skip
    elif manifest is not None and probe.why and probe.status in ("attached", "off"):
        # Nothing is missing in the kernel, and yet there is a reason: it was changed to keep the budget.
        yield Match(
            Evidence("probe", probe.name), "governed", "!", f"{title}: {figure.safe(probe.why)}", 0.0,
            figure.safe(probe.help)
            if probe.help
            else "It comes back by itself when there is room; press u to have it back at once, whatever it costs.",
        )  # fmt: skip
    if not probe.measuring:
        return
    ledger = probe.cost.ledger
    moving = {name: ledger[name].delta for name in WORTH_SAYING if name in ledger and ledger[name].delta}
    if moving:
        what = ", ".join(f"{figure.number(delta)} {name.replace('_', ' ')}" for name, delta in moving.items())
        yield Match(
            Evidence("probe", probe.name), "ledger", "?", f"{title}: counts are a lower bound: {what} in this interval",
            float(sum(moving.values())),
            "The ledger of the probe says what was missed; docs/reference/frames.md explains it.",
        )  # fmt: skip


def _costs(state: State, budget: Budget) -> Iterator[Match]:
    for one in spendings(state, budget):
        if one.word == "over":
            unit, of = _COSTS[one.name]
            what = f"{figure.number(one.measured)}{unit} {of}{_dearest(state, one)}"
            yield _over(one.name, what, f"{figure.number(one.limit)}{unit}")


_COSTS: dict[Limit, tuple[str, str]] = {
    "kernel_cpu_pct": (" %", "of a core in the kernel"),
    "ns_per_packet": (" ns", "in the kernel for each packet that it takes in"),
    "user_cpu_pct": (" %", "of a core in console and collector"),
    "memory_mb": (" MB", "in console and collector"),
    "events_per_s": (" events/s", "from the probes"),
}


def _dearest(state: State, one: Spending) -> str:
    if one.name not in ("kernel_cpu_pct", "ns_per_packet"):
        return ""
    dearest = max(state.probes.values(), key=lambda probe: probe.kernel_cpu_pct or 0.0)
    return f", most of it {figure.safe(dearest.name)} ({figure.percent(dearest.kernel_cpu_pct)})"


def _over(limit: str, what: str, allowed: str) -> Match:
    return Match(
        Evidence("collector", ""), limit, "!", f"watching costs {what}; budget {allowed}", float("inf"),
        "Switch off or filter the dearest probe (Cost pane), or take a leaner profile.",
    )  # fmt: skip


def _table_rule(probe: ProbeState, manifest: Manifest, rule: FindingSpec, number: int) -> Iterator[Match]:
    table = probe.tables.get(rule.table)
    spec = manifest.tables.get(rule.table)
    column = next((column for column in spec.value if column.name == rule.value), None) if spec else None
    if table is None or column is None:
        return
    at_least = bool(probe.at_least())
    is_gauge = column.kind == "max"
    # A count that stands still is over no limit: of thousands of rows only those that moved are looked at.
    for row in table.rows.values() if is_gauge else table.moving():
        value = row.gauges.get(rule.value) if is_gauge else row.per_s(rule.value)
        if value is None or value <= rule.over or not fits(rule, row.labels):
            continue
        total = row.total(rule.value)
        words = {
            "rate": figure.number(value, at_least),
            "value": figure.quantity(value, column.unit) if is_gauge else figure.number(value, at_least),
            "total": figure.number(total, at_least),
            "unit": column.unit,
            rule.value: figure.number(value, at_least),
        }
        yield Match(
            Evidence("table", probe.name, rule.table, row.key),
            str(number),
            "!!" if rule.level == "!!" else "!",
            say(rule, row.labels, words),
            float(value),
            rule.next,
            tuple(table.history(row.key, rule.value, HISTORY)),
        )


def _histogram_rule(probe: ProbeState, _: Manifest, rule: FindingSpec, number: int) -> Iterator[Match]:
    group = probe.histograms.get(rule.table)
    percent = rule.percentile or 99.0
    for row in group.rows.values() if group else ():
        value = row.percentile(percent, "delta")
        if value is None or value <= rule.over or row.delta.count < MIN_SAMPLES or not fits(rule, row.labels):
            continue
        words = {
            "rate": figure.number(row.per_s),
            "value": figure.quantity(value, row.unit),
            "total": figure.number(row.total.count),
            "unit": row.unit,
        }
        yield Match(
            Evidence("histogram", probe.name, rule.table, row.key),
            str(number),
            "!!" if rule.level == "!!" else "!",
            say(rule, row.labels, words),
            (row.per_s or 0.0) * (1 - percent / 100),
            rule.next,
            tuple(group.history(row.key, HISTORY)) if group else (),
        )


def _rank(one: Finding) -> tuple[bool, int, float, int, str]:
    return one.ended_ns is not None, _RANK[one.level], -one.weight, one.since_ns, one.sentence


def _finding(memory: _Memory) -> Finding:
    match = memory.match
    ended = memory.last_ns if memory.quiet >= LEAVES_AFTER else None
    return Finding(
        match.level, match.evidence.probe, match.sentence, memory.since_ns, ended, match.evidence, match.history,
        match.next, match.weight,
    )  # fmt: skip
