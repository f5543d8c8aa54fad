"""Event buffers byte by byte, on files in place of the kernel: order, wrapping, what is not ready, limits."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from netconsole_collector.kernel import bpf_maps, cpus, rings, syscalls
from netconsole_collector.kernel.rings import PerfBuffer, RingBuffer

PAGE = mmap.PAGESIZE
SIZE = PAGE
"""Bytes of a small ring."""
BUSY, DISCARDED = 1 << 31, 1 << 30


def padded(length: int) -> int:
    """A record takes its header of 8 bytes, its data, and what is missing to a multiple of 8."""
    return (8 + length + 7) // 8 * 8


class Ring:
    """A ring buffer's memory in a file: a page of the reader, a page of the writer, the data and the data again."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = path.open("w+b")
        self._file.truncate(2 * PAGE + 2 * SIZE)
        self.written = 0
        info = bpf_maps.MapInfo(bpf_maps.MAP_RINGBUF, 1, 0, 0, SIZE, 0, "events")
        monkeypatch.setattr(bpf_maps, "map_info", lambda fd: info)
        self.reader = RingBuffer(self._file.fileno())

    def put(self, data: bytes, flags: int = 0) -> int:
        """Submit a record; where its header is."""
        at = self.written % SIZE
        raw = (struct.pack("=II", len(data) | flags, 0) + data).ljust(padded(len(data)), b"\0")
        for number, byte in enumerate(raw):
            self._write(2 * PAGE + (at + number) % SIZE, bytes([byte]))
            self._write(2 * PAGE + SIZE + (at + number) % SIZE, bytes([byte]))
        self.written += len(raw)
        self._write(PAGE, struct.pack("=Q", self.written))
        return at

    def submit(self, at: int, length: int) -> None:
        """What was reserved is ready."""
        for copy in (0, SIZE):
            self._write(2 * PAGE + copy + at, struct.pack("=I", length))

    @property
    def read_up_to(self) -> int:
        self._file.seek(0)
        return int(struct.unpack("=Q", self._file.read(8))[0])

    def _write(self, at: int, raw: bytes) -> None:
        self._file.seek(at)
        self._file.write(raw)
        self._file.flush()

    def close(self) -> None:
        self.reader.close()
        self._file.close()


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ring]:
    one = Ring(tmp_path / "ring", monkeypatch)
    yield one
    one.close()


def test_records_come_in_order_whole_and_once(ring: Ring) -> None:
    sent = [bytes([number]) * length for number, length in enumerate((1, 7, 8, 9, 100), 1)]
    for data in sent:
        ring.put(data)
    assert ring.reader.read(100) == sent
    assert ring.read_up_to == ring.written == sum(map(padded, (1, 7, 8, 9, 100)))
    assert ring.reader.read(100) == []


def test_what_is_above_the_limit_stays_for_the_next_reading(ring: Ring) -> None:
    for number in range(5):
        ring.put(bytes([number]))
    assert ring.reader.read(2) == [b"\0", b"\1"]
    assert ring.read_up_to == 2 * padded(1)
    assert ring.reader.read(10) == [b"\2", b"\3", b"\4"]


def test_a_record_that_is_not_submitted_holds_back_those_after_it(ring: Ring) -> None:
    ring.put(b"one")
    at = ring.put(b"two", BUSY)
    ring.put(b"three")
    assert ring.reader.read(10) == [b"one"]
    assert ring.read_up_to == padded(3)
    ring.submit(at, 3)
    assert ring.reader.read(10) == [b"two", b"three"]


def test_a_discarded_record_is_passed_over(ring: Ring) -> None:
    ring.put(b"one")
    ring.put(b"gone", DISCARDED)
    ring.put(b"three")
    assert ring.reader.read(2) == [b"one", b"three"], "it does not count for the limit"
    assert ring.read_up_to == ring.written


