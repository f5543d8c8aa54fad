"""The thread that reads the sources: one that fails says why, one that hangs holds up nobody."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from netconsole.telemetry.frames import Reply, Status, Table
from netconsole_collector.sources import known, reader
from netconsole_collector.sources.base import Json, KernelSource, SourceError, SourceReading
from netconsole_collector.sources.reader import SILENT_S, SourceReader
from tests.support.sources import frames_of

LIMIT_S = 300.0
SECOND = 1_000_000_000


class Fine(KernelSource):
    def read(self, reading: SourceReading) -> list[Json]:
        return [reading.table("fine", "rows", ([], True, 0))]


class SilentAtFirst(KernelSource):
    """Fails at its first reading, and has nothing to say at the next one."""

    def __init__(self) -> None:
        self.readings: list[SourceReading] = []

    def read(self, reading: SourceReading) -> list[Json]:
        self.readings.append(reading)
        if len(self.readings) == 1:
            raise SourceError("it is not there")
        return [reading.table("late", "rows", ([], True, 0))] if len(self.readings) > 2 else []


class Broken(KernelSource):
    """Fails at every second reading."""

    readings = 0

    def read(self, reading: SourceReading) -> list[Json]:
        self.readings += 1
        if self.readings % 2:
            raise SourceError("the file is gone", "bring it back")
        return [reading.table("broken", "rows", ([], True, 0))]


class Surprised(KernelSource):
    """Meets what nobody has thought of."""

    def read(self, reading: SourceReading) -> list[Json]:
        raise KeyError(7)


class Unopened(KernelSource):
    def open(self) -> None:
        raise SourceError("no such thing here", "install it", "unsupported")


class Hanging(KernelSource):
    """Does not answer until it may."""

    asked, may = threading.Event(), threading.Event()

    def read(self, reading: SourceReading) -> list[Json]:
        self.asked.set()
        assert self.may.wait(LIMIT_S)
        return [reading.table("hanging", "rows", ([], True, 0))]


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> Iterator[SourceReader]:
    Hanging.asked, Hanging.may = threading.Event(), threading.Event()
    for one in (Fine, SilentAtFirst, Broken, Surprised, Unopened, Hanging):
        monkeypatch.setitem(known.KNOWN, one.__name__.lower(), one)
    yield SourceReader()
    Hanging.may.set()


def start(sources: SourceReader, name: str, number: int = 1) -> None:
    assert known.is_source({"probe": {"source": name}})
    sources.start({"id": number, "probe": name, "spec": {"probe": {"source": name}}})


def heard(sources: SourceReader, now_ns: int = 0) -> list[Any]:
    assert select.select([sources.fd], [], [], LIMIT_S)[0]
    return frames_of([one.body for one in sources.told(now_ns)])


def read(sources: SourceReader) -> list[Any]:
    """One whole interval: what was told in it."""
    sources.read(1)
    told: list[Any] = []
    while sources.is_reading:
        select.select([sources.fd], [], [], 1.0)
    told += frames_of([one.body for one in sources.told(1)])
    return told


def states(told: list[Any]) -> list[tuple[str | None, str, str | None, str | None]]:
    return [(one.probe, one.state, one.why, one.help) for one in told if isinstance(one, Status)]


def test_a_source_that_is_opened_is_attached_and_its_load_is_answered(sources: SourceReader) -> None:
    start(sources, "fine", 7)
    told = heard(sources)
    assert states(told) == [("fine", "attached", None, None)]
    assert [(one.id, one.ok) for one in told if isinstance(one, Reply)] == [(7, True)]
    read(sources)
    (table,) = frames_of([one.body for one in sources.figures()])
    assert isinstance(table, Table) and (table.probe, table.name) == ("fine", "rows") and table.interval_ns > 0
    assert sources.figures() == [], "each figure once"


def test_what_a_silent_reading_has_missed_is_in_the_interval_of_the_next(
    sources: SourceReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = SilentAtFirst()
    monkeypatch.setitem(known.KNOWN, "late", lambda: late)
    start(sources, "late")
    told = []
    while len(late.readings) < 2:
        told += read(sources)
    assert [state for _, state, *_ in states(told)] == ["attached", "failed"], "nothing is known that is better"
    told = read(sources)
    assert [state for _, state, *_ in states(told)] == ["attached"]
    _, first, second = late.readings
    assert second.interval_ns == first.interval_ns + second.mono_ns - first.mono_ns


def test_one_that_cannot_be_opened_is_refused_and_may_be_asked_for_again(sources: SourceReader) -> None:
    for number in (1, 2):
        start(sources, "unopened", number)
        told = heard(sources)
        assert states(told) == [("unopened", "unsupported", "no such thing here", "install it")]
        assert [(one.id, one.ok, one.error) for one in told if isinstance(one, Reply)] == [
            (number, False, "no such thing here")
        ]
        assert sources.probes == {}


def test_a_failing_source_says_why_once_and_the_others_go_on(sources: SourceReader) -> None:
    for number, name in enumerate(("broken", "surprised", "fine")):
        start(sources, name, number)
    while len(sources.probes) < 3 or not read(sources):
        pass
    told = [one for _ in range(4) for one in read(sources)]
    assert ("surprised", "failed", "KeyError: 7", None) not in states(told), "it was said before"
    assert states(told).count(("broken", "failed", "the file is gone", "bring it back")) == 2
    assert states(told).count(("broken", "attached", None, None)) == 2
    assert len(sources.figures()) >= 4


def test_one_that_is_stopped_is_read_no_more(sources: SourceReader) -> None:
    start(sources, "fine")
    heard(sources)
    assert sources.stop("fine") == "summary"
    assert not sources.probes
    sources.read(1)
    assert sources.figures() == []


def test_one_that_hangs_holds_up_nobody_and_is_said_after_a_while(sources: SourceReader) -> None:
    start(sources, "hanging")
    heard(sources)
    start(sources, "fine", 2)
    heard(sources)
    asked_ns = SECOND
    sources.read(asked_ns)
    assert Hanging.asked.wait(LIMIT_S)
    sources.read(2 * asked_ns)  # nothing is asked again before that is answered
    assert sources.is_reading and sources.told(asked_ns + int(SILENT_S * 1e9)) == []
    late_ns = asked_ns + int(SILENT_S * 1e9) + 1
    why = "hanging has not answered for 10 s"
    told = states(frames_of([one.body for one in sources.told(late_ns)]))
    assert told == [("hanging", "failed", why, None), ("fine", "failed", why, None)]
    assert sources.told(late_ns) == [], "said once"
    Hanging.may.set()
    assert states(heard(sources)) == [("hanging", "attached", None, None), ("fine", "attached", None, None)]
    assert len(sources.figures()) == 2


def test_a_reason_is_one_sentence_of_bounded_length(sources: SourceReader, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise OSError("x" * 5000)

    monkeypatch.setattr(Fine, "open", fail)
    start(sources, "fine")
    ((_, state, why, _),) = states(heard(sources))
    assert (state, len(why or "")) == ("failed", reader.MAX_WHY)


@pytest.mark.parametrize("name", sorted(known.KNOWN))
def test_each_source_that_a_manifest_may_name_is_there(name: str) -> None:
    source = known.KNOWN[name]()
    assert isinstance(source, KernelSource) and source.mode == "summary"
    source.close()
