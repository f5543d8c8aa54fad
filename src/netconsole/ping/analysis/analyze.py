"""Makes the breakdown of a ping from its captures: segments, remainders, stages, parts and layers.

The formulas are those of docs/subjects/ping.md. What cannot be computed is null, with the reason. What no probe saw
remains in ``U_sender`` or ``U_receiver``. Nothing is clipped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from netconsole.ping.analysis.advice import advice
from netconsole.ping.analysis.closure import checks
from netconsole.ping.analysis.joint_clock import halves
from netconsole.ping.analysis.losses import located
from netconsole.ping.analysis.measure import NO_WIRE, PARTS, PathFigures, echo_time, measure, stage_time
from netconsole.ping.analysis.merge import CaptureFile, JoinedCaptures, join
from netconsole.ping.analysis.times import PathFigure, combined, shown
from netconsole.ping.breakdown import SCHEMA, Breakdown, PathTime, Vantage
from netconsole.ping.model import (
    COMPOSITES,
    KICKS,
    LAYERS,
    PATH,
    REMAINDERS,
    STAGE_WORDS,
    STAGES,
    UNSEEN,
    WIRE,
    PingSide,
    SegmentSpec,
)
from netconsole.ping.words import NOTHING, dominant, sentences

_WIRE_WORDS = "both ways between the hosts, from driver to driver"
_WIRE = "{sender}: between_us - receiver-host: total_us"
_ON_ONE_HOST = {
    "B": "request: from the tap to the other VM's tap",
    "K": "reply: from the other VM's tap to the tap",
    "external_sender_host_us": "beyond the other VM's tap (E to B1)",
    **dict.fromkeys(NO_WIRE, NOTHING),
}
_OF_TWO_HOSTS = ("receiver_total_us", "external_receiver_host_us", "between_hosts_us")
"""Times that mean nothing where both ends are on one host."""
_AROUND: dict[PingSide, tuple[str, ...]] = {"sender": ("L", "I1"), "receiver": ("E", "B1")}


def analyze(files: Sequence[CaptureFile]) -> Breakdown:
    """The breakdown of the captures of one ping. Raises BadInput when two captures hold the same times."""
    joined = join(files)
    figures = measure(joined)
    losses = located(joined)
    found = Breakdown(
        schema=SCHEMA,
        round_trip_us=_mean(figures.round_trip),
        paired_packets=len(joined.paired),
        segments=_segments(figures),
        stages=_stages(figures),
        parts={name: _mean(figures.parts.get(name)) for name in PARTS},
        layers=_layers(figures),
        checks=[],
        round_trip=_round_trip(figures),
        composites=_composites(figures),
        halves=halves(figures),
        incomplete=_incomplete(figures),
        losses=losses.losses,
        captures=[_vantage(one, joined) for one in files],
    )
    found = _with(found, checks=[*joined.checks, *losses.checks, *checks(found, joined)])
    found = _with(found, dominant=dominant(found))
    found = _with(found, advice=advice(found, files))
    return _with(found, findings=sentences(found))


def _with(breakdown: Breakdown, **fields: Any) -> Breakdown:
    return msgspec.structs.replace(breakdown, **fields)


def _mean(time: PathFigure | None) -> float | None:
    return None if time is None else time.mean


def _round_trip(figures: PathFigures) -> PathTime:
    role = figures.outermost
    what = "the ping itself, from its request to its reply"
    why = None if figures.round_trip else f"no capture of {role}"
    return shown(figures.round_trip, True, role, what, f"{role}: total_us", figures.round_trip, why)


def _segments(figures: PathFigures) -> dict[str, PathTime]:
    found = {}
    specs = {spec.name: spec for spec in figures.specs}
    words = _ON_ONE_HOST if figures.joined.one_host else {}
    for name in PATH:
        time = figures.segments.get(name)
        if name in specs:
            spec = specs[name]
            at_most = None if time else _bound(figures, spec.side)
            why = figures.missing.get(name)
            role = figures.sender if spec.role == "sender-host" else spec.role
            formula = spec.formula.replace(spec.role, role)
            what = words.get(name, spec.what)
            found[name] = shown(time, True, role, what, formula, figures.round_trip, why, at_most)
        elif name == WIRE:
            why = None if time else "needs a capture of both hosts"
            what = words.get(name, _WIRE_WORDS)
            found[name] = shown(time, True, "network", what, _wire_formula(figures), figures.round_trip, why)
        elif name in REMAINDERS.values():
            side: PingSide = "sender" if name == REMAINDERS["sender"] else "receiver"
            if side == "receiver" or figures.sender != "host":
                found[name] = _remainder(figures, side)
    return found


def _wire_formula(figures: PathFigures) -> str:
    return _WIRE.format(sender=figures.sender)


def _bound(figures: PathFigures, side: PingSide) -> float | None:
    """The most that a segment can be which nobody measured: all that remains."""
    rest = figures.segments.get(REMAINDERS[side])
    return rest.mean if rest is not None and rest.mean > 0 else None


def _remainder(figures: PathFigures, side: PingSide) -> PathTime:
    name, part = REMAINDERS[side], f"{side}_host"
    time, missing = figures.segments.get(name), figures.missing_of(side)
    known = [spec.name for spec in figures.specs if spec.side == side and spec.name in figures.segments]
    formula = f"{part} - ({' + '.join(known)})" if known else part
    what = UNSEEN[side] + (f"; it also holds what was not measured: {', '.join(missing)}" if missing else "")
    why = None if time else f"{part} is not known: it needs captures of the {side}'s VM and of the {side}'s host"
    if side == "receiver" and time is None:
        why = "receiver_host is not known: it needs a capture of the receiver's host"
    at_most = time.mean if time is not None and time.mean > 0 else None
    return shown(time, False, side, what, formula, figures.round_trip, why, at_most_us=at_most, contains=missing)


def _stages(figures: PathFigures) -> dict[str, dict[str, PathTime]]:
    found = {}
    for spec in figures.specs:
        if spec.name not in STAGES or spec.name not in figures.segments:
            continue
        rows = {stage: _stage(figures, spec, stage) for stage in STAGES[spec.name]}
        if any(row.mean_us is not None for row in rows.values()):
            whole = figures.segments[spec.name]
            total = shown(whole, True, spec.role, spec.what, spec.formula, figures.round_trip)
            found[spec.name] = {**rows, "total": total}
    return found


def _stage(figures: PathFigures, spec: SegmentSpec, stage: str) -> PathTime:
    time = stage_time(figures.joined, spec.role, spec.part, stage)
    why = None if time else "not measured"
    formula = f"{spec.role}: {spec.part}.{stage}"
    return shown(time, True, spec.role, STAGE_WORDS[stage], formula, figures.round_trip, why)


def _layers(figures: PathFigures) -> dict[str, float | None]:
    by_layer: dict[str, list[PathFigure]] = {}
    for spec in figures.specs:
        if spec.name in figures.segments:
            by_layer.setdefault(spec.layer, []).append(figures.segments[spec.name])
    wire = figures.segments.get(WIRE)
    rest = [figures.segments[name] for name in REMAINDERS.values() if name in figures.segments]
    by_layer["physical_network_us"] = [wire] if wire else []
    by_layer["virtualization_unmeasured_us"] = rest
    kicks = any(spec.name in KICKS for spec in figures.specs)
    return {
        layer: math.fsum(time.mean for time in by_layer[layer]) if by_layer.get(layer) else None
        for layer in LAYERS
        if layer != "virtualization_kick_us" or kicks
    }


def _incomplete(figures: PathFigures) -> dict[str, list[str]]:
    """The layers that lack a segment, with the segments."""
    found: dict[str, list[str]] = {}
    for spec in figures.specs:
        if spec.name in figures.missing:
            found.setdefault(spec.layer, []).append(spec.name)
    return found


def _composites(figures: PathFigures) -> dict[str, PathTime]:
    """Times of several segments together, as tickets quote them."""
    found = {}
    for name, spec in COMPOSITES.items():
        role = figures.sender if spec.role == "sender-host" else spec.role
        time = echo_time(figures.joined, role, spec.field)
        what = _ON_ONE_HOST.get(name, spec.what) if figures.joined.one_host else spec.what
        found[name] = shown(time, True, role, what, f"{role}: {spec.field}", figures.round_trip)
    wire = figures.segments.get(WIRE)
    what = f"{_WIRE_WORDS} (C+J)"
    found["between_hosts_us"] = shown(wire, True, "network", what, _wire_formula(figures), figures.round_trip)
    sides: tuple[PingSide, ...] = ("sender", "receiver")
    for side in sides:
        time = _virtualization(figures, side)
        what = f"between the {side}'s VM and its host, both ways"
        formula = " + ".join(name for name in (REMAINDERS[side], *_AROUND[side]) if name in figures.segments)
        found[f"virtualization_{side}_us"] = shown(time, True, side, what, formula, figures.round_trip)
    left_out = _OF_TWO_HOSTS if figures.joined.one_host else ()
    return {name: one for name, one in found.items() if one.mean_us is not None and name not in left_out}


def _virtualization(figures: PathFigures, side: PingSide) -> PathFigure | None:
    """Interrupt, kick and what remains: known even where no probe saw vhost."""
    if REMAINDERS[side] not in figures.segments or (side == "sender" and figures.sender == "host"):
        return None
    names = (REMAINDERS[side], *_AROUND[side])
    return combined([figures.segments[name] for name in names if name in figures.segments])


def _vantage(one: CaptureFile, joined: JoinedCaptures) -> Vantage:
    capture = one.capture
    echoes = len(joined.roles[capture.role].echoes) if capture.packets else 0
    return Vantage(
        role=capture.role,
        host=capture.host,
        file=one.file,
        echoes=echoes,
        is_empty=not (capture.packets or capture.summary or capture.vhost_irq or capture.vhost_kick),
        source=capture.source,
        kernel=capture.kernel,
        created=capture.created,
        boundary=capture.boundary,
    )
