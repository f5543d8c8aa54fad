"""virtio_blk: reads of a guest on a device whose time is known (null_blk), by each way in which QEMU asks for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netconsole.telemetry import frames
from netconsole.telemetry.histogram import add, percentile
from tests.lab.collector import InsideMeasurement, between
from tests.lab.kernels.each import PROVEN
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.machine.l2 import Card, Disk, Guest
from tests.lab.network.traffic import on_a_busy_cpu
from tests.support.live.measurement import Row

pytestmark = [pytest.mark.booting, pytest.mark.parametrize("bare", PROVEN, indirect=True)]

PROBE, BELOW = "virtio_blk", "block_path"
NAME = "disks"
CARD = Card("vnet9", "52:54:00:00:00:19", "10.77.9.10/24")
READS, FEW, TOGETHER = 100, 20, 32
BYTES = 4096
SLOW_NS = 20_000_000
STAGES = ("B1-B2", "B2-B3", "B3-B4", "B4-B5")
ON_THREAD = ("B1-B2", "B4-B5")
"""The thread has to run at the end of these."""
CLOSE = 0.25
WAYS = {
    "vda": Disk("/dev/nullb0", "native"),
    "vdb": Disk("/dev/nullb1", "io_uring", polls=False),
    "vdc": Disk("/dev/nullb2", "threads", polls=False),
    "vdd": Disk("/dev/nullb3", "native", iothread=False),
}


def device_of(disk: str) -> str:
    return WAYS[disk].path.rpartition("/")[2]


class Disks:
    """A guest with a disk for each way, and a collector that looks at it."""

    def __init__(self, hypervisor: Hypervisor, guest: Guest, collector: InsideMeasurement) -> None:
        self.hypervisor = hypervisor
        self.guest = guest
        self.collector = collector

    def read(self, disk: str, reads: int = READS) -> dict[str, frames.Buckets]:
        """Reads it, one after another; returns the stages of that."""
        before = self.stages(disk)
        self.collector.begin()
        self.guest.run(f"dd if=/dev/{disk} of=/dev/null bs={BYTES} count={reads} iflag=direct 2>/dev/null")
        self.collector.settle()
        self.collector.assert_whole(PROBE, BELOW)
        return between(before, self.stages(disk))

    def stages(self, disk: str) -> dict[str, frames.Buckets]:
        found: dict[str, list[frames.Buckets]] = {}
        for one in self.collector.histograms(PROBE, "stages", device=device_of(disk), operation="read"):
            found.setdefault(str(one.labels["stage"]), []).append(one.total)
        return {stage: add(ones) for stage, ones in found.items()}

    def device_time(self, disk: str) -> dict[str, frames.Buckets]:
        """As block_path has it, of the VM."""
        found = self.collector.histograms(BELOW, "times", device=device_of(disk), stage="device", vm=NAME)
        return {"device": add(one.total for one in found)} if found else {}

    def waited_ns(self, tid: str) -> int:
        """How long a thread of QEMU has waited for a CPU."""
        return int(self.hypervisor.shell(f"cat /proc/{tid}/schedstat").split()[1])

    def row(self, disk: str) -> Row:
        (row,) = self.collector.rows(PROBE, "ios", device=device_of(disk), operation="read")
        return row


@pytest.fixture(scope="module")
def disks(bare: Hypervisor) -> Iterator[Disks]:
    settings = (f"nr_devices={len(WAYS)}", "irqmode=2", f"completion_nsec={SLOW_NS}", "submit_queues=1")
    bare.run("modprobe", "null_blk", *settings)
    guest = Guest(bare, NAME, CARD, list(WAYS.values()))
    guest.start()
    collector = InsideMeasurement(bare)
    collector.load(PROBE, "details", events_per_s=10_000, threshold_us=0)
    collector.load(BELOW)
    yield Disks(bare, guest, collector)
    collector.close()
    guest.stop()
    bare.run("modprobe", "--remove", "null_blk")


@pytest.mark.parametrize("disk", WAYS)
@pytest.mark.proves("virtio_blk", "tables.ios.{vm,device,operation,ios,bytes,by_workers,unkicked,timed}")
@pytest.mark.proves("virtio_blk", "histograms.stages.{vm,device,stage}", "events.trip.vm", "modes.details")
@pytest.mark.proves("virtio_blk", "tables.servers.{vm,thread,tid,kicks,runs,without_io}")
def test_each_read_is_followed(disks: Disks, disk: str) -> None:
    """As many as the guest has asked for, and its stages add up to the whole."""
    taken = disks.read(disk)
    row, way = disks.row(disk), WAYS[disk]
    assert (row.labels["vm"], row.counts["ios"], row.counts["bytes"]) == (NAME, READS, READS * BYTES)
    assert row.counts["by_workers"] == (READS if way.aio == "threads" else 0)
    assert row.counts["timed"] + row.counts["unkicked"] == READS
    if not (way.iothread and way.polls):
        assert row.counts["unkicked"] == 0
    below = disks.collector.total(BELOW, "ios", "ios", device=device_of(disk), operation="read", vm=NAME)
    assert below == READS

    assert set(taken) == {*STAGES, "total"}
    assert {one.count for one in taken.values()} == {row.counts["timed"]}
    assert sum(taken[stage].sum for stage in STAGES) == taken["total"].sum
    events = [one.fields for one in disks.collector.events if one.fields.get("device") == device_of(disk)]
    assert len(events) == row.counts["timed"]
    for fields in events:
        assert fields["vm"] == NAME
        parts = [fields[f"b{n}_b{n + 1}_ns"] for n in range(1, 5)]
        assert sum(part for part in parts if isinstance(part, int)) == fields["total_ns"]

    labels = {"vm": NAME, "thread": row.labels["thread"], "tid": row.labels["tid"]}
    (server,) = disks.collector.rows(PROBE, "servers", **labels)
    assert server.counts["kicks"] >= server.counts["runs"] >= row.counts["timed"]
    if not (way.iothread and way.polls):
        assert server.counts["without_io"] == 0


@pytest.mark.parametrize("disk", [disk for disk, way in WAYS.items() if not (way.iothread and way.polls)])
def test_a_slow_device_is_the_stage_that_carries_it(disks: Disks, disk: str) -> None:
    """Half of the reads take as long in it as on the device, as block_path has that of the same reads."""
    before = disks.device_time(disk)
    taken = disks.read(disk)
    of_device = between(before, disks.device_time(disk))["device"]
    stage = taken["B3-B4"]
    assert of_device.count == stage.count == READS
    assert stage.sum >= of_device.sum >= READS * SLOW_NS
    half, half_of_device = percentile(stage, 50), percentile(of_device, 50)
    assert half is not None and half_of_device is not None
    assert half - half_of_device < CLOSE * half_of_device


@pytest.mark.parametrize("disk", ["vdb", "vdc"])
def test_a_thread_without_a_cpu_is_the_stage_that_carries_it(disks: Disks, disk: str) -> None:
    """As long as the kernel says that the thread has waited for a CPU."""
    disks.read(disk, FEW)
    tid = str(disks.row(disk).labels["tid"])
    with on_a_busy_cpu(disks.hypervisor, [tid]):
        before = disks.waited_ns(tid)
        taken = disks.read(disk, FEW)
        waited_ns = disks.waited_ns(tid) - before
    late_ns = sum(taken[stage].sum for stage in ON_THREAD)
    assert taken["total"].count == FEW
    assert abs(late_ns - waited_ns) < CLOSE * waited_ns
    assert late_ns > sum(taken[stage].sum for stage in STAGES if stage not in ON_THREAD)


def test_several_at_once_are_counted_and_not_timed(disks: Disks) -> None:
    """Readers of one queue, far from each other so that nobody merges them: each read is counted, and what was alone in
    flight is timed."""
    disks.collector.begin()
    before = disks.stages("vdd")
    reader = f"dd if=/dev/vdd of=/dev/null bs={BYTES} count={TOGETHER} skip=${{one}}000 iflag=direct 2>/dev/null"
    disks.guest.run(f"for one in 1 2 3 4; do {reader} & done; wait")
    disks.collector.settle()
    disks.collector.assert_whole(PROBE, BELOW)
    row = disks.row("vdd")
    assert row.counts["ios"] == 4 * TOGETHER
    assert row.counts["timed"] < 4 * TOGETHER
    taken = between(before, disks.stages("vdd"))
    assert taken["total"].count == row.counts["timed"]
    for _ in range(FEW):  # an end that a kprobe has missed on 5.10 counts as in flight for two seconds
        disks.read("vdd", FEW)
        if disks.row("vdd").counts["timed"] == FEW:
            break
    assert disks.row("vdd").counts["timed"] == FEW
