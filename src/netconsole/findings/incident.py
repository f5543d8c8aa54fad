"""One incident as it is now, and how it is told: in a sentence, and in documents."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import dropwhile
from math import isnan
from typing import Literal, NamedTuple

from netconsole.base import figure
from netconsole.base.timestamps import clock, utc
from netconsole.findings.causes import ANYWHERE
from netconsole.findings.match import RANK, Evidence, EvidenceKind, Level
from netconsole.snapshot.document import EvidenceData, ExampleData, IncidentData
from netconsole.telemetry.example import Example
from netconsole.telemetry.frames import Label, Scalar
from netconsole.telemetry.tables import RowKey

_KINDS: Mapping[EvidenceKind, Literal["table", "histogram", "source"]] = {
    "table": "table",
    "histogram": "histogram",
    "probe": "source",
    "collector": "source",
}

OURS = ("budget-kept", "escalated", "over-budget-")
"""How causes begin that are no fault of the network: what netconsole does by itself, and what it costs."""


class Episode(NamedTuple):
    """An incident of the same cause and place that is over."""

    since_ns: int
    ended_ns: int
    total: int | None
    at_least: bool


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
    place: Mapping[str, Label] | None = None
    """What makes it another one of its cause; None is not known (of an older recording)."""
    still_since_ns: int | None = None
    """Since then nothing of it was counted, though it has not ended yet."""
    before: tuple[Episode, ...] = ()
    """When it was there before, the oldest first."""
    scaled: bool = False
    """Whether total and peak were made of a share of the packets."""
    kept: bytes = b""
    """Of one that is over: the samples of :attr:`past`, four bytes each."""
    example: Example | None = None
    """The latest packet of the row that has counted most of it; None where no row keeps one."""
    answer: Mapping[str, Scalar | None] = field(default_factory=dict)
    """What the host answered about its cause."""

    @property
    def past(self) -> Sequence[float | None]:
        """What the row that leads counted a second while it lasted, for ten minutes at most; then the last minute."""
        return [None if isnan(one) else one for one in array("f", self.kept)] or self.history

    @property
    def mark(self) -> str:
        """What stands before its total and its peak."""
        return figure.mark(self.at_least, self.scaled)

    @property
    def is_ours(self) -> bool:
        """Whether it is of netconsole itself, not of the network."""
        return self.cause.startswith(OURS)

    @property
    def probe(self) -> str:
        """The probe that proves it; empty for the collector itself."""
        return self.evidence[0].probe

    @property
    def is_count(self) -> bool:
        """Whether it has a total, and a peak per second."""
        return self.total is not None


def sentence_of(incidents: Iterable[Incident], probe: str, table: str, key: RowKey) -> str | None:
    """What the first of these says that a row of a table proves; None: none does."""
    row = probe, "table", table, key
    return next((one.sentence for one in incidents if any(proof.row == row for proof in one.evidence)), None)


def seen_since(incidents: Iterable[Incident], since_ns: int) -> list[Incident]:
    """Those that had not ended before, the worst first."""
    return sorted((one for one in incidents if one.ended_ns is None or one.ended_ns >= since_ns), key=urgency)


def document(incidents: Iterable[Incident], since_ns: int = 0) -> list[IncidentData]:
    """Incidents as a snapshot has them, the worst first; those that ended before ``since_ns`` are left out."""
    told = [one for one in seen_since(incidents, since_ns) if one.level != "ok"]
    known: dict[object, int] = {}
    same = [None if one.place is None else known.setdefault(_identity(one), len(known)) for one in told]
    return [_data(one, number) for one, number in zip(told, same, strict=True)]


def _data(one: Incident, same: int | None) -> IncidentData:
    assert one.level != "ok"
    return IncidentData(
        level=one.level,
        cause=one.cause,
        what=one.sentence,
        where=dict(one.where),
        began=utc(one.since_ns / 1e9),
        ended=None if one.ended_ns is None else utc(one.ended_ns / 1e9),
        total=one.total,
        peak_per_s=None if one.total is None or one.peak is None else round(one.peak, 3),
        peak=None if one.total is not None or one.peak is None else round(one.peak, 3),
        share_pct=None if one.share_pct is None else round(one.share_pct, 3),
        unit=one.unit,
        evidence=[EvidenceData(proof.probe, _KINDS[proof.kind], proof.name, dict(proof.key)) for proof in one.evidence],
        next=list(one.next),
        commands=list(one.commands),
        at_least=one.at_least,
        scaled=one.scaled,
        not_measured_since=None if one.blind_since_ns is None else utc(one.blind_since_ns / 1e9),
        same=same,
        example=None if one.example is None else ExampleData.of(one.example),
        answer=dict(one.answer),
        history=[value if value is None else round(value, 3) for value in dropwhile(lambda one: one is None, one.past)],
    )


def told(one: Incident) -> str:
    """The sentence, and of an incident that is over how much it was: ``… up to 955/s …; 21 010 packets in 22 s``.

    Of one that came again how often: ``…; 3 times, last 15:45:01, 1 197 packets in all``.
    """
    if one.before:
        times = len(one.before) + 1
        totals = [part.total for part in one.before] + [one.total]
        at_least = figure.mark(one.at_least or any(part.at_least for part in one.before), one.scaled)
        in_all = f", {figure.things(sum(known), one.unit, at_least)} in all" if (known := _all(totals)) else ""
        last = f", last {clock(one.ended_ns)}" if one.ended_ns is not None else ""
        return f"{one.sentence}; {times} times{last}{in_all}"
    if one.ended_ns is None or one.total is None:
        return one.sentence if one.still_since_ns is None else f"{one.sentence}; none since {clock(one.still_since_ns)}"
    lasted = figure.lasted((one.ended_ns - one.since_ns) / 1e9)
    return f"{one.sentence}; {figure.things(one.total, one.unit, one.mark)} in {lasted}"


def _all(totals: list[int | None]) -> list[int]:
    """The totals, if all are known."""
    known = [total for total in totals if total is not None]
    return known if len(known) == len(totals) else []


def urgency(one: Incident) -> tuple[bool, bool, int, float, int, int]:
    """Sorts incidents: what goes on before what has ended, and the worst first; last what is of netconsole itself."""
    return one.is_ours, one.ended_ns is not None, RANK[one.level], -one.weight, one.since_ns, one.number


def once_each(listed: Iterable[Incident], log: Iterable[Incident]) -> list[Incident]:
    """The incidents of a list, each with its earlier episodes, out of the log. One that came again is left out."""
    same: dict[object, list[Incident]] = defaultdict(list)
    for one in log:
        if one.place is not None:
            same[_identity(one)].append(one)
    found = []
    for one in listed:
        others = [other for other in same.get(_identity(one), ()) if other.number != one.number]
        if one.ended_ns is not None and any(other.number > one.number for other in others):
            continue
        before = tuple(
            Episode(other.since_ns, other.ended_ns, other.total, other.at_least)
            for other in others
            if other.ended_ns is not None and other.number < one.number
        )
        found.append(replace(one, before=before) if before else one)
    return found


def _identity(one: Incident) -> tuple[str, frozenset[tuple[str, Label]]]:
    """Its cause, and its place as far as that is known."""
    return one.cause, frozenset((name, value) for name, value in (one.place or {}).items() if value not in ANYWHERE)
