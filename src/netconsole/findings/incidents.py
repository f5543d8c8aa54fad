"""STANDS OUT: incidents, one for each cause at each place, from the moment when one begins until it has ended.

:func:`netconsole.findings.matches.matches` tells what stands out in one interval. :class:`Incidents` joins what has one
cause, follows it over time, counts exactly what was lost in it, and keeps a log of all incidents since the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from netconsole.base import figure
from netconsole.findings.matches import Evidence, EvidenceKind, Level, Match, is_lower_bound, matches
from netconsole.findings.windows import LONG, SHORT, Family, Move, Window, Windows
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Budget
from netconsole.session.protocol import Connection
from netconsole.snapshot.builder import utc
from netconsole.snapshot.document import EvidenceData, IncidentData
from netconsole.telemetry.frames import Label
from netconsole.telemetry.state import ProbeState, State
from netconsole.telemetry.tables import RowKey

LEAVES_AFTER = 5
"""Quiet intervals in a row after which an incident has ended."""
LEAVES_AFTER_LASTING = 30
"""The same for a small one, which does not move in every interval."""
BLIND_AFTER = 2
"""Unknown intervals in a row after which an incident is no longer measured."""
ENDED_SHOWN = 60
"""Intervals for which an ended incident stays in the list; it stays in the log."""
MAX_SHOWN = 200
MAX_LOG = 1000
WHERE = ("device", "netns", "vm", "queue", "process", "address", "port")
"""Labels that tell where an incident is, for documents."""
ANYWHERE: tuple[Label, ...] = (None, "")
"""Labels that name no place."""

_KINDS: Mapping[EvidenceKind, Literal["table", "histogram", "source"]] = {
    "table": "table",
    "histogram": "histogram",
    "probe": "source",
    "collector": "source",
}
_RANK: dict[Level, int] = {"!!": 0, "!": 1, "?": 2, "ok": 3}


@dataclass(frozen=True, slots=True)
class Incident:
    """One thing that goes wrong. Times are wall clock in ns; ``ended_ns`` is when it was last seen to go on.

    ``total`` is exact unless ``at_least``; None for what is no count. ``peak`` is per second for a count, else in
    ``unit``. ``blind_since_ns``: since then nobody measures it, so nobody knows whether it goes on.
    """

    number: int
    level: Level
    cause: str
    sentence: str
    since_ns: int
    ended_ns: int | None
    blind_since_ns: int | None
    evidence: tuple[Evidence, ...]
    """The most telling one first."""
    where: Mapping[str, Label]
    weight: float
    total: int | None
    peak: float | None
    at_least: bool
    share_pct: float | None
    unit: str
    next: tuple[str, ...]
    commands: tuple[str, ...]
    history: tuple[float | None, ...]

    @property
    def probe(self) -> str:
        """The probe that proves it; empty for the collector itself."""
        return self.evidence[0].probe

    @property
    def is_count(self) -> bool:
        """Whether it has a total, and a peak per second."""
        return self.total is not None


@dataclass(slots=True)
class _Row:
    """What a row has counted in an incident: ``last - start``, and ``before`` a restart of its probe."""

    start: int
    last: int
    before: int = 0

    @property
    def counted(self) -> int:
        return self.before + self.last - self.start

    def take(self, total: int) -> None:
        if total < self.last:
            self.before += self.last - self.start
            self.start = 0
        self.last = total


@dataclass(slots=True)
class _Tally:
    """The rows of one family in an incident, and the most that they counted together in a second."""

    rows: dict[RowKey, _Row] = field(default_factory=dict)
    peak: float = 0.0
    rate: float = 0.0
    """Of the last interval, or for a small one the mean."""
    unit: str = ""

    @property
    def counted(self) -> int:
        return sum(row.counted for row in self.rows.values())


@dataclass(slots=True)
class _Group:
    """The matches of one interval that have one cause."""

    lead: Match
    place: dict[str, Label]
    matches: list[Match]

    @property
    def level(self) -> Level:
        return min((match.level for match in self.matches), key=lambda level: _RANK[level])


@dataclass(slots=True)
class _Open:
    """An incident that has not ended, or ended a moment ago."""

    number: int
    cause: str
    lead: Match
    place: dict[str, Label]
    level: Level
    since_ns: int
    last_ns: int
    peak: float
    tallies: dict[Family, _Tally] = field(default_factory=dict)
    evidence: dict[Evidence, Match] = field(default_factory=dict)
    seen: int = 0
    quiet: int = 0
    unknown: int = 0
    blind_since_ns: int | None = None
    at_least: bool = False
    shown: bool = False
    ended: bool = False
    is_small: bool = True
    """Nothing of it was ever large enough to be said after one interval."""


class Incidents:
    """The list, interval by interval, and the log. One per session; not thread-safe."""

    def __init__(self, manifests: Mapping[str, Manifest], budget: Budget | None = None) -> None:
        self._manifests = manifests
        self._budget = budget or Budget()
        self._windows = Windows(manifests)
        self._open: list[_Open] = []
        self._log: dict[int, Incident] = {}
        self._numbers = 0
        self._interval = -1
        self._tick_ns: dict[str, tuple[int, int]] = {}
        self._current: list[Incident] = []

    @property
    def log(self) -> Iterable[Incident]:
        """All incidents since the start, the oldest first: those that last as they are now. At most MAX_LOG."""
        return self._log.values()

    def update(self, state: State, connection: Connection | None = None) -> list[Incident]:
        """The incidents after this interval, ranked; called again within the same interval it changes nothing.

        A collector that is lost ends no intervals, so then every call counts as one.
        """
        interval = state.collector.intervals + state.console.intervals * (state.collector.intervals == 0)
        lost = connection is not None and connection.phase == "lost"
        if interval == self._interval and not lost:
            return self._current
        self._interval = interval
        now_ns = max(state.collector.closed_wall_ns or 0, state.console.closed_wall_ns or 0)
        if not lost:
            self._windows.update(state)
        found = matches(state, self._manifests, self._windows, self._budget, connection)
        groups = _joined(found)
        reached = self._link(groups, state, now_ns)
        for one in list(self._open):
            self._follow(one, reached.get(one.number), state, now_ns, lost)
        listed = [self._incident(one) for one in self._open if one.shown]
        for incident in listed:
            self._log[incident.number] = incident
        for number in list(self._log)[: max(0, len(self._log) - MAX_LOG)]:
            del self._log[number]
        self._current = sorted(listed, key=_order)[:MAX_SHOWN]
        return self._current

    def _link(self, groups: list[_Group], state: State, now_ns: int) -> dict[int, _Group]:
        """Which open incident each group goes on with; those that nobody goes on with are new."""
        reached: dict[int, _Group] = {}
        for group in groups:
            known = [
                one
                for one in self._open
                if not one.ended
                and one.number not in reached
                and one.cause == group.lead.cause
                and is_same_place(one.place, group.place)
            ]
            if not known and self._explained(group):
                continue
            if not known:
                self._numbers += 1
                since_ns = self._begin_ns(group.lead, state, now_ns)
                one = _Open(
                    self._numbers, group.lead.cause, group.lead, dict(group.place), group.level, since_ns, now_ns,
                    group.lead.value,
                )  # fmt: skip
                self._open.append(one)
                known = [one]
            one = known[0]
            reached[one.number] = group
            # What was seen less closely before turns out to be this one.
            for double in [double for double in known[1:] if double.lead.specific < group.lead.specific]:
                one.since_ns = min(one.since_ns, double.since_ns)
                self._drop(double)
            for cause in group.lead.explains:
                for other in [other for other in self._open if other.cause == cause and not other.ended]:
                    if shares_place(other.place, group.place):
                        one.since_ns = min(one.since_ns, other.since_ns)
                        self._drop(other)
        return {number: group for number, group in reached.items() if any(one.number == number for one in self._open)}

    def _explained(self, group: _Group) -> bool:
        """Whether it only follows from an open incident, whose evidence it becomes."""
        for one in self._open:
            if not one.ended and group.lead.cause in one.lead.explains and shares_place(one.place, group.place):
                one.evidence.update({match.evidence: match for match in group.matches})
                return True
        return False

    def _drop(self, one: _Open) -> None:
        """It was never an incident of its own."""
        if one in self._open:
            self._open.remove(one)
        self._log.pop(one.number, None)

    def _follow(self, one: _Open, group: _Group | None, state: State, now_ns: int, lost: bool) -> None:
        """What this interval says of an open incident."""
        if one.ended:
            one.quiet += 1
            if one.quiet > ENDED_SHOWN:
                self._open.remove(one)
            return
        if group is not None:
            self._take(one, group, state)
        moved = self._count(one, state)
        # A small, lasting loss is still found for a while after it has stopped: its rows tell whether it goes on.
        if moved or (group is not None and any(match.family is None for match in group.matches)):
            one.seen += group is not None
            one.quiet = one.unknown = 0
            one.blind_since_ns = None
            one.last_ns = max(one.last_ns, now_ns) if moved or not one.tallies else one.last_ns
            needed = max(match.needed for match in group.matches) if group is not None else 0
            one.shown = one.shown or (group is not None and one.seen >= min(needed, one.lead.needed))
            return
        if not self._is_known(one, state, lost):
            one.unknown += 1
            one.at_least = True
            if one.unknown >= BLIND_AFTER and one.blind_since_ns is None:
                one.blind_since_ns = now_ns
            return
        one.unknown = 0
        one.blind_since_ns = None
        one.quiet += group is None or one.shown
        one.seen = 0 if not one.shown else one.seen
        if not one.shown:
            if one.quiet >= LEAVES_AFTER:
                self._open.remove(one)
            return
        if one.quiet >= (LEAVES_AFTER_LASTING if one.is_small else LEAVES_AFTER):
            one.ended, one.quiet = True, 0
            for family, tally in one.tallies.items():
                for key in tally.rows:
                    self._windows.forget(family, key)

    def _take(self, one: _Open, group: _Group, state: State) -> None:
        """The incident goes on with these matches."""
        best = one.lead
        if group.lead.specific >= best.specific or best.evidence.probe == group.lead.evidence.probe:
            one.lead = group.lead
            one.place = {**one.place, **{name: value for name, value in group.place.items() if value not in ANYWHERE}}
        one.level = group.level
        one.is_small = one.is_small and all(match.lasting for match in group.matches)
        for match in group.matches:
            one.evidence[match.evidence] = match
            if match.family is None:
                if match.evidence == one.lead.evidence:
                    one.peak = max(one.peak, match.value)
                continue
            tally = one.tallies.setdefault(match.family, _Tally(unit=match.unit))
            window = self._windows.of(match.family).get(match.evidence.key)
            if match.evidence.key in tally.rows or window is None:
                continue
            run = _run(match, window)
            tally.rows[match.evidence.key] = _Row(window.total - sum(move.delta for move in run), window.total)
            tally.peak = max(tally.peak, _most(run) / _interval_s(state, match.family))

    def _count(self, one: _Open, state: State) -> bool:
        """Take over what the incident's rows have counted. True when one of them moved in this interval."""
        moved = False
        for family, tally in one.tallies.items():
            probe = state.probes.get(family.probe)
            table = probe.tables.get(family.table) if probe is not None and probe.measuring else None
            rate = mean = 0.0
            for key, counted in tally.rows.items():
                row = table.rows.get(key) if table is not None else None
                count = row.counts.get(family.value) if row is not None else None
                if count is None:
                    continue
                counted.take(count.total)
                rate += count.per_s or 0.0
                moved = moved or bool(count.delta)
                window = self._windows.of(family).get(key)
                if window is not None and probe is not None:
                    mean += window.mean_per_s(probe.timeline.tick, SHORT, _interval_s(state, family))
            tally.rate = rate if rate and not one.is_small else mean
            tally.peak = max(tally.peak, rate)
            if probe is not None and rate and is_lower_bound(probe):
                one.at_least = True
        return moved

    def _is_known(self, one: _Open, state: State, lost: bool) -> bool:
        """Whether the silence of an incident's evidence in this interval means that there is nothing."""
        if lost:
            return one.cause == "collector-lost"
        proof = {evidence.probe for evidence in one.evidence if evidence.kind in ("table", "histogram")}
        if not proof:
            return True
        # One witness is enough: all of them would have seen it.
        return any(_sees(state.probes.get(name), one, name) for name in proof)

    def _begin_ns(self, match: Match, state: State, now_ns: int) -> int:
        """When the first interval of a run of moves ended."""
        window = self._windows.of(match.family).get(match.evidence.key) if match.family is not None else None
        probe = state.probes.get(match.evidence.probe)
        if window is None or probe is None or match.family is None:
            return now_ns
        run = _run(match, window)
        passed = probe.timeline.tick - run[0].tick if run else 0
        return now_ns - round(passed * _interval_s(state, match.family) * 1e9)

    def _incident(self, one: _Open) -> Incident:
        lead = one.lead
        # A state says how it is now; what was counted in it is told all the same.
        counted = [tally for family, tally in one.tallies.items() if family.probe == lead.evidence.probe]
        tally = one.tallies.get(lead.family) if lead.family is not None else next(iter(counted), None)
        total = tally.counted if tally is not None else None
        peak = tally.peak if tally is not None else (one.peak or None)
        blind = one.blind_since_ns
        value = lead.value
        if tally is not None and lead.family is not None:
            value = tally.peak if one.ended or blind is not None else tally.rate or lead.value
        sentence = lead.sentence(value, total, one.at_least, tally is not None and (one.ended or blind is not None))
        share = lead.share_pct if lead.lasting or (lead.share_pct or 0) >= 1 else None
        if share is not None and not one.ended:
            sentence += f" ({share:.2g} % of its packets)"
        if blind is not None:
            sentence = f"no longer measured: {sentence}"
        ordered = sorted(one.evidence.values(), key=lambda match: (match.evidence != lead.evidence, -match.specific))
        labels: dict[str, Label] = {}
        for match in reversed(ordered):
            labels.update({name: value for name, value in match.labels.items() if value not in ANYWHERE})
        return Incident(
            number=one.number,
            level="?" if blind is not None else one.level,
            cause=one.cause,
            sentence=sentence,
            since_ns=one.since_ns,
            ended_ns=one.last_ns if one.ended else None,
            blind_since_ns=blind,
            evidence=tuple(match.evidence for match in ordered) or (lead.evidence,),
            where={name: labels[name] for name in WHERE if name in labels},
            weight=lead.weight,
            total=total,
            peak=peak,
            at_least=one.at_least,
            share_pct=share,
            unit=tally.unit if tally is not None else lead.unit,
            next=tuple(dict.fromkeys(match.next for match in ordered if match.next)),
            commands=tuple(dict.fromkeys(command for match in ordered for command in match.commands)),
            history=lead.history,
        )


