"""A probe's manifest (docs/reference/probes.md): its programs, counters, tables, histograms, events and rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from netconsole.probes import includes
from netconsole.probes.causes import Causes, CauseSpec
from netconsole.probes.meaning import Meaning
from netconsole.probes.polarity import Polarity
from netconsole.telemetry.frames import Mode, Scalar
from netconsole_collector.names.implied_labels import BROUGHT

MODES: tuple[Mode, ...] = ("counters", "summary", "details")
CODE = "probe.bpf.c"
PANES = ("overview", "drops", "queues", "host", "vhost", "ovs", "path", "flows", "disk")
"""Where the tables of a probe may be shown."""
DRAWN = (
    "vhost-queues", "ovs-health", "ovs-upcalls", "ovs-causes", "ovs-drops", "ovs-handlers",
    "mirror-ledger", "path-ways", "path-devices", "path-flows", "path-slow", "disk-ios", "disk-calls",
)  # fmt: skip
"""Blocks of panes that join tables, of one probe or of several, in a way of their own."""
PAGES = ("vhost-queue", "ovs-datapath", "ovs-vswitchd", "ovs-port", "ovs-drop", "disk-io", "disk-call")
"""What the page of a table's row may have besides the row's own figures."""
JUDGES = ("vhost-queue", "ovs-port")
"""Who may say, from the figures of several probes, in which state a row is of which a finding speaks."""
LAST = 100
"""The order of what does not say where it stands."""


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A label or a value of a table as the kernel keeps it. ``kind`` is `sum` or `max` (a gauge).

    ``worse`` is which way a value is worse; a label has no such way. ``stands_for`` is of a label alone.
    """

    name: str
    type: str
    shown_as: str | None = None
    unit: str = ""
    kind: str = "sum"
    worse: Polarity = "none"
    stands_for: Meaning = "itself"
    """By what it is told again in another snapshot."""
    added: str = ""
    """Of a label that the table did not always have: what rows without it are of."""
    head: str = ""
    """The head of its column; empty: its name."""
    spare: int | None = None
    """Columns leave a narrow table from the highest down, and 0 never; None: as is usual for such columns."""
    words: Mapping[str, str] = field(default_factory=dict)
    """What a table shows in place of a label's value."""
    part: str = ""
    """Of a gauge that is a ratio of two counts of its row: the one that is so many of ``whole``; empty: it is none."""
    whole: str = ""


@dataclass(frozen=True, slots=True)
class CounterSpec:
    """An exact count of the probe."""

    unit: str
    help: str
    slot: int | None = None
    worse: Polarity = "none"
    modes: tuple[Mode, ...] = MODES
    """In which it is counted."""
    loss: bool = False
    """What it counts is missing from the figures."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table: its labels, its values, and the counter that its rows must add up to."""

    title: str
    key: tuple[ColumnSpec, ...]
    value: tuple[ColumnSpec, ...]
    sort: str
    counter: str | None = None
    max_rows: int = 0
    modes: tuple[Mode, ...] = MODES
    """In which it has rows."""
    columns: tuple[str, ...] = ()
    """Labels and values that are shown, in this order; empty: all."""
    page: str = ""
    """What the page of a row has besides, one of PAGES."""
    causes: Causes | None = None
    """Why the packets of its rows were lost; None: its findings say that themselves."""
    example: tuple[ColumnSpec, ...] = ()
    """What is kept of the latest packet of a row; empty: nothing."""
    least: tuple[str, int] = ("", 0)
    """The count of a row, and how much of it there has to be before its ratios say anything."""
    commands: tuple[str, ...] = ()
    """What looks closer at a row, whatever it counts; as those of findings."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in order, with those that the collector adds."""
        return _label_names(self.key)

    def label(self, name: str) -> ColumnSpec:
        """A label by its name; one that the collector adds has only the name."""
        return _label(self.key, name)


@dataclass(frozen=True, slots=True)
class HistogramSpec:
    """A log-linear histogram by labels."""

    title: str
    unit: str
    key: tuple[ColumnSpec, ...]
    worse: Polarity = "none"
    columns: tuple[str, ...] = ()
    """Labels that are shown, in this order; empty: all."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in order, with those that the collector adds."""
        return _label_names(self.key)

    def label(self, name: str) -> ColumnSpec:
        """A label by its name; one that the collector adds has only the name."""
        return _label(self.key, name)


