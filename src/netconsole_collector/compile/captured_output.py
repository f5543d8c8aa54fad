"""Captures what BCC, clang and LLVM write to the terminal: their errors are only there.

The standard output and standard error of a worker are a file without a name. LLVM may end the worker (it calls exit for
a program whose stack is too big). Then the collector reads the reason from that file.
"""

import ctypes
import os
from typing import Optional

_MAX_BYTES = 1 << 20


def take(fd: int) -> str:
    """The output since the last call."""
    ctypes.CDLL(None).fflush(None)
    said = os.pread(fd, _MAX_BYTES, 0).decode("utf-8", "backslashreplace")
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    return said


def error_in(said: str) -> Optional[str]:
    """The first line with an error, else the last line; None when there is no output."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return next((line for line in lines if "error: " in line.lower()), lines[-1] if lines else None)
