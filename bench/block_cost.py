"""Measures what block_path costs those who ask a block device: with and without it, in turn.

The device is null_blk where there is one, else a loop device over a file in memory. One process keeps 64 reads of 4 kB
in flight, as fast as they come, or with ``--per-s`` asks for so many a second, as of a device that does no more. Prints
the reads per second of each window by the kernel's own books, and the ratio of a window with the probe to the mean of
the windows without it before and after; then the kernel's nanoseconds per run of each program, from another window.
Where bpftrace is installed, it takes turns: as biolatency does (a histogram), and as biosnoop does (a line for each
I/O). Its scripts of these names ask functions of the kernel, which not every kernel lets them; here it asks
tracepoints, as block_path does. Checks nothing.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.live.disks import Disk, loop, null_block
from tests.support.live.measurement import Measurement

PROBE = "block_path"
WINDOW_S, TURNS = 0.5, 11
STATISTICS_MS = 1000
BPFTRACE = "bpftrace"
ISSUED = """BEGIN { printf("begun\\n"); }
tracepoint:block:block_rq_issue { @issued[args->dev, args->sector] = nsecs; }
tracepoint:block:block_rq_complete /@issued[args->dev, args->sector]/ {
"""
RIVALS = {
    "bpftrace, a histogram": ISSUED
    + """@us = hist((nsecs - @issued[args->dev, args->sector]) / 1000);
    delete(@issued[args->dev, args->sector]); }""",
    "bpftrace, a line for each I/O": ISSUED
    + """printf("%d %s %d %d %s %d %d\\n", elapsed, comm, pid, args->dev, args->rwbs, args->nr_sector,
        (nsecs - @issued[args->dev, args->sector]) / 1000); delete(@issued[args->dev, args->sector]); }""",
}
LOAD = """
import ctypes, mmap, os, struct, sys, time
device, depth, PAGE = sys.argv[1], int(sys.argv[2]), 4096
pause_s, due_s = depth / float(sys.argv[3]), time.monotonic()
libc, file, page = ctypes.CDLL(None, use_errno=True), os.open(device, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, PAGE)
setup, submit, get = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}[os.uname().machine]
context, start = ctypes.c_ulong(), ctypes.addressof(ctypes.c_char.from_buffer(page))
assert not libc.syscall(setup, depth, ctypes.byref(context))
reads = [ctypes.create_string_buffer(struct.pack("=QIiHhIQQqQII", *one)) for one in
         [(n, 0, 0, 0, 0, file, start, PAGE, 2 * n * PAGE, 0, 0, 0) for n in range(depth)]]
pointers = (ctypes.c_void_p * depth)(*[ctypes.addressof(one) for one in reads])
events = ctypes.create_string_buffer(32 * depth)
while libc.syscall(submit, context, depth, pointers) == depth:
    assert libc.syscall(get, context, depth, depth, events, None) == depth
    due_s = max(due_s + pause_s, time.monotonic())
    while time.monotonic() < due_s:
        pass
"""


@contextmanager
def device(directory: Path) -> Iterator[Disk]:
    with ExitStack() as stack:
        try:
            yield stack.enter_context(null_block(0, "none"))
        except pytest.skip.Exception:
            yield stack.enter_context(loop(directory / "image"))


@contextmanager
def load(disk: Disk, per_s: float) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", LOAD, f"/dev/{disk.name}", "64", str(per_s)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def probe(disk: Disk) -> Iterator[Measurement]:
    measurement = Measurement(1000)
    try:
        measurement.load(PROBE, device=disk.name)
        yield measurement
    finally:
        measurement.close()


@contextmanager
def rival(program: str) -> Iterator[None]:
    """A program of bpftrace, from when it is attached: its first line says so. What else it says is forgotten."""
    with subprocess.Popen([BPFTRACE, "-e", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() not in (b"begun", b""):
            pass
        reader = threading.Thread(target=process.stdout.read)
        reader.start()
        try:
            yield
            if process.poll() is not None:
                raise SystemExit(f"bpftrace ended with exit status {process.returncode}")
        finally:
            process.kill()  # asked to end, it sometimes does not
            reader.join()


def per_s(disk: Disk) -> float:
    before, began = disk.books(), time.monotonic()
    time.sleep(WINDOW_S)
    return (disk.books() - before).reads / (time.monotonic() - began)


def turns(disk: Disk, name: str, watched: Callable[[], object]) -> None:
    without, with_it = [per_s(disk)], []
    for _ in range(TURNS):
        with watched():  # type: ignore[attr-defined]
            with_it.append(per_s(disk))
        without.append(per_s(disk))
    ratios = [100 * one / statistics.mean(without[at : at + 2]) for at, one in enumerate(with_it)]
    spread = f"{min(ratios):.1f}-{max(ratios):.1f}"
    print(
        f"{name}: {statistics.median(ratios):.1f} % ({spread}) of {statistics.median(without):,.0f} reads/s", flush=True
    )


def programs(disk: Disk) -> None:
    with probe(disk) as measurement:
        measurement.statistics(STATISTICS_MS)
        measurement.settle()
        time.sleep(5 * WINDOW_S)
        measurement.settle()
        found = [one for one in measurement.cost(PROBE).programs if one.run_count]
    each = "; ".join(f"{one.name} {one.run_time_ns / one.run_count:.0f} ns" for one in found)
    print(f"programs, statistics included: {each}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-s", type=float, default=math.inf, help="reads a second. Default: all that there can be")
    arguments = parser.parse_args()
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory,
        device(Path(directory)) as disk,
    ):
        print(f"device: {disk.name}")
        with load(disk, arguments.per_s):
            time.sleep(WINDOW_S)
            turns(disk, PROBE, lambda: probe(disk))
            for name, program in RIVALS.items() if shutil.which(BPFTRACE) else ():
                turns(disk, name, partial(rival, program))
            programs(disk)


if __name__ == "__main__":
    main()
