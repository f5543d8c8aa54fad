"""softirq_health on softirqs of the test's own: how late, how long, how many, and what is lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from tests.support.live.contexts.unattached import UnattachedProbe, on_cpu

PROBE = "softirq_health"
Load = Callable[..., UnattachedProbe]

NET_TX, NET_RX = 2, 3
OTHERS = (0, 1, 4, 5, 6, 7, 8, 9)
NAMES = {NET_TX: "NET_TX", NET_RX: "NET_RX"}
MS = 1_000_000


def wait(ms: float) -> None:
    """Here on this CPU: a sleep may take much longer."""
    end = time.monotonic_ns() + ms * MS
    while time.monotonic_ns() < end:
        pass


class Softirq:
    """One run of a softirq, and between which bounds its latency and its length lie."""

    def __init__(self, probe: UnattachedProbe, number: int, late_ms: float, long_ms: float) -> None:
        before = time.monotonic_ns()
        probe.run("raised", number)
        raised = time.monotonic_ns()
        wait(late_ms)
        entering = time.monotonic_ns()
        probe.run("entered", number)
        entered = time.monotonic_ns()
        wait(long_ms)
        leaving = time.monotonic_ns()
        probe.run("left", number)
        self.late = entering - raised, entered - before
        self.long = leaving - entered, time.monotonic_ns() - entering
        self.entered = entering, entered


def lies(value: int, *bounds: tuple[int, int]) -> bool:
    """Between the sums of the bounds."""
    return sum(low for low, _ in bounds) <= value <= sum(high for _, high in bounds)


def extreme(which: Callable[[Iterable[int]], int], bounds: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Between which bounds the shortest or the longest one lies."""
    return which(low for low, _ in bounds), which(high for _, high in bounds)


@pytest.mark.proves(
    "softirq_health",
    "histograms.late",
    "histograms.late.{cpu,softirq}",
    "tables.cpus.{cpu,rx_runs,rx_ns,tx_runs,tx_ns,rx_longest_ns}",
    "modes.summary",
)
def test_times_are_those_that_have_passed(load: Load) -> None:
    probe = load(PROBE)
    cpu = max(os.sched_getaffinity(os.getppid()))
    with on_cpu(cpu):
        received = [Softirq(probe, NET_RX, *times) for times in ((3, 4), (1, 9))]
        sent = [Softirq(probe, NET_TX, *times) for times in ((6, 2), (2, 1), (1, 5))]
        for other in OTHERS:
            Softirq(probe, other, 0, 0)
    probe.read()
    row = probe.row("cpus")
    assert (row["cpu"], row["rx_runs"], row["tx_runs"]) == (cpu, 2, 3)
    assert lies(row["rx_ns"], *(one.long for one in received)) and lies(row["tx_ns"], *(one.long for one in sent))
    assert lies(row["rx_longest_ns"], extreme(max, [one.long for one in received]))
    found = {one["softirq"]: one for one in probe.histograms("late")}
    assert found.keys() == {"NET_RX", "NET_TX"} and {one["cpu"] for one in found.values()} == {cpu}
    for name, runs in (("NET_RX", received), ("NET_TX", sent)):
        late = found[name]
        assert late["count"] == len(runs) and lies(late["sum"], *(one.late for one in runs))
        for which, value in ((min, late["min"]), (max, late["max"])):
            assert lies(value, extreme(which, [one.late for one in runs]))
    assert probe.ledger() == {}


@pytest.mark.proves("softirq_health", "ledger.join_missed")
def test_a_latency_counts_from_the_first_raise_and_once(load: Load) -> None:
    probe = load(PROBE)
    probe.run("left", NET_RX)  # it ran when the probe was attached: how long nobody knows
    probe.run("entered", NET_RX)  # it was raised before the probe was attached: nothing is missed
    probe.run("left", NET_RX)
    before = time.monotonic_ns()
    probe.run("raised", NET_RX)
    raised = time.monotonic_ns()
    wait(5)
    probe.run("raised", NET_TX)
    probe.run("raised", NET_RX)
    entering = time.monotonic_ns()
    probe.run("entered", NET_RX)
    entered = time.monotonic_ns()
    probe.run("left", NET_RX)
    for _ in range(2):  # nobody was seen to ask for these
        probe.run("entered", NET_RX)
        probe.run("left", NET_RX)
    probe.read()
    (late,) = probe.histograms("late")
    assert late["count"] == 1 and lies(late["sum"], (entering - raised, entered - before))
    assert probe.row("cpus")["rx_runs"] == 4
    assert probe.ledger() == {"join_missed": 2}


