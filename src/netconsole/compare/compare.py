"""Compares a snapshot with a baseline of one or more: finds what changed beyond chance, the most important first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TypeAlias

import msgspec

from netconsole.base import figure
from netconsole.compare.comparable import other_scope, probe_differs, within
from netconsole.compare.document import (
    Comparison,
    Condition,
    Direction,
    Figure,
    Finding,
    NotComparable,
    Side,
    Verdict,
)
from netconsole.compare.facts import changed_facts, explained_by
from netconsole.compare.judge import (
    BURST_WEIGHT,
    PERCENTILES,
    SPREAD_SNAPSHOTS,
    TYPICAL_BURST,
    Judged,
    Spreads,
    counted,
    enough,
    judge_count,
    judge_gauge,
    judge_histogram,
    judge_ratio,
    lasting,
    log_rates,
    log_values,
)
from netconsole.compare.labels import HOST_NETNS
from netconsole.compare.metrics import (
    NO_MANIFESTS,
    ColumnKey,
    Identity,
    Metric,
    Metrics,
    flatten,
    metric_key,
)
from netconsole.compare.places import changed_machines, changed_mirror, changed_places
from netconsole.compare.pseudonyms import NAMES, WHY, DifferingNames, differing_names
from netconsole.compare.sentences import figures, sentence
from netconsole.compare.significance import dispersion, false_discovery_limit
from netconsole.compare.sums import Pair, Part, change_of, rests, said_once
from netconsole.probes.manifest import Manifest
from netconsole.snapshot.document import IncidentData, Snapshot, SnapshotValue, number, seconds
from netconsole.snapshot.passing import RECEIVED, SENT, passing

FALSE_DISCOVERIES = 0.01
"""The share of findings that may be chance. When nothing has changed, it is the probability of any finding."""
MAX_FINDINGS = 200
MAX_UNCERTAIN = 10
"""Findings that are large but may be chance. They are shown last, and are not part of the verdict."""
MIN_SHARE = 0.05
"""For figures that are neither worse nor better (traffic, work): a change is a finding from this share of the whole
table's figure on. Beside 100 000 packets/s, another 30 packets/s are no finding."""
LEAST_SHARE, MUCH_SHARE = 0.001, 0.01
"""From these shares of their device's packets on, drops of class benign are a loss. The first is for new drops."""
_TRAFFIC = (RECEIVED, SENT)
"""Columns of tables of devices. A loss is a share of these packets."""
_CONDITIONS = (
    ("machine_cpu_pct", "%", "busy share of all CPUs of the machine"),
    ("kernel_cpu_pct", "%", "time of our programs in the kernel, of one core"),
)
"""Keys of a snapshot's ``cost``, with unit and name."""
_MAX_NOT_COMPARABLE = 500
_MAX_TEXT, _MAX_TEXTS = 1000, 10
"""Characters of a text of an incident, and texts of its lists: every finding may have them, and a file is anybody's."""


def compare(
    current: Snapshot,
    baseline: Sequence[Snapshot],
    names: Sequence[str] = (),
    manifests: Mapping[str, Manifest] = NO_MANIFESTS,
) -> Comparison:
    """Compares a snapshot with a baseline, which must not be empty. ``names`` are the baseline's file names.

    It raises nothing for valid snapshots.
    """
    baseline = [within(one, current.profile.scope, manifests) for one in baseline]
    before = [flatten(snapshot, manifests) for snapshot in baseline]
    compared = compare_metrics(flatten(current, manifests), before, names)
    places = changed_places(current, baseline, manifests)
    mirror, machines = changed_mirror(current, baseline), changed_machines(current, baseline)
    return msgspec.structs.replace(compared, drop_places=places, mirror=mirror, machines=machines)


