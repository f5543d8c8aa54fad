"""What BCC, clang and LLVM write to the terminal, which is where their errors are: it goes to a file without a name.

The collector starts the worker with such a file as its standard output and error, and can read there how a worker ended
that LLVM has ended (a program whose stack is too big: LLVM calls exit).
"""

import ctypes
import os
from typing import Optional

_MAX_BYTES = 1 << 20


def take(fd: int) -> str:
    """What was written since the last call."""
    ctypes.CDLL(None).fflush(None)
    said = os.pread(fd, _MAX_BYTES, 0).decode("utf-8", "backslashreplace")
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    return said


def error_in(said: str) -> Optional[str]:
    """The first line that is an error, else the last one; None when nothing was said."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return next((line for line in lines if "error: " in line.lower()), lines[-1] if lines else None)
