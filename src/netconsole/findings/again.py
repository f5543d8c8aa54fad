"""One line for what comes again: the incidents of one cause at one place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from netconsole.findings.causes import ANYWHERE
from netconsole.findings.incident import Episode, Incident
from netconsole.telemetry.frames import Label


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
