"""Decides when the kernel's run-time statistics have to be on often: as soon as costs may have jumped.

On all the time they would cost what they are to keep low. What probes count is exact, and known in every interval:
times what a count was last found to take, it tells a jump before the next window does. Nothing is given up for such an
estimate. It only asks for windows, and what they measure decides. Pure: figures and times come in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from netconsole.probes import Manifest
from netconsole.state import ProbeState

CLOSELY_S = 10.0
"""So long the statistics are on often after a jump, or after something was changed because of them."""
JUMP = 1.5
"""So many times what was last measured is a jump."""
WORTH = 0.3
"""A jump to less than this share of the limit is nobody's concern."""
UNKNOWN_NS = 1000.0
"""What a count is taken to cost before it was measured: more than it takes with any probe (docs/overhead.md)."""
FEW_PER_S = 1000.0
"""With fewer counts, what was measured is mostly runs that count nothing, and the kernel's code on cold caches."""

_TIMES = ("ns", "us", "ms", "s")


@dataclass(frozen=True, slots=True)
class Glance:
    """One probe in one interval: what it counted, and its cost if a statistics window told it. None is unknown."""

    counted_per_s: float | None
    measured_pct: float | None
    """In-kernel time in the last window, percent of one core."""
    is_new: bool
    """Whether that window was in this interval."""


class Attention:
    """Remembers what a count of each probe takes, and until when to look closely."""

    def __init__(self) -> None:
        self._ns: dict[str, float] = {}
        self._until_s: float | None = None

    def changed(self, at_s: float) -> None:
        """Something was given up or taken back: what that came to is to be known soon."""
        self._until_s = at_s + CLOSELY_S

    def is_close(self, at_s: float, glances: Mapping[str, Glance], limit_pct: float) -> bool:
        """Whether to look closely after this interval. ``limit_pct``: in-kernel time of all probes that is allowed."""
        measured = expected = 0.0
        for name, one in glances.items():
            if one.is_new and one.measured_pct is not None and (one.counted_per_s or 0.0) >= FEW_PER_S:
                self._ns[name] = one.measured_pct * 1e7 / (one.counted_per_s or 1.0)
            known_pct = one.measured_pct or 0.0
            measured += known_pct
            estimate = (one.counted_per_s or 0.0) * self._ns.get(name, UNKNOWN_NS) / 1e7
            expected += known_pct if one.is_new else max(known_pct, estimate)
        if expected > WORTH * limit_pct and expected > JUMP * measured:
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
