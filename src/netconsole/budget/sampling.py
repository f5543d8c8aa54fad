"""Decides when the kernel's run-time statistics must be on often: as soon as costs may have jumped.

The statistics cost time themselves, so they are on in short windows only. What probes count is exact and known in every
interval. Multiplied by the last known cost of a count, it shows a jump before the next window does. Such an estimate
only asks for more windows: what they measure decides. Pure: figures and times come in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from netconsole.probes.manifest import Manifest
from netconsole.telemetry.state import ProbeState

OFTEN_S = 10.0
"""So long the statistics are on often after a jump, or after something was changed because of them."""
JUMP = 1.5
"""So many times what was last measured is a jump."""
WORTH = 0.3
"""A jump to less than this share of the limit is nobody's concern."""
NEAR = 0.8
"""From this share of the limit on one window in five seconds is not enough: bursts mislead it."""
UNKNOWN_NS = 1000.0
"""What a count is taken to cost before it was measured: more than it takes with any probe (docs/design/overhead.md)."""
FEW_PER_S = 1000.0
"""With fewer counts, what was measured is mostly runs that count nothing, and the kernel's code on cold caches."""

_TIMES = ("ns", "us", "ms", "s")


@dataclass(frozen=True, slots=True)
class CostSample:
    """One probe in one interval: what it counted, and its cost if a statistics window told it. None is unknown."""

    counted_per_s: float | None
    measured_pct: float | None
    """In-kernel time in the last window, percent of one core."""
    is_new: bool
    """Whether that window was in this interval."""


class SamplingPace:
    """Remembers what a count of each probe takes, and until when to sample often."""

    def __init__(self) -> None:
        self._ns: dict[str, float] = {}
        self._known_pct: dict[str, float] = {}
        """What was measured until the interval before."""
        self._counted_per_s: dict[str, float] = {}
        """In the interval before."""
        self._until_s: float | None = None

    def changed(self, at_s: float) -> None:
        """What it costs may be another from now on, because of the traffic or because of what was given up."""
        self._until_s = at_s + OFTEN_S

    def is_often(self, at_s: float, samples: Mapping[str, CostSample], limit_pct: float) -> bool:
        """Whether to sample often after this interval. ``limit_pct``: in-kernel time of all probes that is allowed."""
        before = expected = 0.0
        for name, one in samples.items():
            counted, measured_pct = one.counted_per_s or 0.0, one.measured_pct or 0.0
            # Of an interval in which a storm began the window may have seen the beginning alone, or nothing.
            is_told = one.is_new and counted <= JUMP * self._counted_per_s.get(name, counted)
            if is_told and counted >= FEW_PER_S:
                self._ns[name] = measured_pct * 1e7 / counted
            estimate = 0.0 if is_told else counted * self._ns.get(name, UNKNOWN_NS) / 1e7
            before += self._known_pct.get(name, 0.0)
            expected += max(measured_pct, estimate)
            self._known_pct[name], self._counted_per_s[name] = measured_pct, counted
        is_jump = expected > JUMP * before and expected > WORTH * limit_pct
        if is_jump or expected > NEAR * limit_pct:
            self.changed(at_s)
        return self._until_s is not None and at_s < self._until_s


def counted_per_s(probe: ProbeState, manifest: Manifest) -> float | None:
    """Everything that a probe counted in the last interval, per second: its counters, else what its tables count."""
    if manifest.counters:
        known = [counter.count.per_s for name, counter in probe.counters.items() if name in manifest.counters]
        rates = [rate for rate in known if rate is not None]
        return sum(rates) if rates else None
    rates = []
    for name, table in probe.tables.items():
        columns = manifest.tables[name].value if name in manifest.tables else ()
        counts = [one.name for one in columns if one.kind == "sum" and one.unit not in _TIMES]
        rates += [row.per_s(value) or 0.0 for row in table.moving() for value in counts]
    return sum(rates) if probe.tables else None
