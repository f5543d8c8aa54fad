"""The last seconds are kept in memory, whole blocks at a time, and no more than there is room for."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from netconsole.recording import flight_recorder
from netconsole.recording.flight_recorder import MAX_WEIGHT, FlightRecorder
from netconsole.recording.reader import Recording
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Row
from netconsole.telemetry.state import State
from tests.support.recorded import HEADER

S = 1_000_000_000


class Playing:
    """A recorder that gets a batch at each second of its clock."""

    def __init__(self, keep_s: float) -> None:
        self.recorder = FlightRecorder(keep_s)
        self.state = State()

    def at(self, second: float, rows: int = -1) -> None:
        """The end of an interval; with ``rows`` before it a table of so many."""
        stamp = {"source": "collector", "seq": 1, "mono_ns": round(second * S), "wall_ns": round((second + 1000) * S)}
        batch: list[frames.AnyFrame] = []
        if rows >= 0:
            made = [Row({"device": str(n)}, {}) for n in range(rows)]
            batch.append(frames.Table(**stamp, probe="p", name="t", interval_ns=S, full=True, rows=made))  # type: ignore[arg-type]
        batch.append(frames.Cost(**stamp, interval_ns=S))  # type: ignore[arg-type]
        self.recorder.take(self.state, batch)

    def seconds(self, path: Path) -> list[float]:
        """Of the batches that a file has."""
        self.recorder.write(path, HEADER)
        with contextlib.closing(Recording(path)) as recording:
            found = [frame for number in range(len(recording.blocks)) for frame in recording.frames(number)]
        return [frame.mono_ns / S for frame in found if isinstance(frame, frames.Cost)]


def test_at_least_the_time_that_was_asked_for_is_kept_in_whole_blocks() -> None:
    """Of 10 s: a block has 5 s, and goes when the one after it is 10 s old."""
    one = Playing(10)
    kept = []
    for second in range(22):
        one.at(second)
        kept.append(one.recorder.weight)
    assert kept == [*range(1, 16), 11, 12, 13, 14, 15, 11, 12]


def test_a_row_weighs_as_much_as_a_frame() -> None:
    one = Playing(10)
    one.at(0)
    assert one.recorder.weight == 1
    one.at(1, rows=0)
    assert one.recorder.weight == 3
    one.at(2, rows=7)
    assert one.recorder.weight == 12
    one.recorder.take(one.state, [])
    assert one.recorder.weight == 12


def test_where_there_is_no_room_old_blocks_go_earlier_and_a_held_recorder_takes_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MAX_WEIGHT == 50_000
    monkeypatch.setattr(flight_recorder, "MAX_WEIGHT", 20)
    one = Playing(4)
    one.at(0, rows=8)  # 10
    one.at(2, rows=8)  # another block
    assert one.recorder.weight == 20
    one.at(4)
    assert one.recorder.weight == 11, "the first block is gone: it had no room"
    one.recorder.hold()
    one.at(5, rows=7)
    assert (one.recorder.weight, one.recorder.was_cut) == (20, False)
    one.at(20)
    assert (one.recorder.weight, one.recorder.was_cut) == (20, True)
    one.recorder.hold()
    assert not one.recorder.was_cut
    one.recorder.release()
    one.at(21)
    assert one.recorder.weight == 11
    one.at(24)
    assert one.recorder.weight == 2


def test_a_copy_is_written_while_the_recorder_goes_on(tmp_path: Path) -> None:
    one = Playing(10)
    for second in range(3):
        one.at(second, rows=1)
    copy = Playing(1)
    copy.recorder = one.recorder.copy()
    one.at(3)
    assert copy.seconds(tmp_path / "copy.ncrec") == [0, 1, 2]
    assert one.seconds(tmp_path / "one.ncrec") == [0, 1, 2, 3]


def test_each_block_of_the_file_says_where_it_begins(tmp_path: Path) -> None:
    """Its time, how many intervals were before it, and how many bytes of frames."""
    one = Playing(4)
    assert not one.recorder.was_cut
    for second in range(5):
        one.at(second, rows=second)
    one.recorder.write(tmp_path / "a.ncrec", HEADER)
    with contextlib.closing(Recording(tmp_path / "a.ncrec")) as recording:
        marks = [block.mark for block in recording.blocks]
        texts = [b"".join(map(frames.encode, recording.frames(number))) for number in range(len(marks))]
        end = recording.end
    assert [(mark.mono_ns // S, mark.wall_ns // S, mark.intervals) for mark in marks] == [
        (0, 1000, 0), (2, 1002, 2), (4, 1004, 4),
    ]  # fmt: skip
    sizes = [len(text) for text in texts]
    assert [mark.bytes for mark in marks] == [0, sizes[0], sizes[0] + sizes[1]]
    assert (end.mono_ns // S, end.wall_ns // S, end.intervals, end.bytes) == (4, 1004, 5, sum(sizes))


def test_a_copy_keeps_as_long() -> None:
    one = Playing(10)
    one.recorder = one.recorder.copy()
    for second in range(16):
        one.at(second)
    assert one.recorder.weight == 11


def test_without_room_for_two_blocks_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_recorder, "MAX_WEIGHT", 3)
    one = Playing(100)
    for second in range(5):
        one.at(second)
    assert one.recorder.weight == 5
