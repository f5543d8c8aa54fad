"""How busy the machine was before is what others did, and is not known after too short a moment."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from netconsole.host import machine
from netconsole_collector.primitives.here import Here


def stat(busy: int, idle: int) -> str:
    """Ticks of 10 ms: user, nice, system, idle, iowait, irq, softirq, steal, guest (in user already), guest_nice."""
    return f"cpu  {busy} 0 0 {idle} 0 0 0 0 {busy} 0\ncpu0 …\n"


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "proc/stat"
    path.parent.mkdir()
    monkeypatch.setattr(machine, "_before", None)
    return path


def test_it_is_the_share_of_the_time_before_measuring(fresh: Path) -> None:
    fresh.write_text(stat(1000, 9000))
    machine.begin(Here(fresh.parents[1]))
    fresh.write_text(stat(1400, 9600))
    assert machine.before_pct() == pytest.approx(40, abs=1)  # less what this process took meanwhile
    fresh.write_text(stat(9000, 9600))
    assert machine.before_pct() == pytest.approx(40, abs=1), "the first call ended the moment"


def test_a_moment_that_is_too_short_says_nothing(fresh: Path) -> None:
    assert machine.before_pct() is None
    fresh.write_text(stat(1000, 9000))
    machine.begin(Here(fresh.parents[1]))
    fresh.write_text(stat(1010, 9010))
    assert machine.before_pct() is None


def test_what_this_process_took_is_not_what_others_did(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10 s of all CPUs 4 were busy, 1.5 of them with this process. No less than nothing is left."""
    now_s = iter([7.0, 8.5, 7.0, 12.0])
    monkeypatch.setattr(time, "process_time", lambda: next(now_s))
    for left in (25.0, 0.0):
        fresh.write_text(stat(1000, 9000))
        machine.begin(Here(fresh.parents[1]))
        fresh.write_text(stat(1400, 9600))
        assert machine.before_pct() == left
