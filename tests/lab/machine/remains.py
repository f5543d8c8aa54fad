"""Finds what a test run of the lab has left behind: processes, mounts, files. There must be nothing."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.lab.kernels.archive import cache_dir
from tests.support.terminal_process import alive

GONE = (FileNotFoundError, ProcessLookupError)
"""What reading of a process says that has ended meanwhile."""
GONE_LIMIT_S = 60.0
OTHERS_MOUNTS = ("/run/netns", tempfile.gettempdir())
"""Where tests that run beside these mount: network namespaces, and what is in a directory of their own."""


def descendants(pid: int) -> set[int]:
    """All processes that it started, directly or not, and that live."""
    found: set[int] = set()
    with suppress(*GONE):
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, task.read_text().split()):
                found |= {child, *descendants(child)}
    return found


def names(pids: set[int]) -> set[str]:
    """Their command names, as the kernel cuts them (15 characters)."""
    found = set()
    for pid in pids:
        with suppress(*GONE):
            found.add(Path(f"/proc/{pid}/comm").read_text().strip())
    return found


def wait_until_gone(pids: set[int]) -> set[int]:
    """Those that are left at the limit."""
    deadline = time.monotonic() + GONE_LIMIT_S
    while (left := {pid for pid in pids if alive(pid)}) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


@dataclass(frozen=True)
class Traces:
    """This machine's mounts, the kernels and emulators in the cache, and a directory for temporary files, now."""

    mounts: frozenset[str]
    cached: frozenset[Path]
    temporary: frozenset[Path]

    @classmethod
    def now(cls, temporary: Path) -> Traces:
        """`temporary` is what the processes in question have as TMPDIR."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        mounts = (line for line in lines if not line.split()[4].startswith(OTHERS_MOUNTS))
        cached = (path for name in ("kernels", "qemu") for path in (cache_dir() / name).glob("*"))
        return cls(frozenset(mounts), frozenset(cached), frozenset(temporary.iterdir()))
