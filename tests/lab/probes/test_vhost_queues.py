"""vhost_queues and tun_queues, compared with the packets that ping, the sender or the tap has counted."""

from __future__ import annotations

import functools
import time
from typing import NamedTuple

import pytest

from netconsole.findings.guest_ring import interrupt, told
from netconsole.telemetry import frames
from netconsole.telemetry.histogram import add
from tests.lab.collector import InsideMeasurement
from tests.lab.kernels.each import PROVEN
from tests.lab.network.peer import DEVICE, FAR, MAC, RING_BUFFERS, Peer
from tests.lab.network.testbed import Testbed
from tests.lab.network.traffic import flood, flows, frozen, large_segments, paused, ping
from tests.support.live.measurement import Row

pytestmark = pytest.mark.parametrize("testbed", PROVEN, indirect=True)

PROBES = ("vhost_queues", "tun_queues")
PINGS = 40
FLOOD = 5000
SENT = 5000
OFFERED = 400
FLOWS, EACH, PARTS = 60, 5, 64
SEGMENTED, SEGMENTS, SEGMENT_BYTES = 20, 4, 900
VHOST_BATCH = 64  # VHOST_NET_BATCH: what vhost has taken from the ring and cannot deliver
DRAIN_LIMIT_S = 20.0
ATTACHED_AMID_TRAFFIC = 4
ECHO_BYTES = 98  # of busybox's ping, with its Ethernet header


class TapCounters(NamedTuple):
    """What the tap itself has counted (rx: from the guest)."""

    tx_packets: int
    tx_bytes: int
    tx_dropped: int
    rx_packets: int
    rx_bytes: int


def tap(testbed: Testbed, guest: int = 0) -> TapCounters:
    device = testbed.guests[guest].card.tap
    return TapCounters(*(testbed.hypervisor.counter(device, name) for name in TapCounters._fields))


def since(before: TapCounters, after: TapCounters) -> TapCounters:
    return TapCounters(*(b - a for a, b in zip(before, after, strict=True)))


def vhost(vm_path: InsideMeasurement, direction: str, device: str = "vnet0") -> Row:
    rows = vm_path.rows("vhost_queues", "queues", device=device, direction=direction)
    assert len(rows) == 1, rows
    return rows[0]


def vhost_packets(vm_path: InsideMeasurement, device: str) -> int:
    return vm_path.total("vhost_queues", "queues", "packets", device=device, direction="rx")


def test_everything_attaches(vm_path: InsideMeasurement) -> None:
    for probe in ("vhost_queues", "tun_queues"):
        status = vm_path.statuses[probe]
        assert status.state == "attached", (status.why, status.missing)


def test_a_run_that_went_on_when_it_was_attached_is_not_counted_in_part(
    testbed: Testbed, vm_path: InsideMeasurement
) -> None:
    """Else its headers, say, are taken off bytes that were never added."""
    hypervisor, guest = testbed.hypervisor, testbed.guests[0]
    with hypervisor.start("busybox", "ping", "-q", "-A", guest.card.at.ip):
        for number in range(ATTACHED_AMID_TRAFFIC):
            name = vm_path.load_altered("vhost_queues", number=number)
            rows = functools.partial(vm_path.rows, name, "queues", device=guest.card.tap, direction="rx")
            vm_path.until(lambda rows=rows: bool(rows()), "a run")  # type: ignore[misc]
            (row,) = rows()
            assert row.counts["bytes"] == row.counts["packets"] * ECHO_BYTES, row.counts
            assert row.counts["kicks"] + row.counts["arrivals"] <= row.counts["runs"] + row.counts["packets"]
            assert vm_path.command(command="unload", probe=name).ok
    guest.revive()  # it may have lost an interrupt in the flood (docs/design/lab.md)


