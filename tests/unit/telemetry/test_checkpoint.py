"""A state that was saved and restored goes on exactly as the one that was not."""

from __future__ import annotations

import random
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netconsole.telemetry import checkpoint
from netconsole.telemetry.checkpoint import CheckpointError
from netconsole.telemetry.state import State
from netconsole.telemetry.tables import RowState
from tests.support.recorded import Stream


def after(intervals: int, stream: Stream | None = None) -> State:
    state = State()
    for batch in (stream or Stream(rows=5)).batches(intervals):
        for frame in batch:
            state.apply(frame)
    return state


@pytest.mark.parametrize("intervals", [0, 1, 9, 10, 37])
def test_goes_on_exactly_where_it_was(intervals: int) -> None:
    stream = Stream(rows=5)
    state = after(intervals, stream)
    restored = checkpoint.decode(checkpoint.encode(state))
    assert checkpoint.encode(restored) == checkpoint.encode(state)
    for _ in range(12):
        for batch in stream.interval():
            for frame in batch:
                assert state.apply(frame) == restored.apply(frame)
        assert checkpoint.encode(restored) == checkpoint.encode(state)
    assert [row.key for row in restored.probes["kernel_drops"].tables["drops"].moving()] == [
        row.key for row in state.probes["kernel_drops"].tables["drops"].moving()
    ]


def test_a_kernel_that_does_not_tell_run_times_is_remembered() -> None:
    state = after(3)
    state.probes["kernel_drops"].cost.measurable = False
    assert not checkpoint.decode(checkpoint.encode(state)).probes["kernel_drops"].cost.measurable


def test_what_is_saved_of_a_state_is_all_but_what_its_session_gives_it() -> None:
    assert set(checkpoint.Checkpoint.__struct_fields__) == vars(State()).keys() - {"per_count", "is_far"}


def test_a_table_of_too_many_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = checkpoint.encode(after(10))
    monkeypatch.setattr(RowState, "MOST", 5)
    with pytest.raises(CheckpointError, match="more than 5 of RowState"):
        checkpoint.decode(content)


def test_histories_begin_at_the_checkpoint_with_what_is_unknown() -> None:
    stream = Stream()
    restored = checkpoint.decode(checkpoint.encode(after(20, stream)))
    for batch in stream.interval():
        for frame in batch:
            restored.apply(frame)
    history = restored.probes["kernel_drops"].counter_history("drops", 5)
    assert history[:4] == [None] * 4 and history[4] is not None


def test_a_state_without_a_frame_can_be_saved() -> None:
    assert checkpoint.encode(checkpoint.decode(checkpoint.encode(State()))) == checkpoint.encode(State())


@pytest.mark.parametrize("broken", [b"", b"[]", b"{}", b"null", b'{"host": 1}', b"\xff", b"[" * 100_000])
def test_what_is_no_checkpoint_is_refused(broken: bytes) -> None:
    with pytest.raises(CheckpointError):
        checkpoint.decode(broken)


def test_one_that_is_too_long_is_refused() -> None:
    most = 16 * 1024 * 1024
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        checkpoint.decode(b" " * most)
    with pytest.raises(CheckpointError, match=f"longer than {most} bytes"):
        checkpoint.decode(b" " * (most + 1))


@given(seed=st.integers(0, 2**32), changes=st.integers(1, 8))
@settings(max_examples=300, deadline=None)
def test_damaged_ones_are_refused_or_make_a_state_that_works(seed: int, changes: int) -> None:
    content = bytearray(checkpoint.encode(after(11)))
    chance = random.Random(seed)
    for _ in range(changes):
        content[chance.randrange(len(content))] = ord(chance.choice(string.printable))
    try:
        state = checkpoint.decode(bytes(content))
    except CheckpointError:
        return
    for batch in Stream().batches(3):
        for frame in batch:
            state.apply(frame)
    assert checkpoint.encode(state)
