"""What is made of a file: whole, cut, damaged on purpose, or no recording at all. No recorder runs."""

from __future__ import annotations

import errno
import gc
import os
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import zstandard

from netconsole.base.errors import BadInput
from netconsole.findings import saved_log
from netconsole.recording import reader
from netconsole.recording.format import (
    CHECKPOINT_MAGIC,
    ENTRY,
    FOOTER,
    HEADER_MAGIC,
    MARK,
    MAX_BLOCK_BYTES,
    MAX_HEADER_BYTES,
    SKIPPABLE,
    Mark,
)
from netconsole.recording.reader import Damaged, Recording
from netconsole.recording.writer import RecordingFile
from netconsole.telemetry import checkpoint, frames
from netconsole.telemetry.frames import AnyFrame
from netconsole.telemetry.state import State
from tests.support.recorded import HEADER, SECOND, Stream

INTERVALS = 3
"""Of each block."""


def blocks(count: int = 3) -> list[list[AnyFrame]]:
    """Frames by block."""
    stream = Stream()
    first = [frame for batch in stream.begin() for frame in batch]
    made = [[frame for _ in range(INTERVALS) for batch in stream.interval() for frame in batch] for _ in range(count)]
    return [[*first, *made[0]], *made[1:]]


def lines(some: list[AnyFrame]) -> bytes:
    return b"".join(frames.encode(frame) for frame in some)


def mark(number: int, found: list[list[AnyFrame]]) -> Mark:
    """Where a block begins, or the last one ends."""
    mono_ns = found[number - 1][-1].mono_ns if number else found[0][0].mono_ns
    return Mark(7 * SECOND + mono_ns, mono_ns, number * INTERVALS, sum(len(lines(one)) for one in found[:number]))


