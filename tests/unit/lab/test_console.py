"""Of a dead machine's console the lab shows the cause, however much came after it."""

from __future__ import annotations

import pytest

from tests.lab.machine.machine import (
    CONSOLE_LINES_SHOWN,
    LINES_BEFORE_TROUBLE,
    TROUBLE_LINES_SHOWN,
    what_matters,
)

QUIET = [f"line {number}" for number in range(1000)]


def test_without_trouble_the_last_lines_are_shown() -> None:
    assert what_matters(QUIET) == QUIET[-CONSOLE_LINES_SHOWN:]
    assert what_matters(QUIET[:5]) == QUIET[:5]
    assert what_matters([]) == []


@pytest.mark.parametrize(
    "cause",
    [
        "[  108.308958] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [python:317]",
        "[   77.000001] rcu: INFO: rcu_preempt self-detected stall on CPU",
        "[   21.375425] int3: 0000 [#1] PREEMPT SMP NOPTI",
        "[   12.104411] Kernel panic - not syncing: softlockup: hung tasks",
    ],
)
def test_the_first_trouble_is_shown_with_what_came_before_it_and_the_end(cause: str) -> None:
    console = [*QUIET[:500], cause, *QUIET[500:]]
    shown = what_matters(console)
    assert shown[:LINES_BEFORE_TROUBLE] == QUIET[500 - LINES_BEFORE_TROUBLE : 500]
    assert shown[LINES_BEFORE_TROUBLE] == cause
    assert shown[-CONSOLE_LINES_SHOWN:] == QUIET[-CONSOLE_LINES_SHOWN:]
    assert len(shown) == TROUBLE_LINES_SHOWN + 1 + CONSOLE_LINES_SHOWN and "…" in shown


def test_nothing_is_left_out_or_shown_twice_where_all_fits() -> None:
    for after in (0, 5, CONSOLE_LINES_SHOWN, TROUBLE_LINES_SHOWN):
        trace = ["Oops: 0000 [#1]", *QUIET[:after]]
        assert list(what_matters([*QUIET, *trace]))[-len(trace) :] == trace
        assert "…" not in what_matters([*QUIET, *trace])
