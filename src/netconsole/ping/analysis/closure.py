"""The checks of a breakdown: do its times add up, and is anything below zero that cannot be?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from netconsole.ping.analysis.echoes import ROUNDING_US
from netconsole.ping.analysis.merge import JoinedCaptures, RoleTimes, roles_missing
from netconsole.ping.breakdown import Breakdown, BreakdownCheck
from netconsole.ping.capture import EchoTimes
from netconsole.ping.model import REMAINDERS, STAGES, WIRE
from netconsole.ping.words import ONE_HOST

_ONE_HOST = (
    "both ends are on one host: there is no network between hosts (C, D, I and J take no time), and B and K go from one"
    " end's tap to the other's, with all that lies between"
)
ENOUGH = 0.95
"""Times must add up for this share of the echoes."""
OF_MEANS = 0.01
"""Means of one capture may be of slightly different echoes: their sum is allowed this share more or less."""
WHOLE_US = 0.5
"""Stages of old logs are whole microseconds."""
_EXACT_US = 1e-6


def checks(breakdown: Breakdown, joined: JoinedCaptures) -> list[BreakdownCheck]:
    """All checks, of captures first."""
    found = [
        BreakdownCheck("all vantage points", False, f"there is no capture of {role}, so its segments are not known")
        for role in roles_missing(joined)
    ]
    if joined.one_host:
        found.append(BreakdownCheck(ONE_HOST, True, _ONE_HOST))
    for role in joined.roles.values():
        found += _of_capture(role)
    found += _sums(breakdown)
    found += _stages(breakdown)
    found += _remainders(breakdown, joined)
    found += _halves(breakdown)
    return found


def _of_capture(role: RoleTimes) -> Iterator[BreakdownCheck]:
    """Request, between and reply are the whole."""
    name = f"{role.role} adds up"
    if role.echoes:
        slack = ROUNDING_US + 2 * role.error_us
        off = [abs(size) for row in role.echoes.values() if (size := _off(row)) is not None]
        if not off:
            return
        good = sum(size <= slack for size in off)
        detail = f"{role.role}: request, between and reply add up to the total for {good} of {len(off)} echoes"
        yield BreakdownCheck(name, good >= ENOUGH * len(off), f"{detail}, within {slack:.2f} us", max(off))
    elif role.summary is not None:
        summary = role.summary
        parts = [summary.request_us, summary.between_us, summary.reply_us]
        if summary.total_us is None or None in parts:
            return
        added = math.fsum(part.mean for part in parts if part is not None)
        size = added - summary.total_us.mean
        slack = ROUNDING_US + 2 * role.error_us + OF_MEANS * abs(summary.total_us.mean)
        detail = (
            f"the means of request, between and reply of {role.role} add up to {_us(added)}, the total is"
            f" {_us(summary.total_us.mean)}"
        )
        yield BreakdownCheck(name, abs(size) <= slack, detail, size)


def _off(row: EchoTimes) -> float | None:
    parts = (row.request_us, row.between_us, row.reply_us)
    if None in parts or row.total_us is None:
        return None
    return sum(part for part in parts if part is not None) - row.total_us


def _sums(breakdown: Breakdown) -> Iterator[BreakdownCheck]:
    """By construction these are equal; the check says that they are."""
    whole = breakdown.round_trip_us
    sums = (
        ("parts add up", "sender's host + network + receiver's host", breakdown.parts.values()),
        ("segments add up", "all segments and remainders", [one.mean_us for one in breakdown.segments.values()]),
        ("layers add up", "all layers", breakdown.layers.values()),
    )
    if whole is None or None in breakdown.parts.values():
        unknown = "the round trip" if whole is None else "one of the three parts"
        yield BreakdownCheck("adds up", False, f"sums cannot be checked: {unknown} is not known")
        return
    for name, what, terms in sums:
        added = math.fsum(term for term in terms if term is not None)
        detail = f"{what} take {_us(added)}, the round trip takes {_us(whole)}"
        slack = _EXACT_US + 1e-9 * abs(whole) + (ROUNDING_US if "U_sender" not in breakdown.segments else 0.0)
        yield BreakdownCheck(name, abs(added - whole) <= slack, detail, added - whole)


def _stages(breakdown: Breakdown) -> Iterator[BreakdownCheck]:
    for segment, rows in breakdown.stages.items():
        stages = [rows[stage].mean_us for stage in STAGES[segment]]
        total = rows["total"].mean_us
        if total is None or None in stages:
            continue
        added = math.fsum(stage for stage in stages if stage is not None)
        slack = WHOLE_US * (len(stages) + 1) + OF_MEANS * abs(total)
        detail = f"the stages of {segment} add up to {_us(added)}, the segment takes {_us(total)}"
        yield BreakdownCheck(f"stages of {segment} add up", abs(added - total) <= slack, detail, added - total)


def _remainders(breakdown: Breakdown, joined: JoinedCaptures) -> Iterator[BreakdownCheck]:
    error = math.fsum(role.error_us for role in joined.roles.values())
    for name in (*REMAINDERS.values(), WIRE):
        time = breakdown.segments.get(name)
        if time is None or time.mean_us is None:
            continue
        label = f"{name} is not below zero"
        if time.mean_us >= -error:
            yield BreakdownCheck(label, True, f"{_us(time.mean_us)}: {time.formula}", time.mean_us)
            continue
        same_echoes = time.by == "packets"
        reason = (
            "the segments overlap, because tools capture at different points, or because the probes"
            " themselves take time"
            if same_echoes
            else "the means are of different echoes or tools, whose clocks, capture points and cost do not fit together"
        )
        what = (
            "the measured segments add up to more than the whole"
            if name != WIRE
            else "what lies inside took longer than what lies around it"
        )
        detail = f"{name} is {_us(time.mean_us)}: {what} ({time.formula}): {reason}"
        yield BreakdownCheck(label, False, detail, time.mean_us)


def _halves(breakdown: Breakdown) -> Iterator[BreakdownCheck]:
    """A half that is far below zero: the clocks are not related as their captures say."""
    for name, halves in breakdown.halves.items():
        for half, time in halves.items():
            accuracy = time.accuracy_us or 0.0
            if time.mean_us is not None and time.mean_us < -accuracy - ROUNDING_US:
                below = (
                    f"the half {half} of {name} is {_us(time.mean_us)}, and the clocks can be off by"
                    f" {_us(accuracy)} only"
                )
                detail = f"{below}: the captures relate the two clocks wrongly"
                yield BreakdownCheck(f"clocks of {name}", False, detail, time.mean_us)


def _us(value: float) -> str:
    return f"{value:.1f} us"
