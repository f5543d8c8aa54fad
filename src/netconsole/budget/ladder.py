"""The steps by which a probe is reduced: fewer events, a higher threshold, summary, less of it, counters, detached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from netconsole.profile.profile import ProfileMode
from netconsole.telemetry.frames import Mode, Scalar
from netconsole_collector.probe.config import ROWS_ONE_IN, SEEN_PCT

_EVENTS_DOWN = 4
_LEAST_EVENTS_PER_S = 5
_THRESHOLD_UP = 4
_FIRST_THRESHOLD_US = 100
_FLOWS_DOWN = 8
MAX_FLOWS_ONE_IN = 65536
_SEEN_PCT = (50, 25, 10, 4)
_ROWS_ONE_IN = (4, 16)
"""One count in more of them saves nearly nothing more, and chance would make the rows worse."""
_COUNTING_WITHOUT_ROWS = 0.6
"""The share of a probe's cost that is left when it makes no rows, in a probe that can make rows of a share."""
_COUNTING_SHARE, _COUNTING_BY_FEWER_SHARE = 0.5, 0.1
"""The share of a probe's cost that is left when it only counts: on all of its hooks, or on fewer."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of a probe's ladder: its mode, the knobs that differ from what was asked for, and its expected cost.

    ``kernel_share`` and ``events_share`` are the expected cost, relative to the top of the ladder. They decide only how
    far the first action goes. The next measurement decides what comes after it.
    """

    mode: ProfileMode
    says: str
    kernel_share: float
    events_share: float
    knobs: Mapping[str, Scalar] = field(default_factory=dict)


def ladder(
    mode: ProfileMode,
    knobs: Mapping[str, Scalar],
    modes: Sequence[Mode],
    counts_by_fewer: bool = False,
    is_kept: bool = False,
) -> tuple[Rung, ...]:
    """The ladder of a probe: what was asked for first, detached last. Steps that the probe lacks are left out.

    ``modes``: the modes that the probe has. ``counts_by_fewer``: its mode counters needs fewer programs. ``is_kept``:
    the profile is for it, so that it is never without rows (the governor does not choose its last step).
    """
    rungs = [Rung(mode, mode, 1.0, 1.0)]
    if mode == "details":
        events, threshold = knobs.get("events_per_s"), knobs.get("threshold_us")
        tightened: dict[str, Scalar] = {}
        if isinstance(events, (int, float)) and events > _LEAST_EVENTS_PER_S:
            tightened["events_per_s"] = fewer = max(_LEAST_EVENTS_PER_S, int(events) // _EVENTS_DOWN)
            rungs.append(Rung(mode, f"{fewer} events/s instead of {events:g}", 0.97, fewer / events, dict(tightened)))
        if isinstance(threshold, (int, float)):
            tightened["threshold_us"] = higher = threshold * _THRESHOLD_UP or _FIRST_THRESHOLD_US
            share = rungs[-1].events_share
            says = f"threshold {higher:g} µs instead of {threshold:g}"
            rungs.append(Rung(mode, says, 0.95, share / 2, dict(tightened)))
        flows = knobs.get("flows_one_in")
        if isinstance(flows, int) and flows < MAX_FLOWS_ONE_IN and not isinstance(threshold, (int, float)):
            tightened["flows_one_in"] = fewer_flows = min(MAX_FLOWS_ONE_IN, flows * _FLOWS_DOWN)
            share = rungs[-1].events_share
            rungs.append(Rung(mode, f"details of 1 flow in {fewer_flows}", 0.95, share / 2, dict(tightened)))
    if mode == "details":
        rungs.append(Rung("summary", "summary instead of details", 0.85, 0.0))
    counting = _COUNTING_BY_FEWER_SHARE if counts_by_fewer else _COUNTING_SHARE
    has_counters = mode in ("details", "summary") and "counters" in modes
    rows = knobs.get(ROWS_ONE_IN) if mode in ("details", "summary") and is_kept else None
    if isinstance(rows, int):
        rungs += _of_the_rows(rows, rungs[-1].kernel_share)
    elif mode in ("details", "summary"):
        rungs += _of_the_time(knobs.get(SEEN_PCT), rungs[-1].kernel_share, counting if has_counters else 0.0)
    if has_counters and not is_kept:
        rungs.append(Rung("counters", "counters alone", counting, 0.0))
    if mode != "off":
        rungs.append(Rung("off", "detached", 0.0, 0.0))
    return tuple(rungs)


def _of_the_rows(one_in: int, whole: float) -> Iterator[Rung]:
    """Steps in which rows are made of one count in so many, and scaled."""
    for fewer in _ROWS_ONE_IN:
        if fewer > one_in:
            kernel_share = whole * (_COUNTING_WITHOUT_ROWS + (1 - _COUNTING_WITHOUT_ROWS) * one_in / fewer)
            yield Rung("summary", f"rows of 1 packet in {fewer}", kernel_share, 0.0, {ROWS_ONE_IN: fewer})


def _of_the_time(seen_pct: Scalar, whole: float, rest: float) -> Iterator[Rung]:
    """Steps in which the probe is attached for a share of the time. ``rest``: what it costs while it is not."""
    if not isinstance(seen_pct, int):
        return
    for share in _SEEN_PCT:
        if share < seen_pct:
            seen = share / seen_pct
            kernel_share = whole * seen + rest * (1 - seen)
            yield Rung("summary", f"summary, {share} % of the time", kernel_share, 0.0, {SEEN_PCT: share})
