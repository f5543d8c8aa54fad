"""What tests that were killed have left in the kernel: namespaces and devices named by the number of their process.

usage: python -m tests.support.live.remains: removes those whose process has ended, with all that runs in them.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

NETNS = Path("/run/netns")
NAMESPACE = re.compile(r"nc(\d+)-\w+")
DEVICE = re.compile(r"n(?:ci|co|cs|ta|tb)(\d+)")


def remove() -> list[str]:
    """Remove them. The names of those that are gone now. Only root can: others run no test on the kernel."""
    if os.geteuid() != 0:
        return []
    gone = []
    for name in left(NAMESPACE, sorted(path.name for path in NETNS.glob("nc*"))):
        for process in _said("ip", "netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(int(process), signal.SIGKILL)
        _said("ip", "netns", "delete", name)
        gone.append(name)
    for name in left(DEVICE, sorted(path.name for path in Path("/sys/class/net").iterdir())):
        _said("ip", "link", "delete", name)
        gone.append(name)
    return gone


def left(pattern: re.Pattern[str], names: list[str]) -> list[str]:
    """Those whose process is no more. ``pattern``: its first group is the process."""
    return [name for name in names if (found := pattern.fullmatch(name)) and not Path("/proc", found[1]).exists()]


def _said(*words: str) -> str:
    """Another one may remove the same: a command that fails is no failure."""
    return subprocess.run(words, capture_output=True, text=True, timeout=60).stdout


if __name__ == "__main__":
    for one in remove():
        print(f"removed {one}, which tests that were killed had left")
