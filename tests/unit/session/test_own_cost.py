"""What the console takes itself, told in each interval; and how busy the machine was before, which only it knows."""

from __future__ import annotations

import threading
import time

import pytest

from netconsole.host import machine
from netconsole.profile.scope import RunScope
from netconsole.session.own_cost import OwnCost, OwnInterval, with_before
from netconsole.telemetry.frames import Row, Table, Usage
from netconsole_collector.kernel import usage

LIMIT_S = 300.0


@pytest.mark.proves("self_cost", "tables.machine.before_cpu_pct")
def test_how_busy_it_was_before_comes_into_the_row_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "before_pct", lambda: 25.0)
    row = Row({}, {}, {"machine_cpu_pct": 45.0, "before_cpu_pct": None})
    table = Table(seq=1, mono_ns=0, wall_ns=0, probe="self_cost", name="machine", interval_ns=1, full=True, rows=[row])
    (told,) = with_before(table).rows
    assert told.gauges == {"machine_cpu_pct": 45.0, "before_cpu_pct": 25.0}


def test_each_interval_has_its_cost_and_the_scope_learns_its_names() -> None:
    """Also after a host did not answer."""
    told: list[tuple[Usage, int]] = []
    enough = threading.Event()
    asked: list[int] = []
    scope = RunScope({"netns": 4026532469}, {}, {"netns": "uxb"})

    def names(inode: int) -> tuple[set[str], bool]:
        asked.append(inode)
        if len(asked) == 1:
            raise OSError("the line is cut")
        return {"uxb", str(inode)}, True

    def tell(usage: Usage, interval_ns: int) -> None:
        told.append((usage, interval_ns))
        if len(asked) > 1:
            enough.set()

    own = OwnInterval(0.001, tell, scope, names)
    own.start()
    assert enough.wait(LIMIT_S)
    own.close()
    own.close()
    assert set(asked) == {4026532469} and len(told) > len(asked)
    assert all(usage.cpu_ns is not None and interval_ns > 0 for usage, interval_ns in told)
    assert scope.has("p", {"netns": "uxb"}) and not scope.has("p", {"netns": "other"})


def test_what_the_console_takes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU time since the last reading; memory in kB, the expensive one at each fifth reading; None is not known."""
    cpu_ns, rss_kb, pss_kb = iter(range(1_000, 8_000, 500)), iter(range(2, 15, 2)), iter((1, None))
    monkeypatch.setattr(time, "process_time_ns", lambda: next(cpu_ns))
    monkeypatch.setattr(usage, "rss_kb", lambda: next(rss_kb))
    monkeypatch.setattr(usage, "pss_kb", lambda: next(pss_kb))
    own = OwnCost()
    seen = [own.usage() for _ in range(7)]
    assert [one.cpu_ns for one in seen] == [500] * 7
    assert [one.rss_kb for one in seen] == [2, 4, 6, 8, 10, 12, 14]
    assert [one.pss_kb for one in seen] == [1, 1, 1, 1, 1, None, None]
