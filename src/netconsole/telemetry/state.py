"""The state that all frames so far add up to. Every pane, report and test reads it.

:meth:`State.apply` takes frames in the order of arrival and never fails on a valid frame. Nothing here reads a clock, a
file or the kernel. The memory is bounded, whatever the stream contains.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta, field

from netconsole.base.figure import ABOUT, AT_LEAST
from netconsole.telemetry import frames
from netconsole.telemetry.costs import ProbeCost
from netconsole.telemetry.frames import (
    MAX_SENTENCE,
    AnyFrame,
    Int,
    Labels,
    Mode,
    Name,
    Natural,
    Scalar,
    Sentence,
    SourceName,
    Text,
)
from netconsole.telemetry.ledger import UNSEEN
from netconsole.telemetry.saved import Keyed, Saved
from netconsole.telemetry.series import SAMPLES, Series, Timeline
from netconsole.telemetry.source import SourceState
from netconsole.telemetry.tables import (
    MAX_NAMES,
    CountState,
    HistogramsState,
    HistogramState,
    RowKey,
    RowState,
    TableState,
    per_second,
    row_key,
    seen_ns,
)

CostPerCount: TypeAlias = Mapping[tuple[str, Mode], tuple[str, float]]
"""By probe and mode: one of its counters, and the calibrated in-kernel ns of one count."""

MAX_PROBES = 64
UNWATCHED_AFTER = 2
"""Intervals in a row without a frame after which nobody watches a table."""
MAX_EVENTS = 500
"""Events of one probe that are kept. More than this in one interval are counted as shed."""


MAX_ANSWERS = 256
"""Of one probe that are kept."""
SEEN_INTERVALS = 30
"""Intervals over which the share of time that a probe saw is taken: the collector's longest period has as many."""


class CounterState(Saved, array_like=True):
    """A counter with its history, and the last interval with a frame of it.

    ``is_partial``: it did not count all the time (:attr:`ProbeState.seen_pct`), so its total is a lower bound.
    """

    count: CountState
    tick: Natural
    is_partial: bool = False
    before: Natural = 0
    """Its total when its probe was lost or detached: what is counted since is added to it."""

    def __post_init__(self) -> None:
        self.series = Series()
        self.read_ns = self.length_ns = 0
        """When it was read last (monotonic clock of its host), and the time that its rate is of."""

    def take(self, sent: frames.Count, frame: frames.Counters, tick: int) -> None:
        """What a frame of interval ``tick`` says of it. A source that was late has two in one interval."""
        delta, length_ns = sent.delta, seen_ns(frame)
        if self.tick == tick and frame.mono_ns > self.read_ns and None not in (delta, self.count.delta):
            delta, length_ns = (delta or 0) + (self.count.delta or 0), length_ns + self.length_ns
        rate = per_second(delta, length_ns)
        self.series.put(tick, rate)
        held = self.count.per_s if frame.seen_ns == 0 else rate
        self.count = CountState(frames.added(sent.total, self.before), delta, held)
        self.tick, self.read_ns, self.length_ns = tick, frame.mono_ns, length_ns
        self.is_partial = self.is_partial or frame.seen_ns is not None


class Answered(Saved):
    """What a host answered when it was asked about a row."""

    MOST: ClassVar = MAX_ANSWERS

    table: Name
    labels: Labels
    question: Name
    document: Annotated[dict[Name, Text | Int | float | bool | None], Meta(max_length=32)]
    error: Sentence | None = None
    at_ns: Int = 0
    """When (wall clock)."""

    @property
    def key(self) -> tuple[str, RowKey]:
        """What it is found by."""
        return self.table, row_key(self.labels)


