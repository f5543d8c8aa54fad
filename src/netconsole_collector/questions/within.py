"""Runs what answers a question in the network namespace that the question names."""

import os
from typing import Callable, Optional, TypeVar

from netconsole_collector.primitives.here import HERE, HOST_NETNS, NAMED_NETNS, Here
from netconsole_collector.primitives.inside import make_inside
from netconsole_collector.questions.known import BadQuestion, Json, text

Answer = TypeVar("Answer")
_OWN = "/proc/self/ns/net"


def within(arguments: Json, make: Callable[[], Answer], host: Here = HERE) -> Answer:
    """What ``make`` returns in the namespace ``netns``: its name, its inode, or ``host``.

    Raises BadQuestion and OSError.
    """
    path = path_of(text(arguments, "netns"), host)
    inode = host.status(path).inode
    is_own = inode == host.status(_OWN).inode
    (found,) = make_inside([(b"" if is_own else os.fsencode(path), inode)], make)
    if isinstance(found, OSError):
        raise found
    return found


def path_of(netns: str, host: Here = HERE) -> str:
    """What leads to the namespace that labels call so. Raises BadQuestion and OSError."""
    if netns in ("", "host"):
        return HOST_NETNS if host.exists(HOST_NETNS) else _OWN
    named = "{}/{}".format(NAMED_NETNS, netns)
    if "/" not in netns and netns not in (".", "..") and host.exists(named):
        return named
    if netns.isdigit():
        inode = int(netns)
        if host.status(_OWN).inode == inode:
            return _OWN
        for name in host.names(NAMED_NETNS) if host.exists(NAMED_NETNS) else ():
            path = "{}/{}".format(NAMED_NETNS, name)
            if host.exists(path) and host.status(path).inode == inode:
                return path
        pid = next((pid for pid, of in host.inodes("ns/net").items() if of == inode), None)
        if pid is not None:
            return "/proc/{}/ns/net".format(pid)
    raise BadQuestion("netns: no network namespace of this name: {!r}".format(netns[:40]))


def sysctl(name: str) -> Optional[int]:
    """A setting of the namespace of the calling thread that is a whole number; None where there is none."""
    try:
        with open("/proc/sys/net/" + name, "rb") as file:
            return int(file.read(64))
    except (OSError, ValueError):
        return None
