"""A storm of drops: soon within its budget, every action said, counts exact throughout, and details back after it.

How dear a storm is depends on the machine and on what else it does. So the budget lies between what this storm costs
here and now if nobody does anything, and what it costs to count it, which is done in any case. What is held against it
are the figures that the collector delivered, not the clock.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

import pytest

from netconsole.budget.governor import REACTION_S, SETTLE_S
from netconsole.session import commands
from netconsole.telemetry.frames import Mode
from netconsole.telemetry.session import News
from netconsole.telemetry.state import ProbeState, State
from netconsole_collector.kernel import syscalls
from netconsole_collector.probe.config import DETAILS_RUNS_PER_S
from tests.support.live.governed import LIMIT_S, GovernedSession
from tests.support.live.network import Namespace
from tests.support.live.storm import Storm

costs = pytest.mark.costs
"""For those that hold figures of cost. The others count, whatever else goes on."""

PROBE = "kernel_drops"
EVENTS_PER_S = 100
FEWER_EVENTS_PER_S = 25
ROWS_PER_S = 30_000
STORM_PER_S = 200_000
REACTION_FIGURES = round(REACTION_S) + 1
"""Figures come every second, and the storm begins between two of them."""
FIGURES, FIGURE_S, FIGURE_WINDOWS = 5, 0.5, 5
"""The median of so many is what a storm costs: windows of a busy machine scatter by a quarter."""
RUNS = 400_000
SLICES = 10
"""Of a window, the dearest left out: a run whose CPU is taken away is counted with all of that time."""
FIRST_WINDOWS = 2
"""Of two seconds each, that may be over the budget."""
GRANT_RUNS, WINDOW_S = 64, 0.134
"""Of the circuit breaker: docs/design/governor.md."""
PROFILE = f"""
[probes.{PROBE}]
mode = "%s"
events_per_s = {EVENTS_PER_S}
netns = %d
"""
BUDGET = f"""
[budget]
kernel_cpu_pct = %.4f
events_per_s = {EVENTS_PER_S}
action = "degrade"
"""


OVER = 1.25
"""The breaker holds what it measures itself. Rows of one packet in 16, which it keeps, come on top."""


@dataclass
class Interval:
    """What one interval cost. ``at_s`` is when it ended, on the clock of the governor's actions."""

    at_s: float
    kernel_pct: float
    events: int
    drops: int
    length_s: float
    windows_ns: int
    """Statistics windows until then."""
    mode: Mode


class Watched(GovernedSession):
    """A session of one probe, with its costs interval by interval; under a budget if there is one."""

    def __init__(
        self,
        directory: Path,
        netns: int,
        budget: str = "",
        knobs: str = "",
        mode: Mode = "details",
        interval_s: float = 1.0,
    ) -> None:
        self.intervals: list[Interval] = []
        super().__init__(
            directory,
            PROBE,
            f"{budget}{PROFILE % (mode, netns)}{knobs}\n",
            interval_s=interval_s,
            is_often=mode == "details" or not budget,
            is_enforced=bool(budget),
        )

    def heard(self, news: News) -> None:
        """See :class:`GovernedSession`."""
        with self.session.view() as state:
            probe, interval_ns = state.probes[PROBE], state.collector.interval_ns
            if news == "interval" and interval_ns and "submitted" in probe.cost.events:
                kernel_pct = (probe.cost.kernel_cpu_pct or 0.0) if probe.measuring else 0.0
                events = probe.cost.events["submitted"].delta if probe.measuring else 0
                windows_ns = sum(program.window_ns for program in probe.cost.programs.values())
                drops = probe.counters["drops"].count.delta or 0
                at_s = (state.collector.closed_mono_ns or 0) / 1e9
                length_s = interval_ns / 1e9
                self.intervals.append(Interval(at_s, kernel_pct, events, drops, length_s, windows_ns, probe.mode))

    def wait(self, intervals: int) -> None:
        """Await so many intervals more; the second begins after now."""
        with self.session.view() as state:
            wanted = state.collector.intervals + intervals
        self.until(lambda state: state.collector.intervals >= wanted)

    def measured_pct(self) -> float:
        """What it costs from now on, percent of a core."""
        self.wait(FIGURES + 1)
        return median(one.kernel_pct for one in self.intervals[-FIGURES:])

    def settle(self) -> None:
        """Await figures of everything that happened until now."""
        self.wait(2)

    def probe(self) -> ProbeState:
        with self.session.view() as state:
            return state.probes[PROBE]

    def assert_accounted(self, drops: int) -> None:
        """So many drops, each in a row or said to be in none, each event submitted, suppressed or lost.

        Where the circuit breaker had rows made of one in 16, they are off by a block for each of its windows.
        """
        probe = self.probe()
        assert probe.counters["drops"].count.total == drops
        rows = sum(row.total("count") or 0 for row in probe.tables["drops"].rows.values())
        error = 0.01 * drops if probe.cost.ledger["estimated"].total else 0
        assert abs(rows + probe.cost.ledger["unlisted"].total - drops) <= error
        assert probe.cost.ledger["unaccounted"].total == 0
        events = {name: count.total for name, count in probe.cost.events.items()}
        assert events["seen"] == events["submitted"] + events["suppressed"] + events["lost"]


