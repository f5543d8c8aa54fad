"""tx_kick_path and kvm_irqs: kicks, runs and interrupts of known traffic, compared with what vhost itself did."""

from __future__ import annotations

import statistics
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import NamedTuple

import pytest

from netconsole.telemetry.histogram import percentile
from tests.conftest import CANNOT
from tests.lab.collector import InsideMeasurement, between, stages_of
from tests.lab.network.peer import DEVICE, FAR, RING_BUFFERS, Peer
from tests.lab.network.testbed import Testbed
from tests.lab.network.traffic import flood, ping, worker_on_a_busy_cpu
from tests.support.live.measurement import manifest_of

PROBES = ("vhost_queues", "irq_path", "tx_kick_path", "kvm_irqs")
PINGS = 40
SENT = 10_000
FLOODS = 16
"""At most, until there was what is looked for."""
OFFERED = 400
TAKEN = "vhost_add_used_and_signal_n"
STAGES = ("K1-K2", "K2-K3", "K3-K4")


def test_everything_attaches(vm_path: InsideMeasurement) -> None:
    for probe in ("tx_kick_path", "kvm_irqs"):
        status = vm_path.statuses[probe]
        assert status.state == "attached", (status.why, status.missing)


@pytest.mark.proves(
    "tx_kick_path", "tables.queues.{device,vm,packets,kicks}", "histograms.stages.{device,stage}", "modes.details"
)
def test_replies_to_a_ping_are_followed_whole(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    vm_path.begin()
    before = stages_of(vm_path, "tx_kick_path")
    round_trips_ms = ping(testbed.hypervisor, testbed.guests[0], PINGS)
    vm_path.settle()
    vm_path.assert_whole("vhost_queues", "tx_kick_path")
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


@pytest.mark.parametrize("held", [False, True], ids=["free worker", "worker without CPU"])
@pytest.mark.proves("tx_kick_path", "tables.queues.{runs,kicks,batches,packets,continued_runs,continued_packets}")
@pytest.mark.proves("vhost_queues", "tables.queues.{runs,kicks,batches}")
def test_a_flood_is_counted_to_the_packet(testbed: Testbed, vm_path: InsideMeasurement, held: bool) -> None:
    """A guest sends as fast as it can, so that vhost sends batches: in runs that a kick began, and in those behind a
    run that was long enough (VHOST_NET_PKT_WEIGHT), as sooner or later where the worker finds the whole ring filled."""
    guest = testbed.guests[0]
    vm_path.begin()
    before = testbed.hypervisor.counter(guest.card.tap, "rx_packets")
    with worker_on_a_busy_cpu(testbed.hypervisor, guest) if held else nullcontext():
        for _ in range(FLOODS):
            guest.send_udp(SENT, testbed.bridge, port=9)
            vm_path.settle()
            if not held or vm_path.total("tx_kick_path", "queues", "continued_runs", device=guest.card.tap):
                break
    vm_path.assert_whole("vhost_queues", "tx_kick_path")
    of_tap = testbed.hypervisor.counter(guest.card.tap, "rx_packets") - before
    (row,) = vm_path.rows("tx_kick_path", "queues", device=guest.card.tap)
    (vhost,) = vm_path.rows("vhost_queues", "queues", device=guest.card.tap, direction="tx")
    assert of_tap >= SENT
    assert row.counts["packets"] + row.counts["continued_packets"] == vhost.counts["packets"] == of_tap
    assert row.counts["batches"] == vhost.counts["batches"] < of_tap / 2
    assert row.counts["runs"] + row.counts["unseen"] + row.counts["continued_runs"] == vhost.counts["runs"]
    assert row.counts["kicks"] == vhost.counts["kicks"] > 0
    if held:
        assert row.counts["continued_runs"] > 0
    after = stages_of(vm_path, "tx_kick_path")
    assert sum(after[stage].sum for stage in STAGES) == after["total"].sum


@pytest.mark.proves("kvm_irqs", "tables.lines.{wakeups,msi,at_once,accepted,vm}", "modes.summary")
@pytest.mark.proves("kvm_irqs", "tables.wires.{vm,gsi,device,queue,direction,signals}")
def test_interrupts_are_those_that_vhost_sent(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    vm_path.begin()
    ping(testbed.hypervisor, testbed.guests[0], PINGS)
    vm_path.settle()
    vm_path.assert_whole("vhost_queues", "tx_kick_path")
    vm_path.assert_whole("kvm_irqs", but="missed")
    name = testbed.guests[0].name
    lines = vm_path.rows("kvm_irqs", "lines", vm=name)
    assert len(lines) == 2, "one for what it receives, one for what it has sent"
    assert len({line.gauges["vector"] for line in lines}) == 2
    signals = vm_path.total("vhost_queues", "queues", "signals", device="vnet0")
    for count in ("wakeups", "msi", "at_once", "accepted"):
        vm_path.assert_counted("kvm_irqs", sum(line.counts[count] for line in lines), signals)
    assert sum(line.counts["deferred"] for line in lines) == 0
    wires = {row.labels["direction"]: row for row in vm_path.rows("kvm_irqs", "wires", vm=name)}
    assert {row.labels["gsi"] for row in wires.values()} == {line.labels["gsi"] for line in lines}
    for direction in ("rx", "tx"):
        labels = wires[direction].labels
        assert (labels["device"], labels["queue"]) == ("vnet0", 0)
        (sent,) = vm_path.rows("vhost_queues", "queues", device="vnet0", direction=direction)
        vm_path.assert_counted("kvm_irqs", wires[direction].counts["signals"], sent.counts["signals"])


@pytest.mark.parametrize("options", [(), ("legacy-lines",)], ids=["messages", "IO-APIC"])
@pytest.mark.proves("irq_path", "tables.queues.{interrupts,packets,device}")
@pytest.mark.proves("irq_path", "tables.queues.{coalesced,deferred}")
@pytest.mark.proves("kvm_irqs", "tables.lines.deferred")
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
        vm_path.assert_whole("vhost_queues", "irq_path")
        vm_path.assert_whole("kvm_irqs", but="missed")
        (line,) = vm_path.rows("kvm_irqs", "lines", vm=None)
        (row,) = vm_path.rows("irq_path", "queues", device=DEVICE)
        signals = vm_path.total("vhost_queues", "queues", "signals", device=DEVICE, direction="rx")
        assert signals > 0
        vm_path.assert_counted("kvm_irqs", line.counts["wakeups"], signals)
        if options:
            assert line.counts["msi"] == line.counts["at_once"] == 0
            missed = vm_path.ledger("kvm_irqs", "missed")
            assert 0 < line.counts["accepted"] <= signals
            assert abs(line.counts["deferred"] - line.counts["accepted"]) <= missed
            assert 0 < row.counts["interrupts"] == row.counts["deferred"] <= line.counts["accepted"] + missed
        else:
            for count in ("msi", "at_once", "accepted"):
                vm_path.assert_counted("kvm_irqs", line.counts[count], signals)
            assert row.counts["interrupts"] == signals
            assert line.counts["deferred"] == row.counts["deferred"] == 0
        assert row.counts["packets"] == OFFERED == row.counts["interrupts"] + row.counts["coalesced"]
        found = stages_of(vm_path, "irq_path", DEVICE)
        assert sum(one.sum for stage, one in found.items() if stage != "total") == found["total"].sum


@pytest.mark.proves("kvm_irqs", "tables.vcpus.vm")
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


class Wrong(NamedTuple):
    """One member of a shipped probe in another place than it is, and what the probe then says."""

    right: str
    wrong: str
    says: str
    lost: str
    """The function on which a program is missing, or how its name begins: eventfd_signal has another from 6.8 on."""
    keeps: int
    """Programs that do not rely on it."""


BACKEND = ("NC_READ(vq, private_data)", "(struct socket *)NC_READ(vq, acked_features)", "no queue of a tap")
RING = "not that of the tap's queue"
# Not irq_entry.type: for messages that is 2, and so is the first line that QEMU gives out.
LINE = ("irq_entry.gsi)", "irq_entry.msi.address_lo)", "different lines", "irqfd_wakeup")
LAYOUTS = {
    "vhost_queues": (
        Wrong(*BACKEND, "handle_tx_kick", 2),
        Wrong("ring == &tfile->tx_ring", "!ring", RING, "handle_rx_net", 9),
    ),
    "tun_queues": (
        Wrong("socket.sk) == &tfile->sk", "socket.file) == (void *)tfile", "table of queues", TAKEN, 1),
        Wrong("source == &tfile->tx_ring", "!source", RING, TAKEN, 3),
    ),
    "irq_path": (Wrong(*BACKEND, "eventfd_signal", 0), Wrong(*LINE, 4)),
    "tx_kick_path": (
        Wrong(*BACKEND, "handle_tx_kick", 0),
        Wrong("NC_READ(vq, kick)", "(void *)NC_READ(vq, error_ctx)", "not passed on", "tun_sendmsg", 0),
    ),
    "kvm_irqs": (Wrong(*LINE, 3),),
}
"""For every check that one of these probes has."""


@pytest.mark.parametrize("probe", LAYOUTS)
def test_a_wrong_layout_ends_what_relies_on_it(testbed: Testbed, vm_path: InsideMeasurement, probe: str) -> None:
    """The probe as it ships but for the place of one member: it finds out by itself, stops that and says why."""
    cases = LAYOUTS[probe]
    assert len(cases) == len(manifest_of(probe).raw["checks"])  # type: ignore[arg-type]

    def load(number: int) -> str:
        return vm_path.load_altered(probe, cases[number].right, cases[number].wrong, number=number)

    with ThreadPoolExecutor() as pool:  # the collector compiles two at once
        names = list(pool.map(load, range(len(cases))))
    try:
        assert {vm_path.statuses[name].state for name in names} == {"attached"}
        ping(testbed.hypervisor, testbed.guests[0], PINGS)
        for name, case in zip(names, cases, strict=True):
            vm_path.until(lambda name=name: vm_path.statuses[name].state == "degraded", "the refusal")  # type: ignore[misc]
            status = vm_path.statuses[name]
            assert case.says in (status.why or "")
            assert any(point.partition(":")[2].startswith(case.lost) for point in status.missing), status.missing
            assert len(status.attach) == case.keeps
            if not case.keeps:
                assert not vm_path.rows(name, "queues") and not vm_path.histograms(name, "stages")
    finally:
        for name in names:
            vm_path.command(command="unload", probe=name)


def test_the_eventfd_function_of_newer_kernels(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    """From 6.8 on eventfd_signal is only a name for eventfd_signal_mask: with that alone the same is seen."""
    symbols = testbed.hypervisor.read_file("/proc/kallsyms").decode()
    if " eventfd_signal_mask\n" not in symbols:
        pytest.skip(f"{CANNOT}this kernel has only the older one")
    name = vm_path.load_altered("irq_path", points={"s3": "entry:eventfd_signal_mask"})
    try:
        status = vm_path.statuses[name]
        assert status.state == "attached", status.why
        assert any(point.endswith(":eventfd_signal_mask") for point in status.attach)
        vm_path.begin()
        ping(testbed.hypervisor, testbed.guests[0], PINGS)
        vm_path.settle()
        vm_path.assert_whole("irq_path", name)
        (row,), (newer,) = (vm_path.rows(probe, "queues", device="vnet0") for probe in ("irq_path", name))
        assert newer.counts == row.counts
    finally:
        vm_path.command(command="unload", probe=name)
