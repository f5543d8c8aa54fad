"""Where a replay stands, steps and jumps, in a small recording: three blocks of three intervals."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from netconsole.profile.profile import Budget
from netconsole.recording import player
from netconsole.recording.format import SKIPPABLE
from netconsole.recording.player import Player
from netconsole.recording.reader import Recording
from netconsole.recording.writer import RecordingFile
from netconsole.telemetry import checkpoint, frames
from netconsole.telemetry.frames import AnyFrame, Cost
from netconsole.telemetry.state import State
from tests.support.recorded import BEGIN_MONO_NS, HEADER, SECOND, Stream
from tests.unit.recording.test_reader import blocks, change, lines, mark, write

ENDS = [frame for block in blocks() for frame in block if isinstance(frame, Cost) and frame.probe is None]
STAMP: dict[str, Any] = {"seq": 1, "mono_ns": BEGIN_MONO_NS + SECOND, "wall_ns": 0}
LEADS = [frame.mono_ns for frame in ENDS if frame.source == "collector"]
"""When an interval of the collector ended; that of the console ends a third of a second later."""
AT_S = [(at - BEGIN_MONO_NS) / 1e9 for at in LEADS]
LAST_NS = ENDS[-1].mono_ns


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.ncrec"


def opened(path: Path) -> Player:
    return Player(Recording(path), {}, Budget())


def one_block(path: Path, made: Sequence[AnyFrame]) -> Player:
    """A replay of these frames."""
    file, first, last = RecordingFile(path, HEADER), made[0], made[-1]
    begin = mark(0, [list(made)])._replace(wall_ns=first.wall_ns)
    file.begin(begin, checkpoint.encode(State()))
    file.write(lines(list(made)))
    file.finish(begin._replace(mono_ns=last.mono_ns, bytes=len(lines(list(made)))))
    file.close()
    return opened(path)


def test_it_begins_at_the_beginning(path: Path) -> None:
    one = opened(write(path))
    assert (one.at_s, one.since_s, one.gap_s, one.at_end) == (0.0, 0.0, 0.0, False)
    assert one.begin_ns == BEGIN_MONO_NS and one.length_s == (LAST_NS - BEGIN_MONO_NS) / 1e9
    assert one.trouble is None and one.place.block == 0


def test_a_step_ends_with_an_interval_of_the_leading_source(path: Path) -> None:
    one = opened(write(path))
    found = []
    while one.step():
        found.append((one.at_s, one.place.lead_ns, one.place.wall_ns))
    assert found == [(at_s, at, ENDS[0].wall_ns + at - LEADS[0]) for at_s, at in zip(AT_S, LEADS, strict=True)]
    assert one.at_end and one.gap_s is None and not one.apply() and not one.step()
    assert one.place.at_ns == LAST_NS and one.place.lead_ns == LEADS[-1]


def test_frames_that_are_too_many_bytes_do_not_wait_for_the_end_of_an_interval(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(player, "MAX_BYTES", 2000)
    made: list[AnyFrame] = [frames.Status(**STAMP, probe="p", state="attached", mode="details")]
    made += [frames.Event(**STAMP, probe="p", name="e", fields={"text": "x" * 200}) for _ in range(100)]
    one = one_block(path, made)
    batches = []
    while not one.at_end:
        batches.append(len(one._next or ()))
        one.apply()
    assert sum(batches) == 101 and max(batches) < 10
    one.seek(one.length_s)
    assert one.place.state.probes["p"].events_arrived == 100


def test_each_batch_tells_how_long_it_waits(path: Path) -> None:
    """A batch is there when its last frame is: that of a made-up interval has one time."""
    one = opened(write(path))
    gaps, stops = [], []
    while not one.at_end:
        gaps.append(one.gap_s)
        stops.append(one.apply())
    times = [BEGIN_MONO_NS] * 4 + [frame.mono_ns for frame in ENDS]
    assert gaps == [(after - before) / 1e9 for before, after in pairwise(times)]
    assert stops == [False] * 3 + [True, False] * len(LEADS)


def test_back_is_the_end_of_the_interval_before(path: Path) -> None:
    one = opened(write(path))
    for _ in range(5):
        one.step()
    one.back()
    assert one.at_s == AT_S[3]
    one.apply()  # the console's interval, which ends later
    assert one.place.at_ns > one.place.lead_ns
    one.back()
    assert one.at_s == AT_S[2]
    for _ in range(5):
        one.back()
    assert one.at_s == 0.0
    assert one.step() and one.at_s == AT_S[0]


@pytest.mark.parametrize("number", [0, 2, 3, 8])
def test_a_jump_goes_to_the_last_end_within_its_target(path: Path, number: int) -> None:
    one = opened(write(path))
    one.seek(AT_S[number])
    assert one.at_s == AT_S[number]
    one.seek(AT_S[number] - 1e-6)
    assert one.at_s == (AT_S[number - 1] if number else 0.0)
    state = State()
    for frame in (frame for block in blocks() for frame in block):
        if number and frame.mono_ns <= one.place.at_ns:
            state.apply(frame)
    assert checkpoint.encode(one.place.state) == checkpoint.encode(state)


def test_a_jump_beyond_the_ends_goes_to_the_ends(path: Path) -> None:
    one = opened(write(path))
    one.seek(1e9)
    assert one.place.at_ns == LAST_NS and one.at_end
    one.seek(-1e9)
    assert one.at_s == 0.0 and not one.at_end


def test_a_snapshot_counts_from_where_it_was_said_until_a_jump_before(path: Path) -> None:
    one = opened(write(path))
    one.seek(AT_S[4])
    one.set_since()
    assert one.since_s == AT_S[4]
    one.seek(AT_S[7])
    assert one.since_s == AT_S[4]
    one.seek(AT_S[4])
    assert one.since_s == AT_S[4]
    one.seek(AT_S[3])
    assert one.since_s == 0.0


@pytest.mark.parametrize(
    ("history_s", "blocks_of_bytes", "first"), [(600.0, 3, 0), (600.0, 2, 1), (600.0, 1, 2), (3.0, 3, 1), (0.1, 3, 2)]
)
def test_a_jump_begins_with_the_checkpoint_before_its_history(
    path: Path, monkeypatch: pytest.MonkeyPatch, history_s: float, blocks_of_bytes: int, first: int
) -> None:
    sizes = [len(lines(block)) for block in blocks()]
    monkeypatch.setattr(player, "HISTORY_S", history_s)
    monkeypatch.setattr(player, "HISTORY_BYTES", sum(sizes[-blocks_of_bytes:]))
    one = opened(write(path))
    one.seek(AT_S[7])
    assert (one.place.block, one.at_s) == (first, AT_S[7])
    monkeypatch.setattr(player, "HISTORY_BYTES", sum(sizes[-blocks_of_bytes:]) - 1)
    one.seek(AT_S[7])
    assert one.place.block == max(first, 4 - blocks_of_bytes if blocks_of_bytes > 1 else 2)


def test_a_checkpoint_that_cannot_be_read_is_told_and_an_earlier_one_taken(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(player, "HISTORY_S", 0.0)
    one = opened(write(path))
    offset = one.recording.blocks[1].offset
    change(path, offset + SKIPPABLE.size, bytes(8))
    one.seek(AT_S[4])
    assert one.trouble == f"block 2: no checkpoint at byte {offset}"
    assert (one.place.block, one.at_s) == (0, AT_S[4])


def action(stream: Stream, probe: str | None) -> frames.Action:
    return frames.Action(**stream.stamp(probe), action="summary", because="too dear", measured=3.0, limit=2.0)


def status(stream: Stream, why: str | None, state: frames.ProbeStatus = "attached") -> frames.Status:
    return frames.Status(**stream.stamp("p"), state=state, mode="summary", why=why)


def test_what_the_governor_did_is_told_with_its_time(path: Path) -> None:
    stream = Stream()
    made: list[AnyFrame] = [status(stream, "summary instead of details: it was too dear")]
    stream.mono_ns += 2 * SECOND
    made += [status(stream, "off"), status(stream, None), status(stream, "no kprobes: x", "failed")]
    made += [action(stream, "p"), action(stream, None), status(stream, "told by its action")]
    one = one_block(path, made)
    while not one.at_end:
        one.apply()
    at_s = BEGIN_MONO_NS / 1e9
    found = [(each.at_s, each.probe, each.action, each.because) for each in one.place.actions]
    assert found == [
        (at_s, "p", "summary instead of details", "it was too dear"),
        (at_s + 2, "p", "off", ""),
        (at_s + 2, "p", "summary", "too dear"),
        (at_s + 2, "", "summary", "too dear"),
    ]
    assert (one.place.actions[-1].measured, one.place.actions[-1].limit) == (3.0, 2.0)


def test_a_step_does_not_wait_for_a_source_that_was_lost(path: Path) -> None:
    """Two intervals and a half: the third end of the console alone is one."""
    stream = Stream()
    made: list[AnyFrame] = [frame for batch in stream.begin() for frame in batch]
    made += [frame for batch in stream.interval() for frame in batch]
    lead_ns = stream.mono_ns
    for _ in range(3):
        _, console = stream.interval()
        made += console
    one = one_block(path, made)
    assert one.step() and one.place.at_ns == lead_ns
    assert one.step() and one.place.at_ns == stream.mono_ns + SECOND // 3
    assert one.place.lead_ns == lead_ns
