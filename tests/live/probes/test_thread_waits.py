"""thread_waits: a thread that gets less of its CPU than it wants, by the scheduler's own account, and who takes it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from netconsole.findings.incident import Incident
from netconsole.findings.incidents import Incidents
from netconsole.probes.catalogue import load_all
from netconsole.profile.loader import load
from netconsole.profile.plan import plan
from netconsole.run.assembly import session_of
from netconsole.run.preflight import RunPlan
from netconsole_collector.sources.vm.thread_waits import LOOK_EVERY
from tests.support.live.made_machine import MadeMachine
from tests.support.live.rivals import rival

pytestmark = pytest.mark.costs  # its programs take a CPU, and say how much of it they get

PROBE = "thread_waits"
LIMIT_S = 30.0


class Watched:
    """A session of the probe, its rows and its incidents."""

    def __init__(self, stack: ExitStack) -> None:
        manifests = load_all()
        profile = load("summary", manifests)
        requests = [one for one in plan(profile, manifests, (PROBE,)) if one.name == PROBE]
        self._session = stack.enter_context(closing(session_of(RunPlan(profile, manifests, requests))))
        self._incidents, self._heard = Incidents(manifests), threading.Condition()
        self._session.on_news(self._note)
        self._session.start()

    def _note(self, _news: object) -> None:
        with self._session.view() as state:
            self._incidents.update(state, self._session.connection())
            self._incidents.look_into(self._session)
        with self._heard:
            self._heard.notify_all()

    def incident(self, vm: str) -> Incident | None:
        """That of a machine, once its cause has been asked for."""
        with self._session.view():
            return next((one for one in self._incidents.log if one.where.get("vm") == vm and one.answer), None)

    def row(self, tid: int) -> dict[str, float]:
        """What a thread ran and waited since it was first read, in ns, how often it ran, and its gauges."""
        with self._session.view() as state:
            table = state.probes[PROBE].tables.get("threads") if PROBE in state.probes else None
            for row in table.rows.values() if table is not None else ():
                if row.labels["tid"] == tid:
                    counts = {name: float(count.total) for name, count in row.counts.items()}
                    return counts | {name: float(value or 0) for name, value in row.gauges.items()}
        return {}

    def allowed(self, tid: int) -> str | None:
        """Where the newest row of a thread says that it may run."""
        with self._session.view() as state:
            rows = [row for row in state.probes[PROBE].tables["threads"].rows.values() if row.labels["tid"] == tid]
            return str(max(rows, key=lambda row: row.first_seen_ns).labels["allowed"])

    def until_incident(self, vm: str) -> Incident:
        """Wait for it."""
        with self._heard:
            assert self._heard.wait_for(lambda: self.incident(vm) is not None, LIMIT_S), f"nothing of {vm}"
        found = self.incident(vm)
        assert found is not None
        return found

    def until_row(self, tid: int) -> None:
        """Wait for the first reading."""
        with self._heard:
            assert self._heard.wait_for(lambda: bool(self.row(tid)), LIMIT_S)

    def intervals(self) -> int:
        with self._session.view() as state:
            return state.collector.intervals

    def for_intervals(self, count: int) -> None:
        """Wait for so many more."""
        end = self.intervals() + count
        with self._heard:
            assert self._heard.wait_for(lambda: self.intervals() >= end, LIMIT_S)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as one:
        yield one


@pytest.mark.proves("thread_waits", "modes.summary", "tables.threads.{vm,role,tid,ran_ns,waited_ns,waited_pct,cpu}")
@pytest.mark.proves("thread_waits", "tables.threads.runs", "findings.threads.waited_ns.!!")
@pytest.mark.parametrize(
    ("thread", "role"),
    [("CPU 0/KVM", "vCPU 0"), ("IO disk0", "I/O thread disk0"), ("vhost-4711", "vhost worker")],
)
def test_a_thread_whose_cpu_another_takes_is_named_with_who_takes_it(stack: ExitStack, thread: str, role: str) -> None:
    """From Linux 6.4 on a vhost worker is a thread of QEMU."""
    cpu = max(os.sched_getaffinity(0))
    watched = Watched(stack)
    machine = MadeMachine(stack, "web-07", cpu, 1.0, thread)
    watched.until_row(machine.tid)
    before, row_before = machine.books(), watched.row(machine.tid)
    pid = stack.enter_context(rival(cpu))
    found = watched.until_incident("web-07")
    watched.for_intervals(5)
    after, row = machine.books(), watched.row(machine.tid)
    assert found.level == "!!" and found.sentence.startswith("web-07: python3 ("), found.sentence
    assert f"({pid}) takes" in found.sentence and f"of CPU {cpu}: its {role} waits for a CPU" in found.sentence
    for name, said in zip(("ran_ns", "waited_ns"), (0, 1), strict=True):
        counted = row[name] - row_before[name]
        assert counted == pytest.approx(after[said] - before[said], rel=0.1, abs=1.2e9), name  # an interval later
    assert row["cpu"] == cpu and row["runs"] > 0 and 20 < row["waited_pct"] <= 100


@pytest.mark.proves("thread_waits", "findings.threads.waited_ns.!")
def test_one_that_wants_little_and_waits_for_some_of_it_is_said_later(stack: ExitStack) -> None:
    cpu = max(os.sched_getaffinity(0))
    stack.enter_context(rival(cpu))
    MadeMachine(stack, "db-02", cpu, 0.2)
    found = Watched(stack).until_incident("db-02")
    assert found.level == "!", found.sentence


@pytest.mark.proves("thread_waits", "tables.threads.{migrations,allowed}")
def test_how_often_it_was_moved_is_what_the_scheduler_says(stack: ExitStack) -> None:
    first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    if first == last:
        pytest.skip("cannot run here: one CPU alone")
    machine, watched = MadeMachine(stack, "moved", first, 0.5), Watched(stack)
    watched.until_row(machine.tid)
    before, row_before = machine.migrations(), watched.row(machine.tid)
    if before is None:
        assert "migrations" not in row_before
        pytest.skip("cannot run here: this kernel does not count moves (CONFIG_SCHED_DEBUG)")
    for _ in range(4):
        for cpu in (last, first):
            os.sched_setaffinity(machine.tid, {cpu})
            machine.until_on(cpu)
    watched.for_intervals(LOOK_EVERY + 1)
    assert machine.migrations() == before + 8
    assert watched.row(machine.tid)["migrations"] - row_before["migrations"] == 8
    assert watched.allowed(machine.tid) == str(first)


def test_a_machine_that_gets_its_cpu_is_no_incident(stack: ExitStack) -> None:
    cpu = min(os.sched_getaffinity(0))
    machine, watched = MadeMachine(stack, "calm", cpu, 0.1), Watched(stack)
    began = time.monotonic()
    watched.until_row(machine.tid)
    watched.for_intervals(12)
    waited_pct = machine.books()[1] / 1e7 / (time.monotonic() - began)
    assert watched.incident("calm") is None or waited_pct > 5
