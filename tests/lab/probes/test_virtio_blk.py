"""virtio_blk: reads of a guest on a device whose time is known (null_blk), by each way in which QEMU asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from netconsole.telemetry import frames
from netconsole.telemetry.histogram import add, percentile
from tests.lab.collector import InsideMeasurement, between
from tests.lab.kernels.each import PROVEN
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.machine.l2 import Card, Disk, Guest
from tests.lab.network.traffic import on_a_busy_cpu, qemu_pid
from tests.support.live.measurement import Row

pytestmark = [pytest.mark.booting, pytest.mark.parametrize("bare", PROVEN, indirect=True)]

PROBE, BELOW = "virtio_blk", "block_path"
NAME = "disks"
CARD = Card("vnet9", "52:54:00:00:00:19", "10.77.9.10/24")
READS, FEW, TOGETHER = 100, 20, 32
TRIES = 5
BYTES = 4096
SLOW_NS = 20_000_000
STAGES = ("B1-B2", "B2-B3", "B3-B4", "B4-B5")
EACH, KICK = "all", "kick"
"""The device's stage of each I/O, alone or not, and the wait of each kick."""
ON_THREAD = ("B1-B2", "B4-B5")
"""The thread has to run at the end of these."""
CLOSE = 0.25
GROUP = "/sys/fs/cgroup/held"
WAYS = {
    "vda": Disk("/dev/nullb0", "native"),
    "vdb": Disk("/dev/nullb1", "io_uring", polls=False),
    "vdc": Disk("/dev/nullb2", "threads", polls=False),
    "vdd": Disk("/dev/nullb3", "native", iothread=False),
}
LIMITED, HELD = "vde", Disk("/dev/nullb4", "native", iothread=False, most_per_s=5)
PERIOD_NS = 200_000_000
"""Of an I/O, where there may be five a second."""


