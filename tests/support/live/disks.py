"""Block devices of a test's own: loop devices over files, and null_blk with a known time of completion.

What is asked of them, and what the kernel's own books say.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.live.network import IS_EMULATED

PAGE = 4096
_GET_FREE, _SET_FD, _CLEAR, _SET_DIRECT = 0x4C82, 0x4C00, 0x4C01, 0x4C08
"""LOOP_CTL_GET_FREE, LOOP_SET_FD, LOOP_CLR_FD, LOOP_SET_DIRECT_IO (uapi/linux/loop.h)."""
ASKING = """
import ctypes, fcntl, mmap, os, struct, sys, threading
PAGE = 4096
device, what, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
file = os.open(device, os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, PAGE * 512)
libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}[os.uname().machine]
def at_once(places, size=PAGE):
    setup, submit, get = NUMBERS
    context = ctypes.c_ulong()
    assert not libc.syscall(setup, len(places), ctypes.byref(context))
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    reads = [(n, 0, 0, 0, 0, file, start + n * size, size, at, 0, 0, 0) for n, at in enumerate(places)]
    blocks = [ctypes.create_string_buffer(struct.pack("=QIiHhIQQqQII", *one)) for one in reads]
    pointers = (ctypes.c_void_p * len(blocks))(*[ctypes.addressof(one) for one in blocks])
    assert libc.syscall(submit, context, len(blocks), pointers) == len(blocks)
    events = ctypes.create_string_buffer(32 * len(blocks))
    assert libc.syscall(get, context, len(blocks), len(blocks), events, None) == len(blocks)
def ask():
    if what == "thread":
        open("/proc/thread-self/comm", "w").write("a-worker")
    for number in range(count):
        at = number * 2 * PAGE
        if what in ("read", "thread"):
            os.preadv(file, [memoryview(page)[:PAGE]], at)
        elif what == "write":
            os.pwritev(file, [memoryview(page)[:PAGE]], at)
        elif what == "sync":
            os.fsync(file)
        elif what == "discard":
            fcntl.ioctl(file, 0x1277, struct.pack("=QQ", at, PAGE))  # BLKDISCARD
        elif what == "adjacent":
            at_once([at + n * PAGE for n in range(8)])
        elif what == "apart":
            at_once([2 * n * PAGE for n in range(8)])
        elif what == "large":
            os.preadv(file, [page], 0)
        elif what == "beyond":
            try:
                os.preadv(file, [memoryview(page)[:2 * PAGE]], int(sys.argv[4]))
            except OSError:
                pass
if what == "thread":
    worker = threading.Thread(target=ask)
    worker.start()
    worker.join()
else:
    ask()
if "-name" in sys.argv:
    print("asked", flush=True)
    for _ in sys.stdin:
        ask()
