"""The bpf(2) system call by ctypes: maps, programs and run-time statistics; neither bcc nor libbpf.

Numbers and layouts are those of include/uapi/linux/bpf.h; attributes are zero-padded to a size that every kernel
since 4.18 accepts (a kernel only refuses non-zero bytes that it does not know).
"""

import ctypes
import errno
import os
import platform
import struct
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

_SYSCALLS = {"x86_64": (321, 298), "aarch64": (280, 241), "ppc64le": (361, 319), "s390x": (351, 331)}
"""Machine → numbers of bpf and perf_event_open."""
_NR_BPF, NR_PERF_EVENT_OPEN = _SYSCALLS.get(platform.machine(), (321, 298))

_MAP_CREATE = 0
_MAP_LOOKUP_ELEM = 1
_MAP_UPDATE_ELEM = 2
_MAP_DELETE_ELEM = 3
_MAP_GET_NEXT_KEY = 4
_PROG_GET_NEXT_ID = 11
_MAP_GET_NEXT_ID = 12
_PROG_GET_FD_BY_ID = 13
_MAP_GET_FD_BY_ID = 14
_OBJ_GET_INFO_BY_FD = 15
_MAP_LOOKUP_BATCH = 24
_ENABLE_STATS = 32
_STATS_RUN_TIME = 0

MAP_HASH, MAP_ARRAY, MAP_PERF_EVENT_ARRAY, MAP_PERCPU_HASH, MAP_PERCPU_ARRAY = 1, 2, 4, 5, 6
MAP_LRU_PERCPU_HASH, MAP_PERCPU_CGROUP_STORAGE, MAP_RINGBUF = 10, 21, 27
_PER_CPU_TYPES = (MAP_PERCPU_HASH, MAP_PERCPU_ARRAY, MAP_LRU_PERCPU_HASH, MAP_PERCPU_CGROUP_STORAGE)

_ATTR_BYTES = 120
"""bpf_attr grew past 120 bytes in 5.x only with fields that are not used here."""
_INFO_BYTES = 256
_ENOTSUPP = 524
"""Kernel-internal number that map operations leak to user space instead of EOPNOTSUPP."""
_BATCH_ROWS = 1024
_POSSIBLE = "/sys/devices/system/cpu/possible"

libc = ctypes.CDLL(None, use_errno=True)


def syscall(number: int, *args: object) -> int:
    """A raw system call. Raises OSError with the kernel's errno."""
    result = int(libc.syscall(number, *args))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code) if code != _ENOTSUPP else "operation not supported")
    return result


def command(number: int, attributes: bytes) -> int:
    """bpf(2) with a command that has no function of its own here. Raises OSError."""
    return _bpf(number, attributes)[0]


def _bpf(number: int, attributes: bytes) -> Tuple[int, bytes]:
    buffer = ctypes.create_string_buffer(attributes.ljust(_ATTR_BYTES, b"\0"), _ATTR_BYTES)
    return syscall(_NR_BPF, number, buffer, _ATTR_BYTES), buffer.raw


def possible() -> List[int]:
    """Numbers of the CPUs that could ever appear (not only those that are online).

    A per-CPU value has a slot for each, in this order. On some machines numbers are left out between them.
    """
    try:
        with open(_POSSIBLE) as file:
            ranges = [part.split("-") for part in file.read().strip().split(",")]
    except OSError:
        return list(range(os.cpu_count() or 1))
    return [cpu for ends in ranges for cpu in range(int(ends[0]), int(ends[-1]) + 1)]


def possible_cpus() -> int:
    """One more than the highest of them: the length of an array by CPU number."""
    return max(possible()) + 1


class ProgramInfo(NamedTuple):
    """What the kernel says of a program; None where this kernel does not tell."""

    type: int
    id: int
    name: str
    run_time_ns: Optional[int]
    """Only while statistics are switched on (5.1)."""
    run_count: Optional[int]
    missed: Optional[int]
    """Runs skipped because a program was running on that CPU already (5.12)."""


class MapInfo(NamedTuple):
    type: int
    id: int
    key_size: int
    value_size: int
    max_entries: int
    flags: int
    name: str


