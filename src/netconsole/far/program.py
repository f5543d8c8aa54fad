"""Runs one of our Python programs, on this machine or another: starts it, sends it bytes, yields its output, ends it.

The process here (Python itself, or ssh) has its own process group. So Ctrl-C on the terminal does not reach it. A
program ends when its standard input is closed. However this process dies, the kernel closes that pipe, so the program
ends. Where the line to a far host breaks, nothing says goodbye: such a program is sent an empty line four times a
second, and ends by itself when none comes (archive.SILENCE_S).
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from netconsole.far import archive, child

GRACE_S = 1.0
"""How long a program may take to end after its standard input was closed."""
FAR_GRACE_S = 2.0
"""The same on a far host: the line takes time too."""
BEAT_S = 0.25
"""Time between two empty lines to a far program."""
MAX_BEFORE = 65536
"""More bytes than this before a program's own output: the login shell there does not run it."""
_READ_BYTES = 256 * 1024
_COMPLAINT_BYTES = 4096
_QUEUED = 256


class Gone(Exception):
    """The program cannot be started, or takes no more input. The message is one line that says why."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a program: the command on this machine, and what it reads first."""

    command: Sequence[str]
    opening: bytes = b""
    told: Callable[[bool, str, int], str] | None = None
    """For a far host: says in one line why it ended, from whether it had begun, its last words and exit status."""

    @property
    def is_far(self) -> bool:
        """Whether it runs on another machine."""
        return self.told is not None


class ProgramProcess:
    """One run. Raises Gone when it cannot start. ``what`` names it in messages."""

    def __init__(self, launch: Launch, what: str = "the program", environment: Mapping[str, str] | None = None) -> None:
        self.received_bytes = 0
        """Bytes of its output so far; those of a far host before ssh compresses them."""
        self._launch = launch
        self._what = what
        self._has_begun = not launch.is_far
        self._before = b""
        self._complaint = b""
        self._closed = threading.Lock()
        self._ended = threading.Event()
        self._outbox: queue.Queue[bytes | None] = queue.Queue(_QUEUED)
        try:
            self._process = child.start(launch.command, environment)
        except OSError as error:
            raise Gone(f"cannot start {what} {launch.command[0]}: {error.strerror}") from None
        self._listener = threading.Thread(target=self._listen, name="program-stderr", daemon=True)
        self._writer = threading.Thread(target=self._write, name="program-stdin", daemon=True)
        self._listener.start()
        if launch.opening:
            self._outbox.put_nowait(launch.opening)
        self._writer.start()
        if launch.is_far:
            threading.Thread(target=self._beat, name="program-beat", daemon=True).start()

    @property
    def pid(self) -> int:
        """The id of the process on this machine, which is also the id of its process group."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether it has not ended; what it said until then may not be read yet."""
        return self._process.poll() is None

    def send(self, line: bytes) -> None:
        """Queue input without blocking. Raises Gone when the program ended or no longer reads."""
        if not self.runs:
            raise Gone(f"{self._what} has ended")
        try:
            self._outbox.put_nowait(line)
        except queue.Full:
            raise Gone(f"{self._what} does not read: {_QUEUED} commands wait") from None

    def end_input(self) -> None:
        """Close its input when what is queued has been written. Most programs end then."""
        self._outbox.put(None)

    def chunks(self, look_s: float | None = None, patience_s: float | None = None) -> Iterator[bytes]:
        """Its output as it arrives, until it ends, or nothing has come for ``patience_s``.

        b"" when nothing has come for ``look_s``.
        """
        stdout = self._process.stdout
        assert stdout is not None
        room = memoryview(bytearray(_READ_BYTES))  # allocated once: many large ones would fragment the heap
        while True:
            try:
                if not select.select([stdout], [], [], look_s if patience_s is None else patience_s)[0]:
                    if patience_s is None:
                        yield b""
                        continue
                    self.give_up(f"{self._what} sent nothing for {patience_s:g} s")
                    return
                chunk = bytes(room[: os.readv(stdout.fileno(), [room])])
            except (OSError, ValueError):
                return
            if not chunk:
                return
            self.received_bytes += len(chunk)
            if not self._has_begun:
                chunk = self._begun(chunk)
                if len(self._before) > MAX_BEFORE:
                    return
            if chunk:
                yield chunk

    def give_up(self, why: str) -> None:
        """End it at once, for this reason."""
        self._complaint = why.encode()
        self.kill()

    def kill(self) -> None:
        """End its process group at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def why(self) -> str:
        """Why it ended, in one line: its last line on standard error, or its exit status. Call after chunks()."""
        told = self._launch.told
        if told is not None and len(self._before) > MAX_BEFORE:
            return told(False, self._before[-_COMPLAINT_BYTES:].decode("utf-8", "replace"), 0)
        try:
            status = self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            return f"{self._what} closed its output but still runs"
        self._listener.join(GRACE_S)
        if told is not None:
            said = self._complaint if self._has_begun else self._before + b"\n" + self._complaint
            return told(self._has_begun, said.decode("utf-8", "replace"), status)
        lines = self._complaint.decode("utf-8", "replace").strip().splitlines()
        how = f"killed by {_signal_name(-status)}" if status < 0 else f"exit status {status}"
        return f"{lines[-1].strip()} ({how})" if lines else how

    def close(self) -> None:
        """End it: close its input, wait for a moment, kill its process group. Idempotent. Any thread may call this."""
        grace_s = FAR_GRACE_S if self._launch.is_far else GRACE_S
        with self._closed:
            self._ended.set()
            stdin = self._process.stdin
            assert stdin is not None
            # The writer may block in a full pipe: do not wait for it.
            with contextlib.suppress(queue.Full):
                self._outbox.put_nowait(None)
            self._writer.join(0.1)
            with contextlib.suppress(OSError):
                stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
            # Also when it ended normally: a compile worker may be left in its group.
            self.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)

    def _begun(self, chunk: bytes) -> bytes:
        """Leave out what a login shell prints before the program begins. Returns the program's own output."""
        self._before += chunk
        _shell, found, rest = self._before.partition(archive.ARRIVED)
        version, end, output = rest.partition(b"\n")
        if not found or not end:
            return b""
        self._before = found + version
        self._has_begun = archive.can_run(version)
        return output if self._has_begun else b""

    def _write(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        while (line := self._outbox.get()) is not None:
            try:
                view = memoryview(line)
                while view:
                    view = view[os.write(stdin.fileno(), view) :]
            except (OSError, ValueError):
                return
        with contextlib.suppress(OSError):
            stdin.close()

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            with contextlib.suppress(queue.Full):
                self._outbox.put_nowait(b"\n")

    def _listen(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        while True:
            try:
                chunk = os.read(stderr.fileno(), _COMPLAINT_BYTES)
            except (OSError, ValueError):
                return
            if not chunk:
                return
            self._complaint = (self._complaint + chunk)[-_COMPLAINT_BYTES:]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
