"""vm_states: the CPU time of every QEMU process, and whether it runs its virtual CPUs, from /proc.

Nothing is asked of QEMU itself: its control sockets belong to whoever manages it. A virtual CPU that runs, or sleeps
because its guest does, is inside the call KVM_RUN. One that QEMU has paused waits elsewhere, and so do all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from netconsole.host.here import HERE
from netconsole.host.target import Question, Target
from netconsole.sources import qemu
from netconsole.sources.base import FrameMaker
from netconsole.telemetry.frames import AnyFrame
from netconsole_collector.sources.base import RowMaker, SourceError, SourceRow

MAX_VMS = 4096
LOOK_EVERY = 5
"""Intervals between two looks for new QEMU processes."""
YOUNG_LOOKS = 3
"""Looks at a new process: what it runs may come after its start (fork, then exec)."""
COUNTS = ("cpu_ns",)
_PROGRAMS = ("qemu-kvm", "kvm", "qemu-system")
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
_STATE, _USER, _SYSTEM, _STARTED = 3 - 3, 14 - 3, 15 - 3, 22 - 3
"""Fields of /proc/PID/stat by their numbers in proc(5), counted from the one after the process name (the third)."""
_NS_PER_TICK = 1_000_000_000 // 100
"""USER_HZ is 100 on every architecture that runs KVM (include/uapi/asm-generic/param.h)."""


@dataclass(slots=True)
class _Machine:
    name: str
    started: str
    halts_in_kvm: bool
    """Its virtual CPUs sleep in the kernel; with kernel_irqchip=off they sleep in QEMU, as paused ones do."""
    ticks: int = -1
    thread: str = ""
    """A thread that was seen in KVM_RUN: it is looked at first."""


class VmStates:
    """See the module."""

    name: ClassVar[str] = "vm_states"

    def __init__(self, target: Target = HERE) -> None:
        self._target = target
        self._rows = RowMaker(COUNTS, MAX_VMS)
        self._machines: dict[str, _Machine] = {}
        self._looks: dict[str, int] = {}
        self._look_in = 0
        self._said_empty = False

    def open(self) -> None:
        """Nothing is needed: machines may come later."""

    def read(self, make: FrameMaker) -> list[AnyFrame]:
        """One row per machine. Raises SourceError while there is none, after one empty table that says so."""
        self._look_in -= 1
        if self._look_in <= 0:
            self._look_in = LOOK_EVERY
            self._look()
        readings = [reading for pid in list(self._machines) if (reading := self._reading(pid)) is not None]
        rows, full, omitted = self._rows.rows(readings)
        if not readings and self._said_empty:
            raise SourceError("no QEMU runs here", state="unsupported")
        self._said_empty = full and not readings
        return [make.table(self.name, "machines", rows, full, omitted)]

    def close(self) -> None:
        """Nothing is held."""

    def _look(self) -> None:
        """For new QEMU processes; each other process is looked at a few times and then left alone."""
        pids = {name for name in self._target.names("/proc") if name.isdigit()}
        self._looks = {pid: looks for pid, looks in self._looks.items() if pid in pids}
        young = [pid for pid in pids - self._machines.keys() if self._looks.get(pid, 0) < YOUNG_LOOKS]
        self._target.ahead(Question("read", (f"/proc/{pid}/cmdline",)) for pid in young)
        for pid in young:
            self._looks[pid] = self._looks.get(pid, 0) + 1
            arguments = _words(self._bytes(pid, "cmdline"))
            if not _is_qemu(arguments):
                continue
            fields = self._stat(pid)
            if fields:
                line = qemu.parse(arguments)
                name = line.name or line.uuid or f"qemu ({pid})"
                self._machines[pid] = _Machine(
                    name, fields[_STARTED], not any(_IRQCHIP_OFF.search(one) for one in arguments)
                )

    def _reading(self, pid: str) -> SourceRow | None:
        machine, fields = self._machines[pid], self._stat(pid)
        if not fields or fields[_STARTED] != machine.started:
            del self._machines[pid]
            self._looks.pop(pid, None)
            return None
        ticks = int(fields[_USER]) + int(fields[_SYSTEM])
        is_stopped = fields[_STATE] in _STOPPED
        rested = machine.ticks >= 0 and ticks - machine.ticks <= _LITTLE_TICKS
        machine.ticks = ticks
        gauges: dict[str, int | float | None] = {"stopped": int(is_stopped), "paused": 0}
        # One that has used much CPU time is not paused: so of most machines one file is read, and no thread.
        if machine.halts_in_kvm and rested and not is_stopped:
            gauges["paused"] = self._paused(pid, machine)
        return {"vm": machine.name, "process": f"qemu/{pid}"}, (ticks * _NS_PER_TICK,), gauges

    def _paused(self, pid: str, machine: _Machine) -> int | None:
        """As :meth:`_rests`. It is looked at twice: between two calls of KVM_RUN no thread is in it for a moment."""
        return self._rests(pid, machine) and self._rests(pid, machine)

    def _rests(self, pid: str, machine: _Machine) -> int | None:
        """1 when none of its threads is in KVM_RUN or on a CPU; None when nobody may know."""
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
        return int(self._has_kvm(pid))

    def _runs(self, pid: str, thread: str) -> bool | None:
        """A worker of the kernel (kvm-nx-lpage-recovery, from 6.14) keeps the call of the thread that has made it."""
        words = self._text(pid, f"task/{thread}/syscall").split()
        is_worker = words[-2:] == _NO_STACK
        return None if not words else words[0] == _RUNNING or (words[2:3] == [_KVM_RUN] and not is_worker)

    def _threads(self, pid: str) -> Iterable[str]:
        try:
            return self._target.names(f"/proc/{pid}/task")
        except OSError:
            return ()

    def _has_kvm(self, pid: str) -> bool:
        """Whether it has virtual CPUs of KVM. Without them no thread is ever in KVM_RUN."""
        try:
            descriptors = self._target.names(f"/proc/{pid}/fd")
        except OSError:
            return False
        self._target.ahead(Question("link", (f"/proc/{pid}/fd/{one}",)) for one in descriptors)
        for descriptor in descriptors:
            try:
                if self._target.link(f"/proc/{pid}/fd/{descriptor}").startswith(_VCPU):
                    return True
            except OSError:
                continue  # closed meanwhile
        return False

    def _stat(self, pid: str) -> list[str]:
        return self._text(pid, "stat").rpartition(")")[2].split()

    def _text(self, pid: str, name: str) -> str:
        return self._bytes(pid, name).decode("utf-8", "backslashreplace")

    def _bytes(self, pid: str, name: str) -> bytes:
        try:
            return self._target.read(f"/proc/{pid}/{name}")
        except OSError:
            return b""


def any_vm(target: Target = HERE) -> bool:
    """Whether a QEMU process runs on the host now."""
    for pid in target.names("/proc"):
        try:
            if pid.isdigit() and _is_qemu(_words(target.read(f"/proc/{pid}/cmdline"))):
                return True
        except OSError:
            continue  # ended meanwhile
    return False


def _words(command_line: bytes) -> list[str]:
    return command_line.decode("utf-8", "backslashreplace").rstrip("\0").split("\0")


def _is_qemu(arguments: list[str]) -> bool:
    program = arguments[0].rsplit("/", 1)[-1]
    return program.startswith("qemu-system-") or program in _PROGRAMS
