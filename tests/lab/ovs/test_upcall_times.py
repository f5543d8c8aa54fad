"""ovs_upcalls' times: an answer that is held up for a known time, and the scheduler's own books of the handlers."""

from __future__ import annotations

import itertools
import time
from typing import Any, NamedTuple

import pytest

from tests.lab.collector import InsideMeasurement
from tests.lab.machine.hypervisor import CPUS
from tests.lab.network.frames import Held, Sent
from tests.lab.ovs.ends import Ends, events_of
from tests.support.live.ovs_frames import Frame

PROBE = "ovs_upcalls"
FRAME = Frame("10.9.0.1", "10.9.0.2")
EVERY_EVENT = {"threshold_us": 0, "events_per_s": 100_000, "unanswered_after_ms": 60_000}
HOLD_MS, TRIES = 800, 20
"""Less than a task of real time may run in a second."""
TIGHT = 1.15
"""What is known of the time at most, of what is known at least."""
THRESHOLD_MS = 300
LIMIT_MS, LONGER_MS, SHORTER_MS = 4000, 4400, 3700
"""Of an answer: within a tenth of the limit, so that a limit a fifth longer or shorter would be seen."""
ANSWERS = (300, 150)
"""From each CPU, so many that the moments of the readings hardly matter."""
SAME = 0.1
EVENTS_PER_S, EVERY_NS = 4, 250_000_000
"""With so few no event is saved up (docs/design/collector.md)."""
SOME, LONG_NS = 50, 6 * EVERY_NS


def sum_of(collector: InsideMeasurement, name: str) -> int:
    """Of all histograms of this name together, since they were loaded."""
    return sum(one.total.sum for one in collector.histograms(PROBE, name))


class Hold(NamedTuple):
    """The frame, and what all histograms and the kernel's books of the handlers had when it began."""

    held: Held
    sums: dict[str, int]
    waited_ns: int


def waited_ns(ends: Ends) -> int:
    return sum(one["waited_ns"] for one in ends.handlers().values())


def hold(ends: Ends, collector: InsideMeasurement) -> Hold:
    """Since `begin`: a frame that is answered at once, and one whose answer is held up, both on the first CPU."""
    for _ in range(TRIES):
        collector.begin()
        before = {name: sum_of(collector, name) for name in ("latency", "scheduled")}
        waited = waited_ns(ends)
        ends.sender.send("a", [FRAME], cpu=0, answered_by="vb")
        held = ends.sender.hold("a", FRAME, HOLD_MS, cpu=0, answered_by="vb")
        collector.settle()
        if held.there_ns and held.answered_ns - held.began_ns < TIGHT * (held.released_ns - held.there_ns):
            return Hold(held, before, waited)
    raise AssertionError("a busy machine: each upcall was left to ksoftirqd, or its answer came late by itself")


@pytest.mark.proves("ovs_upcalls", "histograms.{latency,scheduled}", "events.upcall.{latency_ns,mono_ns}")
def test_an_answer_that_is_held_up_is_late_by_so_much(ends: Ends, collector: InsideMeasurement) -> None:
    """By who has its handler's CPU, and leaves it to nobody: it waits for a CPU as long as for the answer."""
    collector.set(PROBE, "details", **EVERY_EVENT)
    with ends.handlers_on(0):
        held, sums, before_ns = hold(ends, collector)
        own_ns = waited_ns(ends) - before_ns
    took = {name: sum_of(collector, name) - before for name, before in sums.items()}
    events = {int(str(one.fields["mono_ns"])): int(str(one.fields["latency_ns"])) for one in collector.events}
    answered_ns = max(events)
    least, most = held.released_ns - held.there_ns, held.answered_ns - held.began_ns
    print(f"held for {least / 1e6:.1f} to {most / 1e6:.1f} ms; by the probe {events[answered_ns] / 1e6:.1f} ms")
    assert least <= events[answered_ns] <= most
    assert held.released_ns < answered_ns < held.answered_ns
    assert (len(events), collector.samples(PROBE, "latency")) == (2, 2)
    assert took["latency"] == sum(events.values())
    print(f"the handler waited {took['scheduled'] / 1e6:.1f} ms for its CPU, by the kernel {own_ns / 1e6:.1f} ms")
    assert least <= took["scheduled"] == pytest.approx(own_ns, rel=SAME)