def compare_metrics(now: Metrics, before: Sequence[Metrics], names: Sequence[str] = ()) -> Comparison:
    """As :func:`compare`, for flattened snapshots: a baseline can be flattened once for many comparisons."""
    left_out: dict[str, str] = {}
    names_differ = differing_names(now.snapshot, [one.snapshot for one in before], now.manifests)
    if names_differ.why is not None:
        left_out[NAMES] = names_differ.why
    judged, is_known = _judge_all(now, before, left_out, names_differ)
    limit = false_discovery_limit((one.p for one in judged), FALSE_DISCOVERIES)
    certain = [one for one in judged if one.large and one.p <= limit]
    uncertain = sorted((one for one in judged if one.large and one.p > limit), key=lambda one: one.p)[:MAX_UNCERTAIN]
    certain, parts = said_once(certain, {one.metric.identity: one for one in judged})
    changes = [
        one
        for one in changed_facts(now, before)
        if not any(map(names_differ.within, (one.fact, one.baseline, one.current)))
    ]
    ranked = sorted(certain, key=_importance) + sorted(uncertain, key=_importance)
    shown = ranked[:MAX_FINDINGS]
    explained = explained_by([one.metric for one in shown], changes, now.manifests)
    told = _incidents(now)
    findings = [
        _finding(
            rank, one, rank <= len(certain), parts.get(one.metric.identity), facts, now.manifests.get(one.metric.probe)
        )
        for rank, (one, facts) in enumerate(zip(shown, explained, strict=True), 1)
    ]
    findings = [_with_incident(one, judged.metric, told) for one, judged in zip(findings, shown, strict=True)]
    reasons = sorted(left_out.items(), key=lambda one: (one[0] != NAMES, one))  # what is said of all names first
    ranks: dict[str, list[int]] = {}
    for finding in findings:
        for fact in finding.facts:
            ranks.setdefault(fact, []).append(finding.rank)
    return Comparison(
        verdict=_verdict([direction_of(one) for one in certain], any(change.is_setting for change in changes))
        if is_known
        else "unknown",
        findings=findings,
        facts_changed=[change.with_ranks(ranks.get(change.fact, [])) for change in changes],
        not_comparable=[NotComparable(key, why) for key, why in reasons[:_MAX_NOT_COMPARABLE]],
        conditions=_conditions(now, before),
        compared=len(judged),
        findings_omitted=len(ranked) - len(shown),
        current=_side(now.snapshot, ""),
        baseline=[_side(one.snapshot, name) for one, name in zip(before, [*names, *[""] * len(before)], strict=False)],
    )


def _conditions(now: Metrics, before: Sequence[Metrics]) -> list[Condition]:
    found = []
    for key, unit, name in _CONDITIONS:
        values = [cost for one in before if (cost := _cost(one.snapshot, key)) is not None]
        current = _cost(now.snapshot, key)
        if values or current is not None:
            found.append(Condition(name, unit, min(values, default=None), max(values, default=None), current))
    return found


def _cost(snapshot: Snapshot, key: str) -> float | None:
    return number(snapshot.cost.get(key))


def direction_of(one: Judged) -> Direction:
    """Worse, better, or different: by the direction of the change, and which direction is worse for this metric."""
    if one.worse is None or one.stands_for.name == "shape":
        return "different"
    return "worse" if (one.stands_for.log2_ratio > 0) == (one.worse == "up") else "better"


def _judge_all(
    now: Metrics, before: Sequence[Metrics], left_out: dict[str, str], names_differ: DifferingNames
) -> tuple[list[Judged], bool]:
    """The metrics that can be judged, and whether anything is known of what changed: nothing on both sides is, too."""
    usable = _usable(now, before, left_out)
    everything = dict(now.by_identity)
    for one in before:
        for key, metric in one.by_identity.items():
            everything.setdefault(key, metric)
    pairs: list[Pair] = []
    unmatched: set[Identity] = set()
    figures = {key: metric for key, metric in everything.items() if metric.probe in usable}
    for key, metric in figures.items():
        sides = usable[metric.probe]
        current = now.by_identity.get(key)
        past = [one.by_identity.get(key) for one in sides]
        is_lacking = current is None or None in past
        if is_lacking and any(names_differ.within(value) for _, value in metric.labels):
            left_out[metric.key] = WHY  # its counter is compared with it in: both sides count it
            continue
        why = _unmatched(metric, now, sides) if is_lacking else None
        why = _other_units((current, *past)) or why
        if why is not None:
            left_out[metric.key] = why
            unmatched.add(key)
        else:
            pairs.append((current or _nothing_of(metric), past, sides))
    pairs = rests(pairs, now, unmatched)
    spreads = _learned(pairs)
    judged: list[Judged] = []
    is_known = bool(usable) and not figures
    work = _work(pairs, now)
    traffic = _traffic(now)
    bursts: dict[tuple[ColumnKey, ColumnKey, tuple[bool, ...]], float] = {}
    spans = {name: [seconds(one.snapshot, name) for one in (now, *sides)] for name, sides in usable.items()}
    for current, past, sides in pairs:
        now_s, *past_s = spans[current.probe]
        own, whole = current.identity[:3], (current.counter or current.identity)[:3]
        # A snapshot without this row says nothing about the row's bursts.
        there = tuple(one is not None and bool(one.count) for one in (current, *past))
        burst = bursts.get((own, whole, there))
        if burst is None:  # all rows of a column have the same
            burst = _burst(own, whole, [side for side, is_there in zip((now, *sides), there, strict=True) if is_there])
            bursts[own, whole, there] = burst
        result = _judge(current, past, past_s, now_s, spreads, burst)
        if result is not None:
            result.share = _share(result, traffic)
            if current.benign is not None and _is_loss(result):
                result.worse = current.benign
            if current.kind == "table" and result.worse is None:
                result.large &= abs(change_of(result)) >= MIN_SHARE * work[_work_of(current)]
            judged.append(result)
        elif why := next((one.too_few for one in (current, *past) if one is not None and one.too_few), ""):
            left_out[current.key] = why
        elif current.kind == "gauge":
            name = f"{current.probe}/gauge/{current.name}"
            left_out.setdefault(name, "fewer than three runs of the baseline have this figure")
        elif current.kind != "histogram":
            is_known = True  # 0 on both sides
    return judged, is_known or bool(judged)


