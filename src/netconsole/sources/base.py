"""Defines what a source of the console is, and turns its readings into frames."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Protocol, TypedDict, runtime_checkable

from netconsole.host.target import Target
from netconsole.telemetry.frames import (
    AnyFrame,
    Cost,
    Count,
    Counters,
    Event,
    Mode,
    ProbeStatus,
    Row,
    Scalar,
    SourceName,
    Status,
    Table,
    Usage,
)
from netconsole_collector.primitives.here import HERE
from netconsole_collector.sources.base import Json


class _Stamp(TypedDict):
    source: SourceName
    probe: str | None
    seq: int
    mono_ns: int
    wall_ns: int


class FrameMaker:
    """Makes frames of the console, with their sequence numbers and one time per interval."""

    def __init__(self, numbers: Iterator[int] | None = None, target: Target = HERE) -> None:
        self._target = target
        self._numbers = itertools.count(1) if numbers is None else numbers
        self.interval_ns = 1_000_000_000
        self.is_whole = False
        """This reading has to have everything: also what is read less often."""
        self.mono_ns, self.wall_ns, self._there_ns = target.now()

    def tick(self) -> None:
        """The current interval ends now."""
        now = self._target.now()
        self.interval_ns = max(1, now.there_ns - self._there_ns)
        self.mono_ns, self.wall_ns, self._there_ns = now

    def status(
        self, probe: str, state: ProbeStatus, mode: Mode, why: str | None = None, help: str | None = None
    ) -> Status:
        """A probe changed state."""
        return Status(**self._stamp(probe), state=state, mode=mode, why=why, help=help)

    def counters(self, probe: str, values: Mapping[str, Count]) -> Counters:
        """Counters of this interval."""
        return Counters(**self._stamp(probe), interval_ns=self.interval_ns, values=dict(values))

    def table(self, probe: str, name: str, rows: Sequence[Json], full: bool, omitted: int = 0) -> Table:
        """Rows of this interval."""
        made = [Row(one["labels"], _counts(one["counts"]), one["gauges"]) for one in rows]
        return Table(
            **self._stamp(probe), name=name, interval_ns=self.interval_ns, full=full, rows=made, omitted=omitted
        )

    def ledger(self, probe: str, entries: Mapping[str, Count]) -> Cost:
        """What a probe's counts lack."""
        return Cost(**self._stamp(probe), interval_ns=self.interval_ns, ledger=dict(entries))

    def event(self, probe: str, name: str, fields: Mapping[str, Scalar]) -> Event:
        """One event of this interval."""
        return Event(**self._stamp(probe), name=name, fields=dict(fields))

    def cost(self, usage: Usage) -> Cost:
        """The last frame of the interval."""
        return Cost(**self._stamp(None), interval_ns=self.interval_ns, usage=usage)

    def _stamp(self, probe: str | None) -> _Stamp:
        return {
            "source": "console",
            "probe": probe,
            "seq": next(self._numbers),
            "mono_ns": self.mono_ns,
            "wall_ns": self.wall_ns,
        }


class Source(Protocol):
    """Reads something of this host at every interval. Used from one thread."""

    name: ClassVar[str]
    """The name of its probe: the directory of its manifest."""

    def open(self) -> None:
        """Prepare for reading. Raises SourceError."""

    def read(self, make: FrameMaker) -> list[AnyFrame]:
        """The frames of this interval. Raises SourceError; the next interval tries again."""

    def close(self) -> None:
        """Release everything."""


@runtime_checkable
class HasModes(Protocol):
    """A source that shows more in mode details. Another thread may change the mode between two readings."""

    mode: Mode


def _counts(counts: Mapping[str, Mapping[str, int]]) -> dict[str, Count]:
    return {name: Count(**one) for name, one in counts.items()}
