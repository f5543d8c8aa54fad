"""The ledger of a probe: what its programs did with what they saw, and what they could not measure.

Each entry is explained in docs/reference/frames.md.
"""

from typing import Dict, Optional

from netconsole_collector.kernel.bpf_maps import Map

MAP = "nc_ledger"
SLOTS = (
    "seen",
    "submitted",
    "suppressed",
    "lost",
    "map_full",
    "join_missed",
    "parse_failed",
    "stack_failed",
    "breaker",
    "unlisted",
    "unmeasured",
    "unsampled",
    "estimated",
    "scatter",
)
"""enum nc_ledger_slot of probes/common/accounting.h."""
EVENTS = SLOTS[:4]
"""What became of events."""
LOSSES = SLOTS[2:-1]
"""What was not measured, or only in part."""


def read(slots: Optional[Map]) -> Dict[str, int]:
    """The totals of all slots; zeros for a probe that has no ledger."""
    if slots is None:
        return dict.fromkeys(SLOTS, 0)
    totals = {name: slots.sum_of(slot) for slot, name in enumerate(SLOTS)}
    # The kernel counts what the breaker and the choice of flows keep out only once: there it has to be cheap.
    for name in ("breaker", "unsampled"):
        totals["seen"] += totals[name]
        totals["suppressed"] += totals[name]
    return totals
