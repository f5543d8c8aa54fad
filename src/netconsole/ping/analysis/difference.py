"""Compares two breakdowns: difference, ratio and share of every segment, stage, part and layer.

A segment that only one case measured counts in the remainder of its side in both, so that both mean the same. All
shares are of the difference in round trip. Those of the segments, those of the parts and those of the layers each add
up to 100 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec

from netconsole.ping.analysis.figures import difference_is_chance
from netconsole.ping.analysis.measure import PARTS
from netconsole.ping.breakdown import Breakdown, PathTime, PingComparison, TimeChange
from netconsole.ping.model import LAYER_WORDS, LAYERS, PATH, REMAINDERS, SEGMENTS, STAGE_WORDS, STAGES, WIRE
from netconsole.ping.words import named, percent, us

PingVerdict = Literal["same", "changed", "regressed"]
UNDIVIDED = "undivided"
"""What of a difference belongs to no segment, part or layer, because a case lacks captures."""
EXACT = 1e-6
LEAST_US = 0.05
"""A smaller difference in round trip is none, and is not divided."""
LEAST_RATIO, LEAST_WORSE_US = 1.1, 5.0
"""A round trip must be so much longer to be a regression, and by more than chance where that is known."""
MAX_CHANCE = 0.01
_SPECS = {spec.name: spec for spec in SEGMENTS}
_NAMED = 3
_NAMED_FROM_PCT = 10.0


def compared(current: Breakdown, baseline: Breakdown, name: str = "") -> PingComparison:
    """The comparison of two cases. ``name`` is the baseline's. Raises nothing for valid breakdowns."""
    whole = _change(current.round_trip_us, baseline.round_trip_us, None)
    total = whole.difference_us if whole.difference_us is not None and abs(whole.difference_us) >= LEAST_US else None
    now, folded = folded_times(current, baseline)
    then, folded_too = folded_times(baseline, current)
    folded += [one for one in folded_too if one not in folded]
    segments = {
        one: _folded(current, baseline, one) if one in folded else _change(now.get(one), then.get(one), total)
        for one in PATH
        if one in current.segments or one in baseline.segments
    }
    layers = {
        layer: _change(_layer(now, layer), _layer(then, layer), total)
        for layer in LAYERS
        if layer in current.layers or layer in baseline.layers
    }
    parts = {part: _change(current.parts.get(part), baseline.parts.get(part), total) for part in PARTS}
    for kind in (segments, layers, parts):
        _divide_all(kind, total)
    found = PingComparison(
        round_trip=_change(current.round_trip_us, baseline.round_trip_us, total),
        segments=segments,
        stages=_stages(current, baseline, total),
        parts=parts,
        layers=layers,
        findings=[],
        verdict=_verdict(current, baseline),
        baseline=name,
        folded=folded,
    )
    return msgspec.structs.replace(found, findings=_findings(found, current, baseline))


def folded_times(case: Breakdown, other: Breakdown) -> tuple[dict[str, float | None], list[str]]:
    """The means of a case, where segments that the other one lacks are in the remainder of their side."""
    times = {name: one.mean_us for name, one in case.segments.items()}
    folded = []
    for name, spec in _SPECS.items():
        mine, theirs = times.get(name), other.segments.get(name)
        if mine is None or (theirs is not None and theirs.mean_us is not None):
            continue
        rest = REMAINDERS[spec.side]
        if times.get(rest) is not None:
            folded.append(name)
            times[name] = None
            times[rest] = (times[rest] or 0.0) + mine
    return times, folded


def _folded(current: Breakdown, baseline: Breakdown, name: str) -> TimeChange:
    """A segment that one case measured: its time, and no difference."""
    times = [case.segments.get(name) for case in (baseline, current)]
    then, now = (None if time is None else time.mean_us for time in times)
    return TimeChange(then, now, None, None)


def _divide_all(changes: dict[str, TimeChange], total: float | None) -> None:
    """Adds what of the difference belongs to none, so that nothing is hidden where a case lacks captures."""
    if total is None:
        return
    rest = total - math.fsum(one.difference_us for one in changes.values() if one.difference_us is not None)
    if abs(rest) > EXACT * max(1.0, abs(total)):
        changes[UNDIVIDED] = TimeChange(None, None, rest, None, 100 * rest / total)


def _layer(times: Mapping[str, float | None], layer: str) -> float | None:
    if layer == "physical_network_us":
        names = [WIRE]
    elif layer == "virtualization_unmeasured_us":
        names = list(REMAINDERS.values())
    else:
        names = [name for name, spec in _SPECS.items() if spec.layer == layer]
    known = [value for name in names if (value := times.get(name)) is not None]
    return math.fsum(known) if known else None


