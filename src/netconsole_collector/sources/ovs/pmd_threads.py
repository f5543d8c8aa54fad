"""Makes the rows of PMD threads: what each has counted in the interval, and what that is for each of its packets."""

from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from netconsole_collector.sources.base import Accumulator, Json, RowLabels, RowMaker, SourceRow
from netconsole_collector.sources.ovs.pmd_texts import Polled, ThreadFigures, ThreadName
from netconsole_collector.sources.ovs.scheduled import SCHEDULED, ThreadSchedule

MAX_THREADS = 1024
LEAST_PACKETS = 1000
"""Of fewer packets in an interval no ratio is told: it says nothing about the thread."""
CYCLES = ("busy_cycles", "idle_cycles")
COUNTS = (
    "packets", "passes", "phwol_hits", "simple_hits", "emc_hits", "smc_hits", "megaflow_hits", "upcalls", "lost",
    "tx_packets", "tx_batches", "busy_iterations",
)  # fmt: skip
TIMES = ("used_cycles", "sleep_us")
ROW_COUNTS = (*COUNTS, *CYCLES, *SCHEDULED)
RATIOS = {
    "cycles_per_packet": ("busy_cycles", "packets"),
    "phwol_pct": ("phwol_hits", "passes"),
    "simple_pct": ("simple_hits", "passes"),
    "emc_pct": ("emc_hits", "passes"),
    "smc_pct": ("smc_hits", "passes"),
    "megaflow_pct": ("megaflow_hits", "passes"),
    "upcall_pct": ("upcalls", "passes"),
    "packets_per_iteration": ("packets", "busy_iterations"),
    "packets_per_batch": ("tx_packets", "tx_batches"),
}
"""Gauges of the interval: so many of the one for each of the other; those that end in _pct in percent."""

_Key = Tuple[int, str, ThreadName]
_Gauges = Dict[str, Union[int, float, None]]


class PmdDatapath(NamedTuple):
    """What ovs-vswitchd says of a datapath. ``statistics``: a version that has pmd-stats-show (before 4.0).

    ``is_window``: the usage of queues is of the last seconds.
    """

    name: str
    performance: Mapping[ThreadName, ThreadFigures]
    statistics: Mapping[ThreadName, Mapping[str, int]]
    polled: Mapping[ThreadName, Polled]
    is_window: bool

    @property
    def threads(self) -> List[ThreadName]:
        """Those that it has, the main thread last."""
        named = {*self.performance, *self.statistics, *self.polled}
        return sorted(named, key=lambda one: (one.core is None, one.numa or 0, one.core or 0))


