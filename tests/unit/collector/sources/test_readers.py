"""A source that waits for another process has a thread of its own: the others are read in time, whatever it does."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator

import pytest

from netconsole_collector.sources import known, reader
from netconsole_collector.sources.base import Json, KernelSource, SourceReading
from netconsole_collector.sources.reader import SourceReaders

LIMIT_S = 300.0


class Prompt(KernelSource):
    def read(self, reading: SourceReading) -> list[Json]:
        return [reading.table("prompt", "whole" if reading.is_whole else "rows", ([], True, 0))]


class WaitsForSwitch(KernelSource):
    """As Open vSwitch does."""

    asked, may = threading.Event(), threading.Event()

    def read(self, reading: SourceReading) -> list[Json]:
        self.asked.set()
        assert self.may.wait(LIMIT_S)
        return [reading.table("apart", "whole" if reading.is_whole else "rows", ([], True, 0))]


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> Iterator[SourceReaders]:
    WaitsForSwitch.asked, WaitsForSwitch.may = threading.Event(), threading.Event()
    monkeypatch.setitem(known.KNOWN, "prompt", Prompt)
    monkeypatch.setitem(known.KNOWN, "apart", WaitsForSwitch)
    monkeypatch.setattr(reader, "APART", ("apart",))
    made = SourceReaders()
    for name in ("prompt", "apart"):
        made.start({"id": 1, "probe": name, "spec": {"probe": {"source": name}}})
    told = 0
    while told < 4:  # a status and a reply of each
        select.select(made.fds, [], [], LIMIT_S)
        told += len(made.told(0))
    yield made
    WaitsForSwitch.may.set()


def figures_of_interval(sources: SourceReaders) -> list[str]:
    while sources.is_reading:
        select.select(sources.fds, [], [], 0.1)
        sources.told(0)
    return [one.body["probe"] for one in sources.figures()]


def test_one_that_hangs_keeps_no_others_waiting(sources: SourceReaders) -> None:
    assert sources.read(1), "nothing was late"
    assert WaitsForSwitch.asked.wait(LIMIT_S)
    while not (found := sources.figures()):
        select.select(sources.fds, [], [], 0.1)
    assert sources.is_reading, "that of this interval is to come"
    assert [one.body["probe"] for one in found] == ["prompt"]
    assert not sources.read(2, is_whole=True)
    assert figures_of_interval(sources) == ["prompt"], "the next interval does not wait for the last"
    assert not is_idle(sources), "so a whole reading has not ended"
    WaitsForSwitch.may.set()
    while not is_idle(sources):
        select.select(sources.fds, [], [], 0.1)
    assert [one.body["probe"] for one in sources.figures()] == ["apart"]
    assert sources.read(4, is_whole=True)
    assert sorted(figures_of_interval(sources)) == ["apart", "prompt"]


def is_idle(sources: SourceReaders) -> bool:
    return sources.is_idle


def test_each_is_changed_and_stopped_where_it_is_read(sources: SourceReaders) -> None:
    WaitsForSwitch.may.set()
    assert sources.probes == {"prompt": "summary", "apart": "summary"}
    sources.change("apart", "details", None)
    assert (sources.probes["apart"], sources.modes("apart")) == ("details", ["summary"])
    assert sources.stop("apart") == "details"
    sources.read(1)
    assert figures_of_interval(sources) == ["prompt"]
