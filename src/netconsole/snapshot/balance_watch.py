"""The balance of a live session: what was lost since the probe of drops began to list what it sees, up to now.

It begins anew when the filters of the probe change, and when it comes back from mode counters.
"""

from __future__ import annotations

from dataclasses import replace

from netconsole.snapshot.balance import SEEN_BY, STAGES, balance, filters_of
from netconsole.snapshot.document import BalanceData
from netconsole.telemetry.frames import Scalar
from netconsole.telemetry.span import ProbeTotals, Span, probe_totals
from netconsole.telemetry.state import ProbeState, State

COUNTED = {SEEN_BY, *(one.probe for one in STAGES)}
"""Probes whose figures the balance holds against each other."""
BEGINS_AFTER = 5
"""Intervals in which the kernel's counters still begin anew: some are read less often, and lag behind the probe. What
the probe saw begins at once. So a loss that goes on when the console starts leaves no gap that was never there."""


class BalanceWatch:
    """Knows what was counted when the probe of drops began: sources of the console begin some seconds before it."""

    def __init__(self) -> None:
        self._start: dict[str, ProbeTotals] = {}
        self._is_seen = False
        self._filters: dict[str, Scalar] = {}
        self._at_ns = 0
        self._began = 0

    def update(self, state: State) -> None:
        """Another interval has ended. A replay that jumps back begins again there."""
        at_ns = state.collector.closed_mono_ns or 0
        if at_ns < self._at_ns:
            self._start, self._is_seen = {}, False
        self._at_ns = at_ns
        drops = state.probes.get(SEEN_BY)
        if _counts_alone(drops):  # what it saw meanwhile is in no row
            self._is_seen = False
        is_seen = drops is not None and drops.measuring and bool(drops.counters) and not _counts_alone(drops)
        if is_seen and (filters := filters_of(state)) != self._filters:  # what one has hidden, another cannot tell
            self._filters, self._is_seen = filters, False
        if is_seen and not self._is_seen:
            self._start, self._began = _marks(state), state.collector.intervals
        elif is_seen and 0 <= state.collector.intervals - self._began < BEGINS_AFTER:
            now, begun = _marks(state), self._start[SEEN_BY]
            self._start = {**now, SEEN_BY: replace(now[SEEN_BY], rows=begun.rows)}
        self._is_seen = self._is_seen or is_seen

    def of(self, state: State) -> list[BalanceData]:
        """Stages where the kernel counted a loss, the largest unexplained one first."""
        return balance(Span(state, self._start))


def _counts_alone(drops: ProbeState | None) -> bool:
    return drops is not None and drops.mode == "counters"


def _marks(state: State) -> dict[str, ProbeTotals]:
    return {name: probe_totals(state.probes[name]) for name in COUNTED if name in state.probes}