"""


@dataclass(frozen=True)
class Books:
    """What /sys/block/NAME/stat has counted (Documentation/block/stat.rst)."""

    reads: int
    read_merges: int
    sectors_read: int
    writes: int
    sectors_written: int
    discards: int
    flushes: int

    def __sub__(self, before: Books) -> Books:
        return Books(*(getattr(self, one) - getattr(before, one) for one in self.__dataclass_fields__))


@dataclass(frozen=True)
class Disk:
    """A block device by its name."""

    name: str

    def ask(self, what: str, count: int, *more: int) -> int:
        """A process of its own asks it for so many; the pid."""
        command = [sys.executable, "-c", ASKING, f"/dev/{self.name}", what, str(count), *map(str, more)]
        with subprocess.Popen(command) as process:
            assert not process.wait(60)
            return process.pid

    @contextmanager
    def asked_by(self, vm: str, what: str, count: int) -> Iterator[subprocess.Popen[str]]:
        """What looks like the QEMU of a machine has asked it for so many, and does so again for each line."""
        command = ["qemu-system-made", "-c", ASKING, f"/dev/{self.name}", what, str(count), "-name", f"guest={vm}"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, executable=sys.executable, stdin=pipe, stdout=pipe, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            assert process.stdout.readline() == "asked\n"
            yield process
            process.stdin.close()

    def books(self) -> Books:
        numbers = [int(one) for one in Path(f"/sys/block/{self.name}/stat").read_text().split()]
        return Books(*(numbers[at] if at < len(numbers) else 0 for at in (0, 1, 2, 4, 6, 11, 15)))

    def is_direct(self) -> bool:
        """Whether a loop device reads its file with O_DIRECT."""
        return Path(f"/sys/block/{self.name}/loop/dio").read_text().strip() == "1"

    def setting(self, name: str) -> str:
        return Path(f"/sys/block/{self.name}/queue/{name}").read_text().strip()


@contextmanager
def loop(file: Path, size: int = 8 << 20, *, direct: bool = True) -> Iterator[Disk]:
    """A loop device over this file, which is made. Skips where there is none."""
    file.write_bytes(bytes(size))
    _need("loop")
    try:
        control = os.open("/dev/loop-control", os.O_RDWR)
    except OSError:
        pytest.skip("cannot run here: this kernel has no loop devices")
    backing = os.open(file, os.O_RDWR)
    name = f"loop{fcntl.ioctl(control, _GET_FREE)}"
    device = os.open(f"/dev/{name}", os.O_RDWR)
    try:
        fcntl.ioctl(device, _SET_FD, backing)
        try:
            with suppress(OSError):  # tmpfs has none before 6.6
                fcntl.ioctl(device, _SET_DIRECT, 1 if direct else 0)
            yield Disk(name)
        finally:
            fcntl.ioctl(device, _CLEAR, 0)
    finally:
        for one in (device, backing, control):
            os.close(one)


@contextmanager
def null_block(completes_ns: int, scheduler: str, depth: int = 64) -> Iterator[Disk]:
    """A device that completes each request so long after it was issued, by a timer. It takes ``depth`` of them at once.

    Skips where there is none.
    """
    settings = ("irqmode=2", f"completion_nsec={completes_ns}", f"hw_queue_depth={depth}")
    _need("null_blk", "nr_devices=1", "submit_queues=1", *settings)
    try:
        disk = Disk("nullb0")
        Path(f"/sys/block/{disk.name}/queue/scheduler").write_text(scheduler)
        yield disk
    finally:
        subprocess.run(["modprobe", "--remove", "null_blk"], check=True)


@contextmanager
def delayed(below: Disk, ms: int) -> Iterator[Disk]:
    """A device without requests (dm-delay) that passes I/Os on to this one after so long. Skips where there is none."""
    dmsetup = shutil.which("dmsetup", path="/usr/sbin:/sbin:/usr/bin")
    if dmsetup is None:
        pytest.skip("cannot run here: there is no dmsetup (Debian package dmsetup)")
    _need("dm-delay")
    name, sectors = f"netconsole-{os.getpid()}", Path(f"/sys/block/{below.name}/size").read_text().strip()
    table = f"0 {sectors} delay /dev/{below.name} 0 {ms}"
    subprocess.run([dmsetup, "create", "--noudevsync", name, "--table", table], check=True)
    try:
        known = [dmsetup, "info", "--columns", "--noheadings", "--options", "blkdevname", name]
        yield Disk(subprocess.run(known, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    finally:
        subprocess.run([dmsetup, "remove", "--noudevsync", "--retry", name], check=True)


def _need(module: str, *settings: str) -> None:
    done = subprocess.run(["modprobe", module, *settings], stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode and not Path(f"/sys/module/{module.replace('-', '_')}").exists():
        pytest.skip(f"cannot run here: this kernel has no {module}")


@contextmanager
def limited(disk: Disk, reads_per_s: int, pid: int) -> Iterator[str]:
    """A control group of the test's own lets this process read so often; its path. Skips where there can be none."""
    number = Path(f"/sys/block/{disk.name}/dev").read_text().strip()
    top = Path("/sys/fs/cgroup")
    name, before = f"netconsole-{os.getpid()}", Path("/")
    if not (top / "blkio").exists() and not (top / "cgroup.controllers").exists() and IS_EMULATED:
        subprocess.run(["mount", "-t", "cgroup2", "none", str(top)], check=True)
    if (top / "blkio/blkio.throttle.read_iops_device").exists():
        before, file, text = top / "blkio", "blkio.throttle.read_iops_device", f"{number} {reads_per_s}"
    elif "io" in _text(top / "cgroup.controllers").split():
        before, file, text = top, "io.max", f"{number} riops={reads_per_s}"
        (top / "cgroup.subtree_control").write_text("+io")
    else:
        pytest.skip("cannot run here: no control groups of I/O")
    group = before / name
    group.mkdir()
    try:
        (group / file).write_text(text)
        (group / "cgroup.procs").write_text(str(pid))
        yield f"/{group.relative_to(top)}"
    finally:
        with suppress(OSError):  # it has ended
            (before / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
