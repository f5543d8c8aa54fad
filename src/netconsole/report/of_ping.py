"""The breakdown of a ping as a report: the answer in words, the way drawn to scale, the comparison, what to check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from netconsole.base import figure
from netconsole.ping.breakdown import Breakdown, PathTime, PingAdvice, TimeChange
from netconsole.ping.capture import ROLES
from netconsole.ping.model import LAYER_WORDS, PART_WORDS, STAGES
from netconsole.ping.words import NOTED, NOTHING, STAGE_LETTERS, percent, us
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

MAX_ADVICE = 12
"""A report shows only the first. The JSON document has all."""
_NONE = ("means", "nothing")
"""What a capture without echoes has: means alone, or not even these."""
_NUMBERS = frozenset({1, 2, 3, 4, 5})


def of_ping(breakdown: Breakdown, formulas: bool = True) -> Document:
    """The report of a breakdown. ``formulas``: with the formula of every time."""
    return Document("netconsole ping breakdown", _subtitle(breakdown), list(ping_blocks(breakdown, formulas)))


def ping_blocks(breakdown: Breakdown, formulas: bool = True) -> Iterator[ReportBlock]:
    """The parts of the report, for the report of a snapshot as well."""
    comparison = breakdown.comparison
    if comparison is not None:
        yield Heading("Compared with the baseline")
        yield SummaryLines([SummaryLine("", text) for text in comparison.findings])
    yield Heading("Where the time goes")
    noted = [SummaryLine("!", one.detail) for one in breakdown.checks if not one.ok]
    told = [text for text in breakdown.findings if not text.startswith(NOTED)]
    yield SummaryLines([*(SummaryLine("", text) for text in told), *noted])
    yield Heading("The way of an echo, us")
    yield _path(breakdown)
    unknown = [name for name in breakdown.segments if not _is_known(breakdown, name)]
    if unknown:
        yield Note(f"Not measured here: {', '.join(unknown)}.")
    yield from _spread(breakdown)
    yield from _stages(breakdown)
    yield Heading("Time by part and by layer, us")
    yield _sums(breakdown, "parts", breakdown.parts, PART_WORDS)
    yield _sums(breakdown, "layers", breakdown.layers, LAYER_WORDS)
    if breakdown.composites:
        yield Heading("Several segments together, us")
        rows = [[one.what, us(one.mean_us)] for one in breakdown.composites.values()]
        yield TextTable(["what", "mean"], rows, frozenset({1}))
    if comparison is not None:
        yield Heading("Differences, us")
        yield _changes("segment", comparison.segments, {})
        yield _changes("layer", comparison.layers, LAYER_WORDS)
        yield _changes("part", comparison.parts, PART_WORDS)
        for segment, rows_of in comparison.stages.items():
            yield _changes(f"stage of {segment}", rows_of, STAGE_LETTERS)
    if breakdown.losses:
        yield Heading("Echoes without an answer in time")
        rows = [[str(one.count), one.where, ", ".join(one.first)] for one in breakdown.losses]
        yield TextTable(["echoes", "where", "first (id/seq)"], rows, frozenset({0}))
    held = [one for one in breakdown.checks if one.ok]
    yield Heading("Checks")
    if noted:
        yield Note(f"{figure.things(len(noted), 'checks')} failed: see the lines with ! above.")
    if held:
        yield SummaryLines([SummaryLine("ok", f"{one.check}: {one.detail}") for one in held])
    if breakdown.advice:
        yield Heading("What to check")
        without = sorted({one.host for one in breakdown.advice if not one.facts})
        if without:
            known = "; ".join(without)
            yield Note(f"? means that the capture has no such fact ({known}): look by hand.")
        yield SummaryLines([line for one in breakdown.advice[:MAX_ADVICE] for line in _advice(one)])
        if len(breakdown.advice) > MAX_ADVICE:
            yield Note(f"{len(breakdown.advice) - MAX_ADVICE} more hints are in the JSON document.")
    if breakdown.captures:
        yield Heading("Captures")
        captures = [
            [one.role, one.host, str(one.echoes) if one.echoes else _NONE[one.is_empty], one.source or ""]
            for one in sorted(breakdown.captures, key=lambda one: ROLES.index(one.role))
        ]
        yield TextTable(["role", "host", "echoes", "measured by"], captures, frozenset({2}))
    if formulas:
        yield Heading("Formulas")
        yield SummaryLines([SummaryLine("", f"{name} = {one.formula}; {one.what}") for name, one in _all(breakdown)])


def _subtitle(breakdown: Breakdown) -> str:
    whole = breakdown.round_trip
    hosts = "; ".join(f"{one.role} {one.host}".strip() for one in breakdown.captures)
    if whole is None or whole.mean_us is None:
        return f"the round trip is not known; {hosts}"
    spread = f", p50 {us(whole.p50_us)}, p99 {us(whole.p99_us)}" if whole.p50_us is not None else ""
    sure = f" ± {us((whole.interval_us[1] - whole.interval_us[0]) / 2)}" if whole.interval_us else ""
    return f"round trip {us(whole.mean_us)}{sure} us{spread}, {figure.things(whole.n, 'echoes')}; {hosts}"


def _path(breakdown: Breakdown) -> ScaledPath:
    bars = []
    for name, time in breakdown.segments.items():
        if not _is_known(breakdown, name):
            continue
        shown = ("none", "") if time.what == NOTHING else (us(time.mean_us), _share(time))
        bars.append(ScaledBar(name, time.where, time.mean_us, *shown, time.measured))
        for half, row in breakdown.halves.get(name, {}).items():
            bars.append(
                ScaledBar(f" {half}", f"±{us(row.accuracy_us)}", row.mean_us, us(row.mean_us), _share(row), False)
            )
    return ScaledPath("the way of an echo, from top to bottom", "us", bars)


def _is_known(breakdown: Breakdown, segment: str) -> bool:
    """Whether there is a time of a segment, or of a half of it; or there is no such segment on this way."""
    parts = [breakdown.segments[segment], *breakdown.halves.get(segment, {}).values()]
    return parts[0].what == NOTHING or any(one.mean_us is not None for one in parts)


def _spread(breakdown: Breakdown) -> Iterator[ReportBlock]:
    """How much the times vary from echo to echo, of those that are known echo by echo."""
    known = {name: one for name, one in _all(breakdown) if one.by == "packets" and one.p50_us is not None}
    times = {name: one for name, one in known.items() if one.what != NOTHING}
    if times:
        rows = []
        for name, one in times.items():
            low, high = one.interval_us or (None, None)
            sure = us((high - low) / 2) if low is not None and high is not None else figure.UNKNOWN
            places = (one.min_us, one.p50_us, one.p90_us, one.p99_us, one.max_us)
            rows.append([name, us(one.mean_us), sure, *(us(place) for place in places)])
        yield Heading("From echo to echo, us")
        yield TextTable(["", "mean", "±", "min", "p50", "p90", "p99", "max"], rows, frozenset(range(1, 8)))


def _stages(breakdown: Breakdown) -> Iterator[ReportBlock]:
    for segment, rows in breakdown.stages.items():
        total = rows["total"].mean_us
        yield Heading(f"Stages of {segment}, us")
        bars = []
        for stage in STAGES[segment]:
            row = rows[stage]
            share = 100 * row.mean_us / total if row.mean_us is not None and total else None
            text = percent(share) if share is not None else ""
            bars.append(ScaledBar(STAGE_LETTERS[stage], "", row.mean_us, us(row.mean_us), text))
        yield ScaledPath(f"stages of {segment}: {us(total)} us", "us", bars)


def _sums(
    breakdown: Breakdown, title: str, values: Mapping[str, float | None], words: Mapping[str, str]
) -> ReportBlock:
    whole = breakdown.round_trip_us
    rows = []
    for name, value in values.items():
        lower = "≥" if name in breakdown.incomplete and value is not None else ""
        share = percent(100 * value / whole if value is not None and whole else None)
        rows.append([words.get(name, name), f"{lower}{us(value)}", share])
    return TextTable([title, "mean", "share"], rows, frozenset({1, 2}))


def _changes(kind: str, changes: Mapping[str, TimeChange], words: Mapping[str, str]) -> TextTable:
    rows = [
        [
            words.get(name, "not in any stage" if name == "rest" else name),
            us(one.baseline_us),
            us(one.current_us),
            us(one.difference_us, sign=True),
            f"×{one.ratio:.2f}" if one.ratio is not None else figure.UNKNOWN,
            percent(one.share_pct),
        ]
        for name, one in changes.items()
    ]
    return TextTable([kind, "baseline", "current", "difference", "ratio", "share"], rows, _NUMBERS)


def _advice(one: PingAdvice) -> Iterator[SummaryLine]:
    command = f"to see or change it: {one.command}" if one.command else ""
    yield SummaryLine(one.word, f"{one.segment}, {one.host}: {one.topic}: {one.reason}.", command)
    for fact in one.facts:
        value = (
            ", ".join(fact.value)
            if isinstance(fact.value, list)
            else figure.UNKNOWN
            if fact.value is None
            else fact.value
        )
        says = f": {fact.says}" if fact.says else ""
        yield SummaryLine(fact.word, f"{fact.fact} = {figure.safe(value, 120)}{says}")


def _share(time: PathTime) -> str:
    return "" if time.share_pct is None else percent(time.share_pct)


def _all(breakdown: Breakdown) -> Iterator[tuple[str, PathTime]]:
    if breakdown.round_trip is not None:
        yield "round trip", breakdown.round_trip
    yield from breakdown.segments.items()
    for segment, rows in breakdown.stages.items():
        for stage, row in rows.items():
            if stage != "total":
                yield f"{segment} {STAGE_LETTERS[stage]}", row
