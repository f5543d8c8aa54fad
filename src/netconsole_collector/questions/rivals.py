"""Question `rivals`: what keeps a thread from its CPU: a limit of its own, or who runs there.

`cpus`: where the thread may run. `limit`, `group`, `throttled_pct`: the limit of the control group that stopped it,
that group, and for how much of the time; null where none did. `rival`, `rival_pct`, `rival_cpu`: the thread that had
most of the time of these CPUs meanwhile, as people know it, how much of one CPU that is, and which. `process`,
`rival_vm`: its name, of a program or of a VM. `rivals`: how many took some.
"""

import os
import re
import time
from typing import Dict, List, NamedTuple, Tuple

from netconsole_collector.primitives.here import HERE, Here, text_of
from netconsole_collector.questions.known import BadQuestion, Json
from netconsole_collector.sources.new_processes import words
from netconsole_collector.sources.vm import cpu_limits, qemu
from netconsole_collector.sources.vm.cpu_limits import CpuLimit, pairs
from netconsole_collector.sources.vm.thread_waits import NAMELESS, PROCESSOR, role_of

PAUSE_S = 0.25
_BUSY_PROCESSES = 8
"""Whose threads are looked at, one by one: of those that had most CPU time."""
_MAX_THREADS = 1024
_SOME_PCT = 2.0
_NS = 1000000000
_UTIME, _STIME = 14 - 3, 15 - 3  # of /proc/PID/stat, counted as PROCESSOR


class Rival(NamedTuple):
    """A thread that ran: for how long, on which CPU."""

    pid: str
    tid: str
    ran_ns: int
    cpu: int


def answer(arguments: Json) -> Json:
    """Of the thread ``tid`` of this host. It takes two pauses."""
    tid = arguments.get("tid")
    if not isinstance(tid, int):
        raise BadQuestion("tid: expected a whole number")
    return asked(HERE, str(tid), PAUSE_S)


def asked(host: Here, tid: str, pause_s: float) -> Json:
    """As :func:`answer`, of any host."""
    status = dict(pairs(text_of(host, "/proc/{}/status".format(tid)), ":"))
    if not status:
        raise BadQuestion("tid: no such thread (any more)")
    allowed = status.get("Cpus_allowed_list", "").strip()
    cpus, began = _cpus(allowed), time.monotonic()
    limits, ticks = cpu_limits.limits(host, cpu_limits.groups_of(host, tid)), _ticks(host)
    time.sleep(pause_s)
    busy = sorted(((now - ticks.get(pid, now), pid) for pid, now in _ticks(host).items()), reverse=True)
    threads = _threads(host, [pid for spent, pid in busy[:_BUSY_PROCESSES] if spent > 0])
    looked = time.monotonic()
    time.sleep(pause_s)
    rivals = sorted(_rivals(host, threads, cpus, tid), key=lambda one: -one.ran_ns)
    until = time.monotonic()
    some = [one for one in rivals if _pct(one.ran_ns, until - looked) >= _SOME_PCT]
    found: Json = {"cpus": allowed, **_limit(host, limits, until - began)}
    first = some[0] if some else None
    found.update(_called(host, first) if first is not None else {"rival": None, "process": None, "rival_vm": None})
    found["rival_pct"] = round(_pct(first.ran_ns, until - looked)) if first is not None else None
    found["rival_cpu"] = first.cpu if first is not None else None
    found["rivals"] = len(some)
    return found


def _cpus(text: str) -> List[range]:
    """Of a list as the kernel writes it: 0-3,8."""
    found = []
    for part in text.split(","):
        ends = re.match(r"(\d+)(?:-(\d+))?$", part)
        if ends:
            found.append(range(int(ends.group(1)), int(ends.group(2) or ends.group(1)) + 1))
    return found


def _ticks(host: Here) -> Dict[str, int]:
    """CPU time of each process."""
    found = {}
    for pid in host.names("/proc"):
        fields = _fields(host, "/proc/{}/stat".format(pid)) if pid.isdigit() else []
        if len(fields) > PROCESSOR:
            found[pid] = int(fields[_UTIME]) + int(fields[_STIME])
    return found


def _threads(host: Here, pids: List[str]) -> Dict[Tuple[str, str], int]:
    """By process and thread: nanoseconds on a CPU so far."""
    found: Dict[Tuple[str, str], int] = {}
    for pid in pids:
        try:
            tids = host.names("/proc/{}/task".format(pid), _MAX_THREADS)
        except OSError:
            continue  # it has ended
        for tid in tids[: _MAX_THREADS - len(found)]:
            found[pid, tid] = _ran_ns(host, pid, tid)
    return found


def _rivals(host: Here, threads: Dict[Tuple[str, str], int], cpus: List[range], own: str) -> List[Rival]:
    found = []
    for (pid, tid), before in threads.items():
        ran = _ran_ns(host, pid, tid) - before
        if ran <= 0 or tid == own or pid == str(os.getpid()):
            continue
        fields = _fields(host, "/proc/{}/task/{}/stat".format(pid, tid))
        if len(fields) > PROCESSOR and any(int(fields[PROCESSOR]) in one for one in cpus):
            found.append(Rival(pid, tid, ran, int(fields[PROCESSOR])))
    return found


def _called(host: Here, rival: Rival) -> Json:
    """A thread of a VM by the VM's name and what it does there; any other by its program and number."""
    comm = text_of(host, "/proc/{}/task/{}/comm".format(rival.pid, rival.tid)).rstrip("\n")
    arguments = words(text_of(host, "/proc/{}/cmdline".format(rival.pid)))
    if qemu.is_qemu(arguments):
        name = qemu.machine_of(arguments, rival.pid)
        role = role_of(comm, rival.pid == rival.tid).replace(NAMELESS, "a thread")
        return {"rival": "{} of {}".format(role, name), "process": None, "rival_vm": name}
    process = "{} ({})".format(comm, rival.tid)
    return {"rival": process, "process": process, "rival_vm": None}


def _limit(host: Here, before: Dict[str, CpuLimit], passed_s: float) -> Json:
    """Of the group that stopped it longest."""
    now = cpu_limits.limits(host, list(before))
    longest, group = max(
        ((one.stopped_ns - before[group].stopped_ns, group) for group, one in now.items()), default=(0, "")
    )
    pct = _pct(longest, passed_s)
    if pct < _SOME_PCT or now[group].quota < 0:
        return {"limit": None, "group": None, "throttled_pct": None}
    limit = "{:g} ms in {:g} ms".format(now[group].quota / 1000, now[group].period / 1000)
    return {"limit": limit, "group": group, "throttled_pct": min(100, round(pct))}


def _pct(ns: int, passed_s: float) -> float:
    return 100.0 * ns / _NS / passed_s if passed_s > 0 else 0.0


def _ran_ns(host: Here, pid: str, tid: str) -> int:
    first = text_of(host, "/proc/{}/task/{}/schedstat".format(pid, tid)).split(" ", 1)[0]
    return int(first) if first.isdigit() else 0


def _fields(host: Here, path: str) -> List[str]:
    return text_of(host, path).rpartition(")")[2].split()
