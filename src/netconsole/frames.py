"""The frames: one JSON object per line, the only thing that readers of a measurement ever see.

The words for people are in docs/frames.md; a test compares the two. Everything decodes through :func:`decode`, so
that a live collector, a recording and a remote host are held to the same rules.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

VERSION = 1
MAX_LINE_BYTES = 4 * 1024 * 1024
"""A longer line is refused: a frame of 10 000 rows is about 2 MB."""

Label: TypeAlias = str | int | None
Scalar: TypeAlias = str | int | float | bool | None

ProbeState: TypeAlias = Literal["compiling", "attaching", "attached", "degraded", "failed", "unsupported", "off"]
Mode: TypeAlias = Literal["summary", "details"]
Source: TypeAlias = Literal["collector", "console"]

LEDGER_COUNTS = ("missed", "map_full", "evicted", "join_missed", "parse_failed", "unaccounted")
"""Ledger entries that make exact counts a lower bound."""
LEDGER_SAMPLES = ("suppressed", "lost", "stack_failed", "shed")
"""Ledger entries that make the samples (events) a share of what happened; the counts stay exact."""


class FrameError(ValueError):
    """A line that is not a frame; the message says what is wrong and where, in one line."""


class Count(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """An exact count: ``delta`` in this interval, ``total`` since the probe was attached."""

    delta: int
    total: int


class Row(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """One row of a table: counts keyed by labels; gauges are states (a depth, a worst case), never summed."""

    labels: dict[str, Label]
    counts: dict[str, Count]
    gauges: dict[str, int | float | None] = {}


class Buckets(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A log-linear histogram (see :mod:`netconsole.histogram`): sparse ``[index, count]`` pairs, sum, min and max.

    ``min`` and ``max`` are those of the whole life of the probe; None while it is empty.
    """

    count: int
    sum: int
    min: int | None
    max: int | None
    buckets: list[tuple[int, int]]


class Program(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One BPF program: runs and time in the statistics windows, and runs that the kernel skipped in all.

    ``missed`` is None on kernels before 5.12, which do not tell.
    """

    name: str
    attach: str
    run_count: int
    run_time_ns: int
    missed: int | None


class Statistics(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """When run counts and times were measured: ``window_ns`` of the ``interval_ns``; 0 when no window was open."""

    window_ns: int
    interval_ns: int
    estimated: bool


class Usage(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What one process of ours used: CPU time in the interval, memory now. None where the host does not tell."""

    cpu_ns: int | None
    rss_kb: int | None
    pss_kb: int | None


class Host(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Where the frames come from."""

    name: str
    kernel: str
    arch: str
    os: str
    cpus: int
    boot_id: str


class Capability(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Something that the host can do or not, and why not."""

    ok: bool
    why: str | None = None


class Frame(
    msgspec.Struct,
    tag_field="kind",
    tag=lambda name: name.lower(),
    kw_only=True,
    frozen=True,
    forbid_unknown_fields=True,
):
    """What every frame carries. ``probe`` is None when a frame speaks of the whole source.

    ``source`` is who measured: the collector, or the console itself (links, sockets, own cost).
    """

    v: int = VERSION
    source: Source = "collector"
    probe: str | None = None
    seq: int
    mono_ns: int
    wall_ns: int


class Hello(Frame, frozen=True):
    """The first frame of a stream: host, interpreter, what can be done here."""

    host: Host
    collector: dict[str, str | int]
    capabilities: dict[str, Capability]


class Status(Frame, frozen=True):
    """A probe changed state. ``why`` is one sentence for people, ``help`` the way out; both None when all is well."""

    state: ProbeState
    mode: Mode
    why: str | None = None
    help: str | None = None
    attach: list[str] = []
    missing: list[str] = []
    knobs: dict[str, Scalar] = {}


class Counters(Frame, frozen=True):
    """Named exact counts of a probe."""

    interval_ns: int
    values: dict[str, Count]


class Table(Frame, frozen=True):
    """Rows that changed in this interval; every row there is when ``full``. ``omitted`` rows did not fit."""

    name: str
    interval_ns: int
    full: bool
    rows: list[Row]
    omitted: int = 0


class Histogram(Frame, frozen=True):
    """One histogram of one set of labels; sent when it changed, and now and then in any case."""

    name: str
    interval_ns: int
    unit: str
    labels: dict[str, Label]
    delta: Buckets
    total: Buckets


class Event(Frame, frozen=True):
    """One sampled detail. A field of several values (a stack) is a list of strings, innermost first."""

    name: str
    fields: dict[str, Scalar | list[str]]


class Cost(Frame, frozen=True):
    """What a probe costs and what it may have missed.

    With ``probe`` None it speaks of the source's process, and ends the frames of an interval of that source.
    """

    interval_ns: int
    programs: list[Program] = []
    statistics: Statistics | None = None
    events: dict[str, Count] = {}
    ledger: dict[str, Count] = {}
    maps_kb: int | None = None
    usage: Usage | None = None


class Reply(Frame, frozen=True):
    """The answer to a command on the collector's standard input."""

    id: int
    ok: bool
    error: str | None = None


class Bye(Frame, frozen=True):
    """The last frame of a stream that ended in order."""

    why: str


AnyFrame: TypeAlias = Hello | Status | Counters | Table | Histogram | Event | Cost | Reply | Bye

_decoder: msgspec.json.Decoder[AnyFrame] = msgspec.json.Decoder(AnyFrame)
_encoder = msgspec.json.Encoder()


def decode(line: bytes) -> AnyFrame:
    """Decode and validate one line. Raises FrameError; never anything else, whatever the bytes."""
    if len(line) > MAX_LINE_BYTES:
        raise FrameError(f"frame of {len(line)} bytes: longer than {MAX_LINE_BYTES}")
    try:
        frame = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"not a frame: {error}") from None
    if frame.v != VERSION:
        raise FrameError(f"frame version {frame.v}: this netconsole reads version {VERSION}")
    return frame


def encode(frame: AnyFrame) -> bytes:
    """One line, newline included."""
    return _encoder.encode(frame) + b"\n"
