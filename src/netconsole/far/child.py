"""Starts a program of ours on this machine. One may start before anybody asks for it: importing the rest takes long.

It imports next to nothing, so that such a program starts first.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Mapping, Sequence

_CPUCLOCK_SCHED = 2
_early: dict[tuple[str, ...], subprocess.Popen[bytes]] = {}
"""By their commands: those that nobody has asked for yet."""


def start(command: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """A child with pipes, in a process group of its own; the one that was started early, if there is one.

    Raises OSError.
    """
    early = _early.pop(tuple(command), None) if environment is None else None
    return early or _started(command, environment)


def start_early(command: Sequence[str]) -> None:
    """Start what :func:`start` will be asked for. If it cannot be started, that is told then."""
    with contextlib.suppress(OSError):
        _early[tuple(command)] = _started(command, None)


def early_cpu_s() -> float:
    """CPU time of those that nobody has asked for yet."""
    return sum(_cpu_s(process.pid) for process in _early.values())


def end_early() -> None:
    """End those that nobody has asked for: their input ends."""
    while _early:
        _, process = _early.popitem()
        process.communicate()


def _started(command: Sequence[str], environment: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
        env=None if environment is None else dict(environment),
    )


def _cpu_s(pid: int) -> float:
    """As clock_getcpuclockid(3) has it."""
    try:
        return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
    except OSError:
        return 0.0
