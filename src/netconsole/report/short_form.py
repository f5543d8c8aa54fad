"""The short form of a snapshot's report: what stands out, whether measuring kept its budget, what was not measured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netconsole.base import figure
from netconsole.findings.rules import (
    fits,
    is_urgent,
    rule_of,
    say,
    supersedes,
    words_of_gauges,
    words_of_histogram,
    words_of_table,
)
from netconsole.findings.windows import MIN_SAMPLES
from netconsole.probes.manifest import FindingSpec, Manifest
from netconsole.probes.polarity import polarity
from netconsole.profile.spending import (
    LINKS_BYTES,
    LINKS_PACKETS,
    LINKS_PROBE,
    LINKS_TABLE,
    MIN_PACKETS_PER_S,
    PACKETS_PROBE,
    PACKETS_TABLE,
    PACKETS_VALUE,
    stand_for,
)
from netconsole.report.blocks import Curve, Note, ReportBlock, SummaryLine, SummaryLines
from netconsole.snapshot.document import MEASURED, ExampleData, IncidentData, ProbeData, Snapshot, number, seconds
from netconsole.telemetry.example import example_text
from netconsole.telemetry.ledger import LEDGER_COUNTS, UNSEEN
from netconsole.telemetry.words import budget_word, short_reason

OVER = budget_word("over")
MAX_STANDING_OUT, MAX_COMPARED = 9, 3
"""Lines of the short form that say what stands out, and where a comparison is told as well."""
MAX_OVER, MAX_GAPS, MAX_NAMES = 3, 3, 8
_NOT_OF_A_SNAPSHOT = ("action", "record_mb_per_min")
"""Parts of a budget that a snapshot does not measure."""


def standing_out_lines(snapshot: Snapshot, manifests: Mapping[str, Manifest]) -> list[SummaryLine]:
    """The incidents, the worst first, and the probes whose counts are too low."""
    lines = [
        SummaryLine(one.level, one.text, one.next, one.commands, one.curve) for one in standing_out(snapshot, manifests)
    ]
    for name, probe in snapshot.probes.items():
        missed = {entry: n for entry, n in probe.ledger.items() if n and entry in LEDGER_COUNTS}
        if missed:
            what = ", ".join(map(_missed, missed, missed.values()))
            lines.append(SummaryLine("?", f"{name}: counts are a lower bound (≥): {what}"))
    measured = [name for name, probe in snapshot.probes.items() if probe.status in MEASURED]
    if not lines and measured:
        lines.append(SummaryLine("ok", f"nothing stands out in {len(measured)} probes: {', '.join(measured)}"))
    return lines or [SummaryLine("?", "no probe measured anything")]


def _missed(entry: str, n: int) -> str:
    return (
        f"not attached for {figure.duration(n, 'ms')}"
        if entry == UNSEEN
        else f"{figure.count(n)} {LEDGER_COUNTS[entry].partition(':')[0]}"
    )


def first(lines: Sequence[SummaryLine], most: int) -> Iterator[ReportBlock]:
    """So many of the lines, and how many there are besides."""
    yield SummaryLines(list(lines[:most]))
    if len(lines) > most:
        yield Note(f"{figure.things(len(lines) - most, 'more lines')} below.")


def kept(snapshot: Snapshot) -> list[SummaryLine]:
    """Whether measuring kept its budget, in a line; a line more for each figure that did not."""
    cost = snapshot.cost
    costs = [
        f"{figure.percent(number(cost.get('kernel_cpu_pct')))} of one core in the kernel",
        f"{figure.percent(sum_of(cost, 'cpu_pct'))} of one core and {figure.memory(sum_of(cost, 'pss_kb'))} "
        "in console and collector",
        f"{figure.rate(number(cost.get('events_per_s')), 'events')}",
    ]
    rows = list(budget_rows(snapshot))
    over = [row for row in rows if row[3] == OVER]
    word = "!" if over else "ok"
    told = "over the budget" if over else "within the budget" if rows else "the profile sets no budget"
    return [
        SummaryLine(word, f"{'; '.join(costs)}: {told}"),
        *(SummaryLine("!", f"{what}: {measured}, the budget is {limit}") for what, measured, limit, _ in over),
    ]


def gaps(snapshot: Snapshot) -> list[SummaryLine]:
    """What was not measured, each reason once."""
    by_why: dict[tuple[str, str], list[str]] = {}
    for name, probe in snapshot.probes.items():
        if probe.status != "attached":
            why = short_reason(probe.why or "no reason given")  # the table below has the rest
            by_why.setdefault((probe.status, why), []).append(name)
    lines = [
        SummaryLine("?", f"{', '.join(names[:MAX_NAMES])}{' …' if len(names) > MAX_NAMES else ''}: {status}: {why}")
        for (status, why), names in sorted(by_why.items(), key=lambda one: -len(one[1]))
    ]
    return lines or [SummaryLine("ok", "every probe of the profile measured")]


def budget_rows(snapshot: Snapshot) -> Iterator[list[str]]:
    """What, measured, budget and state, of every figure that has a budget."""
    cost = snapshot.cost
    user = sum_of(cost, "cpu_pct")
    memory = sum_of(cost, "pss_kb")
    measured = {
        "kernel_cpu_pct": ("time in the kernel, of one core", number(cost.get("kernel_cpu_pct")), "%"),
        "user_cpu_pct": ("console and collector, of one core", user, "%"),
        "memory_mb": ("memory of console and collector", None if memory is None else memory / 1024, "MB"),
        "events_per_s": ("events submitted per second", number(cost.get("events_per_s")), ""),
        "ns_per_packet": ("time in the kernel for each packet (from 10 000/s on)", _ns_per_packet(snapshot), "ns"),
    }
    for name, limit in snapshot.profile.budget.items():
        if name in _NOT_OF_A_SNAPSHOT or limit is None or isinstance(limit, str):
            continue
        what, value, unit = measured.get(name, (name, None, ""))
        state = "? not measured" if value is None else OVER if value > limit else "ok"
        yield [what, figure.quantity(value, unit), figure.quantity(number(limit), unit), state]


def _ns_per_packet(snapshot: Snapshot) -> float | None:
    """Kernel time for each packet that the kernel receives. None when there are too few packets, as in the console."""
    packets = _total(snapshot, PACKETS_PROBE, PACKETS_TABLE, PACKETS_VALUE)
    sizes = [_total(snapshot, LINKS_PROBE, LINKS_TABLE, name) for name in (LINKS_BYTES, LINKS_PACKETS)]
    per_s = packets * stand_for(*sizes) / (seconds(snapshot, PACKETS_PROBE) or 1.0)
    kernel_pct = number(snapshot.cost.get("kernel_cpu_pct"))
    return None if kernel_pct is None or per_s < MIN_PACKETS_PER_S else kernel_pct / 100 * 1e9 / per_s


def _total(snapshot: Snapshot, name: str, table: str, value: str) -> float:
    """The sum of all rows of a table."""
    probe = snapshot.probes.get(name)
    return sum(number(row.get(value)) or 0.0 for row in (probe.tables.get(table, ()) if probe else ()))


def sum_of(cost: Mapping[str, Any], name: str) -> float | None:
    """The sum over console and collector, of those that are known. None when neither is."""
    known = []
    for process in ("collector", "console"):
        with contextlib.suppress(AttributeError):
            known.append(number(cost.get(process, {}).get(name)))
    values = [value for value in known if value is not None]
    return sum(values) if values else None


MAX_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Highlight:
    """One sentence, how urgent (``!!`` act, ``!`` look), what to do next; ``weight`` is events per second."""

    level: str
    probe: str
    text: str
    next: str
    weight: float
    commands: tuple[str, ...] = ()
    curve: Curve | None = None


def standing_out(snapshot: Snapshot, manifests: Mapping[str, Manifest]) -> list[Highlight]:
    """The most urgent first, and of those what explains most.

    A snapshot without incidents (an old one) is judged by the rules of the probes on the figures of its whole run; a
    probe that is not among ``manifests`` by its counters alone: what is worse when it goes up.
    """
    if snapshot.incidents is not None:
        return [_of_incident(one, before, snapshot.created[:10]) for one, before in _once_each(snapshot)][:MAX_SHOWN]
    found: list[Highlight] = []
    for name, probe in snapshot.probes.items():
        if probe.status not in MEASURED:
            continue
        manifest = manifests.get(name)
        found.extend(_by_rules(name, probe, snapshot, manifest) if manifest else _by_sense(name, probe, snapshot))
    return sorted(found, key=lambda one: (one.level != "!!", -one.weight, one.text))[:MAX_SHOWN]


def _once_each(snapshot: Snapshot) -> Iterator[tuple[IncidentData, list[IncidentData]]]:
    """Each cause at its place once, as it was last, with its earlier episodes: the oldest first."""
    listed = snapshot.incidents or []
    for one in listed:
        alike = [other for other in listed if other is one or (one.same is not None and other.same == one.same)]
        *before, last = sorted(alike, key=lambda other: other.began or "")
        if one is alike[0]:
            yield last, before


def _of_incident(one: IncidentData, before: Sequence[IncidentData], day: str) -> Highlight:
    """``…; from 21:00:03 to 21:00:25 (22 s): 21 010 packets, peak 955/s``. Times are UTC.

    Of one that came again: ``…; 3 times, first 20:40:07, last from …: 21 010 packets, 64 030 in all, peak 955/s``.
    """
    began, ended, blind = (_clock(at, day) for at in (one.began, one.ended, one.not_measured_since))
    when = f"from {began} to {ended}" if one.ended else f"since {began}" if one.began else ""
    when += f" ({figure.lasted(one.duration_s)})" if when and one.duration_s is not None else ""
    when += f", not measured since {blind}" if one.not_measured_since and not one.ended else ""
    when = f"{len(before) + 1} times, first {_clock(before[0].began, day)}, last {when}" if before and when else when
    much = ""
    if one.total is not None:
        much = figure.things(one.total, one.unit, one.mark)
        totals = [episode.total for episode in before]
        if before and None not in totals:
            mark = figure.mark(any(part.at_least for part in (*before, one)), any(p.scaled for p in (*before, one)))
            much += f", {figure.count(one.total + sum(total or 0 for total in totals), mark)} in all"
        much += f", peak {figure.amount(one.peak_per_s, one.unit, one.mark)}/s" if one.peak_per_s is not None else ""
    elif one.peak is not None:
        much = f"peak {figure.quantity(one.peak, one.unit, one.mark)}"
    text = "; ".join(part for part in (one.what, ": ".join(filter(None, (when, much)))) if part)
    probe = one.evidence[0].probe if one.evidence else ""
    packet = packet_text(one.example, day)
    more = [f"Latest packet: {packet}."] if packet else []
    unit = one.unit if one.total is None else f"{one.unit}/s"
    until = f"until {ended} UTC" if one.ended else "until the end of the measurement"
    curve = Curve(until, unit, one.history) if any(one.history) else None
    return Highlight(one.level, probe, text, " ".join([*more, *one.next]), 0.0, tuple(one.commands), curve)


def packet_text(one: ExampleData | None, day: str) -> str:
    """A packet with its time (UTC), and the day where it is another one; empty where none is known."""
    return "" if one is None else example_text(one.fields, f"at {_clock(one.came, day)}")


def _clock(at: str | None, day: str) -> str:
    """The time of day, with the day where it is another one."""
    return "" if at is None else at[11:19] if at[:10] == day else at


def _by_rules(name: str, probe: ProbeData, snapshot: Snapshot, manifest: Manifest) -> list[Highlight]:
    best: dict[object, Highlight] = {}
    for rule in (rule for rule in manifest.findings if rule.level != "ok"):
        of_rule = _histogram_rule if rule.histogram else _table_rule
        for key, one in of_rule(name, probe, snapshot, manifest, rule):
            known = best.get(key)
            if known is None or supersedes(one.level, known.level):
                best[key] = one
    return list(best.values())


def _table_rule(
    name: str, probe: ProbeData, snapshot: Snapshot, manifest: Manifest, rule: FindingSpec
) -> Iterator[tuple[object, Highlight]]:
    spec = manifest.tables.get(rule.table)
    column = next((one for one in spec.value if one.name == rule.value), None) if spec else None
    if spec is None or column is None:
        return
    at_least = any(probe.ledger.get(entry) for entry in LEDGER_COUNTS)
    span_s = seconds(snapshot, name)
    for position, row in enumerate(probe.tables.get(rule.table, ())):
        total = row.get(rule.value)
        one = rule_of(rule, spec.causes, row)
        if not isinstance(total, (int, float)) or isinstance(total, bool) or one is None:
            continue
        value = total if column.kind == "max" else total / span_s if span_s else None
        if value is not None and value > rule.over:
            words = {**words_of_gauges(spec, row), **words_of_table(rule, column, value, total, at_least, at_least)}
            text = say(one, row, words)
            yield (rule.table, position), Highlight("!!" if is_urgent(one, value) else "!", name, text, one.next, value)


def _histogram_rule(
    name: str, probe: ProbeData, snapshot: Snapshot, _: Manifest, rule: FindingSpec
) -> Iterator[tuple[object, Highlight]]:
    data = probe.histograms.get(rule.table)
    percent, span_s = rule.percentile, seconds(snapshot, name)
    for position, part in enumerate((data.by or [data]) if data else ()):
        value = part.percentile(percent)
        if value is None or value <= rule.over or part.count < MIN_SAMPLES or not fits(rule, part.labels):
            continue
        per_s = part.count / span_s if span_s else None
        words = words_of_histogram(value, part.unit or (data.unit if data else ""), per_s, part.count)
        text = say(rule, part.labels, words)
        yield (rule.table, position), Highlight(rule.level, name, text, rule.next, (per_s or 0) * (1 - percent / 100))


def _by_sense(name: str, probe: ProbeData, snapshot: Snapshot) -> Iterator[Highlight]:
    for counter, data in probe.counters.items():
        if data.total and (data.worse or polarity("count", counter, data.unit)) == "up":
            span_s = seconds(snapshot, name)
            per_s = data.total / span_s if span_s else None
            text = f"{name}: {counter} {figure.rate(per_s, data.unit)}"
            yield Highlight("!", name, text, "", per_s or 0.0)
