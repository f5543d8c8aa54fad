"""vm_states: the CPU time of every QEMU process, whether it runs its virtual CPUs, and its memory, from /proc.

Nothing is asked of QEMU itself: its control sockets belong to whoever manages it. A virtual CPU that runs, or sleeps
because its guest does, is inside the call KVM_RUN. One that QEMU has paused waits elsewhere, and so do all others.
"""

import re
from typing import Dict, Iterable, List, Optional, Union

from netconsole_collector.primitives.here import HERE, Here, text_of
from netconsole_collector.sources.base import Json, KernelSource, RowMaker, SourceError, SourceReading, SourceRow
from netconsole_collector.sources.new_processes import NewProcesses, words
from netconsole_collector.sources.vm import qemu
from netconsole_collector.sources.vm.vm_memory import VmMemory, VmProcess

MAX_VMS = 4096
LOOK_EVERY = 5
"""Intervals between two looks for new QEMU processes."""
YOUNG_LOOKS = 3
"""Looks at a new process: what it runs may come after its start (fork, then exec)."""
COUNTS = ("cpu_ns",)
_IRQCHIP_OFF = re.compile(r"kernel[_-]irqchip=off")
_VCPU = "anon_inode:kvm-vcpu"
_KVM_RUN = "0xae80"
"""include/uapi/linux/kvm.h: _IO(KVMIO, 0x80), the second argument of ioctl."""
_NO_STACK = ["0x0", "0x0"]
"""Stack and program counter of a thread that never leaves the kernel (virt/kvm, create_vhost_task)."""
_RUNNING = "running"
"""What /proc/PID/task/TID/syscall says of a thread that is on a CPU."""
_STOPPED = ("T", "t")
_LITTLE_TICKS = 2
"""CPU time that a paused machine may take in an interval: QEMU still answers whoever manages it."""
_STATE, _FROM_DISK, _USER, _SYSTEM, _STARTED = 3 - 3, 12 - 3, 14 - 3, 15 - 3, 22 - 3
"""Fields of /proc/PID/stat by their numbers in proc(5), counted from the one after the process name (the third)."""
_NS_PER_TICK = 1000000000 // 100
"""USER_HZ is 100 on every architecture that runs KVM (include/uapi/asm-generic/param.h)."""


class _Machine:
    """``halts_in_kvm``: its virtual CPUs sleep in the kernel; with kernel_irqchip=off in QEMU, as paused ones do."""

    def __init__(self, name: str, started: str, halts_in_kvm: bool) -> None:
        self.name = name
        self.started = started
        self.halts_in_kvm = halts_in_kvm
        self.ticks = -1
        self.faults = 0
        self.thread = ""
        """A thread that was seen in KVM_RUN: it is looked at first."""


class VmStates(KernelSource):
    """See the module."""

    def __init__(self, host: Here = HERE) -> None:
        self._host = host
        self._rows = RowMaker(COUNTS, MAX_VMS)
        self._memory = VmMemory(host, MAX_VMS)
        self._machines: Dict[str, _Machine] = {}
        self._processes = NewProcesses(host, YOUNG_LOOKS)
        self._look_in = 0
        self._said_empty = False

    def finds_any(self) -> bool:
        """Whether a QEMU process runs now."""
        return any(qemu.is_qemu(words(self._text(pid, "cmdline"))) for pid in self._processes.all())

    def read(self, reading: SourceReading) -> List[Json]:
        """One row per machine. Raises SourceError while there is none, after one empty table that says so."""
        self._look_in -= 1
        if self._look_in <= 0:
            self._look_in = LOOK_EVERY
            self._look()
        known = [self._reading(pid) for pid in list(self._machines)]
        readings = [one for one in known if one is not None]
        rows, full, omitted = self._rows.rows(readings)
        if not readings and self._said_empty:
            raise SourceError("no QEMU runs here", state="unsupported")
        self._said_empty = full and not readings
        processes = {pid: VmProcess(one.name, one.faults) for pid, one in self._machines.items()}
        return [
            reading.table("vm_states", "machines", (rows, full, omitted)),
            self._memory.table(reading, processes),
        ]

    def _look(self) -> None:
        """For new QEMU processes; each other process is looked at a few times and then left alone."""
        for pid in self._processes.look(set(self._machines)):
            arguments = words(self._text(pid, "cmdline"))
            if not qemu.is_qemu(arguments):
                continue
            fields = self._stat(pid)
            if fields:
                halts_in_kvm = not any(_IRQCHIP_OFF.search(one) for one in arguments)
                self._machines[pid] = _Machine(qemu.machine_of(arguments, pid), fields[_STARTED], halts_in_kvm)

    def _reading(self, pid: str) -> Optional[SourceRow]:
        machine, fields = self._machines[pid], self._stat(pid)
        if not fields or fields[_STARTED] != machine.started:
            del self._machines[pid]
            self._processes.forget(pid)
            return None
        ticks = int(fields[_USER]) + int(fields[_SYSTEM])
        is_stopped = fields[_STATE] in _STOPPED
        rested = machine.ticks >= 0 and ticks - machine.ticks <= _LITTLE_TICKS
        machine.ticks, machine.faults = ticks, int(fields[_FROM_DISK])
        gauges: Dict[str, Union[int, float, None]] = {"stopped": int(is_stopped), "paused": 0}
        # One that has used much CPU time is not paused: so of most machines one file is read, and no thread.
        if rested and not is_stopped:
            gauges["paused"] = self._paused(pid, machine) if machine.halts_in_kvm else None
        return {"vm": machine.name, "process": "qemu/" + pid}, (ticks * _NS_PER_TICK,), gauges

    def _paused(self, pid: str, machine: _Machine) -> Optional[int]:
        """As :meth:`_rests`. It is looked at twice: between two calls of KVM_RUN no thread is in it for a moment."""
        return self._rests(pid, machine) and self._rests(pid, machine)

    def _rests(self, pid: str, machine: _Machine) -> Optional[int]:
        """1 when none of its threads is in KVM_RUN or on a CPU; None when nobody can or may know."""
        if machine.thread and self._runs(pid, machine.thread):
            return 0
        told = False
        for thread in self._threads(pid):
            runs = self._runs(pid, thread)
            told = told or runs is not None
            if runs:
                machine.thread = thread
                return 0
        if not told:
            return None
        return 1 if self._has_kvm(pid) else None

    def _runs(self, pid: str, thread: str) -> Optional[bool]:
        """A worker of the kernel (kvm-nx-lpage-recovery, from 6.14) keeps the call of the thread that has made it."""
        words = self._text(pid, "task/{}/syscall".format(thread)).split()
        is_worker = words[-2:] == _NO_STACK
        return None if not words else words[0] == _RUNNING or (words[2:3] == [_KVM_RUN] and not is_worker)

    def _threads(self, pid: str) -> Iterable[str]:
        try:
            return self._host.names("/proc/{}/task".format(pid))
        except OSError:
            return ()

    def _has_kvm(self, pid: str) -> bool:
        """Whether it has virtual CPUs of KVM. Without them no thread is ever in KVM_RUN."""
        try:
            descriptors = self._host.names("/proc/{}/fd".format(pid))
        except OSError:
            return False
        for descriptor in descriptors:
            try:
                if self._host.link("/proc/{}/fd/{}".format(pid, descriptor)).startswith(_VCPU):
                    return True
            except OSError:
                continue  # closed meanwhile
        return False

    def _stat(self, pid: str) -> List[str]:
        return self._text(pid, "stat").rpartition(")")[2].split()

    def _text(self, pid: str, name: str) -> str:
        return text_of(self._host, "/proc/{}/{}".format(pid, name))
