"""Joins what stands out in one interval: the matches that have one cause at one place, or follow from each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from netconsole.findings.match import RANK, Late, Level, Match
from netconsole.findings.windows import Family
from netconsole.telemetry.frames import Label

ANYWHERE: tuple[Label, ...] = (None, "")
"""Labels that name no place."""
TWICE = 2
LARGER = 2.0
"""So many times the causes that explain it an effect may be: sources are not read in the same moment."""


@dataclass(slots=True)
class Group:
    """The matches of one interval that have one cause."""

    lead: Match
    place: dict[str, Label]
    matches: list[Match]

    @property
    def level(self) -> Level:
        return min((match.level for match in self.matches), key=lambda level: RANK[level])

    def explains(self, other: Group) -> bool:
        """Whether the other one only follows from it: at its place, or at that of what proves it."""
        cause, labels = other.lead.cause, other.lead.labels
        of_kind = {f"{cause}/{labels.get(name)}" for name in ("protocol", "ethertype")}
        if not {cause, *of_kind}.intersection(self.lead.explains):
            return False
        proofs = (match for match in self.matches if match.cause == self.lead.cause)
        places = (self.place, *(match.place or match.labels for match in proofs))
        return any(shares_place(place, there) for place in places for there in (other.place, other.lead.elsewhere))

    def amount(self, unit: str) -> float | None:
        """How much of its own cause is counted a second, by the source that counts most.

        None where that is not in this unit, or the cause is a state, such as a lost carrier: that explains any amount.
        """
        if any(match.cause == self.lead.cause and match.family is None for match in self.matches):
            return None
        return self.counted(unit)

    def counted(self, unit: str) -> float | None:
        """The same, of what is counted alone: its states and gauges have no size."""
        sums: dict[Family, float] = defaultdict(float)
        for match in self.matches:
            if match.cause == self.lead.cause and match.family is not None and match.unit == unit:
                sums[match.family] += match.value
        return max(sums.values(), default=None)

    def late(self) -> Late | None:
        """What it counted, where every row that counts it is read less often than its table."""
        own = [match for match in self.matches if match.cause == self.lead.cause and match.family is not None]
        known = [match.late for match in own if match.late is not None]
        if not known or len(known) < len(own):
            return None
        sums: dict[Family, float] = defaultdict(float)
        for match, late in zip(own, known, strict=True):
            if match.family is not None:
                sums[match.family] += late.counted
        return Late(min(late.since_ns for late in known), max(sums.values()))


def are_enough(causes: Iterable[Group], effect: Group) -> bool:
    """Whether causes that explain an effect are large enough together. What is no count has no size."""
    lead = effect.lead
    known = [cause.amount(lead.unit) for cause in causes]
    if lead.family is None or None in known:
        return True
    return (effect.counted(lead.unit) or 0.0) <= LARGER * sum(one or 0.0 for one in known)


def joined(found: list[Match]) -> list[Group]:
    """One group for each cause at each place: led by what says most, then by what explains most.

    An effect that is larger than its causes stays a group of its own. It has to be so twice in a row before it is said.
    """
    groups: list[Group] = []
    for match in sorted(found, key=lambda one: (one.precedence, -one.weight)):
        for group in groups:
            if group.lead.cause == match.cause and is_same_place(group.place, match.place):
                group.matches.append(match)
                break
        else:
            groups.append(Group(match, dict(match.place), [match]))
    into: dict[int, Group] = {}

    def root(group: Group) -> Group:
        while id(group) in into:
            group = into[id(group)]
        return group

    too_large = _larger_than_their_causes(groups)
    for group in groups:
        for other in groups:
            if id(other) in too_large:
                continue
            if id(other) not in into and group.explains(other) and root(group) is not other:
                into[id(other)] = group
    for other in groups:
        if id(other) in into:
            lead = root(other)
            lead.matches.extend(replace(match, level=lead.lead.level) for match in other.matches)
    return [group for group in groups if id(group) not in into]


def _larger_than_their_causes(groups: list[Group]) -> set[int]:
    found = set()
    for other in groups:
        causes = [group for group in groups if group is not other and group.explains(other)]
        if causes and not are_enough(causes, other):
            other.matches = [replace(match, needed=max(match.needed, TWICE)) for match in other.matches]
            other.lead = other.matches[0]
            found.add(id(other))
    return found


def is_same_place(one: Mapping[str, Label], other: Mapping[str, Label]) -> bool:
    """Whether no label that both name differs: what does not name a label may be anywhere."""
    return all(value in ANYWHERE or other.get(name) in ANYWHERE or other[name] == value for name, value in one.items())


def shares_place(one: Mapping[str, Label], other: Mapping[str, Label]) -> bool:
    """Whether they are at the same place, and name a place in common."""
    return is_same_place(one, other) and any(
        value not in ANYWHERE and other.get(name) == value for name, value in one.items()
    )
