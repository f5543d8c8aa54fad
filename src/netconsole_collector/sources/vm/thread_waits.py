"""thread_waits: how long the threads that move the packets of VMs wait for a CPU, from the scheduler's own books.

They are the threads of each QEMU process (virtual CPUs, I/O threads, its main loop, vhost workers from 6.4 on), the
vhost workers of older kernels, and those of ovs-vswitchd without PMD threads, of which ovs_pmd tells more.
/proc/PID/task/TID/schedstat has nanoseconds on a CPU, nanoseconds that the thread was ready and waited for one
(run_delay, kernel/sched/stats.h), and how often it got one. Nothing is hooked, and nobody is asked.
"""

import re
from typing import Dict, List, Optional, Union

from netconsole_collector.primitives.here import HERE, Here, text_of
from netconsole_collector.sources import scheduler
from netconsole_collector.sources.base import Json, KernelSource, RowMaker, SourceError, SourceReading, SourceRow
from netconsole_collector.sources.new_processes import NewProcesses, words
from netconsole_collector.sources.ovs.unixctl import PROGRAM_COMMS
from netconsole_collector.sources.vm import qemu

MAX_THREADS = 8192
LOOK_EVERY = 5
"""Intervals between two looks for new threads, and at one that has run and does not wait: a part of them in each."""
YOUNG_LOOKS = 15
"""Looks at a new process, one in each interval: what it has counted before it is found is in no figure."""
SOME_WAIT_PCT = 1.0
"""From this share of an interval on, a thread is looked at in each interval."""
BOOKS = ("ran_ns", "waited_ns", "runs")
LATE = ("involuntary", "migrations")
"""What is read of a thread that is looked at."""
COUNTS = (*BOOKS, *LATE)
MAX_ALLOWED = 127
"""Characters of a list of CPUs."""
_VCPU = re.compile(r"CPU (\d+)/(?:KVM|TCG|HVF)$")
_OF_SWITCH = re.compile(r"(handler|revalidator)(\d+)")
NAMELESS = "thread without a name"
IO_THREAD = "I/O thread "
"""Before the id of an I/O thread, which people choose."""
_OF_MONITOR = "IO mon_iothread"
"""QEMU answers its managers there (monitor/monitor.c). It is built as an I/O thread, and no disk uses it."""
_UNNAMED = ("qemu-", "kvm")
"""How a thread of QEMU is called that was given no name: as its program."""
_PMD = "pmd"
_WORKER = re.compile(r"vhost-(\d+)")
PROCESSOR = 39 - 3
"""Of the fields of /proc/PID/stat, by its number in proc(5), counted from the third (after the process name)."""
_NO_BOOKS = "this kernel does not count how long threads wait for a CPU (CONFIG_SCHED_INFO)"
_CLOSED = "this kernel does not say how long threads wait for a CPU: sysctl kernel.task_delayacct=1 lets it"
"""Without CONFIG_SCHEDSTATS it writes zeros while delay accounting is off (sched_info_on, kernel/sched/stats.h)."""


class _Thread:
    """``where``: its directory in /proc. ``waited``: what its books said in the interval before; -1 at the first."""

    def __init__(self, where: str, tid: int, labels: Dict[str, Union[str, int, None]]) -> None:
        self.where = where
        self.tid = tid
        self.labels = labels
        self.waited = -1
        self.looked_at = 0
        """How often it had run when it was looked at last: while it does not run, nothing of it changes."""
        self.unread_ns = 0
        """The time since then."""
        self.span_ns = 0
        """Of this look: the time since the one before. 0 without a look."""
        self.cpu: Optional[int] = None
        self.late: List[Optional[int]] = [None] * len(LATE)


