"""What watching costs and what it missed: run time of each program, memory and CPU of our processes, the ledger."""

from __future__ import annotations

from dataclasses import dataclass, field

from netconsole.telemetry import frames
from netconsole.telemetry.frames import LEDGER_COUNTS, LEDGER_SAMPLES, Count
from netconsole.telemetry.series import Series, Timeline

MAX_PROGRAMS = 64


@dataclass(slots=True)
class ProgramCost:
    """One BPF program. Sums are of the statistics windows alone; ``scaled`` figures are for the whole time."""

    name: str
    attach: str
    window_ns: int = 0
    run_count: int = 0
    run_time_ns: int = 0
    missed: int | None = None
    last_ns_per_run: float | None = None
    last_cpu_pct: float | None = None

    @property
    def ns_per_run(self) -> float | None:
        """Mean time of a run over all windows; None while none ran in a window."""
        return self.run_time_ns / self.run_count if self.run_count else None

    @property
    def cpu_pct(self) -> float | None:
        """Share of one core over all windows, in percent; None before the first window."""
        return 100 * self.run_time_ns / self.window_ns if self.window_ns else None


@dataclass(slots=True)
class ProbeCost:
    """The cost and the loss ledger of one probe. ``estimated``: measured in windows and scaled up."""

    programs: dict[str, ProgramCost] = field(default_factory=dict)
    estimated: bool = False
    elapsed_ns: int = 0
    kernel_cpu_pct: float | None = None
    """In-kernel time in the last statistics window, in percent of one core; None before the first window."""
    maps_kb: int | None = None
    events: dict[str, Count] = field(default_factory=dict)
    ledger: dict[str, Count] = field(default_factory=dict)
    measurable: bool = True
    """Whether the kernel tells run times at all, as far as is known."""

    def apply(self, frame: frames.Cost) -> None:
        """Take over the cost frame of a probe."""
        self.elapsed_ns += frame.interval_ns
        self.maps_kb = frame.maps_kb
        self.events = frame.events
        self.ledger = frame.ledger
        self.measurable = frame.statistics is not None
        window_ns = frame.statistics.window_ns if frame.statistics else 0
        total: float | None = None
        for sent in frame.programs[:MAX_PROGRAMS]:
            program = self.programs.setdefault(sent.name, ProgramCost(sent.name, sent.attach))
            program.attach, program.missed = sent.attach, sent.missed
            if window_ns > 0:
                program.window_ns += window_ns
                program.run_count += sent.run_count
                program.run_time_ns += sent.run_time_ns
                program.last_ns_per_run = sent.run_time_ns / sent.run_count if sent.run_count else None
                program.last_cpu_pct = 100 * sent.run_time_ns / window_ns
                total = (total or 0.0) + program.last_cpu_pct
        if frame.statistics is not None and window_ns > 0:
            self.estimated = frame.statistics.estimated or window_ns < frame.statistics.interval_ns
            self.kernel_cpu_pct = total or 0.0

    def sums(self) -> dict[str, tuple[int, int, int]]:
        """By program: ns of all windows, and runs and run time in them. Differences of two are a stretch of time."""
        return {name: (p.window_ns, p.run_count, p.run_time_ns) for name, p in self.programs.items()}

    def counts_lost(self) -> dict[str, int]:
        """Ledger entries, if any, that make the probe's counts a lower bound (≥)."""
        return self._entries(LEDGER_COUNTS)

    @property
    def unmeasured(self) -> int:
        """What was counted in the last interval but is in no histogram, to save cost (docs/reference/frames.md)."""
        entry = self.ledger.get("unmeasured")
        return entry.delta if entry else 0

    def samples_lost(self) -> dict[str, int]:
        """Ledger entries, if any, that make the probe's events a share of what happened."""
        return self._entries(LEDGER_SAMPLES)

    def _entries(self, names: tuple[str, ...]) -> dict[str, int]:
        return {name: self.ledger[name].total for name in names if name in self.ledger and self.ledger[name].total}


@dataclass(slots=True)
class UsageState:
    """CPU and memory of one of our processes. Percent of one core; None where the host does not tell."""

    cpu_pct: float | None = None
    cpu_ns: int = 0
    """CPU time in all since this state began."""
    rss_kb: int | None = None
    pss_kb: int | None = None
    history: Series = field(default_factory=Series)

    def apply(self, frame: frames.Cost, tick: int) -> None:
        """Take over the usage of a process."""
        usage = frame.usage
        if usage is None:
            self.cpu_pct = None
            return
        self.rss_kb, self.pss_kb = usage.rss_kb, usage.pss_kb
        self.cpu_pct = None
        if usage.cpu_ns is not None and frame.interval_ns > 0:
            self.cpu_pct = 100 * usage.cpu_ns / frame.interval_ns
            self.cpu_ns += usage.cpu_ns
        self.history.put(tick, self.cpu_pct)

    def cpu_history(self, timeline: Timeline, count: int) -> list[float | None]:
        """Percent of one core, oldest first; None is unknown."""
        return self.history.values(timeline, count)
