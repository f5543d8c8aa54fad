"""What stands out in a snapshot: its incidents, or what the probes' rules say of the figures of the whole run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from netconsole.base import figure
from netconsole.findings.rules import (
    fits,
    say,
    supersedes,
    words_of_gauges,
    words_of_histogram,
    words_of_table,
)
from netconsole.findings.windows import MIN_SAMPLES
from netconsole.probes.manifest import FindingSpec, Manifest
from netconsole.probes.polarity import polarity
from netconsole.snapshot.document import MEASURED, IncidentData, ProbeData, Snapshot, seconds
from netconsole.telemetry.ledger import LEDGER_COUNTS

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
        much += f", peak {figure.number(one.peak_per_s, one.mark)}/s" if one.peak_per_s is not None else ""
    elif one.peak is not None:
        much = f"peak {figure.quantity(one.peak, one.unit, one.mark)}"
    text = "; ".join(part for part in (one.what, ": ".join(filter(None, (when, much)))) if part)
    probe = one.evidence[0].probe if one.evidence else ""
    return Highlight(one.level, probe, text, " ".join(one.next), 0.0, tuple(one.commands))


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
        if not isinstance(total, (int, float)) or isinstance(total, bool) or not fits(rule, row):
            continue
        value = total if column.kind == "max" else total / span_s if span_s else None
        if value is not None and value > rule.over:
            words = {**words_of_gauges(spec, row), **words_of_table(rule, column, value, total, at_least, at_least)}
            text = say(rule, row, words)
            yield (rule.table, position), Highlight(rule.level, name, text, rule.next, value)


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