class ThreadWaits(KernelSource):
    """See the module."""

    def __init__(self, host: Here = HERE) -> None:
        self._host = host
        self._processes = NewProcesses(host, YOUNG_LOOKS)
        self._rows = RowMaker(COUNTS, MAX_THREADS)
        self._machines: Dict[str, str] = {}
        """By process: a VM's name, empty for Open vSwitch; a worker of an older kernel has that of its QEMU."""
        self._threads: Dict[str, _Thread] = {}
        self._look_in = self._turn = 0
        """Until the next look for threads; whose turn it is to be looked at, by their numbers."""
        self._said_empty = False

    def finds_any(self) -> bool:
        """Whether a QEMU process or ovs-vswitchd runs now."""
        return any(self._machine(pid) is not None for pid in self._processes.all())

    def read(self, reading: SourceReading) -> List[Json]:
        """One row per thread. Raises SourceError while there is none, after one empty table that says so."""
        self._look_in -= 1
        found = self._found()
        self._turn = (self._turn + 1) % LOOK_EVERY
        if found or self._look_in <= 0:
            self._look_in = LOOK_EVERY
            self._look()
        readings = [self._reading(one, reading.interval_ns) for one in list(self._threads.values())]
        known = [one for one in readings if one is not None]
        rows, full, omitted = self._rows.rows(known)
        for row in rows:
            self._tell_span(row, reading.interval_ns)
        if not known and self._said_empty:
            why = _CLOSED if self._threads else _NO_BOOKS
            raise SourceError(why if self._machines else "neither QEMU nor Open vSwitch runs here", state="unsupported")
        self._said_empty = full and not known
        return [reading.table("thread_waits", "threads", (rows, full, omitted))]

    def _found(self) -> bool:
        """Whether there are new processes to watch."""
        known = len(self._machines)
        for pid in self._processes.look(set(self._machines)):
            machine = self._machine(pid)
            if machine is not None:
                self._machines[pid] = machine
        return len(self._machines) > known

    def _look(self) -> None:
        """For new threads, and for those that have ended."""
        threads: Dict[str, _Thread] = {}
        for pid in list(self._machines):
            try:
                tasks = self._host.names("/proc/{}/task".format(pid))
            except OSError:
                del self._machines[pid]
                self._processes.forget(pid)
                continue
            for tid in tasks:
                one = self._threads.get(tid) or self._new(pid, tid)
                if one is not None:
                    threads[tid] = one
        self._threads = threads

    def _machine(self, pid: str) -> Optional[str]:
        """Whose packets the process moves; empty for the switch, None where it moves none."""
        arguments = self._arguments(pid)
        if qemu.is_qemu(arguments):
            return qemu.machine_of(arguments, pid)
        comm = text_of(self._host, "/proc/{}/comm".format(pid)).strip()
        worker = _WORKER.match(comm) if arguments == [""] else None
        if worker:
            owner = self._arguments(worker.group(1))
            return qemu.machine_of(owner, worker.group(1)) if qemu.is_qemu(owner) else None
        return "" if comm in PROGRAM_COMMS else None

    def _new(self, pid: str, tid: str) -> Optional[_Thread]:
        where = "/proc/{}/task/{}".format(pid, tid)
        comm = text_of(self._host, where + "/comm").rstrip("\n")
        if comm.startswith(_PMD) and not self._machines[pid]:
            return None
        role = role_of(comm, pid == tid)
        return _Thread(where, int(tid), {"vm": self._machines[pid], "role": role, "tid": int(tid), "allowed": None})

    def _reading(self, thread: _Thread, interval_ns: int) -> Optional[SourceRow]:
        fields = text_of(self._host, thread.where + "/schedstat").split()
        if len(fields) != len(BOOKS):
            self._threads.pop(str(thread.tid), None)
            return None
        ran, waited, runs = map(int, fields)
        if not runs:
            return None  # it was read, so it has run: the books are closed, or it is only just made
        now = waited - thread.waited if 0 <= thread.waited <= waited else 0
        thread.waited = waited
        share = min(100.0, 100.0 * now / interval_ns) if interval_ns > 0 else 0.0
        thread.unread_ns, thread.span_ns = thread.unread_ns + interval_ns, 0
        is_turn = not thread.looked_at or thread.tid % LOOK_EVERY == self._turn
        if share >= SOME_WAIT_PCT or (is_turn and runs != thread.looked_at):
            self._look_at(thread, runs)
        return thread.labels, (ran, waited, runs, *thread.late), {"cpu": thread.cpu, "waited_pct": round(share, 1)}

    def _look_at(self, thread: _Thread, runs: int) -> None:
        stat = text_of(self._host, thread.where + "/stat").rpartition(")")[2].split()
        thread.cpu = int(stat[PROCESSOR]) if len(stat) > PROCESSOR else None
        status = scheduler.status_of(self._host, thread.where)
        thread.labels = {**thread.labels, "allowed": scheduler.allowed_of(status, MAX_ALLOWED)}
        thread.late = [
            scheduler.count_of(status, scheduler.INVOLUNTARY),
            scheduler.migrations_of(self._host, thread.where),
        ]
        thread.looked_at, thread.span_ns, thread.unread_ns = runs, thread.unread_ns, 0

    def _tell_span(self, row: Json, interval_ns: int) -> None:
        """Of which time the counts are that were read after some intervals."""
        thread = self._threads[str(row["labels"]["tid"])]
        for name in LATE if thread.span_ns > interval_ns else ():
            if row["counts"].get(name, {}).get("delta"):
                row["counts"][name]["interval_ns"] = thread.span_ns

    def _arguments(self, pid: str) -> List[str]:
        return words(text_of(self._host, "/proc/{}/cmdline".format(pid)))


def role_of(comm: str, is_main: bool) -> str:
    """What a thread does, by the name that QEMU (debug-threads=on), vhost or ovs-vswitchd gave it, in words."""
    vcpu = _VCPU.match(comm)
    if vcpu:
        return "vCPU {}".format(vcpu.group(1))
    switch = _OF_SWITCH.match(comm)
    if switch:
        return "{} {}".format(switch.group(1), switch.group(2))
    if _WORKER.match(comm):
        return "vhost worker"
    if comm == _OF_MONITOR:
        return "monitor thread"
    if comm.startswith("IO "):
        return IO_THREAD + comm[3:]
    if is_main:
        return "main thread"
    return NAMELESS if comm.startswith(_UNNAMED) else "thread {}".format(comm)
