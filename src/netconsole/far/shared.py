"""One program on a far host for two here: the collector's session, and the line that asks for sources.

See netconsole_collector/two_streams.py. What comes from there may be anything: it is bounded, and what makes no sense
ends the program with one sentence.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator

from netconsole.far.program import FAR_GRACE_S, Gone, Launch, ProgramProcess
from netconsole_collector.two_streams import ANSWERS, ASK, END, FRAMES, MAX_PIECE_BYTES, PIECE, START

MAX_WAITING_BYTES = 16 << 20
"""Of a stream that is read too slowly. With more than this, both streams wait."""


class SharedProgram:
    """One run. Raises Gone when it cannot start."""

    def __init__(self, launch: Launch) -> None:
        self.program = ProgramProcess(launch, "the collector")
        self.nonsense: str | None = None
        """What the host said that makes no sense."""
        self._streams = {FRAMES: CollectorStream(self), ANSWERS: AnswerStream(self)}
        self._free = set(self._streams)
        self._lock = threading.Lock()
        threading.Thread(target=self._read, name="far program", daemon=True).start()

    def take(self, number: int) -> SharedStream | None:
        """One of its streams; None when it is taken, or the program has ended."""
        with self._lock:
            if number not in self._free or self.program.has_ended:
                return None
            self._free.remove(number)
        stream = self._streams[number]
        stream.begin()
        return stream

    def why(self) -> str:
        """Why it has ended, in one line."""
        return self.nonsense or self.program.why()

    def close(self) -> None:
        """End it. Idempotent. Any thread may call this."""
        for stream in self._streams.values():
            stream.leave()
        self.program.close()

    def _read(self) -> None:
        rest = bytearray()
        for chunk in self.program.chunks():
            rest += chunk
            while len(rest) >= PIECE.size:
                number, size = PIECE.unpack_from(rest)
                if number not in self._streams or size > MAX_PIECE_BYTES:
                    self.nonsense = f"the host sent what netconsole cannot read: {size} bytes for stream {number}"
                    self.program.kill()
                    rest.clear()
                    break
                if len(rest) < PIECE.size + size:
                    break
                self._streams[number].put(bytes(rest[PIECE.size : PIECE.size + size]))
                del rest[: PIECE.size + size]
        for stream in self._streams.values():
            stream.end()


class SharedStream:
    """What one of the two sees: see :class:`netconsole.far.program.RunningProgram`."""

    def __init__(self, shared: SharedProgram) -> None:
        self.received_bytes = 0
        self._shared = shared
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        """What has come and was not taken yet."""
        self._is_left = False
        self._has_ended = False

    @property
    def pid(self) -> int:
        """See RunningProgram."""
        return self._shared.program.pid

    def begin(self) -> None:
        """Somebody reads it from now on."""

    def send(self, line: bytes) -> None:
        """See RunningProgram."""
        self._shared.program.send(line)

    def chunks(self, look_s: float | None = None) -> Iterator[bytes]:
        """See RunningProgram."""
        while True:
            data = b""
            with self._changed:
                if self._changed.wait_for(lambda: self._waiting or self._has_ended, look_s):
                    if not self._waiting:
                        return
                    data = self._waiting.popleft()
                    self.waiting_bytes -= len(data)
                    self._changed.notify_all()
            yield data

    def why(self) -> str:
        """See RunningProgram."""
        return self._shared.why()

    def close(self) -> None:
        """See RunningProgram."""
        self._shared.close()

    def put(self, data: bytes) -> None:
        """A piece has come. Waits while too much is waiting."""
        with self._changed:
            self._changed.wait_for(lambda: self.waiting_bytes < MAX_WAITING_BYTES or self._is_left)
            if not self._is_left:
                self.received_bytes += len(data)
                self._waiting.append(data)
                self.waiting_bytes += len(data)
                self._changed.notify_all()

    def end(self) -> None:
        """Nothing more will come."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def leave(self) -> None:
        """Nobody reads it any more."""
        with self._changed:
            self._is_left = True
            self._changed.notify_all()


class AnswerStream(SharedStream):
    """Of what sources ask."""

    def send(self, line: bytes) -> None:
        """See RunningProgram."""
        super().send(ASK + line)


class CollectorStream(SharedStream):
    """Of the collector. It can end while the other goes on."""

    _has_stopped = False

    def begin(self) -> None:
        """Start the collector there."""
        with contextlib.suppress(Gone):  # who reads hears why
            self.send(START + b"\n")

    def put(self, data: bytes) -> None:
        """See SharedStream."""
        if data:
            super().put(data)
        else:
            self._has_stopped = True
            self.end()

    def why(self) -> str:
        """See RunningProgram."""
        return "the collector has ended" if self._has_stopped else super().why()

    def close(self) -> None:
        """End the collector; and the program only if that does not obey."""
        if not self._has_ended:
            with contextlib.suppress(Gone):
                self.send(END + b"\n")
            with self._changed:
                self._changed.wait_for(lambda: self._has_ended, FAR_GRACE_S)
        self.leave()
        if not self._has_stopped:
            super().close()
