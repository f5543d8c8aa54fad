"""The console's own priority (nice value): higher than usual while far more wants to run than there are CPUs.

There a process of the usual priority waits for seconds before it draws a picture or answers a key. On other hosts
nothing is changed: there a vCPU or a vhost worker that shares a CPU with the console would only wait longer.

Many kernels share the CPUs among sessions first (CONFIG_SCHED_AUTOGROUP; sched(7)): nice values then only count within
a session, so the sessions of this terminal and of the collector get the same weight. A shell waits until this process
is gone, whatever ended it, and puts that of the terminal back.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

USUAL, STARTING, RUNNING = 0, -20, -15
"""Until the first picture the console needs about one second of a CPU, later a few percent."""
CROWDED, CALM = 4.0, 2.0
"""Threads that want to run, for each CPU: from the first figure on the priority is raised, below the second lowered."""
_GUARD_S = 0.5
_LOAD = Path("/proc/loadavg")


def per_cpu() -> float:
    """Threads that run or wait for a CPU now, for each CPU. Source: /proc/loadavg, fourth field (proc(5))."""
    try:
        wanting = int(_LOAD.read_text("ascii").split()[3].partition("/")[0])
        return wanting / max(1, os.cpu_count() or 1)
    except (OSError, ValueError, IndexError):
        return 0.0


class OwnPriority:
    """Raises and lowers the priority of this process and of its collector, from :meth:`begin` on."""

    def __init__(self) -> None:
        self.nice = USUAL
        """What it was set to last."""
        self._may = False
        self._guard: subprocess.Popen[bytes] | None = None
        self._before = USUAL

    def begin(self) -> None:
        """Allows it. It stays as it is without root, or where somebody has chosen another priority."""
        self._may = os.geteuid() == 0 and os.getpriority(os.PRIO_PROCESS, 0) == USUAL

    def end(self) -> None:
        """Puts back what the end of this process would put back, and waits until that is done."""
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guard.wait(_GUARD_S)

    def look(self, raised: int, pids: Iterable[int] = ()) -> None:
        """Sets it to ``raised`` where many wait, and back to the usual one where few do. ``pids``: of the collector."""
        wanting = per_cpu()
        if wanting >= CROWDED or (self.nice != USUAL and wanting >= CALM):
            self._take(raised, pids)
        elif self.nice != USUAL:
            self._take(USUAL, pids)

    def _take(self, nice: int, pids: Iterable[int]) -> None:
        if not self._may:
            return
        self.nice = nice
        for pid in ("self", *pids):
            with contextlib.suppress(OSError):
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    with contextlib.suppress(OSError):
                        os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)
        for pid in pids:  # each is alone in its session
            _write(pid, nice)
        leader = os.getsid(0) or os.getpid()
        if self._guarded(leader):
            _write(leader, self._before if nice == USUAL else nice)

    def _guarded(self, leader: int) -> bool:
        """Whether the weight of this terminal's session is put back however this process ends."""
        if self._guard is None:
            try:
                self._before = int(Path(f"/proc/{leader}/autogroup").read_text("ascii").split()[-1])
                self._guard = subprocess.Popen(
                    ["/bin/sh", "-c", 'read _; echo "$1" > "/proc/$2/autogroup"', "sh", str(self._before), str(leader)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except (OSError, ValueError, IndexError):  # a kernel without it
                return False
        return True


def _write(pid: int, nice: int) -> None:
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(f"{nice}\n", "ascii")


OWN = OwnPriority()
"""Of this process."""
