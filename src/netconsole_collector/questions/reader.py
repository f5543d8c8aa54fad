"""Question `reader`: what the process does whose socket has no room left.

`pid`: its number. `state`: "stopped" by a signal or a debugger, else "running". `busy_pct`: of one CPU, what its thread
takes that takes most. `wait_pct`: of the time, how long its thread waits for a CPU that waits longest. `threads`: how
many it has. `rmem_max_kb`: up to which size a socket may ask for a buffer. `does`: "stopped", "waits" (30 % and more of
the time), "busy" (90 % and more), or where something waits in the socket and it takes 2 % and less, "writes" (a thread
waits until it can write or send, or for a disk) or "sleeps"; null for none of these.
"""

import re
import time
from typing import Callable, Dict, NamedTuple, Optional

from netconsole_collector.kernel.syscalls import MACHINE
from netconsole_collector.primitives.here import HERE, Here, text_of
from netconsole_collector.primitives.netlink import Netlink
from netconsole_collector.questions.known import BadQuestion, Json, text
from netconsole_collector.questions.within import within
from netconsole_collector.sources.net.netlink_messages import NETLINK_SOCK_DIAG, bound_sockets

PAUSE_S = 0.3
BUSY_PCT, WAITS_PCT, SLEEPS_PCT = 90.0, 30.0, 2.0
_MAX_THREADS = 1024
_PROCESS = re.compile(r".*(?:\((\d{1,10})\)|/(\d{1,10}))", re.DOTALL)
_STOPPED, _WAITS_FOR_DISK = ("T", "t"), "D"
_WRITES = {
    "x86_64": (1, 18, 20, 44, 46, 74, 75, 296, 307),
    "aarch64": (64, 66, 68, 70, 82, 83, 206, 211, 269),
}
"""System calls: write, pwrite, writev, sendto, sendmsg, fsync, fdatasync, pwritev and sendmmsg."""
_COPIES = ("packet", "raw")


class _Times(NamedTuple):
    ran_ns: int
    waited_ns: int


def answer(arguments: Json) -> Json:
    """Of ``process``, as labels have it: name (number) or name/number; and of its socket in the namespace ``netns``.

    ``inode``: of the socket. ``kind``: packet or raw, of one that loses at this very time, so that something waits.
    """
    found = _PROCESS.fullmatch(text(arguments, "process"))
    if found is None:
        raise BadQuestion("process: expected a name, and its number in parentheses")
    is_copies = arguments.get("kind") in _COPIES
    return asked(
        HERE,
        found.group(1) or found.group(2),
        PAUSE_S,
        lambda: is_copies or within(arguments, lambda: _waits_in(arguments.get("inode"))),
    )


def asked(host: Here, pid: str, pause_s: float, has_unread: Callable[[], bool]) -> Json:
    """As :func:`answer`, of any host. ``has_unread``: whether something waits in the socket now."""
    began, before = time.monotonic(), _threads(host, pid)
    if not before:
        raise BadQuestion("process: no such process (any more)")
    is_unread = has_unread()
    time.sleep(pause_s)
    passed_ns, now = max(1.0, 1e9 * (time.monotonic() - began)), _threads(host, pid)
    both = [(now[tid], before[tid]) for tid in now if tid in before]
    busy = max((100.0 * (new.ran_ns - old.ran_ns) / passed_ns for new, old in both), default=0.0)
    wait = max((100.0 * (new.waited_ns - old.waited_ns) / passed_ns for new, old in both), default=0.0)
    state = "".join(text_of(host, "/proc/{}/stat".format(pid)).rpartition(")")[2].split()[:1])
    is_unread = is_unread and has_unread()
    is_writing = state == _WAITS_FOR_DISK or any(_writes(host, pid, tid) for tid in now)
    most = text_of(host, "/proc/sys/net/core/rmem_max").strip()
    return {
        "pid": int(pid),
        "state": "stopped" if state in _STOPPED else "running",
        "busy_pct": min(100, round(busy)),
        "wait_pct": min(100, round(wait)),
        "does": _does(state in _STOPPED, busy, wait, is_unread, is_writing),
        "threads": len(now),
        "rmem_max_kb": int(most) // 1024 if most.isdigit() else None,
    }


def _does(is_stopped: bool, busy_pct: float, wait_pct: float, is_unread: bool, is_writing: bool) -> Optional[str]:
    if is_stopped:
        return "stopped"
    if wait_pct >= WAITS_PCT:
        return "waits"
    if busy_pct >= BUSY_PCT:
        return "busy"
    if busy_pct > SLEEPS_PCT or not is_unread:
        return None
    return "writes" if is_writing else "sleeps"


def _writes(host: Here, pid: str, tid: str) -> bool:
    """Whether a thread is in a system call that writes; no where the kernel does not tell."""
    number = text_of(host, "/proc/{}/task/{}/syscall".format(pid, tid)).split(" ", 1)[0]
    return number.isdigit() and int(number) in _WRITES.get(MACHINE, ())


def _waits_in(inode: object) -> bool:
    """Of a UDP socket of the namespace of the calling thread."""
    netlink = Netlink(NETLINK_SOCK_DIAG)
    try:
        return any(one.inode == inode and one.waiting > 0 for one in bound_sockets(netlink) if one.protocol == "udp")
    finally:
        netlink.close()


def _threads(host: Here, pid: str) -> Dict[str, _Times]:
    """Time on a CPU and waiting for one, by thread."""
    try:
        tids = host.names("/proc/{}/task".format(pid), _MAX_THREADS)
    except OSError:
        return {}
    found = {}
    for tid in tids[:_MAX_THREADS]:
        fields = text_of(host, "/proc/{}/task/{}/schedstat".format(pid, tid)).split()
        if len(fields) >= 2 and fields[0].isdigit() and fields[1].isdigit():
            found[tid] = _Times(int(fields[0]), int(fields[1]))
    return found
