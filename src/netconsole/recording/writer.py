"""Writes the file of a recording (docs/use/recording.md). It adds blocks and removes the oldest ones."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import zstandard

from netconsole.base.errors import bad
from netconsole.base.files import new_file, replace
from netconsole.recording.format import (
    CHECKPOINT_MAGIC,
    ENTRY,
    FOOTER,
    FOOTER_NAME,
    HEADER_MAGIC,
    INDEX_MAGIC,
    LOG_MAGIC,
    MARK,
    MAX_BLOCKS,
    SKIPPABLE,
    Header,
    Mark,
)

MAX_BYTES = 256 * 1024 * 1024
MAX_S = 24 * 3600.0
"""The limits of a recording by default. Above a limit the oldest part is dropped."""
LEAST_BYTES = 1024 * 1024
LEAST_S = 60.0
"""The smallest limits that make sense."""
PARTS = 8
"""A block is at most 1/8 of a limit. When 7/8 are full, the last 5/8 (KEPT_PARTS) are copied and the rest is dropped.
So copying is rare."""
KEPT_PARTS = 5


class KeptBlocks(NamedTuple):
    """Blocks as they are in a recording, with the offset of each; how many intervals and bytes of frames they have."""

    content: bytes
    blocks: Sequence[tuple[int, Mark]]
    intervals: int
    bytes: int


class RecordingFile:
    """The file of a recording. Every method may raise OSError. What was written before can still be read."""

    level = 3
    """Of compression."""

    def __init__(self, path: Path, header: Header, max_bytes: int = MAX_BYTES, max_s: float = MAX_S) -> None:
        """Raises BadInput when the file exists, or cannot be made."""
        self._prepare(path, max_bytes, max_s)
        self._file = new_file(path, "a recording")
        try:
            self._append(_skippable(HEADER_MAGIC, self._packed(msgspec.json.encode(header))))
        except OSError as error:
            self.close()
            with contextlib.suppress(OSError):
                path.unlink()  # an empty file is of no use
            raise bad(path, "", f"cannot write: {(error.strerror or str(error)).lower()}") from None
        self._header_bytes = self.bytes

    def _prepare(self, path: Path, max_bytes: int, max_s: float) -> None:
        self.path = path
        self.bytes = 0
        self._max_bytes = max_bytes
        self._max_ns = round(max_s * 1e9)
        self._blocks: list[tuple[int, Mark]] = []
        self._compressor: zstandard.ZstdCompressionObj | None = None

    def adopt(self, kept: KeptBlocks) -> None:
        """Begins with what was recorded before."""
        self._blocks = [(self.bytes + offset, mark) for offset, mark in kept.blocks]
        self._append(kept.content)

    def begin(self, mark: Mark, state: bytes, log: bytes = b"") -> None:
        """Begins a block. ``state`` is the state there, from :func:`netconsole.telemetry.checkpoint.encode`.

        ``log`` are the incidents up to there, from :func:`netconsole.findings.saved_log.encode`.
        """
        self._end_block()
        self._drop(mark)
        self._blocks.append((self.bytes, mark))
        self._append(_skippable(CHECKPOINT_MAGIC, MARK.pack(*mark) + self._packed(state)))
        if log:
            self._append(_skippable(LOG_MAGIC, self._packed(log)))
        self._compressor = zstandard.ZstdCompressor(level=self.level, write_checksum=True).compressobj()

    def write(self, lines: bytes) -> None:
        """Adds frames to the block. When this returns, all of them can be read, even after a crash."""
        assert self._compressor is not None, "a block was begun"
        self._append(self._compressor.compress(lines) + self._compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))

    def finish(self, end: Mark) -> None:
        """Ends the last block, adds the index, and waits until all is on the disk. Removes a file without blocks."""
        self._end_block()
        if not self._blocks:
            self.path.unlink()
            self.bytes = 0
            return
        entries = [ENTRY.pack(offset, *mark) for offset, mark in [*self._blocks, (self.bytes, end)]]
        self._append(_skippable(INDEX_MAGIC, b"".join(entries) + FOOTER.pack(self.bytes, FOOTER_NAME)))
        os.fsync(self._file)

    def close(self) -> None:
        """Closes the file as it is. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _packed(self, content: bytes) -> bytes:
        return zstandard.ZstdCompressor(level=self.level, write_checksum=True).compress(content)

    def _end_block(self) -> None:
        if self._compressor is not None:
            self._append(self._compressor.flush())
            self._compressor = None

    @property
    def block_is_full(self) -> bool:
        """Whether the block has reached its greatest size."""
        begin = self._blocks[-1][0] if self._blocks else self.bytes
        return self.bytes - begin >= self._max_bytes // PARTS

    def _drop(self, now: Mark) -> None:
        """Drops the oldest blocks when the file is too big: copies the rest into a new file that replaces this one."""
        span_ns = now.mono_ns - self._blocks[0][1].mono_ns if self._blocks else 0
        full = (PARTS - 1) / PARTS
        if self.bytes <= full * self._max_bytes and span_ns <= full * self._max_ns and len(self._blocks) < MAX_BLOCKS:
            return
        share = KEPT_PARTS / PARTS
        kept = [
            (offset, mark)
            for offset, mark in self._blocks[-round(share * MAX_BLOCKS) :]
            if self.bytes - offset <= share * self._max_bytes and now.mono_ns - mark.mono_ns <= share * self._max_ns
        ]
        begin = kept[0][0] if kept else self.bytes
        self._forget(begin)
        moved = begin - self._header_bytes
        self._blocks = [(offset - moved, mark) for offset, mark in kept]
        self.bytes -= moved

    def _forget(self, begin: int) -> None:
        """Drops what is between the header and this offset."""

        def fill(target: int) -> None:
            _copy(self._file, target, 0, self._header_bytes)
            _copy(self._file, target, begin, self.bytes - begin)

        replace(self.path, fill)
        os.close(self._file)
        self._file = -1
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)

    def _append(self, content: bytes) -> None:
        view = memoryview(content)
        while view:
            written = os.write(self._file, view)
            self.bytes += written
            view = view[written:]


