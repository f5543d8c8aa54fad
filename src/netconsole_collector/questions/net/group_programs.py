"""The BPF programs of control groups that see what the sockets of a process receive (BPF_CGROUP_INET_INGRESS).

systemd makes such programs for IPAddressAllow= and IPAddressDeny=. No question of its own.
"""

import ctypes
import os
import platform
import struct
from typing import List, NamedTuple, Optional

from netconsole_collector.primitives import files
from netconsole_collector.questions.net.programs import SYSCALLS, name_of

_PROG_QUERY, _INGRESS, _EFFECTIVE = 16, 0, 1
_MOST = 16
_MAX_BYTES = 65536


class GroupProgram(NamedTuple):
    """``group``: its path below the mount. ``name``: None where the kernel does not tell it."""

    group: str
    name: Optional[str]


def of_process(process: Optional[str]) -> Optional[GroupProgram]:
    """The first that sees what a process (``name/pid``) receives; None where there is none, or nobody may ask."""
    pid = (process or "").rpartition("/")[2]
    mount = _mount()
    call = SYSCALLS.get(platform.machine())
    if not pid.isdigit() or mount is None or call is None:
        return None
    try:
        lines = files.read("/proc/{}/cgroup".format(pid).encode(), _MAX_BYTES).splitlines()
        group = next((line[3:] for line in lines if line.startswith(b"0::")), None)
        if group is None:
            return None
        directory = os.open(mount + group, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = _effective(call, directory)
    finally:
        os.close(directory)
    return GroupProgram(group.decode("utf-8", "backslashreplace"), name_of(found[0])) if found else None


def _effective(call: int, directory: int) -> List[int]:
    """The numbers of the programs of a group and of those above it."""
    numbers = (ctypes.c_uint32 * _MOST)()
    query = struct.pack("=IIIIQI", directory, _INGRESS, _EFFECTIVE, 0, ctypes.addressof(numbers), _MOST)
    asked = ctypes.create_string_buffer(query.ljust(128, b"\0"), 128)
    if ctypes.CDLL(None, use_errno=True).syscall(call, _PROG_QUERY, asked, 128):
        return []
    (count,) = struct.unpack_from("=I", asked.raw, 24)
    return [numbers[at] for at in range(min(count, _MOST))]


def _mount() -> Optional[bytes]:
    """Where the control groups of version 2 are."""
    try:
        lines = [line.split() for line in files.read(b"/proc/self/mounts", _MAX_BYTES).splitlines()]
    except OSError:
        return None
    return next((words[1] for words in lines if len(words) > 2 and words[2] == b"cgroup2"), None)
