"""Reads event buffers by mmap: the ring buffer (5.8), or the perf buffer on older kernels.

Programs submit events without a wake-up, because a wake-up costs 40 times as much as the copy. The collector reads the
buffers once in each interval.
"""

import errno
import fcntl
import mmap
import os
import struct
from typing import Iterator, List, Tuple

from netconsole_collector.kernel import bpf_maps, cpus, syscalls

_PAGE = mmap.PAGESIZE

# kernel/bpf/ringbuf.c: each record has a header of 8 bytes; the first 4 are length and flags
_HEADER_BYTES = 8
_BUSY = 1 << 31
_DISCARDED = 1 << 30
_LENGTH_MASK = _DISCARDED - 1

# include/uapi/linux/perf_event.h
_PERF_TYPE_SOFTWARE = 1
_PERF_COUNT_SW_BPF_OUTPUT = 10
_PERF_SAMPLE_RAW = 1 << 10
_PERF_RECORD_LOST = 2
_PERF_RECORD_SAMPLE = 9
_NO_WAKEUP = 0x7FFFFFFF
"""wakeup_events: so many samples never come, so there is no wake-up."""
_DATA_HEAD = 1024
"""Offset of data_head and data_tail in struct perf_event_mmap_page."""
_PERF_PAGES = 64


class RingBuffer:
    """Reads a BPF_MAP_TYPE_RINGBUF: a consumer page that we write, a producer page, and the data, mapped twice."""

    lost = 0
    """A full ring buffer refuses the submission, and the program counts that itself."""

    def __init__(self, fd: int) -> None:
        self._size = bpf_maps.map_info(fd).max_entries
        self._consumer_map = mmap.mmap(fd, _PAGE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._producer_map = mmap.mmap(fd, _PAGE + 2 * self._size, mmap.MAP_SHARED, mmap.PROT_READ, offset=_PAGE)
        self._consumer = memoryview(self._consumer_map).cast("Q")
        self._producer = memoryview(self._producer_map)[:8].cast("Q")
        self._data = memoryview(self._producer_map)[_PAGE:]

    def read(self, limit: int) -> List[bytes]:
        """At most ``limit`` records, oldest first. The others stay in the buffer."""
        records: List[bytes] = []
        position = self._consumer[0]
        end = self._producer[0]
        while position < end and len(records) < limit:
            offset = position & (self._size - 1)
            header = struct.unpack_from("=I", self._data, offset)[0]
            if header & _BUSY:  # reserved, not yet submitted
                break
            length = header & _LENGTH_MASK
            if not header & _DISCARDED:
                start = offset + _HEADER_BYTES
                records.append(bytes(self._data[start : start + length]))
            position += (length + _HEADER_BYTES + 7) // 8 * 8
        self._consumer[0] = position
        return records

    def close(self) -> None:
        for view in (self._consumer, self._producer, self._data):
            view.release()
        self._consumer_map.close()
        self._producer_map.close()


class PerfBuffer:
    """Reads a BPF_MAP_TYPE_PERF_EVENT_ARRAY: one buffer for each CPU that is online when this is made."""

    def __init__(self, fd: int) -> None:
        self.lost = 0
        """Samples that the kernel says it dropped. It says so with the next sample that fits, so this number is late.
        The program counts refused submissions exactly, and that number is shown."""
        self._buffers: List[Tuple[int, mmap.mmap]] = []
        events = bpf_maps.Map(fd)
        try:
            for cpu in range(min(cpus.nr_cpu_ids(), events.info.max_entries)):
                self._open(events, cpu)
        except OSError:
            self.close()
            raise

    def _open(self, events: bpf_maps.Map, cpu: int) -> None:
        attributes = struct.pack(
            "=IIQQQQQI",
            _PERF_TYPE_SOFTWARE,
            syscalls.PERF_ATTR_BYTES,
            _PERF_COUNT_SW_BPF_OUTPUT,
            1,
            _PERF_SAMPLE_RAW,
            0,
            0,
            _NO_WAKEUP,
        )
        try:
            fd = syscalls.perf_event_open(attributes, cpu)
        except OSError as error:
            if error.errno == errno.ENODEV:  # possible, but not online
                return
            raise
        try:
            mapping = mmap.mmap(fd, _PAGE * (1 + _PERF_PAGES), mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError:
            os.close(fd)
            raise
        self._buffers.append((fd, mapping))
        fcntl.ioctl(fd, syscalls.PERF_EVENT_IOC_ENABLE)
        events.set(struct.pack("=I", cpu), struct.pack("=I", fd))

    def read(self, limit: int) -> List[bytes]:
        """At most ``limit`` records. Those of one CPU are in order. A record may be longer than what was submitted."""
        records: List[bytes] = []
        for _, mapping in self._buffers:
            records.extend(self._read_one(mapping, limit - len(records)))
        return records

    def _read_one(self, mapping: mmap.mmap, limit: int) -> Iterator[bytes]:
        size = _PERF_PAGES * _PAGE
        with memoryview(mapping)[_DATA_HEAD : _DATA_HEAD + 16] as control:  # native words: read and written at once
            words = control.cast("Q")
            head, tail = words[0], words[1]
            words.release()
        while tail < head and limit > 0:
            offset = tail % size
            kind, _, length = struct.unpack_from("=IHH", mapping, _PAGE + offset)
            start, stop = _PAGE + offset, _PAGE + min(offset + length, size)
            raw = mapping[start:stop]
            if len(raw) < length:
                raw += mapping[_PAGE : _PAGE + length - len(raw)]
            tail += length
            if kind == _PERF_RECORD_SAMPLE:
                payload = struct.unpack_from("=I", raw, 8)[0]
                limit -= 1
                yield raw[12 : 12 + payload]
            elif kind == _PERF_RECORD_LOST:
                self.lost += struct.unpack_from("=Q", raw, 16)[0]
        with memoryview(mapping)[_DATA_HEAD : _DATA_HEAD + 16] as control:
            words = control.cast("Q")
            words[1] = tail
            words.release()

    def close(self) -> None:
        for fd, mapping in self._buffers:
            mapping.close()
            os.close(fd)
        self._buffers = []