@pytest.fixture(scope="module")
def budgets_pct() -> dict[Mode, float]:
    """Those that were measured: the machine does hardly anything else meanwhile (Makefile), so that once does."""
    return {}


@pytest.fixture(params=["details"])
def governed(
    tmp_path: Path, namespace: Namespace, request: pytest.FixtureRequest, budgets_pct: dict[Mode, float]
) -> Iterator[Watched]:
    mode: Mode = request.param
    if mode not in budgets_pct or getattr(request.node, "execution_count", 1) > 1:
        budgets_pct.update(measured_budgets_pct(tmp_path, namespace))
    with Watched(tmp_path, namespace.inode, BUDGET % budgets_pct[mode], mode=mode) as watched:
        yield watched


def measured_budgets_pct(directory: Path, namespace: Namespace) -> dict[Mode, float]:
    """By mode: what the storm costs if nobody does anything about it, less a quarter of what is above counting it.

    The breaker keeps rows of one packet in 16, which cost more than to count all of them.
    """
    modes: tuple[Mode, ...] = ("details", "summary", "counters")
    with (
        pytest.MonkeyPatch.context() as patch,
        Watched(directory, namespace.inode, interval_s=FIGURE_S) as watched,
        Storm(namespace, STORM_PER_S),
    ):
        # Windows as the governor has them, but as many in half a second as it has in one.
        patch.setattr(commands, "OFTEN_EVERY_MS", round(FIGURE_S * 1000 / FIGURE_WINDOWS))
        watched.session.sample_often(True)
        watched.until(lambda _: bool(watched.intervals and watched.intervals[-1].drops))
        storm_pct: dict[Mode, float] = {}
        for mode in modes:
            change: Future[None] = watched.session.set(PROBE, mode)
            change.result(LIMIT_S)
            storm_pct[mode] = watched.measured_pct()
    print("the storm costs", *(f"{pct:.2f} % in {mode}" for mode, pct in storm_pct.items()))
    return {mode: (3 * pct + storm_pct["counters"]) / 4 for mode, pct in storm_pct.items()}


@costs
def test_a_storm_is_soon_within_the_budget_and_details_come_back_after_it(
    governed: Watched, namespace: Namespace
) -> None:
    limit_pct = governed.enforcer.profile.budget.kernel_cpu_pct
    assert limit_pct
    sent = 0
    for is_last in (False, True):  # off and on again: when it is given back the second time, tests/unit knows
        with governed.session.view() as state:
            assert is_as_asked_for(state)
        first, done = len(governed.intervals), len(governed.enforcer.actions)
        with Storm(namespace, STORM_PER_S) as storm:
            governed.until(lambda state, done=done: len(governed.enforcer.actions) > done)  # type: ignore[misc]
            governed.wait(REACTION_FIGURES + 2)
            sent += storm.stop()
        during = governed.intervals[first:]
        governed.settle()
        given_up = governed.enforcer.actions[done:]
        print(f"budget {limit_pct:.2f} %:", *(f"{one.kernel_pct:.2f}" for one in during), *given_up, sep="\n  ")
        assert not late_excesses(during, limit_pct)
        begun = next(place for place, one in enumerate(during) if one.drops)
        assert given_up[0].at_s <= during[begun + 2].at_s, "two seconds, and the rest of the one in which it began"
        assert given_up[0].probe == PROBE and (given_up[0].measured or 0) > (given_up[0].limit or 0)
        # Buckets save up a quarter of a second's worth, and are full again after each change.
        saved_up = EVENTS_PER_S / 4 * (1 + len(given_up))
        assert sum(one.events for one in during) <= EVENTS_PER_S * sum(one.length_s for one in during) + saved_up
        if is_last:
            break
        governed.until(lambda _: not governed.enforcer.lowered)
        governed.until(is_as_asked_for)
        steps = [one for one in governed.enforcer.actions[done:] if one.probe == PROBE]
        place = next(place for place, one in enumerate(steps) if one.action.startswith("back"))
        assert steps[-1].action == "back to details"
        assert steps[place].at_s - steps[place - 1].at_s >= SETTLE_S
    governed.settle()
    if any(one.action == "detached" for one in governed.enforcer.actions):
        print("figures of a busy machine had it detached: what was dropped meanwhile it cannot know")
    else:
        governed.assert_accounted(sent)


