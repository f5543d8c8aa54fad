"""Events by ring buffer and, where a kernel has none, by perf buffer: what is lost is counted, to the event."""

from __future__ import annotations

import ctypes
import os
import select
import threading
import time
from collections.abc import Iterator

import pytest

from netconsole_collector.compile.job import CompileJob
from netconsole_collector.kernel import cpus
from netconsole_collector.kernel.rings import PerfBuffer, RingBuffer
from netconsole_collector.kernel.statistics import StatisticsWindow
from netconsole_collector.names.lookups import Lookups
from netconsole_collector.probe.reading import ledger as slots
from netconsole_collector.probe.running import RunningProbe
from tests.support.live.collector_driver import PYTHON, call, calls_spec, source

pytestmark = pytest.mark.starting

MANY = 20_000
LONGEST_S = 60.0
UNLIMITED_PER_S = 1_000_000_000
"""A budget that suppresses nothing: then the buffer itself has to refuse."""


@pytest.fixture(params=["ring buffer", "perf buffer"])
def probe(request: pytest.FixtureRequest) -> Iterator[RunningProbe]:
    """The tests' probe inside this process, in details mode without a limit, reading nothing by itself."""
    spec = calls_spec()
    is_ring = request.param == "ring buffer"
    text = source("calls")
    job = {"spec": spec, "source": text, "cpus": cpus.nr_cpu_ids(), "ring": is_ring}
    worker = CompileJob(job, PYTHON)
    while not worker.advance():
        select.select([worker], [], [], 1.0)
    assert worker.answer is not None
    assert worker.answer["ok"], worker.answer["why"]
    running = RunningProbe("calls", spec, worker.answer, Lookups(), time.monotonic_ns())
    assert [type(buffer) for buffer in running._events._buffers.values()] == [RingBuffer if is_ring else PerfBuffer]
    running.configure("details", {"pid": os.getpid(), "events_per_s": UNLIMITED_PER_S})
    yield running
    running.close()


def read(probe: RunningProbe) -> tuple[int, dict[str, int]]:
    """Events that were taken out, and the counts of the ledger."""
    statistics = StatisticsWindow(0, 1)
    for fd in probe.program_fds:
        statistics.add(fd)
    bodies = probe.read(statistics, time.monotonic_ns(), 0)
    cost = bodies[-1]
    counts = {name: count["total"] for name, count in cost["events"].items()}
    counts["shed"] = cost["ledger"]["shed"]["total"]
    return sum(body["kind"] == "event" for body in bodies), counts


@pytest.mark.proves("collector", "ledger.shed")
def test_a_buffer_that_nobody_reads_refuses_and_every_refusal_is_counted(probe: RunningProbe) -> None:
    deadline, calls = time.monotonic() + LONGEST_S, 0
    while not slots.read(probe._ledger_slots)["lost"]:  # the breaker lets through so many in a second
        assert time.monotonic() < deadline, f"nothing lost after {calls} calls"
        call(42, MANY)
        calls += MANY
    probe.detach()
    events, counts = read(probe)
    assert counts["seen"] == calls
    assert counts["seen"] == counts["submitted"] + counts["suppressed"] + counts["lost"]
    assert events + counts["shed"] == counts["submitted"]


def test_a_reader_that_keeps_up_loses_nothing(probe: RunningProbe) -> None:
    """Records go around the end of the buffer several times, and come out whole."""
    wanted = 30_000
    getpgid = ctypes.PyDLL(None).getpgid  # keeps the interpreter's lock: to get it back for each call takes the time
    taken: list[dict[str, object]] = []
    turns = 0
    done = threading.Event()

    def produce() -> None:
        for start in range(0, wanted, 100):
            for argument in range(start, start + 100):
                getpgid(argument)
            begun = turns
            while turns < begun + 2:  # the reader has come by since: it is not more than 100 behind
                time.sleep(0)
        done.set()

    producer = threading.Thread(target=produce)
    producer.start()
    is_last = False
    while not is_last:
        is_last = done.is_set()  # asked before reading: what came until then is read in this turn
        taken.extend(event["fields"] for event in probe._events.read())
        turns += 1
    while producer.is_alive():
        turns += 1
        time.sleep(0)
    probe.detach()
    arguments = [int(str(event["argument"])) for event in taken]
    assert set(arguments) <= set(range(wanted))
    assert len(set(arguments)) == len(arguments)
    _, counts = read(probe)
    assert len(arguments) == counts["submitted"] == counts["seen"] == wanted
    assert (counts["lost"], counts["shed"]) == (0, 0)


def test_several_processors_submit_at_once(probe: RunningProbe) -> None:
    """Children of this thread group on every CPU: accounting is exact after they have ended."""
    threads = [threading.Thread(target=call, args=(7, MANY // 8)) for _ in range(4)]
    for thread in threads:
        thread.start()
    total = 0
    while any(thread.is_alive() for thread in threads):
        total += len(probe._events.read())
    for thread in threads:
        thread.join()
    probe.detach()
    events, counts = read(probe)
    assert counts["seen"] == 4 * (MANY // 8)
    assert counts["seen"] == counts["submitted"] + counts["suppressed"] + counts["lost"]
    assert total + events + counts["shed"] == counts["submitted"]
