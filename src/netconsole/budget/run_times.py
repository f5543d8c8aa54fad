"""What programs cost now, without the time for which a run's CPU was taken away from it.

The kernel takes a run's time by the clock (bpf_prog_run, include/linux/filter.h): one that is interrupted, or whose
virtual CPU its host takes away, counts with all of that. In 20 ms of statistics a single one can look like most of a
core, but hardly in two figures in a row. So runs are held to take what they took in the figure before if that was less:
more runs are believed at once, longer ones with the second figure.
"""

from __future__ import annotations

from dataclasses import dataclass

from netconsole.budget.sampling import UNKNOWN_NS
from netconsole.telemetry.costs import ProgramCost
from netconsole.telemetry.state import ProbeState


@dataclass(slots=True)
class _Program:
    windows_ns: int = 0
    """Of the statistics that were looked at: the same figure twice is no second one."""
    before_ns: float = UNKNOWN_NS
    """A run in the figure before."""
    last_ns: float = UNKNOWN_NS


class RunTimes:
    """Remembers the last run times of all programs. Ask it once an interval."""

    def __init__(self) -> None:
        self._programs: dict[tuple[str, str, str], _Program] = {}
        """By probe, mode and program: a mode's runs tell nothing of another one's."""

    def cpu_pct(self, probe: ProbeState) -> float | None:
        """In-kernel time of a probe, percent of one core, at most what was measured last; None is unknown."""
        measured = probe.kernel_cpu_pct
        if measured is None or not probe.cost.measurable:
            return measured
        return sum(self._program_pct((probe.name, probe.mode, one.name), one) for one in probe.cost.programs.values())

    def _program_pct(self, key: tuple[str, str, str], program: ProgramCost) -> float:
        pct, ns = program.last_cpu_pct, program.last_ns_per_run
        if not pct or not ns:
            return 0.0
        known = self._programs.setdefault(key, _Program())
        if program.window_ns != known.windows_ns:
            known.windows_ns, known.before_ns, known.last_ns = program.window_ns, known.last_ns, ns
        return pct * min(1.0, known.before_ns / ns)
