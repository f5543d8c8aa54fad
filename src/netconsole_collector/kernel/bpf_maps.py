"""BPF maps, by the bpf(2) system call."""

import ctypes
import errno
import os
import re
import resource
import struct
from typing import Dict, Iterator, NamedTuple, Optional, Tuple

from netconsole_collector.kernel import syscalls
from netconsole_collector.kernel.cpus import possible_cpus

_MAP_CREATE = 0
_MAP_LOOKUP_ELEM = 1
_MAP_UPDATE_ELEM = 2
_MAP_DELETE_ELEM = 3
_MAP_GET_NEXT_KEY = 4
_MAP_LOOKUP_BATCH = 24

MAP_HASH, MAP_ARRAY, MAP_PERF_EVENT_ARRAY, MAP_PERCPU_HASH, MAP_PERCPU_ARRAY = 1, 2, 4, 5, 6
MAP_LRU_PERCPU_HASH, MAP_PERCPU_CGROUP_STORAGE, MAP_RINGBUF = 10, 21, 27
_PER_CPU_TYPES = (MAP_PERCPU_HASH, MAP_PERCPU_ARRAY, MAP_LRU_PERCPU_HASH, MAP_PERCPU_CGROUP_STORAGE)

_BATCH_ROWS = 1024
_NOT_CHARGED = (5, 11)


class MapInfo(NamedTuple):
    type: int
    id: int
    key_size: int
    value_size: int
    max_entries: int
    flags: int
    name: str


def map_info(fd: int) -> MapInfo:
    """struct bpf_map_info. Raises OSError."""
    raw = syscalls.info(fd)
    kind, identifier, key, value, entries, flags = struct.unpack_from("=IIIIII", raw)
    return MapInfo(kind, identifier, key, value, entries, flags, syscalls.c_string(raw[24:40]))


def raise_memlock() -> bool:
    """Lifts RLIMIT_MEMLOCK, to which kernels before 5.11 charge the maps and programs of all of a user's processes.

    False when it cannot be lifted and matters.
    """
    numbers = [int(number) for number in re.findall(r"\d+", os.uname().release)[:2]]
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError):
        return tuple(numbers) >= _NOT_CHARGED
    return True


def create_map(like: MapInfo) -> int:
    """The descriptor of a new, empty map of that kind and size. Raises OSError."""
    sizes = (like.type, like.key_size, like.value_size, like.max_entries, like.flags)
    inner_map, numa_node = 0, 0
    return syscalls.bpf(_MAP_CREATE, struct.pack("=7I16s", *sizes, inner_map, numa_node, like.name.encode()))


