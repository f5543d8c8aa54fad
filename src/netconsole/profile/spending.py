"""Compares each cost of measuring with its limit in the profile: one list for every reader.

Pure functions of a state and a budget. The result is one of ``ok``, ``near`` (from NEAR of the limit on), ``over``,
``no limit``, and ``?`` where the cost is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from netconsole.profile.escalation_rules import SUFFIX
from netconsole.profile.profile import Budget
from netconsole.telemetry.source import SourceState
from netconsole.telemetry.state import State

SpendingWord: TypeAlias = Literal["ok", "near", "over", "no limit", "?"]
Limit: TypeAlias = Literal["kernel_cpu_pct", "ns_per_packet", "user_cpu_pct", "memory_mb", "events_per_s"]
"""Limits whose cost is in the state. The recorder keeps record_mb_per_min itself."""

NEAR = 0.8
STEADY_INTERVALS = 10
MIN_PACKETS_PER_S = 10_000.0
"""With fewer packets, most in-kernel time is not for packets: softirqs, timers and other drops dominate."""
PACKETS_PROBE, PACKETS_TABLE, PACKETS_VALUE = "softnet", "cpus", "processed"
"""Where packets are counted: all that the kernel receives on any interface of any namespace."""
LINKS_PROBE, LINKS_TABLE, LINKS_BYTES, LINKS_PACKETS = "link_rates", "links", "rx_bytes", "rx_packets"
"""Where their size is known."""
FEW_EVENTS_PER_S = 10.0
"""So many events over their limit cost nothing that can be measured, and are no news."""
FULL_BYTES = 1514.0
"""What a wire carries of one packet at most, jumbo frames aside. A larger one stands for several: GRO merged them, or
nobody has cut it yet."""


@dataclass(frozen=True, slots=True)
class Spending:
    """One cost now, and its limit; None is unknown, or no limit."""

    name: Limit
    measured: float | None
    limit: float | None

    @property
    def word(self) -> SpendingWord:
        """The result of the comparison."""
        if self.limit is None:
            return "no limit"
        if self.measured is None:
            return "?"
        if self.measured > self.limit + (FEW_EVENTS_PER_S if self.name == "events_per_s" else 0.0):
            return "over"
        # A limit of 0 (no events at all) has no "near".
        return "near" if self.limit and self.measured >= NEAR * self.limit else "ok"


def spendings(state: State, budget: Budget, kernel_pct: float | None = None) -> list[Spending]:
    """All costs, in the order of a profile. ``kernel_pct`` replaces the last measured in-kernel time."""
    kb = memory_kb(state)
    kernel_pct = state.kernel_cpu_pct if kernel_pct is None else kernel_pct
    return [
        Spending("kernel_cpu_pct", kernel_pct, budget.kernel_cpu_pct),
        Spending("ns_per_packet", _ns_per_packet(state, kernel_pct), budget.ns_per_packet),
        Spending("user_cpu_pct", user_cpu_pct(state), budget.user_cpu_pct),
        Spending("memory_mb", None if kb is None else kb / 1024, budget.memory_mb),
        Spending("events_per_s", events_per_s(state, is_budgeted), budget.events_per_s),
    ]


def worst(found: Sequence[Spending]) -> SpendingWord:
    """The worst result of all costs that are limited and known."""
    words = [one.word for one in found if one.limit is not None]
    if not words:
        return "no limit"
    ranks: tuple[SpendingWord, ...] = ("over", "near", "ok")
    return next((word for word in ranks if word in words), "?")


def packets_per_s(state: State) -> float | None:
    """Packets that the kernel receives per second, large ones as what they stand for; None where nobody counts them."""
    packets = _sum_per_s(state, PACKETS_PROBE, PACKETS_TABLE, PACKETS_VALUE)
    if packets is None:
        return None
    links = [_sum_per_s(state, LINKS_PROBE, LINKS_TABLE, name) for name in (LINKS_BYTES, LINKS_PACKETS)]
    return packets * stand_for(*links)


def stand_for(received_bytes: float | None, received: float | None) -> float:
    """How many packets of a wire one received packet stands for in the mean; 1 where the sizes are not known."""
    return max(1.0, received_bytes / received / FULL_BYTES) if received_bytes and received else 1.0


def _sum_per_s(state: State, name: str, table: str, value: str) -> float | None:
    """The rate of all rows of a table; None when it is not measured."""
    probe = state.probes.get(name)
    rows = state.rows(name, table) if probe is not None and probe.measuring else ()
    rates = [rate for row in rows if (rate := row.per_s(value)) is not None]
    return sum(rates) if rates else None


def ns_per_packet(state: State) -> float | None:
    """In-kernel time of all our programs per packet that the kernel receives; None when there are too few packets."""
    return _ns_per_packet(state, state.kernel_cpu_pct)


def _ns_per_packet(state: State, kernel_pct: float | None) -> float | None:
    packets = packets_per_s(state)
    if packets is None or kernel_pct is None or packets < MIN_PACKETS_PER_S:
        return None
    return kernel_pct * 1e7 / packets


def kernel_limit_pct(budget: Budget, packets_per_s: float | None) -> float | None:
    """The limit of our in-kernel time, percent of one core: the tighter one of the budget's two; None without any."""
    limits = [] if budget.kernel_cpu_pct is None else [budget.kernel_cpu_pct]
    if budget.ns_per_packet is not None and packets_per_s is not None and packets_per_s >= MIN_PACKETS_PER_S:
        limits.append(budget.ns_per_packet * packets_per_s / 1e7)
    return min(limits, default=None)


