"""The type of a governor's action, for people, snapshots and recordings."""

from __future__ import annotations

from dataclasses import dataclass

from netconsole.base import figure


@dataclass(frozen=True, slots=True)
class BudgetAction:
    """Something that was done or reported to keep the budget. ``at_s`` is on the clock of the frames."""

    at_s: float
    probe: str
    action: str
    because: str
    measured: float | None = None
    limit: float | None = None

    def as_dict(self, since_s: float = 0.0) -> dict[str, object]:
        """The action as in a snapshot. ``at_s`` counts from ``since_s``; it is negative before that."""
        measured = None if self.measured is None else round(self.measured, 3)
        return {
            "at_s": round(self.at_s - since_s, 3),
            "probe": self.probe,
            "action": self.action,
            "because": self.because,
            "measured": measured,
            "limit": self.limit,
        }


def describe(action: BudgetAction) -> str:
    """In a sentence: ``counters alone: kernel time of all probes is 5.03 % of one core; the limit is 2 %``.

    A reason that names a row has its figure already (``vnet7 FULL_RING: 200/s, more than 100``).
    """
    if action.measured is None or ": " in action.because:
        return f"{action.action}: {action.because}"
    what, comma, unit = action.because.rpartition(", ")
    size = figure.number(action.measured)
    measured = f"{what} is {size} {unit}" if comma else f"{unit} is {size}"
    short = unit if not comma or unit.startswith("per ") else unit.partition(" ")[0]
    limit = "" if action.limit is None else f"; the limit is {figure.number(action.limit)} {short}"
    return f"{action.action}: {measured}{limit}"
