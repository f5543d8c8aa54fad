"""What a recording leaves out to keep its budget, when a block begins, and what waits for a slow disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netconsole.profile.profile import Budget, Enforcement
from netconsole.recording import recorder as module
from netconsole.recording.recorder import BLOCK_BYTES, Recorder
from netconsole.telemetry import frames
from netconsole.telemetry.frames import AnyFrame, Count, Row
from netconsole.telemetry.state import State
from tests.support.recorded import BEGIN_MONO_NS, HEADER, SECOND, Stream

MINUTE_BYTES = 60_000
EVERYTHING = ["Hello", "Status", "Counters", "Table", "Event", "Cost of a probe", "Cost"]


def batch(at_s: float = 0.0) -> list[AnyFrame]:
    """One frame of each kind that matters."""
    stream = Stream()
    stream.mono_ns = BEGIN_MONO_NS + round(at_s * SECOND)
    return [
        frames.Hello(**stream.stamp(None), host=HEADER.host, collector={}, capabilities={}),
        frames.Status(**stream.stamp("p"), state="attached", mode="details"),
        frames.Counters(**stream.stamp("p"), interval_ns=SECOND, values={"n": Count(1, 1)}),
        frames.Table(**stream.stamp("p"), name="t", interval_ns=SECOND, full=True, rows=[]),
        frames.Event(**stream.stamp("p"), name="drop", fields={}),
        frames.Cost(**stream.stamp("p"), interval_ns=SECOND),
        frames.Cost(**stream.stamp(None), interval_ns=SECOND),
    ]


def kinds(kept: Any) -> list[str]:
    return [type(one).__name__ + (" of a probe" if isinstance(one, frames.Cost) and one.probe else "") for one in kept]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.ncrec"


def made(path: Path, action: Enforcement = "degrade", mb: float | None = MINUTE_BYTES / 1e6) -> Recorder:
    """A recorder whose allowance does not come back: its clock stands still."""
    one = Recorder(path, HEADER, Budget(record_mb_per_min=mb, action=action))
    one._refilled_ns = BEGIN_MONO_NS
    return one


@pytest.fixture
def recorder(path: Path) -> Iterator[Recorder]:
    one = made(path)
    yield one
    one.close()


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        (MINUTE_BYTES, EVERYTHING),
        (MINUTE_BYTES / 4 + 1, EVERYTHING),
        (MINUTE_BYTES / 4, [one for one in EVERYTHING if one != "Event"]),
        (1, [one for one in EVERYTHING if one != "Event"]),
        (0, ["Hello", "Status", "Cost"]),
        (-5000, ["Hello", "Status", "Cost"]),
    ],
)
def test_samples_go_first_then_figures_and_never_what_a_replay_needs(
    recorder: Recorder, left: float, kept: list[str]
) -> None:
    recorder._left = left
    assert kinds(recorder._within_budget(batch())) == kept
    assert recorder.progress.left_out == len(EVERYTHING) - len(kept)


@pytest.mark.parametrize(
    ("left", "after_s", "now"),
    [(0.0, 1.0, 1000.0), (-30_000.0, 30.0, 0.0), (50_000.0, 30.0, 60_000.0), (9.0, -5.0, 9.0)],
)
def test_the_allowance_comes_back_evenly_up_to_that_of_a_minute(
    recorder: Recorder, left: float, after_s: float, now: float
) -> None:
    recorder._left = left
    recorder._within_budget(batch(after_s))
    assert recorder._left == now


def test_it_begins_with_the_allowance_of_a_minute(path: Path) -> None:
    one = Recorder(path, HEADER, Budget(record_mb_per_min=2.0, action="degrade"))
    assert (one._allowance, one._left) == (2e6, 2e6)
    one.close()


@pytest.mark.parametrize("left", [1.0, 0.0])
def test_a_budget_that_stops_ends_it_when_nothing_is_left(path: Path, left: float) -> None:
    told: list[str] = []
    one = made(path, "stop")
    one._on_end = told.append
    one._left = left
    assert kinds(one._within_budget(batch())) == EVERYTHING
    assert one.progress.over_budget is (left == 0.0)
    assert len(told) == (left == 0.0)
    if told:
        assert "recording ended: more than the profile's record_mb_per_min = 0.06; what was" in told[0]
    one.close()


@pytest.mark.parametrize(("action", "mb"), [("warn", MINUTE_BYTES / 1e6), ("degrade", None), ("stop", None)])
def test_without_a_limit_or_with_a_warning_alone_nothing_is_left_out(
    path: Path, action: Enforcement, mb: float | None
) -> None:
    one = made(path, action, mb)
    one._left = -1.0
    assert kinds(one._within_budget(batch())) == EVERYTHING
    assert one.progress.left_out == 0 and not one.progress.over_budget
    one.close()


# ---- blocks, and what waits ----


class Held(Recorder):
    """Writes nothing: what it takes waits for ever."""

    def _run(self) -> None:
        self._file.close()


@pytest.fixture
def held(path: Path) -> Held:
    return Held(path, HEADER, max_s=800.0)


def begins(one: Held, at_s: float, rows: int = 0) -> bool | None:
    """Takes a table at this time: whether it begins a block; None when it was left out."""
    stream = Stream()
    stream.mono_ns = BEGIN_MONO_NS + round(at_s * SECOND)
    listed = [Row({"n": number}, {}) for number in range(rows)]
    waiting = len(one._waiting)
    one.take(State(), [frames.Table(**stream.stamp("p"), name="t", interval_ns=SECOND, full=True, rows=listed)])
    return one._waiting[-1][1] is not None if len(one._waiting) > waiting else None


def test_a_block_ends_after_a_minute_or_an_eighth_of_the_longest_time(held: Held, tmp_path: Path) -> None:
    assert [begins(held, at_s) for at_s in (0, 1, 59.9, 60, 119.9, 120)] == [True, False, False, True, False, True]
    short = Held(tmp_path / "short.ncrec", HEADER, max_s=80.0)
    assert [begins(short, at_s) for at_s in (0, 9.9, 10)] == [True, False, True]


def test_a_block_ends_when_it_is_full_and_the_next_one_begins_once(held: Held) -> None:
    assert [begins(held, 0), begins(held, 1)] == [True, False]
    held._block_is_due = False  # the first one was written
    held._block_bytes = BLOCK_BYTES - 1
    assert begins(held, 2) is False
    held._block_bytes = BLOCK_BYTES
    assert [begins(held, 3), begins(held, 4)] == [True, False], "the second one waits for the first to be written"


def test_so_much_may_wait_for_the_disk_and_the_rest_is_a_gap(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    assert module._MAX_WAITING == 50_000
    monkeypatch.setattr(module, "_MAX_WAITING", 100)
    assert begins(held, 0, rows=49) is True
    assert begins(held, 1, rows=49) is False, "a table weighs its rows and one"
    assert begins(held, 2) is None and held.progress.left_out == 1
    assert begins(held, 60) is True, "a block begins in any case"


def test_intervals_are_counted_by_the_source_that_leads(held: Held) -> None:
    stream = Stream()
    for source, probe in (("collector", None), ("console", None), ("collector", "p"), ("collector", None)):
        held.take(State(), [frames.Cost(**stream.stamp(probe, source), interval_ns=SECOND)])  # type: ignore[arg-type]
    assert held._intervals == 2
    assert [mark.intervals for mark, *_ in held._waiting] == [0, 1, 1, 1]
