"""irq_path: it follows every packet and interrupt of a ping, stages add up, and a delay shows in the right stage."""

from __future__ import annotations

import statistics

import pytest

from netconsole.telemetry import frames
from netconsole.telemetry.histogram import add, percentile
from tests.lab.collector import InsideMeasurement, between, means_ns, stages_of
from tests.lab.network.testbed import Testbed
from tests.lab.network.traffic import BUSY_S, flood, ping, worker_on_a_busy_cpu

PROBES = ("vhost_queues", "irq_path", "tx_kick_path")
PINGS = 40
PINGS_DELAYED = 15
FLOOD = 3000
STAGES = ("S1-S2", "S2-S3", "S3-S4", "S4-S5")
DELAYED_NS = (
    BUSY_S * 1e9 / 4
)  # what comes while the CPU is taken waits half of that on average; it is nearly always taken


def stages(vm_path: InsideMeasurement) -> dict[str, frames.Buckets]:
    return stages_of(vm_path, "irq_path")


@pytest.mark.proves("irq_path", "tables.queues.vm", "histograms.stages.{device,stage}")
def test_a_ping_is_followed_whole(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    vm_path.begin()
    before = stages(vm_path)
    round_trips_ms = ping(testbed.hypervisor, testbed.guests[0], PINGS)
    vm_path.settle()
    vm_path.assert_whole("irq_path")

    (row,) = vm_path.rows("irq_path", "queues", device="vnet0")
    assert row.counts["packets"] + row.counts["polled_packets"] == PINGS
    assert row.counts["packets"] - row.counts["coalesced"] == row.counts["interrupts"] > 0
    assert row.labels["vm"] == testbed.guests[0].name
    (to_guest,) = vm_path.rows("vhost_queues", "queues", device="vnet0", direction="rx")
    assert to_guest.counts["packets"] == PINGS
    assert to_guest.counts["signals"] == row.counts["interrupts"]

    taken = between(before, stages(vm_path))
    assert set(taken) == {*STAGES, "total"}
    assert {one.count for one in taken.values()} == {row.counts["interrupts"]}
    assert sum(taken[stage].sum for stage in STAGES) == taken["total"].sum
    assert 0 < (percentile(taken["total"], 50) or 0) / 1e6 < statistics.median(round_trips_ms)


@pytest.mark.proves("irq_path", "events.interrupt.device", "modes.details")
def test_stages_of_each_interrupt_are_its_total(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    vm_path.begin()
    ping(testbed.hypervisor, testbed.guests[0], PINGS)
    vm_path.settle()
    events = [event.fields for event in vm_path.events if event.probe == "irq_path"]
    assert len(events) == vm_path.counter("irq_path", "interrupts") > 0
    for fields in events:
        parts = [fields[f"s{n}_s{n + 1}_ns"] for n in range(1, 5)]
        assert all(isinstance(part, int) and part > 0 for part in parts)
        assert sum(part for part in parts if isinstance(part, int)) == fields["total_ns"]
    assert {(fields["device"], fields["vm"]) for fields in events} == {("vnet0", testbed.guests[0].name)}
    assert len({fields["gsi"] for fields in events}) == 1, "one queue, one interrupt line"


@pytest.mark.proves("irq_path", "tables.queues.{packets,polled_packets,interrupts,polled_batches}")
def test_a_flood_is_coalesced_or_polled_but_never_lost(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    vm_path.begin()
    flood(testbed.hypervisor, testbed.guests[0].card.at.ip, FLOOD)
    # The last batch is known to be polled when the next one comes.
    ping(testbed.hypervisor, testbed.guests[0], 1)
    vm_path.settle()
    vm_path.assert_whole("irq_path")
    (row,) = vm_path.rows("irq_path", "queues", device="vnet0")
    (to_guest,) = vm_path.rows("vhost_queues", "queues", device="vnet0", direction="rx")
    assert row.counts["packets"] + row.counts["polled_packets"] == to_guest.counts["packets"]
    assert row.counts["interrupts"] + row.counts["polled_batches"] == to_guest.counts["batches"]
    assert row.counts["coalesced"] > 0
    after = stages(vm_path)
    assert sum(after[stage].sum for stage in STAGES) == after["total"].sum


def test_a_worker_without_cpu_shows_in_its_stage(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    """To the guest in S1-S2, from it in K1-K2: what was put in, whatever else the machine does; and who is to blame."""
    guest, bridge = testbed.guests[0], testbed.bridge.ip

    def waited_ms() -> int:
        return vm_path.total("vhost_queues", "workers", "waited_ms", device="vnet0")

    def readings() -> tuple[dict[str, frames.Buckets], dict[str, frames.Buckets], dict[str, frames.Buckets]]:
        vm_path.settle()
        scheduled = vm_path.histograms("vhost_queues", "scheduled", device="vnet0")
        wake = vm_path.histograms("vhost_queues", "wake", device="vnet0", direction="rx")
        of_worker = {name: add(one.total for one in ones) for name, ones in (("scheduled", scheduled), ("wake", wake))}
        return stages(vm_path), stages_of(vm_path, "tx_kick_path"), of_worker

    ping(testbed.hypervisor, guest, PINGS_DELAYED)
    start, waited_before_ms = readings(), waited_ms()
    with worker_on_a_busy_cpu(testbed.hypervisor, guest):
        ping(testbed.hypervisor, guest, PINGS_DELAYED)
        to_guest, waited_after_ms = readings(), waited_ms()
        guest.run(f"ping -c {PINGS_DELAYED} -i 0.1 -W 20 {bridge} >/dev/null")
        from_guest = readings()
    delayed = means_ns(start[0], to_guest[0])
    assert delayed["S1-S2"] > DELAYED_NS
    assert delayed["S1-S2"] > 0.5 * delayed["total"], delayed
    assert means_ns(start[2], to_guest[2])["wake"] > DELAYED_NS
    kicks = means_ns(to_guest[1], from_guest[1])
    assert kicks["K1-K2"] > DELAYED_NS
    assert kicks["K1-K2"] > 0.5 * kicks["total"], kicks
    waited_ns = to_guest[2]["scheduled"].sum - start[2]["scheduled"].sum
    assert waited_ns > 0.5 * (to_guest[0]["S1-S2"].sum - start[0]["S1-S2"].sum)
    # The row is updated every 4 ms, and has whole milliseconds.
    assert 0.9 * waited_ns < 1_000_000 * (waited_after_ms - waited_before_ms) < 1.1 * waited_ns


@pytest.mark.parametrize("probe", ["irq_path", "tx_kick_path"])
@pytest.mark.proves("irq_path", "modes.summary")
@pytest.mark.proves("tx_kick_path", "modes.summary")
def test_summary_submits_no_event(testbed: Testbed, vm_path: InsideMeasurement, probe: str) -> None:
    vm_path.set(probe, "summary")
    try:
        vm_path.begin()
        ping(testbed.hypervisor, testbed.guests[0], PINGS)
        vm_path.settle()
        assert vm_path.total(probe, "queues", "interrupts" if probe == "irq_path" else "runs", device="vnet0") > 0
        assert {what: vm_path.event_count(probe, what) for what in ("seen", "submitted", "suppressed", "lost")} == {
            "seen": 0,
            "submitted": 0,
            "suppressed": 0,
            "lost": 0,
        }
    finally:
        vm_path.set(probe, "details", events_per_s=10_000, threshold_us=0)
