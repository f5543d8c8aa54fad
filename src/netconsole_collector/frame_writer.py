"""Writes frames to standard output. It never waits for a slow reader."""

import errno
import json
import os
import stat
import time
from collections import deque
from typing import Any, Deque, Dict

VERSION = 1
MAX_LINE_BYTES = 4 * 1024 * 1024

Json = Dict[str, Any]


class ReaderGone(Exception):
    """The reader has closed its end."""


class FrameWriter:
    """Sends frames in order, and numbers them. ``is_idle``: everything has left this process."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.sequence = 0
        self._pending: Deque[bytes] = deque()
        mode = os.fstat(fd).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):  # a terminal may be shared with processes that expect to block
            os.set_blocking(fd, False)

    @property
    def is_idle(self) -> bool:
        return not self._pending

    def send(self, body: Json, mono_ns: int, wall_ns: int) -> None:
        """Queues one frame and writes what can be written now. Raises ReaderGone."""
        self.sequence += 1
        frame = {"kind": body["kind"], "v": VERSION, "probe": body.get("probe"), "seq": self.sequence}
        frame["mono_ns"], frame["wall_ns"] = mono_ns, wall_ns
        frame.update(body)
        self._pending.append(_line(frame))
        self.flush()

    def send_beside(self, line: bytes) -> None:
        """Queues a line that is no frame, and has no number. Raises ReaderGone."""
        self._pending.append(line)
        self.flush()

    def skip(self) -> None:
        """Leaves a gap in the numbers: an interval is not sent."""
        self.sequence += 1

    def flush(self) -> None:
        """Writes as much as fits. Raises ReaderGone."""
        while self._pending:
            line = self._pending.popleft()
            try:
                written = os.write(self.fd, line)
            except BlockingIOError:
                self._pending.appendleft(line)
                return
            except OSError as error:
                if error.errno in (errno.EPIPE, errno.ECONNRESET, errno.EBADF, errno.EIO):
                    raise ReaderGone() from None
                raise
            if written < len(line):
                self._pending.appendleft(line[written:])

    def drain(self, seconds: float) -> None:
        """Tries for a while to get everything out. Raises ReaderGone."""
        deadline = time.monotonic() + seconds
        self.flush()
        while self._pending and time.monotonic() < deadline:
            time.sleep(0.01)
            self.flush()


def _line(frame: Json) -> bytes:
    """One line. A table that is too long loses its last rows; they count as omitted."""
    line = json.dumps(frame, separators=(",", ":")).encode() + b"\n"
    while len(line) > MAX_LINE_BYTES and frame.get("rows"):
        keep = len(frame["rows"]) // 2
        frame["omitted"] = frame.get("omitted", 0) + len(frame["rows"]) - keep
        frame["rows"] = frame["rows"][:keep]
        line = json.dumps(frame, separators=(",", ":")).encode() + b"\n"
    return line