@pytest.mark.proves("softirq_health", "knobs.seen_pct", "ledger.join_missed")
def test_what_began_before_a_rest_is_not_joined_with_what_comes_after_it(load: Load) -> None:
    probe = load(PROBE)
    probe.run("raised", NET_RX)
    probe.run("entered", NET_TX)
    probe.rest()
    for program in ("entered", "raised"):
        probe.run(program, NET_TX)
    wait(200)
    probe.wake()
    probe.run("left", NET_TX)  # it ran when the probe was attached again
    probe.run("entered", NET_RX)  # it was raised before
    probe.run("left", NET_RX)
    after = [Softirq(probe, number, 1, 1) for number in (NET_RX, NET_TX)]
    probe.rest()
    probe.run("raised", NET_RX)
    probe.wake()
    probe.run("raised", NET_RX)  # not the one before the rest
    began = time.monotonic_ns()
    probe.run("entered", NET_RX)
    probe.run("left", NET_RX)
    took = time.monotonic_ns() - began
    probe.read()
    row = probe.row("cpus")
    assert (row["rx_runs"], row["tx_runs"]) == (3, 1)
    assert row["rx_longest_ns"] <= max(took, after[0].long[1], 190 * MS)
    found = {one["softirq"]: one for one in probe.histograms("late")}
    assert (found["NET_RX"]["count"], found["NET_TX"]["count"]) == (2, 1)
    assert found["NET_RX"]["max"] < 200 * MS and found["NET_TX"]["max"] < 200 * MS
    assert probe.ledger()["join_missed"] == 2 and probe.ledger()["unseen_ms"] >= 200


@pytest.mark.proves(
    "softirq_health", "tables.cpus.{polls,packets,exhausted}", "tables.exhausted.{device,netns,cpu,count}"
)
def test_polls_are_counted_with_their_work(load: Load) -> None:
    probe = load(PROBE)
    memory = probe.memory
    net = memory.make("net", {"ns.inum": 4_026_500_001})
    card = memory.make("napi_struct", {"dev": memory.make("net_device", {"name": b"eth7", "nd_net.net": net})})
    backlog = memory.make("napi_struct", {})
    cpu = max(os.sched_getaffinity(os.getppid()))
    polls = ((card, 7, 64), (card, 63, 64), (card, 64, 64), (card, 16, 16), (card, 0, 64), (card, 1, 1))
    with on_cpu(cpu):
        for napi, work, budget in (*polls, (backlog, 64, 64), (backlog, 3, 64), (card, 1, 0)):  # netpoll has no budget
            probe.run("polled", napi, work, budget)
    probe.read()
    row = probe.row("cpus")
    assert (row["polls"], row["packets"], row["exhausted"]) == (8, 7 + 63 + 64 + 16 + 0 + 1 + 64 + 3, 4)
    found = {(one["device"], one["netns"], one["cpu"]): one["count"] for one in probe.rows("exhausted")}
    assert found == {("eth7", "4026500001", cpu): 3, ("", None, cpu): 1}
    assert probe.ledger() == {}


@pytest.mark.proves("softirq_health", "ledger.map_full")
def test_a_device_that_finds_no_room_is_counted_as_missing(load: Load) -> None:
    probe = load(PROBE, exhausted=1)
    for name in (b"eth0", b"eth1", b"eth1", b"eth0"):
        dev = probe.memory.make("net_device", {"name": name})
        probe.run("polled", probe.memory.make("napi_struct", {"dev": dev}), 64, 64)
    probe.read()
    assert probe.row("exhausted")["count"] == 2 and probe.row("cpus")["exhausted"] == 4
    assert probe.ledger() == {"map_full": 2}


TIMED = 256
"""So many in eight ticks, as the probe says in cannot_see."""
CLOCK_MONOTONIC_COARSE = 6
WINDOW_NS = 8 * time.clock_getres(CLOCK_MONOTONIC_COARSE) * 1e9
"""The coarse clock has the resolution of a tick (time.h)."""


