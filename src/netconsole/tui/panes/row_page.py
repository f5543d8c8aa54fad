"""Everything known of one row: figures, ten minutes of history, histogram, losses, and what to look at next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netconsole.base import figure
from netconsole.base.timestamps import clock
from netconsole.findings.incident import Incident, told
from netconsole.probes.manifest import Manifest, TableSpec
from netconsole.probes.ratios import is_too_few, too_few
from netconsole.profile.escalation_rules import SUFFIX
from netconsole.telemetry.example import Example, ago, example_text
from netconsole.telemetry.ledger import LEDGER, LEDGER_COUNTS
from netconsole.telemetry.state import ProbeState
from netconsole.telemetry.tables import RowState, TableState
from netconsole.tui.panes import advice, drawn, investigation
from netconsole.tui.panes.common import baseline_cells, events
from netconsole.tui.panes.common.columns import interval_counts, label_text
from netconsole.tui.panes.common.tables import value_columns
from netconsole.tui.scene.scene import Scene, Subject, reason, state_word
from netconsole.tui.widgets.bars import PERCENTILES, summary
from netconsole.tui.widgets.bars import lines as histogram_lines
from netconsole.tui.widgets.look import LEVEL_TONES
from netconsole.tui.widgets.painted import Line, Piece
from netconsole.tui.widgets.spark import chart, condense

CHART_LINES = 6
HISTOGRAM_LINES = 14
TOLERANCE_NS = 3_000_000_000
"""Intervals are not equally long: a chart that begins so much later than its incident has its beginning."""
MAX_EPISODES = 10
"""Of what came again, the newest that are listed."""
_INDENT = "  "


def lines(scene: Scene, subject: Subject, width: int) -> list[Line]:
    """The page of a row, whatever kind it is; says so when the row is gone."""
    state = scene.state.probes.get(subject.probe)
    manifest = scene.manifests.get(subject.probe.removesuffix(SUFFIX))
    if state is None or manifest is None:
        return [[(" this probe is not in the session any more", "dim")]]
    body: Iterator[Line]
    if subject.kind == "table":
        body = _table(scene, state, manifest, subject, width)
    elif subject.kind == "histogram":
        body = _histogram(scene, state, manifest, subject, width)
    elif subject.kind == "event":
        body = _event(scene, subject)
    elif subject.kind in drawn.WHOLE_PAGES:
        body = drawn.WHOLE_PAGES[subject.kind](scene, subject, width)
    else:
        body = _probe(scene, state, manifest)
    return [
        *_title(scene, manifest, state, subject),
        *_stands_out(scene, subject),
        *investigation.lines(scene, subject),
        *_advice(scene, subject),
        *_joined(scene, manifest, subject, width),
        *body,
        *_ledger(state, manifest),
        *_limits(manifest),
    ]


def table_title(scene: Scene, subject: Subject) -> str:
    """The title of the table that a row stands in."""
    manifest = scene.manifests[subject.probe]
    titles = [spec.title for spec in (manifest.tables.get(subject.name), manifest.histograms.get(subject.name)) if spec]
    return titles[0] if titles and titles[0] else manifest.title


def _joined(scene: Scene, manifest: Manifest, subject: Subject, width: int) -> Iterator[Line]:
    """What other tables and probes know of the row, where its table names a page."""
    page = manifest.tables[subject.name].page if subject.kind == "table" else ""
    return drawn.PAGES[page](scene, subject, width) if page else iter(())


def _title(scene: Scene, manifest: Manifest, state: ProbeState, subject: Subject) -> Iterator[Line]:
    what = manifest.title
    if subject.kind == "table":
        what = manifest.tables[subject.name].title or what
    elif subject.kind == "histogram":
        what = manifest.histograms[subject.name].title or what
    who = advice.named(scene, subject)
    told = f" {what}: {who}" if who else f" {what}"
    yield [(f"{told}  ", "strong"), *_probe_runs(manifest, state)]
    yield []


def _probe_runs(manifest: Manifest, state: ProbeState) -> list[Piece]:
    """That the probe runs, or what it does instead. Not with the word ok, which looks like that of the row."""
    word, tone = state_word(state)
    is_well = state.status == "attached"
    does: list[Piece] = [(" runs", "dim")] if is_well else [(" ", "dim"), (word, tone)]
    return [(f"probe {manifest.name}", "dim"), *does, (f", mode {state.mode}", "dim")]


def _stands_out(scene: Scene, subject: Subject) -> Iterator[Line]:
    """The findings that this row proves, with when, how much at most and how much in total."""
    for finding in advice.incidents(scene, subject):
        if finding.ended_ns is None:
            when = f"since {clock(finding.since_ns)}"
        else:
            when = _stretch(finding.since_ns, finding.ended_ns)
        yield [(f" {finding.level} ", LEVEL_TONES[finding.level]), (f"{told(finding)}, {when}", "strong")]
        how_much = list(_how_much(finding))
        if how_much:
            yield [(f"{_INDENT}{' · '.join(how_much)}", "")]
        if finding.example is not None and not _keeps_packet(scene, subject):
            yield from _packet(finding.example, f"at {clock(finding.example.wall_ns)}")
        for before in finding.before[-MAX_EPISODES:]:
            much = "" if before.total is None else f": {figure.things(before.total, finding.unit, before.at_least)}"
            yield [(f"{_INDENT}before, {_stretch(before.since_ns, before.ended_ns)}{much}", "dim")]


def _stretch(since_ns: int, until_ns: int) -> str:
    """From when to when, or at which second."""
    begin, end = clock(since_ns), clock(until_ns)
    return f"at {begin}" if begin == end else f"from {begin} to {end}"


def _keeps_packet(scene: Scene, subject: Subject) -> bool:
    """Whether the row is there, and tells its latest packet itself."""
    row = advice.row_of(scene, subject)
    return isinstance(row, RowState) and row.example is not None


def _packet(example: Example, when: str) -> Iterator[Line]:
    if text := example_text(example.fields, when):
        yield [(f"{_INDENT}{'latest packet':<14}", "dim"), (text, "")]


def _how_much(finding: Incident) -> Iterator[str]:
    if finding.is_count:
        so_far = "" if finding.ended_ns is not None else " so far"
        yield f"{figure.things(finding.total, finding.unit, finding.mark)}{so_far}"
        yield f"peak {figure.amount(finding.peak, finding.unit, finding.mark)}/s"
    elif finding.peak is not None and finding.unit:
        yield f"peak {figure.quantity(finding.peak, finding.unit, finding.mark)}"
    if finding.share_pct is not None:
        yield f"{figure.percent(finding.share_pct)} of what passes"


def _advice(scene: Scene, subject: Subject) -> Iterator[Line]:
    """What to look at next, and commands to copy or to run."""
    told = advice.advice(scene, subject)
    others = advice.elsewhere(scene, subject)[:1]
    wanted = advice.investigable(scene, subject)
    asked = scene.investigation
    if wanted is not None and (asked is None or asked.why or asked.labels != wanted.key):
        of = "" if wanted == subject else f" ({table_title(scene, wanted)})"
        yield [(f"{_INDENT}i", "key"), (f": 30 s of samples of this alone, with flows, ports and stacks{of}", "")]
    for text in told.next:
        yield [(f"{_INDENT}→ ", "head"), (text, "")]
    for line in told.commands:
        yield [(f"{_INDENT}$ ", "head"), (line, "key")]
    for other in others:
        yield [(f"{_INDENT}Enter: ", "key"), (f"{table_title(scene, other)} {advice.named(scene, other)}", "")]
    if told.next or told.commands or others or wanted or advice.incidents(scene, subject):
        yield []


def _labels(labels: Sequence[tuple[str, object]]) -> Iterator[Line]:
    for name, value in labels:
        text = label_text(value if isinstance(value, (str, int)) else None)
        yield [(f"{_INDENT}{name:<14}", "dim"), (text, "strong")]


def _table(scene: Scene, state: ProbeState, manifest: Manifest, subject: Subject, width: int) -> Iterator[Line]:
    spec = manifest.tables[subject.name]
    table = state.tables.get(subject.name)
    order = {name: place for place, name in enumerate(spec.labels)}
    yield from _labels(sorted(subject.key, key=lambda pair: order.get(pair[0], 99)))
    row = table.rows.get(subject.key) if table else None
    if table is None or row is None:
        yield []
        yield [(f"{_INDENT}this row is gone: it counted nothing in the last ten intervals", "look")]
        for one in advice.incidents(scene, subject)[:1]:
            if one.past and one.ended_ns is not None:
                yield []
                first_ns = one.ended_ns - len(one.past) * scene.state.sources[state.source].usual_interval_ns
                is_whole = first_ns <= one.since_ns + TOLERANCE_NS
                ends = f"begins {clock(one.since_ns)}" if is_whole else clock(first_ns), f"ends {clock(one.ended_ns)}"
                unit, things = ("ns", "") if one.unit == "ns" else ("", f"{one.unit} ")
                yield from _chart(one.past, 0, width, f"as it was, {things}per second", unit, ends)
        return
    yield [(f"{_INDENT}{'first seen':<14}", "dim"), (events.clock(row.first_seen_ns)[:8], "")]
    yield [(f"{_INDENT}{'last active':<14}", "dim"), (events.clock(row.last_active_ns)[:8], "")]
    yield []
    for value in value_columns(spec):
        if value.part and row.gauges.get(value.name) is None and is_too_few(spec, interval_counts(row)):
            yield [(f"{_INDENT}{value.name:<18} ", "dim"), (too_few(spec), "dim")]
        else:
            yield _value(row, value.name, value.unit, value.kind == "max", state, table)
    yield []
    if scene.comparison is not None:
        reference = scene.comparison.reference
        values = value_columns(spec)
        figures = [(one.name, reference.value(state, manifest, subject.name, row, one)) for one in values]
        yield from baseline_cells.lines(figures, reference.name, reference.why_not(state, manifest))
    if row.example is not None:
        now_ns = scene.state.sources[state.source].closed_wall_ns or row.last_active_ns
        yield from _packet(row.example, ago(row.example.wall_ns, now_ns))
        yield []
    yield from _chart(table.history(row.key, spec.sort), table.timeline.tick, width, sorted_by(spec), time_unit(spec))


def sorted_by(spec: TableSpec) -> str:
    """What the history of a row is of; a time has its unit beside its figures."""
    return f"{spec.sort.removesuffix('_ns').replace('_', ' ')} per second"


def time_unit(spec: TableSpec) -> str:
    """The unit of what a table is sorted by, where that is a time; a count has none in a chart."""
    return next((value.unit for value in spec.value if value.name == spec.sort and value.unit == "ns"), "")


def _value(row: RowState, name: str, unit: str, is_gauge: bool, state: ProbeState, table: TableState) -> Line:
    head: Piece = (f"{_INDENT}{name:<18} ", "dim")
    if is_gauge:
        return [head, (figure.quantity(row.gauges.get(name), unit), "strong")]
    total = row.total(name)
    rate = row.per_s(name)
    if unit == "ns":
        share = None if rate is None else rate / 1e7
        written, whole = figure.percent(share, state.lacks_now), figure.duration(total)
        return [head, (figure.fit(written, 16), "strong"), (f" of a core, {whole} in total", "")]
    return [
        head,
        (figure.fit(figure.rate(rate, unit, state.rate_mark(table)), 22), "strong"),
        (f" {figure.count(total, state.total_mark(row, name))} in total{_give_or_take(row, name)}", ""),
    ]


def _give_or_take(row: RowState, name: str) -> str:
    """By how much a scaled total may be off."""
    total, error = row.total(name), row.error(name)
    return f", ± {figure.percent(100 * error / total)} (95 times in 100)" if total and error else ""


def _histogram(scene: Scene, state: ProbeState, manifest: Manifest, subject: Subject, width: int) -> Iterator[Line]:
    group = state.histograms.get(subject.name)
    yield from _labels(subject.key)
    one = group.rows.get(subject.key) if group else None
    if group is None or one is None:
        yield []
        yield [(f"{_INDENT}this histogram is gone: it had no sample for a while", "look")]
        return
    yield []
    yield [(f"{_INDENT}last interval  ", "dim"), (summary(one.delta, one.unit), "")]
    yield [(f"{_INDENT}since attached ", "dim"), (summary(one.total, one.unit), "")]
    yield []
    if scene.comparison is not None:
        reference = scene.comparison.reference
        figures = [
            (f"p{percent:g}", reference.percentile(state, manifest, subject.name, one, percent))
            for percent in PERCENTILES
        ]
        yield from baseline_cells.lines(figures, reference.name, reference.why_not(state, manifest))
    yield [(f"{_INDENT}Since attached", "head")]
    for line in histogram_lines(one.total, one.unit, width - 4, HISTOGRAM_LINES):
        yield [(_INDENT + line, "")]
    yield []
    yield from _chart(group.history(one.key), group.timeline.tick, width, "p99 of each interval", one.unit)


def _event(scene: Scene, subject: Subject) -> Iterator[Line]:
    event = events.find(scene, subject)
    if event is None:
        yield [(f"{_INDENT}newer events have replaced this one", "look")]
        return
    yield [(f"{_INDENT}{'time':<14}", "dim"), (events.clock(event.happened_ns), "strong")]
    for name, value in event.fields.items():
        if isinstance(value, list):
            yield [(f"{_INDENT}{figure.safe(name, 32)}, innermost first", "dim")]
            for entry in value:
                yield [(f"{_INDENT}  {figure.safe(entry)}", "")]
        else:
            yield [(f"{_INDENT}{figure.safe(name, 14):<14}", "dim"), (figure.safe(value), "strong")]
    yield []
    yield [(f"{_INDENT}{events.share_seen(scene)}", "dim")]


def _probe(scene: Scene, state: ProbeState, manifest: Manifest) -> Iterator[Line]:
    if why := reason(state):
        yield [(f"{_INDENT}{why}", "look")]
    for point in state.attach:
        yield [(f"{_INDENT}{'attached to':<14}", "dim"), (figure.safe(point), "")]
    for point in state.missing:
        yield [(f"{_INDENT}{'not attached':<14}", "dim"), (figure.safe(point), "look")]
    yield []
    for name, knob in state.knobs.items():
        default = manifest.knobs.get(name)
        text = "not set" if knob in ("", None) or (knob == 0 and default == 0) else figure.safe(knob)
        yield [(f"{_INDENT}{figure.safe(name, 24):<18}", "dim"), (text, "" if knob == default else "strong")]
    yield []
    for counter, spec in manifest.counters.items():
        counted = state.counters.get(counter)
        written = figure.UNKNOWN if counted is None else figure.count(counted.count.total, not state.is_exact(counter))
        yield [(f"{_INDENT}{counter:<18}", "dim"), (f"{written} {spec.unit}", ""), (f"  {spec.help}", "dim")]
    yield []
    if scene.comparison is not None:
        reference = scene.comparison.reference
        counters = [(name, reference.counter(state, manifest, name)) for name in manifest.counters]
        yield from baseline_cells.lines(counters, reference.name, reference.why_not(state, manifest))


def _chart(
    history: Sequence[float | None], tick: int, width: int, what: str, unit: str, ends: tuple[str, str] | None = None
) -> Iterator[Line]:
    """``ends``: what the axis says of its two ends; else it goes up to now."""
    room = max(10, width - 16)
    shown = condense(history, room, tick)
    known = [value for value in shown if value is not None]
    yield [(f"{_INDENT}{what}" + ("" if ends else f", last {max(1, len(history) // 60)} min"), "head")]
    if not known:
        yield [(f"{_INDENT}no history yet" if history else f"{_INDENT}no history is kept for this row", "dim")]
        yield []
        return
    top = max(known)
    label = figure.quantity(top, unit) if unit else figure.number(top)
    for place, text in enumerate(chart(shown, len(shown), CHART_LINES, top)):
        edge = label if place == 0 else "0" if place == CHART_LINES - 1 else ""
        yield [(f"{_INDENT}{figure.fit(edge, 9, right=True)} ", "dim"), (text, "trend")]
    left, right = ends or ("10 min ago", "now")
    axis = figure.fit(right, max(len(right), len(shown) - len(left)), right=True) if not ends else f" … {right}"
    yield [(f"{_INDENT}{'':10}{left}{axis}", "dim")]
    yield []


def _ledger(state: ProbeState, manifest: Manifest) -> Iterator[Line]:
    counts = state.at_least()
    samples = state.cost.samples_lost()
    if state.events_shed:
        samples["shed"] = samples.get("shed", 0) + state.events_shed  # by the collector, and here
    yield [(f"{_INDENT}Losses", "head")]
    scaled = state.cost.estimated_counts()
    if not counts and not samples and not scaled:
        yield [(f"{_INDENT}none: no run missed, no row refused, no event suppressed or lost", "ok")]
    for name, count in {**counts, **scaled, **samples}.items():
        mark = "≥ " if name in LEDGER_COUNTS else "≈ " if name in scaled else "  "
        words = manifest.losses.get(name) or LEDGER.get(name, "")
        yield [(f"{_INDENT}{mark}{name:<13}{figure.count(count):>12}", "look"), (f"  {words}", "")]
    yield []


def _limits(manifest: Manifest) -> Iterator[Line]:
    yield [(f"{_INDENT}What it cannot see  ", "head"), (manifest.cannot_see or "nothing known", "")]
