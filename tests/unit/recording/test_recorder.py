"""Recordings: what went in comes out, however the file ends, and a file from anywhere is refused in one line."""

from __future__ import annotations

import itertools
import os
import random
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from netconsole.base.errors import BadInput
from netconsole.profile.profile import Budget, Enforcement
from netconsole.recording.format import CHECKPOINT_MAGIC, FOOTER, HEADER_MAGIC, MARK, SKIPPABLE, Mark
from netconsole.recording.reader import Damaged, RecordedBlock, Recording
from netconsole.recording.recorder import BLOCK_S, Recorder
from netconsole.recording.writer import KEPT_PARTS, PARTS
from netconsole.telemetry import checkpoint, frames
from netconsole.telemetry.frames import AnyFrame
from netconsole.telemetry.state import State
from tests.support.recorded import HEADER, LIMIT_S, SECOND, Batch, Stream, record

VERSION_1 = Path(__file__).parents[2] / "support" / "data" / "recording-version-1.ncrec"


def frames_of(recording: Recording) -> list[AnyFrame]:
    return [frame for number in range(len(recording.blocks)) for frame in recording.frames(number)]


def flat(batches: Iterable[Batch]) -> list[AnyFrame]:
    return [frame for batch in batches for frame in batch]


@pytest.fixture(scope="module")
def three_blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recording") / "a.ncrec"
    record(path, Stream(rows=20).batches(int(2.5 * BLOCK_S)))
    return path


@pytest.fixture(scope="module")
def frames_of_three(three_blocks: Path) -> list[AnyFrame]:
    return frames_of(Recording(three_blocks))


def test_what_went_in_comes_out(tmp_path: Path) -> None:
    path = tmp_path / "a.ncrec"
    intervals = int(2.5 * BLOCK_S)
    state, recorder = record(path, Stream(rows=20).batches(intervals))
    recording = Recording(path)
    assert recording.header == HEADER and recording.whole
    assert frames_of(recording) == flat(Stream(rows=20).batches(intervals))
    assert recording.end.intervals == intervals and recording.end.bytes == sum(
        block.bytes for block in recording.blocks
    )
    assert recorder.progress.ended is None and recorder.progress.bytes == path.stat().st_size
    assert len(recording.blocks) == 3
    replayed = recording.state(2)
    for frame in recording.frames(2):
        replayed.apply(frame)
    assert checkpoint.encode(replayed) == checkpoint.encode(state)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_any_zstandard_tool_prints_the_frames(three_blocks: Path) -> None:
    with three_blocks.open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read().splitlines()
    assert [frames.decode(line) for line in lines] == frames_of(Recording(three_blocks))


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


@given(share=st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_cut_anywhere_it_gives_what_was_whole(
    three_blocks: Path, frames_of_three: list[AnyFrame], share: float
) -> None:
    content = three_blocks.read_bytes()
    assert_a_beginning(three_blocks, frames_of_three, content[: int(share * len(content))])


def test_cut_at_every_byte_of_its_tail(tmp_path: Path) -> None:
    path = tmp_path / "a.ncrec"
    record(path, Stream().batches(4))
    content, whole = path.read_bytes(), frames_of(Recording(path))
    lengths = [assert_a_beginning(path, whole, content[:size]) for size in range(len(content))]
    assert lengths == sorted(lengths), "a longer file never holds less"
    assert lengths[-1] == len(whole)


def assert_a_beginning(path: Path, whole: list[AnyFrame], content: bytes) -> int:
    """Whatever is left of a recording: refused in one line, or its first frames. Returns how many."""
    cut = path.with_name("cut.ncrec")
    cut.write_bytes(content)
    try:
        recording = Recording(cut)
    except BadInput as error:
        assert len(str(error).splitlines()) == 1 and str(cut) in str(error)
        return 0
    found = frames_of(recording)
    assert found == whole[: len(found)]
    recording.close()
    return len(found)


def test_killed_while_recording_it_holds_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.ncrec"
    script = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parents[3])!r})
        from tests.support.recorded import HEADER, LIMIT_S, Stream
        from netconsole.recording.recorder import Recorder
        from netconsole.telemetry.state import State
        recorder, state = Recorder(Path({str(path)!r}), HEADER), State()
        for batch in Stream().batches(90):
            recorder.take(state, tuple(batch))
        recorder.flush(LIMIT_S)
        print("written", flush=True)
        sys.stdin.read()
    """)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "written\n"
        child.send_signal(signal.SIGKILL)
    recording = Recording(path)
    assert not recording.whole
    assert frames_of(recording) == flat(Stream().batches(90))
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.ncrec"]


# ---- writing ----


def test_it_never_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "a.ncrec"
    path.write_text("mine")
    with pytest.raises(BadInput, match="this file exists already"):
        Recorder(path, HEADER)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput):
        Recorder(link, HEADER)
    assert path.read_text() == "mine" and not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("place", ["missing/a.ncrec", "."])
def test_where_it_cannot_write_it_says_so(tmp_path: Path, place: str) -> None:
    with pytest.raises(BadInput) as caught:
        Recorder(tmp_path / place, HEADER)
    assert len(str(caught.value).splitlines()) == 1


def test_a_full_disk_ends_the_recording_alone(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not Path("/bin/mount").exists():
        pytest.skip("needs root for a small tmpfs in a mount namespace of its own")
    script = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parents[3])!r})
        from tests.support.recorded import HEADER, LIMIT_S, Stream
        from netconsole.recording.recorder import Recorder
        from netconsole.recording.reader import Recording
        from netconsole.telemetry.state import State
        path, told = Path("a.ncrec"), []
        recorder, state = Recorder(path, HEADER, on_end=told.append), State()
        taken = 0
        for batch in Stream(rows=2000).batches(1000):
            recorder.take(state, tuple(batch))
            recorder.flush(LIMIT_S)
            for frame in batch:
                state.apply(frame)
            taken += 1
        recorder.close()
        recording = Recording(path)
        replayed = sum(1 for n in range(len(recording.blocks)) for _ in recording.frames(n))
        assert told == [recorder.progress.ended] and replayed > 10 and taken > 1000, (told, replayed, taken)
        print(told[0])
    """)
    mounted = f'mount -t tmpfs -o size=128k none {tmp_path} && cd {tmp_path} && exec {sys.executable} -c "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounted, "sh", script], capture_output=True, text=True, timeout=LIMIT_S
    )
    if "unshare" in done.stderr and done.returncode:
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "a.ncrec: recording ended: no space left on device; what was recorded can be replayed\n"


