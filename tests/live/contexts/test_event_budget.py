"""The budget of events is one for all CPUs: never exceeded, and events keep coming however many CPUs there are."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from netconsole_collector.kernel import cpus
from netconsole_collector.probe.reading import ledger
from tests.support.live.contexts.unattached import UnattachedProbe, on_cpu

Load = Callable[..., UnattachedProbe]
PER_S, BURST, MORE = 20, 5, 10
LIMIT_S = 20
"""With a bucket for each of 96 CPUs an event came to this CPU every 4.8 s: too late for ten."""


@contextmanager
def storm_on(cpu: int, call: Callable[[], int]) -> Iterator[memoryview]:
    """Another process that calls without pause. The memory says how often, once it has ended."""
    shared = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")
    child = os.fork()
    if not child:
        os.sched_setaffinity(0, {cpu})
        calls = 0
        while not shared[1] and os.getppid() != 1:
            call()
            calls += 1
        shared[0] = calls
        os._exit(0)
    try:
        yield shared
    finally:
        shared[1] = 1
        os.waitpid(child, 0)


@pytest.mark.parametrize("number_of_cpus", [2, 96])
def test_storms_on_two_cpus_share_the_budget_to_the_event(
    load: Load, monkeypatch: pytest.MonkeyPatch, number_of_cpus: int
) -> None:
    monkeypatch.setattr(cpus, "nr_cpu_ids", lambda: number_of_cpus)
    probe = load("socket_drops")
    assert probe.running._ledger_slots is not None
    call = probe.prepare("reset_sent", probe.memory.make("tcp_sock", {}))
    probe.set("details", events_per_s=PER_S)
    began, here = time.monotonic_ns(), 0
    with on_cpu(0), storm_on(max(os.sched_getaffinity(os.getppid())), call) as there:
        while ledger.read(probe.running._ledger_slots)["submitted"] < BURST + MORE:
            call()
            here += 1
            assert time.monotonic_ns() - began < LIMIT_S * 1e9
    earned = (time.monotonic_ns() - began) * PER_S / 1e9
    probe.read()
    made = probe.ledger()
    assert made["seen"] == here + there[0] == probe.counters()["resets_sent"]
    assert made["seen"] == made["submitted"] + made["suppressed"]
    assert BURST + MORE <= made["submitted"] == len(probe.events()) <= BURST + earned + 1
    assert there[0] > BURST + MORE


@pytest.mark.parametrize("stale_ns", [0, 3600 * 10**9])
def test_a_bucket_that_was_full_for_long_saves_up_a_burst_and_no_more(load: Load, stale_ns: int) -> None:
    """Also when the last event lies in the future, as after a reset amid an event: the clock alone decides."""
    probe = load("socket_drops")
    call = probe.prepare("reset_sent", probe.memory.make("tcp_sock", {}))
    probe.set("details", events_per_s=0.01)
    last = (time.monotonic_ns() - stale_ns) % (1 << 64)
    probe.running._maps.write("nc_arrival", last.to_bytes(8, "little"))
    for _ in range(20):
        call()
    probe.read()
    assert probe.ledger()["submitted"] == 1
    probe.running._maps.write("nc_arrival", ((1 << 64) - 5).to_bytes(8, "little"))
    call()
    probe.read()
    assert probe.ledger()["submitted"] == 2
