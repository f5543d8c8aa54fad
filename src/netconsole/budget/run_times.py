"""Computes what programs cost now, without the time in which a run had lost its CPU.

The kernel measures a run by the clock (bpf_prog_run, include/linux/filter.h). If the run is interrupted, or the host
takes the virtual CPU away, that time counts too. In 20 ms of statistics a single such run can look like most of a core.
It hardly happens in two figures in a row. So the smaller run time of the last two figures is used: a higher cost from
more runs counts at once, one from longer runs only with the second figure.
"""

from __future__ import annotations

from dataclasses import dataclass

from netconsole.budget.sampling import UNKNOWN_NS
from netconsole.telemetry.costs import ProgramCost
from netconsole.telemetry.state import ProbeState


@dataclass(slots=True)
class _Program:
    windows_ns: int = 0
    """Length of the statistics windows at the last figure. While it does not change, the figure is the same one."""
    before_ns: float = UNKNOWN_NS
    """ns per run in the figure before the last."""
    last_ns: float = UNKNOWN_NS


class RunTimes:
    """Remembers the last run times of all programs. Call :meth:`cpu_pct` once per interval."""

    def __init__(self) -> None:
        self._programs: dict[tuple[str, str, str], _Program] = {}
        """By probe, mode and program, because run times differ between modes."""

    def cpu_pct(self, probe: ProbeState) -> float | None:
        """In-kernel time of a probe, percent of one core; None is unknown. Never more than was measured last."""
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
