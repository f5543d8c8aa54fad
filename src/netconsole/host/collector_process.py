"""Runs the collector, on this machine or another: sends commands, yields its frames, and always ends it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from netconsole.far.program import Gone, Launch, ProgramProcess, RunningProgram
from netconsole.telemetry.frames import MAX_LINE_BYTES, AnyFrame, FrameError, decode

CollectorGone = Gone
"""The collector cannot take a command. The message is one line that says why."""


class CollectorProcess:
    """One run of the collector. Raises CollectorGone when it cannot start."""

    def __init__(
        self, start: RunningProgram | Launch | Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """``start``: how to start it, or what runs already."""
        self.broken_frames = 0
        """How many lines were no frames."""
        self.last_broken: str | None = None
        launch = Launch(start) if isinstance(start, Sequence) else start
        self._program = ProgramProcess(launch, "the collector", environment) if isinstance(launch, Launch) else launch

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

    def frames(self) -> Iterator[AnyFrame]:
        """Frames as they arrive, until the collector ends. Other lines are counted and skipped."""
        rest = b""
        skipping = False
        for chunk in self._program.chunks():
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
        if rest:
            self._broken("the last line was cut")

    def why(self) -> str:
        """Why it ended, in one line: its last line on standard error, or its exit status. Call after frames()."""
        return self._program.why()

    def close(self) -> None:
        """End it: close its input, wait for a moment, kill its process group. Idempotent. Any thread may call this."""
        self._program.close()

    def kill(self) -> None:
        """End its process group on this machine at once. A far one ends with its line."""
        if isinstance(self._program, ProgramProcess):
            self._program.kill()

    def _broken(self, why: str) -> None:
        self.broken_frames += 1
        self.last_broken = why