def map_kb(fd: int) -> Optional[int]:
    """Kernel memory of a map, as the kernel accounts for it; None when it does not tell."""
    try:
        with open("/proc/self/fdinfo/{}".format(fd)) as file:
            return next(int(line.split()[1]) // 1024 for line in file if line.startswith("memlock:"))
    except (OSError, ValueError, StopIteration):
        return None


class Map:
    """One map. A value of a per-CPU map has one 8-byte-aligned slot for every possible CPU."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.info = map_info(fd)
        self.per_cpu = self.info.type in _PER_CPU_TYPES
        self.is_array = self.info.type in (MAP_ARRAY, MAP_PERCPU_ARRAY)
        self.cpus = possible_cpus() if self.per_cpu else [0]
        self.slot_bytes = (self.info.value_size + 7) // 8 * 8 if self.per_cpu else self.info.value_size
        self.value_bytes = self.slot_bytes * len(self.cpus)
        self.batch = True
        """False after the kernel has refused the first batch read (before 5.6)."""

    def get(self, key: bytes) -> Optional[bytes]:
        """The value of all CPUs; None when there is no such key. Raises OSError."""
        c_key = ctypes.create_string_buffer(key, self.info.key_size)
        c_value = ctypes.create_string_buffer(self.value_bytes)
        try:
            self._element(_MAP_LOOKUP_ELEM, c_key, c_value)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return None
            raise
        return c_value.raw

    def set(self, key: bytes, value: bytes) -> None:
        """Writes a value (all CPUs). Raises OSError."""
        c_key = ctypes.create_string_buffer(key, self.info.key_size)
        self._element(_MAP_UPDATE_ELEM, c_key, ctypes.create_string_buffer(value, self.value_bytes))

    def sum_of(self, index: int) -> int:
        """One element of an array of u64, all CPUs together. Raises OSError.

        A CPU may take back what another one has counted: alone it is below zero then, and all of them may be meanwhile.
        """
        value = self.get(struct.pack("=I", index))
        return max(0, sum(struct.unpack("={}q".format(len(value) // 8), value))) if value else 0

    def delete(self, key: bytes) -> bool:
        """Removes a key; False when it was not there. Raises OSError."""
        c_key = ctypes.create_string_buffer(key, self.info.key_size)
        try:
            self._element(_MAP_DELETE_ELEM, c_key, None)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return False
            raise
        return True

    def items(self) -> Iterator[Tuple[bytes, bytes]]:
        """Every (key, value) of the map: in batches where the kernel can (5.6), else one by one."""
        if self.batch:
            first = True
            try:
                for pair in self._batches():
                    first = False
                    yield pair
                return
            except OSError as error:
                if not first or error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, syscalls.ENOTSUPP):
                    raise
                self.batch = False
        for pair in self._walk():
            yield pair

    def _element(self, command: int, key: object, value: object) -> None:
        value_address = ctypes.addressof(value) if value is not None else 0  # type: ignore[arg-type]
        syscalls.bpf(command, struct.pack("=IIQQQ", self.fd, 0, ctypes.addressof(key), value_address, 0))  # type: ignore[arg-type]

    def _batches(self) -> Iterator[Tuple[bytes, bytes]]:
        """BPF_MAP_LOOKUP_BATCH: a cursor goes in and comes out. It is a bucket number in a hash, a key in an array."""
        key_size, rows = self.info.key_size, min(_BATCH_ROWS, max(self.info.max_entries, 1))
        cursor_bytes = max(key_size, 8)
        cursor = ctypes.create_string_buffer(cursor_bytes)
        following = ctypes.create_string_buffer(cursor_bytes)
        keys = ctypes.create_string_buffer(key_size * rows)
        values = ctypes.create_string_buffer(self.value_bytes * rows)
        started = False
        while True:
            attributes = ctypes.create_string_buffer(
                struct.pack(
                    "=QQQQIIQQ",
                    ctypes.addressof(cursor) if started else 0,
                    ctypes.addressof(following),
                    ctypes.addressof(keys),
                    ctypes.addressof(values),
                    rows,
                    self.fd,
                    0,
                    0,
                ).ljust(syscalls.ATTR_BYTES, b"\0"),
                syscalls.ATTR_BYTES,
            )
            code = 0
            try:
                syscalls.syscall(syscalls.NR_BPF, _MAP_LOOKUP_BATCH, attributes, syscalls.ATTR_BYTES)
            except OSError as error:
                code = error.errno or 0
                if code == errno.ENOSPC:  # one bucket of the hash holds more rows than the buffer
                    rows *= 2
                    keys = ctypes.create_string_buffer(key_size * rows)
                    values = ctypes.create_string_buffer(self.value_bytes * rows)
                    continue
                if code != errno.ENOENT:
                    raise
            count = struct.unpack_from("=I", attributes, 32)[0]
            raw_keys, raw_values = keys.raw, values.raw
            for row in range(count):
                yield (
                    raw_keys[row * key_size : (row + 1) * key_size],
                    raw_values[row * self.value_bytes : (row + 1) * self.value_bytes],
                )
            if code == errno.ENOENT:
                return
            cursor.raw = following.raw
            started = True

    def _walk(self) -> Iterator[Tuple[bytes, bytes]]:
        """GET_NEXT_KEY and LOOKUP. A key that vanishes meanwhile restarts the walk, so known keys are skipped."""
        key = ctypes.create_string_buffer(self.info.key_size)
        following = ctypes.create_string_buffer(self.info.key_size)
        seen: Dict[bytes, bool] = {}
        attributes = struct.pack("=IIQQ", self.fd, 0, 0, ctypes.addressof(following))
        for _ in range(2 * self.info.max_entries + 1):  # a walk that restarts all the time must end, too
            try:
                syscalls.bpf(_MAP_GET_NEXT_KEY, attributes)
            except OSError as error:
                if error.errno == errno.ENOENT:
                    return
                raise
            key.raw = following.raw
            attributes = struct.pack("=IIQQ", self.fd, 0, ctypes.addressof(key), ctypes.addressof(following))
            if key.raw in seen:
                continue
            seen[key.raw] = True
            value = self.get(key.raw)
            if value is not None:
                yield key.raw, value
