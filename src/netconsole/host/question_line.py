"""The line to a program that answers questions on another host (netconsole_collector/primitives/server.py).

What comes from there may be anything: it is bounded, and what makes no sense ends the line with one sentence.
"""

from __future__ import annotations

import errno
import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from netconsole.base.errors import UNREADABLE, HostLost, Unable
from netconsole.base.figure import safe
from netconsole.far.program import Gone, Launch, ProgramProcess, RunningProgram
from netconsole_collector.primitives.here import Moment
from netconsole_collector.primitives.server import HEAD, MAX_MESSAGE_BYTES, VERSION

ANSWER_S = 10.0
"""How long one line of questions may take. An interval's take milliseconds and a round trip."""
START_S = 40.0
"""How long its program may take to start there: where there is no CPU time left, far longer than an answer."""
KEEP_S = 60.0
"""How long the shortest round trip relates the clocks: they drift apart by some ten microseconds per second."""
AGAIN_S = 2.0
"""Time between two attempts to open a line that was lost."""
_MAX_HELLO_BYTES = 4096
_MAX_BYTES = MAX_MESSAGE_BYTES + (1 << 20)


class Greeting(msgspec.Struct, frozen=True):
    """What the program there says first."""

    version: int
    byteorder: str
    nodename: str
    release: str
    machine: str


@dataclass(frozen=True, slots=True)
class Heard:
    """The answers to one line, not yet taken apart, and when it was read there."""

    moment: Moment
    body: memoryview


class _Trip(NamedTuple):
    """A round trip: when it ended, how long it took, and the clocks there minus ours in its middle. All in ns."""

    at_ns: int
    took_ns: int
    mono_ns: int
    wall_ns: int