@pytest.mark.proves("ovs_upcalls", "knobs.threshold_us", "events.upcall.latency_ns")
def test_the_threshold_parts_slow_answers_from_quick_ones(ends: Ends, collector: InsideMeasurement) -> None:
    collector.set(PROBE, "details", events_per_s=100_000, threshold_us=THRESHOLD_MS * 1000)
    with ends.handlers_on(0):
        held = hold(ends, collector).held
        quick = ends.sender.send("a", [FRAME] * 20, cpu=0, answered_by="vb")
        collector.settle()
    slow = [one for one in quick if one.ended_ns - one.began_ns > THRESHOLD_MS * 1_000_000]
    assert len(slow) < len(quick), "a machine on which each answer takes that long"
    events = [int(str(event.fields["latency_ns"])) for event in events_of(collector, PROBE)]
    assert 1 <= len(events) <= 2 + len(slow)
    assert min(events) > THRESHOLD_MS * 1_000_000
    assert max(events) >= held.released_ns - held.there_ns
    assert collector.counter(PROBE, "answered") == 2 + len(quick)


def waited_ms(clock: tuple[int, int], until: tuple[float, float]) -> tuple[float, float]:
    """At least and at most: from a frame to what came between these two moments of the machine's uptime."""
    return until[0] * 1e3 - clock[1] / 1e6 - 20, until[1] * 1e3 - clock[0] / 1e6 + 20


@pytest.mark.proves(
    "ovs_upcalls",
    "knobs.unanswered_after_ms",
    "counters.{answered,unanswered,late}",
    "tables.upcalls.{answered,unanswered,late}",
)
def test_an_answer_after_the_limit_is_late_and_one_before_it_is_not(ends: Ends, collector: InsideMeasurement) -> None:
    collector.set(PROBE, unanswered_after_ms=LIMIT_MS)
    wait_s = (SHORTER_MS - 500) / 1000
    for _ in range(TRIES):
        collector.begin()
        sent = ends.hypervisor.counter("vb", "tx_packets") + 2
        with ends.stopped() as process:
            (first,) = ends.sender.send("a", [FRAME])
            time.sleep((LONGER_MS - SHORTER_MS) / 1000)
            (second,) = ends.sender.send("a", [FRAME])
            shown = ends.hypervisor.shell(f"""
                sleep {wait_s}
                cut -d' ' -f1 /proc/uptime; kill -CONT {process}
                until [ $(cat /sys/class/net/vb/statistics/tx_packets) -ge {sent} ]; do :; done
                cut -d' ' -f1 /proc/uptime
            """)
        released, answered = map(float, shown.split())
        longer, shorter = (waited_ms(one, (released, answered)) for one in (first, second))
        print(f"answered after {longer[0]:.0f} to {longer[1]:.0f} ms, and {shorter[0]:.0f} to {shorter[1]:.0f} ms")
        if (
            1.02 * LIMIT_MS < longer[0] < longer[1] < 1.2 * LIMIT_MS
            and LIMIT_MS / 1.2 < shorter[0] < shorter[1] < LIMIT_MS
        ):
            break
        wait_s -= (shorter[1] - 0.97 * LIMIT_MS) / 1000
    else:
        raise AssertionError("a busy machine: no delay was as long as it should be")
    collector.until(lambda: collector.counter(PROBE, "late") == 1, "the late answer")
    (row,) = collector.rows(PROBE, "upcalls")
    for name, count in {"upcalls": 2, "packets": 2, "answered": 1, "unanswered": 1, "late": 1, "dropped": 0}.items():
        assert (collector.counter(PROBE, name), row.counts[name]) == (count, count), name


