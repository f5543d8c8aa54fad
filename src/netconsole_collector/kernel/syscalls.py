"""The system calls bpf(2) and perf_event_open(2) by ctypes, with neither bcc nor libbpf.

Numbers and layouts are those of include/uapi/linux/bpf.h and perf_event.h. Attributes are padded with zeros to a size
that every kernel since 4.18 accepts: a kernel only refuses non-zero bytes that it does not know.
"""

import ctypes
import os
import struct
from typing import NamedTuple, Optional, Tuple

MACHINE = os.uname().machine
"""What this machine is. (`platform` would say the same, and costs 5 ms to import.)"""
_SYSCALLS = {"x86_64": (321, 298), "aarch64": (280, 241), "ppc64le": (361, 319), "s390x": (351, 331)}
"""Machine → numbers of bpf and perf_event_open."""
NR_BPF, _NR_PERF_EVENT_OPEN = _SYSCALLS.get(MACHINE, (321, 298))

_OBJ_GET_INFO_BY_FD = 15
_ENABLE_STATS = 32
_STATS_RUN_TIME = 0

ATTR_BYTES = 120
"""In 5.x bpf_attr grew past 120 bytes, but only with fields that are not used here."""
_INFO_BYTES = 256
ENOTSUPP = 524
"""An internal number of the kernel. Map operations return it to user space instead of EOPNOTSUPP."""

PERF_ATTR_BYTES = 112
PERF_EVENT_IOC_ENABLE = 0x2400
_PERF_FLAG_FD_CLOEXEC = 8

libc = ctypes.CDLL(None, use_errno=True)


def syscall(number: int, *args: object) -> int:
    """A raw system call. Raises OSError with the kernel's errno."""
    result = int(libc.syscall(number, *args))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code) if code != ENOTSUPP else "operation not supported")
    return result


def bpf(command: int, attributes: bytes) -> int:
    """bpf(2): the descriptor that it returns, or 0. Raises OSError."""
    return _bpf(command, attributes)[0]


def bpf_answer(command: int, attributes: bytes) -> bytes:
    """bpf(2) for a command that answers in its attributes. Raises OSError."""
    return _bpf(command, attributes)[1]


def _bpf(command: int, attributes: bytes) -> Tuple[int, bytes]:
    buffer = ctypes.create_string_buffer(attributes.ljust(ATTR_BYTES, b"\0"), ATTR_BYTES)
    return syscall(NR_BPF, command, buffer, ATTR_BYTES), buffer.raw


def perf_event_open(attributes: bytes, cpu: int) -> int:
    """perf_event_open(2) on one CPU, for all processes. Raises OSError."""
    buffer = ctypes.create_string_buffer(attributes.ljust(PERF_ATTR_BYTES, b"\0"), PERF_ATTR_BYTES)
    return syscall(_NR_PERF_EVENT_OPEN, buffer, -1, cpu, -1, _PERF_FLAG_FD_CLOEXEC)


class ProgramInfo(NamedTuple):
    """What the kernel tells about a program. None: this kernel does not tell."""

    type: int
    id: int
    name: str
    run_time_ns: Optional[int]
    """Only while statistics are switched on (5.1)."""
    run_count: Optional[int]
    missed: Optional[int]
    """Runs that were skipped because a program was already running on that CPU (5.12)."""


def info(fd: int) -> bytes:
    """The info structure of a program or map, as far as this kernel has filled it. Raises OSError."""
    buffer = ctypes.create_string_buffer(_INFO_BYTES)
    attributes = bpf_answer(_OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", fd, _INFO_BYTES, ctypes.addressof(buffer)))
    length = struct.unpack_from("=I", attributes, 4)[0]
    return buffer.raw[:length]


def c_string(raw: bytes) -> str:
    """Bytes of a C string as text. What is not UTF-8 is shown as \\xNN."""
    return raw.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")


def program_info(fd: int) -> ProgramInfo:
    """struct bpf_prog_info. Raises OSError."""
    raw = info(fd)

    def u64(offset: int) -> Optional[int]:
        return int(struct.unpack_from("=Q", raw, offset)[0]) if len(raw) >= offset + 8 else None

    kind, identifier = struct.unpack_from("=II", raw)
    return ProgramInfo(kind, identifier, c_string(raw[64:80]), u64(192), u64(200), u64(208))


def enable_statistics() -> int:
    """A descriptor that keeps run-time statistics on while it is open (5.8, CAP_SYS_ADMIN). Raises OSError."""
    return bpf(_ENABLE_STATS, struct.pack("=I", _STATS_RUN_TIME))
