"""Runs the collector as a child process: starts it, sends commands, yields its frames, and always ends it.

The child has its own process group. So Ctrl-C on the terminal does not reach it, and its compile workers end with it.
It ends when its standard input is closed. However this process dies, the kernel closes that pipe, so the collector ends
and detaches all probes.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from netconsole.telemetry.frames import MAX_LINE_BYTES, AnyFrame, FrameError, decode

GRACE_S = 1.0
"""How long the collector may take to detach its probes after its standard input was closed."""
_READ_BYTES = 256 * 1024
_COMPLAINT_BYTES = 4096
_QUEUED_COMMANDS = 256


class CollectorGone(Exception):
    """The collector cannot take a command. The message is one line that says why."""


class CollectorProcess:
    """One run of the collector. ``command`` is its argument vector. Raises CollectorGone when it cannot start."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.broken_frames = 0
        """How many lines were no frames."""
        self.last_broken: str | None = None
        self._complaint = b""
        self._closed = threading.Lock()
        self._outbox: queue.Queue[bytes | None] = queue.Queue(_QUEUED_COMMANDS)
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                env=None if environment is None else dict(environment),
            )
        except OSError as error:
            raise CollectorGone(f"cannot start the collector {command[0]}: {error.strerror}") from None
        self._listener = threading.Thread(target=self._listen, name="collector-stderr", daemon=True)
        self._writer = threading.Thread(target=self._write, name="collector-stdin", daemon=True)
        self._listener.start()
        self._writer.start()

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its process group."""
        return self._process.pid

    def send(self, command: Mapping[str, object]) -> None:
        """Queue one command without blocking. Raises CollectorGone when the collector ended or no longer reads."""
        if self._process.poll() is not None:
            raise CollectorGone("the collector has ended")
        try:
            self._outbox.put_nowait(msgspec.json.encode(command) + b"\n")
        except queue.Full:
            raise CollectorGone(f"the collector has not read its last {_QUEUED_COMMANDS} commands") from None

    def frames(self) -> Iterator[AnyFrame]:
        """Frames as they arrive, until the collector ends. Other lines are counted and skipped."""
        stdout = self._process.stdout
        assert stdout is not None
        rest = b""
        skipping = False
        room = memoryview(bytearray(_READ_BYTES))  # allocated once: many large ones would fragment the heap
        while True:
            try:
                chunk = bytes(room[: os.readv(stdout.fileno(), [room])])
            except (OSError, ValueError):
                return
            if not chunk:
                if rest:
                    self._broken("the last line was cut")
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if skipping:
                    skipping = False
                    continue
                try:
                    yield decode(line)
                except FrameError as error:
                    self._broken(str(error))
            if len(rest) > MAX_LINE_BYTES:
                if not skipping:
                    self._broken(f"a line of more than {MAX_LINE_BYTES} bytes")
                skipping, rest = True, b""

    def why(self) -> str:
        """Why it ended, in one line: its last line on standard error, or its exit status. Call after frames()."""
        try:
            status = self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            return "closed its output but still runs"
        self._listener.join(GRACE_S)
        lines = self._complaint.decode("utf-8", "replace").strip().splitlines()
        how = f"killed by {_signal_name(-status)}" if status < 0 else f"exit status {status}"
        return f"{lines[-1].strip()} ({how})" if lines else how

    def close(self) -> None:
        """End it: close its input, wait GRACE_S, kill its process group. Idempotent. Any thread may call this."""
        with self._closed:
            stdin = self._process.stdin
            assert stdin is not None
            # The writer may block in a full pipe: do not wait for it.
            with contextlib.suppress(queue.Full):
                self._outbox.put_nowait(None)
            self._writer.join(0.1)
            with contextlib.suppress(OSError):
                stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S)
            # Also when it ended normally: a compile worker may be left in its group.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S)

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

    def _broken(self, why: str) -> None:
        self.broken_frames += 1
        self.last_broken = why


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