@dataclass(frozen=True, slots=True)
class RecordSpec:
    """Single things that happened, each with a record of its own, of which none is left out."""

    key: tuple[ColumnSpec, ...]
    value: tuple[ColumnSpec, ...]
    since: str
    """The value that says when it began, in ns of the monotonic clock."""
    keep: str
    """The knob that says how long it is kept, in ms."""


@dataclass(frozen=True, slots=True)
class AttachSpec:
    """One alternative of a program: where it attaches, and its function in probe.bpf.c."""

    point: str
    function: str
    when: str = ""
    """What the kernel must have for it, by the name that its source asks for; "": nothing."""


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """A program and its alternatives, best first."""

    name: str
    required: bool
    measures: str
    attach: tuple[AttachSpec, ...]
    modes: tuple[Mode, ...] = MODES
    """In which it is attached."""
    unless: str = ""
    """Kernels that have this do without it, by the name that its source asks for; "": all need it."""


@dataclass(frozen=True, slots=True)
class FindingSpec:
    """A rule for STANDS OUT: a value of a table (or a percentile of a histogram) that is over a limit."""

    table: str
    value: str
    level: str
    over: float
    say: str
    next: str
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The values that a label may have, by label."""
    percentile: float = 99.0
    histogram: bool = False
    cause: str = ""
    """What goes wrong: findings of one cause at one place are one incident."""
    place: tuple[str, ...] = ()
    """The labels that tell where. A rule without a cause is an incident of its own for each row."""
    specific: int = 0
    """Of the findings of one incident the most specific says the sentence."""
    explains: tuple[str, ...] = ()
    """Causes that at the same place are only what follows from this one."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Another place where the same loss may be told: by label of that place, the label of this row that names it."""
    at_once: float | None = None
    """The rate from which one interval is enough; None: ten times ``over``, and for ``!!`` ``over`` itself."""
    lasting: float | None = None
    """The rate over a minute from which a small, lasting one is said; None: only ``over``."""
    share_pct: float | None = None
    """A lasting one is said from this share of its device's packets on; None: whatever its share."""
    share_of: str = ""
    """The value of the same row that the share is of, in place of the device's packets: it grows with all that passes.
    Then a large one has to be that share, too."""
    times_past: float | None = None
    """Of a percentile: up to so many times ``over`` it is said only where it is so many times its own past."""
    commands: tuple[str, ...] = ()
    """What to run next; {label} stands for a label, quoted for a shell. Nothing here is ever executed."""
    joins: bool = False
    """It only proves an incident that another finding of its cause began, and lets it go on while that one is blind."""
    state: str = ""
    """A word for the state of a row that it finds; {label} stands for a label."""
    means: str = ""
    """What that word means, in a sentence that fits 80 columns with the name of a datapath."""
    judge: str = ""
    """One of JUDGES, who says both instead."""
    urgent_over: float | None = None
    """A large one above this is ``!!``, whatever the level."""
    kinds: tuple[str, ...] = ()
    """It speaks of rows whose cause is of these kinds: for each such cause there is a rule in ``cases``."""
    cases: Mapping[CauseSpec, FindingSpec] = field(default_factory=dict)
    why: str = ""
    """Of a case: its cause in words, which the sentence has in the place of {why}."""
    say_several: str = ""
    """The sentence of an incident of several rows; empty: ``say`` is right of them, too."""
    say_half: str = ""
    """The sentence of a histogram of which half of the samples are above the limit, too; empty: ``say``."""


