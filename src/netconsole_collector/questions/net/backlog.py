"""Question `backlog`: how many packets may wait for one CPU, or which program does not take those that wait for it.

`limit`: net.core.netdev_max_backlog, which is of the whole host. Of "program" (NFQUEUE): `queues`: how many a program
has opened; `number`, `process`, `waiting`, `dropped`: of the one that has lost most, or null.
"""

from typing import Any, List, NamedTuple

from netconsole_collector.primitives import files
from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.questions.known import BadQuestion, Json
from netconsole_collector.questions.within import within

_LIMIT = "/proc/sys/net/core/netdev_max_backlog"
_QUEUES = b"/proc/thread-self/net/netfilter/nfnetlink_queue"
_COLUMNS = 9


class ProgramQueue(NamedTuple):
    """``portid``: of its netlink socket, mostly the number of the process. ``dropped``: what it had no room for."""

    number: int
    portid: int
    waiting: int
    dropped: int


def answer(arguments: Json, host: Here = HERE) -> Any:
    """Of this host, or ``of`` "program" of the namespace ``netns``."""
    if arguments.get("of") == "program":
        return within(arguments, lambda: _told(queues_in(_read())))
    text = host.read(_LIMIT).decode("ascii", "replace").strip()
    if not text.isdigit():
        raise BadQuestion("{}: expected a number".format(_LIMIT))
    return {"limit": int(text)}


def queues_in(content: bytes) -> List[ProgramQueue]:
    """Of the file, a line each: number, portid, waiting, mode, range, dropped, dropped for netlink, last packet, 1
    (seq_show of net/netfilter/nfnetlink_queue.c). Raises ValueError.
    """
    found = []
    for line in content.splitlines():
        words = [int(word) for word in line.split()]
        if len(words) < _COLUMNS:
            raise ValueError(line[:40])
        found.append(ProgramQueue(words[0], words[1], words[2], words[5] + words[6]))
    return found


def _read() -> bytes:
    """Empty without that part of the kernel."""
    try:
        return files.read(_QUEUES, 1 << 20)
    except FileNotFoundError:
        return b""


def _told(queues: List[ProgramQueue]) -> Json:
    most = max(queues, key=lambda one: one.dropped, default=None)
    return {
        "queues": len(queues),
        "number": most.number if most is not None else None,
        "process": _process(most.portid) if most is not None else None,
        "waiting": most.waiting if most is not None else None,
        "dropped": most.dropped if most is not None else None,
    }


def _process(pid: int) -> str:
    """As labels have it; a number alone where it is none of a process that is there."""
    try:
        comm = files.read("/proc/{}/comm".format(pid).encode("ascii"), 64).decode("utf-8", "backslashreplace").strip()
    except OSError:
        return "the program with netlink port {}".format(pid)
    return "{}/{}".format(comm, pid)
