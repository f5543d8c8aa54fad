"""The ids of all BPF programs and maps of this host."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator

from netconsole_collector.kernel import syscalls

_PROG_GET_NEXT_ID, _MAP_GET_NEXT_ID, _PROG_GET_FD_BY_ID, _MAP_GET_FD_BY_ID = 11, 12, 13, 14


def program_ids() -> list[int]:
    """Ids of every program loaded on this host; raises OSError without CAP_SYS_ADMIN."""
    return list(_ids(_PROG_GET_NEXT_ID))


def map_ids() -> list[int]:
    """Ids of every map on this host; raises OSError without CAP_SYS_ADMIN."""
    return list(_ids(_MAP_GET_NEXT_ID))


def program_fd(identifier: int) -> int:
    """A descriptor of a program by its id; raises OSError."""
    return syscalls.bpf(_PROG_GET_FD_BY_ID, struct.pack("=III", identifier, 0, 0))


def map_fd(identifier: int) -> int:
    """A descriptor of a map by its id; raises OSError."""
    return syscalls.bpf(_MAP_GET_FD_BY_ID, struct.pack("=III", identifier, 0, 0))


def _ids(command: int) -> Iterator[int]:
    current = 0
    while True:
        try:
            attributes = syscalls.bpf_answer(command, struct.pack("=II", current, 0))
        except OSError as error:
            if error.errno == errno.ENOENT:
                return
            raise
        current = struct.unpack_from("=I", attributes, 4)[0]
        yield current
