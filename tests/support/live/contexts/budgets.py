"""What a probe does when the budget of its events, and then that of their time, is used up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from tests.support.live.contexts.unattached import UnattachedProbe

FEW, MANY = 60, 500
"""Packets within the budget of time, and packets after it."""
_PER_S = 100
_BURST = 64
"""Runs that the breaker grants at once on a CPU (docs/design/governor.md)."""


def spend_events(probe: UnattachedProbe, calls: Sequence[Callable[[], object]]) -> dict[str, int]:
    """Runs the programs of a packet FEW times. Its events keep their budget. Returns the ledger."""
    # A quarter of a second's worth may be submitted at once: 25.
    probe.set("details", events_per_s=_PER_S)
    began = time.monotonic_ns()
    for call in [*calls] * FEW:
        call()
    earned = (time.monotonic_ns() - began) * _PER_S / 1e9
    probe.read()
    made = probe.ledger()
    assert made["seen"] == FEW == made["submitted"] + made.get("suppressed", 0)
    assert 25 <= made["submitted"] <= 25 + earned + 1
    assert "unlisted" not in made and "breaker" not in made
    return made


def spend_time(
    probe: UnattachedProbe, calls: Sequence[Callable[[], object]], before: Mapping[str, int]
) -> dict[str, int]:
    """Runs them MANY times more, with time for few. ``before``: the ledger until then. Returns the ledger."""
    now = without_time(probe, calls)
    assert now["unlisted"] <= MANY and now["breaker"] == now["suppressed"] - before.get("suppressed", 0)
    return now


def without_time(
    probe: UnattachedProbe, calls: Sequence[Callable[[], object]], without_rows: str = "unlisted"
) -> dict[str, int]:
    """Runs the programs of a packet MANY times, when details may take no time. Returns the ledger.

    What is left of a grant from before goes on, and one more until a run of it was timed. ``without_rows``: the entry
    of those that are looked at no more.
    """
    probe.set("details", events_per_s=1e9)
    probe.running.bound(1e-9)  # one nanosecond: what was granted is all
    for call in [*calls] * MANY:
        call()
    probe.read()
    now = probe.ledger()
    least = MANY - 2 * _BURST
    assert now["breaker"] >= least
    assert now[without_rows] >= (least * 15 // 16 if without_rows == "estimated" else least)
    return now