def _judge(
    metric: Metric,
    past: Sequence[Metric | None],
    spans: Sequence[float],
    now_s: float,
    spreads: Spreads,
    burst: float,
) -> Judged | None:
    if metric.kind == "histogram":
        known = [one.histogram for one in past if one is not None and one.histogram is not None]
        return judge_histogram(metric, known, spreads) if known else None
    if metric.kind == "gauge":
        values = [one.value for one in past if one is not None and one.value is not None]
        return judge_ratio(metric, values, spreads) if metric.is_ratio else judge_gauge(metric, values, spreads)
    return judge_count(metric, now_s, list(zip(past, spans, strict=True)), spreads, burst)


def _is_loss(one: Judged) -> bool:
    """Whether more drops of class benign are a loss: because they are new and lasting, or much of the traffic."""
    shown = one.stands_for
    if not one.large or shown.log2_ratio <= 0:
        return False
    least = LEAST_SHARE if not shown.baseline else MUCH_SHARE
    return (one.share is None and not shown.baseline) or (one.share is not None and one.share >= least)


def _share(one: Judged, traffic: Mapping[SnapshotValue, Mapping[str, float]]) -> float | None:
    """The loss of a row as a share of its device's packets in its direction. None when it is not known."""
    row = one.metric
    if row.kind != "table" or "up" not in (row.worse, row.benign) or row.unit != "packets":
        return None
    labels = dict(row.labels)
    packets = traffic.get(labels.get("device"), {}) if labels.get("netns", HOST_NETNS) == HOST_NETNS else {}
    lost, way = change_of(one), passing("", row.name.rpartition(".")[2], labels)
    pct = way.share_pct(packets.get(way.counter), lost) if any(packets.values()) and lost > 0 else None
    return None if pct is None else pct / 100


def _traffic(now: Metrics) -> dict[SnapshotValue, dict[str, float]]:
    """Packets per second of each device, by the column that has them."""
    found: dict[SnapshotValue, dict[str, float]] = {}
    for metric in now.by_identity.values():
        column = metric.name.rpartition(".")[2]
        if metric.kind == "table" and column in _TRAFFIC and len(metric.labels) == 1:
            label, device = metric.labels[0]
            span_s = seconds(now.snapshot, metric.probe)
            if label == "device" and span_s:
                found.setdefault(device, {})[column] = metric.count / span_s
    return found


def _work(pairs: Iterable[Pair], now: Metrics) -> dict[tuple[str, str, str], float]:
    """Sums per second of a table's rows that are neither worse nor better, by unit, of the busiest snapshot."""
    sums: dict[tuple[str, str, str], dict[int, float]] = {}
    for current, past, sides in pairs:
        if current.kind == "table" and current.worse is None:
            by_side = sums.setdefault(_work_of(current), {})
            for metric, side in zip((current, *past), (now, *sides), strict=True):
                if metric is not None:
                    by_side[id(side)] = by_side.get(id(side), 0.0) + metric.count / seconds(side.snapshot, metric.probe)
    return {of: max(by_side.values()) for of, by_side in sums.items()}


