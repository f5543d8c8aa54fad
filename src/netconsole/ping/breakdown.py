"""The breakdown document of a ping (`netconsole.ping-breakdown/1`): its types, and a reader that names its mistakes.

All times are microseconds. Unknown is null. A figure below zero is reported as it is. docs/subjects/ping.md has the
model and its formulas.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from netconsole.base.documents import DocumentKind
from netconsole.base.fact_keys import FactValue
from netconsole.ping.capture import EchoCount, Role, Us

SCHEMA = "netconsole.ping-breakdown/1"
MAX_BYTES = 16 * 1024 * 1024
"""A breakdown has about 30 kB: no echo is in it by itself."""

Percent = Annotated[float, Meta(ge=-1e18, le=1e18)]
TimesBy = Literal["packets", "means"]
"""``packets``: computed for every echo. ``means``: a difference of means, perhaps of different echoes."""


class PathTime(msgspec.Struct, frozen=True, omit_defaults=True):
    """One time on the way of a ping: a segment, a stage, or several segments together.

    ``measured`` is false for what no probe saw: it is what remains, and ``formula`` says of what. ``at_most_us`` bounds
    it. ``interval_us`` is the 95 % confidence interval of the mean.
    """

    mean_us: Us | None
    n: EchoCount | None
    measured: bool
    where: str = ""
    what: str = ""
    formula: str = ""
    by: TimesBy | None = None
    share_pct: Percent | None = None
    """Of the round trip."""
    min_us: Us | None = None
    p50_us: Us | None = None
    p90_us: Us | None = None
    p99_us: Us | None = None
    max_us: Us | None = None
    stdev_us: Us | None = None
    interval_us: tuple[Us, Us] | None = None
    at_most_us: Us | None = None
    accuracy_us: Us | None = None
    contains: list[str] = []
    """Segments that were not measured, and so are in this remainder."""
    why: str | None = None


class BreakdownCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that must hold. ``size_us`` is by how much it does not."""

    check: str
    ok: bool
    detail: str
    size_us: Us | None = None


class Vantage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A capture that the breakdown is made of."""

    role: Role
    host: str = ""
    file: str = ""
    echoes: EchoCount = 0
    """How many echoes it has one by one. 0: it has means alone, or nothing."""
    is_empty: bool = False
    """It has neither echoes nor means."""
    source: str | None = None
    kernel: str | None = None
    created: str | None = None
    boundary: str | None = None


class Loss(msgspec.Struct, frozen=True, omit_defaults=True):
    """Echoes that came to the same end."""

    where: str
    count: EchoCount
    first: list[str] = []
    """Some of them, as ``id/seq``."""


class FactShown(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fact of a vantage point that can cause what was measured. ``word``: ok, ! (look), ? (not known)."""

    fact: str
    value: FactValue
    word: Literal["ok", "!", "?"]
    says: str = ""


class PingAdvice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What to check for one segment, and on which host. ``command`` is for a person: netconsole never runs it."""

    segment: str
    topic: str
    host: str
    word: Literal["ok", "!", "?"]
    reason: str
    command: str = ""
    facts: list[FactShown] = []


class TimeChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """One time in two cases. ``share_pct`` is of the difference in round trip."""

    baseline_us: Us | None
    current_us: Us | None
    difference_us: Us | None
    ratio: float | None
    share_pct: Percent | None = None


class PingComparison(msgspec.Struct, frozen=True, omit_defaults=True):
    """Two cases side by side: the current one less the baseline. All shares of one kind add up to 100 %.

    A segment that only one case measured is counted in the remainder of its side in both; ``folded`` names it.
    """

    round_trip: TimeChange
    segments: dict[str, TimeChange]
    stages: dict[str, dict[str, TimeChange]]
    """Of a segment. ``rest`` is what its stages do not add up to."""
    parts: dict[str, TimeChange]
    layers: dict[str, TimeChange]
    findings: list[str]
    verdict: Literal["same", "changed", "regressed"] = "same"
    baseline: str = ""
    folded: list[str] = []


class Breakdown(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole breakdown. ``paired_packets``: echoes that every capture with echoes one by one has."""

    schema: Annotated[str, Meta(extra_json_schema={"const": SCHEMA})]
    round_trip_us: Us | None
    paired_packets: EchoCount
    segments: dict[str, PathTime]
    stages: dict[str, dict[str, PathTime]]
    parts: dict[str, Us | None]
    layers: dict[str, Us | None]
    checks: list[BreakdownCheck]
    round_trip: PathTime | None = None
    composites: dict[str, PathTime] = {}
    halves: dict[str, dict[str, PathTime]] = {}
    """The two halves of a remainder, where the clocks of guest and host are related."""
    incomplete: dict[str, list[str]] = {}
    """Layers that lack segments: their time is a lower bound, and the rest is in a remainder."""
    findings: list[str] = []
    dominant: str | None = None
    losses: list[Loss] = []
    captures: list[Vantage] = []
    advice: list[PingAdvice] = []
    comparison: PingComparison | None = None


KIND = DocumentKind(Breakdown, SCHEMA, "ping breakdown", MAX_BYTES)
load, parse, encode = KIND.load, KIND.parse, KIND.encode
