"""A comparison as a report: first the verdict and the findings, then changed facts, then what was not compared."""

from __future__ import annotations

import re
from collections.abc import Iterator

from netconsole.base import figure
from netconsole.compare.document import Comparison, Condition, Finding, MachineChange, Side, said
from netconsole.compare.pseudonyms import NAMES
from netconsole.report.blocks import (
    Document,
    Heading,
    Note,
    ReportBlock,
    ScaledBar,
    ScaledPath,
    SummaryLine,
    SummaryLines,
    TextTable,
)
from netconsole.report.of_places import mirror_then_and_now, where_packets_died

MAX_CHANGES = 100
MAX_LEFT_OUT = 50
MAX_NAMED = 8
"""Devices or figures that a line names which were not compared for one reason."""
MAX_SUMMARY = 10
MAX_CAUSES = 3
_VERDICTS = {
    "same": "Same: nothing changed beyond chance.",
    "changed": "Changed: figures or settings changed, but nothing is worse beyond chance.",
    "regressed": "Regressed: something is worse beyond chance.",
}


def of_comparison(comparison: Comparison, most: int = MAX_SUMMARY) -> Document:
    """The report of a comparison; at most so many lines say what changed before its tables."""
    certain = [finding for finding in comparison.findings if finding.significant]
    uncertain = [finding for finding in comparison.findings if not finding.significant]
    blocks: list[ReportBlock] = [
        Heading("Verdict"),
        Note(_verdict(comparison)),
        *(Note(f"Names: {one.why}.") for one in comparison.not_comparable if one.metric == NAMES),
    ]
    lines = [
        *_causes(comparison),
        *_changed(certain),
    ]
    if lines:
        blocks.append(SummaryLines(lines[:most]))
    if certain:
        blocks += [Heading("Findings"), _table(certain)]
    if comparison.findings_omitted:
        blocks.append(Note(f"{comparison.findings_omitted} more findings are in the JSON document."))
    if comparison.machines:
        blocks += [
            Heading("What caps VMs, where that changed"),
            SummaryLines([*map(_capped, comparison.machines)]),
        ]
    blocks += mirror_then_and_now(comparison)
    blocks += where_packets_died(comparison)
    blocks.append(Heading("Changed configuration"))
    if comparison.facts_changed:
        changes = comparison.facts_changed
        rows = [
            [
                change.fact,
                _value(change.baseline),
                _value(change.current),
                _numbers(change.may_explain),
            ]
            for change in changes[:MAX_CHANGES]
        ]
        omitted = max(0, len(changes) - MAX_CHANGES)
        blocks.append(TextTable(["fact", "baseline", "current", "may explain finding"], rows, omitted=omitted))
    else:
        blocks.append(Note("No known fact of the host differs."))
    if comparison.conditions:
        rows = [[one.condition, _range(one), figure.quantity(one.current, one.unit)] for one in comparison.conditions]
        blocks += [Heading("Conditions"), TextTable(["what", "baseline", "current"], rows, frozenset({1, 2}))]
    if uncertain:
        blocks += [Heading("Large changes that may be chance"), _table(uncertain)]
    if comparison.not_comparable:
        left_out = _left_out(comparison)
        rows = left_out[:MAX_LEFT_OUT]
        blocks.append(Heading("Not compared"))
        blocks.append(TextTable(["what", "why"], rows, omitted=max(0, len(left_out) - MAX_LEFT_OUT)))
    return Document("netconsole comparison", _sides(comparison), blocks)


def _verdict(comparison: Comparison) -> str:
    if comparison.verdict == "unknown":
        return f"Unknown: nothing could be compared. {comparison.why_unknown}."
    if comparison.verdict == "same" and not comparison.compared:
        return "Same: all that could be compared is 0 on both sides."
    return f"{_VERDICTS[comparison.verdict]} {comparison.compared} figures compared."


