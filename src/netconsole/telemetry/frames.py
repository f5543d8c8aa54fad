"""Defines the frames: one JSON object per line. Readers of a measurement see nothing else.

docs/reference/frames.md describes them, and a test compares the two. :func:`decode` decodes all frames, so the same
rules apply to a live collector, a recording and a remote host.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from netconsole.base.errors import UNREADABLE
from netconsole.base.figure import safe

VERSION = 1
MAX_LINE_BYTES = 4 * 1024 * 1024
"""A longer line is refused: a frame of 10 000 rows is about 2 MB."""

# Bounds: a hostile stream can neither fill the memory nor overflow a sum.
Int: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
MOST = 2**63 - 1
Natural: TypeAlias = Annotated[int, Meta(ge=0, le=MOST)]
MAX_TEXT = 256
Text: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT)]
MAX_SENTENCE = 4096
Sentence: TypeAlias = Annotated[str, Meta(max_length=MAX_SENTENCE)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64)]
SLOTS = 496
"""Buckets of a histogram, for all 64-bit values."""
Slot: TypeAlias = Annotated[int, Meta(ge=0, le=SLOTS - 1)]

Label: TypeAlias = Text | Int | None
Labels: TypeAlias = Annotated[dict[Name, Label], Meta(max_length=24)]
Scalar: TypeAlias = Text | Int | float | bool | None
_LATE_NS = 3600 * 1_000_000_000
"""An event that says to be older than an hour has another clock."""
Stack: TypeAlias = Annotated[list[Text], Meta(max_length=128)]

ProbeStatus: TypeAlias = Literal["compiling", "attaching", "attached", "degraded", "failed", "unsupported", "off"]
Mode: TypeAlias = Literal["counters", "summary", "details"]
SourceName: TypeAlias = Literal["collector", "console"]


def added(sum_: int, more: int) -> int:
    """Their sum, as far as a frame has room for it: what is summed is saved, and read again within the same bounds."""
    return min(sum_ + more, MOST)


class FrameError(ValueError):
    """This line is not a frame. The message is one line that says what is wrong and where."""


class Count(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """An exact count: ``delta`` in this interval, ``total`` since the probe was attached.

    ``interval_ns``: the time that ``delta`` is of, where it is read less often than what it stands in.
    """

    delta: Int
    total: Natural
    interval_ns: Natural | None = None


class Row(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """One row of a table: labels and counts. Gauges are states (a depth, a maximum) and are never summed.

    ``interval_ns``: the time that its counts are of, where it is read less often than its table.
    ``example``: its latest packet, where one is known; ``mono_ns`` in it says when that came.
    ``first_ns``, ``last_ns``: when it counted first and last (monotonic clock), where its probe keeps that.
    """

    labels: Labels
    counts: Annotated[dict[Name, Count], Meta(max_length=32)]
    gauges: Annotated[dict[Name, Int | float | None], Meta(max_length=32)] = {}
    interval_ns: Natural | None = None
    example: Labels = {}
    first_ns: Natural | None = None
    last_ns: Natural | None = None


class Buckets(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A log-linear histogram (see :mod:`netconsole.telemetry.histogram`): ``[index, count]`` pairs, sum, min and max.

    ``min`` and ``max`` are those since the probe was attached; None while it is empty.
    """

    count: Natural
    sum: Natural
    min: Natural | None
    max: Natural | None
    buckets: Annotated[list[tuple[Slot, Natural]], Meta(max_length=SLOTS)]