def write(path: Path, count: int = 3, log: bytes = b"", more: bytes = b"", pieces: int = 1, end: bool = True) -> Path:
    """A recording of so many blocks. ``more``: of the first block, after its frames, and in no mark."""
    found, state = blocks(count), State()
    file = RecordingFile(path, HEADER)
    for number, block in enumerate(found):
        file.begin(mark(number, found), checkpoint.encode(state), log)
        text = lines(block) + (b"" if number else more)
        for piece in range(pieces):
            file.write(text[piece * len(text) // pieces : (piece + 1) * len(text) // pieces])
        for frame in block:
            state.apply(frame)
    if end:
        file.finish(mark(count, found))
    else:
        file._end_block()
    file.close()
    return path


def change(path: Path, at: int, content: bytes) -> None:
    """Other bytes in the file; ``at`` below zero counts from its end."""
    raw = bytearray(path.read_bytes())
    at += len(raw) if at < 0 else 0
    raw[at : at + len(content)] = content
    path.write_bytes(bytes(raw))


def refused(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        Recording(path)
    return str(caught.value).removeprefix(f"{path}: ")


def damaged(call: Callable[[], object]) -> str:
    with pytest.raises(Damaged) as caught:
        call()
    return str(caught.value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.ncrec"


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_whole_recording_says_where_each_block_is(path: Path, pieces: int) -> None:
    found = blocks()
    recording = Recording(write(path, pieces=pieces))
    assert recording.header == HEADER and recording.whole and recording.size == path.stat().st_size
    assert [one.mark for one in recording.blocks] == [mark(number, found) for number in range(3)]
    assert (recording.begin, recording.end) == (mark(0, found), mark(3, found))
    assert [one.bytes for one in recording.blocks] == [len(lines(block)) for block in found]
    state = State()
    for number, block in enumerate(found):
        assert list(recording.frames(number)) == block
        assert checkpoint.encode(recording.state(number)) == checkpoint.encode(state)
        assert recording.log(number) == []
        for frame in block:
            state.apply(frame)
    assert recording.broken_frames == 0
    for before, after in zip(recording.blocks, recording.blocks[1:], strict=False):
        assert before.end == after.offset
    recording.close()
    recording.close()
    assert recording._file == -1


@pytest.mark.parametrize("pieces", [1, 3])
def test_without_its_index_it_is_found_by_a_search(path: Path, pieces: int) -> None:
    """It ends with the last frame; how many intervals and bytes the last block has, nobody has written."""
    found = blocks()
    whole = Recording(write(path, pieces=pieces, end=True))
    cut = Recording(write(path.with_name("b.ncrec"), pieces=pieces, end=False))
    assert not cut.whole
    assert [(one.offset, one.end, one.mark) for one in cut.blocks] == [
        (one.offset, one.end, one.mark) for one in whole.blocks
    ]
    assert [one.bytes for one in cut.blocks] == [*(one.bytes for one in whole.blocks[:2]), MAX_BLOCK_BYTES]
    assert [list(cut.frames(number)) for number in range(3)] == found
    latest = max(found[-1], key=lambda frame: frame.mono_ns)
    assert cut.end == Mark(latest.wall_ns, latest.mono_ns, 2 * INTERVALS, mark(2, found).bytes)


@pytest.mark.parametrize("log", [saved_log.encode([]), b""])
def test_the_log_lies_between_state_and_frames(path: Path, log: bytes) -> None:
    recording = Recording(write(path, log=log))
    assert recording.log(1) == [] and list(recording.frames(1)) == blocks()[1]
    cut = Recording(write(path.with_name("b.ncrec"), log=log, end=False))
    assert cut.log(1) == [] and list(cut.frames(1)) == blocks()[1]


def test_a_log_that_is_none_is_damage_of_its_block(path: Path) -> None:
    recording = Recording(write(path, log=b"no log"))
    assert damaged(lambda: recording.log(1)).startswith("block 2: ")


def test_what_is_no_file_to_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(tmp_path / "none") == "no such file or directory"
    gc.collect()
    os.fstat(1)  # nothing was closed that was not opened
    assert refused(tmp_path) == "not a regular file: expected a file that netconsole record wrote"
    (tmp_path / "text").write_text("something else, and long enough")
    assert refused(tmp_path / "text") == "not a recording: expected a file that netconsole record wrote"
    (tmp_path / "empty").touch()
    assert refused(tmp_path / "empty") == "not a recording: expected a file that netconsole record wrote"
    one = write(tmp_path / "a.ncrec")
    before = len(list(Path("/proc/self/fd").iterdir()))

    def fails(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("netconsole.recording.reader.os.pread", fails)
    assert refused(one) == "cannot read: input/output error"
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def header_of(path: Path, content: bytes, size: int | None = None) -> Path:
    path.write_bytes(SKIPPABLE.pack(HEADER_MAGIC, len(content) if size is None else size) + content)
    return path


def test_a_header_that_is_none_is_refused_with_its_reason(path: Path) -> None:
    def packed(text: bytes) -> bytes:
        return zstandard.ZstdCompressor().compress(text)

    assert refused(header_of(path, b"", MAX_HEADER_BYTES + 1)).startswith("not a recording: ")
    assert refused(header_of(path, b"no zstandard")).startswith("header: at byte 8: ")
    assert refused(header_of(path, packed(b"{"))).startswith("header: not JSON: ")
    assert refused(header_of(path, packed(b" " * MAX_HEADER_BYTES + b" "))) == (
        f"header: more than {MAX_HEADER_BYTES} bytes at byte 8"
    )
    plain = msgspec.to_builtins(HEADER)
    other = {**plain, "schema": "netconsole.recording/9"}
    assert refused(header_of(path, packed(msgspec.json.encode(other)))) == (
        'header.schema: this netconsole cannot read "netconsole.recording/9": it reads netconsole.recording/1'
    )
    long = refused(header_of(path, packed(msgspec.json.encode({**plain, "schema": "x" * 61}))))
    assert f'"{"x" * 60}…"' in long
    wrong = {**plain, "profile": {"name": 7}}
    assert refused(header_of(path, packed(msgspec.json.encode(wrong)))).startswith("header.profile.name: ")
    assert refused(header_of(path, packed(msgspec.json.encode(plain)))) == (
        "this recording is empty: the file has only a header"
    )


def test_a_state_that_cannot_be_read_is_damage_of_its_block(path: Path) -> None:
    recording = Recording(write(path))
    second = recording.blocks[1].offset
    change(path, second + SKIPPABLE.size, struct.pack("<q", 1))
    assert damaged(lambda: recording.state(1)) == f"block 2: no checkpoint at byte {second}"
    recording = Recording(write(path.with_name("b.ncrec")))
    change(recording.path, second, SKIPPABLE.pack(HEADER_MAGIC, 9))
    assert damaged(lambda: recording.state(1)) == f"block 2: no checkpoint at byte {second}"
    recording = Recording(write(path.with_name("c.ncrec")))
    content = second + SKIPPABLE.size + MARK.size
    change(recording.path, content, bytes(40))
    assert damaged(lambda: recording.state(1)).startswith(f"at byte {content}: ")
    packed = zstandard.ZstdCompressor().compress(b"[]")
    change(recording.path, content, packed)
    change(recording.path, second, SKIPPABLE.pack(CHECKPOINT_MAGIC, MARK.size + len(packed)))
    assert damaged(lambda: recording.state(1)).startswith("block 2: ")


def test_more_frames_than_the_marks_say_are_damage(path: Path) -> None:
    """What was decompressed before that is given."""
    recording = Recording(write(path, more=lines(blocks()[1])))
    size = len(lines(blocks()[0]))
    assert damaged(lambda: list(recording.frames(0))) == f"block 1: more than {size} bytes of frames"


def cut_one(path: Path, more: bytes) -> Recording:
    """Of one block, with something after its frames; marks do not say how long it is."""
    return Recording(write(path, count=1, more=more, end=False))


def test_lines_that_are_no_frames_are_left_out_and_counted_up_to_a_limit(path: Path) -> None:
    recording = cut_one(path, b"{}\n" * reader.MAX_BROKEN)
    counted = recording.broken_frames  # the search for the end has read them, too
    assert counted == reader.MAX_BROKEN
    assert list(recording.frames(0)) == blocks()[0]
    assert recording.broken_frames == 2 * reader.MAX_BROKEN
    recording = cut_one(path.with_name("b.ncrec"), b"{}\n" * (reader.MAX_BROKEN + 1))
    assert damaged(lambda: list(recording.frames(0))).startswith("block 1: its lines are not frames: ")


def test_a_line_has_a_greatest_length(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_LINE_BYTES", 5000)
    assert list(cut_one(path, b"x" * 5000).frames(0)) == blocks()[0], "a cut line at the end of a cut file"
    recording = cut_one(path.with_name("b.ncrec"), b"x" * 5001)
    assert damaged(lambda: list(recording.frames(0))) == "block 1: a line of more than 5000 bytes"


def test_a_cut_last_line_is_damage_where_the_file_is_whole(path: Path) -> None:
    found = blocks(1)
    file = RecordingFile(path, HEADER)
    file.begin(mark(0, found), checkpoint.encode(State()))
    text = lines(found[0]) + b"cut"
    file.write(text)
    file.finish(mark(1, found)._replace(bytes=len(text)))
    file.close()
    recording, given = Recording(path), list[AnyFrame]()
    assert damaged(lambda: given.extend(recording.frames(0))) == "block 1: its last line is cut"
    assert given == found[0]


def test_bytes_that_are_no_zstandard_are_damage(path: Path) -> None:
    recording = Recording(write(path))
    change(path, recording.blocks[1].end - 30, bytes(20))
    assert damaged(lambda: list(recording.frames(1))).startswith("block 2: ")
    assert list(recording.frames(2)) == blocks()[2]


def index_of(path: Path) -> int:
    return int(FOOTER.unpack(path.read_bytes()[-FOOTER.size :])[0])


@pytest.mark.parametrize("what", ["name", "start", "size", "first", "last", "order", "clock", "count", "magic"])
def test_an_index_that_does_not_match_is_not_believed(path: Path, what: str) -> None:
    start = index_of(write(path))
    entries = start + SKIPPABLE.size
    at, content = {
        "name": (-8, b"ncindex2"),
        "start": (-FOOTER.size, struct.pack("<Q", start + 1)),
        "size": (start + 4, struct.pack("<I", 4 * ENTRY.size + FOOTER.size + 1)),
        "first": (entries, struct.pack("<Q", 9)),
        "last": (entries + 3 * ENTRY.size, struct.pack("<Q", start + 1)),
        "order": (entries + ENTRY.size, struct.pack("<Q", start - 1)),
        "clock": (entries + ENTRY.size + 16, struct.pack("<q", 1)),
        "count": (entries + 2 * ENTRY.size + 24, struct.pack("<Q", 0)),
        "magic": (start, struct.pack("<I", HEADER_MAGIC)),
    }[what]
    change(path, at, content)
    recording = Recording(path)
    assert not recording.whole
    assert [list(recording.frames(number)) for number in range(3)] == blocks()


def test_a_recording_has_so_many_blocks_at_most(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path)
    monkeypatch.setattr(reader, "MAX_BLOCKS", 3)
    assert Recording(path).whole
    monkeypatch.setattr(reader, "MAX_BLOCKS", 2)
    recording = Recording(path)
    assert not recording.whole and len(recording.blocks) == 2


@pytest.mark.parametrize(("most", "count"), [(2, 1), (3, 2), (6, 3), (7, 3)])
def test_a_search_looks_at_so_many_pieces_at_most(
    path: Path, monkeypatch: pytest.MonkeyPatch, most: int, count: int
) -> None:
    """Each block has three pieces: two that were written, and its end."""
    write(path, pieces=2, end=False)
    monkeypatch.setattr(reader, "_MAX_PIECES", most)
    assert len(Recording(path).blocks) == count


def test_a_block_from_before_the_one_before_it_ends_the_search(path: Path) -> None:
    recording = Recording(write(path, end=False))
    change(path, recording.blocks[2].offset + SKIPPABLE.size + 8, struct.pack("<q", 1))
    assert len(Recording(path).blocks) == 2


def test_a_file_that_ends_with_a_state_has_its_block(path: Path) -> None:
    recording = Recording(write(path, end=False))
    third = recording.blocks[2].offset
    size = SKIPPABLE.unpack(path.read_bytes()[third : third + SKIPPABLE.size])[1]
    for length, count in ((third + SKIPPABLE.size + size, 3), (third + SKIPPABLE.size + size - 1, 2)):
        cut = path.with_name(f"{length}.ncrec")
        cut.write_bytes(path.read_bytes()[:length])
        assert len(Recording(cut).blocks) == count


def test_two_blocks_may_begin_at_one_moment(path: Path) -> None:
    file = RecordingFile(path, HEADER)
    for _ in range(2):
        file.begin(Mark(1, 1, 0, 0), checkpoint.encode(State()))
    file.finish(Mark(1, 1, 0, 0))
    file.close()
    recording = Recording(path)
    assert recording.whole and len(recording.blocks) == 2
