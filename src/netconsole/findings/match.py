"""What stands out in one interval: where the proof is, what it says, and how urgent it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, get_args

from netconsole.findings.windows import Family
from netconsole.telemetry.frames import Label
from netconsole.telemetry.tables import RowKey
from netconsole.telemetry.words import LEVELS, URGENCY

Level: TypeAlias = Literal["ok", "!", "!!", "?"]
RANK: Mapping[Level, int] = {level: URGENCY[level] for level in get_args(Level)}
"""The worst first."""
EvidenceKind: TypeAlias = Literal["table", "histogram", "probe", "collector"]
RowName: TypeAlias = tuple[str, str, str, RowKey]
"""A row of a table or of a histogram: probe, kind, name and labels."""
Say: TypeAlias = Callable[[Mapping[str, Label], float, int | None, bool | str, bool | str, bool], str]
"""The sentence, given its row's labels, a rate or value, a total, the mark of each (True: ≥), and if it is a peak."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where the proof is: a row of a table, one histogram, a probe's status, or the collector's (``probe`` empty)."""

    kind: EvidenceKind
    probe: str
    name: str = ""
    key: RowKey = ()

    @property
    def row(self) -> RowName:
        return self.probe, self.kind, self.name, self.key


class RowVerdict(NamedTuple):
    """The state of a row: the level of its worst finding, in a word, and what that word means."""

    level: Level
    word: str
    means: str
    specific: int = 0
    weight: float = 0.0

    @property
    def rank(self) -> tuple[int, int, float]:
        """The worst first, then what says most."""
        return RANK[self.level], -self.specific, -self.weight


class Late(NamedTuple):
    """What a row has counted that is read less often than its table, and since when (wall clock)."""

    since_ns: int
    counted: float


@dataclass(frozen=True, slots=True)
class Match:
    """What stands out in one interval.

    ``value`` is a rate per second, or a gauge or percentile in ``unit``; ``weight`` is events per second that it
    explains.
    """

    evidence: Evidence
    cause: str
    level: Level
    sentence: Say
    value: float
    weight: float
    place: Mapping[str, Label] = field(default_factory=dict)
    labels: Mapping[str, Label] = field(default_factory=dict)
    unit: str = ""
    next: str = ""
    commands: tuple[str, ...] = ()
    history: tuple[float | None, ...] = ()
    specific: int = 0
    explains: tuple[str, ...] = ()
    elsewhere: Mapping[str, Label] = field(default_factory=dict)
    """Another place where the same loss may be told."""
    share_pct: float | None = None
    family: Family | None = None
    """What its row counts; None for gauges, percentiles and states, which have no total."""
    lasting: bool = False
    needed: int = 1
    """In how many intervals in a row it must be found before it is said."""
    joins: bool = False
    """It begins no incident, and never leads one that others began."""
    state: tuple[str, str] = ("", "")
    """A word for the state of its row, and what that means."""
    also: tuple[Family, ...] = ()
    """What weaker rules of the same cause count in the same row: the whole, where ``family`` is a part of it."""

    late: Late | None = None
    share_of: str = "packets"
    """What its share is of."""

    @property
    def precedence(self) -> tuple[bool, int, bool, int]:
        """Of several that prove one incident the one that leads it comes first: what says most, then what is worst."""
        return self.joins, -self.specific, self.lasting, RANK[self.level]

    def verdict(self, level: Level) -> RowVerdict:
        """The state of its row, at the level of its incident."""
        word, means = self.state
        return RowVerdict(level, word or LEVELS[level], means, self.specific, self.weight)
