"""The file of a recording, without a recorder: what is written when, what is dropped, and what a failure leaves."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from netconsole.base.errors import BadInput
from netconsole.recording import writer
from netconsole.recording.format import FOOTER, FOOTER_NAME, Mark
from netconsole.recording.reader import Recording
from netconsole.recording.writer import RecordingFile
from netconsole.telemetry import checkpoint
from netconsole.telemetry.state import State
from tests.support.recorded import HEADER, SECOND

STATE = checkpoint.encode(State())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.ncrec"


def mark(number: int) -> Mark:
    """A second later each."""
    return Mark(number * SECOND, number * SECOND, number, 0)


def begins(path: Path) -> list[int]:
    """The numbers of the blocks that a file has."""
    return [one.mark.intervals for one in Recording(path).blocks]


def is_full(file: RecordingFile) -> bool:
    return file.block_is_full


def test_a_file_has_at_any_time_what_was_written(path: Path) -> None:
    file = RecordingFile(path, HEADER)
    assert file.bytes == path.stat().st_size > 0 and path.stat().st_mode & 0o777 == 0o600
    file.begin(mark(0), STATE)
    for number in range(3):
        file.write(b"%d\n" % number)
        assert file.bytes == path.stat().st_size
        with path.open("rb") as raw:
            stream = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
            assert stream.read() == b"".join(b"%d\n" % one for one in range(number + 1))
    file.begin(mark(1), STATE, b"")
    file.write(b"3\n")
    file.finish(mark(2))
    assert file.bytes == path.stat().st_size
    assert FOOTER.unpack(path.read_bytes()[-FOOTER.size :])[1] == FOOTER_NAME
    recording = Recording(path)
    assert recording.whole and begins(path) == [0, 1] and recording.end == mark(2)
    file.close()
    file.close()


def test_a_file_without_blocks_is_removed(path: Path) -> None:
    file = RecordingFile(path, HEADER)
    file.finish(mark(0))
    assert not path.exists() and file.bytes == 0


def test_a_block_is_full_at_an_eighth_of_the_limit(path: Path) -> None:
    file = RecordingFile(path, HEADER, max_bytes=80_000)
    assert not is_full(file)
    file.begin(mark(0), STATE)
    begin = file._blocks[0][0]
    while file.bytes - begin < 9_000:
        assert not is_full(file)
        file.write(os.urandom(400))
    while file.bytes - begin < 10_000:
        assert not is_full(file)
        file.write(os.urandom(1))
    assert is_full(file)
    file.begin(mark(1), STATE)
    assert not is_full(file)


def test_above_seven_eighths_of_its_size_five_eighths_are_kept(path: Path) -> None:
    file = RecordingFile(path, HEADER, max_bytes=80_000)
    header = file.bytes
    sizes, number = [], 0
    while file.bytes <= 70_000:
        file.begin(mark(number), STATE)
        assert len(file._blocks) == number + 1, "nothing is dropped before"
        file.write(os.urandom(3_000))
        number += 1
    offsets, before = [offset for offset, _ in file._blocks], file.bytes
    file.begin(mark(number), STATE)
    ended = before + len(path.read_bytes()) - file.bytes
    kept = [one for one, offset in enumerate(offsets) if ended - offset <= 50_000]
    assert len(file._blocks) == len(kept) + 1 and file._blocks[0][0] == header
    sizes.append(path.stat().st_size)
    file.write(b"end\n")
    file.finish(mark(number + 1))
    assert begins(path) == [*kept, number] and max(sizes) < 70_000


@pytest.mark.parametrize(("at_s", "first"), [(70, 0), (71, 21)])
def test_above_seven_eighths_of_its_time_five_eighths_are_kept(path: Path, at_s: int, first: int) -> None:
    file = RecordingFile(path, HEADER, max_s=80.0)
    for number in range(0, 70, 7):
        file.begin(mark(number), STATE)
    file.begin(mark(at_s), STATE)
    file.write(b"end\n")
    file.finish(mark(at_s + 1))
    assert begins(path) == [*range(first, 70, 7), at_s]


def test_of_too_many_blocks_five_eighths_are_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_BLOCKS", 16)
    file = RecordingFile(path, HEADER)
    for number in range(17):
        assert len(file._blocks) == number
        file.begin(mark(number), STATE)
    assert [one.intervals for _, one in file._blocks] == [*range(6, 16), 16]
    file.write(b"end\n")
    file.finish(mark(17))
    assert begins(path) == [*range(6, 17)]


def test_where_nothing_is_kept_the_file_begins_anew(path: Path) -> None:
    file = RecordingFile(path, HEADER, max_s=80.0)
    header = file.bytes
    file.begin(mark(0), STATE)
    file.begin(mark(500), STATE)
    assert [offset for offset, _ in file._blocks] == [header]
    file.write(b"end\n")
    file.finish(mark(501))
    assert begins(path) == [500] and path.stat().st_mode & 0o777 == 0o600


def fails(number: int, text: str) -> Callable[..., int]:
    def one(*_: object) -> int:
        raise OSError(number, text)

    return one


def test_what_cannot_be_written_is_refused_and_leaves_no_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.touch()
    with pytest.raises(BadInput, match="this file exists already, and a recording never overwrites a file: name ano"):
        RecordingFile(path, HEADER)
    with pytest.raises(BadInput, match="cannot write: no such file or directory"):
        RecordingFile(path.parent / "none" / "a", HEADER)
    with pytest.raises(BadInput, match="cannot write: embedded null byte"):
        RecordingFile(Path(f"{path}\0"), HEADER)
    path.unlink()
    before = list(Path("/proc/self/fd").iterdir())
    with monkeypatch.context() as broken:
        broken.setattr("netconsole.recording.writer.os.write", fails(errno.ENOSPC, "No space left on device"))
        with pytest.raises(BadInput, match="cannot write: no space left on device"):
            RecordingFile(path, HEADER)
    assert not path.exists() and len(list(Path("/proc/self/fd").iterdir())) == len(before)


def test_what_is_written_in_pieces_is_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr("netconsole.recording.writer.os.write", lambda file, content: write(file, content[:7]))
    file = RecordingFile(path, HEADER)
    file.begin(mark(0), STATE)
    file.write(b"one\n")
    file.finish(mark(1))
    assert begins(path) == [0] and file.bytes == path.stat().st_size


def test_a_copy_of_a_file_that_became_shorter_fails(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"12345")
    with (tmp_path / "short").open("rb") as source, (tmp_path / "copy").open("wb") as target:
        writer._copy(source.fileno(), target.fileno(), 1, 3)
        with pytest.raises(OSError, match="the recording became shorter while it was copied"):
            writer._copy(source.fileno(), target.fileno(), 3, 3)
    assert (tmp_path / "copy").read_bytes() == b"23445"
