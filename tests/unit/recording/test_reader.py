"""A file from anywhere is refused in one line, or read as far as it is whole: no recordings, damage, bombs, lies."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from netconsole.base.errors import BadInput
from netconsole.recording.format import CHECKPOINT_MAGIC, FOOTER, HEADER_MAGIC, MARK, SKIPPABLE, Mark
from netconsole.recording.reader import Damaged, RecordedBlock, Recording
from netconsole.telemetry import checkpoint, frames
from netconsole.telemetry.frames import AnyFrame
from netconsole.telemetry.state import State
from tests.support.recorded import HEADER, LIMIT_S, VERSION_1, Stream, flat, frames_of


def test_without_its_index_it_is_searched_and_gives_the_same(three_blocks: Path, tmp_path: Path) -> None:
    content = three_blocks.read_bytes()
    whole = Recording(three_blocks)
    cut = tmp_path / "cut.ncrec"
    cut.write_bytes(content[: whole.blocks[-1].end])
    searched = Recording(cut)
    assert not searched.whole
    assert [(b.offset, b.end, b.mark) for b in searched.blocks] == [(b.offset, b.end, b.mark) for b in whole.blocks]
    assert frames_of(searched) == frames_of(whole)
    assert searched.end.mono_ns == whole.end.mono_ns


def refusal(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        Recording(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and message.isprintable()
    return message


def skippable(magic: int, content: bytes) -> bytes:
    return SKIPPABLE.pack(magic, len(content)) + content


def pack(content: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(content)


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b"PK\x03\x04" + bytes(100), bytes(1000), skippable(HEADER_MAGIC, b"no zstd"), b"\x51\x2a\x4d\x18"],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a\x1b[31m.ncrec"
    path.write_bytes(content)
    refusal(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "missing", tmp_path / "fifo", Path("/dev/zero"), Path("a\0b")):
        refusal(path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema": "netconsole.recording/2"}, "netconsole.recording/2"),
        ({"host": {"name": "h"}}, "header.host"),
        ({"profile": {"name": "x" * 300}}, "header.profile.name"),
        ({"profile": {"name": "x", "budget": {"kernel_cpu_pct": [1]}}}, "header.profile.budget"),
        ({"leads": "nobody"}, "header.leads"),
    ],
)
def test_a_header_that_is_wrong_is_refused_by_its_key(tmp_path: Path, change: dict[str, object], told: str) -> None:
    path = tmp_path / "a.ncrec"
    header = {**msgspec.to_builtins(HEADER), **change}
    path.write_bytes(skippable(HEADER_MAGIC, pack(msgspec.json.encode(header))))
    assert told in refusal(path)


def test_a_header_alone_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.ncrec"
    path.write_bytes(skippable(HEADER_MAGIC, pack(msgspec.json.encode(HEADER))))
    assert "this recording is empty" in refusal(path)


def bomb(size: int, line: bytes = b"\n") -> bytes:
    """So many bytes of lines in a few hundred."""
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    piece = line * (1_000_000 // len(line))
    return b"".join(compressor.compress(piece) for _ in range(size // 1_000_000)) + compressor.flush()


def with_block(path: Path, data: bytes, state: bytes | None = None) -> Path:
    """A recording whose only block holds these bytes."""
    content = pack(checkpoint.encode(State())) if state is None else state
    header = skippable(HEADER_MAGIC, pack(msgspec.json.encode(HEADER)))
    path.write_bytes(header + skippable(CHECKPOINT_MAGIC, MARK.pack(*Mark(1, 1, 0, 0)) + content) + data)
    return path


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))
from pathlib import Path
from netconsole.recording.reader import Damaged, Recording
from netconsole.base.errors import BadInput
try:
    recording = Recording(Path(sys.argv[1]))
    recording.state(0)
    print(sum(1 for _ in recording.frames(0)))
except (BadInput, Damaged) as error:
    print(error)
"""


@pytest.mark.parametrize("what", ["header", "state", "lines", "one line", "window"])
def test_a_bomb_does_not_go_off(tmp_path: Path, what: str) -> None:
    """In a process that may have 600 MB, and ends in seconds."""
    path = tmp_path / "a.ncrec"
    large = 1_000_000_000
    if what == "header":
        path.write_bytes(skippable(HEADER_MAGIC, bomb(large, b" ")))
    elif what == "state":
        with_block(path, b"", bomb(large, b"["))
    elif what == "window":
        parameters = zstandard.ZstdCompressionParameters(window_log=30)
        with_block(path, zstandard.ZstdCompressor(compression_params=parameters).compressobj().compress(b"a" * 10))
    else:
        with_block(path, bomb(large, b"\n" if what == "lines" else b"a"))
    done = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0 and done.stderr == "" and len(done.stdout.splitlines()) == 1, done.stderr


