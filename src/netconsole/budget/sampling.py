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
"""How long the statistics stay on often after a jump, or after the governor changed something."""
JUMP = 1.5
"""A cost above this many times the last measured cost is a jump."""
WORTH = 0.3
"""A jump to less than this share of the limit is ignored."""
NEAR = 0.8
"""Above this share of the limit, one window in 5 s is not enough, because a burst can distort it."""
UNKNOWN_NS = 1000.0
"""The assumed cost of a count before it is measured: more than with any probe (docs/design/overhead.md)."""
FEW_PER_S = 1000.0
"""With fewer counts, the measured time is mostly that of runs that count nothing, and of cold caches."""

_TIMES = ("ns", "us", "ms", "s")


@dataclass(frozen=True, slots=True)
class CostSample:
    """One probe in one interval: what it counted, and its cost by the last statistics window. None is unknown."""

    counted_per_s: float | None
    measured_pct: float | None
    """In-kernel time in the last window, percent of one core."""
    has_window: bool
    """Whether that window was in this interval."""


class SamplingPace:
    """Remembers the time per count of each probe, and until when to sample often."""

    def __init__(self) -> None:
        self._ns: dict[str, float] = {}
        self._known_pct: dict[str, float] = {}
        """The last measured cost, as of the interval before."""
        self._counted_per_s: dict[str, float] = {}
        """In the interval before."""
        self._until_s: float | None = None

    def changed(self, at_s: float) -> None:
        """The cost may have changed, because of the traffic or because of an action: sample often from now on."""
        self._until_s = at_s + OFTEN_S

    def is_often(self, at_s: float, samples: Mapping[str, CostSample], limit_pct: float) -> bool:
        """Whether to sample often after this interval. ``limit_pct``: the limit of the in-kernel time of all probes."""
        before = expected = 0.0
        for name, one in samples.items():
            counted, measured_pct = one.counted_per_s or 0.0, one.measured_pct or 0.0
            # If a storm began in this interval, the window may have covered little of it, or nothing.
            is_measured = one.has_window and counted <= JUMP * self._counted_per_s.get(name, counted)
            if is_measured and counted >= FEW_PER_S:
                self._ns[name] = measured_pct * 1e7 / counted
            estimate = 0.0 if is_measured else counted * self._ns.get(name, UNKNOWN_NS) / 1e7
            before += self._known_pct.get(name, 0.0)
            expected += max(measured_pct, estimate)
            self._known_pct[name], self._counted_per_s[name] = measured_pct, counted
        is_jump = expected > JUMP * before and expected > WORTH * limit_pct
        if is_jump or expected > NEAR * limit_pct:
            self.changed(at_s)
        return self._until_s is not None and at_s < self._until_s


def counted_per_s(probe: ProbeState, manifest: Manifest) -> float | None:
    """All that a probe counted in the last interval, per second: by its counters, else by its tables."""
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
