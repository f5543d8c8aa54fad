"""A program that is always ready to run on a CPU."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.live.measurement import PYTHON

_RIVAL = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
if sys.argv[2] == "first":
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
print(flush=True)
while True:
    pass
"""


@contextmanager
def rival(cpu: int, *, is_first: bool = False) -> Iterator[int]:
    """Takes all it gets of a CPU; its number. ``is_first``: ahead of all others, as on a machine with other work."""
    command = [PYTHON, "-c", _RIVAL, str(cpu), "first" if is_first else "as all"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as one:
        try:
            assert one.stdout is not None and one.stdout.readline() == b"\n"
            yield one.pid
        finally:
            one.kill()
