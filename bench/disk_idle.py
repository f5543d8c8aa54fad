"""The table of a published I/O tracer again: how idle the machine is under a steady load of a disk, with and without.

usage: python bench/disk_idle.py [PAIRS [SECONDS]]      (default 5 pairs of 3 s; needs root and fio)

The load is fio with psync: 12 000 reads and 250 writes a second of 4 kB, of 16 threads, direct or through the page
cache, one after another or at random; and 12 threads that read beside one that writes. The device is a loop device over
a file in memory. In turn the machine is left alone, and `record --profile disk` runs as a user starts it. Prints the
share of all CPUs that is left: what a loop of the lowest class (SCHED_IDLE) on each of them gets, by its own clock, for
the ticks of /proc/stat miss what sleeps and wakes between them. The difference has its interval (95 %, of the pairs),
and is told for each I/O. The tracer said 47 to 247 us. Asserts nothing.
"""

from __future__ import annotations

import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.live.disks import Disk, loop

READS_PER_S, WRITES_PER_S = 12_000, 250
SIZE = 256 << 20
SETTLES_S = 1.0
LOOP = """
import os, sys
os.sched_setaffinity(0, [int(sys.argv[1])])
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
print("runs", flush=True)
while True:
    pass
"""
T_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""Student's t by the number of pairs."""


class Load(NamedTuple):
    """One row of the table."""

    name: str
    readers: int
    order: str
    is_direct: bool


LOADS = (
    Load("direct, one after another", 16, "", True),
    Load("direct, at random", 16, "rand", True),
    Load("buffered, one after another", 16, "", False),
    Load("buffered, at random", 16, "rand", False),
    Load("direct, 12 readers and a writer", 12, "rand", True),
)


@contextmanager
def fio(disk: Disk, load: Load) -> Iterator[None]:
    common = ["--ioengine=psync", "--bs=4k", "--time_based", "--runtime=1h", f"--direct={load.is_direct:d}", "--thread"]
    common += [f"--filename=/dev/{disk.name}", f"--size={SIZE}", "--group_reporting"]
    jobs = ["--name=readers", f"--rw={load.order}read", f"--numjobs={load.readers}"]
    jobs += [f"--rate_iops={READS_PER_S // load.readers}", *common]
    jobs += ["--name=writer", f"--rw={load.order}write", f"--rate_iops={WRITES_PER_S}", *common]
    with subprocess.Popen(["fio", *jobs], stdout=subprocess.DEVNULL) as process:
        try:
            time.sleep(2 * SETTLES_S)  # its threads start
            yield
        finally:
            process.terminate()


@contextmanager
def recording() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as place:
        command = [str(Path(sys.executable).with_name("netconsole")), "record", "--profile", "disk", "--output"]
        command.append(f"{place}/disk.ncrec")
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            if not any("recording to" in line for line in process.stderr):
                raise SystemExit("the command did not record")
            time.sleep(SETTLES_S)
            try:
                yield
            finally:
                process.send_signal(signal.SIGINT)
                process.stderr.read()


class Window(NamedTuple):
    """``idle_pct``: of all CPUs; ``per_s``: I/Os of the device."""

    idle_pct: float
    per_s: float


@contextmanager
def what_is_left() -> Iterator[list[int]]:
    """On each CPU a loop that runs when nobody else does; the clocks of their CPU time (clock_getcpuclockid(3))."""
    with ExitStack() as stack:
        clocks = []
        for cpu in sorted(os.sched_getaffinity(0)):
            loop_of = [sys.executable, "-c", LOOP, str(cpu)]
            process = stack.enter_context(subprocess.Popen(loop_of, stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout is not None and process.stdout.readline()
            clocks.append(~process.pid << 3 | 2)
        yield clocks


def window(disk: Disk, clocks: list[int], seconds: float) -> Window:
    def now() -> tuple[float, int, int]:
        books = disk.books()
        return time.monotonic(), sum(map(time.clock_gettime_ns, clocks)), books.reads + books.writes

    began_s, left_ns, ios = now()
    time.sleep(seconds)
    ended_s, left_then_ns, ios_then = now()
    length_s = ended_s - began_s
    return Window(100 * (left_then_ns - left_ns) / 1e9 / length_s / len(clocks), (ios_then - ios) / length_s)


def row(disk: Disk, load: Load, pairs: int, seconds: float) -> str:
    without, with_it = list[Window](), list[Window]()
    with fio(disk, load), what_is_left() as clocks:
        for _ in range(pairs):
            without.append(window(disk, clocks, seconds))
            with recording():
                with_it.append(window(disk, clocks, seconds))
    taken = [before.idle_pct - during.idle_pct for before, during in zip(without, with_it, strict=True)]
    mean, spread = statistics.mean(taken), statistics.stdev(taken) * T_95.get(pairs, 2.0) / math.sqrt(pairs)
    per_s = statistics.mean(one.per_s for one in with_it)
    each_us = f"{mean / 100 * (os.cpu_count() or 1) * 1e6 / per_s:.1f} us" if per_s else "no"
    idle = [statistics.mean(one.idle_pct for one in windows) for windows in (without, with_it)]
    said = f"{idle[0]:.2f} -> {idle[1]:.2f} % | {mean:.2f} % (+/- {spread:.2f})"
    return f"| {load.name} | {per_s:,.0f} | {said} | {each_us} |"


def main() -> None:
    pairs, seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 5, float(sys.argv[2]) if len(sys.argv) > 2 else 3.0
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory,
        loop(Path(directory) / "image", SIZE) as disk,
    ):
        print(
            "| load | I/Os per s at the device | idle | taken | CPU for each I/O |", "|---|---|---|---|---|", sep="\n"
        )
        for one in LOADS:
            print(row(disk, one, pairs, seconds), flush=True)


if __name__ == "__main__":
    main()