@pytest.mark.proves(
    "ovs_upcalls",
    "tables.handlers.{handler,tid,process,cpu_ns,switches,wakeups,answered}",
    "histograms.scheduled",
    "histograms.scheduled.{handler,tid}",
)
def test_what_handlers_do_is_in_the_scheduler_s_books(ends: Ends, collector: InsideMeasurement) -> None:
    """The probe reads them at answers: here after the first reading of ours, and between the last two."""

    def answers(*counts: int) -> dict[int, dict[str, Any]]:
        for cpu, count in enumerate(counts):
            ends.sender.send("a", [FRAME] * count, cpu=cpu, answered_by="vb")
        return ends.handlers()

    collector.set(PROBE)
    answers(1, 1)  # the probe knows a handler from its first answer on
    first = ends.handlers()
    second = answers(1, 1)
    collector.begin()
    begun = {int(str(one.labels["tid"])): one.total for one in collector.histograms(PROBE, "scheduled")}
    third, fourth = answers(*ANSWERS), answers(1, 1)
    collector.settle()
    rows = {int(str(row.labels["tid"])): row for row in collector.rows(PROBE, "handlers")}
    answered = [count + 1 for count in ANSWERS]
    by_handler = sorted(answered) if ends.ovs.asks_by_cpu else [sum(answered)]
    assert sorted(row.counts["answered"] for row in rows.values()) == by_handler
    for tid, row in rows.items():
        name, process = fourth[tid]["handler"], f"ovs-vswitchd ({ends.vswitchd})"
        assert row.labels == {"handler": name, "tid": tid, "process": process}
        (histogram,) = collector.histograms(PROBE, "scheduled", tid=tid)
        assert histogram.labels["handler"] == name
        counted = {one: row.counts[one] for one in ("cpu_ns", "wakeups", "switches")}
        counted["waited_ns"] = histogram.total.sum - begun[tid].sum
        for one, count in counted.items():
            least, most = third[tid][one] - second[tid][one], fourth[tid][one] - first[tid][one]
            print(f"{name}: {one} {count}, by the scheduler {least} to {most}")
            assert 0 < least <= count <= most, one
        assert 0 < histogram.total.count - begun[tid].count <= row.counts["answered"]


@pytest.mark.proves("ovs_upcalls", "tables.handlers.cpu")
def test_a_handler_is_where_it_may_be(ends: Ends, collector: InsideMeasurement) -> None:
    collector.set(PROBE)
    for cpu in (*range(CPUS), 0):
        with ends.handlers_on(cpu):
            collector.begin()
            for one in range(CPUS):
                ends.sender.send("a", [FRAME], cpu=one, answered_by="vb")
            collector.settle()
            rows = collector.rows(PROBE, "handlers")
        assert len(rows) == (CPUS if ends.ovs.asks_by_cpu else 1) and {row.gauges["cpu"] for row in rows} == {cpu}


@pytest.mark.proves("ovs_upcalls", "knobs.events_per_s", "ledger.suppressed")
def test_events_are_as_many_as_the_budget_lets_pass(ends: Ends, collector: InsideMeasurement) -> None:
    """No two are nearer to each other, and after that time the next answer is one."""
    collector.set(PROBE, "details", threshold_us=0, events_per_s=EVENTS_PER_S)
    sent: list[Sent] = []
    with ends.handlers_on(0):
        collector.begin()
        while not sent or sent[-1].ended_ns - sent[0].began_ns < LONG_NS:
            sent += ends.sender.send("a", [FRAME] * SOME, cpu=0, answered_by="vb")
        collector.settle()
    told = sorted(int(str(event.fields["mono_ns"])) for event in events_of(collector, PROBE))
    assert collector.event_count(PROBE, "seen") == len(sent)
    assert collector.event_count(PROBE, "suppressed") == collector.ledger(PROBE, "suppressed") == len(sent) - len(told)
    assert len(told) > 2
    for this, following in itertools.pairwise(told):
        assert following - this >= EVERY_NS
        assert not [one for one in sent if one.began_ns >= this + EVERY_NS and one.ended_ns < following]
