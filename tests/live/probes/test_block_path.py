"""block_path counts what is asked of a device as those who ask do, and as the kernel's own books have it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from netconsole.telemetry.frames import Buckets
from netconsole.telemetry.histogram import add, percentile, subtract
from tests.support.live.disks import PAGE, Books, Disk, delayed, loop, null_block
from tests.support.live.measurement import SEEN, Measurement, Row
from tests.support.live.network import IS_EMULATED

PROBE = "block_path"
FEW = 40
COMPLETES_NS = 2_000_000
SLOWLY_NS, DELAY_MS = 20_000_000, 100
"""So long that an emulated machine's own delays are within a quarter of it."""
CLOSE = 0.25
AT_ONCE = 8
VM = f"made-of-disks-{os.getpid()}"


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    with loop(tmp_path_factory.mktemp("disk") / "image") as made:
        yield made


@pytest.fixture(scope="module")
def block(collector: Measurement) -> Measurement:
    collector.load(PROBE)
    return collector


@pytest.fixture
def asked(block: Measurement, disk: Disk) -> Iterator[Measurement]:
    """Only of this device: others of the machine are busy."""
    block.set(PROBE, device=disk.name)
    block.begin()
    yield block


def row_of(asked: Measurement, disk: Disk, pid: int, operation: str) -> Row:
    """The only one that the process has of this operation. Who opens a device has others."""
    asked.settle()
    (row,) = asked.rows(PROBE, "ios", device=disk.name, pid=pid, operation=operation)
    return row


def in_flight(asked: Measurement, row: Row) -> int:
    """Of its device."""
    [device] = asked.rows(PROBE, "devices", device=row.labels["device"])
    return int(device.gauges["in_flight"] or 0)


def unseen(asked: Measurement, row: Row, requests: int) -> int:
    """How many of its requests have no end, of so many that it made: each has an end, or is known to have none.

    Where no program runs while a thread of init is on the CPU (SEEN of measurement.py) some ends are not seen: these
    requests are in flight, or known to be missed. What is in flight has not been counted as an I/O.
    """
    without_end = requests - row.counts["requests"]
    assert 0 <= without_end <= in_flight(asked, row) + asked.ledger(PROBE, "join_missed"), "these of tests before, too"
    assert without_end <= (0 if IS_EMULATED else (1 - SEEN) * requests)
    return without_end


def has_ended(asked: Measurement, row: Row, requests: int) -> int:
    """How many of so many requests have: all whose end was seen."""
    return requests - unseen(asked, row, requests)


def timed(asked: Measurement, disk: Disk, pid: int, stage: str) -> int:
    return asked.samples(PROBE, "times", device=disk.name, pid=pid, stage=stage)


@pytest.mark.proves(
    "block_path", "tables.ios.{device,operation,process,pid,ios,bytes,requests,unqueued}", "counters.ios"
)
@pytest.mark.parametrize(("what", "operation"), [("read", "read"), ("write", "write"), ("discard", "discard")])
def test_each_io_is_one(asked: Measurement, disk: Disk, what: str, operation: str) -> None:
    before = disk.books()
    pid = disk.ask(what, FEW)
    row = row_of(asked, disk, pid, operation)
    books = disk.books() - before
    assert {"read": books.reads, "write": books.writes, "discard": books.discards}[what] == FEW
    assert row.counts["merges"] == row.counts["errors"] == 0
    ended = has_ended(asked, row, FEW)
    ios = FEW if what == "discard" else ended  # a discard is counted where it is asked for
    assert (row.counts["ios"], row.counts["bytes"]) == (ios, ios * PAGE)
    assert timed(asked, disk, pid, "device") == ended
    assert timed(asked, disk, pid, "queue") == ended - row.counts["unqueued"]


@pytest.mark.proves("block_path", "tables.ios.{ios,requests,merges,bytes}")
def test_adjacent_reads_of_one_call_are_eight_and_one_request(asked: Measurement, disk: Disk) -> None:
    before = disk.books()
    pid = disk.ask("adjacent", FEW)
    row = row_of(asked, disk, pid, "read")
    books = disk.books() - before
    assert row.counts["merges"] == books.read_merges == 8 * FEW - books.reads
    ios = 8 * FEW - unseen(asked, row, books.reads)
    assert (row.counts["ios"], row.counts["bytes"]) == (ios, ios * PAGE) and books.sectors_read == FEW * 64
    # Who is preempted amid a call has submitted what there was; 5.10 merges nothing for a loop device without O_DIRECT.
    assert FEW <= books.reads <= (FEW / SEEN if books.read_merges else 8 * FEW)