def is_as_asked_for(state: State) -> bool:
    probe = state.probes[PROBE]
    return probe.measuring and probe.mode == "details" and probe.knobs["events_per_s"] == EVENTS_PER_S


def late_excesses(intervals: Sequence[Interval], limit_pct: float) -> list[float]:
    """Of every two seconds in a row after the first two such windows, what is over the limit.

    While it only counts there is nothing more to give up: a second of a slow machine may cost more than counting did
    when the budget was chosen, but not most of them.
    """
    late = intervals[2 * FIRST_WINDOWS + 1 :]
    assert len(late) >= 2
    assert median(one.kernel_pct for one in late) <= limit_pct
    pairs = [pair for pair in pairwise(late) if any(one.mode != "counters" for one in pair)]
    return [mean for one, other in pairs if (mean := fmean((one.kernel_pct, other.kernel_pct))) > limit_pct]


@costs
@pytest.mark.parametrize("governed", ["summary"], indirect=True)
def test_a_storm_under_calm_statistics_is_measured_and_answered_as_soon(
    governed: Watched, namespace: Namespace
) -> None:
    """Of summaries the statistics are on every five seconds: what they count tells that it is time to look."""
    limit_pct = governed.enforcer.profile.budget.kernel_cpu_pct
    assert limit_pct
    governed.until(lambda state: state.probes[PROBE].cost.kernel_cpu_pct is not None)
    first = len(governed.intervals)
    with Storm(namespace, STORM_PER_S) as storm:
        governed.until(lambda _: bool(governed.intervals[-1].drops))
        governed.wait(REACTION_FIGURES + 3)
        sent = storm.stop()
    during = governed.intervals[first:]
    actions = [one for one in governed.enforcer.actions if one.probe == PROBE]
    during = during[next(place for place, one in enumerate(during) if one.drops) :]
    told = (f"{one.kernel_pct:.2f} at {one.drops} drops" for one in during)
    print(f"budget {limit_pct:.2f} %:", *told, *actions, sep="\n  ")
    answered = next(place for place, one in enumerate(during) if one.kernel_pct > limit_pct)
    assert answered <= 2 and actions[0].action in ("counters alone", "detached")
    assert not late_excesses(during, limit_pct)
    if any(one.action == "detached" for one in actions):
        print("figures of a busy machine had it detached: what was dropped meanwhile it cannot know")
        return
    measured = [after.windows_ns - before.windows_ns for before, after in pairwise(during[answered:])]
    assert all(measured), "each of these figures is of its own interval"
    governed.settle()
    governed.assert_accounted(sent)


def test_counts_stay_exact_through_every_step_down_and_back(tmp_path: Path, namespace: Namespace) -> None:
    """What a governor does, whatever it costs here: more would be given up than is ever needed."""
    steps: list[tuple[Mode, int]] = [
        *(("details", FEWER_EVENTS_PER_S), ("summary", EVENTS_PER_S), ("counters", EVENTS_PER_S)),
        *(("summary", EVENTS_PER_S), ("details", EVENTS_PER_S)),
    ]
    with Watched(tmp_path, namespace.inode, interval_s=0.25) as watched, Storm(namespace, STORM_PER_S) as storm:
        for mode, events_per_s in steps:
            change: Future[None] = watched.session.set(
                PROBE, mode, {"netns": namespace.inode, "events_per_s": events_per_s}
            )
            change.result(LIMIT_S)
            watched.wait(2)
            print(f"{mode}, {events_per_s} events/s: {watched.intervals[-1].kernel_pct:.2f} % of a core")
        sent = storm.stop()
        watched.settle()
        watched.assert_accounted(sent)
        assert watched.probe().cost.ledger["unlisted"].total > 0


@dataclass
class Stopped:
    """A storm while the collector was stopped."""

    sent: int
    took_s: float
    kernel_pcts: list[float]
    """In-kernel time of every two seconds, percent of a core."""


