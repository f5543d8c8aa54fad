"""Runs what answers a question in the network namespace that the question names."""

import os
from typing import Callable, Iterator, Optional, Set, Tuple, TypeVar, Union

from netconsole_collector.primitives.here import HERE, HOST_NETNS, NAMED_NETNS, Here
from netconsole_collector.primitives.inside import make_inside
from netconsole_collector.questions.known import BadQuestion, Json, text

InNamespace = TypeVar("InNamespace")
_OWN = "/proc/self/ns/net"


def within(arguments: Json, make: Callable[[], InNamespace], host: Here = HERE) -> InNamespace:
    """What ``make`` returns in the namespace ``netns``: its name, its inode, or ``host``.

    Raises BadQuestion and OSError, and whatever ``make`` does.
    """
    path = path_of(text(arguments, "netns"), host)
    inode = host.status(path).inode
    is_own = inode == host.status(_OWN).inode

    def made() -> Union[InNamespace, Exception]:
        try:
            return make()
        except Exception as error:
            return error  # it is raised in the thread that asks, which says it

    (found,) = make_inside([(b"" if is_own else os.fsencode(path), inode)], made)
    if isinstance(found, Exception):
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
        path = next((path for path, of in paths(host) if of == inode), None)
        if path is not None:
            return path
    raise BadQuestion("netns: no network namespace of this name: {!r}".format(netns[:40]))


def paths(host: Here = HERE) -> Iterator[Tuple[str, int]]:
    """What leads to each namespace of this host, and its inode: those of processes, then those that have a name."""
    seen: Set[int] = set()
    for pid, inode in sorted(host.inodes("ns/net").items()):
        if inode not in seen:
            seen.add(inode)
            yield "/proc/{}/ns/net".format(pid), inode
    for name in host.names(NAMED_NETNS) if host.exists(NAMED_NETNS) else ():
        path = "{}/{}".format(NAMED_NETNS, name)
        inode = host.status(path).inode if host.exists(path) else 0
        if inode and inode not in seen:
            seen.add(inode)
            yield path, inode


def sysctl(name: str) -> Optional[int]:
    """A setting of the namespace of the calling thread that is a whole number; None where there is none."""
    numbers = sysctl_numbers(name)
    return numbers[0] if len(numbers) == 1 else None


def sysctl_numbers(name: str) -> Tuple[int, ...]:
    """A setting that is several whole numbers; empty where there is none."""
    try:
        with open("/proc/sys/net/" + name, "rb") as file:
            return tuple(map(int, file.read(64).split()))
    except (OSError, ValueError):
        return ()