class ProbeState(Saved):
    """Everything known of one probe. ``status`` is one of :data:`netconsole.telemetry.frames.ProbeState`."""

    name: Name
    source: SourceName
    status: frames.ProbeStatus = "off"
    mode: Mode = "summary"
    why: Sentence | None = None
    help: Sentence | None = None
    attach: Annotated[list[Text], Meta(max_length=256)] = field(default_factory=list)
    missing: Annotated[list[Text], Meta(max_length=256)] = field(default_factory=list)
    knobs: Annotated[dict[Name, Scalar], Meta(max_length=64)] = field(default_factory=dict)
    counters: Annotated[dict[Name, CounterState], Meta(max_length=MAX_NAMES)] = field(default_factory=dict)
    _tables: Keyed[str, TableState] = field(default_factory=Keyed)
    _histograms: Keyed[str, HistogramsState] = field(default_factory=Keyed)
    events_arrived: Natural = 0
    events_shed: Natural = 0
    _arrived_now: Natural = 0
    _answers: Keyed[tuple[str, RowKey], Answered] = field(default_factory=Keyed)
    cost: ProbeCost = field(default_factory=ProbeCost)

    def __post_init__(self) -> None:
        self.events: deque[frames.Event] = deque(maxlen=MAX_EVENTS)
        self.per_count: CostPerCount = {}
        self._seen: deque[tuple[int, int]] = deque(maxlen=SEEN_INTERVALS)
        self._seen_tick = 0

    def follow(self, timeline: Timeline) -> None:
        """Count intervals by the timeline of its source. Call it before anything else."""
        self.timeline: Timeline = timeline
        for table in self.tables.values():
            table.follow(timeline)
        for group in self.histograms.values():
            group.follow(timeline)

    @property
    def tables(self) -> dict[str, TableState]:
        """By name."""
        return self._tables.by_key

    @property
    def histograms(self) -> dict[str, HistogramsState]:
        """By name."""
        return self._histograms.by_key

    def answer(self, table: str, key: RowKey) -> Answered | None:
        """What the host answered about a row; None where it was not asked, or has not answered."""
        return self._answers.by_key.get((table, key))

    @property
    def kernel_cpu_pct(self) -> float | None:
        """Its in-kernel time, percent of one core: from the last window, else by calibration, else None."""
        if self.cost.measurable:
            return self.cost.kernel_cpu_pct
        known = self.per_count.get((self.name, self.mode))
        counter = self.counters.get(known[0]) if known is not None else None
        if known is None or counter is None or counter.count.per_s is None:
            return None
        # The rate is of the time that was seen. How much of the last seconds that was depends on its period.
        return counter.count.per_s * known[1] / 1e7 * self._wanted_share

    @property
    def is_calibrated(self) -> bool:
        """Whether that figure comes from calibration, because the kernel cannot measure it."""
        return not self.cost.measurable and self.kernel_cpu_pct is not None

    @property
    def measuring(self) -> bool:
        """Whether it delivers figures."""
        return self.status in ("attached", "degraded")

    @property
    def settled(self) -> bool:
        """Whether it is attached or was refused, so that there is nothing to wait for."""
        return self.status not in ("compiling", "attaching")

    @property
    def seen_pct(self) -> float | None:
        """For how many percent of the last time it was attached; None where it is all the time (the knob seen_pct)."""
        whole_ns = sum(interval_ns for _, interval_ns in self._seen)
        if not self._is_sampled or not whole_ns:
            return None
        return 100 * sum(seen for seen, _ in self._seen) / whole_ns

    @property
    def _wanted_share(self) -> float:
        """For which share of the time it is to be attached."""
        wanted = self.knobs.get("seen_pct")
        return wanted / 100 if isinstance(wanted, int) and 0 < wanted < 100 and self.mode != "counters" else 1.0

    @property
    def _is_sampled(self) -> bool:
        return self._wanted_share < 1

    def at_least(self) -> dict[str, int]:
        """Ledger entries that make this probe's counts a lower bound; empty when the counts are exact."""
        return self.cost.counts_lost()

    def is_exact(self, counter: str) -> bool:
        """Whether a counter is exact, even if rows lack ``unlisted`` counts (docs/reference/frames.md)."""
        known, lost = self.counters.get(counter), self.at_least().keys()
        is_partial = known is not None and known.is_partial and UNSEEN in lost  # since it was attached last
        return not is_partial and not lost - {"unlisted", UNSEEN}

    @property
    def lacks_now(self) -> bool:
        """Whether the rates of its rows are lower bounds, because the last interval lacks something."""
        lost = self.cost.counts_lost_now()
        return bool(lost if self.seen_pct is None else lost - {"unlisted"})  # what was not listed was not seen either

    def unwatched_since_ns(self, table: TableState) -> int | None:
        """When a table was read last (wall clock), if it is not watched now; None while it is, and if it never was."""
        return None if self.measuring and table.untold < UNWATCHED_AFTER else table.until_ns

    def total_mark(self, row: RowState, name: str) -> str:
        """What stands before a total of a row: ≥ where it is a lower bound, ≈ where it is scaled."""
        return AT_LEAST if self.at_least() else ABOUT if row.error(name) else ""

    def rate_mark(self, table: TableState) -> str:
        """The same of the rates of a table's rows."""
        return AT_LEAST if self.lacks_now else ABOUT if table.one_in > 1 else ""

    @property
    def counters_lack_now(self) -> bool:
        """The same of its counters."""
        return bool(self.cost.counts_lost_now() - {"unlisted"})

    def counter_history(self, name: str, count: int = SAMPLES) -> list[float | None]:
        """Samples per second of a counter, oldest first; None is unknown."""
        counter = self.counters.get(name)
        return [] if counter is None else counter.series.values(self.timeline, count)

    def _apply(self, frame: AnyFrame, tick: int) -> None:
        match frame:
            case frames.Status():
                if frame.knobs.get("seen_pct") != self.knobs.get("seen_pct"):
                    self._seen.clear()
                was, was_measuring = self.status, self.measuring
                self.status, self.mode, self.why = frame.state, frame.mode, frame.why
                self.help = _in_one_line(frame.help)
                self.attach, self.missing, self.knobs = frame.attach, frame.missing, frame.knobs
                is_new = frame.source == "collector" and (frame.attach or was != "failed")
                # A source that could not be read goes on where it was. Programs that failed are loaded again.
                if self.measuring and not was_measuring and is_new:
                    self._begin_again(frame.mono_ns)
            case frames.Counters():
                for name, sent in frame.values.items():
                    counter = self.counters.get(name)
                    if counter is None:
                        if len(self.counters) >= MAX_NAMES:
                            continue
                        counter = self.counters[name] = CounterState(CountState(0, None, None), tick)
                    counter.take(sent, frame, tick)
                self._see(frame, tick)
            case frames.Table():
                table = self.tables.get(frame.name)
                if table is None:
                    if len(self.tables) >= MAX_NAMES:
                        return
                    table = self.tables[frame.name] = TableState(frame.name)
                    table.follow(self.timeline)
                table.apply(frame, tick)
            case frames.Histogram():
                group = self.histograms.get(frame.name)
                if group is None:
                    if len(self.histograms) >= MAX_NAMES:
                        return
                    group = self.histograms[frame.name] = HistogramsState(frame.name)
                    group.follow(self.timeline)
                group.apply(frame, tick)
            case frames.Event():
                self.events_arrived += 1
                self._arrived_now += 1
                self.events_shed += self._arrived_now > MAX_EVENTS
                self.events.append(frame)
            case frames.Answer():
                told = Answered(frame.table, frame.labels, frame.question, frame.document, frame.error, frame.wall_ns)
                self._answers.by_key.pop(told.key, None)
                self._answers.by_key[told.key] = told
                while len(self._answers.by_key) > MAX_ANSWERS:
                    del self._answers.by_key[next(iter(self._answers.by_key))]
            case frames.Cost():
                self.cost.apply(frame, is_sampled=self._is_sampled)
            case _:
                pass

    def _see(self, frame: frames.Counters, tick: int) -> None:
        """Note how much of the interval was seen. A frame of the counters that went on may have come before."""
        if self._seen_tick == tick and self._seen:
            self._seen.pop()
        self._seen_tick = tick
        self._seen.append((seen_ns(frame), frame.interval_ns))

    def _close(self, tick: int) -> None:
        if self._seen_tick == tick and self._seen and self._seen[-1][0] == 0:
            for table in self.tables.values():
                table.hold(tick)
            for group in self.histograms.values():
                group.hold(tick)
        self._arrived_now = 0
        for counter in self.counters.values():
            if counter.tick != tick:
                counter.count.delta = counter.count.per_s = None
                counter.series.put(tick, None)
        for table in self.tables.values():
            table.close(tick)
        for group in self.histograms.values():
            if self.measuring and self.mode != "counters":
                group.close(tick)
            else:
                group.lose(tick)

    def _restart(self) -> None:
        """Its source starts again. What it has counted stays."""
        self.status, self.why, self.help = "compiling", None, None
        self._seen.clear()

    def _begin_again(self, mono_ns: int) -> None:
        """It is attached, and counts from 0. What it counted before it was lost or detached stays in its totals."""
        if not (self.counters or self.tables or self.histograms):
            return
        for counter in self.counters.values():
            counter.before, counter.is_partial = counter.count.total, True
        for table in self.tables.values():
            table.begin_again()
        for group in self.histograms.values():
            group.begin_again()
        self.cost.begin_again(mono_ns)