def storm_while_stopped(watched: Watched, namespace: Namespace, windows: int) -> Stopped:
    """Nobody in user space does anything about it: the figures are the kernel's own, of ``windows`` at least."""
    with watched.session.view() as state:
        collector = int(state.collector_info["pid"])
    program = program_fd(collector)
    os.kill(collector, signal.SIGSTOP)
    statistics = syscalls.enable_statistics()
    begun, begin_s = syscalls.program_info(program), time.monotonic()
    slices: list[float] = []
    try:
        with Storm(namespace, STORM_PER_S) as storm:
            since, since_s = begun, begin_s
            while len(slices) < windows * SLICES or (since.run_count or 0) - (begun.run_count or 0) < RUNS:
                assert time.monotonic() < begin_s + LIMIT_S, "no storm"
                time.sleep(2.0 / SLICES)
                now, now_s = syscalls.program_info(program), time.monotonic()
                took_ns = (now.run_time_ns or 0) - (since.run_time_ns or 0)
                slices.append(took_ns / (now_s - since_s) / 1e7)
                since, since_s = now, now_s
            sent = storm.stop()
        took_s = time.monotonic() - begin_s
    finally:
        os.close(statistics)
        os.close(program)
        os.kill(collector, signal.SIGCONT)
    pcts = [fmean(sorted(slices[at : at + SLICES])[:-1]) for at in range(0, windows * SLICES, SLICES)]
    print(f"{sent / took_s:.0f} drops/s with the collector stopped:", *(f"{pct:.2f} %" for pct in pcts))
    watched.settle()
    watched.until(lambda state: state.probes[PROBE].counters["drops"].count.total >= sent)
    watched.assert_accounted(sent)
    assert watched.probe().cost.events["seen"].total == sent
    return Stopped(sent, took_s, pcts)


def test_the_circuit_breaker_holds_while_the_collector_is_stopped(tmp_path: Path, namespace: Namespace) -> None:
    """Counted, not timed: what a run takes is the machine's affair, how many do more than count is the breaker's."""
    with Watched(tmp_path, namespace.inode, knobs=f"rows_per_s = {ROWS_PER_S}") as watched:
        stopped = storm_while_stopped(watched, namespace, 2)
        breaker, unlisted = (watched.probe().cost.ledger[name].total for name in ("breaker", "unlisted"))
    over = (stopped.took_s / WINDOW_S + 2) * GRANT_RUNS * len(os.sched_getaffinity(0))
    assert stopped.sent - breaker <= DETAILS_RUNS_PER_S * (stopped.took_s + 2 * WINDOW_S) + over
    assert stopped.sent - unlisted <= ROWS_PER_S * (stopped.took_s + 2 * WINDOW_S) + over
    assert breaker and unlisted


@costs
def test_and_keeps_the_budget_by_the_time_that_runs_take(governed: Watched, namespace: Namespace) -> None:
    limit_pct = governed.enforcer.profile.budget.kernel_cpu_pct
    assert limit_pct
    stopped = storm_while_stopped(governed, namespace, 2 * FIRST_WINDOWS)
    print(f"the budget is {limit_pct:.2f} %")
    assert not [pct for pct in stopped.kernel_pcts[FIRST_WINDOWS:] if pct > OVER * limit_pct]
    # Not more than it takes: what fits into the budget is listed by itself.
    assert 0 < governed.probe().cost.ledger["estimated"].total < stopped.sent * 15 // 16
    assert not governed.probe().cost.ledger["unlisted"].total


def program_fd(collector: int) -> int:
    """A descriptor of the collector's one program, to read what it costs while nobody else can."""
    for entry in Path(f"/proc/{collector}/fdinfo").iterdir():
        fields = dict(line.split(":", 1) for line in entry.read_text().splitlines() if ":" in line)
        if "prog_id" in fields and "link_id" not in fields:
            return duplicate(collector, int(entry.name))
    raise AssertionError("the collector has no program")


def duplicate(process: int, descriptor: int) -> int:
    """A copy of a descriptor of another process of ours (pidfd_getfd, 5.6)."""
    import ctypes

    pidfd = os.pidfd_open(process)
    try:
        found: int = ctypes.CDLL(None, use_errno=True).syscall(438, pidfd, descriptor, 0)
        assert found >= 0, os.strerror(ctypes.get_errno())
        return found
    finally:
        os.close(pidfd)
