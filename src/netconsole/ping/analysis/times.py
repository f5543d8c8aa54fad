"""Times that can be added and subtracted: echo by echo where every term has the echo, else by their means."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netconsole.ping.analysis.echoes import EchoKey
from netconsole.ping.analysis.figures import interval, of_values
from netconsole.ping.breakdown import PathTime
from netconsole.ping.capture import TimeSummary

LEAST_US = 0.001
"""A round trip below a nanosecond is none, and nothing is a share of it."""


@dataclass(frozen=True, slots=True)
class PathFigure:
    """One time of the way. ``values`` are those of the paired echoes; None when only the mean is known."""

    mean: float
    n: int | None
    values: Mapping[EchoKey, float] | None = None
    summary: TimeSummary | None = None


def of_packets(values: Mapping[EchoKey, float]) -> PathFigure:
    """A time that is known of every paired echo."""
    return PathFigure(math.fsum(values.values()) / len(values), len(values), values)


def of_summary(summary: TimeSummary) -> PathFigure:
    """A time of which the mean is known."""
    return PathFigure(summary.mean, summary.n, None, summary)


def combined(plus: Sequence[PathFigure], minus: Sequence[PathFigure] = ()) -> PathFigure:
    """The sum of some times less others."""
    terms = [(1.0, one) for one in plus] + [(-1.0, one) for one in minus]
    counts = [one.n for _, one in terms if one.n is not None]
    mean = math.fsum(sign * one.mean for sign, one in terms)
    n = min(counts) if len(counts) == len(terms) else None
    every = [one.values for _, one in terms]
    if any(values is None for values in every):
        return PathFigure(mean, n)
    known = [(sign, one.values) for sign, one in terms if one.values is not None]
    keys = known[0][1].keys()
    if any(values.keys() != keys for _, values in known):
        return PathFigure(mean, n)
    return PathFigure(mean, n, {key: math.fsum(sign * values[key] for sign, values in known) for key in keys})


def shown(
    time: PathFigure | None,
    measured: bool,
    where: str,
    what: str,
    formula: str,
    round_trip: PathFigure | None = None,
    why: str | None = None,
    at_most_us: float | None = None,
    contains: Sequence[str] = (),
) -> PathTime:
    """A time as the document has it. An unknown one has no figures, and says ``why``."""
    if time is None:
        return PathTime(None, None, False, where, what, formula, at_most_us=at_most_us, why=why)
    figures = of_values(list(time.values.values())) if time.values else time.summary or TimeSummary(time.mean, time.n)
    known = round_trip is not None and round_trip.mean >= LEAST_US
    share = 100 * time.mean / round_trip.mean if known and round_trip is not None else None
    return PathTime(
        mean_us=time.mean,
        n=time.n,
        measured=measured,
        where=where,
        what=what,
        formula=formula,
        by="packets" if time.values else "means",
        share_pct=share,
        min_us=figures.min,
        p50_us=figures.p50,
        p90_us=figures.p90,
        p99_us=figures.p99,
        max_us=figures.max,
        stdev_us=figures.stdev,
        interval_us=interval(time.mean, figures.stdev, figures.n),
        at_most_us=at_most_us,
        contains=list(contains),
        why=why,
    )
