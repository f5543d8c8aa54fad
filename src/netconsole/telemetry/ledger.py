"""The ledger: what a probe did not measure, or only in part (docs/reference/frames.md)."""

from __future__ import annotations

LEDGER_COUNTS = {
    "missed": "runs that the kernel skipped because a program was already running: counts are a lower bound",
    "map_full": "rows without room: they are missing in the table, the counter is exact",
    "evicted": "idle rows that were removed from a full map: their totals are no longer listed",
    "join_missed": "ends without a start, or starts without an end: the histogram has fewer samples than packets",
    "parse_failed": "packets whose headers could not be read: counted as unparsed",
    "unaccounted": "counted, but in no row of the table: the counter is exact, the rows are a lower bound",
    "unlisted": "not put into rows, to keep the budget: the counter is exact, the rows are a lower bound",
    "set_back": "counters that somebody set back: what they had counted since the reading before is missing",
    "found_late": "network namespaces that were found after their begin: what they had counted is missing",
    "unseen_ms": "ms in which it was not attached, to keep the budget: totals are a lower bound, rates of the rest",
}
"""Entries that make exact counts a lower bound, and what each says where a manifest does not (``[losses]``)."""
LEDGER_SAMPLES = {
    "suppressed": "events over the budget: samples are a share, counts are exact",
    "breaker": "suppressed by the circuit breaker in the kernel",
    "lost": "events that the buffer refused: samples are a share, counts are exact",
    "stack_failed": "events whose stack could not be read",
    "shed": "events that arrived and were not kept here",
    "unmeasured": "counted but not timed, to save cost: times are estimated from the others, counts are exact",
    "unsampled": "suppressed because their flow has no details (knob flows_one_in)",
}
"""Entries that show that events, or waits in a histogram, are only a sample. The counts stay exact."""
UNSEEN = "unseen_ms"
"""The entry that is a time. It makes totals a lower bound; rates are of the time that was seen."""
LEDGER_ESTIMATED = {
    "estimated": "in rows, but not looked at: others stand for them; rows are within a share (≈), the counter is exact",
}
"""Entries that show that rows are scaled. Chance makes them a little too high or too low."""
LEDGER = {**LEDGER_COUNTS, **LEDGER_ESTIMATED, **LEDGER_SAMPLES}
ROWS_LOST = ("map_full", "evicted", "omitted")
"""Entries that take rows from a table: a row that is not in it is not a 0."""
LEDGER_FAULTS = ("missed", "map_full", "unaccounted")
"""Entries that are faults of the measurement; others are everyday, and are said beside the figures (≥)."""