class QuestionLine:
    """``start`` starts the program; see :meth:`netconsole.far.host.AnyHost.answering`. Any thread may use it."""

    def __init__(self, start: Callable[[], RunningProgram | Launch], where: str = "") -> None:
        """``where``: the host's address, for messages."""
        self.generation = 0
        """How often the line was opened: what was open there before is gone."""
        self.cpu_ns = 0
        """CPU time of the program there so far."""
        self.memory_kb = 0
        """Its share of memory (PSS), or what is resident where the kernel tells no share."""
        self._start_program = start
        self._where = where
        self._trip: _Trip | None = None
        self._lock = threading.Lock()
        self._program: RunningProgram | None = None
        self._hello: Future[Greeting] = Future()
        self._awaited: dict[int, Future[tuple[int, int, memoryview]]] = {}
        self._ids = itertools.count(1)
        self._lanes = itertools.count(1)
        self._received_before = 0
        self._lost_at = float("-inf")
        self._why = "the connection to the host is closed"
        self._is_closed = False

    @property
    def received_bytes(self) -> int:
        """All that has come over the line, before ssh compresses it."""
        program = self._program
        return self._received_before + (program.received_bytes if program is not None else 0)

    def new_lane(self) -> int:
        """A number for questions that wait for no others."""
        return next(self._lanes)

    def open(self) -> Greeting:
        """Start the program there, unless it runs. Raises OSError."""
        with self._lock:
            if self._is_closed:
                raise _lost(self._why)
            if self._program is None:
                if time.monotonic() - self._lost_at < AGAIN_S:
                    raise _lost(self._why)
                self._start()
            hello = self._hello
        try:
            return hello.result(START_S)
        except FutureTimeout:
            self._lose("the host does not answer")
            raise _lost(self._why) from None

    def exchange(self, line: Mapping[str, object]) -> Heard:
        """Ask the questions of one line. Raises OSError."""
        self.open()
        number = next(self._ids)
        future: Future[tuple[int, int, memoryview]] = Future()
        with self._lock:
            program = self._program
            if program is None:
                raise _lost(self._why)
            self._awaited[number] = future
        try:
            asked_ns = time.monotonic_ns()
            program.send(json.dumps({**line, "id": number}, separators=(",", ":")).encode("ascii") + b"\n")
            mono_ns, wall_ns, body = future.result(ANSWER_S)
            return Heard(self._moment(asked_ns, mono_ns, wall_ns), body)
        except Gone as error:
            self._lose(str(error), program)
            raise _lost(self._said(str(error))) from None
        except FutureTimeout:
            raise self.lost(f"the host did not answer within {ANSWER_S:g} s", errno.ETIMEDOUT) from None
        finally:
            with self._lock:
                self._awaited.pop(number, None)

    def tell(self, line: Mapping[str, object]) -> None:
        """Say something that has no answer. Raises nothing."""
        with self._lock:
            program = self._program
        if program is not None:
            try:
                program.send(json.dumps(line).encode("ascii") + b"\n")
            except Gone:
                return

    def close(self) -> None:
        """End the program there. Idempotent."""
        with self._lock:
            self._is_closed = True
        self._lose("the connection to the host is closed")

    def _moment(self, asked_ns: int, far_mono_ns: int, far_wall_ns: int) -> Moment:
        """The moment at which a line was read there, by our clocks: somewhere between question and answer."""
        now_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        took_ns = now_ns - asked_ns
        with self._lock:
            known = self._trip
            if known is None or took_ns <= known.took_ns or now_ns - known.at_ns > KEEP_S * 1e9:
                middle_ns = took_ns // 2
                known = _Trip(now_ns, took_ns, far_mono_ns + middle_ns - now_ns, far_wall_ns + middle_ns - wall_ns)
                self._trip = known
        return Moment(far_mono_ns - known.mono_ns, far_wall_ns - known.wall_ns, far_mono_ns)

    def _start(self) -> None:
        try:
            started = self._start_program()
            program = ProgramProcess(started, "the reader of facts") if isinstance(started, Launch) else started
        except (Gone, Unable) as error:
            self._lost_at, self._why = time.monotonic(), self._said(str(error))
            raise _lost(self._why) from None
        self._program = program
        self._trip = None
        self._hello = Future()
        self.generation += 1
        threading.Thread(target=self._listen, args=(program, self._hello), name="far line", daemon=True).start()

    def _listen(self, program: RunningProgram, hello: Future[Greeting]) -> None:
        rest = bytearray()
        why = ""
        try:
            for chunk in program.chunks():
                rest += chunk
                while (size := self._next(rest, hello)) is not None:
                    del rest[:size]
            why = program.why()
        except _Nonsense as error:
            why = f"the host sent what netconsole cannot read: {error}"
        self._lose(why, program)

    def _next(self, rest: bytearray, hello: Future[Greeting]) -> int | None:
        """Take one message. Returns its size; None when it has not come whole. Raises _Nonsense."""
        if hello.done() and hello.exception() is not None:
            raise _Nonsense("a greeting that came too late")  # it greets too late: its greeting is no answer
        if len(rest) < 4:
            return None
        size = int.from_bytes(rest[:4], "little")
        if size > (_MAX_BYTES if hello.done() else _MAX_HELLO_BYTES):
            raise _Nonsense(f"a message of {size} bytes")
        if len(rest) < 4 + size:
            return None
        message = bytes(rest[: 4 + size])
        if not hello.done():
            hello.set_result(_hello(message[4:]))
            return 4 + size
        if size < HEAD.size - 4:
            raise _Nonsense("a message that is too short")
        _, number, mono_ns, wall_ns, self.cpu_ns, self.memory_kb = HEAD.unpack_from(message)
        with self._lock:
            future = self._awaited.pop(number, None)
        if future is not None:
            future.set_result((mono_ns, wall_ns, memoryview(message)[HEAD.size :]))
        return 4 + size

    def lost(self, why: str, number: int = errno.ENOTCONN) -> HostLost:
        """The error that says this of the host."""
        return HostLost(number, self._said(why))

    def _said(self, why: str) -> str:
        """With the host's address, if that is not in it."""
        known = not self._where or why.startswith(self._where)
        return safe(why if known else f"{self._where}: {why}", 300)

    def _lose(self, why: str, of: RunningProgram | None = None) -> None:
        with self._lock:
            program = self._program
            if program is None or (of is not None and program is not of):
                return
            self._program = None
            self._received_before += program.received_bytes
            self._lost_at, self._why = time.monotonic(), self._said(why)
            awaited = [*self._awaited.values()]
            self._awaited.clear()
            hello = self._hello
        error = _lost(self._why)
        if not hello.done():
            hello.set_exception(error)
        for future in awaited:
            future.set_exception(error)
        program.close()


class _Nonsense(Exception):
    """What came is no message."""


def _hello(text: bytes) -> Greeting:
    try:
        hello = msgspec.json.decode(text, type=Greeting)
    except UNREADABLE as error:
        raise _Nonsense(safe(str(error), 120)) from None
    if hello.version != VERSION:
        raise _Nonsense(f"version {hello.version} instead of {VERSION}")
    return hello


def _lost(why: str) -> HostLost:
    return HostLost(errno.ENOTCONN, why)
