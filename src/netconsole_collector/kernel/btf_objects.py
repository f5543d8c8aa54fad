"""The kernel's own copies of BTF. To attach to a function of a module, its BTF is named by a descriptor."""

import ctypes
import errno
import os
import struct
from typing import Iterator

from netconsole_collector.kernel import syscalls

_GET_FD_BY_ID, _GET_NEXT_ID, _GET_INFO = 19, 23, 15
_NAME_BYTES = 64
_INFO = struct.Struct("=QIIQII")
"""struct bpf_btf_info: btf, btf_size, id, name, name_len, kernel_btf (include/uapi/linux/bpf.h)."""


def of_module(name: str) -> int:
    """A descriptor of the module's BTF (5.11). Raises OSError: without CAP_SYS_ADMIN, and when there is none."""
    for identifier in _ids():
        try:
            fd = syscalls.bpf(_GET_FD_BY_ID, struct.pack("=I", identifier))
        except FileNotFoundError:  # its module has just been unloaded
            continue
        try:
            found = _name(fd)
        except OSError:
            os.close(fd)
            raise
        if found == name:
            return fd
        os.close(fd)
    raise OSError(errno.ENOENT, "no BTF of {}".format(name))


def _ids() -> Iterator[int]:
    identifier = 0
    while True:
        try:
            answer = syscalls.bpf_answer(_GET_NEXT_ID, struct.pack("=I", identifier))
        except FileNotFoundError:
            return
        identifier = struct.unpack_from("=I", answer, 4)[0]
        yield identifier


def _name(fd: int) -> str:
    """Of the kernel's own BTF, vmlinux or the module; programs' BTF has none. Before 5.11 none has."""
    name = ctypes.create_string_buffer(_NAME_BYTES)
    info = ctypes.create_string_buffer(_INFO.pack(0, 0, 0, ctypes.addressof(name), _NAME_BYTES, 0), _INFO.size)
    try:
        syscalls.bpf(_GET_INFO, struct.pack("=IIQ", fd, _INFO.size, ctypes.addressof(info)))
    except OSError as error:
        if error.errno != errno.E2BIG:  # what the kernel says to a question longer than those that it knows
            raise
    return syscalls.c_string(name.raw)