def document(incidents: Iterable[Incident], since_ns: int = 0) -> list[IncidentData]:
    """Incidents as a snapshot has them, the worst first; those that ended before ``since_ns`` are left out."""
    kept = [one for one in incidents if one.ended_ns is None or one.ended_ns >= since_ns]
    return [_data(one) for one in sorted(kept, key=_order) if one.level != "ok"]


def _data(one: Incident) -> IncidentData:
    assert one.level != "ok"
    return IncidentData(
        level=one.level,
        cause=one.cause,
        what=one.sentence,
        where=dict(one.where),
        began=utc(one.since_ns),
        ended=None if one.ended_ns is None else utc(one.ended_ns),
        total=one.total,
        peak_per_s=None if one.total is None or one.peak is None else round(one.peak, 3),
        share_pct=None if one.share_pct is None else round(one.share_pct, 3),
        unit=one.unit,
        evidence=[EvidenceData(proof.probe, _KINDS[proof.kind], proof.name, dict(proof.key)) for proof in one.evidence],
        next=list(one.next),
        commands=list(one.commands),
        at_least=one.at_least,
        not_measured_since=None if one.blind_since_ns is None else utc(one.blind_since_ns),
    )


def told(one: Incident) -> str:
    """The sentence, and of an incident that is over how much it was: ``… up to 955/s …; 21 010 packets in 22 s``."""
    if one.ended_ns is None or one.total is None:
        return one.sentence
    lasted_s = (one.ended_ns - one.since_ns) / 1e9 + 1
    lasted = f"{lasted_s:.0f} s" if lasted_s < 600 else f"{lasted_s / 60:.0f} min"
    total = figure.count(one.total, one.at_least)
    return f"{one.sentence}; {total} {one.unit} in {lasted}"


