"""The cost of a probe (run time of each program), and its ledger of losses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar

from msgspec import Meta, field

from netconsole.telemetry import frames
from netconsole.telemetry.frames import Count, Int, Name, Natural, Text
from netconsole.telemetry.ledger import LEDGER_COUNTS, LEDGER_ESTIMATED, LEDGER_SAMPLES, UNSEEN
from netconsole.telemetry.saved import Keyed, Saved, SavedValues

MAX_PROGRAMS = 64
UNSEEN_NS = {"raw_tracepoint": 30, "fentry": 35, "fexit": 60, "kprobe": 90, "kretprobe": 155}
"""What a run costs beyond what the kernel's statistics say of it, by the kind of its hook: an estimate
(docs/design/overhead.md)."""


class ProgramCost(SavedValues):
    """One BPF program. Sums are of what was measured: of statistics windows, or of the periods of a sampled probe.

    Those called ``whole_…`` are of all the time, as far as there are figures: each stands for the time since the one
    before. So figures of short windows and of long periods count alike.
    """

    MOST: ClassVar = MAX_PROGRAMS

    name: Name
    attach: Text
    window_ns: Natural = 0
    run_count: Natural = 0
    run_time_ns: Natural = 0
    missed: Natural | None = None
    last_ns_per_run: float | None = None
    last_cpu_pct: float | None = None
    whole_ns: Natural = 0
    whole_count: Natural = 0
    whole_time_ns: Natural = 0

    @property
    def key(self) -> str:
        """What it is found by."""
        return self.name

    @property
    def ns_per_run(self) -> float | None:
        """Mean time of a run over all windows; None while none ran in a window."""
        return self.run_time_ns / self.run_count if self.run_count else None

    @property
    def cpu_pct(self) -> float | None:
        """Share of one core so far, calling it included, in percent; None before the first window."""
        return self._pct(self.whole_count, self.whole_time_ns, self.whole_ns) if self.whole_ns else None

    @property
    def runs_per_s(self) -> float | None:
        """So far; None before the first window."""
        return self.whole_count * 1e9 / self.whole_ns if self.whole_ns else None

    def apply(self, sent: frames.Program, window_ns: int, stands_for_ns: int) -> None:
        """Take over the figures of a window, which stand for a longer time; one of 0 has none."""
        self.attach, self.missed = sent.attach, sent.missed
        if window_ns > 0:
            self.window_ns = frames.added(self.window_ns, window_ns)
            self.run_count = frames.added(self.run_count, sent.run_count)
            self.run_time_ns = frames.added(self.run_time_ns, sent.run_time_ns)
            self.last_ns_per_run = sent.run_time_ns / sent.run_count if sent.run_count else None
            self.last_cpu_pct = self._pct(sent.run_count, sent.run_time_ns, window_ns)
            self.whole_ns = frames.added(self.whole_ns, stands_for_ns)
            self.whole_count = frames.added(self.whole_count, sent.run_count * stands_for_ns // window_ns)
            self.whole_time_ns = frames.added(self.whole_time_ns, sent.run_time_ns * stands_for_ns // window_ns)

    def stand_for(self, ns: int) -> None:
        """Let its sums stand for this time."""
        self.whole_ns = ns
        self.whole_count = frames.added(0, self.run_count * ns // self.window_ns)
        self.whole_time_ns = frames.added(0, self.run_time_ns * ns // self.window_ns)

    def _pct(self, runs: int, time_ns: int, window_ns: int) -> float:
        unseen_ns = runs * UNSEEN_NS.get(self.attach.partition(":")[0], 0)
        return 100 * (time_ns + unseen_ns) / window_ns


class ProbeCost(Saved):
    """The cost and the ledger of one probe. ``estimated``: the figure was measured in windows and scaled up."""

    _programs: Keyed[str, ProgramCost] = field(default_factory=Keyed)
    estimated: bool = False
    elapsed_ns: Natural = 0
    kernel_cpu_pct: float | None = None
    """In-kernel time in the last statistics window, calling the programs included, in percent of one core; None before
    the first window."""
    maps_kb: Natural | None = None
    events: Annotated[dict[Name, Count], Meta(max_length=64)] = field(default_factory=dict)
    ledger: Annotated[dict[Name, Count], Meta(max_length=64)] = field(default_factory=dict)
    measurable: bool = True
    """Whether the kernel measures run times, as far as is known."""
    figures_until_ns: Natural = 0
    """``elapsed_ns`` at the last figure."""
    windows_ns: Natural = 0
    """For how long the statistics were on for it, while it was not sampled; and of which time."""
    windows_of_ns: Natural = 0
    read_mono_ns: Int | None = None
    """When the probe was read last (CLOCK_MONOTONIC of the measured host)."""
    events_before: Annotated[dict[Name, Natural], Meta(max_length=64)] = field(default_factory=dict)
    ledger_before: Annotated[dict[Name, Natural], Meta(max_length=64)] = field(default_factory=dict)
    """Totals when the probe was lost or detached: what is counted since is added to them."""

    def __post_init__(self) -> None:
        if not self.figures_until_ns:  # saved by a version that knew windows alone: they stand for all time until then
            for program in self.programs.values():
                if program.window_ns:
                    program.stand_for(self.elapsed_ns)
                    self.figures_until_ns = self.elapsed_ns

    @property
    def programs(self) -> dict[str, ProgramCost]:
        """By name."""
        return self._programs.by_key

    def apply(self, frame: frames.Cost, is_sampled: bool = False) -> None:
        """Take over the cost frame of a probe. ``is_sampled``: its programs are attached for a share of the time."""
        self.elapsed_ns = frames.added(self.elapsed_ns, frame.interval_ns)
        self.read_mono_ns = frame.mono_ns
        self.maps_kb = frame.maps_kb
        self.events = _together(self.events_before, frame.events)
        self.ledger = _together(self.ledger_before, frame.ledger)
        self.measurable = frame.statistics is not None
        window_ns = frame.statistics.window_ns if frame.statistics else 0
        if not is_sampled:  # the window of one that is sampled is its whole period
            self.windows_ns = frames.added(self.windows_ns, window_ns)
            self.windows_of_ns = frames.added(self.windows_of_ns, frame.interval_ns)
        stands_for_ns = self.elapsed_ns - self.figures_until_ns
        if window_ns > 0:
            self.figures_until_ns = self.elapsed_ns
        total: float | None = None
        for sent in frame.programs[:MAX_PROGRAMS]:
            program = self.programs.setdefault(sent.name, ProgramCost(sent.name, sent.attach))
            program.apply(sent, window_ns, stands_for_ns)
            if window_ns > 0:
                total = (total or 0.0) + (program.last_cpu_pct or 0.0)
        if frame.statistics is not None and window_ns > 0:
            self.estimated = frame.statistics.estimated or window_ns < frame.statistics.interval_ns
            self.kernel_cpu_pct = total or 0.0

    def begin_again(self, at_mono_ns: int) -> None:
        """The probe counts from 0 again at this time. Since it was read last, nobody has watched."""
        away_ms = max(0, at_mono_ns - (self.read_mono_ns or at_mono_ns)) // 1_000_000
        self.events_before = {name: count.total for name, count in self.events.items()}
        self.ledger_before = {name: count.total for name, count in self.ledger.items()}
        self.ledger_before[UNSEEN] = frames.added(self.ledger_before.get(UNSEEN, 0), away_ms)

    def sums(self) -> dict[str, tuple[int, int, int]]:
        """By program: ns that its figures stand for, runs in them, and run time. Subtract two for a period of time."""
        return {name: (p.whole_ns, p.whole_count, p.whole_time_ns) for name, p in self.programs.items()}

    def counts_lost(self) -> dict[str, int]:
        """Ledger entries, if any, that make the probe's counts a lower bound (≥)."""
        return self._entries(LEDGER_COUNTS)

    def counts_lost_now(self) -> set[str]:
        """Ledger entries that make the counts of the last interval a lower bound. An unknown one counts as one."""
        return {
            name for name in LEDGER_COUNTS if name != UNSEEN and name in self.ledger and self.ledger[name].delta != 0
        }

    def estimated_counts(self) -> dict[str, int]:
        """Ledger entries, if any, that show that rows are scaled (≈)."""
        return self._entries(LEDGER_ESTIMATED)

    @property
    def unmeasured(self) -> int:
        """Counted in the last interval but in no histogram, to save cost (docs/reference/frames.md)."""
        entry = self.ledger.get("unmeasured")
        return entry.delta if entry else 0

    def samples_lost(self) -> dict[str, int]:
        """Ledger entries, if any, that show that the probe's events are only a sample."""
        return self._entries(LEDGER_SAMPLES)

    def _entries(self, names: Iterable[str]) -> dict[str, int]:
        return {name: self.ledger[name].total for name in names if name in self.ledger and self.ledger[name].total}


def _together(before: Mapping[str, int], sent: dict[str, Count]) -> dict[str, Count]:
    if not before:
        return sent
    kept = {name: Count(delta=0, total=total) for name, total in before.items()}
    return kept | {name: Count(one.delta, frames.added(one.total, before.get(name, 0))) for name, one in sent.items()}