class MemoryFile(RecordingFile):
    """A recording that no disk ever sees."""

    level = 1  # it is always written, and seldom read

    def __init__(self, header: Header, max_bytes: int, max_s: float) -> None:
        self._prepare(Path("memory"), max_bytes, max_s)
        self._content = bytearray()
        self._append(_skippable(HEADER_MAGIC, self._packed(msgspec.json.encode(header))))
        self._header_bytes = self.bytes

    def whole(self) -> bytes:
        """All of it so far, as a file has it. Any thread."""
        return bytes(self._content)

    def kept(self, intervals: int, size: int) -> KeptBlocks:
        """Its blocks, after it was finished. ``size``: of their frames in bytes."""
        begin = self._header_bytes
        return KeptBlocks(
            bytes(self._content[begin:]), [(at - begin, mark) for at, mark in self._blocks], intervals, size
        )

    def finish(self, end: Mark) -> None:
        self._end_block()

    def close(self) -> None:
        """There is nothing to close."""

    def _forget(self, begin: int) -> None:
        del self._content[self._header_bytes : begin]

    def _append(self, content: bytes) -> None:
        self._content += content
        self.bytes += len(content)


def _skippable(magic: int, content: bytes) -> bytes:
    return SKIPPABLE.pack(magic, len(content)) + content


def _copy(source: int, target: int, offset: int, size: int) -> None:
    """Copies a part of a file in the kernel: it may be large."""
    while size > 0:
        copied = os.sendfile(target, source, offset, min(size, 1 << 24))
        if copied == 0:
            raise OSError(0, "the recording became shorter while it was copied")
        offset, size = offset + copied, size - copied