def is_same_place(one: Mapping[str, Label], other: Mapping[str, Label]) -> bool:
    """Whether no label that both name differs: what does not name a label may be anywhere."""
    return all(value in ANYWHERE or other.get(name) in ANYWHERE or other[name] == value for name, value in one.items())


def shares_place(one: Mapping[str, Label], other: Mapping[str, Label]) -> bool:
    """Whether they are at the same place, and name a place in common."""
    return is_same_place(one, other) and any(
        value not in ANYWHERE and other.get(name) == value for name, value in one.items()
    )


def _joined(found: list[Match]) -> list[_Group]:
    """One group for each cause at each place: led by what says most, then by what explains most."""
    groups: list[_Group] = []
    for match in sorted(found, key=lambda one: (-one.specific, one.lasting, _RANK[one.level], -one.weight)):
        for group in groups:
            if group.lead.cause == match.cause and is_same_place(group.place, match.place):
                group.matches.append(match)
                break
        else:
            groups.append(_Group(match, dict(match.place), [match]))
    for group in list(groups):
        for other in [other for other in groups if other.lead.cause in group.lead.explains and other is not group]:
            if group in groups and shares_place(group.place, other.place):
                group.matches.extend(replace(match, level=group.lead.level) for match in other.matches)
                groups.remove(other)
    return groups


def _sees(probe: ProbeState | None, one: _Open, name: str) -> bool:
    """Whether a probe would have told of the incident in this interval."""
    if probe is None or not probe.measuring or is_lower_bound(probe):
        return False
    for family, tally in one.tallies.items():
        if family.probe != name:
            continue
        table = probe.tables.get(family.table)
        if table is None or table.tick < probe.timeline.tick:
            return False
        rows = [table.rows[key] for key in tally.rows if key in table.rows]
        counts = [row.counts[family.value] for row in rows if family.value in row.counts]
        if any(count.delta is None for count in counts):
            return False
    return True


def _run(match: Match, window: Window) -> list[Move]:
    """The moves of a row that belong to the incident."""
    return window.since(LONG if match.lasting else LEAVES_AFTER)


def _most(run: list[Move]) -> int:
    return max((move.delta for move in run), default=0)


def _interval_s(state: State, family: Family) -> float:
    probe = state.probes.get(family.probe)
    source = state.sources[probe.source] if probe is not None else state.collector
    return (source.interval_ns or 1_000_000_000) / 1e9


def _order(one: Incident) -> tuple[bool, int, float, int, int]:
    return one.ended_ns is not None, _RANK[one.level], -one.weight, one.since_ns, one.number
