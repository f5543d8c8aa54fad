"""Where packets die on this host: one line each place, with what several probes count of the same packets as one.

The manifests say which rows count dead packets, and by which words two of them count the same (``drop_places``). The
finest source comes first; what a coarser one counts beyond it is told only where it is clearly more. Who sent what died
there is told by the exact rows of flows where a probe keeps them, else by its newest samples.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from netconsole.base import figure
from netconsole.base.figure import ABOUT, AT_LEAST
from netconsole.findings.causes import ANYWHERE
from netconsole.findings.match import RANK, Level
from netconsole.findings.rules import fits
from netconsole.findings.windows import Family
from netconsole.probes.manifest import DropPlaceSpec, Manifest
from netconsole.telemetry.frames import Label
from netconsole.telemetry.ledger import LEDGER_COUNTS
from netconsole.telemetry.span import Span
from netconsole.telemetry.state import State
from netconsole.telemetry.tables import RowKey

CLEARLY_MORE = 0.1
"""Sources are read some milliseconds apart, and begin some seconds apart: the rest of a coarse one is told from this
share of its rate on ..."""
MOSTLY_UNSEEN = 0.5
"""... or of its total."""
HOST = "host"
_LEVELS: Mapping[str, Level] = {"benign": "ok", "unknown": "?"}
_MAX_NAME = 90
"""Longer than any name, and than what a counter means in our words."""


class CountedRow(NamedTuple):
    """A row of a table, with the value that counts dead packets. ``per_s``: None is not known.

    ``at_least``: the total is a lower bound; ``now_at_least``: the rate of the last interval is one. ``is_scaled`` and
    ``is_scaled_now``: they were made of a share of the packets. ``is_held``: the rate is of an interval before.
    """

    family: Family
    key: RowKey
    labels: Mapping[str, Label]
    total: int
    per_s: float | None
    at_least: bool
    now_at_least: bool = False
    is_scaled: bool = False
    is_scaled_now: bool = False
    is_held: bool = False


@dataclass(slots=True)
class DropPlace:
    """A place where packets die. ``total`` is since its sources began; ``rows`` prove it, the largest of each first."""

    spec: DropPlaceSpec
    at: str
    say: str
    level: Level
    total: int
    per_s: float | None
    at_least: bool
    rows: list[CountedRow]
    by: Mapping[str, str]
    words: frozenset[str]
    elsewhere: Mapping[str, str]
    """Another place that may tell the same packets; empty where there is none."""
    counted: Counter[Family] = field(default_factory=Counter)
    """What each source counts of it."""
    rates: dict[Family, float] = field(default_factory=dict)
    shared: set[tuple[Family, RowKey]] = field(default_factory=set)
    """Of its rows those that count packets of other places, too."""

    @property
    def now_at_least(self) -> bool:
        """Whether its rate is a lower bound: the source that says it lacks something of the last interval."""
        return any(row.now_at_least for row in self._rows_of_rate())

    @property
    def mark(self) -> str:
        """What stands before its total: ≥ for a lower bound, ≈ for what was scaled."""
        if self.at_least:
            return AT_LEAST
        return ABOUT if any(row.is_scaled and self.counted[row.family] == self.total for row in self.rows) else ""

    @property
    def mark_now(self) -> str:
        """The same of its rate."""
        if self.now_at_least:
            return AT_LEAST
        return ABOUT if any(row.is_scaled_now for row in self._rows_of_rate()) else ""

    def _rows_of_rate(self) -> list[CountedRow]:
        """The rows of the sources that say its rate."""
        return [row for row in self.rows if self.per_s in (None, self.rates.get(row.family))]

    @property
    def best(self) -> CountedRow:
        """The row that says most."""
        return self.rows[0]

    @property
    def stage(self) -> str:
        """A word for where it is: qdisc, socket, tap, firewall …"""
        return self.spec.stage

    @property
    def name(self) -> tuple[str, str, str]:
        """What it is found by again in the next interval."""
        return self.stage, self.at, self.say


_ByWord: TypeAlias = dict[str, list[tuple[Mapping[str, str], DropPlace]]]
"""By a word of ``same_as``: where it was counted, and the line that it is in."""
_Group: TypeAlias = tuple[str, str, tuple[tuple[str, str], ...], frozenset[str], Level]


def of_span(
    span: Span, manifests: Mapping[str, Manifest], mean_s: Mapping[str, float | None] | None = None
) -> list[DropPlace]:
    """All places where packets have died, what nobody wants first, then by rate and total.

    Rates are of the last interval. With ``mean_s`` they are means of so long a time, of these probes alone.
    """
    return drop_places(_rows_of(span, manifests, mean_s), manifests)


def drop_places(rows: Iterable[CountedRow], manifests: Mapping[str, Manifest]) -> list[DropPlace]:
    """The places that these rows tell of, ranked."""
    candidates: list[DropPlace] = []
    by_probe: dict[str, list[CountedRow]] = defaultdict(list)
    for row in rows:
        by_probe[row.family.probe].append(row)
    for name, manifest in manifests.items():
        candidates += _candidates(manifest, by_probe.get(name, []))
    candidates.sort(key=lambda one: -one.spec.fine)
    found: list[DropPlace] = []
    by_word: _ByWord = defaultdict(list)
    for place in candidates:
        same = _same(place, by_word)
        if len(same) == 1 and not place.spec.rest:
            _take(same[0], place)
        elif same and not _is_more(place, same):
            for one in same:
                one.rows += place.rows
                one.shared.update((row.family, row.key) for row in place.rows if len(same) > 1)
        else:
            found.append(place)
            same = [place]
        for word in place.words:
            by_word[word] += [(place.by, one) for one in same]
    return sorted(found, key=_rank)


def with_incidents(places: Iterable[DropPlace], level_of: Callable[[CountedRow], Level | None]) -> list[DropPlace]:
    """The places again, ranked: one whose own rows prove an incident has at least its level.

    ``level_of``: None is none.
    """
    found = list(places)
    for place in found:
        own = [row for row in place.rows if (row.family, row.key) not in place.shared]
        levels = [level for row in own if (level := level_of(row)) is not None]
        place.level = min([place.level, *levels], key=lambda level: RANK[level])
    return sorted(found, key=_rank)


def unwatched(state: State, manifests: Mapping[str, Manifest]) -> dict[str, int | None]:
    """The probes that count dead packets and do not watch now, and since when (wall clock); None: from the start on."""
    found: dict[str, int | None] = {}
    for name, manifest in manifests.items():
        probe = state.probes.get(name)
        if not manifest.drop_places or probe is None or not probe.settled or probe.status == "unsupported":
            continue
        tables = [probe.tables[spec.table] for spec in manifest.drop_places if spec.table in probe.tables]
        since = [at_ns for table in tables if (at_ns := probe.unwatched_since_ns(table)) is not None]
        if since:
            found[name] = max(since)
        elif not probe.measuring or probe.mode == "counters":
            found[name] = None
    return found


def _rows_of(
    span: Span, manifests: Mapping[str, Manifest], mean_s: Mapping[str, float | None] | None
) -> Iterator[CountedRow]:
    for name, manifest in manifests.items():
        probe = span.state.probes.get(name)
        if probe is None or (mean_s is not None and name not in mean_s):
            continue
        bounds = any(entry in LEDGER_COUNTS for entry in span.ledger(name)), mean_s is None and probe.lacks_now
        for table_name, value in {(spec.table, spec.value) for spec in manifest.drop_places}:
            table = probe.tables.get(table_name)
            for row, counts in span.moved(name, table_name):
                if not (total := counts.get(value)) or table is None:
                    continue
                count = row.counts[value]
                per_s, now = count.per_s, (table.one_in > 1, table.is_held)
                if mean_s is not None:
                    per_s, now = (total / seconds if (seconds := mean_s[name]) else None), (False, False)
                yield CountedRow(
                    Family(name, table_name, value), row.key, row.labels, total, per_s, *bounds,
                    bool(count.variance), *now,
                )  # fmt: skip


def _candidates(manifest: Manifest, rows: Iterable[CountedRow]) -> Iterator[DropPlace]:
    """What one probe alone tells: rows that only differ in what no line says are one."""
    groups: dict[tuple[int, _Group], list[CountedRow]] = defaultdict(list)
    for row in rows:
        fitting = [
            at
            for at, spec in enumerate(manifest.drop_places)
            if (spec.table, spec.value) == (row.family.table, row.family.value) and fits(spec, row.labels)
        ]
        if fitting and not manifest.drop_places[fitting[-1]].left_out:
            groups[fitting[-1], _group(_spec_of(manifest, fitting[-1], row), row.labels)].append(row)
    for (number, (at, say, by, words, level)), members in groups.items():
        spec = _spec_of(manifest, number, members[0])
        members.sort(key=lambda row: -row.total)
        total = sum(row.total for row in members)
        rates = [row.per_s for row in members if row.per_s is not None]
        per_s = sum(rates) if rates else None
        family = members[0].family
        yield DropPlace(
            spec, at, say, level, total, per_s, any(row.at_least for row in members),
            members, dict(by), words, _elsewhere(spec, members[0].labels),
            Counter({family: total}), {family: per_s or 0.0},
        )  # fmt: skip


def _spec_of(manifest: Manifest, number: int, row: CountedRow) -> DropPlaceSpec:
    """One of its ``drop_places``, as it is said of a row with this cause."""
    spec = manifest.drop_places[number]
    causes = manifest.tables[row.family.table].causes if spec.cases else None
    cause = causes.of(row.labels) if causes is not None else None
    return spec if cause is None else spec.cases[cause]


def _names(labels: Mapping[str, Label]) -> dict[str, str]:
    return {name: figure.safe(value, _MAX_NAME) if value not in ANYWHERE else "" for name, value in labels.items()}


def _elsewhere(spec: DropPlaceSpec, labels: Mapping[str, Label]) -> dict[str, str]:
    found = {name: _filled(text, _names(labels)) for name, text in spec.elsewhere.items()}
    return found if all(found.values()) else {}


def _group(spec: DropPlaceSpec, labels: Mapping[str, Label]) -> _Group:
    named = _names(labels)
    at = _filled(spec.at, named).strip()
    netns = named.get("netns", HOST)
    if netns not in ("", HOST):
        at = f"{at} (netns {netns})" if at else f"netns {netns}"
    by = tuple((name, _filled(text, named)) for name, text in spec.by.items())
    words = {word for word in (_filled(text, named) for text in spec.same_as) if word}
    words |= {name for name, known in spec.aliases.items() if words.intersection(known)}
    return at, _filled(spec.say, named).strip(), by, frozenset(words), _LEVELS.get(str(labels.get("class")), "!")


def _filled(text: str, named: Mapping[str, str]) -> str:
    """With the labels of a row; one that it has not (of an older recording) is empty."""
    return text.format_map(defaultdict(str, named))


def _same(place: DropPlace, by_word: _ByWord) -> list[DropPlace]:
    """The finer places that hold packets which this one counts, too."""
    here = [(word, place.by) for word in place.words]
    there = [(word, place.elsewhere) for word in place.spec.same_elsewhere if place.elsewhere]
    found = {
        id(one): one
        for word, by in here + there
        for known, one in by_word.get(word, ())
        if (one.spec.case_of or one.spec) is not (place.spec.case_of or place.spec) and _fits_place(known, by)
    }
    return [*found.values()]


def _fits_place(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return all(not value or not other.get(name) or other[name] == value for name, value in one.items())


def _take(known: DropPlace, other: DropPlace) -> None:
    """Another source of the same packets: the one that saw most says how many."""
    for family, total in other.counted.items():
        known.counted[family] += total
        known.rates[family] = known.rates.get(family, 0.0) + other.rates[family]
    known.total = max(known.counted.values())
    known.rows += other.rows
    if known.per_s is not None or other.per_s is not None:
        # Who rests tells the rate of before: it says nothing while another one watches.
        watching = {row.family for row in known.rows if not row.is_held and row.per_s is not None}
        known.per_s = max(rate for family, rate in known.rates.items() if family in watching or not watching)
    known.at_least = any(row.at_least for row in known.rows if known.counted[row.family] == known.total)


def _is_more(place: DropPlace, same: Iterable[DropPlace]) -> bool:
    """Whether a coarse place clearly counts more than the finer ones. Then it becomes the rest of it."""
    total = place.total - sum(one.total for one in same)
    rate = (place.per_s or 0.0) - sum(one.per_s or 0.0 for one in same)
    moves_on = rate > 0 and rate >= CLEARLY_MORE * (place.per_s or 0.0)
    if total <= 0 or not (moves_on or total >= MOSTLY_UNSEEN * place.total):
        return False
    place.total = total
    place.per_s = None if place.per_s is None else max(0.0, rate)
    place.counted = Counter({place.best.family: total})
    place.rates = {place.best.family: place.per_s or 0.0}
    return True


def _rank(place: DropPlace) -> tuple[bool, bool, float, int, tuple[str, str, str]]:
    is_wanted = place.level == "ok"
    return is_wanted, not place.per_s, -(place.per_s or 0.0), -place.total, place.name


FLOWS = "flows"
_PLACE = ("location", "reason", "device", "port", "netns")
"""Labels by which flows and samples are found again in a place."""


class Senders:
    """The first sender of each place in a stretch of time. Made once for a picture."""

    def __init__(self, span: Span, by_rate: bool = True) -> None:
        """``by_rate``: of flows that which loses most now, not in all."""
        self._span = span
        self._by_rate = by_rate
        self._known: dict[str, list[Mapping[str, object]]] = {}

    def first(self, place: DropPlace) -> str:
        """``10.0.0.1:53`` of the flow that loses most, or of the newest sample; empty when nobody knows."""
        for row in place.rows[:8]:
            wanted = {name: row.labels[name] for name in _PLACE if name in row.labels}
            for fields in self._seen(row.family.probe):
                if _is_of(fields, wanted) and fields.get("source"):
                    return _sender(fields)
        return ""

    def _seen(self, probe: str) -> list[Mapping[str, object]]:
        """What a probe knows of single flows: its own counts first, the largest of them; then new samples."""
        if probe in self._known:
            return self._known[probe]
        flows = [
            (row.per_s("count") or 0.0 if self._by_rate else 0.0, counts.get("count", 0), row.labels)
            for row, counts in self._span.moved(probe, FLOWS)
            if "source" in row.labels
        ]
        flows.sort(key=lambda flow: (-flow[0], -flow[1]))
        samples = [event.fields for event in reversed(self._span.events(probe))]
        self._known[probe] = [*(labels for _, _, labels in flows), *samples]
        return self._known[probe]


def _is_of(fields: Mapping[str, object], wanted: Mapping[str, Label]) -> bool:
    return all(name not in fields or fields[name] == value for name, value in wanted.items())


def _sender(fields: Mapping[str, object]) -> str:
    address, port = figure.safe(fields["source"], 48), fields.get("source_port")
    if not port:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