class State:
    """All that the applied frames add up to. Read it between intervals (``Session.view``)."""

    def __init__(self) -> None:
        self.host: frames.Host | None = None
        self.capabilities: dict[str, frames.Capability] = {}
        self.collector_info: dict[str, str | int] = {}
        self.sources: dict[SourceName, SourceState] = {"collector": SourceState(), "console": SourceState()}
        self.probes: dict[str, ProbeState] = {}
        self.first_mono_ns: int | None = None
        self.first_wall_ns: int | None = None
        self.is_far = False
        """Whether the host is another machine than the console's: then the console costs it nothing."""
        self.per_count: CostPerCount = {}
        """The cost of a count on this host, for kernels without run-time statistics."""

    @property
    def collector(self) -> SourceState:
        """The collector's stream and process."""
        return self.sources["collector"]

    @property
    def console(self) -> SourceState:
        """The console's own stream and process."""
        return self.sources["console"]

    @property
    def kernel_cpu_pct(self) -> float | None:
        """In-kernel time of all our programs, percent of one core, from the last windows; None before the first."""
        known = [pct for p in self.probes.values() if p.measuring and (pct := p.kernel_cpu_pct) is not None]
        return sum(known) if known else None

    @property
    def kernel_cpu_estimated(self) -> bool:
        """Whether that figure was scaled up from sampling windows, or comes from calibration."""
        return any(p.cost.estimated or p.is_calibrated for p in self.probes.values() if p.measuring)

    @property
    def kernel_cpu_calibrated(self) -> bool:
        """Whether part of that figure comes from calibration."""
        return any(probe.is_calibrated for probe in self.probes.values() if probe.measuring)

    @property
    def machine_cpu_pct(self) -> float | None:
        """Busy share of the whole machine in percent of all its CPUs, from the self_cost source; None if unknown."""
        return next((row.gauges.get("machine_cpu_pct") for row in self.rows("self_cost", "machine")), None)

    def table(self, probe: str, name: str) -> TableState | None:
        """A table of a probe; None where there is none."""
        known = self.probes.get(probe)
        return known.tables.get(name) if known is not None else None

    def rows(self, probe: str, table: str) -> Collection[RowState]:
        """The rows of a table of a probe."""
        known = self.table(probe, table)
        return known.rows.values() if known is not None else ()

    def row(self, probe: str, table: str, key: RowKey) -> RowState | None:
        """A row of a table of a probe; None where there is none."""
        known = self.table(probe, table)
        return known.rows.get(key) if known is not None else None

    def histogram(self, probe: str, name: str, key: RowKey) -> HistogramState | None:
        """A histogram of a probe with exactly these labels; None where there is none."""
        known = self.probes.get(probe)
        group = known.histograms.get(name) if known is not None else None
        return group.rows.get(key) if group is not None else None

    @property
    def elapsed_s(self) -> float | None:
        """From the first frame to the last whole interval; None before that."""
        closed = [s.closed_mono_ns for s in self.sources.values() if s.closed_mono_ns is not None]
        if self.first_mono_ns is None or not closed:
            return None
        return max(0.0, (max(closed) - self.first_mono_ns) / 1e9)

    def age_s(self, now_mono_ns: int) -> float | None:
        """How old the collector's figures are, given the measured host's monotonic clock; None before the first."""
        closed = self.collector.closed_mono_ns
        return None if closed is None else max(0.0, (now_mono_ns - closed) / 1e9)

    def ledger_totals(self) -> dict[str, int]:
        """The sums of all ledgers, including events that the display shed; only entries that are not 0."""
        totals: dict[str, int] = {}
        for probe in self.probes.values():
            for name, count in probe.cost.ledger.items():
                totals[name] = totals.get(name, 0) + count.total
            totals["shed"] = totals.get("shed", 0) + probe.events_shed
        return {name: total for name, total in totals.items() if total}

    def apply(self, frame: AnyFrame) -> bool:
        """Apply one frame. True when it ended an interval of its source: only then is the state complete."""
        source = self.sources[frame.source]
        if self.first_mono_ns is None:
            self.first_mono_ns, self.first_wall_ns = frame.mono_ns, frame.wall_ns
        if isinstance(frame, frames.Hello):
            self._hello(frame, source)
        source.number(frame.seq)
        if isinstance(frame, frames.Bye):
            source.bye = frame.why
        if isinstance(frame, (frames.Counters, frames.Table, frames.Histogram, frames.Cost)):
            source.intervals_missed += source.timeline.begin(frame.mono_ns, frame.interval_ns)
        if frame.probe is not None and not isinstance(frame, frames.Action):  # an action's probe may never have run
            probe = self._probe(frame)
            if probe is not None:
                probe._apply(frame, source.timeline.tick + 1)
            if isinstance(frame, frames.Status):
                for one in self.sources.values():
                    one.mark_unsteady()
            return False
        if isinstance(frame, frames.Cost):
            self._close(frame, source)
            return True
        return False

    def _probe(self, frame: AnyFrame) -> ProbeState | None:
        name = frame.probe or ""
        probe = self.probes.get(name)
        if probe is None and len(self.probes) < MAX_PROBES:
            probe = self.probes[name] = ProbeState(name, frame.source)
            probe.follow(self.sources[frame.source].timeline)
            probe.per_count = self.per_count
        is_told_of = isinstance(frame, (frames.Status, frames.Answer)) and frame.source == "console"
        if probe is not None and probe.source != frame.source and not is_told_of:
            # The console may report that a collector's probe is lost, but the probe keeps the collector's clock.
            probe.source = frame.source
            probe.follow(self.sources[frame.source].timeline)
        return probe

    def _hello(self, frame: frames.Hello, source: SourceState) -> None:
        if self.host is not None:
            source.restart()
            source.restarts += 1
            for probe in self.probes.values():
                if probe.source == frame.source:
                    probe._restart()
        self.host, self.capabilities, self.collector_info = frame.host, frame.capabilities, frame.collector

    def _close(self, frame: frames.Cost, source: SourceState) -> None:
        tick = source.timeline.tick + 1
        if not all(probe.settled for probe in self.probes.values()):
            source.mark_unsteady()
        source.use(frame, tick)
        for probe in self.probes.values():
            if probe.source == frame.source:
                probe._close(tick)
        source.close(frame)


def _in_one_line(help: str | None) -> str | None:
    """What would help, where there is no place for its commands (netconsole_collector/compile/type_files.py)."""
    first, is_longer, _ = (help or "").partition("\n")
    return f"netconsole doctor has the commands: {first.rstrip(':')}"[:MAX_SENTENCE] if is_longer else help