def _change(now: float | None, then: float | None, total: float | None) -> TimeChange:
    if now is None or then is None:
        return TimeChange(then, now, None, None)
    difference = now - then
    # A quotient of what no probe saw, or of what is below zero, says nothing.
    ratio = now / then if then > 0 and now >= 0 else None
    if ratio is not None and not math.isfinite(ratio):
        ratio = None
    return TimeChange(then, now, difference, ratio, None if total is None else 100 * difference / total)


def _stages(current: Breakdown, baseline: Breakdown, total: float | None) -> dict[str, dict[str, TimeChange]]:
    found = {}
    for segment, stages in STAGES.items():
        now, then = current.stages.get(segment), baseline.stages.get(segment)
        if now is None or then is None:
            continue
        rows = {stage: _change(_mean(now, stage), _mean(then, stage), total) for stage in (*stages, "total")}
        rows["rest"] = _change(_rest(now, stages), _rest(then, stages), total)
        found[segment] = rows
    return found


def _mean(rows: Mapping[str, PathTime], stage: str) -> float | None:
    row = rows.get(stage)
    return None if row is None else row.mean_us


def _rest(rows: Mapping[str, PathTime], stages: tuple[str, ...]) -> float | None:
    """What the stages do not add up to."""
    total, known = _mean(rows, "total"), [_mean(rows, stage) for stage in stages]
    return None if total is None else total - math.fsum(value for value in known if value is not None)


def _verdict(current: Breakdown, baseline: Breakdown) -> PingVerdict:
    now, then = current.round_trip, baseline.round_trip
    if now is None or then is None or now.mean_us is None or then.mean_us is None:
        return "same"
    difference = abs(now.mean_us - then.mean_us)
    low, high = sorted((now.mean_us, then.mean_us))
    if difference < LEAST_WORSE_US or high < LEAST_RATIO * max(low, 0.0):
        return "same"
    chance = difference_is_chance(now.mean_us, now.stdev_us, now.n, then.mean_us, then.stdev_us, then.n)
    if chance is not None and chance > MAX_CHANCE:
        return "same"
    return "regressed" if now.mean_us > then.mean_us else "changed"


def _findings(found: PingComparison, current: Breakdown, baseline: Breakdown) -> list[str]:
    whole = found.round_trip
    if whole.difference_us is None:
        return ["The round trips cannot be compared: in one case the round trip is not known."]
    ratio = f", {whole.ratio:.2f} times the baseline's" if whole.ratio is not None else ""
    said = [
        f"The round trip is {us(whole.current_us)} us, the baseline's {us(whole.baseline_us)} us: "
        f"{us(whole.difference_us, sign=True)} us{ratio}."
    ]
    if whole.share_pct is None:
        return [*said, "Both round trips take the same time."]
    if UNDIVIDED in found.segments:
        rest = found.segments[UNDIVIDED]
        said.append(
            f"{us(rest.difference_us, sign=True)} us of the difference cannot be given to a segment: one case"
            " lacks captures."
        )
    for name in _largest(found.segments):
        if name == UNDIVIDED:
            continue
        time = current.segments.get(name) or baseline.segments[name]
        said.append(f"{named(name, time)}: {_said(found.segments[name])}.{_stage_said(found, name)}")
    layer = next(iter(_largest(found.layers)), None)
    if layer is not None and layer != UNDIVIDED:
        said.append(f"By layer, most of it is {LAYER_WORDS[layer]}: {_said(found.layers[layer])}.")
    if found.folded:
        said.append(
            f"Only one case measured {', '.join(found.folded)}: both cases count that time in the"
            " remainder of its side."
        )
    return said


def _largest(changes: Mapping[str, TimeChange]) -> list[str]:
    """The names with the largest shares of the difference, in its direction."""
    shares = {name: one.share_pct for name, one in changes.items() if one.share_pct is not None}
    order = sorted(shares, key=lambda name: -shares[name])[:_NAMED]
    return [name for at, name in enumerate(order) if at == 0 or shares[name] >= _NAMED_FROM_PCT]


def _said(change: TimeChange) -> str:
    share = f", {percent(change.share_pct)} of the difference" if change.share_pct is not None else ""
    return f"{us(change.difference_us, sign=True)} us ({us(change.baseline_us)} → {us(change.current_us)}){share}"


def _stage_said(found: PingComparison, segment: str) -> str:
    rows = {stage: row for stage, row in found.stages.get(segment, {}).items() if stage not in ("total", "rest")}
    stage = next(iter(_largest(rows)), None)
    return "" if stage is None else f" The stage with most of it, {STAGE_WORDS[stage]}: {_said(rows[stage])}."
