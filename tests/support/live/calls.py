"""Calls on a block device or file by a process of a test's own, each kind so often."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_CALLING = """
import ctypes, fcntl, mmap, os, sys, threading, time
PAGE = 4096
path, count = sys.argv[1], int(sys.argv[2])
page = mmap.mmap(-1, PAGE)
libc = ctypes.CDLL(None, use_errno=True)
opened = {}
def file(flags=0):
    if flags not in opened:
        opened[flags] = os.open(path, os.O_RDWR | flags)
        os.posix_fadvise(opened[flags], 0, 0, os.POSIX_FADV_RANDOM)
    return opened[flags]
def each(call):
    took = []
    for number in range(count):
        began = time.perf_counter()
        call(number * 8 * PAGE)
        took.append(time.perf_counter() - began)
    return sorted(took)[count // 2]
def forget():
    os.fsync(file())
    os.posix_fadvise(file(), 0, 0, os.POSIX_FADV_DONTNEED)
def at(place, call, *more):
    os.lseek(file(), place, os.SEEK_SET)
    call(file(), *more)
def failing(_):
    try:
        os.write(only_read, b"x")
    except OSError:
        pass
def elsewhere(_):
    os.write(pipe[1], b"x")
    os.read(pipe[0], 1)
only_read, pipe = os.open(path, os.O_RDONLY), os.pipe()
KINDS = {
    "read": lambda place: at(place, os.read, PAGE),
    "readv": lambda place: at(place, os.readv, [page]),
    "pread": lambda place: os.pread(file(), PAGE, place),
    "preadv": lambda place: os.preadv(file(), [page], place),
    "direct": lambda place: os.preadv(file(os.O_DIRECT), [page], place),
    "write": lambda place: at(place, os.write, page[:]),
    "writev": lambda place: at(place, os.writev, [page]),
    "pwrite": lambda place: os.pwrite(file(), page[:], place),
    "pwritev": lambda place: os.pwritev(file(), [page], place),
    "direct write": lambda place: os.pwritev(file(os.O_DIRECT), [page], place),
    "synced": lambda place: os.pwrite(file(os.O_DSYNC), page[:], place),
    "fsync": lambda _: os.fsync(file()),
    "fdatasync": lambda _: os.fdatasync(file()),
    "range": lambda place: libc.sync_file_range(file(), ctypes.c_int64(place), ctypes.c_int64(PAGE), 7),
    "failing": failing,
    "elsewhere": elsewhere,
    "write and fsync": lambda place: (os.pwrite(file(), page[:], place), os.fsync(file())),
}
print("ready", flush=True)
for line in sys.stdin:
    what, median_s = line.strip(), 0.0
    if what == "forget":
        forget()
    elif what == "in a thread":
        worker = threading.Thread(target=each, args=(KINDS["direct"],))
        worker.start()
        worker.join()
    else:
        median_s = each(KINDS[what])
    print("done", median_s, flush=True)
"""


@dataclass(frozen=True)
class Caller:
    """A process that calls, on one device or file."""

    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        return self.process.pid

    def calls(self, *kinds: str) -> float:
        """Of each kind so many, one after another; when they have returned, how long one of the last kind took.

        That is the median in seconds, as the process measured it itself.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        median_s = "0"
        for kind in kinds:
            print(kind, file=self.process.stdin, flush=True)
            done, median_s = self.process.stdout.readline().split()
            assert done == "done"
        return float(median_s)


@contextmanager
def caller(path: str, count: int, vm: str = "") -> Iterator[Caller]:
    """With the name of a VM it looks like its QEMU."""
    command = ["qemu-system-made" if vm else sys.executable, "-c", _CALLING, path, str(count)]
    pipe = subprocess.PIPE
    more = ["-name", f"guest={vm}"] if vm else []
    with subprocess.Popen([*command, *more], executable=sys.executable, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield Caller(process)
        finally:
            process.stdin.close()
