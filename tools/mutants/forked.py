"""Runs a function in a process of its own, with limits, and leaves nothing of it behind."""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable

MEMORY = 4 << 30
"""Bytes: a fault may ask for all that there is. Not of addresses, of which a browser reserves any number."""
CLOCK = 10.0
"""What waits takes no CPU time. So it is ended after so many times the limit by the clock."""


def forked(run: Callable[[], int], cpu_s: float) -> int:
    """The exit code of ``run``; negative when a signal, or the limit of CPU time, ended it."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        code = 70
        try:
            os.setsid()
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(nowhere, stream)
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 1))
            code = run()
        finally:
            os._exit(code)
    ends = os.pidfd_open(child)
    try:
        select.select([ends], [], [], CLOCK * cpu_s)
    finally:
        os.close(ends)
        _end_group(child)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _end_group(leader: int) -> None:
    """The child has not been waited for yet, so the number is still its own."""
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        try:
            os.killpg(leader, signal.SIGKILL)
            return
        except ProcessLookupError:  # not a leader yet, or only it is left and has ended
            if os.waitid(os.P_PID, leader, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return
