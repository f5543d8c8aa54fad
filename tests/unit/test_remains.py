"""What of killed tests is removed: what is named by a process that is no more, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.live.remains import DEVICE, NAMESPACE, left


def test_only_the_names_of_ended_processes_are_left() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    mine = os.getpid()
    theirs = [f"nc{ended.pid}-1", f"nc{ended.pid}-22"]
    assert left(NAMESPACE, [*theirs, f"nc{mine}-1", "nc-bench", f"{ended.pid}-1", "web", f"nc{ended.pid}"]) == theirs
    devices = [f"nci{ended.pid}", f"nta{ended.pid}"]
    assert left(DEVICE, [*devices, f"nci{mine}", f"tap{ended.pid}", f"nci{ended.pid}x", "eth0"]) == devices
