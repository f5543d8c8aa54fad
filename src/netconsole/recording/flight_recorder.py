"""Keeps the frames of the last seconds in memory, within a limit, and writes them as a recording on request."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from netconsole.recording.format import Header, Mark
from netconsole.recording.writer import RecordingFile
from netconsole.telemetry import checkpoint, frames
from netconsole.telemetry.frames import AnyFrame
from netconsole.telemetry.state import State

MAX_WEIGHT = 50_000
"""The most frames and rows to keep: about 50 MB on a host where nearly every figure has thousands of rows."""
_BLOCKS = 2
"""Blocks in the time to keep. A block begins with a checkpoint, and only whole blocks are dropped."""


@dataclass(slots=True)
class _Block:
    began: Mark
    point: bytes
    batches: list[Sequence[AnyFrame]] = field(default_factory=list)
    weight: int = 0


class FlightRecorder:
    """Takes the frames of a session (:class:`netconsole.telemetry.session.Sink`), always under its lock."""

    def __init__(self, keep_s: float) -> None:
        """``keep_s``: the time to keep at least, unless that needs more than MAX_WEIGHT."""
        self._keep_ns = round(keep_s * 1e9)
        self._blocks: deque[_Block] = deque()
        self._held = False
        self._cut = False
        self._intervals = 0
        self._last = Mark(0, 0, 0, 0)

    @property
    def was_cut(self) -> bool:
        """Whether frames since :meth:`hold` were lost because there was no room."""
        return self._cut

    def hold(self) -> None:
        """Drops nothing from now on."""
        self._held, self._cut = True, False

    def release(self) -> None:
        """Drops old frames again, as before :meth:`hold`."""
        self._held = False

    def take(self, state: State, batch: Sequence[AnyFrame]) -> None:
        """Takes frames, before they are applied to ``state``."""
        if not batch:
            return
        first = batch[0]
        mark = Mark(first.wall_ns, first.mono_ns, self._intervals, 0)
        if not self._blocks or first.mono_ns - self._blocks[-1].began.mono_ns >= self._keep_ns // _BLOCKS:
            self._blocks.append(_Block(mark, checkpoint.encode(state)))
        weight = sum(map(_weight, batch))
        if self._held and self.weight + weight > MAX_WEIGHT:
            self._cut = True
            return
        block = self._blocks[-1]
        block.batches.append(batch)
        block.weight += weight
        self._intervals += sum(isinstance(frame, frames.Cost) and frame.probe is None for frame in batch)
        self._last = Mark(batch[-1].wall_ns, batch[-1].mono_ns, self._intervals, 0)
        if not self._held:
            self._forget(first.mono_ns)

    @property
    def weight(self) -> int:
        """The number of frames and rows that are kept."""
        return sum(block.weight for block in self._blocks)

    def copy(self) -> FlightRecorder:
        """A copy to write while this one goes on. Both share the frames, which never change."""
        other = FlightRecorder(self._keep_ns / 1e9)
        other._blocks = deque(_Block(one.began, one.point, list(one.batches), one.weight) for one in self._blocks)
        other._intervals, other._last, other._cut = self._intervals, self._last, self._cut
        return other

    def write(self, path: Path, header: Header) -> None:
        """Writes everything as a recording. Raises BadInput when there can be no such file, OSError in writing."""
        file = RecordingFile(path, header)
        try:
            written = 0
            for block in self._blocks:
                file.begin(block.began._replace(bytes=written), block.point)
                lines = b"".join(frames.encode(frame) for batch in block.batches for frame in batch)
                file.write(lines)
                written += len(lines)
            file.finish(self._last._replace(bytes=written))
        finally:
            file.close()

    def _forget(self, now_ns: int) -> None:
        """Drops blocks that are older than needed, or for which there is no room."""
        while len(self._blocks) > 1 and (
            now_ns - self._blocks[1].began.mono_ns >= self._keep_ns or self.weight > MAX_WEIGHT
        ):
            self._blocks.popleft()


def _weight(frame: AnyFrame) -> int:
    return 1 + len(frame.rows) if isinstance(frame, frames.Table) else 1