def _left_out(comparison: Comparison) -> list[list[str]]:
    """What was not compared, and why: one line for each reason, which names devices before figures."""
    together: dict[str, list[str]] = {}
    for one in comparison.not_comparable:
        together.setdefault(one.why, []).append(one.metric)
    found = []
    for why, metrics in together.items():
        names = list(dict.fromkeys(map(_short, metrics)))
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        named = f"{figure.things(len(metrics), 'figures')}: {', '.join(names[:MAX_NAMED])}{more}"
        found.append([named if len(metrics) > 1 else metrics[0], why])
    return found


def _short(metric: str) -> str:
    """The device of a figure, with its namespace; of no device, the figure without the names of its row."""
    probe, *parts = metric.split("/", 3)
    labels = parts[2] if len(parts) > 2 else ""
    device, netns = (re.search(f"(?:^|,){name}=([^,]+)", labels) for name in ("device", "netns"))
    if device is not None:
        return device[1] + (f" (netns {netns[1]})" if netns and netns[1] != "host" else "")
    return f"{probe} {parts[1]}" if len(parts) > 1 else metric


def _sides(comparison: Comparison) -> str:
    current = _side(comparison.current) if comparison.current else "current"
    baseline = comparison.baseline
    if not baseline:
        return current
    more = f" and {len(baseline) - 1} more" if len(baseline) > 1 else ""
    return f"current: {current}; baseline: {_side(baseline[0])}{more}"


def _side(side: Side) -> str:
    name = f"{side.name}, " if side.name else ""
    return f"{name}{side.host}, {side.created}, profile {side.profile}, {side.duration_s:.3g} s"


def _table(findings: list[Finding]) -> TextTable:
    rows = []
    for one in findings:
        rows.append(
            [
                str(one.rank),
                one.direction,
                one.metric,
                "" if one.statistic in ("rate", "value") else one.statistic,
                said(one.baseline, one.unit),
                said(one.current, one.unit),
                f"×{figure.number(one.ratio)}" if one.ratio is not None else figure.UNKNOWN,
                said(one.difference, one.unit),
                said(one.spread, one.unit),
            ]
        )
    head = ["", "direction", "metric", "figure", "baseline", "current", "ratio", "difference", "spread"]
    return TextTable(head, rows, frozenset({0, 4, 5, 6, 7, 8}))


def _then_and_now(finding: Finding) -> ScaledPath:
    sides = {"then": finding.baseline, "now": finding.current}
    bars = [ScaledBar(name, "", value, said(value, finding.unit)) for name, value in sides.items()]
    return ScaledPath(f"{finding.metric} {finding.statistic}", "", bars)


def _range(condition: Condition) -> str:
    low, high = (figure.quantity(value, condition.unit) for value in (condition.low, condition.high))
    return low if low == high else f"{low} to {high}"


def _word(finding: Finding) -> str:
    return {"worse": "!! worse", "better": "ok better", "different": "! different"}[finding.direction]


def _causes(comparison: Comparison) -> Iterator[SummaryLine]:
    """Settings that changed and may explain what did: what explains the strongest change first."""
    causes = sorted((one for one in comparison.facts_changed if one.may_explain), key=lambda one: one.may_explain)
    for one in causes[:MAX_CAUSES]:
        text = f"{one.fact}: {_value(one.baseline)} before, {_value(one.current)} now"
        yield SummaryLine("cause?", f"{text}; it may explain finding {_numbers(one.may_explain)}")


def _capped(one: MachineChange) -> SummaryLine:
    return SummaryLine("!!" if one.is_capped else "ok", f"{one.vm}: {one.current}", f"Before: {one.baseline}")


def _changed(findings: list[Finding]) -> Iterator[SummaryLine]:
    """What changed, with what stands out there now and what to do next: of several findings with the first."""
    told = set[str]()
    for one in findings:
        is_new = one.incident not in told
        told.add(one.incident)
        more = " ".join([f"{one.incident}.", *one.next]) if one.incident and is_new else ""
        commands = tuple(one.commands) if is_new else ()
        yield SummaryLine(_word(one), f"{one.rank}. {one.what}", more, commands, _then_and_now(one))


def _numbers(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:5])) + (" …" if len(ranks) > 5 else "") if ranks else "none"


def _value(value: object) -> str:
    if value is None:
        return "not there"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
