"""Records a running session (docs/use/recording.md) without delaying it. The file can be read up to the last second.

The session calls :meth:`Recorder.take` with each batch of frames, under its lock. A thread of the recorder compresses
and writes. A slow disk leaves a gap in the recording, and a full disk ends it. The measurement goes on in both cases.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

import msgspec
import zstandard

import netconsole
from netconsole.base import figure
from netconsole.base.errors import BadInput, bad
from netconsole.base.fact_keys import FactData
from netconsole.base.timestamps import utc
from netconsole.findings import saved_log
from netconsole.findings.saved_log import SavedIncident
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Budget, Profile
from netconsole.recording.format import MAX_HEADER_BYTES, SCHEMA, Header, Mark, RecordedProbe, RecordedProfile
from netconsole.recording.writer import MAX_BYTES, MAX_S, PARTS, KeptBlocks, MemoryFile, RecordingFile
from netconsole.telemetry import checkpoint, frames
from netconsole.telemetry.frames import AnyFrame, Host, Mode
from netconsole.telemetry.state import State

BLOCK_S = 60.0
BLOCK_BYTES = 4 * 1024 * 1024
"""A block ends after this time, or this many bytes of frames. Lower limits of the recording make it shorter."""
CLOSE_S = 1.0
"""How long closing may wait for the disk: the whole console must end within 2 s."""
_MAX_WAITING = 50_000
"""The most frames and rows that may wait for the disk. More than that are left out: a gap in the recording."""
_NEAR = 0.25
"""When only this share of a minute's allowance is left, samples are left out. When nothing is left, all figures are."""
_Point: TypeAlias = tuple[bytes, bytes]
"""The state and the log at the beginning of a block."""
_KEPT_FRAMES = (frames.Hello, frames.Status, frames.Action, frames.Answer, frames.Bye)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a recording. ``ended`` says why it ended by itself. None while it goes on."""

    path: Path
    bytes: int
    left_out: int
    """Frames that were left out to keep the budget, or because the disk was too slow."""
    ended: str | None
    over_budget: bool = False
    """Whether it ended because of the profile's budget."""