def _work_of(metric: Metric) -> tuple[str, str, str]:
    return metric.probe, metric.name.partition(".")[0], metric.unit


def _burst(own: ColumnKey, whole: ColumnKey, sides: Sequence[Metrics]) -> float:
    """How many events come at once. It is estimated from the series of the column, or of its counter."""
    series = [side.series.get(own) or side.series.get(whole, []) for side in sides]
    return dispersion(series, TYPICAL_BURST, BURST_WEIGHT)


def _learned(pairs: Iterable[Pair]) -> Spreads:
    """The typical spreads of the baseline. Figures that are too rare to have a spread are left out."""
    spreads = Spreads()
    for metric, past, sides in pairs:
        if len(sides) < SPREAD_SNAPSHOTS:
            continue
        if metric.kind == "histogram":
            known = [one.histogram for one in past if one is not None and one.histogram is not None]
            for name, percent in PERCENTILES.items():
                spreads.learn(name, log_values([one.percentile(percent) for one in known if enough(one, percent)]))
            spreads.learn("mean", log_values([one.mean for one in known if one.count]))
        elif metric.kind in ("counter", "table"):
            counts = [counted(one, seconds(side.snapshot, metric.probe)) for one, side in zip(past, sides, strict=True)]
            for name, ones in (("rate", counts), ("lasting", [lasting(one) for one in counts])):
                seen = [one for one in ones if one is not None and one.events > 1]
                if len(seen) == len(sides):
                    spreads.learn(name, log_rates(seen))
    return spreads


def _usable(now: Metrics, before: Sequence[Metrics], left_out: dict[str, str]) -> dict[str, list[Metrics]]:
    """For each probe, the baseline's snapshots that it can be compared with. ``left_out`` gets the other ones."""
    snapshot = now.snapshot
    profiles = {one.snapshot.profile.name for one in before} - {snapshot.profile.name}
    if profiles:
        other = ", ".join(sorted(profiles))
        left_out["profile"] = (
            f"the profiles differ (now {snapshot.profile.name}, before {other}), and filters may differ too; "
            "only probes that both have in the same mode are compared"
        )
    usable: dict[str, list[Metrics]] = {}
    names = dict.fromkeys([*snapshot.probes, *(name for one in before for name in one.snapshot.probes)])
    for name in names:
        current = snapshot.probes.get(name)
        reasons = []
        for one in before:
            past = one.snapshot.probes.get(name)
            why = other_scope(snapshot.profile.scope, one.snapshot.profile.scope) or probe_differs(
                current, past, min(seconds(snapshot, name), seconds(one.snapshot, name))
            )
            if why is None:
                usable.setdefault(name, []).append(one)
            else:
                reasons.append(why)
        if reasons and name not in usable:
            left_out[name] = reasons[0]
        elif reasons:
            left_out[name] = f"{len(reasons)} of {len(before)} snapshots of the baseline left out: {reasons[0]}"
    return usable


def _unmatched(metric: Metric, now: Metrics, before: Sequence[Metrics]) -> str | None:
    """Why a metric that a snapshot lacks cannot be compared. None when it can: then a missing count is 0."""
    there = metric.identity in now.by_identity
    lacking = [one for one in (now, *before) if metric.identity not in one.by_identity]
    if metric.kind in ("histogram", "gauge"):
        has_none = not there or len(lacking) == len(before)  # some snapshots of the baseline are enough
        return f"only in the {'current snapshot' if there else 'baseline'}" if has_none else None
    reasons = [not_zero(metric.identity, one, "baseline" if there else "current") for one in lacking]
    return next((why for why in reasons if why is not None), None)


def _other_units(sides: Iterable[Metric | None]) -> str | None:
    """Why a metric cannot be compared that snapshots have in different units. None when its unit is the same."""
    units = sorted({one.unit for one in sides if one is not None and one.unit})
    return f"in {' and '.join(units)}: figures of different units cannot be compared" if len(units) > 1 else None


