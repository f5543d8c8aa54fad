"""The comparison document (`netconsole.comparison/1`, docs/use/comparison.md): its types and the exit code it gives."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from netconsole.base import figure
from netconsole.probes.polarity import TIME_UNITS

SCHEMA = "netconsole.comparison/1"

Verdict = Literal["same", "changed", "regressed"]
Direction = Literal["worse", "better", "different"]


class Figure(msgspec.Struct, frozen=True):
    """One of the figures of a histogram, in the finding's unit."""

    name: str
    baseline: float | None
    current: float | None
    spread: float | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One metric that moved. ``spread`` is the baseline's, in ``unit``; null when it has fewer than three snapshots.

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


class FactChange(msgspec.Struct, frozen=True):
    """A fact that differs. A side that is null has no such fact. ``may_explain`` are ranks of findings."""

    fact: str
    baseline: str | int | float | bool | list[str] | None
    current: str | int | float | bool | list[str] | None
    may_explain: list[int] = []


class Condition(msgspec.Struct, frozen=True):
    """Under what it was measured: no part of the verdict. ``low`` to ``high`` is the range of the baseline."""

    condition: str
    unit: str
    low: float | None
    high: float | None
    current: float | None


class NotComparable(msgspec.Struct, frozen=True):
    """What was left out, and why."""

    metric: str
    why: str


class Side(msgspec.Struct, frozen=True):
    """What was compared."""

    host: str
    created: str
    profile: str
    duration_s: float
    name: str = ""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A whole comparison. ``compared`` counts the metrics that were held against each other."""

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

    @property
    def exit_code(self) -> int:
        """1 exactly when the verdict is regressed."""
        return 1 if self.verdict == "regressed" else 0


def said(value: float | None, unit: str) -> str:
    """A figure of a finding for people: times, and times per second, in the unit that reads best."""
    time, slash, rest = unit.partition("/")
    if time in TIME_UNITS and rest in ("", "s"):
        return figure.duration(value, time) + (f"{slash}{rest}" if value is not None else "")
    return figure.quantity(value, unit)


def encode(comparison: Comparison) -> bytes:
    """The JSON document, one line feed at the end."""
    return msgspec.json.encode(comparison) + b"\n"
