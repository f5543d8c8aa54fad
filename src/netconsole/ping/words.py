"""What a breakdown says in sentences: where most of the time is, and what could not be told."""

from __future__ import annotations

from netconsole.base import figure
from netconsole.ping.breakdown import Breakdown, PathTime
from netconsole.ping.model import LAYER_WORDS, STAGE_WORDS, STAGES

NOTED = "To be noted: "
ONE_HOST = "one host"
"""The check that says that both ends are on one host."""
NOTHING = "none: both ends are on one host"
"""What a segment is that does not exist there."""
POSSIBLE = 0.1
"""Clocks and tools differ. A time that is wrong by more than this share of the round trip is another thing's."""
LEAST_US = 0.05
"""Less is not told of."""
STAGE_LETTERS = {stage: STAGE_WORDS[stage].partition(":")[0] for stages in STAGES.values() for stage in stages}
"""S1→S2 for s1_s2."""


def us(value: float | None, sign: bool = False) -> str:
    """Microseconds with one decimal, as tickets quote them."""
    if value is None:
        return "–"
    text = f"{value:+.1f}" if sign else f"{value:.1f}"
    return "0.0" if text in ("-0.0", "+0.0") else text


def percent(value: float | None) -> str:
    """A percentage of two digits: the clocks of several hosts are not exact."""
    return figure.percent(value, digits=2)


def named(segment: str, time: PathTime) -> str:
    """A segment with its place and meaning."""
    if segment.startswith("U_"):
        return f"{segment} ({time.where}'s side, seen by no probe: {time.what})"
    return f"{segment} ({time.where}, {time.what})"


def dominant(breakdown: Breakdown) -> str | None:
    """The segment with the most time. None when nothing is known."""
    known = {name: one.mean_us for name, one in breakdown.segments.items() if one.mean_us is not None}
    return max(known, key=lambda name: known[name]) if known else None


def largest_stage(breakdown: Breakdown, segment: str) -> tuple[str, float] | None:
    """The stage of a segment that takes the most, and its time."""
    rows = breakdown.stages.get(segment, {})
    known = {stage: row.mean_us for stage, row in rows.items() if stage != "total" and row.mean_us is not None}
    if not known:
        return None
    stage = max(known, key=lambda name: known[name])
    return stage, known[stage]


def _without_round_trip(breakdown: Breakdown) -> list[str]:
    """Why it is not known. That all echoes were lost is what matters most."""
    pinging = [one for one in breakdown.captures if one.role in ("sender-vm", "host")]
    if not pinging:
        return ["The round trip is not known: there is no capture of the machine that pings."]
    if all(one.is_empty for one in pinging):
        return ["The round trip is not known: the machine that pings saw no echo. Do the addresses and devices fit?"]
    if breakdown.losses:
        lost = figure.things(sum(one.count for one in breakdown.losses), "echoes")
        return [f"No echo was answered in time: {lost}, {breakdown.losses[0].where}."]
    return ["The round trip is not known: no echo of the machine that pings is whole."]


def _contradiction(breakdown: Breakdown) -> list[str]:
    """That the captures cannot be of one ping as they are named: exchanged hosts, another unit."""
    whole = breakdown.round_trip_us
    times = {name: one.mean_us for name, one in breakdown.segments.items() if one.mean_us is not None}
    if not whole or not times:
        return []
    longest, shortest = max(times, key=lambda name: times[name]), min(times, key=lambda name: times[name])
    if times[longest] > whole * (1 + POSSIBLE):
        what = f"{longest} takes {us(times[longest])} us of a round trip of {us(whole)} us"
    elif times[shortest] < -POSSIBLE * whole:
        what = f"{shortest} takes {us(times[shortest])} us, less than nothing"
    else:
        return []
    return [f"The captures contradict each other: {what}. Is one under another's role, or in another unit?"]


def sentences(breakdown: Breakdown) -> list[str]:
    """What the breakdown says, the most important first."""
    said = _contradiction(breakdown)
    whole, segment = breakdown.round_trip_us, breakdown.dominant
    if whole is None:
        said += _without_round_trip(breakdown)
    if segment is not None:
        time = breakdown.segments[segment]
        share = (
            f" of {us(whole)} us, {percent(time.share_pct)}" if whole is not None and time.share_pct is not None else ""
        )
        undivided = None if whole is None else whole - sum(one.mean_us or 0.0 for one in breakdown.segments.values())
        if undivided is not None and undivided > LEAST_US:
            said.append(
                f"{us(undivided)} of {us(whole)} us, {percent(100 * undivided / (whole or 1))}, cannot be given"
                " to a segment: "
                "captures are missing. Of the rest:"
            )
        said.append(f"Most time is in {named(segment, time)}: {us(time.mean_us)} us{share}.")
        stage = largest_stage(breakdown, segment)
        if stage is not None:
            said.append(f"Of its {us(time.mean_us)} us, {us(stage[1])} us are in the stage {STAGE_WORDS[stage[0]]}.")
    layers = {name: value for name, value in breakdown.layers.items() if value is not None}
    if whole and layers:
        name = max(layers, key=lambda one: layers[one])
        more = " or more" if name in breakdown.incomplete else ""
        share = percent(100 * layers[name] / whole)
        said.append(f"The layer with most time is {LAYER_WORDS[name]}: {us(layers[name])} us{more}, {share}.")
    said += [f"{one.detail[:1].upper()}{one.detail[1:]}." for one in breakdown.checks if one.check == ONE_HOST]
    for loss in breakdown.losses[:5]:
        first = f" ({', '.join(loss.first)})" if loss.first else ""
        said.append(f"{figure.things(loss.count, 'echoes')}: {loss.where}{first}.")
    said += dict.fromkeys(f"{NOTED}{one.detail}." for one in breakdown.checks if not one.ok)
    return said
