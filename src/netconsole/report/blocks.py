"""The parts of a report, before a renderer makes text, Markdown or HTML of them. Renderers escape the texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from netconsole.snapshot.document import Bucket


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a section."""

    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence."""

    text: str


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """One line of a summary: a word for its state (ok, !, !!, ?, worse …), a sentence, and what to do and run next.

    The chart is drawn where charts can be: its largest value stands in the sentence.
    """

    word: str
    text: str
    more: str = ""
    commands: tuple[str, ...] = ()
    chart: Curve | ScaledPath | None = None


@dataclass(frozen=True, slots=True)
class SummaryLines:
    """A summary of several lines."""

    lines: list[SummaryLine]


@dataclass(frozen=True, slots=True)
class TextTable:
    """Rows of text. ``numeric`` columns are aligned to the right. ``omitted`` rows are only in the JSON document."""

    columns: list[str]
    rows: list[list[str]]
    numeric: frozenset[int] = frozenset()
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class Bars:
    """A histogram to draw on a logarithmic axis, with its percentiles marked. ``unit`` is a time or a word."""

    title: str
    unit: str
    buckets: list[Bucket]
    marks: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Curve:
    """A figure over time to draw: one value per interval, None where it is not known."""

    title: str
    unit: str
    values: list[float | None]


@dataclass(frozen=True, slots=True)
class ScaledBar:
    """One stretch of a way: its name, where it is, its length (None: not known) and that length as text.

    ``measured`` is false for a remainder. A length below zero is drawn, and told apart.
    """

    name: str
    where: str
    length: float | None
    text: str
    share: str = ""
    measured: bool = True


@dataclass(frozen=True, slots=True)
class ScaledPath:
    """A way from top to bottom. All its stretches are drawn to one scale."""

    title: str
    unit: str
    bars: list[ScaledBar]


@dataclass(frozen=True, slots=True)
class CpuCell:
    """A CPU: a letter for each kind of thread that ran there, and a word for what is wrong. ``mark``: before it."""

    cpu: int
    letters: str
    word: str
    mark: str = ""

    @property
    def text(self) -> str:
        """All of it."""
        return " ".join(part for part in (self.mark, str(self.cpu), self.letters or "·", self.word) if part)


@dataclass(frozen=True, slots=True)
class CpuNode:
    """A NUMA node, and its CPUs."""

    name: str
    cells: list[CpuCell]


@dataclass(frozen=True, slots=True)
class CpuMap:
    """All CPUs of a host: a row for each node, a cell for each CPU."""

    nodes: list[CpuNode]


MAX_QUOTED = 500
"""A longer line of an output is cut."""


@dataclass(frozen=True, slots=True)
class Quoted:
    """What a program wrote, line by line, as it stands."""

    lines: list[str]


SHORT_LINES = 40
"""What a reader of a ticket sees of Markdown before opening the rest."""

ReportBlock: TypeAlias = Heading | Note | SummaryLines | TextTable | Bars | Curve | ScaledPath | CpuMap | Quoted


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report. ``subtitle`` says what was measured, when and how long; ``behind`` is for who wants to know more.

    A document with something behind has at most SHORT_LINES lines before it.
    """

    title: str
    subtitle: str
    blocks: list[ReportBlock]
    behind: list[ReportBlock] = field(default_factory=list)
