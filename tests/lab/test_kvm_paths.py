"""tx_kick_path and kvm_irqs: kicks, runs and interrupts of known traffic, held against what vhost itself did."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import pytest

from netconsole.histogram import percentile

from .collector import InsideMeasurement, means_ns, stages_of
from .testbed import Testbed
from .traffic import ping, worker_on_a_busy_cpu

pytestmark = pytest.mark.lab

PINGS = 40
SENT = 5000
STAGES = ("K1-K2", "K2-K3", "K3-K4")
SLOWER = 3.0


@pytest.fixture(scope="module")
def collector(testbed: Testbed) -> Iterator[InsideMeasurement]:
    measurement = InsideMeasurement(testbed.hypervisor)
    try:
        measurement.load("vhost_queues")
        measurement.load("tx_kick_path", "details", events_per_s=10_000, threshold_us=0)
        measurement.load("kvm_irqs")
        yield measurement
    finally:
        measurement.close()


def whole(collector: InsideMeasurement) -> None:
    for probe in ("vhost_queues", "tx_kick_path", "kvm_irqs"):
        assert collector.missed(probe) == {}
        for entry in ("join_missed", "map_full", "unaccounted"):
            assert collector.ledger(probe, entry) == 0, (probe, entry)


def test_everything_attaches(collector: InsideMeasurement) -> None:
    for probe in ("tx_kick_path", "kvm_irqs"):
        status = collector.statuses[probe]
        assert status.state == "attached", (status.why, status.missing)


def test_replies_to_a_ping_are_followed_whole(testbed: Testbed, collector: InsideMeasurement) -> None:
    collector.begin()
    before = stages_of(collector, "tx_kick_path")
    round_trips_ms = ping(testbed.hypervisor, testbed.guests[0], PINGS)
    collector.settle()
    whole(collector)
    (row,) = collector.rows("tx_kick_path", "queues", device="vnet0")
    (vhost,) = collector.rows("vhost_queues", "queues", device="vnet0", direction="tx")
    assert row.counts["packets"] == vhost.counts["packets"] == PINGS
    assert row.counts["kicks"] == vhost.counts["kicks"]
    assert row.counts["runs"] + row.counts["unseen"] <= row.counts["kicks"]
    assert row.labels["vm"] == testbed.guests[0].name

    after = stages_of(collector, "tx_kick_path")
    assert set(after) == {*STAGES, "total"}
    assert sum(after[stage].sum for stage in STAGES) == after["total"].sum
    if not before:
        assert (percentile(after["total"], 50) or 0) / 1e6 < statistics.median(round_trips_ms)
    events = [event.fields for event in collector.events if event.probe == "tx_kick_path"]
    assert len(events) == row.counts["runs"]
    for fields in events:
        parts = [fields[f"k{n}_k{n + 1}_ns"] for n in range(1, 4)]
        assert sum(part for part in parts if isinstance(part, int)) == fields["total_ns"]


def test_a_batch_is_one_run_with_many_packets(testbed: Testbed, collector: InsideMeasurement) -> None:
    collector.begin()
    testbed.guests[0].send_udp(SENT, testbed.bridge, port=9)
    collector.settle()
    (row,) = collector.rows("tx_kick_path", "queues", device="vnet0")
    (vhost,) = collector.rows("vhost_queues", "queues", device="vnet0", direction="tx")
    assert row.counts["kicks"] == vhost.counts["kicks"] > 0
    assert row.counts["runs"] < row.counts["packets"] <= vhost.counts["packets"]
    after = stages_of(collector, "tx_kick_path")
    assert sum(after[stage].sum for stage in STAGES) == after["total"].sum


def test_interrupts_are_those_that_vhost_sent(testbed: Testbed, collector: InsideMeasurement) -> None:
    collector.begin()
    ping(testbed.hypervisor, testbed.guests[0], PINGS)
    collector.settle()
    whole(collector)
    name = testbed.guests[0].name
    lines = collector.rows("kvm_irqs", "lines", vm=name)
    assert len(lines) == 2, "one for what it receives, one for what it has sent"
    assert len({line.gauges["vector"] for line in lines}) == 2
    signals = collector.total("vhost_queues", "queues", "signals", device="vnet0")
    assert sum(line.counts["wakeups"] for line in lines) == signals
    assert sum(line.counts["accepted"] for line in lines) == signals


def test_virtual_cpus_halt_between_packets(testbed: Testbed, collector: InsideMeasurement) -> None:
    collector.begin()
    ping(testbed.hypervisor, testbed.guests[0], PINGS)
    collector.settle()
    (vcpu,) = collector.rows("kvm_irqs", "vcpus", vm=testbed.guests[0].name)
    assert vcpu.labels["vcpu"] == 0
    assert vcpu.counts["halts"] > 0
    assert vcpu.counts["halted_ns"] > 0
    assert vcpu.counts["kicks"] > 0
    assert len({row.labels["vcpu"] for row in collector.rows("kvm_irqs", "vcpus", vm=testbed.guests[1].name)}) <= 2


def test_a_worker_without_cpu_shows_in_its_stage(testbed: Testbed, collector: InsideMeasurement) -> None:
    readings = []
    for busy in (False, False, True):
        if busy:
            with worker_on_a_busy_cpu(testbed.hypervisor, testbed.guests[0]):
                ping(testbed.hypervisor, testbed.guests[0], PINGS)
        else:
            ping(testbed.hypervisor, testbed.guests[0], PINGS)
        collector.settle()
        readings.append(stages_of(collector, "tx_kick_path"))
    healthy, delayed = means_ns(readings[0], readings[1]), means_ns(readings[1], readings[2])
    assert delayed["K1-K2"] > SLOWER * healthy["K1-K2"]
    assert delayed["K1-K2"] > 0.5 * delayed["total"], delayed
