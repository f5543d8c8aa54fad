"""A file whose fsync or reads take as long as a test says: a file system of its own, by the kernel's FUSE."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SERVING = """
import ctypes, os, struct, sys, time
directory, fsync_s, read_s, size = sys.argv[1], *map(float, sys.argv[2:4]), int(sys.argv[4])
ROOT, FILE, NAME = 1, 2, b"image"
LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ = 1, 2, 3, 4, 14, 15
WRITE, RELEASE, FSYNC, FLUSH, INIT = 16, 18, 20, 25, 26
ENOENT, ENOSYS, MAX_WRITE = 2, 38, 1 << 17
content = bytearray(size)
device = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
if libc.mount(b"netconsole-test", directory.encode(), b"fuse", 0, options):
    sys.exit(os.strerror(ctypes.get_errno()))
def attributes(node):
    mode, nlink, length = (0o040755, 2, 0) if node == ROOT else (0o100600, 1, size)
    return struct.pack("=6Q10I", node, length, length // 512, 0, 0, 0, 0, 0, 0, mode, nlink, 0, 0, 0, 4096, 0)
def answer(code, node, body):
    if code == INIT:
        return struct.pack("=4I2H2I2H8I", 7, 31, 1 << 17, 0, 12, 9, MAX_WRITE, 1, 0, 0, *[0] * 8)
    if code == LOOKUP:
        known = node == ROOT and body.rstrip(b"\\0") == NAME
        return struct.pack("=4Q2I", FILE, 0, 3600, 3600, 0, 0) + attributes(FILE) if known else -ENOENT
    if code in (GETATTR, SETATTR):
        return struct.pack("=Q2I", 3600, 0, 0) + attributes(node)
    if code == OPEN:
        return struct.pack("=Q2I", 0, 0, 0)
    if code == READ:
        _, offset, length = struct.unpack_from("=QQI", body)
        time.sleep(read_s)
        return bytes(content[offset : offset + length])
    if code == WRITE:
        _, offset, length = struct.unpack_from("=QQI", body)
        content[offset : offset + length] = body[40 : 40 + length]
        return struct.pack("=2I", length, 0)
    if code == FSYNC:
        time.sleep(fsync_s)
        return b""
    return b"" if code in (RELEASE, FLUSH) else -ENOSYS
print("mounted", flush=True)
while True:
    try:
        request = os.read(device, MAX_WRITE + 4096)
    except OSError:  # it is not mounted any more
        break
    length, code, unique, node = struct.unpack_from("=IIQQ", request)
    if code == FORGET:
        continue
    found = answer(code, node, request[40:])
    error, data = (found, b"") if isinstance(found, int) else (0, found)
    os.write(device, struct.pack("=IiQ", 16 + len(data), error, unique) + data)
"""


@contextmanager
def slow_file(directory: Path, *, fsync_s: float = 0.0, read_s: float = 0.0, size: int = 8 << 20) -> Iterator[Path]:
    """Its path. Skips where this kernel has no FUSE."""
    subprocess.run(["modprobe", "fuse"], stderr=subprocess.DEVNULL, check=False)
    if not Path("/dev/fuse").exists():
        pytest.skip("cannot run here: this kernel has no FUSE")
    directory.mkdir()
    command = [sys.executable, "-c", _SERVING, str(directory), str(fsync_s), str(read_s), str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mounted\n"
        try:
            yield directory / "image"
        finally:
            subprocess.run(["umount", "--lazy", str(directory)], check=False)
            process.terminate()
