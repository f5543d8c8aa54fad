"""Question `namespace`: the inode of a network namespace by its name, or all its names by its inode."""

import os
from typing import Any, Optional, Set, Tuple

from netconsole_collector.primitives.here import HERE, HOST_NETNS, NAMED_NETNS, Here
from netconsole_collector.questions.known import BadQuestion, Json, text


def answer(arguments: Json) -> Any:
    """``name`` is answered with ``{"inode"}``, null where there is none; ``inode`` with ``{"names", "is_own"}``."""
    if "name" in arguments:
        return {"inode": inode_of(text(arguments, "name"))}
    inode = arguments.get("inode")
    if isinstance(inode, bool) or not isinstance(inode, int):
        raise BadQuestion("inode: expected a whole number")
    names, is_own = names_of(inode)
    return {"names": sorted(names), "is_own": is_own}


def inode_of(name: str, host: Here = HERE) -> Optional[int]:
    """The inode of a network namespace by its name in labels: ``host``, or a name in /run/netns."""
    try:
        return host.status(HOST_NETNS if name == "host" else "{}/{}".format(NAMED_NETNS, name.rpartition("/")[2])).inode
    except (OSError, ValueError):
        return None


def names_of(inode: int, host: Here = HERE) -> Tuple[Set[str], bool]:
    """What labels call a network namespace: its inode and all its names. And whether it is the own one."""
    names = {str(inode)}
    try:
        entries = host.names(NAMED_NETNS)
    except OSError:
        entries = []  # none has a name
    for name in entries:
        if _inode("{}/{}".format(NAMED_NETNS, name), host) == inode:
            names.add(os.fsencode(name).decode("utf-8", "backslashreplace"))
    told = _inode(HOST_NETNS, host)
    is_own = _inode("/proc/self/ns/net", host) == inode
    return names | ({"host"} if told == inode or (is_own and told is None) else set()), is_own


def _inode(path: str, host: Here) -> Optional[int]:
    try:
        return host.status(path).inode
    except OSError:
        return None
