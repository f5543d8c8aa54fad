"""A collector under test: a real process, its frames added up to totals, and a way to wait until they are complete."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

import pytest

from netconsole.base.paths import measuring_command
from netconsole.host.collector_process import CollectorProcess
from netconsole.probes import catalogue
from netconsole.probes.manifest import Manifest
from netconsole.telemetry import frames
from tests.support.live.network import IS_EMULATED, Namespace

CHECKOUT = Path(__file__).resolve().parents[3]
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or "python3"
LIMIT_S = 120.0
"""No event that is awaited takes so long."""
INTERVAL_MS = 100 if IS_EMULATED else 50
"""An emulated machine would do little else."""
SEEN = 0.9
"""Kernels exist, the one of CI among them, that run no BPF program while a thread of init is on the CPU, whatever it is
attached to: packets of a timer or softirq that comes just then are in no probe's counts. So much at least is seen of
what takes longer; what is over in a moment is counted exactly, at the second attempt if need be (conftest.py), and what
waits in a queue by a sender that keeps init away (LINGER of network.py)."""

Labels = Mapping[str, frames.Label]
Result = TypeVar("Result")
RowKey: TypeAlias = frozenset[tuple[str, frames.Label]]


@dataclass(frozen=True)
class Row:
    """A row of a table that changed since :meth:`Measurement.begin`, with what was added since."""

    labels: Labels
    counts: Mapping[str, int]
    gauges: Mapping[str, int | float | None]


@functools.cache
def manifest_of(probe: str) -> Manifest:
    """The shipped probe's; read once, because in the lab that takes a tenth of a second."""
    return catalogue.shipped(probe)


MUST_LOAD = "NETCONSOLE_PROBES_MUST_LOAD"
"""Set in the lab, whose kernels can have each probe (tests/lab/console/references)."""