def user_cpu_pct(state: State) -> float | None:
    """Typical CPU of ours on the measured host, percent of one core; None while nothing is known.

    That is collector and console together, or the collector alone where the console runs on another machine.
    """
    known = [share for source in _sources_there(state) if (share := steady_cpu_pct(source)) is not None]
    return sum(known) if known else None


def steady_cpu_pct(source: SourceState) -> float | None:
    """The median of the last intervals since probes were last changed: starting and cleaning up do not count."""
    known = sorted(v for v in source.steady_cpu_history(STEADY_INTERVALS) if v is not None)
    return known[(len(known) - 1) // 2] if known else None


def memory_kb(state: State) -> int | None:
    """Memory of the same: PSS where it is known, else RSS; None while nothing is known."""
    used = [source.rss_kb if source.pss_kb is None else source.pss_kb for source in _sources_there(state)]
    known = [kb for kb in used if kb is not None]
    return sum(known) if known else None


def _sources_there(state: State) -> list[SourceState]:
    return [source for name, source in state.sources.items() if name == "collector" or not state.is_far]


def is_budgeted(probe: str) -> bool:
    """Whether the events of a probe are of the profile's budget: details of one row have a limit of their own."""
    return not probe.endswith(SUFFIX)


def events_per_s(state: State, of: Callable[[str], bool] = lambda _: True) -> float | None:
    """Events that probes submitted per second; None while no probe has reported any figure. ``of``: by name."""
    interval_ns = state.collector.interval_ns
    found = [
        probe.cost.events["submitted"].delta
        for probe in state.probes.values()
        if probe.measuring and "submitted" in probe.cost.events and of(probe.name)
    ]
    return sum(found) * 1e9 / interval_ns if found and interval_ns else None


def duty_pct(state: State) -> float | None:
    """Percent of the time in which the kernel's run-time statistics were on; None where there are none.

    Not known of probes that are attached for a share of the time: for these they are on in a part of that share.
    """
    known = [
        100 * probe.cost.windows_ns / probe.cost.windows_of_ns
        for probe in state.probes.values()
        if probe.measuring and probe.seen_pct is None and probe.cost.windows_of_ns and probe.cost.programs
    ]
    return max(known) if known else None


def machine_change_pct(state: State) -> float | None:
    """How much busier the whole machine is than before measuring began, in percentage points of all CPUs."""
    before, now = machine_before_pct(state), state.machine_cpu_pct
    return None if before is None or now is None else now - before


def machine_before_pct(state: State) -> float | None:
    """How busy the whole machine was just before measuring began, percent of all CPUs; None is unknown."""
    return next((row.gauges.get("before_cpu_pct") for row in state.rows("self_cost", "machine")), None)
