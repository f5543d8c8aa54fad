"""A busy CPU under a virtual CPU, an I/O thread, a vhost worker and a PMD thread in turn: it is said soon, and rightly.

The first two are threads of a real QEMU, the last one is of a real ovs-vswitchd. This kernel has no vhost-net.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from netconsole.findings.incidents import Incidents
from netconsole.probes.catalogue import load_all
from netconsole.profile.loader import load
from netconsole.profile.plan import plan
from netconsole.run.assembly import session_of
from netconsole.run.preflight import RunPlan
from netconsole.telemetry.session import News
from tests.support.live.io_thread import NAME, busy_io_thread
from tests.support.live.made_machine import MadeMachine
from tests.support.live.pmd_switch import CPU, PmdSwitch
from tests.support.live.rivals import rival
from tests.support.live.tiny_guest import SPINS, TinyGuest

pytestmark = pytest.mark.costs  # its programs take a CPU, and say how much of it they get

LIMIT_S = 60.0
QUIET, BUSY = 6, 6
"""Intervals."""
SOON = 2
"""Intervals in which it is said."""
SOME_PCT, ANY_PCT = 5.0, 0.1
"""Of the time. Other work of this machine may keep a thread from its CPU: from then on that may be said."""


class Suspect(NamedTuple):
    """A thread that always wants to run on CPU, who tells of it, and how."""

    tid: int
    probe: str
    label: str
    value: int
    says: str
    noise_pct: float = SOME_PCT

    @property
    def waited_ns(self) -> int:
        """By the scheduler's books."""
        return int(Path(f"/proc/{self.tid}/schedstat").read_text().split()[1])


@contextmanager
def virtual_cpu(_directory: Path) -> Iterator[Suspect]:
    with closing(TinyGuest(SPINS)) as one:
        yield Suspect(one.vcpu, "thread_waits", "tid", one.vcpu, f"{one.name}: ")


@contextmanager
def io_thread(_directory: Path) -> Iterator[Suspect]:
    with busy_io_thread(CPU) as one:
        tid = one.thread(f"IO {NAME}")
        yield Suspect(tid, "thread_waits", "tid", tid, f"its I/O thread {NAME} waits for a CPU")


@contextmanager
def worker(_directory: Path) -> Iterator[Suspect]:
    with ExitStack() as stack:
        tid = MadeMachine(stack, "web-07", CPU, 1.0, "vhost-4711").tid
        yield Suspect(tid, "thread_waits", "tid", tid, "its vhost worker waits for a CPU")


@contextmanager
def pmd_thread(directory: Path) -> Iterator[Suspect]:
    with closing(PmdSwitch(directory)) as switch, pytest.MonkeyPatch.context() as patch:
        for name, value in switch.environment.items():
            patch.setenv(name, value)
        (task,) = [one.parent for one in Path(f"/proc/{switch.pid}/task").glob("*/comm") if "pmd" in one.read_text()]
        yield Suspect(int(task.name), "ovs_pmd", "core", CPU, f"PMD on core {CPU} ", ANY_PCT)


class Reading(NamedTuple):
    """At the end of an interval: whether it was said, and what it waited by its row and by the scheduler."""

    is_said: bool
    counted_ns: int
    waited_ns: int


class Follower:
    """A session of the probe that tells of a suspect."""

    def __init__(self, stack: ExitStack, suspect: Suspect) -> None:
        manifests = load_all()
        profile = load("summary", manifests)
        requests = plan(profile, manifests, (suspect.probe,))
        self.readings: list[Reading] = []
        self._suspect = suspect
        self._incidents, self._heard = Incidents(manifests), threading.Condition()
        self._session = stack.enter_context(closing(session_of(RunPlan(profile, manifests, requests))))
        self._session.on_news(self._note)
        self._session.start()

    def _note(self, news: News) -> None:
        if news != "interval":
            return
        one, books = self._suspect, self._suspect.waited_ns
        with self._session.view() as state:
            standing = self._incidents.update(state, self._session.connection())
            is_said = any(one.says in incident.sentence for incident in standing)
            rows = [row for row in state.rows(one.probe, "threads") if row.labels[one.label] == one.value]
            counted = [total for row in rows if (total := row.total("waited_ns")) is not None]
        if counted:
            with self._heard:
                self.readings.append(Reading(is_said, counted[0], books))
                self._heard.notify_all()

    def until(self, true: Callable[[], bool]) -> None:
        with self._heard:
            assert self._heard.wait_for(true, LIMIT_S), self.readings

    def for_intervals(self, count: int) -> list[Reading]:
        """The readings of so many more, and that before them."""
        first = len(self.readings)
        self.until(lambda: len(self.readings) >= first + count)
        return self.readings[first - 1 :]


def waited_pct(readings: list[Reading]) -> float:
    return (readings[-1].waited_ns - readings[0].waited_ns) / (len(readings) - 1) / 1e7


@pytest.mark.parametrize("begin", [virtual_cpu, io_thread, worker, pmd_thread])
def test_a_busy_cpu_under_a_thread_is_said_soon_and_as_the_scheduler_has_it(
    begin: Callable[[Path], AbstractContextManager[Suspect]], tmp_path: Path
) -> None:
    with ExitStack() as stack:
        suspect = stack.enter_context(begin(tmp_path))
        os.sched_setaffinity(suspect.tid, {CPU})
        follower = Follower(stack, suspect)
        follower.until(lambda: bool(follower.readings))
        quiet = follower.for_intervals(QUIET)
        is_noisy = waited_pct(quiet) > suspect.noise_pct
        assert is_noisy or not any(one.is_said for one in quiet[1:]), "a quiet host shows nothing"
        stack.enter_context(rival(CPU))
        busy = follower.for_intervals(BUSY)
    assert any(one.is_said for one in busy[1 : SOON + 1]), busy
    counted = busy[-1].counted_ns - busy[0].counted_ns
    assert counted == pytest.approx(busy[-1].waited_ns - busy[0].waited_ns, rel=0.1), busy
    assert counted > BUSY * 100_000_000
