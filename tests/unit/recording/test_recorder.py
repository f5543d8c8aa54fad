"""Recordings: what went in comes out, however the file ends; where it cannot be written it says so."""

from __future__ import annotations

import itertools
import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from netconsole.base.errors import BadInput
from netconsole.base.fact_keys import FactData
from netconsole.profile.profile import Budget, Enforcement, Profile
from netconsole.recording.format import MAX_HEADER_BYTES
from netconsole.recording.reader import Recording
from netconsole.recording.recorder import BLOCK_S, Recorder, describe
from netconsole.recording.writer import KEPT_PARTS, PARTS
from netconsole.telemetry import checkpoint, frames
from netconsole.telemetry.frames import AnyFrame
from netconsole.telemetry.state import State
from tests.support.recorded import HEADER, HOST, LIMIT_S, SECOND, Stream, flat, frames_of, record


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


def test_facts_of_the_host_are_in_the_header_and_left_out_where_they_are_too_many(tmp_path: Path) -> None:
    for count, kept in ((10, 10), (2 * MAX_HEADER_BYTES // 4096, 0)):
        facts = {f"sysctl/{number}": FactData("x" * 4096, "/proc/sys") for number in range(count)}
        header = describe(Profile("summary"), {}, {}, HOST, facts=facts)
        recorder, state = Recorder(tmp_path / f"{count}.ncrec", header), State()
        recorder.take(state, tuple(next(iter(Stream().batches(1)))))
        recorder.close()
        assert len(Recording(tmp_path / f"{count}.ncrec").header.facts) == kept


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


def test_a_frame_that_cannot_be_written_ends_the_recording_and_is_said(tmp_path: Path) -> None:
    told: list[str] = []
    recorder = Recorder(tmp_path / "a.ncrec", HEADER, on_end=told.append)
    frame = frames.Action(seq=1, mono_ns=2**64, wall_ns=0, action="a", because="b")
    recorder.take(State(), [frame])
    assert not recorder.flush(LIMIT_S)
    recorder.close()
    assert told == [recorder.progress.ended] and "recording ended: error: " in told[0]


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


def test_a_recording_of_nothing_leaves_no_file(tmp_path: Path) -> None:
    _, recorder = record(tmp_path / "a.ncrec", [])
    assert not list(tmp_path.iterdir()) and recorder.progress.bytes == 0 and recorder.progress.ended is None