def not_zero(identity: Identity, lacking: Metrics, side: str) -> str | None:
    """Why a count that is missing in ``lacking`` is not known to be 0 there. None when it is 0."""
    probe, _, name, labels = identity
    if f"{probe}/table/{name.partition('.')[0]}" in lacking.partial:
        return f"the table was full on the {side} side: a missing row may not be 0"
    meanings = lacking.meanings(probe, name.partition(".")[0])
    namespace = next((value for label, value in labels if meanings.of(label) == "netns"), HOST_NETNS)
    there = lacking.names.known_namespaces
    if there and namespace not in there:
        return f"no such network namespace on the {side} side"
    # The facts name only the devices of the host's own network namespace.
    is_own = namespace == HOST_NETNS
    devices = [str(value) for label, value in labels if meanings.of(label) == "device" and value and is_own]
    known = lacking.names.known_devices if devices else ()
    if known and any(device not in known for device in devices):
        return f"no such device on the {side} side"
    return None


def _nothing_of(metric: Metric) -> Metric:
    """The same row with a count of 0, for a snapshot that lacks it."""
    return Metric(metric.identity, metric.unit, metric.worse, counter=metric.counter)


def _importance(one: Judged) -> tuple[int, float, float, str]:
    """The sort key of findings: worse, different, better; then the larger change; then the more certain one."""
    order = {"worse": 0, "different": 1, "better": 2}[direction_of(one)]
    return order, -round(abs(one.size), 1), one.p, one.metric.key


def _verdict(directions: Sequence[Direction], facts_changed: bool) -> Verdict:
    if "worse" in directions:
        return "regressed"
    return "changed" if directions or facts_changed else "same"


def _finding(
    rank: int, one: Judged, significant: bool, part: Part | None, facts: list[str], manifest: Manifest | None
) -> Finding:
    shown = one.stands_for
    details = _details(one, significant, part)
    shape = shown.name == "shape"
    return Finding(
        rank=rank,
        metric=one.metric.key,
        unit="log2 units" if shape else one.unit,
        baseline=shown.baseline,
        current=shown.current,
        ratio=None if shape else shown.ratio,
        difference=change_of(one),
        spread=shown.spread,
        significant=significant,
        direction=direction_of(one),
        why="; ".join([figures(one), *details]),
        what=sentence(one, manifest, details),
        statistic=shown.name,
        figures=[
            Figure(figure.name, figure.baseline, figure.current, figure.spread)
            for figure in one.statistics
            if figure.name != "shape"
        ],
        distance=one.distance,
        facts=facts,
    )


_StableRow: TypeAlias = tuple[str, str, frozenset[tuple[str, SnapshotValue]]]
"""Probe, table or histogram, and stable labels."""


def _incidents(now: Metrics) -> dict[_StableRow, IncidentData]:
    """What the snapshot says of its rows: of each the worst."""
    found: dict[_StableRow, IncidentData] = {}
    for incident in now.snapshot.incidents or ():
        for proof in incident.evidence:
            if proof.kind != "source":
                labels = now.names.stable(now.meanings(proof.probe, proof.name), proof.labels.items())
                found.setdefault((proof.probe, proof.name, frozenset(labels)), incident)
    return found


def _with_incident(finding: Finding, metric: Metric, told: Mapping[_StableRow, IncidentData]) -> Finding:
    """What is worse, with what stands out there now."""
    incident = told.get((metric.probe, metric.name.partition(".")[0], frozenset(metric.labels)))
    if incident is None or finding.direction != "worse":
        return finding
    advice, commands = ([one[:_MAX_TEXT] for one in some[:_MAX_TEXTS]] for some in (incident.next, incident.commands))
    return msgspec.structs.replace(finding, incident=incident.what[:_MAX_TEXT], next=advice, commands=commands)


def _details(one: Judged, significant: bool, part: Part | None) -> list[str]:
    """What belongs to a change besides its figures: its share, of what it is a part, and whether it may be chance."""
    found = []
    if one.stands_for.name != "shape" and one.share is not None and direction_of(one) == "worse":
        found.append(f"{figure.percent(100 * one.share)} of the packets of its device")
    if part is not None and part[1] > 0:
        found.append(f"{figure.percent(100 * min(1.0, part[1]), digits=2)} of the change of {metric_key(*part[0])}")
    if one.metric.is_rest:
        found.append("rows that are benign or not comparable are left out")
    if not significant:
        found.append("may be chance")
    return found


def _side(snapshot: Snapshot, name: str) -> Side:
    host, profile = snapshot.host.name, snapshot.profile.name
    return Side(host, snapshot.created, profile, snapshot.duration_s, PurePath(name).name)