@pytest.mark.proves("softirq_health", "ledger.unmeasured")
def test_of_a_storm_the_first_ones_are_timed_and_all_are_counted(load: Load) -> None:
    probe = load(PROBE)
    runs = 2000
    calls = [probe.prepare(program, NET_RX) for program in ("raised", "entered", "left")]
    began = time.monotonic_ns()
    for call in calls * runs:
        call()
    windows = (time.monotonic_ns() - began) / WINDOW_NS
    probe.read()
    timed = probe.histograms("late")[0]["count"]
    assert TIMED <= timed <= TIMED * (windows + 2)
    assert probe.ledger() == {"unmeasured": runs - timed}
    assert probe.row("cpus")["rx_runs"] == runs


def test_what_is_not_timed_takes_as_long_as_what_was_timed(load: Load) -> None:
    """The mean of the last ones, of which a new one is an eighth."""
    for _ in range(50):  # until all of it falls into the same ticks
        probe = load(PROBE)
        for call in [probe.prepare("raised", NET_RX), probe.prepare("entered", NET_RX)] * (TIMED - 2):
            call()
        long = Softirq(probe, NET_RX, 0, 3).long
        short = Softirq(probe, NET_RX, 0, 0).long
        for _ in range(16):
            Softirq(probe, NET_RX, 0, 0)
        probe.read()
        if probe.ledger() == {"unmeasured": 16}:
            break
    row = probe.row("cpus")
    mean = [long[0] - long[1] // 8 + short[0] // 8 - 1, long[1] - long[0] // 8 + short[1] // 8 + 1]
    assert row["rx_runs"] == 18
    assert lies(row["rx_ns"], long, short, (16 * mean[0], 16 * mean[1]))


@pytest.mark.proves(
    "softirq_health", "events.late.{mono_ns,late_ns,cpu,softirq,pid,process}", "knobs.threshold_us", "modes.details"
)
def test_an_event_is_one_that_is_later_than_the_threshold(load: Load) -> None:
    probe = load(PROBE)
    late = Softirq(probe, NET_RX, 3, 0)  # in mode summary: of the figures alone
    probe.set("details", threshold_us=2000, events_per_s=1000)
    delayed = 0
    while Softirq(probe, NET_RX, 1, 0).late[1] >= 2_000_000:
        delayed += 1  # by the machine: nobody knows whether for longer than the threshold
    late = Softirq(probe, NET_TX, 3, 0)
    probe.read()
    *others, event = probe.events()
    assert len(others) <= delayed
    assert lies(event["late_ns"], late.late) and lies(event["mono_ns"], late.entered)
    assert (event["cpu"], event["softirq"], event["pid"]) == (0, "NET_TX", os.getpid())
    assert event["process"] == Path("/proc/self/comm").read_text().strip()
    probe.set("details", threshold_us=0, events_per_s=1000)
    Softirq(probe, NET_RX, 0, 0)
    probe.set("summary", threshold_us=0, events_per_s=1000)
    Softirq(probe, NET_RX, 0, 0)
    probe.read()
    assert [one["softirq"] for one in probe.events()] == ["NET_RX"]


@pytest.mark.proves("softirq_health", "knobs.events_per_s", "ledger.suppressed")
def test_events_keep_their_budget(load: Load) -> None:
    """A quarter of a second's worth is saved up, of at most 64."""
    probe = load(PROBE)
    for per_s, burst in ((100, 25), (1000, 64)):
        probe.set("details", threshold_us=0, events_per_s=per_s)
        probe.read()
        before = probe.ledger()
        wait(2 * burst * 1000 / per_s)  # more than is saved up
        began = time.monotonic_ns()
        for _ in range(2 * burst):
            Softirq(probe, NET_RX, 0, 0)
        earned = (time.monotonic_ns() - began) * per_s / 1e9
        probe.read()
        made = {name: total - before.get(name, 0) for name, total in probe.ledger().items()}
        assert made["seen"] == 2 * burst == made["submitted"] + made.get("suppressed", 0)
        assert burst <= made["submitted"] <= burst + earned + 1
        assert len(probe.events()) == made["submitted"]