class Measurement:
    """One collector. What it says was counted since :meth:`begin`, and is whole after :meth:`settle`."""

    limit_s = LIMIT_S

    def __init__(self, interval_ms: int = INTERVAL_MS, inside: Namespace | None = None) -> None:
        """``inside``: a network namespace that the collector is in."""
        self._enter = [] if inside is None else ["nsenter", f"--net=/run/netns/{inside.name}"]
        self._process = self.start()
        self._changed = threading.Condition(threading.RLock())
        self._ids = itertools.count(1)
        self._replies: dict[int, frames.Reply] = {}
        self._ended: str | None = None
        self._begun_ns: int | None = None
        """When the reading began whose frames are coming."""
        self._whole_ns = 0
        """Figures were read after this."""
        self._counters: dict[tuple[str, str], int] = {}
        self._rows: dict[tuple[str, str], dict[RowKey, frames.Row]] = {}
        self._histograms: dict[tuple[str, str], dict[RowKey, frames.Histogram]] = {}
        self._costs: dict[str, frames.Cost] = {}
        self._before: dict[tuple[object, ...], int] = {}
        self.statuses: dict[str, frames.Status] = {}
        self.events: list[frames.Event] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        self.command(command="interval", ms=interval_ms)

    # ---- where it runs: the lab has it elsewhere ----

    def start(self) -> CollectorProcess:
        return CollectorProcess([*self._enter, *measuring_command()])

    @property
    def pid(self) -> int:
        """Of the collector."""
        return self._process.pid

    def clock_ns(self) -> int:
        """The monotonic clock of the measured host."""
        return time.monotonic_ns()

    # ---- commands ----

    def load(self, name: str, mode: str = "summary", /, **knobs: frames.Scalar) -> None:
        """Load a probe; skips the test when this kernel cannot have it, fails it when it could not be loaded."""
        manifest = manifest_of(name)
        self._forget(name)
        reply = self.command(
            command="load",
            probe=name,
            spec=manifest.raw,
            source=manifest.code(),
            mode=mode,
            knobs={**manifest.knobs, **knobs},
        )
        status = self.statuses.get(name)  # none when the command itself was refused
        if not reply.ok and status is not None and status.state == "unsupported" and self.may_lack(name):
            pytest.skip(f"cannot run here: {reply.error}")
        assert reply.ok, reply.error

    def may_lack(self, name: str) -> bool:
        """Whether this kernel may be one that cannot have the probe."""
        del name
        return MUST_LOAD not in os.environ

    def set(self, name: str, mode: str = "summary", /, **knobs: frames.Scalar) -> None:
        """Change mode and knobs of the running probe; knobs that are not named go back to their defaults."""
        defaults = manifest_of(name).knobs
        reply = self.command(command="set", probe=name, mode=mode, knobs={**defaults, **knobs})
        assert reply.ok, reply.error

    def command(self, **command: object) -> frames.Reply:
        """Send one command and await its reply."""
        number = next(self._ids)
        self._process.send({"id": number, **command})
        return self._await(lambda: self._replies.get(number), f"a reply to {command['command']}")

    def statistics(self, window_ms: int) -> None:
        """The kernel's run-time statistics of programs: always on, told once in so long, or off with 0."""
        self.command(command="statistics", window_ms=window_ms, every_ms=max(window_ms, 1))

    def settle(self) -> None:
        """Await frames that were read after now: what happened until now is in them."""
        now = self.clock_ns()
        self._await(lambda: self._whole_ns > now or None, "a whole interval")

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Await frames with which this is true."""
        deadline = time.monotonic() + self.limit_s
        while not true():
            assert time.monotonic() < deadline, f"{what} did not come in {self.limit_s:g} s"
            self.settle()

    def begin(self) -> None:
        """From here on, counts are those that are added."""
        self.settle()
        with self._changed:
            self._before = self._totals()
            self.events.clear()

    def close(self) -> None:
        self._process.close()

    # ---- what was measured ----

    def counter(self, probe: str, name: str) -> int:
        return self._since(("counter", probe, name))

    def rows(self, probe: str, table: str, /, **labels: frames.Label) -> list[Row]:
        """Rows that changed and have these labels."""
        with self._changed:
            rows = list(self._rows.get((probe, table), {}).items())
            totals = self._totals()  # once: there may be thousands of rows
        found = []
        for key, row in rows:
            if not labels.items() <= row.labels.items():
                continue
            places = {name: ("row", probe, table, key, name) for name in row.counts}
            counts = {name: totals.get(place, 0) - self._before.get(place, 0) for name, place in places.items()}
            if any(counts.values()):
                found.append(Row(row.labels, counts, row.gauges))
        return found

    def all_rows(self, probe: str, table: str, /, **labels: frames.Label) -> list[frames.Row]:
        """As they were read last, also those that did not change."""
        with self._changed:
            return [row for row in self._rows.get((probe, table), {}).values() if labels.items() <= row.labels.items()]

    def total(self, probe: str, table: str, value: str = "count", /, **labels: frames.Label) -> int:
        """The sum of a value over the rows that have these labels."""
        return sum(row.counts[value] for row in self.rows(probe, table, **labels))

    def histograms(self, probe: str, name: str, /, **labels: frames.Label) -> list[frames.Histogram]:
        """Since they were loaded, not since :meth:`begin`."""
        with self._changed:
            found = list(self._histograms.get((probe, name), {}).values())
        return [one for one in found if labels.items() <= one.labels.items()]

    def samples(self, probe: str, name: str, /, **labels: frames.Label) -> int:
        """How many values the histograms with these labels took since :meth:`begin`."""
        found = self.histograms(probe, name, **labels)
        return sum(self._since(("histogram", probe, name, frozenset(one.labels.items()))) for one in found)

    def ledger(self, probe: str, entry: str) -> int:
        return self._since(("ledger", probe, entry))

    def event_count(self, probe: str, what: str) -> int:
        """seen, submitted, suppressed or lost."""
        return self._since(("events", probe, what))

    def cost(self, probe: str) -> frames.Cost:
        with self._changed:
            return self._costs[probe]

    def _since(self, key: tuple[object, ...]) -> int:
        with self._changed:
            return self._totals().get(key, 0) - self._before.get(key, 0)

    def _totals(self) -> dict[tuple[object, ...], int]:
        found: dict[tuple[object, ...], int] = {("counter", *key): total for key, total in self._counters.items()}
        for (probe, table), rows in self._rows.items():
            for key, row in rows.items():
                found.update({("row", probe, table, key, name): count.total for name, count in row.counts.items()})
        for (probe, table), histograms in self._histograms.items():
            for key, one in histograms.items():
                found["histogram", probe, table, key] = one.total.count
        for probe, cost in self._costs.items():
            found.update({("ledger", probe, name): count.total for name, count in cost.ledger.items()})
            found.update({("events", probe, name): count.total for name, count in cost.events.items()})
        return found

    # ---- the reading thread ----

    def _forget(self, probe: str) -> None:
        """Its figures begin anew when it is loaded: what it had counted before would be missing in them."""
        with self._changed:
            self._costs.pop(probe, None)
            for kept in (self._counters, self._rows, self._histograms):
                for key in [key for key in kept if key[0] == probe]:
                    del kept[key]

    def _read(self) -> None:
        for frame in self._process.frames():
            with self._changed:
                self._fold(frame)
                self._changed.notify_all()
        with self._changed:
            self._ended = self._process.why()
            self._changed.notify_all()

    def _fold(self, frame: frames.AnyFrame) -> None:
        probe = frame.probe or ""
        if isinstance(frame, frames.Reply):
            self._replies[frame.id] = frame
            return
        if isinstance(frame, frames.Status):
            self.statuses[probe] = frame
            return
        if self._begun_ns is None:  # a frame of figures has the time before they were read
            self._begun_ns = frame.mono_ns
        if isinstance(frame, frames.Counters):
            self._counters.update({(probe, name): count.total for name, count in frame.values.items()})
        elif isinstance(frame, frames.Table):
            rows = {frozenset(row.labels.items()): row for row in frame.rows}
            known = self._rows.get((probe, frame.name), {})
            if frame.full:
                for new in rows.keys() - known.keys():
                    self._rename(("row", probe, frame.name), known.keys() - rows.keys(), new)
            self._rows[probe, frame.name] = rows if frame.full else {**known, **rows}
        elif isinstance(frame, frames.Histogram):
            key, known_ones = frozenset(frame.labels.items()), self._histograms.setdefault((probe, frame.name), {})
            if key not in known_ones:
                for old in [old for old in known_ones if _is_renamed(old, key)]:
                    del known_ones[old]
                    before = self._before.pop(("histogram", probe, frame.name, old), 0)
                    self._before["histogram", probe, frame.name, key] = before
            known_ones[key] = frame
        elif isinstance(frame, frames.Event):
            self.events.append(frame)
        elif isinstance(frame, frames.Cost):
            self._costs[probe] = frame
            if frame.probe is None:  # it ends the frames of an interval
                self._whole_ns, self._begun_ns = self._begun_ns, None

    def _rename(self, table: tuple[str, str, str], gone: AbstractSet[RowKey], new: RowKey) -> None:
        """A label has become known (the process of a socket): what the row had in begin() it has not got since."""
        for old in gone:
            if _is_renamed(old, new):
                for place in [place for place in self._before if place[:4] == (*table, old)]:
                    renamed = (*table, new, place[4])
                    self._before[renamed] = self._before.pop(place)

    def _await(self, found: Callable[[], Result | None], what: str) -> Result:
        deadline = time.monotonic() + self.limit_s
        with self._changed:
            while (result := found()) is None:
                assert self._ended is None, f"the collector ended: {self._ended}"
                assert self._changed.wait(deadline - time.monotonic()), f"{what} did not come in {self.limit_s:g} s"
            return result


def _is_renamed(old: RowKey, new: RowKey) -> bool:
    """Whether a label that was not known has become known, such as the VM of a tap."""
    return old != new and all(value is None or (name, value) in new for name, value in old)
