"""A comparison on the hypervisor: a vhost worker that was moved to a busy CPU is the first thing found."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from netconsole.compare.compare import compare
from netconsole.probes import catalogue
from netconsole.profile.profile import Profile
from netconsole.snapshot import builder
from netconsole.snapshot.document import Snapshot
from netconsole.telemetry import frames
from netconsole.telemetry.state import State
from tests.lab.collector import InsideMeasurement
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.network.peer import FAR, RING_BUFFERS, Peer
from tests.lab.network.traffic import on_a_busy_cpu, workers_of

MANIFESTS = catalogue.load_all()
RUNS = 5
PACKETS, EVERY_S = 300, 0.01
# One by one: each of them wakes the worker.
PACED = """
import socket, sys, time
address, count, every_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(count):
    sender.sendto(bytes(60), (address, 9))
    time.sleep(every_s)
"""
CAUSE = ("vhost_queues/histogram/wake", "vhost_queues/histogram/scheduled")
"""How long the worker takes to come, in all, and how much of it waits for a CPU."""


class Watched(InsideMeasurement):
    """A collector whose frames also make a state, as a session has it."""

    def __init__(self, hypervisor: Hypervisor) -> None:
        self.state = State()
        self.applied = threading.Lock()
        super().__init__(hypervisor)

    def _fold(self, frame: frames.AnyFrame) -> None:
        with self.applied:
            self.state.apply(frame)
        super()._fold(frame)


@pytest.fixture(scope="module")
def watched(hypervisor: Hypervisor) -> Iterator[Watched]:
    collector = Watched(hypervisor)
    collector.need("vhost_queues")
    yield collector
    collector.close()


def measure(hypervisor: Hypervisor, watched: Watched) -> Snapshot:
    """A snapshot of so many packets, by the code that makes those of a session."""
    watched.settle()
    with watched.applied:
        start = builder.totals(watched.state)
    hypervisor.run("python3", "-c", PACED, FAR, str(PACKETS), str(EVERY_S))
    watched.settle()
    with watched.applied:
        return builder.build(watched.state, MANIFESTS, Profile("vhost"), start)


def test_a_worker_that_was_moved_to_a_busy_cpu_is_the_first_finding(hypervisor: Hypervisor, watched: Watched) -> None:
    with Peer(hypervisor) as peer:
        peer.offer(RING_BUFFERS)
        peer.refill(True)
        measure(hypervisor, watched)  # the first packets find nothing warm
        baseline = [measure(hypervisor, watched) for _ in range(RUNS)]
        (pid,) = hypervisor.run("pgrep", "-f", "^/usr/bin/python3 .*vhost_peer.py").text.split()
        with on_a_busy_cpu(hypervisor, workers_of(hypervisor, pid)):
            moved = measure(hypervisor, watched)
    found = compare(moved, baseline)
    told = [(one.rank, one.significant, one.direction, one.metric, one.why) for one in found.findings[:6]]
    assert found.verdict == "regressed", told
    first = found.findings[0]
    assert first.metric.startswith(CAUSE) and first.significant and first.direction == "worse", told
