"""The console's own sources: exact deltas of the kernel's counters, real sockets, and a failing one among others."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from netconsole.host.target import Target
from netconsole.sources import runner
from netconsole.sources.base import FrameMaker
from netconsole.sources.runner import SourceRunner
from netconsole.telemetry.frames import AnyFrame, Cost, Row, Status, Table
from netconsole.telemetry.request import ProbeRequest
from netconsole_collector.primitives.here import HERE, Here, Moment
from netconsole_collector.sources.base import SourceError

LIMIT_S = 300.0


def below(root: Path, path: str) -> Path:
    """A file of a made-up host."""
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def rows(frames: Sequence[AnyFrame]) -> dict[tuple[object, ...], Row]:
    """The rows of the first frame, which is a table, by their labels."""
    table = frames[0]
    assert isinstance(table, Table)
    return {tuple(row.labels.values()): row for row in table.rows}


class Broken:
    """Fails at every second reading."""

    name: ClassVar[str] = "broken"

    def __init__(self, target: Target) -> None:
        self.readings = 0

    def open(self) -> None: ...

    def read(self, make: FrameMaker) -> list[AnyFrame]:
        self.readings += 1
        if self.readings % 2:
            raise SourceError("the file is gone", "bring it back")
        return []

    def close(self) -> None: ...


class Surprised(Broken):
    """Meets what nobody has thought of."""

    def read(self, make: FrameMaker) -> list[AnyFrame]:
        raise KeyError(7)


class Lying(Broken):
    """What it read does not fit a frame."""

    def read(self, make: FrameMaker) -> list[AnyFrame]:
        fine = make.table(self.name, "fine", [], True)
        return [
            fine,
            make.table(self.name, "names", [{"labels": {"name": "n" * 300}, "counts": {}, "gauges": {}}], True),
        ]


class Unopened(Broken):
    """Cannot be opened."""

    def open(self) -> None:
        raise SourceError("no such thing here")


def test_a_failing_source_says_why_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runner.FACTORIES, "broken", Broken)
    monkeypatch.setitem(runner.FACTORIES, "unopened", Unopened)
    monkeypatch.setitem(runner.FACTORIES, "surprised", Surprised)
    monkeypatch.setitem(runner.FACTORIES, "lying", Lying)
    delivered: list[AnyFrame] = []
    enough = threading.Event()

    def deliver(batch: list[AnyFrame]) -> None:
        delivered.extend(batch)
        if sum(isinstance(frame, Cost) for frame in delivered) >= 4:
            enough.set()

    requests = [
        ProbeRequest("unopened", source="unopened"),
        ProbeRequest("broken", source="broken"),
        ProbeRequest("surprised", source="surprised"),
        ProbeRequest("lying", source="lying"),
        ProbeRequest("self_cost", source="self"),
        ProbeRequest("kernel_drops", source="bpf"),
    ]
    sources = SourceRunner(requests, 0.01, deliver, itertools.count(1))
    sources.start()
    assert enough.wait(LIMIT_S)
    sources.close()
    sources.close()
    states = [(frame.probe, frame.state, frame.why) for frame in delivered if isinstance(frame, Status)]
    assert ("unopened", "failed", "no such thing here") in states
    assert states.count(("surprised", "failed", "KeyError: 7")) == 1
    assert states.count(("broken", "failed", "the file is gone")) >= 2
    (told,) = [frame for frame in delivered if isinstance(frame, Status) and frame.probe == "lying" and frame.why]
    assert any(isinstance(frame, Table) and frame.name == "fine" for frame in delivered), "what is fine comes"
    assert told.state == "failed" and "length <= 256" in str(told.why)
    assert states.count(("broken", "attached", None)) >= 2
    assert sum(isinstance(frame, Table) and frame.probe == "self_cost" for frame in delivered) >= 4
    assert all(frame.source == "console" for frame in delivered)
    seqs = [frame.seq for frame in delivered]
    left_out = sum(isinstance(frame, Cost) for frame in delivered)  # one in each interval, and missing from the numbers
    assert seqs == sorted(set(seqs)) and seqs[-1] == len(seqs) + left_out
    # An interval ends with the process's own cost, and all of its frames are delivered together.
    assert isinstance(delivered[-1], Cost)


class Added(Broken):
    """Has a table."""

    def read(self, make: FrameMaker) -> list[AnyFrame]:
        return [make.table("added", "rows", [], True)]


def test_a_source_that_is_added_is_read_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runner.FACTORIES, "added", Added)
    delivered: list[AnyFrame] = []
    enough = threading.Event()

    def deliver(batch: list[AnyFrame]) -> None:
        delivered.extend(batch)
        if any(isinstance(frame, Table) and frame.probe == "added" for frame in batch):
            enough.set()

    sources = SourceRunner([ProbeRequest("self_cost", source="self")], 0.01, deliver, itertools.count(1))
    sources.start()
    sources.add(ProbeRequest("added", source="added"))
    assert enough.wait(LIMIT_S)
    sources.close()
    states = [(frame.probe, frame.state) for frame in delivered if isinstance(frame, Status)]
    assert states == [("self_cost", "attached"), ("added", "attached")]


class Whole:
    """Tells which readings had to have everything."""

    name: ClassVar[str] = "whole"
    readings: ClassVar[list[bool]] = []

    def __init__(self, target: Target = HERE) -> None: ...

    def open(self) -> None: ...

    def close(self) -> None: ...

    def read(self, make: FrameMaker) -> list[AnyFrame]:
        self.readings.append(make.is_whole)
        return []


def test_a_whole_reading_is_one_and_is_delivered_when_it_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runner.FACTORIES, "whole", Whole)
    enough = threading.Event()

    def deliver(_: list[AnyFrame]) -> None:
        if Whole.readings[-1:] == [False] and True in Whole.readings:
            enough.set()

    sources = SourceRunner([ProbeRequest("whole", source="whole")], 0.01, deliver, itertools.count(1))
    sources.start()
    told = threading.Event()
    sources.read_whole(told.set)
    assert told.wait(LIMIT_S) and True in Whole.readings
    assert enough.wait(LIMIT_S)
    sources.close()
    assert Whole.readings.count(True) == 1


def test_an_interval_is_as_long_as_it_was_on_the_host_that_is_measured() -> None:
    """Its clock runs apart from ours, and the times of frames are ours."""
    moments = iter([Moment(10, 1010, 7_000), Moment(30, 1030, 7_025), Moment(31, 1031, 7_025)])

    class There(Here):
        def now(self) -> Moment:
            return next(moments)

    make = FrameMaker(target=There())
    assert make.interval_ns == 1_000_000_000
    make.tick()
    frame = make.counters("p", {})
    assert (frame.interval_ns, frame.mono_ns, frame.wall_ns) == (25, 30, 1030)
    make.tick()
    assert make.interval_ns == 1, "no interval takes no time"