def test_a_record_goes_on_at_the_beginning_of_the_ring(ring: Ring) -> None:
    """The data is mapped twice in a row, so that a record is in one piece."""
    for _ in range(SIZE // padded(1000)):
        ring.put(b"x" * 1000)
        ring.reader.read(1)
    last = bytes(range(256)) * 3
    ring.put(last)
    assert ring.written > SIZE
    assert ring.reader.read(1) == [last]


# ---- perf buffers ----

DATA = rings._PERF_PAGES * PAGE


class Perf:
    """One CPU's perf buffer in memory: a page of control, and the data."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, PAGE + DATA)
        self.head = 0
        self.reader = PerfBuffer.__new__(PerfBuffer)
        self.reader.lost = 0
        self.reader._buffers = [(-1, self.memory)]

    def put(self, kind: int, body: bytes) -> None:
        raw = struct.pack("=IHH", kind, 0, 8 + len(body)) + body
        for number, byte in enumerate(raw):
            self.memory[PAGE + (self.head + number) % DATA] = byte
        self.head += len(raw)
        struct.pack_into("=Q", self.memory, 1024, self.head)

    def sample(self, data: bytes) -> None:
        """As bpf_perf_event_output writes it: a size, and the data up to a multiple of 8 with it."""
        size = (len(data) + 4 + 7) // 8 * 8 - 4
        self.put(9, struct.pack("=I", size) + data.ljust(size, b"\0"))

    @property
    def tail(self) -> int:
        return int(struct.unpack_from("=Q", self.memory, 1032)[0])


def starts(records: Sequence[bytes], lengths: Sequence[int]) -> list[bytes]:
    return [record[:length] for record, length in zip(records, lengths, strict=True)]


def test_samples_of_a_perf_buffer_come_in_order_and_are_taken_away() -> None:
    perf = Perf()
    for data in (b"one", b"four", b"twelve bytes"):
        perf.sample(data)
    found = perf.reader.read(10)
    assert starts(found, (3, 4, 12)) == [b"one", b"four", b"twelve bytes"]
    assert [len(record) for record in found] == [4, 4, 12]
    assert perf.tail == perf.head
    assert perf.reader.read(10) == []


def test_the_limit_of_a_perf_buffer_leaves_the_rest() -> None:
    perf = Perf()
    for number in range(4):
        perf.sample(bytes([number]) * 4)
    assert perf.reader.read(3) == [bytes([number]) * 4 for number in range(3)]
    assert perf.tail == 3 * 16
    assert perf.reader.read(3) == [b"\3" * 4]


def test_what_the_kernel_says_it_lost_is_added_up() -> None:
    perf = Perf()
    perf.sample(b"one.")
    perf.put(2, struct.pack("=QQ", 1, 5))
    perf.put(2, struct.pack("=QQ", 1, 7))
    perf.put(99, b"unknown ")
    perf.sample(b"two.")
    assert perf.reader.read(10) == [b"one.", b"two."]
    assert perf.reader.lost == 12


def test_a_sample_that_goes_on_at_the_beginning_is_put_together() -> None:
    perf = Perf()
    perf.head = DATA - 16
    struct.pack_into("=QQ", perf.memory, 1024, perf.head, perf.head)
    data = bytes(range(60))
    perf.sample(data)
    assert perf.reader.read(1) == [data]
    assert perf.tail == perf.head == DATA - 16 + 8 + 4 + 60


def test_the_limit_is_of_all_cpus_together() -> None:
    one, two = Perf(), Perf()
    one.sample(b"one.")
    two.sample(b"two.")
    one.reader._buffers.append((-1, two.memory))
    assert one.reader.read(1) == [b"one."]
    assert one.reader.read(1) == [b"two."]


class PerCpu:
    """The map that a program finds its CPU's buffer in."""

    info = bpf_maps.MapInfo(bpf_maps.MAP_PERF_EVENT_ARRAY, 1, 4, 4, 2, 0, "events")

    def __init__(self) -> None:
        self.descriptors: dict[int, int] = {}

    def set(self, key: bytes, value: bytes) -> None:
        self.descriptors[struct.unpack("=I", key)[0]] = struct.unpack("=I", value)[0]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> tuple[PerCpu, list[tuple[bytes, int]], list[tuple[int, int]]]:
    """A kernel with four possible CPUs: the map, what was asked for of which CPU, and what was switched on."""
    per_cpu, asked, switched = PerCpu(), [], []

    def open_event(attributes: bytes, cpu: int) -> int:
        if cpu == 1:
            raise OSError(errno.ENODEV, "not online")
        asked.append((attributes, cpu))
        fd = os.memfd_create("perf")
        os.ftruncate(fd, PAGE + DATA)
        return fd

    monkeypatch.setattr(bpf_maps, "Map", lambda fd: per_cpu)
    monkeypatch.setattr(cpus, "nr_cpu_ids", lambda: 4)
    monkeypatch.setattr(syscalls, "perf_event_open", open_event)
    monkeypatch.setattr(fcntl, "ioctl", lambda fd, request: switched.append((fd, request)))
    return per_cpu, asked, switched


def test_each_cpu_that_is_online_has_a_buffer_that_wakes_nobody(
    opened: tuple[PerCpu, list[tuple[bytes, int]], list[tuple[int, int]]],
) -> None:
    per_cpu, asked, switched = opened
    reader = PerfBuffer(7)
    assert reader.lost == 0 and len(reader._buffers) == 1, "of four CPUs the map has room for two, and one is offline"
    ((attributes, cpu),) = asked
    # struct perf_event_attr: PERF_TYPE_SOFTWARE, its size, PERF_COUNT_SW_BPF_OUTPUT, each one, PERF_SAMPLE_RAW.
    assert (cpu, *struct.unpack_from("=IIQQQ", attributes)) == (0, 1, 112, 10, 1, 1 << 10)
    assert struct.unpack_from("=I", attributes, 48) == (0x7FFFFFFF,), "wakeup_events that never come"
    ((fd, request),) = switched
    assert request == 0x2400 and per_cpu.descriptors == {0: fd}, "switched on, and in the map"
    reader.close()
    assert reader._buffers == []
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


def test_a_cpu_whose_buffer_cannot_be_made_is_an_error_and_the_others_are_closed(
    opened: tuple[PerCpu, list[tuple[bytes, int]], list[tuple[int, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    working = syscalls.perf_event_open

    def refuse(attributes: bytes, cpu: int) -> int:
        if cpu == 1:
            raise OSError(errno.EMFILE, "too many open files")
        return working(attributes, cpu)

    monkeypatch.setattr(syscalls, "perf_event_open", refuse)
    with pytest.raises(OSError, match="too many"):
        PerfBuffer(7)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(opened[2][0][0])
