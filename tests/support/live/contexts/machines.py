"""A process that looks like the QEMU of a machine, with a tap, for the names that rows carry."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

NAME, DEVICE = f"made-vm-{os.getpid()}", f"made{os.getpid()}"
"""Of this run of the tests: beside another one the names of both would be ambiguous."""
_PROGRAM = """
import ctypes, fcntl, os, struct, sys
assert not ctypes.CDLL(None).unshare(0x40000000)  # a network namespace of its own
tap = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tap, 0x400454CA, struct.pack("=16sH22x", sys.argv[-1].encode(), 0x1002))
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def machine() -> Iterator[int]:
    """Its process."""
    command = ["qemu-system-made", "-c", _PROGRAM, "-name", NAME, DEVICE]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, executable="/usr/bin/python3", stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        process.stdin.close()
