"""The snapshot document (docs/use/snapshot.md): its types, and a reader that reports a mistake with file and key.

Unknown keys are ignored, so that a later version can add some. All keys of version 1 stay.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from netconsole.base import figure
from netconsole.base.documents import DocumentKind
from netconsole.base.fact_keys import FactData
from netconsole.base.timestamps import utc
from netconsole.ping.breakdown import Breakdown
from netconsole.probes.polarity import Polarity
from netconsole.telemetry.example import Example
from netconsole.telemetry.frames import ProbeStatus
from netconsole.telemetry.histogram import value_below

SCHEMA = "netconsole.snapshot/1"
"""The formats of a snapshot. Only the first can be read again."""
MAX_BYTES = 64 * 1024 * 1024
"""A snapshot of 200 VMs with 8 queues each and 50 000 rows has about 15 MB."""

MAX_COUNT = 2**63 - 1
"""No count of a kernel is larger: with a billion a second, this takes 292 years."""
BoundedCount: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]
SnapshotValue: TypeAlias = str | int | float | bool | None
Bucket: TypeAlias = tuple[float, float, BoundedCount]

MEASURED = ("attached", "degraded")
"""The states of a probe that has figures."""


class HostData(msgspec.Struct, frozen=True):
    """The host that was measured."""

    name: str
    kernel: str
    arch: str = ""
    os: str = ""
    cpus: int | None = None
    boot_id: str = ""


class ProfileData(msgspec.Struct, frozen=True):
    """What was measured, and what it was allowed to cost."""

    name: str
    budget: dict[str, SnapshotValue] = {}
    scope: dict[str, str] = {}
    """The network namespace or the device that all figures are of, as ``netns``; empty: the whole host."""
    host_wide: list[str] = []
    """The probes whose figures are of the whole host, although there is a scope."""


class Counter(msgspec.Struct, frozen=True):
    """An exact count over the whole run. ``worse``: up, down, none, or null where the snapshot does not say.

    ``duration_s``: the time in which it was counted, where that is longer than the probe's.
    """

    total: BoundedCount | None
    unit: str = ""
    per_s: float | None = None
    worse: Polarity | None = None
    duration_s: Seconds | None = None


class HistogramData(msgspec.Struct, frozen=True):
    """Buckets ``[low, high, count]`` in ``unit``, ascending, ``high`` exclusive. Empty ones may be left out.

    ``by`` has the same once for each set of ``labels``; what is around it is their sum.
    """

    unit: str = ""
    count: BoundedCount = 0
    sum: float | None = None
    min: float | None = None
    max: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    p999: float | None = None
    buckets: list[Bucket] = []
    labels: dict[str, SnapshotValue] = {}
    by: list[HistogramData] = []
    worse: Polarity | None = None

    def __post_init__(self) -> None:
        """Refuses buckets that are not in order."""
        end = -math.inf
        for low, high, _ in self.buckets:
            if not end <= low < high:
                raise ValueError("buckets must ascend and not overlap")
            end = high

    def percentile(self, percent: float) -> float | None:
        """The value below which ``percent`` of the samples lie; None when empty."""
        return value_below([((low + high) / 2, n) for low, high, n in self.buckets], percent, self.min, self.max)


class ColumnData(msgspec.Struct, frozen=True):
    """A value of a table: ``sum`` adds up over the run, ``max`` is a gauge. ``worse`` as of a counter."""

    unit: str = ""
    kind: Literal["sum", "max"] = "sum"
    worse: Polarity | None = None


class TableColumns(msgspec.Struct, frozen=True):
    """Which columns of a table's rows are labels and which are values."""

    labels: list[str] = []
    values: dict[str, ColumnData] = {}


class ExampleData(msgspec.Struct, frozen=True):
    """A packet: when it came (UTC, as of ``created``), and what is known of it, as its addresses."""

    came: str
    fields: dict[str, SnapshotValue] = {}

    @classmethod
    def of(cls, one: Example) -> ExampleData:
        """A packet as a state has it."""
        return cls(utc(one.wall_ns / 1e9), dict(one.fields))


