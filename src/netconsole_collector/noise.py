"""Catches what BCC and clang write to the terminal: it is where their errors are, and it may not reach the terminal."""

import ctypes
import os
import tempfile


class Noise:
    """From now on standard output and error of this process, also of C code, go to a file without a name."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()
        for fd in (1, 2):
            os.dup2(self._file.fileno(), fd)

    def take(self) -> str:
        """What was written since the last call."""
        ctypes.CDLL(None).fflush(None)
        fd = self._file.fileno()
        end = os.lseek(fd, 0, os.SEEK_END)
        text = os.pread(fd, end, 0).decode("utf-8", "backslashreplace")
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        return text
