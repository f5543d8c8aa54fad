"""Joins what stands out in one interval: the matches that have one cause at one place, or follow from each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from netconsole.findings.match import RANK, Level, Match
from netconsole.telemetry.frames import Label

ANYWHERE: tuple[Label, ...] = (None, "")
"""Labels that name no place."""


@dataclass(slots=True)
class Group:
    """The matches of one interval that have one cause."""

    lead: Match
    place: dict[str, Label]
    matches: list[Match]

    @property
    def level(self) -> Level:
        return min((match.level for match in self.matches), key=lambda level: RANK[level])


def joined(found: list[Match]) -> list[Group]:
    """One group for each cause at each place: led by what says most, then by what explains most."""
    groups: list[Group] = []
    for match in sorted(found, key=lambda one: (-one.specific, one.lasting, RANK[one.level], -one.weight)):
        for group in groups:
            if group.lead.cause == match.cause and is_same_place(group.place, match.place):
                group.matches.append(match)
                break
        else:
            groups.append(Group(match, dict(match.place), [match]))
    for group in list(groups):
        for other in [other for other in groups if other.lead.cause in group.lead.explains and other is not group]:
            if group in groups and shares_place(group.place, other.place):
                group.matches.extend(replace(match, level=group.lead.level) for match in other.matches)
                groups.remove(other)
    return groups


def is_same_place(one: Mapping[str, Label], other: Mapping[str, Label]) -> bool:
    """Whether no label that both name differs: what does not name a label may be anywhere."""
    return all(value in ANYWHERE or other.get(name) in ANYWHERE or other[name] == value for name, value in one.items())


def shares_place(one: Mapping[str, Label], other: Mapping[str, Label]) -> bool:
    """Whether they are at the same place, and name a place in common."""
    return is_same_place(one, other) and any(
        value not in ANYWHERE and other.get(name) == value for name, value in one.items()
    )
