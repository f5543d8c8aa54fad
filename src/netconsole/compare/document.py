"""The comparison document (`netconsole.comparison/1`, docs/use/comparison.md): its types and its exit code."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from netconsole.base import figure
from netconsole.probes.polarity import TIME_UNITS

SCHEMA = "netconsole.comparison/1"
MAX_REASONS = 3

Verdict = Literal["same", "changed", "regressed", "unknown"]
"""unknown: there was nothing that could be compared."""
Direction = Literal["worse", "better", "different"]


class Figure(msgspec.Struct, frozen=True):
    """One of the figures of a histogram, in the finding's unit."""

    name: str
    baseline: float | None
    current: float | None
    spread: float | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One metric that changed. ``spread`` is the baseline's, in ``unit``. null with fewer than three snapshots.

    ``statistic`` says which figure of the metric is shown (rate, value, p50, p90, p99, mean, shape), ``figures`` the
    others. ``difference`` is current less baseline; ``ratio`` is null when one of them is 0. ``distance`` is between
    the shapes, in log2 units.
    """

    rank: int
    metric: str
    unit: str
    baseline: float | None
    current: float | None
    ratio: float | None
    difference: float | None
    spread: float | None
    significant: bool
    direction: Direction
    why: str
    statistic: str = "rate"
    figures: list[Figure] = []
    distance: float | None = None
    facts: list[str] = []
    """Keys of changed facts that may explain it."""
    what: str = ""
    """The change in a sentence: what, where, from how much to how much."""
    incident: str = ""
    """Of what is worse: what the current snapshot says of this row, if it stands out there. With what to do next."""
    next: list[str] = []
    commands: list[str] = []


class FactChange(msgspec.Struct, frozen=True):
    """A fact that differs. A side that is null has no such fact. ``may_explain`` are ranks of findings."""

    fact: str
    baseline: str | int | float | bool | list[str] | None
    current: str | int | float | bool | list[str] | None
    may_explain: list[int] = []


class Condition(msgspec.Struct, frozen=True):
    """A condition of the measurement. It is not part of the verdict. ``low`` to ``high`` is the baseline's range."""

    condition: str
    unit: str
    low: float | None
    high: float | None
    current: float | None


class NotComparable(msgspec.Struct, frozen=True):
    """A metric or probe that was left out, and why."""

    metric: str
    why: str


class Side(msgspec.Struct, frozen=True):
    """A snapshot that was compared."""

    host: str
    created: str
    profile: str
    duration_s: float
    name: str = ""


class PlaceChange(msgspec.Struct, frozen=True):
    """A place where packets died: packets per second in the baseline (the mean of its snapshots) and now.

    0: none did. null: no probe looked there; such snapshots are not in the mean.
    ``level`` as in a snapshot's ``drop_places``. It is not part of the verdict: findings tell what is beyond chance.
    """

    stage: str
    where: str
    why: str
    level: str
    baseline_per_s: float | None
    current_per_s: float | None


class MirrorChange(msgspec.Struct, frozen=True):
    """A stage of a mirror, then and now: packets per second that passed it or were lost there. Null: not known."""

    stage: str
    is_loss: bool
    baseline_per_s: float | None
    current_per_s: float | None
    where: str = ""
    """Where most of it was, now."""


class MachineChange(msgspec.Struct, frozen=True):
    """A VM that something else caps than before, in the words of its page. ``is_capped``: now."""

    vm: str
    is_capped: bool
    baseline: str
    current: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A whole comparison. ``compared`` is the number of metrics that were compared."""

    schema: Annotated[str, Meta(extra_json_schema={"const": SCHEMA})] = SCHEMA
    verdict: Verdict
    findings: list[Finding]
    facts_changed: list[FactChange]
    not_comparable: list[NotComparable]
    conditions: list[Condition] = []
    compared: int = 0
    findings_omitted: int = 0
    current: Side | None = None
    baseline: list[Side] = []
    drop_places: list[PlaceChange] | None = None
    """Where packets died, then and now; null where nobody looked."""
    mirror: list[MirrorChange] | None = None
    """The ledger of the mirror, then and now; null where the current snapshot has none."""
    machines: list[MachineChange] = []
    """The VMs that something else caps than in the newest snapshot of the baseline."""

    @property
    def exit_code(self) -> int:
        """1 when the verdict is regressed, 3 when nothing could be compared, else 0."""
        return {"regressed": 1, "unknown": 3}.get(self.verdict, 0)

    @property
    def why_unknown(self) -> str:
        """What could not be compared, and why: the first of it."""
        said = [f"{one.metric}: {one.why}" for one in self.not_comparable[:MAX_REASONS]]
        more = len(self.not_comparable) - len(said)
        return "; ".join([*said, *([f"and {more} more"] if more else [])]) or "no probe measured on both sides"


def said(value: float | None, unit: str) -> str:
    """A figure of a finding as text. Times, and times per second, are in the unit that is easiest to read."""
    time, slash, rest = unit.partition("/")
    if time in TIME_UNITS and rest in ("", "s"):
        return figure.duration(value, time) + (f"{slash}{rest}" if value is not None else "")
    return figure.quantity(value, unit)


def encode(comparison: Comparison) -> bytes:
    """The JSON document. It ends with a line feed."""
    return msgspec.json.encode(comparison) + b"\n"
