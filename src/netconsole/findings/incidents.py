"""STANDS OUT: incidents, one for each cause at each place, from the moment when one begins until it has ended.

:func:`netconsole.findings.matches.matches` tells what stands out in one interval. :class:`Incidents` joins what has one
cause, follows it over time, counts exactly what was lost in it, and keeps a log of all incidents since the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from netconsole.findings import verdicts
from netconsole.findings.causes import LARGER, Group, are_enough, is_same_place, joined
from netconsole.findings.incident import Incident, once_each, urgency
from netconsole.findings.match import Match, RowName, RowVerdict
from netconsole.findings.matches import loudest, matches
from netconsole.findings.of_rules import RULE
from netconsole.findings.open_incident import APART_S, LEAVES_AFTER, OpenIncident, could_cause, span_ns
from netconsole.findings.saved_log import MAX_SAVED, SavedIncident, row_key, saved
from netconsole.findings.windows import LONG, Family, Windows
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Budget
from netconsole.telemetry.session import Answerable, Connection
from netconsole.telemetry.state import State
from netconsole.telemetry.tables import RowKey
from netconsole.telemetry.words import LEVELS

BLIND_AFTER = 2
"""Unknown intervals in a row after which an incident is no longer measured."""
ENDED_SHOWN = 60
"""Intervals for which an ended incident stays in the list; it stays in the log."""
MAX_SHOWN = 200
MAX_LOG = 1000


class Carried:
    """Incidents that went on where a replay began, until they are found again or have ended.

    What is small and lasting is found again within a minute.
    """

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


class Incidents:
    """The list, interval by interval, and the log. One per session; not thread-safe."""

    def __init__(
        self, manifests: Mapping[str, Manifest], budget: Budget | None = None, before: Sequence[SavedIncident] = ()
    ) -> None:
        """``before``: the log up to here, of a recording whose replay begins in its middle."""
        self._manifests = manifests
        self._budget = budget or Budget()
        self._windows = Windows(manifests)
        self._open: list[OpenIncident] = []
        self._log: dict[int, Incident] = {one.number: one.told() for one in before if one.shown}
        self._carried = Carried(one for one in before if one.ended_ns is None)
        self._numbers = max((one.number for one in before), default=0)
        self._told: dict[tuple[Family, RowKey], int] = {}
        """The totals of rows that were read late, which incidents of their time have told."""
        self._interval = -1
        self._current: list[Incident] = []
        self.verdicts: Mapping[RowName, RowVerdict] = {}
        """The state of every row of which a finding speaks: the worst of them."""

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
        loud, quiet = loudest(found)
        groups = joined(loud)
        reached = self._link(groups, state, now_ns)
        for one in list(self._open):
            self._follow(one, reached.get(one.number), state, now_ns, lost)
        carried = self._carried.update(state)
        self.verdicts = self._verdicts(quiet, carried)
        listed = [*(one.told() for one in self._open if one.shown), *carried]
        for incident in listed:
            self._log[incident.number] = incident
        for number in list(self._log)[: max(0, len(self._log) - MAX_LOG)]:
            del self._log[number]
        shown = [one for one in listed if one.ended_ns is None or not one.is_ours]
        self._current = sorted(once_each(shown, self._log.values()), key=urgency)[:MAX_SHOWN]
        return self._current

    def look_into(self, session: object) -> None:
        """Have the host asked about incidents whose cause has an open question. A replay has no host."""
        questions = [one.question for one in self._open if one.question is not None]
        if questions and isinstance(session, Answerable):
            session.ask_why(questions)

    def saved(self) -> list[SavedIncident]:
        """The newest of the log, and what may become an incident: what a replay needs to go on from here."""
        known = {one.number: one.saved() for one in self._open if one.tallies or one.shown}
        ended = {one.number: saved(one, one.ended_ns or one.since_ns) for one in self._log.values()}
        return [*{**ended, **self._carried.saved(), **known}.values()][-MAX_SAVED:]

    def _verdicts(self, quiet: Iterable[Match], carried: Iterable[Incident]) -> dict[RowName, RowVerdict]:
        """By the incidents that go on, and by what only has no incident because there are too many alike."""
        known = [(match.evidence, match.verdict(match.level)) for match in quiet if not match.joins]
        for one in self._open:
            if one.shown and not one.ended and one.blind_since_ns is None:
                known += [(evidence, match.verdict(one.level)) for evidence, match in one.evidence.items()]
        for told in carried:
            if told.ended_ns is None:
                known += [(evidence, RowVerdict(told.level, LEVELS[told.level], "")) for evidence in told.evidence]
        worst: dict[RowName, RowVerdict] = {}
        for evidence, verdict in sorted(known, key=lambda one: one[1].rank, reverse=True):
            if verdict.level in ("!!", "!") and evidence.kind in ("table", "histogram"):
                worst[evidence.row] = verdict
        return worst

    def _link(self, groups: list[Group], state: State, now_ns: int) -> dict[int, Group]:
        """Which open incident each group goes on with; those that nobody goes on with are new."""
        reached: dict[int, Group] = {}
        for group in groups:
            known = [
                one
                for one in self._open
                if not one.ended
                and one.number not in reached
                and one.cause == group.lead.cause
                and is_same_place(one.place, group.place)
            ]
            if not known and (group.lead.joins or self._explained(group, reached) or self._is_told_late(group)):
                continue
            if not known:
                self._numbers += 1
                since_ns, last_ns = span_ns(group.lead, state, self._windows, now_ns)
                one = OpenIncident(
                    self._numbers, group.lead.cause, group.lead, dict(group.place), group.level, since_ns, last_ns,
                    group.lead.value,
                )  # fmt: skip
                if (before := self._carried.take(group)) is not None:
                    one.go_on(before)
                elif group.lead.lasting and self._carried.is_recent:
                    one.at_least = True  # it may have begun before the replay did
                self._open.append(one)
                known = [one]
            one = known[0]
            reached[one.number] = group
            # What was seen less closely before turns out to be this one.
            for double in [double for double in known[1:] if double.lead.specific < group.lead.specific]:
                one.take_over(double)
                self._drop(double)
            for other in [
                other for other in self._open if _is_of_its_time(other, group) and group.explains(other.group)
            ]:
                if _stands_alone(other, groups) or (other.shown and not could_cause(one, group, other)):
                    continue
                one.take_over(other)
                self._drop(other)
        return {number: group for number, group in reached.items() if any(one.number == number for one in self._open)}

    def _explained(self, group: Group, reached: Mapping[int, Group]) -> bool:
        """Whether it only follows from an open incident, whose evidence it becomes.

        Of one that is quiet now, or of which what moves now does not tell where it is: its sources are read in turn.
        """
        going_on = [one for one in self._open if not one.ended and one.group.explains(group)]
        causes = [one for one in going_on if one.number not in reached or not reached[one.number].explains(group)]
        if not causes or not are_enough([one.group for one in causes], group):
            return False
        causes[0].evidence.update({match.evidence: match for match in group.matches})
        return True

    def _is_told_late(self, group: Group) -> bool:
        """Whether it was read late, and incidents of that time, ended or not, have told as much of the same loss.

        That holds until its rows are read again, though those incidents may be listed no more by then.
        """
        late = group.late()
        if late is None:
            return False
        rows = {
            (match.family, match.evidence.key): self._windows.of(match.family)[match.evidence.key].total
            for match in group.matches
            if match.family is not None
        }
        if rows.items() <= self._told.items():
            return True
        causes = [one for one in self._open if one.last_ns + APART_S * 1e9 >= late.since_ns and one.tells_of(group)]
        counted = [one.counted_since(late.since_ns, group.lead.unit) for one in causes]
        is_told = bool(causes) and (None in counted or late.counted <= LARGER * sum(one or 0.0 for one in counted))
        if is_told:
            self._told.update(rows)
            for row in list(self._told)[: max(0, len(self._told) - MAX_LOG)]:
                del self._told[row]
        return is_told

    def _drop(self, one: OpenIncident) -> None:
        """It was never an incident of its own."""
        if one in self._open:
            self._open.remove(one)
        self._log.pop(one.number, None)

    def _follow(self, one: OpenIncident, group: Group | None, state: State, now_ns: int, lost: bool) -> None:
        """What this interval says of an open incident."""
        if one.ended:
            if one.rename(state) or one.question is not None:
                one.look_up(state, verdicts.shipped())  # a short one is over before its host has answered
            one.quiet += 1
            if one.quiet > ENDED_SHOWN:
                self._open.remove(one)
            return
        one.rename(state)
        if group is not None:
            one.take(group, state, self._windows)
        moved = one.count(state, self._windows)
        one.look_up(state, verdicts.shipped())
        # A small, lasting loss is still found for a while after it has stopped: its rows tell whether it goes on.
        if moved or (group is not None and any(match.family is None for match in group.matches)):
            one.seen += group is not None
            one.quiet = one.unknown = 0
            one.still = False
            one.blind_since_ns = None
            # A counter that is read later than what saw it is no later end.
            if not one.tallies or (one.counted_now and not one.is_told_late()):
                one.last_ns = max(one.last_ns, now_ns)
            needed = max(match.needed for match in group.matches) if group is not None else 0
            one.is_certain = one.is_certain or one.seen >= min(needed, one.lead.needed)
            is_fault = one.is_raised or (group is not None and group.lead.level != "ok")
            one.shown = one.shown or (is_fault and one.is_certain)
            return
        one.shown = one.shown or (one.is_raised and one.is_certain)  # its host has answered late
        if not one.is_known(state, lost):
            one.unknown += 1
            one.at_least = True
            if one.unknown >= BLIND_AFTER and one.blind_since_ns is None:
                one.blind_since_ns = now_ns
            return
        one.unknown = 0
        one.blind_since_ns = None
        one.quiet += group is None or one.shown
        one.rest(self._windows)
        one.seen = 0 if not one.shown else one.seen
        if not one.shown:
            if one.quiet >= LEAVES_AFTER:
                self._open.remove(one)
            return
        if one.quiet >= one.patience(self._windows):
            one.end(state, self._windows)


def _is_of_its_time(one: OpenIncident, group: Group) -> bool:
    """Whether it goes on, or went on in the time of which a group was read late."""
    late = group.late()
    return not one.ended or (late is not None and one.last_ns + APART_S * 1e9 >= late.since_ns)


def _stands_alone(one: OpenIncident, groups: list[Group]) -> bool:
    """Whether it goes on with a group of this interval, which is larger than what explains it."""
    return any(group.lead.cause == one.cause and is_same_place(group.place, one.place) for group in groups)
