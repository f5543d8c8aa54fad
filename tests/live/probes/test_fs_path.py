"""fs_path counts each call as its caller made it: what waited, what the page cache had, and how long it took."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netconsole.telemetry.frames import Label
from netconsole.telemetry.histogram import percentile
from tests.support.live.calls import Caller, caller
from tests.support.live.disks import PAGE, Disk, limited, loop
from tests.support.live.measurement import Measurement, Row
from tests.support.live.network import IS_EMULATED
from tests.support.live.slow_file import slow_file

PROBE = "fs_path"
FEW = 40
READS_PER_S = 20
SLOW_S = 0.02
NS_PER_S = 1_000_000_000
VM = f"made-of-files-{os.getpid()}"


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    with loop(tmp_path_factory.mktemp("disk") / "image") as made:
        yield made


@pytest.fixture(scope="module")
def files(collector: Measurement) -> Measurement:
    collector.load(PROBE)
    return collector


@pytest.fixture(scope="module")
def beside(files: Measurement) -> Measurement:
    """With block_path beside it."""
    files.load("block_path")
    return files


@pytest.fixture
def asked(files: Measurement, disk: Disk) -> Iterator[Measurement]:
    """Only of this device: others of the machine are busy."""
    files.set(PROBE, device=disk.name)
    files.begin()
    yield files


@pytest.fixture
def calling(asked: Measurement, disk: Disk) -> Iterator[Caller]:
    with caller(f"/dev/{disk.name}", FEW) as process:
        asked.begin()
        yield process


def row_of(asked: Measurement, pid: int, call: str, way: str) -> Row:
    """The only one that the process has of these calls, by this way."""
    asked.settle()
    (row,) = asked.rows(PROBE, "calls", pid=pid, call=call, way=way)
    return row


def counted(row: Row) -> tuple[int, int, int]:
    return row.counts["calls"], row.counts["bytes"], row.counts["errors"]


def all_waited(row: Row) -> bool:
    """Whether each call waited for the device, as far as can be known.

    On an emulated machine a device in memory may have answered before its caller gives up the CPU: then it need not
    wait. That a call waits for what takes long is held by the tests of slow devices and of limits.
    """
    return (0 if IS_EMULATED else FEW) <= row.counts["waited"] <= FEW


def timed(asked: Measurement, **labels: Label) -> int:
    return asked.samples(PROBE, "times", **labels)


@pytest.mark.proves("fs_path", "tables.calls.{device,call,way,process,pid,calls,bytes,errors}", "counters.calls")
@pytest.mark.proves("fs_path", "histograms.times.{device,call,way,process,pid}")
@pytest.mark.parametrize(
    ("kind", "call", "way", "size"),
    [
        ("direct", "read", "direct", PAGE),
        ("direct write", "write", "direct", PAGE),
        ("write", "write", "buffered", PAGE),
        ("writev", "write", "buffered", PAGE),
        ("pwrite", "write", "buffered", PAGE),
        ("pwritev", "write", "buffered", PAGE),
        ("synced", "write", "synced", PAGE),
        ("fsync", "fsync", "all", 0),
        ("fdatasync", "fsync", "data", 0),
        ("range", "fsync", "range", 0),
    ],
)
def test_each_call_is_one(
    asked: Measurement, calling: Caller, disk: Disk, kind: str, call: str, way: str, size: int
) -> None:
    calling.calls(kind)
    row = row_of(asked, calling.pid, call, way)
    assert counted(row) == (FEW, FEW * size, 0)
    assert (row.labels["device"], row.labels["file_system"]) == (disk.name, "")
    assert str(row.labels["process"]).startswith("python")
    assert timed(asked, pid=calling.pid, call=call, way=way, device=disk.name) == FEW
    assert asked.counter(PROBE, "calls") >= FEW


@pytest.mark.proves("fs_path", "tables.calls.{way,asked,waited}")
@pytest.mark.parametrize("kind", ["read", "readv", "pread", "preadv"])
def test_what_the_page_cache_has_is_read_from_it_alone(asked: Measurement, calling: Caller, kind: str) -> None:
    """The first time each read asks the device for its page, the second time for nothing."""
    calling.calls("forget", kind)
    row = row_of(asked, calling.pid, "read", "device")
    assert counted(row) == (FEW, FEW * PAGE, 0) and row.counts["asked"] == FEW * PAGE
    assert all_waited(row)
    assert not asked.rows(PROBE, "calls", pid=calling.pid, way="cache")
    asked.begin()
    calling.calls(kind)
    row = row_of(asked, calling.pid, "read", "cache")
    assert counted(row) == (FEW, FEW * PAGE, 0)
    assert row.counts["asked"] == row.counts["waited"] == 0


@pytest.mark.proves("fs_path", "tables.calls.{asked,waited}")
def test_a_direct_read_asks_for_what_it_reads_and_waits(asked: Measurement, calling: Caller) -> None:
    calling.calls("direct")
    row = row_of(asked, calling.pid, "read", "direct")
    assert row.counts["asked"] == FEW * PAGE and all_waited(row)


@pytest.mark.proves("fs_path", "tables.calls.errors", "counters.errors")
def test_calls_that_fail(asked: Measurement, calling: Caller) -> None:
    calling.calls("failing")
    assert counted(row_of(asked, calling.pid, "write", "buffered")) == (FEW, 0, FEW)
    assert asked.counter(PROBE, "errors") == FEW


@pytest.mark.proves("fs_path", "knobs.{device,pid}")
def test_others_are_left_out(asked: Measurement, calling: Caller, disk: Disk) -> None:
    """What is no file, another process, and another device."""
    calling.calls("elsewhere")
    asked.settle()
    assert not asked.rows(PROBE, "calls", pid=calling.pid)
    with caller(f"/dev/{disk.name}", FEW) as other:
        asked.set(PROBE, pid=other.pid)
        asked.begin()
        calling.calls("direct")
        other.calls("direct", "elsewhere")
        row_of(asked, other.pid, "read", "direct")
        assert {row.labels["pid"] for row in asked.rows(PROBE, "calls")} == {other.pid}
        assert asked.total(PROBE, "calls", "calls", device=disk.name) == asked.counter(PROBE, "calls") == FEW


@pytest.mark.proves("fs_path", "tables.calls.process", "histograms.times.process")
def test_a_thread_is_its_process(asked: Measurement, calling: Caller) -> None:
    calling.calls("in a thread")
    assert row_of(asked, calling.pid, "read", "direct").counts["calls"] == FEW


@pytest.mark.proves("fs_path", "tables.calls.vm", "histograms.times.vm", "events.call.vm", "knobs.events_per_s")
@pytest.mark.proves("fs_path", "events.call.{device,call,way,process,pid,bytes,asked,waited,file,total_ns}")
def test_the_caller_may_be_a_vm_and_a_sample_names_the_file(asked: Measurement, disk: Disk) -> None:
    asked.set(PROBE, "details", device=disk.name, events_per_s=1e6)
    with caller(f"/dev/{disk.name}", FEW, VM) as process:
        process.calls("direct")
        asked.until(lambda: bool(asked.rows(PROBE, "calls", vm=VM, way="direct")), "the name of the VM")
        asked.until(lambda: bool(asked.samples(PROBE, "times", pid=process.pid, vm=VM)), "its times")
        asked.begin()
        process.calls("direct")
        asked.until(lambda: any(event.fields.get("pid") == process.pid for event in asked.events), "a sample")
    fields = next(event.fields for event in asked.events if event.fields.get("pid") == process.pid)
    told = "vm", "device", "call", "way", "file", "bytes", "asked", "waited"
    assert [fields[name] for name in told] == [VM, disk.name, "read", "direct", disk.name, PAGE, PAGE, 1]
    assert isinstance(fields["total_ns"], int) and fields["total_ns"] > 0


@pytest.mark.proves("fs_path", "tables.calls.file_system", "histograms.times.file_system", "events.call.file_system")
def test_a_file_is_of_its_file_system_and_that_ones_disk(asked: Measurement, disk: Disk, tmp_path: Path) -> None:
    made = subprocess.run(["mkfs.ext4", "-q", f"/dev/{disk.name}"], check=False, stderr=subprocess.PIPE, text=True)
    if made.returncode:
        pytest.skip(f"cannot run here: {made.stderr.strip()}")
    subprocess.run(["mount", f"/dev/{disk.name}", str(tmp_path)], check=True)
    try:
        (tmp_path / "a-file").write_bytes(bytes(FEW * 8 * PAGE))
        asked.set(PROBE, "details", device=disk.name, events_per_s=1e6)
        with caller(str(tmp_path / "a-file"), FEW) as process:
            asked.begin()
            process.calls("write", "fsync")
            written, synced = (row_of(asked, process.pid, *of) for of in (("write", "buffered"), ("fsync", "all")))
        assert counted(written) == (FEW, FEW * PAGE, 0) and counted(synced) == (FEW, 0, 0)
        for row in (written, synced):
            assert (row.labels["device"], row.labels["file_system"]) == (disk.name, "ext4")
        assert timed(asked, pid=process.pid, file_system="ext4", call="fsync") == FEW
        asked.until(lambda: any(event.fields.get("pid") == process.pid for event in asked.events), "a sample")
        names = {(one.fields["file"], one.fields["file_system"]) for one in asked.events}
        assert names == {("a-file", "ext4")}
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def p50_s(asked: Measurement, probe: str, **labels: Label) -> float:
    """Of the only histogram with these labels."""
    (times,) = asked.histograms(probe, "times", **labels)
    return (percentile(times.total, 50) or 0) / NS_PER_S


@pytest.mark.proves("fs_path", "histograms.times", "tables.calls.waited")
def test_a_wait_that_no_block_device_shows(beside: Measurement, asked: Measurement, disk: Disk) -> None:
    """io.max holds each read back for so long; the device itself is idle and fast."""
    beside.set("block_path", device=disk.name)
    with caller(f"/dev/{disk.name}", FEW) as process, limited(disk, READS_PER_S, process.pid):
        process.calls("direct")
        row = row_of(asked, process.pid, "read", "direct")
        assert counted(row) == (FEW, FEW * PAGE, 0)
        [took] = [one.total for one in asked.histograms(PROBE, "times", pid=process.pid, way="direct")]
        assert took.sum / NS_PER_S == pytest.approx(FEW / READS_PER_S, rel=0.25)
        device = [one.total for one in asked.histograms("block_path", "times", device=disk.name)]
        assert sum(one.sum for one in device) < took.sum / 4


@pytest.mark.proves("fs_path", "histograms.times", "tables.calls.waited")
def test_who_waits_in_fsync_and_on_which_device(beside: Measurement, asked: Measurement, tmp_path: Path) -> None:
    """The device's own flush takes so long, and the caller waits for it: both say so, within a quarter of its clock."""
    with slow_file(tmp_path / "slow", fsync_s=SLOW_S) as file, loop(file, direct=False) as slow:
        if slow.setting("write_cache") != "write back":
            pytest.skip("cannot run here: this loop device has no cache to write out")
        asked.set(PROBE, device=slow.name)
        beside.set("block_path", device=slow.name)
        asked.begin()
        with caller(f"/dev/{slow.name}", FEW) as process:
            own = process.calls("write and fsync")
            row = row_of(asked, process.pid, "fsync", "all")
            assert counted(row) == (FEW, 0, 0) and row.counts["waited"] == FEW
            assert counted(row_of(asked, process.pid, "write", "buffered")) == (FEW, FEW * PAGE, 0)
            waits = p50_s(asked, PROBE, pid=process.pid, call="fsync")
            flush = p50_s(asked, "block_path", device=slow.name, operation="flush", pid=process.pid)
            writes = p50_s(asked, PROBE, pid=process.pid, call="write")
        # A busy machine wakes up late what sleeps for so long: the caller's own clock knows how long it was.
        most = own * (3 if IS_EMULATED else 1.25)
        assert SLOW_S <= waits <= most and SLOW_S * 0.9 <= flush <= most and writes < SLOW_S / 4