def device_of(disk: str) -> str:
    return {**WAYS, LIMITED: HELD}[disk].path.rpartition("/")[2]


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

    def are_known(self, known: int, reads: int) -> bool:
        """Whether the stages of so many reads are known as of so many have to be: of all of them, but where a kprobe
        may have missed one. A missed end leaves two seconds untimed, a missed interrupt two reads."""
        attached = self.collector.statuses[PROBE].attach
        least = reads * 9 // 10 if any(point.startswith("kprobe:") for point in attached) else reads
        return (reads // 4 if "kprobe:bio_endio" in attached else least) <= known <= reads

    def are_ended(self, ended: int, reads: int) -> bool:
        """Whether all have ended, but where a kprobe may have missed an end."""
        is_sure = "kprobe:bio_endio" not in self.collector.statuses[PROBE].attach
        return ended == reads or (not is_sure and reads * 9 // 10 <= ended <= reads)

    def waited_ns(self, tid: str) -> int:
        """How long a thread of QEMU has waited for a CPU."""
        return int(self.hypervisor.shell(f"cat /proc/{tid}/schedstat").split()[1])

    @contextmanager
    def held_back(self, disk: str) -> Iterator[None]:
        """The control group of the guest may read so often from the device of this disk."""
        number = self.hypervisor.shell(f"cat /sys/block/{device_of(disk)}/dev").strip()
        self.hypervisor.shell(f"""
            mkdir {GROUP}
            echo +io >/sys/fs/cgroup/cgroup.subtree_control
            echo "{number} riops={1_000_000_000 // PERIOD_NS}" >{GROUP}/io.max
            echo {qemu_pid(self.hypervisor, self.guest)} >{GROUP}/cgroup.procs
        """)
        yield
        self.hypervisor.shell(f"""
            echo {qemu_pid(self.hypervisor, self.guest)} >/sys/fs/cgroup/cgroup.procs
            rmdir {GROUP}
        """)

    def row(self, disk: str) -> Row:
        (row,) = self.collector.rows(PROBE, "ios", device=device_of(disk), operation="read")
        return row


@pytest.fixture(scope="module")
def disks(bare: Hypervisor) -> Iterator[Disks]:
    settings = (f"nr_devices={len(WAYS) + 1}", "irqmode=2", f"completion_nsec={SLOW_NS}", "submit_queues=1")
    bare.run("modprobe", "null_blk", *settings)
    guest = Guest(bare, NAME, CARD, [*WAYS.values(), HELD])
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
    assert disks.are_known(row.counts["timed"] + row.counts["unkicked"], READS)
    if not (way.iothread and way.polls):
        assert row.counts["unkicked"] == 0
    below = disks.collector.total(BELOW, "ios", "ios", device=device_of(disk), operation="read", vm=NAME)
    assert below == READS

    assert set(taken) == {*STAGES, "total", EACH, KICK}
    assert {taken[stage].count for stage in (*STAGES, "total")} == {row.counts["timed"]}
    assert row.counts["timed"] <= taken[KICK].count <= READS and disks.are_ended(taken[EACH].count, READS)
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
    assert of_device.count == READS and disks.are_known(stage.count, READS)
    assert (stage.min or 0) >= SLOW_NS
    half, half_of_device = percentile(stage, 50), percentile(of_device, 50)
    assert half is not None and half_of_device is not None
    assert half - half_of_device < CLOSE * half_of_device


@pytest.mark.parametrize("disk", ["vdb", "vdc"])
def test_a_thread_without_a_cpu_is_the_stage_that_carries_it(disks: Disks, disk: str) -> None:
    """As long as the kernel says that the thread has waited for a CPU."""
    disks.read(disk, FEW)
    tid = str(disks.row(disk).labels["tid"])
    with on_a_busy_cpu(disks.hypervisor, [tid]):
        for _ in range(TRIES):
            before = disks.waited_ns(tid)
            taken = disks.read(disk, FEW)
            waited_ns = disks.waited_ns(tid) - before
            if taken["total"].count == FEW:  # else a kprobe has missed an end
                break
    late_ns = sum(taken[stage].sum for stage in ON_THREAD)
    assert taken["total"].count == FEW
    assert abs(late_ns - waited_ns) < CLOSE * waited_ns
    assert late_ns > sum(taken[stage].sum for stage in STAGES if stage not in ON_THREAD)


def longest(taken: dict[str, frames.Buckets]) -> str:
    return max(STAGES, key=lambda stage: taken[stage].sum)


def test_a_limit_of_qemu_is_the_stage_before_the_device(disks: Disks) -> None:
    """It is what the other stages leave of a period, but for a quarter of that."""
    disks.read(LIMITED, FEW)  # what it had saved up is used then
    taken = disks.read(LIMITED, FEW)
    whole, others = FEW * PERIOD_NS, sum(taken[stage].sum for stage in STAGES if stage != "B2-B3")
    assert taken["total"].count == FEW and longest(taken) == "B2-B3"
    assert abs(whole - others - taken["B2-B3"].sum) < CLOSE * whole


def test_a_limit_of_the_control_group_is_in_the_stage_of_the_device(disks: Disks) -> None:
    """io.max holds an I/O back before any tracepoint of the block layer: block_path has the device's own time alone.
    The kernel lets fewer through than it might."""
    before = disks.device_time("vdd")
    with disks.held_back("vdd"):
        taken = disks.read("vdd", FEW)
    of_device = between(before, disks.device_time("vdd"))["device"]
    assert taken["total"].count == FEW and longest(taken) == "B3-B4"
    assert taken["B3-B4"].sum > (1 - CLOSE) * FEW * PERIOD_NS
    assert of_device.sum < taken["B3-B4"].sum / 2


def test_of_several_at_once_each_ones_time_at_the_device_is_known(disks: Disks) -> None:
    """Readers of one queue, far from each other so that nobody merges them: each read is counted, and timed at the
    device as block_path has it. Little's law holds: those sums, by time, are no more than what the readers can have in
    flight. As a whole only what was alone in flight is timed."""
    disks.collector.begin()
    before, began_ns = disks.stages("vdd"), disks.collector.clock_ns()
    below = disks.device_time("vdd")
    reader = f"dd if=/dev/vdd of=/dev/null bs={BYTES} count={TOGETHER} skip=${{one}}000 iflag=direct 2>/dev/null"
    disks.guest.run(f"for one in 1 2 3 4; do {reader} & done; wait")
    span_ns = disks.collector.clock_ns() - began_ns
    disks.collector.settle()
    disks.collector.assert_whole(PROBE, BELOW)
    row = disks.row("vdd")
    assert row.counts["ios"] == 4 * TOGETHER
    assert row.counts["timed"] < 4 * TOGETHER
    taken, of_device = between(before, disks.stages("vdd")), between(below, disks.device_time("vdd"))["device"]
    assert taken["total"].count == row.counts["timed"] if "total" in taken else not row.counts["timed"]
    each = taken[EACH]
    assert disks.are_ended(each.count, 4 * TOGETHER) and (each.min or 0) >= SLOW_NS
    assert of_device.count == 4 * TOGETHER
    assert abs(each.sum / each.count - of_device.sum / of_device.count) < CLOSE * of_device.sum / of_device.count
    assert 1 < each.sum / span_ns <= 4
    for _ in range(FEW):  # an end that a kprobe has missed counts as in flight for two seconds
        disks.read("vdd", FEW)
        if disks.row("vdd").counts["timed"] == FEW:
            break
    assert disks.row("vdd").counts["timed"] == FEW
