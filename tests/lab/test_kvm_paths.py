"""tx_kick_path and kvm_irqs: kicks, runs and interrupts of known traffic, held against what vhost itself did."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import pytest

from netconsole.histogram import percentile

from .collector import InsideMeasurement, between, stages_of
from .peer import DEVICE, FAR, RING_BUFFERS, Peer
from .testbed import Testbed
from .traffic import flood, ping

pytestmark = pytest.mark.lab

PROBES = ("vhost_queues", "irq_path", "tx_kick_path", "kvm_irqs")
PINGS = 40
SENT = 5000
OFFERED = 400
TAKEN = "kprobe:vhost_add_used_and_signal_n"
STAGES = ("K1-K2", "K2-K3", "K3-K4")


def test_everything_attaches(vm_path: InsideMeasurement) -> None:
    for probe in ("tx_kick_path", "kvm_irqs"):
        status = vm_path.statuses[probe]
        assert status.state == "attached", (status.why, status.missing)


def test_no_kprobe_needs_a_breakpoint(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    """All are at the entries of functions, where ftrace calls them: no int3, no instruction is stepped over."""
    listed = testbed.hypervisor.read_file("/sys/kernel/debug/kprobes/list").decode().splitlines()
    assert any("handle_tx_kick" in line for line in listed)
    assert [line for line in listed if "[FTRACE]" not in line] == []


def test_replies_to_a_ping_are_followed_whole(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    vm_path.begin()
    before = stages_of(vm_path, "tx_kick_path")
    round_trips_ms = ping(testbed.hypervisor, testbed.guests[0], PINGS)
    vm_path.settle()
    vm_path.assert_whole("vhost_queues", "tx_kick_path", "kvm_irqs")
    (row,) = vm_path.rows("tx_kick_path", "queues", device="vnet0")
    (vhost,) = vm_path.rows("vhost_queues", "queues", device="vnet0", direction="tx")
    assert row.counts["packets"] == vhost.counts["packets"] == PINGS
    assert row.counts["kicks"] == vhost.counts["kicks"]
    assert row.counts["runs"] + row.counts["unseen"] <= row.counts["kicks"]
    assert row.labels["vm"] == testbed.guests[0].name

    taken = between(before, stages_of(vm_path, "tx_kick_path"))
    assert set(taken) == {*STAGES, "total"}
    assert {one.count for one in taken.values()} == {row.counts["runs"]}
    assert sum(taken[stage].sum for stage in STAGES) == taken["total"].sum
    assert 0 < (percentile(taken["total"], 50) or 0) / 1e6 < statistics.median(round_trips_ms)
    events = [event.fields for event in vm_path.events if event.probe == "tx_kick_path"]
    assert len(events) == row.counts["runs"]
    for fields in events:
        parts = [fields[f"k{n}_k{n + 1}_ns"] for n in range(1, 4)]
        assert sum(part for part in parts if isinstance(part, int)) == fields["total_ns"]


def test_a_batch_is_one_run_with_many_packets(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    vm_path.begin()
    testbed.guests[0].send_udp(SENT, testbed.bridge, port=9)
    vm_path.settle()
    (row,) = vm_path.rows("tx_kick_path", "queues", device="vnet0")
    (vhost,) = vm_path.rows("vhost_queues", "queues", device="vnet0", direction="tx")
    assert row.counts["kicks"] == vhost.counts["kicks"] > 0
    assert row.counts["runs"] < row.counts["packets"] <= vhost.counts["packets"]
    after = stages_of(vm_path, "tx_kick_path")
    assert sum(after[stage].sum for stage in STAGES) == after["total"].sum


def test_interrupts_are_those_that_vhost_sent(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    vm_path.begin()
    ping(testbed.hypervisor, testbed.guests[0], PINGS)
    vm_path.settle()
    vm_path.assert_whole("vhost_queues", "tx_kick_path", "kvm_irqs")
    name = testbed.guests[0].name
    lines = vm_path.rows("kvm_irqs", "lines", vm=name)
    assert len(lines) == 2, "one for what it receives, one for what it has sent"
    assert len({line.gauges["vector"] for line in lines}) == 2
    signals = vm_path.total("vhost_queues", "queues", "signals", device="vnet0")
    for count in ("wakeups", "msi", "at_once", "accepted"):
        assert sum(line.counts[count] for line in lines) == signals
    assert sum(line.counts["deferred"] for line in lines) == 0


@pytest.mark.parametrize("options", [(), ("legacy-lines",)], ids=["messages", "IO-APIC"])
def test_lines_that_need_a_kernel_worker(
    testbed: Testbed, vm_path: InsideMeasurement, options: tuple[str, ...]
) -> None:
    """A message is delivered at once. Through the IO-APIC nothing is: a worker comes, once for all until then."""
    with Peer(testbed.hypervisor, *options) as peer:
        peer.offer(RING_BUFFERS)
        vm_path.begin()
        flood(testbed.hypervisor, FAR, OFFERED)
        vm_path.until(lambda: vm_path.total("vhost_queues", "queues", "packets", device=DEVICE) == OFFERED, "packets")
        vm_path.settle()  # the worker comes a moment after the last signal
        vm_path.assert_whole("vhost_queues", "irq_path", "kvm_irqs")
        (line,) = vm_path.rows("kvm_irqs", "lines", vm=None)
        (row,) = vm_path.rows("irq_path", "queues", device=DEVICE)
        signals = vm_path.total("vhost_queues", "queues", "signals", device=DEVICE, direction="rx")
        assert line.counts["wakeups"] == signals > 0
        if options:
            assert line.counts["msi"] == line.counts["at_once"] == 0
            assert 0 < line.counts["deferred"] == line.counts["accepted"] <= signals
            assert 0 < row.counts["interrupts"] == row.counts["deferred"] <= line.counts["accepted"]
        else:
            assert line.counts["msi"] == line.counts["at_once"] == line.counts["accepted"] == signals
            assert row.counts["interrupts"] == signals
            assert line.counts["deferred"] == row.counts["deferred"] == 0
        assert row.counts["packets"] == OFFERED == row.counts["interrupts"] + row.counts["coalesced"]
        found = stages_of(vm_path, "irq_path", DEVICE)
        assert sum(one.sum for stage, one in found.items() if stage != "total") == found["total"].sum


def test_virtual_cpus_halt_between_packets(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    vm_path.begin()
    ping(testbed.hypervisor, testbed.guests[0], PINGS)
    vm_path.settle()
    (vcpu,) = vm_path.rows("kvm_irqs", "vcpus", vm=testbed.guests[0].name)
    assert vcpu.labels["vcpu"] == 0
    assert vcpu.counts["halts"] > 0
    assert vcpu.counts["halted_ns"] > 0
    assert vcpu.counts["kicks"] > 0
    assert len({row.labels["vcpu"] for row in vm_path.rows("kvm_irqs", "vcpus", vm=testbed.guests[1].name)}) <= 2


@dataclass(frozen=True)
class Wrong:
    """One member of a shipped probe in another place than it is, and what the probe then says."""

    probe: str
    right: str
    wrong: str
    says: str
    lost: str
    keeps: int
    """Programs that do not rely on it."""


LAYOUTS = (
    Wrong(
        "tx_kick_path",
        "NC_READ(vq, private_data)",
        "(struct socket *)NC_READ(vq, acked_features)",
        "no queue of a tap",
        "kprobe:handle_tx_kick",
        0,
    ),
    # Not irq_entry.type: for messages that is 2, and so is the first line that QEMU gives out.
    Wrong("irq_path", "irq_entry.gsi)", "irq_entry.msi.address_lo)", "different lines", "kprobe:irqfd_wakeup", 4),
    Wrong("tun_queues", "source == &tfile->tx_ring", "!source", "not that of the tap's queue", TAKEN, 3),
)


@pytest.mark.parametrize("case", LAYOUTS, ids=lambda case: case.probe)
def test_a_wrong_layout_ends_what_relies_on_it(testbed: Testbed, vm_path: InsideMeasurement, case: Wrong) -> None:
    """The probe as it ships but for the place of one member: it finds out by itself, stops that and says why."""
    name = vm_path.load_altered(case.probe, case.right, case.wrong)
    try:
        assert vm_path.statuses[name].state == "attached"
        ping(testbed.hypervisor, testbed.guests[0], PINGS)
        vm_path.until(lambda: vm_path.statuses[name].state == "degraded", "the refusal")
        status = vm_path.statuses[name]
        assert case.says in (status.why or "")
        assert case.lost in status.missing
        assert len(status.attach) == case.keeps
        if not case.keeps:
            assert not vm_path.rows(name, "queues") and not vm_path.histograms(name, "stages")
    finally:
        vm_path.command(command="unload", probe=name)


def test_the_eventfd_function_of_newer_kernels(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    """From 6.8 on eventfd_signal is only a name for eventfd_signal_mask: with that alone the same is seen."""
    name = vm_path.load_altered("irq_path", points={"s3": "kprobe:eventfd_signal_mask"})
    try:
        status = vm_path.statuses[name]
        assert status.state == "attached", status.why
        assert "kprobe:eventfd_signal_mask" in status.attach
        vm_path.begin()
        ping(testbed.hypervisor, testbed.guests[0], PINGS)
        vm_path.settle()
        vm_path.assert_whole("irq_path", name)
        (row,), (newer,) = (vm_path.rows(probe, "queues", device="vnet0") for probe in ("irq_path", name))
        assert newer.counts == row.counts
    finally:
        vm_path.command(command="unload", probe=name)
