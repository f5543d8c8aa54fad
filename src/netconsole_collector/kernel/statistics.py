"""Run counts and run times of programs. They are measured in short windows, because measuring costs time, too."""

import os
from typing import Callable, Dict, Iterable, List, Optional, Tuple

from netconsole_collector.kernel import syscalls
from netconsole_collector.kernel.clock import mono_ns

_SYSCTL = "/proc/sys/kernel/bpf_stats_enabled"
"""Only read, never written: the setting would outlive us."""
_SHARP_NS = 1_000_000
_TRIES = 3


class _RunTimes:
    """What was measured of one program since the last :meth:`StatisticsWindow.take`."""

    __slots__ = (
        "base_count",
        "base_time",
        "base_ns",
        "run_count",
        "run_time_ns",
        "window_ns",
        "is_sampled",
        "held_ns",
        "whole",
        "_last",
    )

    def __init__(self, is_sampled: bool) -> None:
        self.base_count = self.base_time = self.base_ns = self.run_count = self.run_time_ns = self.window_ns = 0
        self.is_sampled = is_sampled
        """Whether it is attached only for a share of the time."""
        self.held_ns = 0
        """Of a sampled program: how long it was measured in this period."""
        self.whole = (0, 0)
        """Of a sampled program: runs and time in the periods that have ended."""
        self._last = (0, 0, 0)

    def within(self, window_ns: int) -> Tuple[int, int]:
        """Runs and time, as many as go into a window of that length: others of the probe were measured no longer."""
        of_ns = self.window_ns
        if window_ns >= of_ns:
            return self.run_count, self.run_time_ns
        return self.run_count * window_ns // of_ns, self.run_time_ns * window_ns // of_ns

    def scaled_to(self, window_ns: int) -> Tuple[int, int]:
        """Runs and time as in the last window, of one of that length: beside programs that are sampled."""
        if self.window_ns:
            self._last = (self.run_count, self.run_time_ns, self.window_ns)
        count, time_ns, of_ns = self._last
        return (count * window_ns // of_ns, time_ns * window_ns // of_ns) if of_ns else (0, 0)


class StatisticsWindow:
    """Switches the kernel's statistics on while a window is open. Times are CLOCK_MONOTONIC in ns.

    They are also on while the sampler holds them, in a part of the time for which sampled programs are attached. Those
    are measured then alone, and what was measured stands for all of that time. The others are measured in the windows.
    """

    def __init__(self, window_ns: int, every_ns: int, clock: Callable[[], int] = mono_ns) -> None:
        self._clock = clock
        self.window_ns = window_ns
        self.every_ns = every_ns
        self.why_not: Optional[str] = None
        """Why there are no windows; None while they work."""
        self._fd = -1
        self._is_open = False
        self._is_held = False
        self._opened_ns = 0
        self._next_ns = 0
        self._programs: Dict[int, _RunTimes] = {}

    def configure(self, window_ns: int, every_ns: int, now_ns: int) -> None:
        """A window of 0 switches the statistics off. A window as long as its period never closes."""
        self._close_window()
        self.window_ns, self.every_ns, self._next_ns = window_ns, every_ns, now_ns

    def add(self, fd: int) -> None:
        """Measures a program from now on."""
        self._begin([fd], False)

    def remove(self, fd: int) -> None:
        self._programs.pop(fd, None)

    def deadline_ns(self) -> Optional[int]:
        """When :meth:`tick` has something to do; None when never."""
        if not self.window_ns or not self._programs or self.why_not:
            return None
        if not self._is_open:
            return self._next_ns
        return self._opened_ns + self.window_ns if self.window_ns < self.every_ns else None

    def tick(self, now_ns: int) -> None:
        """Opens or closes the window when it is time."""
        deadline = self.deadline_ns()
        if deadline is None or now_ns < deadline:
            return
        if not self._is_open:
            self._next_ns = now_ns + self.every_ns
            if self._switch_on():
                self._roll()
                self._is_open, self._opened_ns = True, now_ns
                self._rebase()
        else:
            self._close_window()

    def close(self) -> None:
        """Ends everything."""
        self.release()
        self._close_window()

    # ---- sampled programs ----

    def sample(self, fds: Iterable[int]) -> None:
        """These programs are attached for a share of the time from now on."""
        self._begin(fds, True)

    def hold(self) -> None:
        """Switches the statistics on, while all sampled programs are attached."""
        self._roll()
        if self.window_ns and not self.why_not and self._switch_on():
            self._is_held = True
        self._rebase()

    def release(self) -> None:
        """Ends a hold, before one of the programs is detached."""
        self._roll()
        self._is_held = False
        self._switch_off()

    def cover(self, fds: Iterable[int], attached_ns: int, period_ns: int) -> None:
        """A period of this length has ended, in which these programs were attached for so long.

        If they were never measured in it, nothing is known of it.
        """
        for fd in fds:
            program = self._programs[fd]
            if program.held_ns:
                count, time_ns = program.whole
                count += program.run_count * attached_ns // program.held_ns
                program.whole = count, time_ns + program.run_time_ns * attached_ns // program.held_ns
                program.run_count = program.run_time_ns = program.held_ns = 0
                program.window_ns += period_ns

    def free(self, fds: Iterable[int]) -> None:
        """These programs are attached all the time from now on."""
        self._begin(fds, False)

    # ---- both ----

    def _begin(self, fds: Iterable[int], is_sampled: bool) -> None:
        self._roll()
        for fd in fds:
            self._programs[fd] = _RunTimes(is_sampled)
        self._rebase()

    def _switch_on(self) -> bool:
        if self._fd >= 0:
            return True
        try:
            self._fd = syscalls.enable_statistics()
        except OSError as error:
            if not _always_on():
                self.why_not = "the kernel has no run-time statistics ({})".format(error.strerror)
                return False
            # Somebody keeps them on: the window needs no descriptor of ours, only a number that it can close.
            self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        return True

    def _switch_off(self) -> None:
        if self._fd >= 0 and not (self._is_open or self._is_held):
            os.close(self._fd)
            self._fd = -1

    def _close_window(self) -> None:
        self._roll()
        self._is_open = False
        self._switch_off()

    def _read(self, fd: int) -> Tuple[int, int, int]:
        """Runs and run time of a program, and when that was.

        The clock is read beside each program, not once for all of them: on a busy machine this thread may lose its CPU
        in between. Runs of that time, held against a window without it, looked like 70 cores.
        """
        for _ in range(_TRIES):
            began_ns = self._clock()
            info = syscalls.program_info(fd)
            read_ns = self._clock()
            if read_ns - began_ns < _SHARP_NS:
                break
        return info.run_count or 0, info.run_time_ns or 0, read_ns

    def _rebase(self) -> None:
        for fd, program in self._programs.items():
            program.base_count, program.base_time, program.base_ns = self._read(fd)

    def _roll(self) -> None:
        """Adds what the programs did so far while they were measured."""
        if self._fd < 0:
            return
        for fd, program in self._programs.items():
            if not (self._is_held if program.is_sampled else self._is_open):
                continue
            count, time_ns, since_ns = program.base_count, program.base_time, program.base_ns
            program.base_count, program.base_time, program.base_ns = self._read(fd)
            program.run_count += program.base_count - count
            program.run_time_ns += program.base_time - time_ns
            if program.is_sampled:
                program.held_ns += program.base_ns - since_ns
            else:
                program.window_ns += program.base_ns - since_ns

    def take(self, fds: List[int]) -> Tuple[List[Tuple[int, int]], int]:
        """(run count, run time) of each program since the last call, and how long the windows were.

        Of a sampled program they are those of whole periods, which may have begun before the last call.
        """
        self._roll()
        measured = [self._programs[fd] for fd in fds]
        sampled = [program for program in measured if program.is_sampled]
        window = min((program.window_ns for program in sampled or measured), default=0)
        if sampled and not window:
            return [(0, 0)] * len(fds), 0  # its period goes on
        result = []
        for program in measured:
            if program.is_sampled:
                result.append(program.whole)
            elif sampled:
                result.append(program.scaled_to(window))
            else:
                result.append(program.within(window))
            program.whole = (0, 0)
            if not program.is_sampled:
                program.run_count = program.run_time_ns = 0
            program.window_ns = 0
        return result, window


def _always_on() -> bool:
    try:
        with open(_SYSCTL) as file:
            return file.read().strip() == "1"
    except OSError:
        return False
