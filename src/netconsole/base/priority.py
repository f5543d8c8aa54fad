"""The console's own priority (nice value): higher than usual while far more wants to run than there are CPUs.

There a process of the usual priority waits for seconds before it draws a picture or answers a key. On other hosts
nothing is changed: there a vCPU or a vhost worker that shares a CPU with the console would only wait longer.

Many kernels share the CPUs among sessions first (CONFIG_SCHED_AUTOGROUP; sched(7)): nice values then only count within
a session, so the sessions of this terminal and of the collector get the same weight. A shell waits until this process
is gone, whatever ended it, and puts that of the terminal back.

It imports next to nothing before the priority is raised: on such a host each millisecond of CPU takes fifty.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subprocess import Popen

USUAL, STARTING, RUNNING = 0, -20, -15
"""Until the first picture the console needs about one second of a CPU, later a few percent."""
CROWDED, CALM = 4.0, 2.0
"""Threads that want to run, for each CPU: from the first figure on the priority is raised, below the second lowered."""
RAISED = "NETCONSOLE_RAISED"
"""Variable in which the command says to what it has raised the priority."""
_GUARD_S = 0.5
_LOAD = "/proc/loadavg"
_SESSIONS = "/proc/sys/kernel/sched_autogroup_enabled"


def per_cpu() -> float:
    """Threads that run or wait for a CPU now, for each CPU. Source: /proc/loadavg, fourth field (proc(5))."""
    try:
        wanting = int(_read(_LOAD).split()[3].partition("/")[0])
        return wanting / max(1, os.cpu_count() or 1)
    except (OSError, ValueError, IndexError):
        return 0.0


class OwnPriority:
    """Raises and lowers the priority of this process and of its collector, from :meth:`begin` on."""

    def __init__(self) -> None:
        self.nice = USUAL
        """What it was set to last."""
        self._may = False
        self._guard: Popen[bytes] | None = None
        self._before = USUAL

    def begin(self) -> None:
        """Allows it. It stays as it is without root, or where somebody has chosen another priority.

        The command may have raised it already (cli/netconsole.sh).
        """
        here = os.getpriority(os.PRIO_PROCESS, 0)
        if os.environ.pop(RAISED, "") == str(here):
            self.nice = here
        self._may = os.geteuid() == 0 and here == self.nice

    def end(self) -> None:
        """Puts back what the end of this process would put back, and waits until that is done."""
        if self._guard is not None and self._guard.stdin is not None:
            from subprocess import TimeoutExpired

            self._guard.stdin.close()
            try:
                self._guard.wait(_GUARD_S)
            except TimeoutExpired:  # then it goes on, and ends by itself
                return

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
            for thread in _threads(pid):
                _set(thread, nice)
        if not _shares_among_sessions():
            return
        for pid in pids:  # each is alone in its session
            _write(pid, nice)
        leader = os.getsid(0) or os.getpid()
        if self._guarded(leader):
            _write(leader, self._before if nice == USUAL else nice)

    def _guarded(self, leader: int) -> bool:
        """Whether the weight of this terminal's session is put back however this process ends."""
        if self._guard is None:
            import subprocess

            try:
                self._before = int(_read(f"/proc/{leader}/autogroup").split()[-1])
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


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:  # noqa: PTH123 (pathlib is one of the imports that are too slow here)
        return file.read()


def _shares_among_sessions() -> bool:
    """Whether this kernel shares the CPUs among sessions first."""
    try:
        return _read(_SESSIONS).strip() != "0"
    except OSError:
        return False


def _threads(pid: object) -> list[int]:
    """Of a process; none when it is gone."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
    except OSError:
        return []


def _set(thread: int, nice: int) -> None:
    try:
        os.setpriority(os.PRIO_PROCESS, thread, nice)
    except OSError:  # it has ended, or we may not
        return


def _write(pid: int, nice: int) -> None:
    try:
        with open(f"/proc/{pid}/autogroup", "w", encoding="ascii") as file:  # noqa: PTH123
            file.write(f"{nice}\n")
    except OSError:  # the session has ended
        return


OWN = OwnPriority()
"""Of this process."""