def _info(fd: int) -> bytes:
    """The info structure, cut to the length that this kernel filled."""
    buffer = ctypes.create_string_buffer(_INFO_BYTES)
    _, attributes = _bpf(_OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", fd, _INFO_BYTES, ctypes.addressof(buffer)))
    length = struct.unpack_from("=I", attributes, 4)[0]
    return buffer.raw[:length]


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")


def program_info(fd: int) -> ProgramInfo:
    """struct bpf_prog_info; raises OSError."""
    raw = _info(fd)

    def u64(offset: int) -> Optional[int]:
        return int(struct.unpack_from("=Q", raw, offset)[0]) if len(raw) >= offset + 8 else None

    kind, identifier = struct.unpack_from("=II", raw)
    return ProgramInfo(kind, identifier, _text(raw[64:80]), u64(192), u64(200), u64(208))


def map_info(fd: int) -> MapInfo:
    """struct bpf_map_info; raises OSError."""
    raw = _info(fd)
    kind, identifier, key, value, entries, flags = struct.unpack_from("=IIIIII", raw)
    return MapInfo(kind, identifier, key, value, entries, flags, _text(raw[24:40]))


def map_kb(fd: int) -> Optional[int]:
    """Kernel memory of a map, as the kernel accounts it."""
    try:
        with open("/proc/self/fdinfo/{}".format(fd)) as file:
            return next(int(line.split()[1]) // 1024 for line in file if line.startswith("memlock:"))
    except (OSError, ValueError, StopIteration):
        return None


def create_map(like: MapInfo) -> int:
    """The descriptor of a new, empty map of that kind and size; raises OSError."""
    sizes = (like.type, like.key_size, like.value_size, like.max_entries, like.flags)
    inner_map, numa_node = 0, 0
    return command(_MAP_CREATE, struct.pack("=7I16s", *sizes, inner_map, numa_node, like.name.encode()))


def enable_statistics() -> int:
    """A descriptor that keeps run-time statistics switched on while it is open (5.8, CAP_SYS_ADMIN); raises OSError."""
    return _bpf(_ENABLE_STATS, struct.pack("=I", _STATS_RUN_TIME))[0]


def _ids(command: int) -> Iterator[int]:
    current = 0
    while True:
        try:
            _, attributes = _bpf(command, struct.pack("=II", current, 0))
        except OSError as error:
            if error.errno == errno.ENOENT:
                return
            raise
        current = struct.unpack_from("=I", attributes, 4)[0]
        yield current


def program_ids() -> List[int]:
    """Ids of every program loaded on this host; raises OSError without CAP_SYS_ADMIN."""
    return list(_ids(_PROG_GET_NEXT_ID))


def map_ids() -> List[int]:
    """Ids of every map on this host; raises OSError without CAP_SYS_ADMIN."""
    return list(_ids(_MAP_GET_NEXT_ID))


def program_fd(identifier: int) -> int:
    """A descriptor of a program by its id; raises OSError."""
    return _bpf(_PROG_GET_FD_BY_ID, struct.pack("=III", identifier, 0, 0))[0]


def map_fd(identifier: int) -> int:
    """A descriptor of a map by its id; raises OSError."""
    return _bpf(_MAP_GET_FD_BY_ID, struct.pack("=III", identifier, 0, 0))[0]


class Map:
    """One map behind a descriptor; values of per-CPU maps hold one 8-byte-aligned slot for every possible CPU."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.info = map_info(fd)
        self.per_cpu = self.info.type in _PER_CPU_TYPES
        self.is_array = self.info.type in (MAP_ARRAY, MAP_PERCPU_ARRAY)
        self.cpus = possible() if self.per_cpu else [0]
        self.slot_bytes = (self.info.value_size + 7) // 8 * 8 if self.per_cpu else self.info.value_size
        self.value_bytes = self.slot_bytes * len(self.cpus)
        self.batch = True
        """Set to False by the first batch read that this kernel refuses (before 5.6)."""

    def get(self, key: bytes) -> Optional[bytes]:
        """The value, all CPUs; None when there is no such key. Raises OSError."""
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
        """Writes a value (all CPUs); raises OSError."""
        c_key = ctypes.create_string_buffer(key, self.info.key_size)
        self._element(_MAP_UPDATE_ELEM, c_key, ctypes.create_string_buffer(value, self.value_bytes))

    def sum_of(self, index: int) -> int:
        """One element of an array of u64, all CPUs together. Raises OSError."""
        value = self.get(struct.pack("=I", index))
        return sum(struct.unpack("={}Q".format(len(value) // 8), value)) if value else 0

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
        """Every (key, value) of the map, in batches where the kernel can (5.6), else one by one."""
        if self.batch:
            first = True
            try:
                for pair in self._batches():
                    first = False
                    yield pair
                return
            except OSError as error:
                if not first or error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, _ENOTSUPP):
                    raise
                self.batch = False
        for pair in self._walk():
            yield pair

    def _element(self, command: int, key: object, value: object) -> None:
        value_address = ctypes.addressof(value) if value is not None else 0  # type: ignore[arg-type]
        _bpf(command, struct.pack("=IIQQQ", self.fd, 0, ctypes.addressof(key), value_address, 0))  # type: ignore[arg-type]

    def _batches(self) -> Iterator[Tuple[bytes, bytes]]:
        """BPF_MAP_LOOKUP_BATCH: a cursor (a bucket number in a hash, a key in an array) goes in and comes out."""
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
                ).ljust(_ATTR_BYTES, b"\0"),
                _ATTR_BYTES,
            )
            code = 0
            try:
                syscall(_NR_BPF, _MAP_LOOKUP_BATCH, attributes, _ATTR_BYTES)
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
        """GET_NEXT_KEY and LOOKUP; a key that vanishes meanwhile starts the walk anew, so every key is kept once."""
        key = ctypes.create_string_buffer(self.info.key_size)
        following = ctypes.create_string_buffer(self.info.key_size)
        seen: Dict[bytes, bool] = {}
        attributes = struct.pack("=IIQQ", self.fd, 0, 0, ctypes.addressof(following))
        for _ in range(2 * self.info.max_entries + 1):  # a walk that is restarted for ever must end all the same
            try:
                _bpf(_MAP_GET_NEXT_KEY, attributes)
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