@pytest.mark.proves("block_path", "tables.ios.{ios,requests}", "tables.devices.{device,most}")
def test_reads_apart_of_one_call_are_in_flight_at_once(asked: Measurement, disk: Disk) -> None:
    pid = disk.ask("apart", FEW)
    row = row_of(asked, disk, pid, "read")
    assert (row.counts["ios"], row.counts["merges"]) == (has_ended(asked, row, 8 * FEW), 0)
    [device] = asked.rows(PROBE, "devices", device=disk.name)
    assert 1 <= (device.gauges["most"] or 0) <= 8


@pytest.mark.proves("block_path", "tables.ios.{operation,ios}", "histograms.times.stage")
def test_each_fsync_asks_for_one_flush(asked: Measurement, disk: Disk) -> None:
    if disk.setting("write_cache") != "write back":
        pytest.skip("cannot run here: this loop device has no cache to write out")
    pid = disk.ask("sync", FEW)
    row = row_of(asked, disk, pid, "flush")
    ended = has_ended(asked, row, FEW)
    assert (row.counts["ios"], row.counts["bytes"]) == (ended, 0)
    assert timed(asked, disk, pid, "whole") == ended and timed(asked, disk, pid, "device") == 0


@pytest.mark.proves("block_path", "tables.ios.{splits,ios,requests}")
def test_a_large_read_is_as_many_ios_as_bios_whatever_it_is_split_into(asked: Measurement, disk: Disk) -> None:
    before = disk.books()
    pid = disk.ask("large", FEW)
    row = row_of(asked, disk, pid, "read")
    books = disk.books() - before
    without_end = unseen(asked, row, books.reads)
    assert 512 * books.sectors_read == FEW * 512 * PAGE
    assert row.counts["ios"] + row.counts["splits"] == books.reads + row.counts["merges"] - without_end
    assert row.counts["bytes"] < FEW * 512 * PAGE if without_end else row.counts["bytes"] == FEW * 512 * PAGE


@pytest.mark.proves("block_path", "tables.ios.errors", "counters.errors")
def test_reads_beyond_the_file_fail(asked: Measurement, disk: Disk, tmp_path: Path) -> None:
    with loop(tmp_path / "short") as short:
        asked.set(PROBE, device=short.name)
        asked.begin()
        os.truncate(tmp_path / "short", 1 << 20)
        pid = short.ask("beyond", FEW, (1 << 20) - PAGE)
        row = row_of(asked, short, pid, "read")
        ended = has_ended(asked, row, FEW)
        assert row.counts["ios"] == ended
        # Without O_DIRECT, which tmpfs lacks before 6.6, a loop device reads zeros there.
        assert row.counts["errors"] == asked.counter(PROBE, "errors") == (ended if short.is_direct() else 0)


@pytest.mark.proves("block_path", "tables.ios.process", "histograms.times.process")
def test_the_submitter_is_the_process_of_a_thread(asked: Measurement, disk: Disk) -> None:
    pid = disk.ask("thread", FEW)
    row = row_of(asked, disk, pid, "read")
    assert row.counts["ios"] == has_ended(asked, row, FEW) and str(row.labels["process"]).startswith("python")


@pytest.mark.proves("block_path", "tables.ios.vm", "histograms.times.vm", "events.io.vm")
def test_the_submitter_may_be_a_vm(asked: Measurement, disk: Disk) -> None:
    asked.set(PROBE, "details", device=disk.name, events_per_s=1e6)
    with disk.asked_by(VM, "read", FEW) as process:
        asked.until(lambda: bool(asked.rows(PROBE, "ios", vm=VM)), "the name of the VM")
        row = row_of(asked, disk, process.pid, "read")
        assert (row.counts["ios"], row.labels["vm"]) == (has_ended(asked, row, FEW), VM)
        asked.until(lambda: bool(asked.samples(PROBE, "times", pid=process.pid, vm=VM)), "its times")
        asked.events.clear()
        print(file=process.stdin, flush=True)
        asked.until(lambda: any(event.fields.get("pid") == process.pid for event in asked.events), "a sample")
        sampled = {event.fields["vm"] for event in asked.events if event.fields.get("pid") == process.pid}
        assert sampled == {VM}