class ProbeData(msgspec.Struct, frozen=True):
    """What one probe measured, or why it did not."""

    status: ProbeStatus
    why: str | None = None
    mode: Literal["counters", "summary", "details"] = "summary"
    version: int | None = None
    attach: list[str] = []
    filters: dict[str, SnapshotValue] | None = None
    """Knobs that narrowed it at the end of the measurement, as ``reason``. null: not known."""
    counters: dict[str, Counter] = {}
    tables: dict[str, list[dict[str, SnapshotValue]]] = {}
    columns: dict[str, TableColumns] = {}
    histograms: dict[str, HistogramData] = {}
    events: list[dict[str, Any]] = []
    cost: dict[str, Any] = {}
    ledger: dict[str, int] = {}
    duration_s: Seconds | None = None
    """The time in which its figures were measured, because sources differ in it, and a probe may be attached for a
    share of the time only (``unseen_ms`` of the ledger is the rest). null: the time of the snapshot."""
    history: dict[str, list[float | None]] = {}
    """Per second, one value for each interval of the run, ten minutes at most; null is not known. Counters by their
    names, columns of tables (all rows together) as ``table.column``."""
    row_history: dict[str, list[list[float]]] = {}
    """Of the columns that add up, as ``table.column``: one list for each row, in the table's order,
    per second, one value for each part of the run; all parts are equally long. Empty where it is not known."""
    row_errors: dict[str, list[int]] = {}
    """Of columns whose rows were made of a share of the packets, as ``table.column``: by how much each row's count may
    be off by chance, 95 times in 100. 0: exact."""
    row_examples: dict[str, list[ExampleData | None]] = {}
    """By table: the latest packet of each row, in the table's order. Null where none is known."""
    until: str | None = None
    """When its figures end, where it was detached or lost before the end of the run. UTC, as of ``created``."""

    @property
    def has_measured(self) -> bool:
        """Whether it has figures of the run, or of a part of it."""
        return self.status in MEASURED or self.until is not None


class EvidenceData(msgspec.Struct, frozen=True):
    """Where an incident can be seen: a row of a table, a histogram, or a source (a probe, the collector)."""

    probe: str
    kind: Literal["table", "histogram", "source"]
    name: str = ""
    labels: dict[str, SnapshotValue] = {}


class IncidentData(msgspec.Struct, frozen=True):
    """One thing that goes wrong, or went wrong and ended. Times are UTC, as of ``created``.

    ``total`` and ``peak_per_s`` are null for what is no count. With ``at_least`` both are lower bounds: some of the
    incident was not measured. ``not_measured_since``: nobody knows whether it goes on.
    """

    level: Literal["!!", "!", "?"]
    cause: str
    what: str
    where: dict[str, SnapshotValue] = {}
    began: str | None = None
    ended: str | None = None
    total: BoundedCount | None = None
    peak_per_s: float | None = None
    share_pct: float | None = None
    unit: str = ""
    evidence: list[EvidenceData] = []
    next: list[str] = []
    commands: list[str] = []
    at_least: bool = False
    not_measured_since: str | None = None
    duration_s: Seconds | None = None
    """From its begin to its end; to the end of the measurement where it went on, and no longer than it was measured."""
    peak: float | None = None
    """The largest value in ``unit``, of what is no count."""
    scaled: bool = False
    """Whether total and peak were made of a share of the packets: what stands before them is ≈."""
    same: BoundedCount | None = None
    """Equal in incidents of one cause at one place: it was there, ended, and came again. Null: not known."""
    example: ExampleData | None = None
    """The latest packet of the row that counted most of it. Null where none is known."""
    answer: dict[str, SnapshotValue] = {}
    """What the host answered when it was asked about the cause (docs/design/collector.md#questions)."""
    history: list[float | None] = []
    """What it counted a second (else: in ``unit``), one value for each interval, the newest last: while it lasted, for
    ten minutes at most; of what goes on the last minute. Null: not known."""

    @property
    def mark(self) -> str:
        """What stands before its total and its peak."""
        return figure.mark(self.at_least, self.scaled)