@dataclass(frozen=True, slots=True)
class DropPlaceSpec:
    """Rows of a table that count packets which died: where, why, and what else counts the same packets.

    ``at``, ``say``, ``by`` and ``same_as`` name labels in braces. Two that share a word of ``same_as`` at one place
    (no label of ``by`` differs) count the same packets. The one with the higher ``fine`` tells them. It may also tell
    them at another place: ``elsewhere``, by a word of ``same_elsewhere``.
    """

    table: str
    value: str
    stage: str
    at: str
    say: str
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by: Mapping[str, str] = field(default_factory=dict)
    same_as: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    same_elsewhere: tuple[str, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Words that stand for others of ``same_as``, with their labels filled in."""
    fine: int = 0
    rest: bool = False
    """It counts other packets, too: what the finer ones do not explain is told as a line of its own."""
    left_out: bool = False
    """These rows are no dead packets."""
    cases: Mapping[CauseSpec, DropPlaceSpec] = field(default_factory=dict)
    """Of a table with causes: what is said of the rows of each."""
    case_of: DropPlaceSpec | None = None


@dataclass(frozen=True, slots=True)
class PlaceSpec:
    """One place of a pane: what of the probe stands there. ``kind`` is empty for all its tables and histograms."""

    pane: str
    tab: str
    kind: Literal["", "table", "histogram", "drawn"] = ""
    name: str = ""
    order: int = LAST
    row: int | None = None
    """Blocks of one row stand side by side; those without one come below, one under the other or in pairs."""
    lines: int | None = None
    """Its height; None shares what is left."""
    always: bool = False
    """On the overview: even where the probe does not run."""


@dataclass(frozen=True, slots=True)
class GovernedSpec:
    """Facts that may explain a change of the probe's figures: patterns of their keys; of ``figures``, words in theirs.

    Without ``figures`` they may explain all.
    """

    facts: tuple[str, ...]
    figures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LimitSpec:
    """Something that a probe cannot see before a kernel, or from it on. ``kernel`` is its release: "6.7"."""

    says: str
    kernel: str
    before: bool

    @property
    def when(self) -> str:
        return f"before kernel {self.kernel}" if self.before else f"from kernel {self.kernel} on"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A probe, as its probe.toml describes it. ``raw`` is the document as the collector takes it."""

    name: str
    version: int
    title: str
    summary: str
    cannot_see: str
    """On any kernel, then by each of ``limits``."""
    limits: tuple[LimitSpec, ...]
    cost: str
    modes: tuple[Mode, ...]
    source: str
    module: str
    """The kernel module whose work it watches; where that is not loaded there is nothing to watch. Empty: none."""
    knobs: Mapping[str, Scalar]
    programs: tuple[ProgramSpec, ...]
    counters: Mapping[str, CounterSpec]
    tables: Mapping[str, TableSpec]
    histograms: Mapping[str, HistogramSpec]
    records: Mapping[str, RecordSpec]
    events: Mapping[str, tuple[ColumnSpec, ...]]
    findings: tuple[FindingSpec, ...]
    drop_places: tuple[DropPlaceSpec, ...]
    topic: str
    """What its findings are about, in a word."""
    panes: tuple[PlaceSpec, ...]
    governed_by: tuple[GovernedSpec, ...]
    losses: Mapping[str, str]
    """Entries of the ledger that mean something else here than is usual."""
    directory: Path
    raw: Mapping[str, object]
    btf_modules: tuple[str, ...] = ()
    """Kernel modules whose types it names, and whose functions it attaches to."""

    @property
    def can_be_set(self) -> bool:
        """Whether it has knobs, or more than one mode."""
        return bool(self.knobs) or len(self.modes) > 1

    @property
    def is_of_one_device(self) -> bool:
        """Whether it has a program that is attached to a device (XDP), which the knob `device` names."""
        return any(one.point.startswith("xdp:") for program in self.programs for one in program.attach)

    def code(self) -> str:
        """The text of probe.bpf.c with all that it includes; empty for a probe that is not BPF. Raises BadInput."""
        return includes.read(self.directory / CODE) if self.source == "bpf" else ""


def _label_names(key: Iterable[ColumnSpec]) -> tuple[str, ...]:
    names: list[str] = []
    for column in key:
        if column.type.startswith("pad["):
            continue
        names.append(column.name)
        names.extend(BROUGHT.get(column.shown_as or "", ()))
    return tuple(names)


def _label(key: Iterable[ColumnSpec], name: str) -> ColumnSpec:
    return next((column for column in key if column.name == name), ColumnSpec(name, ""))