@pytest.mark.proves("block_path", "histograms.times", "tables.ios.unqueued", "tables.devices.{started,most}")
@pytest.mark.parametrize("scheduler", ["none", "mq-deadline"])
def test_a_device_of_two_milliseconds(asked: Measurement, scheduler: str) -> None:
    """Each request takes that long, wherever it came from; an insert is seen where there is a scheduler."""
    with null_block(COMPLETES_NS, scheduler) as disk:
        asked.set(PROBE, device=disk.name)
        asked.begin()
        pid = disk.ask("read", FEW)
        row = row_of(asked, disk, pid, "read")
        ended = has_ended(asked, row, FEW)
        assert row.counts["unqueued"] == (ended if scheduler == "none" else 0)
        assert timed(asked, disk, pid, "queue") == ended - row.counts["unqueued"]
        [took] = [one.total for one in asked.histograms(PROBE, "times", pid=pid, stage="device")]
        assert took.count == ended and (took.min or 0) >= COMPLETES_NS
        assert (percentile(took, 50) or 0) <= COMPLETES_NS * (3 if IS_EMULATED else 1.25)
        pid = disk.ask("apart", 2)
        row = row_of(asked, disk, pid, "read")
        [device] = asked.rows(PROBE, "devices", device=disk.name)
        assert row.counts["ios"] == 16 and device.counts["started"] == FEW + 16
        assert 1 <= (device.gauges["most"] or 0) <= 8 and (IS_EMULATED or device.gauges["most"] == 8)


def time_of(asked: Measurement, disk: Disk, stage: str, **by: int) -> Buckets:
    """Of all reads so far, whoever asked."""
    found = asked.histograms(PROBE, "times", device=disk.name, operation="read", stage=stage, **by)
    return add(one.total for one in found)


@pytest.mark.proves("block_path", "histograms.times.stage")
def test_a_read_that_a_full_device_does_not_take_yet_is_in_its_queue(asked: Measurement) -> None:
    """It takes one at a time: of eight that come at once each waits for those before it."""
    with null_block(SLOWLY_NS, "mq-deadline", depth=1) as disk:
        Path(f"/sys/block/{disk.name}/queue/nr_requests").write_text("64")
        asked.set(PROBE, device=disk.name)
        asked.begin()
        pid = disk.ask("apart", 1)
        row = row_of(asked, disk, pid, "read")
        if has_ended(asked, row, AT_ONCE) < AT_ONCE:
            pytest.skip("cannot run here: not each end was seen")
        queue, device = (time_of(asked, disk, stage, pid=pid) for stage in ("queue", "device"))
        mean_ns = device.sum / device.count
        assert queue.count == device.count == row.counts["ios"] and (device.min or 0) >= SLOWLY_NS
        assert queue.sum == pytest.approx(sum(range(AT_ONCE)) * mean_ns, rel=CLOSE)


@pytest.mark.proves("block_path", "tables.devices.full")
@pytest.mark.parametrize(("depth", "takes_last"), [(1, AT_ONCE), (64, 0)])
def test_a_queue_that_has_no_more_requests_is_full(asked: Measurement, depth: int, takes_last: int) -> None:
    """Without a scheduler who asks next waits for one before any tracepoint: no stage has that."""
    with null_block(SLOWLY_NS, "none", depth) as disk:
        asked.set(PROBE, device=disk.name)
        asked.begin()
        pid = disk.ask("apart", 1)
        row = row_of(asked, disk, pid, "read")
        [device] = asked.rows(PROBE, "devices", device=disk.name)
        assert device.counts["full"] == (device.counts["started"] if takes_last else 0)
        assert device.counts["started"] >= has_ended(asked, row, AT_ONCE)


@pytest.mark.proves("block_path", "histograms.times.stage")
def test_a_level_that_holds_reads_back_is_told_from_the_device_below_it(asked: Measurement) -> None:
    with null_block(SLOWLY_NS, "none") as lower, delayed(lower, DELAY_MS) as upper:
        asked.set(PROBE, device="")
        asked.begin()
        before = time_of(asked, lower, "device")
        pid = upper.ask("read", AT_ONCE)
        row = row_of(asked, upper, pid, "read")
        whole, below = time_of(asked, upper, "whole", pid=pid), subtract(time_of(asked, lower, "device"), before)
        assert row.counts["ios"] == has_ended(asked, row, AT_ONCE)
        held_ns = whole.sum / whole.count - below.sum / below.count
        assert held_ns == pytest.approx(DELAY_MS * 1_000_000, rel=CLOSE)
        assert whole.count == below.count == row.counts["ios"]
        assert SLOWLY_NS <= below.sum / below.count < DELAY_MS * 1_000_000 / 2


def test_books_are_subtracted() -> None:
    assert Books(5, 4, 3, 2, 1, 1, 1) - Books(1, 1, 1, 1, 1, 1, 1) == Books(4, 3, 2, 1, 0, 0, 0)
