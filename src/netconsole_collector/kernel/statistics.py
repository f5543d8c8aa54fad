"""Run counts and run times of programs. They are measured in short windows, because measuring costs time, too."""

import os
from typing import Dict, List, Optional, Tuple

from netconsole_collector.kernel import syscalls

_SYSCTL = "/proc/sys/kernel/bpf_stats_enabled"
"""Only read, never written: the setting would outlive us."""


class _RunTimes:
    """What was measured of one program since the last :meth:`StatisticsWindow.take`."""

    __slots__ = ("base_count", "base_time", "run_count", "run_time_ns", "window_ns")

    def __init__(self) -> None:
        self.base_count = self.base_time = self.run_count = self.run_time_ns = self.window_ns = 0


class StatisticsWindow:
    """Switches the kernel's statistics on while a window is open. Times are CLOCK_MONOTONIC in ns."""

    def __init__(self, window_ns: int, every_ns: int) -> None:
        self.window_ns = window_ns
        self.every_ns = every_ns
        self.why_not: Optional[str] = None
        """Why there are no windows; None while they work."""
        self._fd = -1
        self._opened_ns = 0
        self._next_ns = 0
        self._programs: Dict[int, _RunTimes] = {}

    def configure(self, window_ns: int, every_ns: int, now_ns: int) -> None:
        """A window of 0 switches the statistics off. A window as long as its period never closes."""
        self.close(now_ns)
        self.window_ns, self.every_ns, self._next_ns = window_ns, every_ns, now_ns

    def add(self, fd: int, now_ns: int) -> None:
        """Measures a program from now on."""
        self._roll(now_ns)
        self._programs[fd] = _RunTimes()
        self._rebase(now_ns)

    def remove(self, fd: int) -> None:
        self._programs.pop(fd, None)

    def deadline_ns(self) -> Optional[int]:
        """When :meth:`tick` has something to do; None when never."""
        if not self.window_ns or not self._programs or self.why_not:
            return None
        return self._opened_ns + self.window_ns if self._fd >= 0 else self._next_ns

    def tick(self, now_ns: int) -> None:
        """Opens or closes the window when it is time."""
        deadline = self.deadline_ns()
        if deadline is None or now_ns < deadline:
            return
        if self._fd < 0:
            self._open(now_ns)
        elif self.window_ns < self.every_ns:
            self.close(now_ns)

    def _open(self, now_ns: int) -> None:
        self._next_ns = now_ns + self.every_ns
        try:
            self._fd = syscalls.enable_statistics()
        except OSError as error:
            if not _always_on():
                self.why_not = "the kernel has no run-time statistics ({})".format(error.strerror)
                return
            # Somebody keeps them on: the window needs no descriptor of ours, only a number that it can close.
            self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._opened_ns = now_ns
        self._rebase(now_ns)

    def close(self, now_ns: int) -> None:
        """Ends the window, if there is one."""
        if self._fd >= 0:
            self._roll(now_ns)
            os.close(self._fd)
            self._fd = -1

    def _rebase(self, now_ns: int) -> None:
        self._rolled_ns = now_ns
        for fd, program in self._programs.items():
            info = syscalls.program_info(fd)
            program.base_count, program.base_time = info.run_count or 0, info.run_time_ns or 0

    def _roll(self, now_ns: int) -> None:
        """Adds what the programs did in the open window so far."""
        if self._fd < 0:
            return
        for fd, program in self._programs.items():
            count, time_ns = program.base_count, program.base_time
            info = syscalls.program_info(fd)
            program.base_count, program.base_time = info.run_count or 0, info.run_time_ns or 0
            program.run_count += program.base_count - count
            program.run_time_ns += program.base_time - time_ns
            program.window_ns += now_ns - self._rolled_ns
        self._rolled_ns = now_ns

    _rolled_ns = 0

    def take(self, fds: List[int], now_ns: int) -> Tuple[List[Tuple[int, int]], int]:
        """(run count, run time) of each program since the last call, and how long the windows were."""
        self._roll(now_ns)
        measured = [self._programs[fd] for fd in fds]
        window = min((program.window_ns for program in measured), default=0)
        result = [(program.run_count, program.run_time_ns) for program in measured]
        for program in measured:
            program.run_count = program.run_time_ns = program.window_ns = 0
        return result, window


def _always_on() -> bool:
    try:
        with open(_SYSCTL) as file:
            return file.read().strip() == "1"
    except OSError:
        return False
