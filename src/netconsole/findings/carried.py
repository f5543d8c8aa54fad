"""Incidents that went on where a replay began, until they are found again or have ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from netconsole.findings.causes import Group, is_same_place
from netconsole.findings.incident import Incident
from netconsole.findings.of_rules import RULE
from netconsole.findings.saved_log import SavedIncident, row_key
from netconsole.findings.windows import LONG
from netconsole.telemetry.state import State


class Carried:
    """Those of a recording's log that had not ended. What is small and lasting is found again within a minute."""

    def __init__(self, before: Iterable[SavedIncident]) -> None:
        self._waiting = {one.number: one for one in before}
        self._quiet = dict.fromkeys(self._waiting, 0)
        self._age = 0
        self._is_any = bool(self._waiting)

    @property
    def is_recent(self) -> bool:
        """Whether the replay began less than a minute ago, amid incidents."""
        return self._is_any and self._age < LONG

    def take(self, group: Group) -> SavedIncident | None:
        """The one that a group goes on with, if any: by its evidence, else by its cause and place.

        A rule that names no cause has an incident for each row, so there only the evidence tells.
        """
        proofs = {(match.evidence.probe, match.evidence.name, match.evidence.key) for match in group.matches}
        alike = [one for one in self._waiting.values() if one.cause == group.lead.cause]
        same = [one for one in alike if proofs & {(of.probe, of.name, row_key(of.key)) for of in one.evidence}]
        if not same and RULE not in group.place:
            same = [one for one in alike if is_same_place(one.where, group.place)]
        return self._waiting.pop(same[0].number) if same else None

    def update(self, state: State) -> list[Incident]:
        """Another interval has ended: those that still wait, and those that have ended with it."""
        self._age += 1
        listed = []
        for number, one in list(self._waiting.items()):
            self._quiet[number] = 0 if _goes_on(one, state) else self._quiet[number] + 1
            told = one.told()
            if self._quiet[number] >= LONG:
                del self._waiting[number]
                told = replace(told, ended_ns=one.last_ns)
            if one.shown:
                listed.append(told)
        return listed

    def saved(self) -> dict[int, SavedIncident]:
        """Those that still wait, by number."""
        return dict(self._waiting)


def _goes_on(one: SavedIncident, state: State) -> bool:
    """Whether a row of it has moved, or nobody would have seen that."""
    known = [state.probes.get(tally.probe) for tally in one.tallies]
    if known and not any(probe is not None and probe.measuring for probe in known):
        return True
    for tally in one.tallies:
        table = state.table(tally.probe, tally.table)
        rows = [table.rows.get(row_key(row.key)) for row in tally.rows] if table is not None else []
        counts = [row.counts.get(tally.value) for row in rows if row is not None]
        if any(count is not None and count.delta for count in counts):
            return True
    return False
