"""Runs the collector, on this machine or another: sends commands, yields its frames, and always ends it.

Questions have answers that are no frames (docs/design/collector.md#questions). Any thread may ask, also while nobody
reads frames: then whoever asks reads.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout

import msgspec

from netconsole.base.errors import UNREADABLE, HostLost
from netconsole.base.figure import safe
from netconsole.far.program import Gone, Launch, ProgramProcess
from netconsole.telemetry.frames import MAX_LINE_BYTES, AnyFrame, FrameError, decode

CollectorGone = Gone
"""The collector cannot take a command. The message is one line that says why."""
_ANSWER = b'{"answer":'
_FIRST_QUESTION = 1 << 40
"""Questions are numbered from here on, a session's commands from 1 on."""
_LOOK_S = 0.1
"""Between two looks of who waits for an answer that somebody else reads."""


class _Answered(msgspec.Struct):
    """The line that answers a question."""

    answer: int
    document: object = None
    error: str | None = None


class Unanswered(HostLost):
    """There is no answer to a question. ``strerror`` says why in one sentence."""


class CollectorProcess:
    """One run of the collector. Raises CollectorGone when it cannot start."""

    def __init__(
        self,
        start: Launch | Sequence[str],
        environment: Mapping[str, str] | None = None,
        look_s: float | None = None,
    ) -> None:
        """``look_s``: it may be asked, and not answer in time."""
        self.broken_frames = 0
        """How many lines were no frames."""
        self.last_broken: str | None = None
        launch = Launch(start) if isinstance(start, Sequence) else start
        self._program = ProgramProcess(launch, "the collector", environment)
        self._is_trusted = not launch.is_far
        """Whether it has written something that makes sense; if not, a far program is none of ours."""
        self._numbers = itertools.count(_FIRST_QUESTION)
        self._asked: dict[int, Future[object]] = {}
        self._reading = threading.Lock()
        """Whoever has it reads what comes."""
        self._read = self._lines(look_s)
        self.has_ended = False
        """It takes no more questions."""

    @property
    def pid(self) -> int:
        """The id of its process on this machine, which is also the id of its process group."""
        return self._program.pid

    @property
    def received_bytes(self) -> int:
        """Bytes of frames so far."""
        return self._program.received_bytes

    def send(self, command: Mapping[str, object]) -> None:
        """Queue one command without blocking. Raises CollectorGone when the collector ended or no longer reads."""
        self._program.send(msgspec.json.encode(command) + b"\n")

    def ask(self, question: str, arguments: Mapping[str, object], patience_s: float) -> object:
        """The document that answers. Raises Unanswered."""
        number, future = next(self._numbers), Future[object]()
        self._asked[number] = future
        try:
            try:
                self.send({"id": number, "command": "ask", "question": question, "arguments": arguments})
            except CollectorGone:
                if self._program.runs:
                    raise
                # What it has said before its end is read, and tells why.
            self._await(future, time.monotonic() + patience_s)
        except CollectorGone as error:
            raise Unanswered(errno.EPIPE, str(error)) from None
        finally:
            self._asked.pop(number, None)
        return future.result()

    def frames(self) -> Iterator[AnyFrame]:
        """Frames as they arrive, until the collector ends. Other lines are counted and skipped."""
        with self._reading:
            for frame in self._read:
                if frame is not None:
                    yield frame

    def _await(self, future: Future[object], until: float) -> None:
        while not future.done():
            if self.has_ended:
                raise Unanswered(errno.EPIPE, self.why())
            if time.monotonic() > until:
                raise Unanswered(errno.ETIMEDOUT, "the host does not answer")
            if self._reading.acquire(blocking=False):
                try:
                    next(self._read, None)  # before a session begins, only answers come
                finally:
                    self._reading.release()
            else:
                with contextlib.suppress(FutureTimeout, Unanswered):
                    future.result(_LOOK_S)

    def _lines(self, look_s: float | None) -> Iterator[AnyFrame | None]:
        """Each frame; None for what is none, and where nothing has come for a while."""
        rest = b""
        skipping = False
        for chunk in self._program.chunks(look_s):
            if not chunk:
                yield None
                continue
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if skipping:
                    skipping = False
                    continue
                if line.startswith(_ANSWER):
                    self._answered(line)
                    yield None
                    continue
                try:
                    frame = decode(line)
                except FrameError as error:
                    self._broken(str(error))
                else:
                    self._is_trusted = True
                    yield frame
            if len(rest) > MAX_LINE_BYTES:
                if not skipping:
                    self._broken(f"a line of more than {MAX_LINE_BYTES} bytes")
                skipping, rest = True, b""
        if rest:
            self._broken("the last line was cut")
        self.has_ended = True

    def _answered(self, line: bytes) -> None:
        try:
            told = msgspec.json.decode(line, type=_Answered)
        except UNREADABLE as error:
            self._broken(safe(error, 200))
            return
        self._is_trusted = True
        future = self._asked.get(told.answer)  # without one, nobody waits any more
        if future is None or future.done():
            return
        if told.error is None:
            future.set_result(told.document)
        else:
            future.set_exception(Unanswered(errno.EIO, safe(told.error, 1000)))

    def why(self) -> str:
        """Why it ended, in one line: its last line on standard error, or its exit status. Call after frames()."""
        return self._program.why()

    def close(self) -> None:
        """End it: close its input, wait for a moment, kill its process group. Idempotent. Any thread may call this."""
        self.has_ended = True
        self._program.close()

    def kill(self) -> None:
        """End its process group on this machine at once. A far one ends with its line."""
        self._program.kill()

    def _broken(self, why: str) -> None:
        self.broken_frames += 1
        self.last_broken = why
        if not self._is_trusted:
            self._program.give_up("the host sent what netconsole cannot read")
