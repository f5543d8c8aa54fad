"""Runs that the kernel skips, because a program passes its own hook while it runs, are in the ledger."""

from __future__ import annotations

import os
from typing import Any

import pytest

from netconsole.telemetry import frames
from tests.support.live.collector_driver import Driver, call, of, source

pytestmark = pytest.mark.starting

POINTS = {"entered": "raw_tracepoint:sys_enter", "written": "raw_tracepoint:bpf_trace_printk"}
SPEC: dict[str, Any] = {
    "probe": {"name": "recursing", "modes": ["summary"]},
    "knobs": {"pid": 0},
    "programs": [
        {"name": name, "measures": "calls", "attach": [{"point": point, "function": f"{name}_{os.getpid()}"}]}
        for name, point in POINTS.items()
    ],
    "counters": {"written": {"slot": 0, "unit": "lines"}},
}


@pytest.mark.proves("collector", "ledger.missed")
def test_a_run_within_a_run_is_missed(driver: Driver) -> None:
    knobs = {"pid": os.getpid()}
    answer = driver.ask(
        command="load", probe="recursing", spec=SPEC, source=source("recursing"), mode="summary", knobs=knobs
    )
    assert answer.ok, answer.error
    call(1, 40)
    start = len(driver.seen)
    assert driver.ask(command="unload", probe="recursing").ok
    last = driver.seen[start:]
    assert of(frames.Counters, last, "recursing")[-1].values["written"].total == 40
    cost = of(frames.Cost, last, "recursing")[-1]
    assert cost.ledger["missed"].total == 40
    assert {program.name: program.missed for program in cost.programs} == {"entered": 0, "written": 40}
