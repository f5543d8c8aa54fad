"""Lets BCC compile without making maps: for another host a user without privileges can compile, too.

BCC makes the maps while it compiles, and only their sizes are of use here. So the calls of bpf(2) of the thread that
compiles do not reach the kernel (seccomp_unotify(2), Linux 5.0): another thread answers them. Who is given a map is
given /dev/null, and its sizes are kept.
"""

import ctypes
import errno
import fcntl
import os
import struct
import threading
from typing import Dict

from netconsole_collector.kernel import syscalls
from netconsole_collector.kernel.bpf_maps import MapInfo

_SECCOMP = {"x86_64": 317, "aarch64": 277}
"""Machine → number of seccomp(2)."""
_SET_FILTER, _NEW_LISTENER = 1, 8
_PR_SET_NO_NEW_PRIVS = 38
_INSTRUCTION = struct.Struct("=HBBI")
_LOAD_NUMBER, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ASK, _ALLOW = 0x7FC00000, 0x7FFF0000
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CALL = struct.Struct("=QIIiIQ6Q")
"""struct seccomp_notif: id, pid, flags; then seccomp_data: number, architecture, address, arguments."""
_ANSWER = struct.Struct("=QqiI")
"""struct seccomp_notif_resp: id, value, error, flags."""
_MAP_CREATE, _PROG_LOAD, _BTF_LOAD = 0, 5, 18
_MAP = struct.Struct("=5I8x16s")
_U32 = 0xFFFFFFFF
"""Commands and sizes are of this size: what stands above in a register is not theirs."""


class PretendedMaps:
    """From now on this thread makes no map. Raises OSError where the kernel or a sandbox does not allow that."""

    def __init__(self) -> None:
        self.made: Dict[int, MapInfo] = {}
        """By descriptor."""
        self._listener = -1
        self._begun = threading.Event()
        # Begun before there is a filter: it is not for this thread.
        threading.Thread(target=self._answer_all, name="no maps", daemon=True).start()
        try:
            self._listener = _filter()
        finally:
            self._begun.set()

    def _answer_all(self) -> None:
        self._begun.wait()
        while self._listener >= 0:
            call = bytearray(_CALL.size)
            try:
                fcntl.ioctl(self._listener, _RECEIVE, call)
                number, _, _, _, _, _, command, address, size = _CALL.unpack(call)[:9]
                value = self._answer(command & _U32, ctypes.string_at(address, size & _U32))
                answer = _ANSWER.pack(number, max(0, value), min(0, value), 0)
                fcntl.ioctl(self._listener, _SEND, bytearray(answer))
            except OSError as error:
                if error.errno not in (errno.EINTR, errno.ENOENT):
                    return

    def _answer(self, command: int, attributes: bytes) -> int:
        """A descriptor, or an error below zero."""
        if command not in (_MAP_CREATE, _PROG_LOAD, _BTF_LOAD):
            return -errno.EPERM
        try:
            fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            return -(error.errno or errno.EIO)
        if command == _MAP_CREATE:
            kind, key, value, entries, flags, name = _MAP.unpack_from(attributes.ljust(_MAP.size, b"\0"))
            self.made[fd] = MapInfo(kind, 0, key, value, entries, flags, syscalls.c_string(name))
        return fd


def _filter() -> int:
    """The descriptor by which calls of bpf(2) of this thread are answered."""
    number = _SECCOMP.get(syscalls.MACHINE)
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    code = [(_LOAD_NUMBER, 0, 0, 0), (_IF_EQUAL, 0, 1, syscalls.NR_BPF), (_RETURN, 0, 0, _ASK), (_RETURN, 0, 0, _ALLOW)]
    program = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*one) for one in code))
    head = struct.pack("@HP", len(code), ctypes.addressof(program))
    if syscalls.libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    return syscalls.syscall(number, _SET_FILTER, _NEW_LISTENER, head)
