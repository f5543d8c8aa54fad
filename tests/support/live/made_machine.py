"""A process that looks like QEMU, for what no real one does here: it has a vhost worker, or wants a part of a CPU."""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from netconsole_collector.sources.vm.thread_waits import PROCESSOR

LIMIT_S = 30.0
MACHINE = """
import ctypes, os, sys, threading, time
cpu, share, name = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
os.sched_setaffinity(0, {cpu})
def vcpu():
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)  # PR_SET_NAME
    print(threading.get_native_id(), flush=True)
    while True:
        until = time.thread_time() + 0.1 * share
        while time.thread_time() < until:
            pass
        time.sleep(0.1 * (1 - share))
threading.Thread(target=vcpu, daemon=True).start()
sys.stdin.read()
"""


class MadeMachine:
    """A process that looks like QEMU, with one thread that wants ``share`` of a CPU: a virtual one, or another."""

    def __init__(self, stack: ExitStack, name: str, cpu: int, share: float, thread: str = "CPU 0/KVM") -> None:
        words = ["qemu-system-made", "-c", MACHINE, str(cpu), str(share), thread]
        words += ["-name", f"guest={name},debug-threads=on"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(words, executable="/usr/bin/python3", stdin=pipe, stdout=pipe, text=True)
        stack.callback(self._process.wait)
        stack.callback(self._process.kill)
        assert self._process.stdout is not None
        self.tid = int(self._process.stdout.readline())

    def books(self) -> tuple[int, int]:
        """Nanoseconds on a CPU, and waiting for one."""
        ran, waited, _ = Path(f"/proc/{self._process.pid}/task/{self.tid}/schedstat").read_text().split()
        return int(ran), int(waited)

    def migrations(self) -> int | None:
        """How often it was moved to another CPU; None where the kernel does not say it."""
        lines = self._text("sched").splitlines()
        return next((int(line.split(":")[1]) for line in lines if line.startswith("se.nr_migrations")), None)

    def until_on(self, cpu: int) -> None:
        """Wait until it runs there."""
        end = time.monotonic() + LIMIT_S
        while int(self._text("stat").rpartition(")")[2].split()[PROCESSOR]) != cpu:
            assert time.monotonic() < end

    def _text(self, file: str) -> str:
        where = Path(f"/proc/{self._process.pid}/task/{self.tid}/{file}")
        return where.read_text() if where.exists() else ""
