"""The block device and the file system below a file: by the device number of the file, and the table of mounts."""

import os
from typing import NamedTuple, Optional

from netconsole_collector.questions.facts.reading import Facts

_MOUNTS = "/proc/1/mountinfo"


class FilePlace(NamedTuple):
    """Where a file lies; None: not known, or the file is a block device and in no file system."""

    device: Optional[str]
    filesystem: Optional[str]


def where_it_lies(facts: Facts, path: str, root: str = "") -> FilePlace:
    """Of an absolute path as the process sees it whose ``root`` that is. A file system may be on no block device."""
    if path.startswith("/dev/") and ".." not in path.split("/"):
        name = facts.link(root + path) or path.rpartition("/")[2]
        if facts.exists(f"/sys/class/block/{name}"):
            return FilePlace(name, None)
    try:
        number = facts.host.status(root + path).device
    except OSError:
        return FilePlace(None, None)
    wanted = f"{os.major(number)}:{os.minor(number)}"
    return FilePlace(facts.link(f"/sys/dev/block/{wanted}"), _filesystem(facts, wanted))


def _filesystem(facts: Facts, number: str) -> Optional[str]:
    """The type of the file system with this device number (proc(5), /proc/PID/mountinfo)."""
    try:
        lines = facts.text(_MOUNTS).splitlines()
    except OSError:
        return None
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) > 2 and fields[2] == number and after:
            return after.split()[0]
    return None