def test_bounded_in_size_the_oldest_goes_first(tmp_path: Path) -> None:
    path, limit, intervals = tmp_path / "a.ncrec", 100_000, 800
    recorder, state, stream = Recorder(path, HEADER, max_bytes=limit), State(), Stream(rows=20)
    sizes = []
    for batch in stream.batches(intervals):
        recorder.take(state, tuple(batch))
        recorder.flush(LIMIT_S)
        sizes.append(path.stat().st_size)
        for frame in batch:
            state.apply(frame)
    recorder.close()
    assert max(sizes) <= limit and sum(after < before for before, after in itertools.pairwise(sizes)) > 1
    recording = Recording(path)
    found = frames_of(recording)
    assert found == flat(Stream(rows=20).batches(intervals))[-len(found) :]
    assert path.stat().st_size >= limit * KEPT_PARTS / PARTS - limit / PARTS, "and no more than needed"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.ncrec"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    replayed = recording.state(0)
    for frame in found:
        replayed.apply(frame)
    assert checkpoint.encode(replayed) == checkpoint.encode(state)


def test_bounded_in_time_the_oldest_goes_first(tmp_path: Path) -> None:
    path = tmp_path / "a.ncrec"
    record(path, Stream().batches(500), max_s=80.0)
    recording = Recording(path)
    found = frames_of(recording)
    assert found == flat(Stream().batches(500))[-len(found) :]
    assert 40 * SECOND < recording.end.mono_ns - recording.begin.mono_ns <= 80 * SECOND


def mb_per_min(limit: float, action: Enforcement) -> Budget:
    return Budget(record_mb_per_min=limit, action=action)


def test_over_its_budget_it_leaves_out_samples_then_figures_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.ncrec"
    whole_state, free = record(tmp_path / "free.ncrec", Stream(rows=300).batches(240))
    limit = free.progress.bytes / 4 / 1e6 * 0.5
    _, recorder = record(path, Stream(rows=300).batches(240), mb_per_min(limit, "degrade"))
    left_out = recorder.progress.left_out
    found = frames_of(Recording(path))
    assert left_out > 0 and len(found) + left_out == len(flat(Stream(rows=300).batches(240)))
    # A minute's worth at the start, and then so much every minute; blocks and their checkpoints come on top.
    assert path.stat().st_size < 1.5 * 5 * limit * 1e6
    state = State()
    for frame in found:
        state.apply(frame)
    assert state.collector.frames_lost > 0, "a gap in the numbers tells the reader"
    assert state.collector.intervals == whole_state.collector.intervals, "the clock goes on"
    drops = state.probes["kernel_drops"].counters["drops"].series.values(state.collector.timeline)
    assert None in drops, "what was left out is unknown"


def test_a_budget_that_warns_leaves_nothing_out(tmp_path: Path) -> None:
    _, recorder = record(tmp_path / "a.ncrec", Stream().batches(100), mb_per_min(0.0001, "warn"))
    assert recorder.progress.left_out == 0 and recorder.progress.ended is None


def test_a_budget_that_stops_ends_the_recording_in_order(tmp_path: Path) -> None:
    path = tmp_path / "a.ncrec"
    _, recorder = record(path, Stream().batches(300), mb_per_min(0.005, "stop"))
    assert recorder.progress.over_budget and "record_mb_per_min" in (recorder.progress.ended or "")
    assert Recording(path).whole


# ---- reading what is none, or is hostile ----


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


def test_a_recording_of_nothing_leaves_no_file(tmp_path: Path) -> None:
    _, recorder = record(tmp_path / "a.ncrec", [])
    assert not list(tmp_path.iterdir()) and recorder.progress.bytes == 0 and recorder.progress.ended is None


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