@pytest.mark.proves("vhost_queues", "tables.queues.{packets,buffers,bytes,device,direction}")
@pytest.mark.proves("tun_queues", "tables.queues.{packets,taken,bytes,device}")
@pytest.mark.proves("vhost_queues", "modes.summary")
@pytest.mark.proves("tun_queues", "modes.summary")
def test_k_pings_are_k_packets_in_each_direction(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    vm_path.begin()
    before = tap(testbed)
    ping(testbed.hypervisor, testbed.guests[0], PINGS)
    vm_path.settle()
    counted = since(before, tap(testbed))
    vm_path.assert_whole("vhost_queues", "tun_queues")
    assert counted.tx_packets == counted.rx_packets == PINGS

    to_guest, from_guest = vhost(vm_path, "rx"), vhost(vm_path, "tx")
    assert to_guest.counts["packets"] == to_guest.counts["buffers"] == PINGS
    assert to_guest.counts["bytes"] == counted.tx_bytes
    assert from_guest.counts["packets"] == PINGS
    assert from_guest.counts["bytes"] == counted.rx_bytes

    (ring,) = vm_path.rows("tun_queues", "queues", device="vnet0")
    assert ring.counts["packets"] == ring.counts["taken"] == PINGS
    assert ring.counts["bytes"] == counted.tx_bytes
    assert ring.counts["ring_full"] == 0


@pytest.mark.proves("vhost_queues", "tables.queues.vm", "tables.workers.{vm,device}")
def test_rows_carry_the_name_of_the_vm(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    ping(testbed.hypervisor, testbed.guests[0], 1)
    vm_path.settle()
    for table in ("queues", "workers"):
        (vm,) = {row.labels["vm"] for row in vm_path.rows("vhost_queues", table, device="vnet0")}
        assert vm == testbed.guests[0].name


def test_a_run_belongs_to_a_wake_up_and_has_a_length(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    vm_path.begin()
    ping(testbed.hypervisor, testbed.guests[0], PINGS)
    vm_path.settle()
    to_guest, from_guest = vhost(vm_path, "rx"), vhost(vm_path, "tx")
    assert to_guest.counts["arrivals"] >= 1
    assert from_guest.counts["kicks"] >= 1
    for row in (to_guest, from_guest):
        assert row.counts["runs"] >= row.counts["batches"] - row.counts["empty_runs"] > 0
        assert row.counts["run_ns"] > 0
        assert row.counts["signals"] + row.counts["suppressed"] == row.counts["batches"]
    for name in ("wake", "run", "batch"):
        for direction in ("rx", "tx"):
            found = vm_path.histograms("vhost_queues", name, device="vnet0", direction=direction)
            assert found  # a worker that has begun anew has one of its own
            for one in found:
                assert sum(count for _, count in one.total.buckets) == one.total.count > 0
    (worker,) = vm_path.rows("vhost_queues", "workers", device="vnet0")
    assert worker.counts["cpu_ns"] > 0
    assert worker.gauges["cpu"] in (0, 1)
    assert worker.gauges["node"] == 0


def test_batches_of_the_guest_are_counted_packet_by_packet(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    """A flood makes vhost send many at once: one call, one signal or none, and yet each packet and byte is counted."""
    vm_path.begin()
    before = tap(testbed)
    testbed.guests[0].send_udp(SENT, testbed.bridge, port=9)
    vm_path.settle()
    counted = since(before, tap(testbed))
    row = vhost(vm_path, "tx")
    assert vm_path.ledger("vhost_queues", "missed") == 0
    assert counted.rx_packets >= SENT
    assert row.counts["packets"] == counted.rx_packets
    assert row.counts["bytes"] == counted.rx_bytes
    assert row.counts["batches"] < SENT / 2
    assert row.counts["suppressed"] > 0, "a guest that polls wants no interrupts"


@pytest.mark.proves("vhost_queues", "tables.queues.{unsignalled_buffers,depth_buffers,buffers}")
@pytest.mark.proves("vhost_queues", "tables.queues.suppressed")
def test_a_guest_that_wants_no_interrupts(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    """Packet by packet: each batch is one interrupt, or one that is suppressed, as the guest wants."""
    with Peer(testbed.hypervisor) as peer:
        peer.offer(RING_BUFFERS)
        peer.want_interrupts(False)
        vm_path.begin()
        flood(testbed.hypervisor, FAR, OFFERED)
        vm_path.until(lambda: vhost_packets(vm_path, DEVICE) == OFFERED, "all packets")
        row = vhost(vm_path, "rx", DEVICE)
        assert row.counts["suppressed"] == row.counts["batches"] > 0
        assert row.counts["signals"] == 0
        assert row.gauges["unsignalled_buffers"] == row.counts["buffers"] == peer.used() == OFFERED

        peer.want_interrupts(True)
        vm_path.begin()
        flood(testbed.hypervisor, FAR, OFFERED)
        vm_path.until(lambda: vhost_packets(vm_path, DEVICE) == OFFERED, "all packets")
        row = vhost(vm_path, "rx", DEVICE)
        assert row.counts["signals"] == row.counts["batches"] > 0
        assert row.counts["suppressed"] == row.gauges["unsignalled_buffers"] == 0
        assert row.gauges["depth_buffers"] == RING_BUFFERS - 2 * OFFERED


@pytest.mark.proves("vhost_queues", "tables.queues.signals")
def test_a_guest_that_names_its_next_interrupt(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    """By the index of a used buffer, as drivers do today: the batch that passes it is an interrupt, and no other."""
    with Peer(testbed.hypervisor, "event-index") as peer:
        peer.offer(RING_BUFFERS)
        vm_path.begin()
        flood(testbed.hypervisor, FAR, 1)  # vhost signals the first one in any case
        vm_path.until(lambda: vhost_packets(vm_path, DEVICE) == 1, "the first packet")
        peer.want_event(OFFERED // 2)
        vm_path.begin()
        flood(testbed.hypervisor, FAR, OFFERED)
        vm_path.until(lambda: vhost_packets(vm_path, DEVICE) == OFFERED, "all packets")
        row = vhost(vm_path, "rx", DEVICE)
        assert row.counts["signals"] == 1
        assert row.counts["suppressed"] == row.counts["batches"] - 1 > 0
        assert 0 < (row.gauges["unsignalled_buffers"] or 0) <= OFFERED // 2


@pytest.mark.proves("vhost_queues", "tables.queues.{starving,unanswered}")
def test_a_guest_that_does_not_react_is_told_from_one_that_polls(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    """By an event index it gets one interrupt and, while it does not move the index, no more: as if it wanted none."""
    with Peer(testbed.hypervisor, "event-index") as peer:
        peer.offer(OFFERED)
        vm_path.begin()
        flood(testbed.hypervisor, FAR, FLOOD)
        vm_path.settle()
        row = vhost(vm_path, "rx", DEVICE)
        assert row.counts["signals"] == 1 and row.counts["suppressed"] > 0
        assert (row.gauges["unsignalled_buffers"] or 0) > 0
        assert (row.gauges["starving"], row.gauges["unanswered"]) == (1, 1)
        assert [row.gauges[name] for name in ("avail_idx", "taken_idx", "used_idx")] == [OFFERED] * 3
        assert (row.gauges["has_event"], row.gauges["used_event"]) == (1, 0)
        assert "0 of" in told(row.gauges) and f"behind 0, {OFFERED} ago" in interrupt(row.gauges)

        peer.want_event(OFFERED)
        peer.offer(0)  # a kick: vhost looks, and finds that the index has moved
        vm_path.until(lambda: vhost(vm_path, "rx", DEVICE).gauges["unanswered"] == 0, "its reaction")
        assert vhost(vm_path, "rx", DEVICE).gauges["starving"] == 1
        assert vhost(vm_path, "rx", DEVICE).gauges["used_event"] == 2 * OFFERED - 1


@pytest.mark.proves("vhost_queues", "events.run.{avail_idx,used_idx,device,direction}", "modes.details")
@pytest.mark.proves("tun_queues", "events.packet.{source,target,in_ring,size,device}", "modes.details")
def test_details_show_how_a_ring_ran_full_and_by_whose_packets(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    """Over time, from the first buffer to the last; the counts are those of the packets sent, as without."""
    with Peer(testbed.hypervisor, "event-index") as peer:
        peer.offer(OFFERED)
        for probe in PROBES:
            vm_path.set(probe, "details", events_per_s=1000)
        vm_path.begin()
        flood(testbed.hypervisor, FAR, FLOOD)
        vm_path.settle()
        for probe in PROBES:
            vm_path.set(probe, "summary")
        (ring,) = vm_path.rows("tun_queues", "queues", device=DEVICE)
        row = vhost(vm_path, "rx", DEVICE)
        assert ring.counts["packets"] == FLOOD
        assert ring.counts["taken"] == row.counts["packets"] == peer.used() == OFFERED
        assert ring.counts["ring_full"] == testbed.hypervisor.counter(DEVICE, "tx_dropped")
    runs = [one.fields for one in vm_path.events if one.name == "run" and one.fields["device"] == DEVICE]
    used = [one["used_idx"] for one in runs if one["direction"] == "rx"]
    assert used == sorted(used, key=int_of) and used[-1] == OFFERED and {one["avail_idx"] for one in runs} == {OFFERED}
    packets = [one.fields for one in vm_path.events if one.name == "packet" and one.fields["device"] == DEVICE]
    assert len(packets) > 20 and {one["target"] for one in packets} == {FAR}
    assert max(int_of(one["in_ring"]) for one in packets) >= 0.9 * int_of(packets[0]["size"])


def int_of(value: object) -> int:
    assert isinstance(value, int)
    return value


@pytest.mark.proves("tun_queues", "tables.queues.{tcp_gso,bytes,packets}")
@pytest.mark.proves("vhost_queues", "tables.queues.{buffers,bytes}")
def test_packets_of_many_segments(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    """Whole where the guest takes them so: one packet of several buffers. Cut by the host's stack where it does not."""
    with Peer(testbed.hypervisor) as peer:
        peer.offer(RING_BUFFERS)
        for whole in (True, False):
            peer.take_segments(whole)
            expected = SEGMENTED if whole else SEGMENTED * SEGMENTS
            vm_path.begin()
            before = testbed.hypervisor.counter(DEVICE, "tx_bytes")
            large_segments(testbed.hypervisor, DEVICE, MAC, SEGMENTED, SEGMENTS, SEGMENT_BYTES)
            vm_path.until(lambda count=expected: vhost_packets(vm_path, DEVICE) == count, "all packets")  # type: ignore[misc]
            vm_path.settle()  # tun_queues is read after vhost_queues
            (ring,) = vm_path.rows("tun_queues", "queues", device=DEVICE)
            row = vhost(vm_path, "rx", DEVICE)
            assert ring.counts["packets"] == ring.counts["taken"] == expected
            assert ring.counts["tcp_gso"] == (SEGMENTED if whole else 0)
            assert ring.counts["udp_gso"] == ring.counts["other_gso"] == 0
            assert row.counts["buffers"] == (2 * SEGMENTED if whole else expected)
            sent = testbed.hypervisor.counter(DEVICE, "tx_bytes") - before
            assert ring.counts["bytes"] == row.counts["bytes"] == sent


@pytest.mark.proves("tun_queues", "tables.spread.{flows,queue,device}")
def test_flows_of_a_queue(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    """As many as the host's hashes tell apart, never more than there are."""

    def seen(device: str) -> dict[frames.Label, int]:
        rows = vm_path.all_rows("tun_queues", "spread", device=device)
        return {row.labels["queue"]: int(row.gauges["flows"] or 0) for row in rows}

    with Peer(testbed.hypervisor) as peer:
        peer.offer(RING_BUFFERS)
        for count in (1, FLOWS):
            vm_path.begin()
            flows(testbed.hypervisor, FAR, count, EACH)
            vm_path.until(lambda sent=count * EACH: vhost_packets(vm_path, DEVICE) == sent, "all packets")  # type: ignore[misc]
            vm_path.settle()  # tun_queues is read after vhost_queues
            (of_queue,) = seen(DEVICE).values()
            if count == 1:
                assert of_queue == 1
            else:
                assert FLOWS // 3 < of_queue <= min(FLOWS + 1, PARTS)

    flows(testbed.hypervisor, testbed.guests[1].card.at.ip, FLOWS, EACH)
    vm_path.until(lambda: len(seen("vnet1")) == 2, "flows on both queues")


@pytest.mark.proves("tun_queues", "tables.queues.{ring_full,taken,stuck}")
@pytest.mark.proves("tun_queues", "tables.queues.size")
def test_a_guest_that_gives_no_more_buffers(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    """What it offered is used, the tap's ring filled, the rest dropped, to the packet; and that it is stuck is told."""
    with Peer(testbed.hypervisor) as peer:
        peer.offer(OFFERED)
        vm_path.begin()
        flood(testbed.hypervisor, FAR, FLOOD)
        vm_path.settle()
        (ring,) = vm_path.rows("tun_queues", "queues", device=DEVICE)
        row = vhost(vm_path, "rx", DEVICE)
        dropped = testbed.hypervisor.counter(DEVICE, "tx_dropped")
        assert ring.counts["packets"] == FLOOD
        assert ring.counts["taken"] == row.counts["packets"] == peer.used() == OFFERED
        assert ring.counts["ring_full"] == dropped > 0
        size = ring.gauges["size"] or 0
        assert 0.9 * size < FLOOD - OFFERED - dropped <= size + VHOST_BATCH
        assert (row.gauges["depth_buffers"], row.gauges["starving"]) == (0, 1)

        testbed.hypervisor.run("sleep", "1.1")  # the definition of stuck: nothing taken for a second
        flood(testbed.hypervisor, FAR, 10)
        vm_path.settle()
        assert vm_path.total("tun_queues", "queues", "stuck", device=DEVICE) >= 10

        peer.refill(True)
        vm_path.until(lambda: vhost(vm_path, "rx", DEVICE).gauges["starving"] == 0, "the end of it")
        vm_path.begin()
        flood(testbed.hypervisor, FAR, OFFERED)
        vm_path.until(lambda: vhost_packets(vm_path, DEVICE) == OFFERED, "all packets")
        vm_path.settle()  # tun_queues is read after vhost_queues
        assert vm_path.total("tun_queues", "queues", "ring_full", device=DEVICE) == 0
    vm_path.assert_whole("vhost_queues", "tun_queues")


@pytest.mark.proves("vhost_queues", "tables.queues.detached")
def test_a_paused_machine(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    """QEMU takes the queues away from vhost: that is told, and every packet that then finds the ring full."""
    guest = testbed.guests[0]
    ping(testbed.hypervisor, guest, 1)
    vm_path.begin()
    before = tap(testbed)
    with paused(guest):
        flood(testbed.hypervisor, guest.card.at.ip, FLOOD)
        vm_path.settle()
        rows = vm_path.all_rows("vhost_queues", "queues", device="vnet0", direction="rx")
        assert [row.gauges["detached"] for row in rows] == [1]
        dropped = since(before, tap(testbed)).tx_dropped
        assert vm_path.total("tun_queues", "queues", "ring_full", device="vnet0") == dropped > FLOOD / 2
    vm_path.until(lambda: vhost_packets(vm_path, "vnet0") > 0, "the machine to go on")
    assert vhost(vm_path, "rx").gauges["detached"] == 0


@pytest.mark.parametrize("queue", [0, 1])
@pytest.mark.proves("vhost_queues", "tables.queues.queue")
def test_queues_of_one_device_are_apart(testbed: Testbed, vm_path: InsideMeasurement, queue: int) -> None:
    vm_path.begin()
    testbed.guests[1].send_udp(SENT, testbed.bridge, port=9, queue=queue)
    vm_path.settle()
    packets = vm_path.total("vhost_queues", "queues", "packets", device="vnet1", direction="tx", queue=queue)
    assert packets == SENT
    others = vm_path.total("vhost_queues", "queues", "packets", device="vnet1", direction="tx", queue=1 - queue)
    assert others == 0


def test_a_guest_that_stops_reading(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    """Its buffers run out, the tap's ring fills up, and every packet is either delivered or counted as dropped."""
    guest = testbed.guests[0]
    vm_path.begin()
    before = tap(testbed)
    with frozen(testbed.hypervisor, guest):
        flood(testbed.hypervisor, guest.card.at.ip, FLOOD)
        vm_path.settle()
        stuck = vhost(vm_path, "rx")
        (ring,) = vm_path.rows("tun_queues", "queues", device="vnet0")
        dropped = since(before, tap(testbed)).tx_dropped
    assert dropped > FLOOD / 2
    assert ring.counts["packets"] == FLOOD
    assert ring.counts["ring_full"] == dropped
    assert stuck.gauges["depth_buffers"] == 0
    assert stuck.gauges["starving"] == 1
    assert stuck.gauges["unanswered"] == 1, "it got an interrupt, and did nothing"
    assert stuck.counts["starved_runs"] >= 1
    assert stuck.counts["packets"] == ring.counts["taken"]
    occupancy = add(one.total for one in vm_path.histograms("tun_queues", "occupancy", device="vnet0"))
    assert occupancy.max is not None
    assert occupancy.max > 0.9 * (ring.gauges["size"] or 0)

    deadline = time.monotonic() + DRAIN_LIMIT_S
    while since(before, tap(testbed)).tx_packets < FLOOD - dropped and time.monotonic() < deadline:
        pass
    vm_path.settle()
    vm_path.assert_whole("vhost_queues", "tun_queues")
    counted = since(before, tap(testbed))
    (ring,) = vm_path.rows("tun_queues", "queues", device="vnet0")
    assert counted.tx_packets + counted.tx_dropped == FLOOD
    assert ring.counts["taken"] == counted.tx_packets == vhost(vm_path, "rx").counts["packets"]
    assert ring.counts["ring_full"] == counted.tx_dropped
    assert vhost(vm_path, "rx").gauges["starving"] == 0