class Recorder:
    """Takes batches of frames from a session (:meth:`take`), and writes them in its own thread until it is closed."""

    def __init__(
        self,
        path: Path | None,
        header: Header,
        budget: Budget | None = None,
        max_bytes: int = MAX_BYTES,
        max_s: float = MAX_S,
        on_end: Callable[[str], None] | None = None,
        before: KeptBlocks | None = None,
    ) -> None:
        """``on_end`` is called with one line when the recording ends by itself. Raises BadInput: see RecordingFile.

        ``path``: None to record into memory. ``before``: what was recorded before, with which it begins.
        """
        self._memory = MemoryFile(header, max_bytes, max_s) if path is None else None
        self._file = self._memory or RecordingFile(cast(Path, path), header, max_bytes, max_s)
        self.log: Callable[[], Sequence[SavedIncident]] | None = None
        """What tells the incidents so far, as at the beginning of a block. Called under the session's lock."""
        self._leads = header.leads
        self._block_ns = round(min(BLOCK_S, max_s / PARTS) * 1e9)
        self._on_end = on_end
        allowance = None if budget is None or budget.record_mb_per_min is None else budget.record_mb_per_min * 1e6
        self._allowance = allowance
        self._action = budget.action if budget is not None else "warn"
        self._left = allowance or 0.0
        self._refilled_ns: int | None = None
        self._news = threading.Condition()
        self._waiting: deque[tuple[Mark, _Point | None, Sequence[AnyFrame]]] = deque()
        self._waiting_weight = 0
        self._idle = True
        self._closing = False
        self._ended: str | None = None
        self._over_budget = False
        self._left_out = 0
        self._intervals = before.intervals if before is not None else 0
        self._block_began_ns: int | None = None
        self._block_bytes = 0
        self._block_is_due = False
        """Whether a batch that waits will begin a new block."""
        self._bytes = before.bytes if before is not None else 0
        self._last = Mark(0, 0, 0, 0)
        if before is not None:
            self._adopt(before)
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def _adopt(self, before: KeptBlocks) -> None:
        """Raises BadInput where it cannot be written."""
        try:
            self._file.adopt(before)
        except OSError as error:
            self._file.close()
            raise bad(self._file.path, "", f"cannot write: {(error.strerror or str(error)).lower()}") from None

    def memory(self) -> bytes:
        """What was recorded into memory, as a file has it."""
        return self._memory.whole() if self._memory is not None else b""

    def kept(self) -> KeptBlocks | None:
        """The same as blocks for another recorder to begin with, after this one was closed."""
        return None if self._memory is None else self._memory.kept(self._intervals, self._bytes)

    @property
    def progress(self) -> Progress:
        """The progress now."""
        return Progress(self._file.path, self._file.bytes, self._left_out, self._ended, self._over_budget)

    def take(self, state: State, batch: Sequence[AnyFrame]) -> None:
        """Takes frames, before they are applied to ``state``. Called under the session's lock, so it is short."""
        if not batch or self._ended is not None or self._closing:
            return
        first = batch[0]
        began_ns = self._block_began_ns
        due = began_ns is None or first.mono_ns - began_ns >= self._block_ns
        due = due or ((self._block_bytes >= BLOCK_BYTES or self._file.block_is_full) and not self._block_is_due)
        point = None
        if due:
            point = checkpoint.encode(state), saved_log.encode(self.log()) if self.log is not None else b""
        if point is not None:
            self._block_began_ns, self._block_is_due = first.mono_ns, True
        weight = sum(map(_weight, batch))
        with self._news:
            if self._waiting_weight + weight > _MAX_WAITING and point is None:
                self._left_out += len(batch)
                return
            self._waiting.append((Mark(first.wall_ns, first.mono_ns, self._intervals, 0), point, batch))
            self._waiting_weight += weight
            self._idle = False
            self._news.notify_all()
        self._intervals += sum(_ends_interval(frame) and frame.source == self._leads for frame in batch)

    def flush(self, limit_s: float) -> bool:
        """Waits until everything so far is in the file. False when that takes longer, or the recording has ended."""
        with self._news:
            self._news.wait_for(lambda: self._idle or self._ended is not None, limit_s)
            return self._idle and self._ended is None

    def close(self) -> None:
        """Writes the waiting frames and the index, and closes the file. Waits at most CLOSE_S. Idempotent."""
        with self._news:
            self._closing = True
            self._news.notify_all()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        try:
            while (item := self._next()) is not None:
                self._write(*item)
            self._file.finish(self._last._replace(intervals=self._intervals, bytes=self._bytes))
        except (OSError, zstandard.ZstdError) as error:
            self._end(str(getattr(error, "strerror", None) or error).lower())
        except BadInput as error:
            self._end(str(error))
        except Exception as error:  # a frame that cannot be written: the measurement goes on, and says that this ended
            self._end(f"{type(error).__name__}: {figure.safe(error)}")
        finally:
            self._file.close()

    def _next(self) -> tuple[Mark, _Point | None, Sequence[AnyFrame]] | None:
        with self._news:
            while not self._waiting and not self._closing and self._ended is None:
                self._idle = True
                self._news.notify_all()
                self._news.wait()
            self._idle = False
            if not self._waiting or self._ended is not None:
                return None
            item = self._waiting.popleft()
            self._waiting_weight -= sum(map(_weight, item[2]))
            return item

    def _write(self, mark: Mark, point: _Point | None, batch: Sequence[AnyFrame]) -> None:
        before = self._file.bytes
        if point is not None:
            self._file.begin(mark._replace(bytes=self._bytes), *point)
            self._block_bytes, self._block_is_due = 0, False
            before = min(before, self._file.bytes)
        lines = b"".join(frames.encode(frame) for frame in self._within_budget(batch))
        self._file.write(lines)
        self._bytes += len(lines)
        self._block_bytes += len(lines)
        last = max(batch, key=lambda frame: frame.mono_ns)
        if last.mono_ns >= self._last.mono_ns:
            self._last = Mark(last.wall_ns, last.mono_ns, 0, 0)
        self._left -= self._file.bytes - before

    # ---- the budget of bytes a minute ----

    def _within_budget(self, batch: Sequence[AnyFrame]) -> Sequence[AnyFrame]:
        """The frames of a batch that the budget allows. The allowance is refilled evenly, up to that of one minute."""
        if self._allowance is None:
            return batch
        now_ns = batch[-1].mono_ns
        passed_s = 0.0 if self._refilled_ns is None else max(0, now_ns - self._refilled_ns) / 1e9
        self._refilled_ns = now_ns
        self._left = min(self._allowance, self._left + self._allowance * passed_s / 60)
        if self._action == "stop" and self._left <= 0:
            self._over_budget = True
            self._end(f"more than the profile's record_mb_per_min = {self._allowance / 1e6:g}")
            return batch
        if self._action != "degrade" or self._left > _NEAR * self._allowance:
            return batch
        kept = [frame for frame in batch if self._is_kept(frame)]
        self._left_out += len(batch) - len(kept)
        return kept

    def _is_kept(self, frame: AnyFrame) -> bool:
        """Whether to write a frame when the budget is short. A reader sees the gap in the frames' numbers."""
        if self._left > 0:
            return not isinstance(frame, frames.Event)
        return isinstance(frame, _KEPT_FRAMES) or _ends_interval(frame)

    def _end(self, why: str) -> None:
        with self._news:
            if self._ended is not None:
                return
            self._ended = f"{figure.safe(self._file.path)}: recording ended: {why}; what was recorded can be replayed"
            self._news.notify_all()
        if self._on_end is not None:
            self._on_end(self._ended)


def describe(
    profile: Profile,
    modes: Mapping[str, Mode],
    manifests: Mapping[str, Manifest],
    host: Host,
    note: str | None = None,
    facts: Mapping[str, FactData] | None = None,
) -> Header:
    """The header of a recording that begins now. ``modes`` has the running probes with their modes.

    ``host``: the one that is measured. ``facts`` are left out where a reader would refuse so many.
    """
    probes = {
        name: RecordedProbe(manifests[name].version if name in manifests else None, mode)
        for name, mode in modes.items()
    }
    known = dict(facts or {})
    if len(msgspec.json.encode(known)) > MAX_HEADER_BYTES // 2:
        known = {}
    return Header(
        schema=SCHEMA,
        created=utc(),
        netconsole=netconsole.__version__,
        host=host,
        profile=RecordedProfile(profile.name, profile.budget.as_dict()),
        probes=probes,
        leads="collector",
        note=note,
        facts=known,
    )


def default_path() -> Path:
    """The file of a recording without a given name: in the working directory, named by date and time."""
    return Path(f"netconsole-{time.strftime('%Y%m%d-%H%M%S')}.ncrec")


def _ends_interval(frame: AnyFrame) -> bool:
    return isinstance(frame, frames.Cost) and frame.probe is None


def _weight(frame: AnyFrame) -> int:
    return 1 + len(frame.rows) if isinstance(frame, frames.Table) else 1