class BalanceData(msgspec.Struct, frozen=True, rename={"entered": "in", "left": "out"}):
    """A loss that the kernel counts by itself, held against what probes saw. Null: not known, or not of this stage."""

    stage: str
    device: str | None = None
    netns: str | None = None
    entered: int | None = None
    left: int | None = None
    dropped: int = 0
    unexplained: int = 0
    coverage_pct: float | None = None
    hidden_by: list[str] = []
    """Why kernel_drops may have no row of what is unexplained here: its filters, as ``netns``, entries of its ledger
    (``unlisted``, ``map_full``, ``missed``), or ``begin``: it saw as much in the interval before the begin."""


class DropPlaceData(msgspec.Struct, frozen=True):
    """A place where packets died: how many in the whole run, why, and who sent first, as far as it is known.

    Level ``ok``: packets that nobody wanted. With ``at_least`` it is a lower bound; ``scaled``: it was made of a share
    of the packets. ``probes`` are those that saw it.
    """

    level: Literal["!!", "!", "?", "ok"]
    stage: str
    where: str
    why: str
    total: BoundedCount
    per_s: float | None = None
    at_least: bool = False
    scaled: bool = False
    sender: str = ""
    probes: list[str] = []


class MirrorStageData(msgspec.Struct, frozen=True):
    """What passed a stage between the NIC and the workers of a mirror, or was lost there: packets in the whole run.

    Null: not counted at this stage, or not known. With ``at_least`` it is a lower bound; ``estimated``: by what is
    missing of TCP inside.
    """

    stage: str
    passed: BoundedCount | None = None
    passed_per_s: float | None = None
    lost: BoundedCount | None = None
    lost_per_s: float | None = None
    where: str = ""
    """Where most of it."""
    at_least: bool = False
    estimated: bool = False


class MirrorData(msgspec.Struct, frozen=True):
    """The ledger of a mirror: whether it is whole in words, and its stages in the order in which a packet passes."""

    verdict: str
    stages: list[MirrorStageData] = []


class CommandData(msgspec.Struct, frozen=True):
    """What a command said that a finding advises, when (UTC) it was run; or why there is no output."""

    at: str
    command: str
    output: str | None = None
    status: int | None = None
    is_cut: bool = False
    """Whether the beginning of the output is missing."""
    why: str | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """A whole snapshot. ``incidents``: the worst first, ended ones included; null where nobody looked for them.

    ``ping`` is the breakdown of a ping that was measured as well.
    """

    schema: Annotated[str, Meta(extra_json_schema={"const": SCHEMA})]
    created: str
    netconsole: str
    host: HostData
    profile: ProfileData
    duration_s: Seconds
    clock: dict[str, int | None] = {}
    note: str | None = None
    probes: dict[str, ProbeData] = {}
    incidents: list[IncidentData] | None = None
    cost: dict[str, Any] = {}
    governor: list[dict[str, Any]] = []
    facts: dict[str, FactData] = {}
    ping: Breakdown | None = None
    balance: list[BalanceData] | None = None
    drop_places: list[DropPlaceData] | None = None
    """Where packets died, the most important first; null where nobody looked."""
    mirror: MirrorData | None = None
    """Whether the mirror is whole that this host receives; null where none was measured."""
    commands: list[CommandData] | None = None
    """What commands said that were run by hand in the console; null: none was, or it was not wanted."""


def seconds(snapshot: Snapshot, probe: str) -> float:
    """The time in which the figures of a probe were measured."""
    data = snapshot.probes.get(probe)
    return snapshot.duration_s if data is None or data.duration_s is None else data.duration_s


def number(value: object) -> float | None:
    """A value of a document as a float. None when it is not a number, or too large for a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


KIND = DocumentKind(Snapshot, SCHEMA, "snapshot", MAX_BYTES)
load, parse, encode = KIND.load, KIND.parse, KIND.encode
