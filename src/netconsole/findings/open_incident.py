"""One incident from the moment when it begins: what proves it, what its rows have counted, and whether it goes on."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan

from netconsole.base import figure
from netconsole.base.timestamps import clock
from netconsole.findings.causes import ANYWHERE, LARGER, Group, is_same_place
from netconsole.findings.incident import Incident
from netconsole.findings.match import Evidence, Level, Match
from netconsole.findings.of_rules import is_lower_bound
from netconsole.findings.rules import ROWS, WHY
from netconsole.findings.saved_log import SavedIncident, SavedRow, SavedTally, row_key, saved
from netconsole.findings.verdicts import CauseVerdict, Verdicts
from netconsole.findings.windows import LONG, PAUSE, SHORT, Family, Move, Window, Windows, interval_s
from netconsole.telemetry.example import Example
from netconsole.telemetry.frames import Label, Scalar
from netconsole.telemetry.request import HostQuestion
from netconsole.telemetry.state import Answered, ProbeState, State
from netconsole.telemetry.tables import RowKey, RowState, TableState

LEAVES_AFTER = PAUSE
"""Quiet intervals in a row after which an incident has ended."""
STILL_AFTER = 2
"""Quiet intervals after which it is said since when nothing was lost; of a small one a third of its patience."""
LEAVES_AFTER_LASTING = 30
"""The most for a small one, which does not move in every interval."""
PAUSES = 10
"""A small one has ended after so many of the pauses that it usually makes."""
APART_S = 3.0
"""So far apart two sources of one interval may be read, where the machine has much to do."""
LATER_READ = 15
"""So many intervals later than another one a source of the same losses may be read."""
WHERE = ("device", "netns", "vm", "queue", "process", "address", "port")
"""Labels that tell where an incident is, for documents."""
_ROWS = ("table", "histogram")
"""Evidence of which a host can be asked: rows of a probe."""


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

    cause: str
    unit: str
    rows: dict[RowKey, _Row] = field(default_factory=dict)
    peak: float = 0.0
    rate: float = 0.0
    """Of the last interval, or for a small one the mean."""
    moves: int = 0
    """In how many intervals it has moved."""
    moves_now: bool = False
    quiet: int = 0
    rate_at_least: bool = False
    """Whether it is a lower bound, as a table marks it (docs/use/console.md)."""
    whole: int = LONG
    """Intervals since the last one that lacks something."""
    scaled_now: bool = False
    """Whether its rate was made of a share of the packets."""
    away_ns: int | None = None
    """When it was read last, if nobody watches it now: then its rate is not known, and its total stands still."""
    is_of_kernel: bool = False
    """Whether the kernel counts it by itself: no program of ours is attached for it, so none can miss a packet."""

    @property
    def counted(self) -> int:
        return sum(row.counted for row in self.rows.values())


@dataclass(slots=True)
class OpenIncident:
    """An incident that has not ended, or ended a moment ago."""

    number: int
    cause: str
    lead: Match
    place: dict[str, Label]
    level: Level
    since_ns: int
    last_ns: int
    peak: float
    tallies: dict[tuple[Family, str], _Tally] = field(default_factory=dict)
    """By what is counted, and by cause: what only follows from it may count the same packets again."""
    evidence: dict[Evidence, Match] = field(default_factory=dict)
    seen: int = 0
    quiet: int = 0
    unknown: int = 0
    blind_since_ns: int | None = None
    at_least: bool = False
    """Whether total and peak are lower bounds: what was missed once is missing for good."""
    lacking: set[str] = field(default_factory=set)
    """The probes of which that is so."""
    scaled: bool = False
    """Whether total and peak were made of a share of the packets."""
    is_certain: bool = False
    """Whether it was seen for as long as it takes to be said."""
    shown: bool = False
    ended: bool = False
    counted_now: bool = False
    """Whether its total grew in this interval. What is read less often goes on meanwhile."""
    still: bool = False
    """Nothing was counted for longer than it pauses anyway, but it has not ended yet."""
    is_small: bool = True
    """Nothing of it was ever large enough to be said after one interval."""
    verdict: CauseVerdict | None = None
    """What is known of its cause beyond the general words."""
    answer: Mapping[str, Scalar | None] = field(default_factory=dict)
    """What its host has answered."""
    foretold: set[Evidence] = field(default_factory=set)
    """The rows of incidents that were seen before, and turned out to be of this one."""
    question: HostQuestion | None = None
    """What its host is still to be asked."""
    kept: bytes = b""
    """Once it has ended: what the row that leads counted a second while it lasted."""
    example: Example | None = None
    """The latest packet of the row that has counted most of it."""

    @property
    def group(self) -> Group:
        """What is known of it, as the matches of one interval are."""
        return Group(self.lead, self.place, [*self.evidence.values()])

    @property
    def most(self) -> float:
        """The most that the rows that lead have counted in a second; 0 of what is no count."""
        tally = self._whole()
        return tally.peak if tally is not None else 0.0

    def take(self, group: Group, state: State, windows: Windows) -> None:
        """The incident goes on with these matches."""
        best = self.lead
        # What is read later, and less, does not take the lead from what said it first.
        may_lead = group.lead.precedence <= best.precedence or best.evidence.probe == group.lead.evidence.probe
        if may_lead and not group.lead.joins:
            self.lead = group.lead
            self.place = {**self.place, **{name: value for name, value in group.place.items() if value not in ANYWHERE}}
        self.level = group.level
        self._raise_level()
        self.is_small = self.is_small and all(match.lasting for match in group.matches)
        for match in group.matches:
            self.evidence[match.evidence] = match
            if match.family is None:
                if match.evidence == self.lead.evidence:
                    self.peak = max(self.peak, match.value)
                continue
            for family in (match.family, *match.also):
                self._tally(match, family, state, windows)

    def _tally(self, match: Match, family: Family, state: State, windows: Windows) -> None:
        """Count the row of a match from the first of its moves on."""
        tally = self.tallies.setdefault((family, match.cause), _Tally(match.cause, match.unit))
        window = windows.of(family).get(match.evidence.key)
        if match.evidence.key in tally.rows or window is None:
            return
        tally.is_of_kernel = not state.probes[family.probe].attach
        run = _run(match, window)
        tally.rows[match.evidence.key] = _Row(window.total - sum(move.delta for move in run), window.total)
        tally.peak = max(tally.peak, _most(run) / interval_s(state, family.probe))

    def count(self, state: State, windows: Windows) -> bool:
        """Take over what the incident's rows have counted. True when one of its own cause moved in this interval."""
        self.counted_now = is_held = False
        packets: list[tuple[bool, int, int, Example]] = []
        for (family, _), tally in self.tallies.items():
            probe = state.probes.get(family.probe)
            table = probe.tables.get(family.table) if probe is not None and probe.measuring else None
            known_table = probe.tables.get(family.table) if probe is not None else None
            away = probe.unwatched_since_ns(known_table) if probe is not None and known_table is not None else None
            tally.away_ns = away
            rate = 0.0
            tally.moves_now = counted_now = False
            known: list[Window] = []
            for key, counted in tally.rows.items():
                row = table.rows.get(key) if table is not None else None
                count = row.counts.get(family.value) if row is not None else None
                if count is None:
                    continue
                counted.take(count.total)
                if row is not None and row.example is not None:
                    packets.append((tally.cause == self.cause, counted.counted, len(packets), row.example))
                self.scaled = self.scaled or bool(count.delta and table is not None and table.one_in > 1)
                rate += count.per_s or 0.0
                if tally.cause == self.cause and row is not None and row.moved(family.value):
                    tally.moves_now = True
                    counted_now = counted_now or bool(count.delta)
                if (window := windows.of(family).get(key)) is not None:
                    known.append(window)
            tally.scaled_now = table is not None and table.one_in > 1
            lacks = probe is not None and is_lower_bound(probe)
            if rate and lacks:
                self.lacking.add(family.probe)
            # A probe that is attached for a share of the time lacks the rest, and its rates are of what was seen.
            tally.whole = 0 if probe is not None and lacks and probe.lacks_now else tally.whole + 1
            is_of_now = bool(rate) and not self.is_small
            if is_of_now:
                tally.rate = rate
            elif self.is_small and known:
                # Of the time while it moved: a mean of now falls when all is over.
                last = max(window.moves[-1].tick for window in known)
                length_s = interval_s(state, family.probe)
                tally.rate = sum(window.mean_per_s(last, SHORT, length_s) for window in known)
            tally.rate_at_least = tally.whole < (1 if is_of_now else SHORT if known else LONG)
            tally.peak = max(tally.peak, rate)
            tally.moves += counted_now
            tally.quiet = 0 if tally.moves_now else tally.quiet + 1
            is_held = is_held or tally.moves_now
            self.counted_now = self.counted_now or counted_now
        if packets:
            self.example = max(packets)[-1]
        return self.counted_now or (is_held and not self.is_told_late())

    def rename(self, state: State) -> bool:
        """Go on with rows that have got a label meanwhile that was not known. True if the one that leads has.

        Who holds a socket is found out some seconds later.
        """
        was = self.lead.evidence
        for evidence, match in list(self.evidence.items()):
            table = state.table(evidence.probe, evidence.name) if evidence.kind == "table" else None
            row = _renamed(table, evidence.key) if table is not None else None
            if row is None:
                continue
            now = replace(match, evidence=replace(evidence, key=row.key), labels=row.labels)
            place = {name: row.labels.get(name, value) for name, value in match.place.items()}
            now = replace(now, place=place)
            del self.evidence[evidence]
            self.evidence.setdefault(now.evidence, now)
            for (family, _), tally in self.tallies.items():
                if (family.probe, family.table) == (evidence.probe, evidence.name) and evidence.key in tally.rows:
                    tally.rows.setdefault(row.key, tally.rows.pop(evidence.key))
            if evidence == was:
                self.lead, self.place = now, {**self.place, **place}
        return self.lead.evidence != was

    def tells_of(self, group: Group) -> bool:
        """Whether what a group counts is its own loss, or follows from it."""
        is_same = self.cause == group.lead.cause and is_same_place(self.place, group.place)
        return is_same or self.group.explains(group)

    def counted_since(self, since_ns: int, unit: str) -> float | None:
        """The most that it can have counted since then (wall clock); None of a state, and of another unit."""
        tally = self._whole()
        if tally is None or tally.unit != unit:
            return None
        seconds = (self.last_ns - max(since_ns, self.since_ns)) / 1e9 + APART_S
        return min(tally.counted, tally.peak * max(0.0, seconds))

    @property
    def is_raised(self) -> bool:
        """Whether it is a fault by what the host answered, though its row alone does not tell."""
        return self.verdict is not None and self.verdict.level is not None

    def _raise_level(self) -> None:
        if self.verdict is not None and self.verdict.level is not None and self.level == "ok":
            self.level = self.verdict.level

    def look_up(self, state: State, verdicts: Verdicts) -> None:
        """What is known of its cause, and what its host is still to be asked. What the host has answered stays."""
        lead, self.question = self.lead.evidence, None
        if lead.kind not in _ROWS or (self.verdict is not None and self.verdict.is_answered):
            return
        words: dict[str, Scalar | None] = {**self.lead.labels}
        words.update(self.example.fields if self.example is not None else {})
        asked = verdicts.question(self.cause, words)
        foretold = (
            [] if asked is None else [one for one in self._answers(state, self.foretold) if one.question == asked.name]
        )
        known = [*self._answers(state, self.evidence), *foretold]
        answered = min(known, key=lambda one: one.error is not None, default=None)
        if answered is None and asked is not None:
            self.question = HostQuestion(lead.probe, lead.name, lead.key, asked.name, asked.arguments, self.number)
        self.answer = answered.document if answered is not None else {}
        words.update(self.answer)
        self.verdict = verdicts.verdict(self.cause, words, is_answered=answered is not None)
        self._raise_level()

    def _answers(self, state: State, rows: Iterable[Evidence]) -> list[Answered]:
        """About these rows. What was answered about an incident before it says nothing of this one."""
        of_probes = [one for one in rows if one.kind in _ROWS and one.probe in state.probes]
        found = [state.probes[one.probe].answer(one.name, one.key) for one in of_probes]
        return [one for one in found if one is not None and one.at_ns >= self.since_ns]

    def take_over(self, other: OpenIncident) -> None:
        """``other`` is of this one: it began then, and what its host has answered holds for this one, too."""
        self.since_ns = min(self.since_ns, other.since_ns)
        self.foretold |= {*other.evidence, *other.foretold}

    def is_told_late(self) -> bool:
        """Whether only sources moved in this interval that are read less often than another one, which is quiet."""
        own = [tally for tally in self.tallies.values() if tally.cause == self.cause and tally.moves]
        usual = max(own, key=lambda tally: tally.moves, default=None)
        return usual is not None and 0 < usual.quiet <= LATER_READ

    def end(self, state: State, windows: Windows) -> None:
        """It is over: what its rows do now is of another one. Their history may go: that of the leading one is kept."""
        self.ended, self.quiet = True, 0
        family, key = self.lead.family, self.lead.evidence.key
        window = windows.of(family).get(key) if family is not None else None
        table = state.probes[family.probe].tables.get(family.table) if family is not None and window else None
        if family is not None and window is not None and table is not None:
            quiet = table.timeline.tick - window.moves[-1].tick
            lasted = round((self.last_ns - self.since_ns) / 1e9 / interval_s(state, family.probe))
            past = table.history(key, family.value, lasted + quiet)
            self.kept = array("f", [nan if one is None else one for one in past[: len(past) - quiet]]).tobytes()
        for (family, _), tally in self.tallies.items():
            for key in tally.rows:
                windows.forget(family, key)

    def rest(self, windows: Windows) -> None:
        """Take note that nothing of it was counted in this interval."""
        after = max(STILL_AFTER, self.patience(windows) // 3) if self.is_small else STILL_AFTER
        self.still = bool(self.tallies) and self.quiet >= after

    def is_known(self, state: State, lost: bool) -> bool:
        """Whether the silence of an incident's evidence in this interval means that there is nothing."""
        if lost:
            return self.cause == "collector-lost"
        proof = {evidence.probe for evidence in self.evidence if evidence.kind in ("table", "histogram")}
        if not proof:
            return True
        # One witness is enough: all of them would have seen it.
        return any(_sees(state.probes.get(name), self, name) for name in proof)

    def saved(self) -> SavedIncident:
        """For a recording: with what its rows have counted."""
        tallies = [
            SavedTally(
                *family, tally.cause, tally.unit, tally.peak,
                [SavedRow(list(key), row.start, row.last, row.before) for key, row in tally.rows.items()],
            )
            for (family, _), tally in self.tallies.items()
        ]  # fmt: skip
        return saved(self.told(), self.last_ns, self.shown, self.is_small, tallies)

    def go_on(self, before: SavedIncident) -> None:
        """It is the one of a recording's log, from before the place where the replay began."""
        self.number = before.number
        self.since_ns = min(self.since_ns, before.since_ns)
        self.last_ns = before.last_ns
        self.shown, self.is_small, self.at_least = before.shown, before.is_small, before.at_least
        self.scaled = before.scaled
        self.example = before.example
        for one in before.tallies:
            rows = {row_key(row.key): _Row(row.start, row.last, row.before) for row in one.rows}
            self.tallies[Family(one.probe, one.table, one.value), one.cause] = _Tally(
                one.cause, one.unit, rows, one.peak
            )

    def patience(self, windows: Windows) -> int:
        """After how many quiet intervals in a row it has ended. One that pauses anyway is given several such pauses."""
        if not self.is_small:
            return LEAVES_AFTER
        pauses = [_usual_pause(family, tally, windows) for (family, _), tally in self.tallies.items()]
        known = [pause for pause in pauses if pause is not None]
        most = PAUSES * min(known) if known else LEAVES_AFTER_LASTING
        return round(min(LEAVES_AFTER_LASTING, max(LEAVES_AFTER, most)))

    def told(self) -> Incident:
        """How it is now, for readers."""
        lead = self.lead
        # A state says how it is now; what was counted in it is told all the same.
        tally = self._whole()
        total = tally.counted if tally is not None else None
        peak = tally.peak if tally is not None else (self.peak or None)
        blind = self.blind_since_ns
        witness = self._witness(tally)
        if witness is not None:
            tally, total, peak = witness, witness.counted, witness.peak
        lacks = (self.at_least or lead.evidence.probe in self.lacking) and witness is None
        is_scaled = self.scaled and witness is None
        mark = figure.mark(lacks, is_scaled)
        value, is_peak = lead.value, tally is not None and (self.ended or self.still or blind is not None)
        mark_now = mark if tally is None or is_peak else figure.mark(tally.rate_at_least, tally.scaled_now)
        if tally is not None and lead.family is not None:
            value = tally.peak if is_peak else tally.rate or lead.value
        sentence = lead.sentence(self._labels_said(), value, total, mark_now, mark, is_peak)
        of_share = lead if lead.share_pct is not None else self._with_share()
        share = of_share.share_pct if witness is None else None
        if share is not None:
            whose = "its" if of_share is lead else f"{figure.safe(of_share.labels.get('device'))}'s"
            sentence += f" ({figure.share(share, f'{whose} {of_share.share_of}')})"
        if witness is not None:
            sentence += f" (by the kernel's counter; places not watched since {clock(self._away_ns())})"
        elif lacks and tally is not None and (counted := self._kernel_counted(tally)) is not None:
            sentence += f" (the kernel's own counter says {figure.count(counted)})"
        if blind is not None:
            sentence = f"no longer measured: {sentence}"
        ordered = sorted(self.evidence.values(), key=lambda match: (match.evidence != lead.evidence, -match.specific))
        # Advice on what only follows from the cause would lead away from it.
        own = [match for match in ordered if match.cause == self.cause]
        labels: dict[str, Label] = {}
        for match in reversed(ordered):
            labels.update({name: value for name, value in match.labels.items() if value not in ANYWHERE})
        return Incident(
            number=self.number,
            level="?" if blind is not None else self.level,
            cause=self.cause,
            sentence=sentence,
            since_ns=self.since_ns,
            ended_ns=self.last_ns if self.ended else None,
            blind_since_ns=blind,
            evidence=tuple(match.evidence for match in ordered) or (lead.evidence,),
            where={name: labels[name] for name in WHERE if name in labels},
            weight=lead.weight,
            total=total,
            peak=peak,
            at_least=lacks,
            scaled=is_scaled,
            share_pct=share,
            unit=tally.unit if tally is not None else lead.unit,
            next=self._next(own),
            commands=self._commands(own),
            history=lead.history,
            kept=self.kept,
            example=self.example,
            answer=self.answer,
            place=dict(self.place),
            still_since_ns=self.last_ns if self.still and not self.ended and blind is None else None,
        )

    def _next(self, own: Sequence[Match]) -> tuple[str, ...]:
        """What to do: what is known of the cause says it better than the rules of its kind."""
        if self.verdict is not None and self.verdict.next:
            return (self.verdict.next,)
        return tuple(dict.fromkeys(match.next for match in own if match.next))

    def _commands(self, own: Sequence[Match]) -> tuple[str, ...]:
        if self.verdict is not None and self.verdict.commands:
            return self.verdict.commands
        return tuple(dict.fromkeys(command for match in own for command in match.commands))

    def _labels_said(self) -> dict[str, Label]:
        """The labels of the row that leads, and how many alike there are if it is not alone.

        Where its rows have several protocols the sentence names none.
        """
        proof = self.lead.evidence
        rows = {
            match.evidence: match.labels
            for match in (self.lead, *self.evidence.values())
            if match.cause == self.cause and match.evidence.row[:3] == proof.row[:3]
        }
        differ = {name: "" for name in ("protocol", "ethertype") if len({row.get(name) for row in rows.values()}) > 1}
        known: dict[str, Label] = {WHY: self.verdict.why} if self.verdict is not None else {}
        if len(rows) > 1:
            known[ROWS] = len(rows)
        return {**self.lead.labels, **differ, **known}

    def _with_share(self) -> Match:
        """The match of its cause that knows a share, where the one that leads does not."""
        known = [match for match in self.evidence.values() if match.share_pct is not None and match.cause == self.cause]
        return max(known, key=lambda match: match.specific, default=self.lead)

    def _witness(self, tally: _Tally | None) -> _Tally | None:
        """Who counts the same packets while nobody watches what the row that leads counts; None while somebody does."""
        if tally is None or tally.away_ns is None or self.blind_since_ns is not None:
            return None
        watched = [
            one for one in self.tallies.values()
            if one.cause == self.cause and one.unit == tally.unit and one.away_ns is None and one.moves
        ]  # fmt: skip
        return max(watched, key=lambda one: one.counted, default=None)

    def _kernel_counted(self, tally: _Tally) -> int | None:
        """What the kernel itself has counted meanwhile, if that is more than a tally that lacks some of it.

        It is shown beside the total and not for it: its counters are of a whole namespace or CPU, which may lose such
        packets at another device, or at a port that is no incident.
        """
        counted = [
            one.counted for one in self.tallies.values()
            if one.is_of_kernel and one.cause == self.cause and one.unit == tally.unit and one.counted > tally.counted
        ]  # fmt: skip
        return max(counted, default=None)

    def _away_ns(self) -> int:
        return max(one.away_ns for one in self.tallies.values() if one.away_ns is not None)

    def _whole(self) -> _Tally | None:
        """What the row that leads has counted: of several values of one cause the one that holds the others."""
        lead = self.lead
        if lead.late is not None:  # another source may know more by now
            own = (tally for tally in self.tallies.values() if tally.cause == lead.cause and tally.unit == lead.unit)
            return max(own, key=lambda tally: tally.counted, default=None)
        counted = {key: tally for key, tally in self.tallies.items() if key[0].probe == lead.evidence.probe}
        if lead.family is None:
            return next(iter(counted.values()), None)
        same = [tally for (family, _), tally in counted.items() if family.table == lead.family.table]
        alike = [tally for tally in same if tally.unit == lead.unit and tally.cause == lead.cause]
        return max(alike, key=lambda tally: tally.counted, default=None)


def _renamed(table: TableState, key: RowKey) -> RowState | None:
    """The row that has taken the place of one with labels that were not known; None where it is still there."""
    if key in table.rows or all(value is not None for _, value in key):
        return None
    known = [(name, value) for name, value in key if value is not None]
    found = [row for row in table.rows.values() if all(row.labels.get(name) == value for name, value in known)]
    return found[0] if len(found) == 1 else None


def _sees(probe: ProbeState | None, one: OpenIncident, name: str) -> bool:
    """Whether a probe would have told of the incident in this interval."""
    if probe is None or not probe.measuring or is_lower_bound(probe):
        return False
    tables = [probe.tables.get(proof.name) for proof in one.evidence if proof.probe == name and proof.kind == "table"]
    if any(table is None or not table.is_told for table in tables):
        return False
    for (family, _), tally in one.tallies.items():
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


def _most(run: list[Move]) -> float:
    return max((move.likely for move in run), default=0.0)


def _usual_pause(family: Family, tally: _Tally, windows: Windows) -> float | None:
    """The mean number of intervals from one move of its rows to the next, in the last minute; None of a single move."""
    known = [window for key in tally.rows if (window := windows.of(family).get(key)) is not None]
    ticks = sorted({move.tick for window in known for move in window.moves})
    return (ticks[-1] - ticks[0]) / (len(ticks) - 1) if len(ticks) > 1 else None


def could_cause(one: OpenIncident, group: Group, other: OpenIncident) -> bool:
    """Whether ``one``, which goes on with ``group``, was ever large enough for the most that ``other`` lost.

    What is read late has its mean over a long time, and the peak of a burst is far above it: then counts are compared.
    """
    late = group.late()
    if late is not None:
        lost = other.counted_since(late.since_ns, other.lead.unit)
        if lost is not None and lost <= LARGER * late.counted:
            return True
    now = group.amount(other.lead.unit)
    return now is None or other.most <= LARGER * max(now, one.most)


def span_ns(match: Match, state: State, windows: Windows, now_ns: int) -> tuple[int, int]:
    """When the first interval of the moves that belong to a match began, and the last one ended.

    Both are ``now_ns`` of what is no count.
    """
    probe = state.probes.get(match.evidence.probe)
    families = (match.family, *match.also) if match.family is not None else ()
    windows_of = [windows.of(family).get(match.evidence.key) for family in families]
    runs = [run for window in windows_of if window is not None and (run := _run(match, window))]
    if probe is None or not runs:
        return now_ns, now_ns
    length_ns = interval_s(state, probe.name) * 1e9
    first, last = min(run[0].tick for run in runs), max(run[-1].tick for run in runs)
    tick = probe.timeline.tick
    return now_ns - round((tick - first + 1) * length_ns), now_ns - round((tick - last) * length_ns)
