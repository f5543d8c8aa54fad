"""Holds what the probes saw lost against counters that the kernel keeps by itself, stage by stage.

A loss that the kernel counts and no probe saw is unexplained: a probe is missing, blind or filtered. Both sides are
read within one interval, not in the same moment, so a loss that still goes on may be off by what one interval has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from netconsole.snapshot.document import BalanceData, ProbeData

StagePlace = tuple[str | None, str | None]
"""Device and network namespace; None: the stage has no such thing."""

UDP_COUNTERS: Final = ("UdpRcvbufErrors", "UdpMemErrors", "Udp6RcvbufErrors", "Udp6MemErrors")
UDP_REASONS: Final = ("SOCKET_RCVBUFF", "PROTO_MEM")
QDISC_REASONS: Final = (
    "QDISC_DROP",
    "QDISC_OVERLIMIT",
    "QDISC_CONGESTED",
    "QDISC_EDT_HORIZON",
    "CAKE_FLOOD",
    "FQ_BAND_LIMIT",
)
BACKLOG_REASONS: Final = ("CPU_BACKLOG",)


def balance(probes: Mapping[str, ProbeData]) -> list[BalanceData]:
    """A row for each place of a stage where the kernel counted a loss, the largest unexplained loss first.

    Where kernel_drops counts without rows (mode counters), nothing can be said.
    """
    drops = probes.get("kernel_drops")
    if drops is not None and drops.mode == "counters":
        return []
    rows = [
        *_stage("qdisc", _qdiscs(probes), _seen(probes, QDISC_REASONS, by_device=True)),
        *_stage("backlog", _backlogs(probes), _seen(probes, BACKLOG_REASONS)),
        *_stage("udp-socket", _udp(probes), _seen(probes, UDP_REASONS, protocols=("UDP",), by_netns=True)),
    ]
    return sorted(rows, key=lambda row: (-row.unexplained, -row.dropped))


def _stage(stage: str, counted: Mapping[StagePlace, int], seen: Mapping[StagePlace, int]) -> Iterator[BalanceData]:
    for place, dropped in counted.items():
        unexplained = max(0, dropped - seen.get(place, 0))
        device, netns = place
        if dropped:
            coverage = round(100.0 * (dropped - unexplained) / dropped, 3)
            yield BalanceData(
                stage=stage, device=device, netns=netns, dropped=dropped, unexplained=unexplained, coverage_pct=coverage
            )


def _qdiscs(probes: Mapping[str, ProbeData]) -> Mapping[StagePlace, int]:
    return _sums(
        ((row.get("device"), row.get("netns")), row.get("qdisc_drops")) for row in _rows(probes, "link_rates", "links")
    )


def _backlogs(probes: Mapping[str, ProbeData]) -> Mapping[StagePlace, int]:
    return _sums(((None, None), row.get("dropped")) for row in _rows(probes, "softnet", "cpus"))


def _udp(probes: Mapping[str, ProbeData]) -> Mapping[StagePlace, int]:
    rows = _rows(probes, "protocol_counters", "counters")
    return _sums(((None, row.get("netns")), row.get("count")) for row in rows if row.get("counter") in UDP_COUNTERS)


def _seen(
    probes: Mapping[str, ProbeData],
    reasons: Collection[str],
    protocols: Collection[str] = (),
    by_device: bool = False,
    by_netns: bool = False,
) -> Mapping[StagePlace, int]:
    """What kernel_drops saw for these reasons; nothing where it does not measure."""
    return _sums(
        (
            (row.get("device") if by_device else None, row.get("netns") if by_device or by_netns else None),
            row.get("count"),
        )
        for row in _rows(probes, "kernel_drops", "drops")
        if row.get("reason") in reasons and (not protocols or row.get("protocol") in protocols)
    )


def _sums(pairs: Iterator[tuple[StagePlace, Any]]) -> Mapping[StagePlace, int]:
    sums: Counter[StagePlace] = Counter()
    for place, value in pairs:
        if isinstance(value, int):
            sums[place] += value
    return sums


def _rows(probes: Mapping[str, ProbeData], probe: str, table: str) -> list[dict[str, Any]]:
    data = probes.get(probe)
    return data.tables.get(table, []) if data is not None else []
