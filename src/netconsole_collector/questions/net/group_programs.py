"""The BPF programs of control groups that see what the sockets of a process receive, or send.

systemd makes such programs for IPAddressAllow= and IPAddressDeny=. No question of its own.
"""

import os
from typing import NamedTuple, Optional

from netconsole_collector.primitives import files
from netconsole_collector.questions.net.programs import name_of, queried

INGRESS, EGRESS = 0, 1  # BPF_CGROUP_INET_INGRESS, BPF_CGROUP_INET_EGRESS
_EFFECTIVE = 1
_MAX_BYTES = 65536


class GroupProgram(NamedTuple):
    """``group``: its path below the mount. ``name``: None where the kernel does not tell it."""

    group: str
    name: Optional[str]


def of_process(process: Optional[str], direction: int = INGRESS) -> Optional[GroupProgram]:
    """The first that sees what a process (``name/pid``) receives or sends.

    None where there is none, or nobody may ask.
    """
    pid = (process or "").rpartition("/")[2]
    mount = _mount()
    if not pid.isdigit() or mount is None:
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
        found = queried(directory, direction, _EFFECTIVE)  # also of the groups above it
    finally:
        os.close(directory)
    return GroupProgram(group.decode("utf-8", "backslashreplace"), name_of(found[0])) if found else None


def _mount() -> Optional[bytes]:
    """Where the control groups of version 2 are."""
    try:
        lines = [line.split() for line in files.read(b"/proc/self/mounts", _MAX_BYTES).splitlines()]
    except OSError:
        return None
    return next((words[1] for words in lines if len(words) > 2 and words[2] == b"cgroup2"), None)
