"""Runs the collector for a calibration, with the probes of one treatment or without any."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from netconsole.base.errors import Unable
from netconsole.base.figure import safe
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.host.collector_process import CollectorGone
from netconsole.host.door import collector_for_session
from netconsole.telemetry import frames
from netconsole.telemetry.request import ProbeRequest
from netconsole.telemetry.tables import RowKey, row_key
from netconsole_collector.compile.refused import TRY_PLAIN
from netconsole_collector.kernel import usage

LIMIT_S = 60.0
"""How long to wait for an answer, such as that a probe is attached."""
INTERVAL_MS = 1000
"""The same as in a session."""
_QUICK_MS = 50
"""The interval while run times are measured, so that the frames of a stretch come at once, not after a second."""

Found = TypeVar("Found")


@dataclass(slots=True)
class ProgramRuns:
    """Runs of one program and the time that they took."""

    attach: str
    run_count: int = 0
    run_time_ns: int = 0


@dataclass(slots=True)
class Runs:
    """What ran in the kernel during a stretch: programs by probe and name, and what the probes counted meanwhile."""

    programs: dict[tuple[str, str], ProgramRuns] = field(default_factory=dict)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    measured: bool = False
    """False where the kernel has no run-time statistics."""
    rows: dict[tuple[str, str, RowKey], int] = field(default_factory=dict)
    """By probe, table and labels: what the first value of a row grew by."""
    elapsed_ns: dict[str, int] = field(default_factory=dict)
    """By probe: length of the measured intervals."""


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """What the collector's process used so far, as pidstat shows it."""

    cpu_s: float
    written_bytes: int
    pss_kb: int | None


class Tool:
    """One collector. Raises Unable when it cannot start, or when a probe cannot be attached."""

    def __init__(self, host: AnyHost = THIS_HOST) -> None:
        self._host = host
        try:
            self._process = collector_for_session(host)
        except CollectorGone as error:
            raise Unable(str(error)) from None
        self._ids = itertools.count(1)
        self._changed = threading.Condition()
        self._replies: dict[int, frames.Reply] = {}
        self._runs: Runs | None = None
        self._ended = False
        self._closed_ns = 0
        self._used_ns = 0
        self._pss_kb: int | None = None
        threading.Thread(target=self._read, name="calibrate", daemon=True).start()
        self._command(command="statistics", window_ms=0, every_ms=1)

    def __enter__(self) -> Tool:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def attach(self, request: ProbeRequest) -> None:
        """Compile and attach a probe."""
        try:
            self._load(request)
        except _Refused as error:
            if error.why != TRY_PLAIN:
                raise
            self._load(request, is_plain=True)

    def _load(self, request: ProbeRequest, is_plain: bool = False) -> None:
        self._command(
            command="load",
            probe=request.name,
            spec=request.spec,
            mode=request.mode,
            knobs=dict(request.knobs),
            **self._programs(request, is_plain),
        )

    def _programs(self, request: ProbeRequest, is_plain: bool) -> dict[str, object]:
        """What the collector compiles, or what was compiled here for a far host."""
        compiler = self._host.compiler
        if compiler is None:
            return {"source": request.code}
        return compiler.prepare(request.spec, request.code, is_plain)

    def detach(self, name: str) -> None:
        """Detach a probe."""
        self._command(command="unload", probe=name)

    @contextlib.contextmanager
    def run_times(self) -> Iterator[Runs]:
        """Run counts, run times and counters of what happens inside the ``with``; complete when it has ended."""
        self._command(command="interval", ms=_QUICK_MS)
        self._interval()
        runs = Runs()
        self._command(command="statistics", window_ms=_QUICK_MS, every_ms=_QUICK_MS)  # always on
        with self._changed:
            self._runs = runs
        try:
            yield runs
            self._command(command="statistics", window_ms=0, every_ms=1)
            self._interval()
        finally:
            with self._changed:
                self._runs = None
        self._command(command="interval", ms=INTERVAL_MS)

    def usage(self) -> ProcessUsage:
        """CPU, memory and output of the collector. A far one tells them itself, of the intervals that have ended."""
        if self._host.address is not None:
            with self._changed:
                return ProcessUsage(self._used_ns / 1e9, self._process.received_bytes, self._pss_kb)
        pid = self._process.pid
        return ProcessUsage(usage.cpu_ns(pid) / 1e9, self._process.received_bytes, usage.pss_kb(pid))

    # ---- commands and frames ----

    def _command(self, **command: object) -> None:
        number = next(self._ids)
        try:
            self._process.send({"id": number, **command})
        except CollectorGone as error:
            raise Unable(str(error)) from None
        reply = self._await(lambda: self._replies.pop(number, None), str(command["command"]))
        if not reply.ok:
            probe = f"{command['probe']}: " if "probe" in command else ""
            raise _Refused(probe, reply.error or "refused without a reason")

    def _interval(self) -> None:
        """Wait for the end of an interval that begins after now."""
        for _ in range(2):
            before = self._closed_ns
            self._await(lambda before=before: self._closed_ns > before or None, "an interval")  # type: ignore[misc]

    def _await(self, found: Callable[[], Found | None], what: str) -> Found:
        result: list[Found] = []

        def ready() -> bool:
            now = found()
            if now is not None:
                result.append(now)
            return bool(result) or self._ended

        with self._changed:
            self._changed.wait_for(ready, LIMIT_S)
        if not result:
            why = self._process.why() if self._ended else f"no answer in {LIMIT_S:g} s"
            raise Unable(f"the collector: {what}: {why}")
        return result[0]

    def _read(self) -> None:
        for frame in self._process.frames():
            with self._changed:
                self._take(frame)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _take(self, frame: frames.AnyFrame) -> None:
        if isinstance(frame, frames.Reply):
            self._replies[frame.id] = frame
        elif isinstance(frame, frames.Cost) and frame.probe is None:
            self._closed_ns = frame.mono_ns
            if frame.usage is not None:
                self._used_ns += frame.usage.cpu_ns or 0
                self._pss_kb = frame.usage.pss_kb
        elif self._runs is not None and frame.probe is not None:
            if isinstance(frame, frames.Cost):
                _add_programs(self._runs, frame.probe, frame)
            elif isinstance(frame, frames.Counters):
                _add_counts(self._runs.counts, frame.probe, frame.values)
            elif isinstance(frame, frames.Table):
                _add_rows(self._runs.rows, frame.probe, frame)


class _Refused(Unable):
    """The collector does not do it. ``why`` is its own word."""

    def __init__(self, probe: str, why: str) -> None:
        super().__init__(f"{probe}{safe(why, 300)}; netconsole doctor says more")
        self.why = why


def _add_programs(runs: Runs, probe: str, frame: frames.Cost) -> None:
    runs.measured = runs.measured or frame.statistics is not None
    runs.elapsed_ns[probe] = runs.elapsed_ns.get(probe, 0) + frame.interval_ns
    for sent in frame.programs:
        program = runs.programs.setdefault((probe, sent.name), ProgramRuns(sent.attach))
        program.run_count += sent.run_count
        program.run_time_ns += sent.run_time_ns


def _add_counts(counts: dict[tuple[str, str], int], probe: str, values: Mapping[str, frames.Count]) -> None:
    for name, count in values.items():
        counts[probe, name] = counts.get((probe, name), 0) + count.delta


def _add_rows(rows: dict[tuple[str, str, RowKey], int], probe: str, frame: frames.Table) -> None:
    for row in frame.rows:
        key = (probe, frame.name, row_key(row.labels))
        rows[key] = rows.get(key, 0) + next(iter(row.counts.values())).delta
