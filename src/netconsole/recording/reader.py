"""Reads a recording, also from an untrusted source: its blocks, the state at the beginning of each, and the frames."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, cast

import msgspec
import zstandard

from netconsole.base.errors import UNREADABLE, BadInput, bad
from netconsole.base.figure import safe
from netconsole.findings.saved_log import MAX_LOG_BYTES, LogError, SavedIncident
from netconsole.findings.saved_log import decode as decode_log
from netconsole.recording.format import (
    CHECKPOINT_MAGIC,
    ENTRY,
    FOOTER,
    FOOTER_NAME,
    HEADER_MAGIC,
    INDEX_MAGIC,
    LOG_MAGIC,
    MARK,
    MAX_BLOCK_BYTES,
    MAX_BLOCKS,
    MAX_HEADER_BYTES,
    SCHEMA,
    SKIPPABLE,
    Header,
    Mark,
)
from netconsole.telemetry import checkpoint
from netconsole.telemetry.frames import MAX_LINE_BYTES, AnyFrame, FrameError, decode
from netconsole.telemetry.state import State

MAX_BROKEN = 1000
"""The most lines of a block that may be no frames. A later version may have a few kinds that this one does not know."""
MAX_WINDOW_BYTES = 8 * 1024 * 1024
"""The most memory for the window of a decompressor. Every decompressor must offer this (RFC 8878, 3.1.1.1.2)."""
_MAX_PIECES = 3_000_000
"""The most Zstandard blocks in the search through a cut recording: a month with one a second."""
_READ_BYTES = 256 * 1024
_EXPECTED = "expected a file that netconsole record wrote"


class Damaged(Exception):
    """The rest of a block cannot be read. The message says in one line what is wrong."""


@dataclass(frozen=True, slots=True)
class RecordedBlock:
    """A part of the frames that can be read without the parts before it.

    ``end`` is the offset of the first byte after it. ``bytes`` is the most bytes of frames that it can have.
    """

    offset: int
    end: int
    mark: Mark
    bytes: int


class Recording:
    """An open recording. Raises BadInput in one line when it cannot be read. Call :meth:`close` at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1
        self.broken_frames = 0
        """Lines that were no frames. They are left out, and counted each time that they are read."""
        self.read_bytes = 0
        """Of lines, each time that they are read."""
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            raise bad(path, "", _lower(getattr(error, "strerror", None) or str(error))) from None
        try:
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                raise bad(path, "", f"not a regular file: {_EXPECTED}")
            self.size = os.fstat(self._file).st_size
            self.header, begin = self._header()
            self.whole = True
            """Whether it was closed normally. Else it was cut, and ends with its last complete frame."""
            self.blocks, self.end = self._by_index(begin) or self._by_search(begin)
            if not self.blocks:
                raise bad(path, "", "this recording is empty: the file has only a header")
        except OSError as error:
            self.close()
            raise bad(path, "", f"cannot read: {_lower(error.strerror or str(error))}") from None
        except BadInput:
            self.close()
            raise

    @classmethod
    def of_memory(cls, content: bytes) -> Recording:
        """A recording that is in memory alone. Raises BadInput, like opening one."""
        memory = os.memfd_create("netconsole")
        try:
            with os.fdopen(os.dup(memory), "wb") as file:
                file.write(content)
            return cls(Path(f"/proc/self/fd/{memory}"))
        finally:
            os.close(memory)

    def close(self) -> None:
        """Closes the file. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    __del__ = close

    @property
    def begin(self) -> Mark:
        """The mark of the first block."""
        return self.blocks[0].mark

    def state(self, number: int) -> State:
        """The state at the beginning of a block. Raises Damaged."""
        block = self.blocks[number]
        magic, size = self._skippable(block.offset)
        start = block.offset + SKIPPABLE.size
        head = self._read(start, MARK.size)
        if magic != CHECKPOINT_MAGIC or len(head) < MARK.size or Mark(*MARK.unpack(head)) != block.mark:
            raise Damaged(f"block {number + 1}: no checkpoint at byte {block.offset}")
        content = self._unpacked(start + MARK.size, start + size, checkpoint.MAX_BYTES)
        try:
            return checkpoint.decode(content)
        except checkpoint.CheckpointError as error:
            raise Damaged(f"block {number + 1}: {safe(error)}") from None

    def log(self, number: int) -> list[SavedIncident]:
        """The incidents at the beginning of a block; empty where the recording has none. Raises Damaged."""
        start, end = self._log_at(self.blocks[number].offset)
        content = self._unpacked(start, end, MAX_LOG_BYTES) if start < end else b""
        try:
            return decode_log(content) if content else []
        except LogError as error:
            raise Damaged(f"block {number + 1}: {safe(error)}") from None

    def frames(self, number: int) -> Iterator[AnyFrame]:
        """The frames of a block that are complete. Raises Damaged after the last of them, if the block has more."""
        block = self.blocks[number]
        _, begin = self._log_at(block.offset)
        rest = b""
        seen = broken = 0
        try:
            for chunk in self._chunks(begin, block.end):
                seen += len(chunk)
                if seen > block.bytes:
                    raise Damaged(f"block {number + 1}: more than {block.bytes} bytes of frames")
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > MAX_LINE_BYTES:
                    raise Damaged(f"block {number + 1}: a line of more than {MAX_LINE_BYTES} bytes")
                for line in lines:
                    self.read_bytes += len(line)
                    try:
                        yield decode(line)
                    except FrameError as error:
                        self.broken_frames += 1
                        broken += 1
                        if broken > MAX_BROKEN:
                            raise Damaged(f"block {number + 1}: its lines are not frames: {safe(error)}") from None
        except (zstandard.ZstdError, OSError) as error:
            raise Damaged(f"block {number + 1}: {safe(error)}") from None
        if rest and self.whole:
            raise Damaged(f"block {number + 1}: its last line is cut")

    # ---- the file ----

    def _read(self, offset: int, size: int) -> bytes:
        return os.pread(self._file, size, offset) if offset >= 0 else b""

    def _skippable(self, offset: int) -> tuple[int, int]:
        """Magic number and size of the skippable frame at an offset. Zeros past the end of the file."""
        head = self._read(offset, SKIPPABLE.size)
        return SKIPPABLE.unpack(head) if len(head) == SKIPPABLE.size else (0, 0)

    def _log_at(self, offset: int) -> tuple[int, int]:
        """Where the log of the block at an offset begins and ends; its end is where the frames begin."""
        start = offset + SKIPPABLE.size + self._skippable(offset)[1]
        magic, size = self._skippable(start)
        return (start + SKIPPABLE.size, start + SKIPPABLE.size + size) if magic == LOG_MAGIC else (start, start)

    def _chunks(self, offset: int, end: int) -> Iterator[bytes]:
        """Decompresses a Zstandard frame in pieces, so that no small file can fill the memory. Raises ZstdError."""
        part = _Part(self._file, offset, end)
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
        with decompressor.stream_reader(cast(IO[bytes], part), read_size=_READ_BYTES) as stream:
            while chunk := stream.read(_READ_BYTES):
                yield chunk

    def _unpacked(self, offset: int, end: int, limit: int) -> bytes:
        """A small document inside a skippable frame. Raises Damaged."""
        content = bytearray()
        try:
            for chunk in self._chunks(offset, min(end, self.size)):
                content += chunk
                if len(content) > limit:
                    raise Damaged(f"more than {limit} bytes at byte {offset}")
        except (zstandard.ZstdError, OSError) as error:
            raise Damaged(f"at byte {offset}: {safe(error)}") from None
        return bytes(content)

    def _header(self) -> tuple[Header, int]:
        magic, size = self._skippable(0)
        if magic != HEADER_MAGIC or size > MAX_HEADER_BYTES:
            raise bad(self.path, "", f"not a recording: {_EXPECTED}")
        end = SKIPPABLE.size + size
        try:
            header = msgspec.json.decode(self._unpacked(SKIPPABLE.size, end, MAX_HEADER_BYTES), type=Header)
        except Damaged as error:
            raise bad(self.path, "header", str(error)) from None
        except msgspec.ValidationError as error:
            message, _, where = str(error).partition(" - at `$")
            raise bad(self.path, f"header{where.rstrip('`')}", safe(message)) from None
        except UNREADABLE as error:
            raise bad(self.path, "header", f"not JSON: {safe(error)}") from None
        if header.schema != SCHEMA:
            found = safe(header.schema, 60)
            raise bad(self.path, "header.schema", f'this netconsole cannot read "{found}": it reads {SCHEMA}')
        return header, end

    def _by_index(self, begin: int) -> tuple[list[RecordedBlock], Mark] | None:
        """Blocks and end, from the index. None when there is no index, or when it does not match the file."""
        footer = self._read(self.size - FOOTER.size, FOOTER.size)
        if len(footer) < FOOTER.size:
            return None
        start, name = FOOTER.unpack(footer)
        magic, size = self._skippable(start) if name == FOOTER_NAME and begin <= start < self.size else (0, 0)
        entries = size - FOOTER.size
        if (
            magic != INDEX_MAGIC
            or start + SKIPPABLE.size + size != self.size
            or entries % ENTRY.size
            or not ENTRY.size < entries <= (MAX_BLOCKS + 1) * ENTRY.size
        ):
            return None
        table = [
            (offset, Mark(*mark)) for offset, *mark in ENTRY.iter_unpack(self._read(start + SKIPPABLE.size, entries))
        ]
        offsets = [offset for offset, _ in table]
        ascending = all(before < after for before, after in pairwise(offsets))
        if not ascending or offsets[0] != begin or offsets[-1] != start or not _in_order(mark for _, mark in table):
            return None
        blocks = [_block(offset, end, mark, after) for (offset, mark), (end, after) in pairwise(table)]
        return blocks, table[-1][1]

    def _by_search(self, begin: int) -> tuple[list[RecordedBlock], Mark]:
        """Blocks and end, from a search through the file, as far as it is complete."""
        self.whole = False
        found: list[tuple[int, int, Mark]] = []
        offset, pieces = begin, 0
        while len(found) < MAX_BLOCKS:
            magic, size = self._skippable(offset)
            start = offset + SKIPPABLE.size
            head = self._read(start, MARK.size)
            if magic != CHECKPOINT_MAGIC or len(head) < MARK.size or start + size > self.size:
                break
            mark = Mark(*MARK.unpack(head))
            if found and not _in_order((found[-1][2], mark)):
                break
            _, begin = self._log_at(offset)
            end, walked = _end_of_frame(self._file, begin, self.size, _MAX_PIECES - pieces)
            pieces += walked
            found.append((offset, end, mark))
            offset = end
        if not found:
            return [], Mark(0, 0, 0, 0)
        blocks = [_block(offset, end, mark, after) for (offset, end, mark), (_, _, after) in pairwise(found)]
        self.blocks = [*blocks, RecordedBlock(*found[-1], MAX_BLOCK_BYTES)]
        return self.blocks, self._end_of_last()

    def _end_of_last(self) -> Mark:
        """The end of the last block. This reads the block."""
        wall_ns, mono_ns, intervals, size = self.blocks[-1].mark
        try:
            for frame in self.frames(len(self.blocks) - 1):
                if frame.mono_ns > mono_ns:
                    wall_ns, mono_ns = frame.wall_ns, frame.mono_ns
        except Damaged:
            pass  # the recording ends there; a replay shows the reason when it gets there
        return Mark(wall_ns, mono_ns, intervals, size)


class _Part(io.RawIOBase):
    """A part of a file as a stream to read from."""

    def __init__(self, file: int, offset: int, end: int) -> None:
        self._file, self._offset, self._end = file, offset, end

    def read(self, size: int = -1) -> bytes:
        """The next bytes. Empty at the end."""
        left = self._end - self._offset
        wanted = left if size < 0 else min(size, left)
        chunk = os.pread(self._file, wanted, self._offset) if wanted > 0 else b""
        self._offset += len(chunk)
        return chunk


def _block(offset: int, end: int, mark: Mark, after: Mark) -> RecordedBlock:
    return RecordedBlock(offset, end, mark, min(after.bytes - mark.bytes, MAX_BLOCK_BYTES))


def _in_order(marks: Iterable[Mark]) -> bool:
    """Whether the monotonic clock and the counts never go back."""
    return all(
        before.mono_ns <= after.mono_ns and before.intervals <= after.intervals and before.bytes <= after.bytes
        for before, after in pairwise(marks)
    )


def _end_of_frame(file: int, offset: int, size: int, most: int) -> tuple[int, int]:
    """The end of the Zstandard frame at ``offset`` (of the file, if it is cut), and the number of its blocks.

    The frame is not decompressed: the headers of its blocks have their sizes (RFC 8878, 3.1.1.2).
    """
    head = os.pread(file, 18, offset)
    try:
        at = offset + zstandard.frame_header_size(head)
    except zstandard.ZstdError:
        return size, 0
    has_checksum = bool(head[4] & 4)
    for walked in range(most):
        block = int.from_bytes(os.pread(file, 3, at), "little")
        last, kind, length = block & 1, block >> 1 & 3, block >> 3
        at += 3 + (1 if kind == 1 else length)
        if at >= size:
            return size, walked
        if last:
            return min(size, at + (4 if has_checksum else 0)), walked
    return size, most


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
