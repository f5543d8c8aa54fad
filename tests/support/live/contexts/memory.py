"""Kernel objects of a test's own: structures of this kernel in the memory of a map, where programs can read them."""

from __future__ import annotations

import functools
import mmap
import os
import struct
import sys
from collections.abc import Callable, Mapping
from ctypes import addressof, create_string_buffer
from typing import TypeAlias

from netconsole_collector.kernel import bpf_maps, loading, syscalls
from netconsole_collector.types.btf import ENUM, ENUM64, STRUCT, UNION, Btf

SIZE = 1 << 20
_PROG_TEST_RUN = 10
_ALIGNED = 64
_MAPPABLE = 1 << 10
"""BPF_F_MMAPABLE (5.5): what is written here is there at once."""
_LOAD_64, _MAP_VALUE = 0x18, 2
"""BPF_LD | BPF_IMM | BPF_DW, and BPF_PSEUDO_MAP_VALUE: the address of what an array holds (uapi/linux/bpf.h)."""
_STORE_64, _MOVE_64, _EXIT = 0x7B, 0xB7, 0x95
Members: TypeAlias = Mapping[str, "int | bytes"]
"""What a structure holds, by path: ``nd_net.net`` of a net_device."""
MOST_ARGUMENTS = 12
"""MAX_BPF_FUNC_ARGS: so many a made-up context may have (net/bpf/test_run.c)."""


def prepared(fd: int, *arguments: int) -> Callable[[], int]:
    """A call that runs a raw tracepoint program on this CPU, with these arguments, and returns what it returned."""
    words = [one & (1 << 64) - 1 for one in arguments]
    context = create_string_buffer(struct.pack(f"={MOST_ARGUMENTS}Q", *words, *[0] * (MOST_ARGUMENTS - len(words))))
    size = 8 * MOST_ARGUMENTS
    raw = struct.pack("=IIIIQQIIIIQQII", fd, 0, 0, 0, 0, 0, 0, 0, size, 0, addressof(context), 0, 0, 0)
    attributes = create_string_buffer(raw, syscalls.ATTR_BYTES)

    def run() -> int:
        syscalls.syscall(syscalls.NR_BPF, _PROG_TEST_RUN, attributes, syscalls.ATTR_BYTES)
        return int(struct.unpack_from("=I", attributes, 4)[0]) if context else 0  # it lives as long as this

    return run


@functools.cache
def kernel_types() -> Btf:
    """Of this kernel; half a second to read."""
    return Btf()


@functools.cache
def place_of(name: str, path: str) -> tuple[int, int]:
    """Offset and size in bytes of a member, such as ``nd_net.net`` of net_device. Raises KeyError."""
    types = kernel_types()
    record = types.record(name)
    offset, size = 0, 0
    for part in path.split("."):
        if record is None:
            raise KeyError(f"{name} has no {path}")
        at, kind = _member(types, record, part)
        offset, size = offset + at, types.size(kind)
        stripped = types.strip(kind)
        record = stripped if types.kind(stripped) in (STRUCT, UNION) else None
    return offset, size


def _member(types: Btf, record: int, name: str) -> tuple[int, int]:
    """Offset in bytes and type. Members of anonymous structures count as the record's own."""
    for member in types.members(record):
        if member.name == name:
            return member.bit_offset // 8, member.type
        inside = types.strip(member.type)
        if not member.name and types.kind(inside) in (STRUCT, UNION):
            try:
                at, kind = _member(types, inside, name)
            except KeyError:
                continue
            return member.bit_offset // 8 + at, kind
    raise KeyError(f"no member {name}")


def enumerator(enum: str, name: str) -> int:
    """The value of a name of an enum. Raises KeyError."""
    types = kernel_types()
    return dict(types.enumerators(types.named(enum, (ENUM, ENUM64))[0]))[name]


def size_of(name: str) -> int:
    """Bytes of a structure."""
    record = kernel_types().record(name)
    assert record is not None, name
    return kernel_types().size(record)


def address_of(array_map: int) -> int:
    """Where the first value of an array map lies: a program tells, which stores it into another map."""
    answer = bpf_maps.create_map(bpf_maps.MapInfo(bpf_maps.MAP_ARRAY, 0, 4, 8, 1, 0, "address"))
    code = b"".join(
        struct.pack("=BBhi", *one)
        for one in (
            (_LOAD_64, _MAP_VALUE << 4 | 1, 0, array_map),
            (0, 0, 0, 0),
            (_LOAD_64, _MAP_VALUE << 4 | 2, 0, answer),
            (0, 0, 0, 0),
            (_STORE_64, 1 << 4 | 2, 0, 0),
            (_MOVE_64, 0, 0, 0),
            (_EXIT, 0, 0, 0),
        )
    )
    program = loading.load("address", code, loading.RAW_TRACEPOINT)
    try:
        prepared(program)()
        found = bpf_maps.Map(answer).get(bytes(4))
        assert found is not None
        return int(struct.unpack("=Q", found)[0])
    finally:
        os.close(program)
        os.close(answer)


class KernelMemory:
    """A megabyte that programs read as the kernel's. Objects stay where they are until it is closed."""

    def __init__(self) -> None:
        array = bpf_maps.MapInfo(bpf_maps.MAP_ARRAY, 0, 4, SIZE, 1, _MAPPABLE, "made_up")
        self._fd = bpf_maps.create_map(array)
        self._bytes = mmap.mmap(self._fd, SIZE)
        self._used = _ALIGNED  # no object lies at its beginning
        self._base = address_of(self._fd)

    def keep(self, content: bytes) -> int:
        """Puts them somewhere; the address."""
        at = self._used
        self._used += (len(content) + _ALIGNED - 1) // _ALIGNED * _ALIGNED
        assert self._used <= SIZE, "made up too much"
        self._bytes[at : at + len(content)] = content
        return self._base + at

    def make(self, name: str, members: Members, room: int = 0) -> int:
        """A structure of zeros but for these members, with ``room`` bytes after it; the address."""
        address = self.keep(bytes(size_of(name) + room))
        self.change(name, address, members)
        return address

    def change(self, name: str, address: int, members: Members) -> None:
        """Sets members of a structure that is there."""
        for path, value in members.items():
            offset, size = place_of(name, path)
            raw = value if isinstance(value, bytes) else (value & (1 << 8 * size) - 1).to_bytes(size, sys.byteorder)
            assert len(raw) <= size, path
            at = address - self._base + offset
            self._bytes[at : at + size] = raw.ljust(size, b"\0")

    def put(self, address: int, content: bytes) -> None:
        """Bytes into an object that is there."""
        at = address - self._base
        self._bytes[at : at + len(content)] = content

    def pointers(self, name: str, address: int, *paths: str) -> list[int]:
        """What members of a structure hold that is there."""
        places = [(address - self._base + place_of(name, path)[0], place_of(name, path)[1]) for path in paths]
        return [int.from_bytes(self._bytes[at : at + size], sys.byteorder) for at, size in places]

    def bytes_of(self, name: str, address: int) -> bytes:
        """Of a structure that is there."""
        at = address - self._base
        return bytes(self._bytes[at : at + size_of(name)])

    def close(self) -> None:
        self._bytes.close()
        os.close(self._fd)
