"""An action of the governor is told in one sentence, with its figures and their unit."""

from __future__ import annotations

import pytest

from netconsole.telemetry.action import BudgetAction, describe


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (
            BudgetAction(1.0, "p", "counters alone", "kernel time of all probes, % of one core", 5.034, 2.0),
            "counters alone: kernel time of all probes is 5.03 % of one core; the limit is 2 %",
        ),
        (
            BudgetAction(1.0, "p", "counters alone", "rate of all events, per second", 19.0, 0.0),
            "counters alone: rate of all events is 19 per second; the limit is 0 per second",
        ),
        (
            BudgetAction(1.0, "p", "counters alone", "rate of all events, per second", 7254.0, 2_000_000.0),
            "counters alone: rate of all events is 7.25k per second; the limit is 2.00M per second",
        ),
        (
            BudgetAction(1.0, "p", "details of device=tap0", "tap0: 200/s, more than 100; for 3 s", 200.0, 100.0),
            "details of device=tap0: tap0: 200/s, more than 100; for 3 s",
        ),
        (BudgetAction(1.0, "p", "pinned", "the user asked for it"), "pinned: the user asked for it"),
    ],
)
def test_it_says_what_was_done_why_and_how_much(action: BudgetAction, said: str) -> None:
    assert describe(action) == said