class PmdThreads:
    """The threads of one process after another. Each counts from when it was read first."""

    def __init__(self, schedule: ThreadSchedule) -> None:
        self._schedule = schedule
        self._counted = Accumulator((*COUNTS, *TIMES, "duration_ms"), is_set_back=True)
        self._cycles = Accumulator((*CYCLES, "packets"), is_set_back=True)
        self._totals: Dict[_Key, Dict[str, int]] = {}
        self._rows = RowMaker(ROW_COUNTS, MAX_THREADS)

    @property
    def set_back(self) -> int:
        """How often somebody cleared what a thread had counted."""
        return self._counted.set_back

    def rows(self, pid: int, datapaths: Sequence[PmdDatapath]) -> Tuple[List[Json], bool, int]:
        """A row for each thread, as :class:`RowMaker` gives them."""
        self._schedule.look(pid)
        keys = {(pid, datapath.name, name) for datapath in datapaths for name in datapath.threads}
        self._counted.keep(keys)
        self._cycles.keep(keys)
        self._totals = {key: totals for key, totals in self._totals.items() if key in keys}
        return self._rows.rows(self._each(pid, datapaths))

    def _each(self, pid: int, datapaths: Sequence[PmdDatapath]) -> Iterator[SourceRow]:
        for datapath in datapaths:
            for name in datapath.threads:
                yield self._row((pid, datapath.name, name), datapath, name)

    def _row(self, key: _Key, datapath: PmdDatapath, name: ThreadName) -> SourceRow:
        figures, statistics = datapath.performance.get(name), datapath.statistics.get(name, {})
        said = dict(figures.counts, duration_ms=figures.duration_ms) if figures else statistics
        counted = _grown(self._counted, key, said)
        cycles = _grown(self._cycles, key, statistics)
        polled = datapath.polled.get(name)
        busy_pct = polled.busy_pct if polled and datapath.is_window else None
        used = counted.get("used_cycles")
        if not cycles and used is not None and busy_pct is not None:
            # From 4.0 on there are whole percents of the last seconds alone.
            busy = used * busy_pct // 100
            cycles = {"busy_cycles": busy, "idle_cycles": used - busy, "packets": counted.get("packets", 0)}
        labels: RowLabels = {"datapath": datapath.name, "numa": name.numa, "core": name.core}
        if key not in self._totals:
            self._totals[key] = dict.fromkeys((*COUNTS, *CYCLES), 0)
            self._rows.begin(labels, (0,) * len(ROW_COUNTS))  # also of what is not known yet
        known = {one: counted[one] for one in COUNTS if one in counted}
        known.update((one, cycles[one]) for one in CYCLES if one in cycles)
        totals = self._totals[key]
        for one, delta in known.items():
            totals[one] += delta
        schedule = self._schedule.of(name.core)
        gauges: _Gauges = {
            **_shares(counted, cycles),
            **_ratios(counted, cycles),
            "lookups_per_hit": _lookups(figures) if figures else None,
            "us_per_upcall": figures.us_per_upcall if figures else None,
            "waits_pct": schedule.waits_pct if schedule else None,
        }
        scheduled = schedule.totals if schedule else (None,) * len(SCHEDULED)
        return labels, (*(totals[one] if one in known else None for one in totals), *scheduled), gauges


def _grown(accumulator: Accumulator, key: _Key, said: Mapping[str, Optional[int]]) -> Dict[str, int]:
    """What was counted in the interval, without what is not known. At the first reading that is 0."""
    values = [said.get(one) for one in accumulator.names]
    deltas = accumulator.take(key, values) or (0,) * len(values)
    return {name: delta for name, value, delta in zip(accumulator.names, values, deltas) if value is not None}


def _lookups(figures: ThreadFigures) -> Optional[float]:
    return figures.lookups_per_hit if figures.counts.get("megaflow_hits", 0) >= LEAST_PACKETS else None


def _shares(counted: Mapping[str, int], cycles: Mapping[str, int]) -> _Gauges:
    """Busy and idle: of the cycles that it used. Sleeping: of its time."""
    busy, idle = cycles.get("busy_cycles", 0), cycles.get("idle_cycles", 0)
    busy_pct = round(100 * busy / (busy + idle), 1) if busy + idle else None
    time_us = 1000 * counted.get("duration_ms", 0)
    slept = counted.get("sleep_us")
    return {
        "busy_pct": busy_pct,
        "idle_pct": None if busy_pct is None else round(100 - busy_pct, 1),
        "sleep_pct": round(min(100.0, 100 * slept / time_us), 1) if time_us and slept is not None else None,
    }


def _ratios(counted: Mapping[str, int], cycles: Mapping[str, int]) -> _Gauges:
    """None where there were too few packets, or where a part of it is not known."""
    found: _Gauges = dict.fromkeys(RATIOS)
    for name, (part, whole) in RATIOS.items():
        of = cycles if part in CYCLES else counted
        known = of.get(part), of.get(whole)
        if counted.get("packets", 0) < LEAST_PACKETS or known[0] is None or not known[1]:
            continue
        found[name] = round(known[0] / known[1] * (100 if name.endswith("_pct") else 1), 2)
    return found