class Program(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One BPF program: runs and run time in the statistics windows, and all runs that the kernel skipped.

    ``missed`` is None on kernels before 5.12, which do not count them.
    """

    name: Name
    attach: Text
    run_count: Natural
    run_time_ns: Natural
    missed: Natural | None


class Statistics(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How long run counts and times were measured: ``window_ns`` of ``interval_ns``; 0 without a window."""

    window_ns: Natural
    interval_ns: Natural
    estimated: bool


class Usage(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What one of our processes used: CPU time in the interval, memory now. None where the host lacks the figure."""

    cpu_ns: Natural | None
    rss_kb: Natural | None
    pss_kb: Natural | None


class Host(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The host that the frames come from."""

    name: Text
    kernel: Text
    arch: Text
    os: Text
    cpus: Natural
    boot_id: Text


class Capability(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Whether the host can do something, and if not, why."""

    ok: bool
    why: Sentence | None = None


class Frame(
    msgspec.Struct,
    tag_field="kind",
    tag=lambda name: name.lower(),
    kw_only=True,
    frozen=True,
    forbid_unknown_fields=True,
):
    """The fields of every frame. ``probe`` is None when a frame is about the whole source.

    ``source``: the collector, or the console itself (Open vSwitch, own cost).
    """

    v: int = VERSION
    source: SourceName = "collector"
    probe: Name | None = None
    seq: Int
    mono_ns: Int
    wall_ns: Int


class Hello(Frame, frozen=True):
    """The first frame of a stream: host, interpreter, capabilities."""

    host: Host
    collector: Annotated[dict[Name, Text | Int], Meta(max_length=64)]
    capabilities: Annotated[dict[Name, Capability], Meta(max_length=64)]


class Status(Frame, frozen=True):
    """A probe changed state. ``why`` is one sentence; ``help`` says what to do. Both are None when all is well."""

    state: ProbeStatus
    mode: Mode
    why: Sentence | None = None
    help: Sentence | None = None
    attach: Annotated[list[Text], Meta(max_length=256)] = []
    missing: Annotated[list[Text], Meta(max_length=256)] = []
    knobs: Annotated[dict[Name, Scalar], Meta(max_length=64)] = {}


class Counters(Frame, frozen=True):
    """Named exact counts of a probe: all of the interval, or of the ``seen_ns`` in which the probe was attached."""

    interval_ns: Natural
    values: Annotated[dict[Name, Count], Meta(max_length=64)]
    seen_ns: Natural | None = None


class Table(Frame, frozen=True):
    """Rows that changed in this interval, or all rows when ``full``. ``omitted`` rows did not fit.

    ``one_in``: for how many counts one that is in a row stood in this interval.
    """

    name: Name
    interval_ns: Natural
    full: bool
    rows: list[Row]
    omitted: Natural = 0
    seen_ns: Natural | None = None
    one_in: Natural = 1


class Histogram(Frame, frozen=True):
    """One histogram of one set of labels. It is sent when it changed, and now and then in any case."""

    name: Name
    interval_ns: Natural
    unit: Text
    labels: Labels
    delta: Buckets
    total: Buckets
    seen_ns: Natural | None = None


class Event(Frame, frozen=True):
    """One sampled detail. A field of several values (a stack) is a list of strings, innermost first."""

    name: Name
    fields: Annotated[dict[Name, Scalar | Stack], Meta(max_length=64)]

    @property
    def happened_ns(self) -> int:
        """Wall clock of the event itself, by its own monotonic time where the probe took it; else of its reading."""
        mono_ns = self.fields.get("mono_ns")
        if isinstance(mono_ns, int) and not isinstance(mono_ns, bool) and 0 <= self.mono_ns - mono_ns < _LATE_NS:
            return self.wall_ns - (self.mono_ns - mono_ns)
        return self.wall_ns


class Records(Frame, frozen=True):
    """Single things that happened, the values of each in the order of ``columns``; none is left out.

    A record that changed is sent again, whole. ``waiting`` records did not fit, and come in the next frame.
    """

    name: Name
    columns: Annotated[list[Name], Meta(max_length=64)]
    records: Annotated[list[Annotated[list[Scalar], Meta(max_length=64)]], Meta(max_length=10_000)]
    waiting: Natural = 0


class Cost(Frame, frozen=True):
    """The cost and the ledger of a probe.

    With ``probe`` None: the cost of the source's process. This frame ends an interval of that source.
    """

    interval_ns: Natural
    programs: Annotated[list[Program], Meta(max_length=256)] = []
    statistics: Statistics | None = None
    events: Annotated[dict[Name, Count], Meta(max_length=64)] = {}
    ledger: Annotated[dict[Name, Count], Meta(max_length=64)] = {}
    maps_kb: Natural | None = None
    usage: Usage | None = None


class Action(Frame, frozen=True):
    """Something that was done or reported to keep the budget. ``probe`` is None when it is about all probes."""

    action: Sentence
    because: Sentence
    measured: float | None = None
    limit: float | None = None


class Answer(Frame, frozen=True):
    """What a host answered when it was asked why a row of ``probe`` counts: once, when an incident begins."""

    table: Name
    labels: Labels
    question: Name
    document: Annotated[dict[Name, Text | Int | float | bool | None], Meta(max_length=32)] = {}
    error: Sentence | None = None


class Reply(Frame, frozen=True):
    """The answer to a command on the collector's standard input."""

    id: Int
    ok: bool
    error: Sentence | None = None


class Bye(Frame, frozen=True):
    """The last frame of a stream that ended in order."""

    why: Sentence


AnyFrame: TypeAlias = (
    Hello | Status | Counters | Table | Histogram | Event | Records | Cost | Action | Answer | Reply | Bye
)

_decoder: msgspec.json.Decoder[AnyFrame] = msgspec.json.Decoder(AnyFrame)
_encoder = msgspec.json.Encoder()


def decode(line: bytes) -> AnyFrame:
    """Decode and validate one line. Raises FrameError and nothing else, whatever the bytes."""
    if len(line) > MAX_LINE_BYTES:
        raise FrameError(f"frame of {len(line)} bytes: longer than {MAX_LINE_BYTES}")
    try:
        frame = _decoder.decode(line)
    except UNREADABLE as error:
        raise FrameError(f"not a frame: {safe(error)}") from None
    if frame.v != VERSION:
        raise FrameError(f"frame version {frame.v}: this netconsole reads version {VERSION}")
    return frame


def encode(frame: AnyFrame) -> bytes:
    """One line, newline included."""
    return _encoder.encode(frame) + b"\n"