def test_an_index_that_lies_is_not_believed(
    three_blocks: Path, frames_of_three: list[AnyFrame], tmp_path: Path
) -> None:
    """What is found, by the lie or by searching instead, is read the first time that it is found."""
    content = bytearray(three_blocks.read_bytes())
    read: set[tuple[RecordedBlock, ...]] = set()
    start, _ = FOOTER.unpack(content[-FOOTER.size :])
    chance = random.Random(1)
    path = tmp_path / "lies.ncrec"
    for _ in range(300):
        lied = bytearray(content)
        for _ in range(chance.randrange(1, 4)):
            lied[chance.randrange(start, len(lied))] = chance.randrange(256)
        path.write_bytes(bytes(lied))
        recording = Recording(path)
        blocks = tuple(recording.blocks)
        found: list[AnyFrame] = []
        for number in range(len(blocks) if blocks not in read else 0):
            try:
                recording.state(number)
                found.extend(recording.frames(number))
            except Damaged:
                continue
        assert all(frame in frames_of_three for frame in found[:5])
        read.add(blocks)
        recording.close()
    assert len(read) > 10


def test_a_block_that_is_damaged_costs_that_block_alone(three_blocks: Path, tmp_path: Path) -> None:
    content = bytearray(three_blocks.read_bytes())
    whole = Recording(three_blocks)
    middle = whole.blocks[1]
    content[(middle.offset + middle.end) // 2] ^= 0x55
    path = tmp_path / "damaged.ncrec"
    path.write_bytes(bytes(content))
    recording = Recording(path)
    assert list(recording.frames(0)) == list(whole.frames(0)) and list(recording.frames(2)) == list(whole.frames(2))
    with pytest.raises(Damaged, match="block 2"):
        recording.state(1)
        list(recording.frames(1))


def test_lines_that_are_no_frames_are_passed_over_and_counted(tmp_path: Path) -> None:
    good = frames.encode(flat(Stream().batches(0))[0])
    recording = Recording(with_block(tmp_path / "a.ncrec", pack(b"{}\n" + good + b'{"kind":"new"}\n\n')))
    recording.broken_frames = 0
    assert [type(frame) for frame in recording.frames(0)] == [frames.Hello] and recording.broken_frames == 3


@given(data=st.data())
@settings(max_examples=400, deadline=None)
def test_damaged_files_end_in_one_line_or_in_frames(three_blocks: Path, data: st.DataObject) -> None:
    content = bytearray(three_blocks.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        piece = data.draw(st.binary(min_size=0, max_size=12))
        content[at : at + data.draw(st.integers(0, 12))] = piece
    path = three_blocks.with_name("damaged.ncrec")
    path.write_bytes(bytes(content))
    read_everything(path)


@given(content=st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_anything_behind_a_header_ends_in_one_line_or_in_frames(three_blocks: Path, content: bytes) -> None:
    begin = Recording(three_blocks).blocks[0].offset
    path = three_blocks.with_name("anything.ncrec")
    path.write_bytes(three_blocks.read_bytes()[:begin] + content)
    read_everything(path)


def read_everything(path: Path) -> None:
    """Nothing but the two errors that a reader knows may come out of it."""
    try:
        recording = Recording(path)
    except BadInput as error:
        assert len(str(error).splitlines()) == 1
        return
    for number in range(len(recording.blocks)):
        try:
            state = recording.state(number)
            for frame in recording.frames(number):
                state.apply(frame)
        except Damaged as error:
            assert len(str(error).splitlines()) == 1
    recording.close()


def test_version_1_still_loads() -> None:
    """Recordings of every version are loaded for ever; this file is never made anew."""
    recording = Recording(VERSION_1)
    assert recording.whole and recording.header.host.name == "hv-017"
    assert recording.header.probes["kernel_drops"].mode == "details" and recording.end.intervals == 70
    assert len(recording.blocks) == 2 and len(frames_of(recording)) == 633 and recording.broken_frames == 0
    state = recording.state(1)
    assert state.collector.intervals == 59 and state.probes["kernel_drops"].counters["drops"].count.total == 297
    for frame in recording.frames(1):
        state.apply(frame)
    assert state.collector.intervals == 70 and state.probes["kernel_drops"].counters["drops"].count.total == 350
    assert state.probes["tx_queue_latency"].histograms["wait"].rows[(("device", "eth0"),)].total.count == 840
    assert state.collector.frames_lost == state.console.frames_lost == 0
