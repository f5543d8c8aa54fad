"""The balance of a live session: what was lost since the probe of drops began to list what it sees, up to now.

It begins anew when the filters of the probe change, and when it comes back from mode counters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from netconsole.snapshot.balance import SEEN_BY, STAGES, balance_of, filters_of
from netconsole.snapshot.document import BalanceData
from netconsole.telemetry.frames import Scalar
from netconsole.telemetry.state import ProbeState, State
from netconsole.telemetry.tables import RowKey

_COUNTED = {
    (SEEN_BY, "drops", "count"),
    *((one.probe, one.table, value) for one in STAGES for value in (one.value, one.entered, one.left) if value),
}
"""Probe, table and value of all that the balance reads."""
BEGINS_AFTER = 5
"""Intervals in which the kernel's counters still begin anew: some are read less often, and lag behind the probe. What
the probe saw begins at once. So a loss that goes on when the console starts leaves no gap that was never there."""
LEDGER = "ledger"
"""Stands for a table: what the probe missed is kept as its rows are."""
_Totals: TypeAlias = dict[tuple[str, str, str, RowKey], int]


class BalanceWatch:
    """Knows what was counted when the probe of drops began: sources of the console begin some seconds before it."""

    def __init__(self) -> None:
        self._start: _Totals = {}
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
            self._start, self._began = _totals(state), state.collector.intervals
        elif is_seen and 0 <= state.collector.intervals - self._began < BEGINS_AFTER:
            seen = (SEEN_BY, "drops")
            self._start.update({key: total for key, total in _totals(state).items() if key[:2] != seen})
        self._is_seen = self._is_seen or is_seen

    def of(self, state: State) -> list[BalanceData]:
        """Stages where the kernel counted a loss, the largest unexplained one first."""
        drops = state.probes.get(SEEN_BY)
        if _counts_alone(drops):
            return []
        missed = drops.cost.ledger if drops is not None else {}
        ledger = {
            name: _since(self._start.get((SEEN_BY, LEDGER, name, ()), 0), count.total) for name, count in missed.items()
        }
        return balance_of(lambda probe, table: _rows(state, probe, table, self._start), filters_of(state), ledger)


def _counts_alone(drops: ProbeState | None) -> bool:
    return drops is not None and drops.mode == "counters"


def _totals(state: State) -> _Totals:
    found: _Totals = {}
    for probe, name, value in _COUNTED:
        for row in state.rows(probe, name):
            if (total := row.total(value)) is not None:
                found[probe, name, value, row.key] = total
    drops = state.probes.get(SEEN_BY)
    for entry, count in drops.cost.ledger.items() if drops is not None else ():
        found[SEEN_BY, LEDGER, entry, ()] = count.total
    return found


def _rows(state: State, probe: str, table: str, start: _Totals) -> Iterator[dict[str, Any]]:
    for row in state.rows(probe, table):
        key = row.key
        counts = {name: _since(start.get((probe, table, name, key), 0), one.total) for name, one in row.counts.items()}
        yield {**row.labels, **counts}


def _since(start: int, total: int) -> int:
    """What was counted since; of a probe that began again all that it has."""
    return total - start if total >= start else total
