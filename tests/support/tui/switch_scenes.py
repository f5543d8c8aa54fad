"""Frames of a host with Open vSwitch, and of the path of its packets, as the probes would send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netconsole.telemetry import histogram
from tests.support.fake_collector import INTERVAL_NS, Scenario

FLOWS, UPCALLS, DROPS, PATH = "ovs_flows", "ovs_upcalls", "ovs_drops", "host_path"
DATAPATH = "ovs-system"


def attached(*probes: str, mode: str = "summary") -> Scenario:
    """Hello, and these probes."""
    scenario = Scenario().hello()
    for probe in probes:
        scenario.status(probe, mode=mode)
    return scenario


def datapath(
    scenario: Scenario, hits: int = 9900, misses: int = 100, lost: int = 0, **gauges: float | None
) -> Scenario:
    """A second of a datapath and of ovs-vswitchd; `gauges` are those that differ from a well one's."""
    counts = {"hits": hits, "misses": misses, "lost": lost, "mask_hits": 2 * hits, "cache_hits": 0}
    usual: dict[str, Any] = {"flows": 8412, "flow_limit": 200_000, "limit_used_pct": 4.2, "dump_ms": 12, "masks": 6}
    usual |= {"masks_per_packet": 1.5, "handlers": 4, "no_handler": 0, **gauges}
    labels = {"datapath": DATAPATH, "kind": "kernel"}
    row = {"labels": labels, "counts": {name: (n, 5 * n) for name, n in counts.items()}, "gauges": usual}
    scenario.table(FLOWS, "datapaths", [row])
    process = {"handlers": 4, "revalidators": 2, "answer_ms": 2, "silent": 0}
    counts = {"flow_puts": 31, "flow_deletes": 7, "executed": 100}
    row = {"labels": {"process": "ovs-vswitchd"}, "counts": {name: (n, n) for name, n in counts.items()}}
    return scenario.table(FLOWS, "vswitchd", [{**row, "gauges": process}])


def port(name: str, upcalls: int, **counts: int) -> dict[str, Any]:
    """The row of a port that asked so often."""
    values = {"upcalls": upcalls, "failed": 0, "packets": upcalls, "answered": upcalls}
    values |= {"dropped": 0, "unanswered": 0, "late": 0, **counts}
    return {"labels": _place(name), "counts": {value: (n, 3 * n) for value, n in values.items()}}


def failure(name: str, error: str, count: int) -> dict[str, Any]:
    """The row of upcalls of a port that did not reach user space."""
    return {"labels": {**_place(name), "error": error}, "counts": {"count": (count, count)}}


def answered(scenario: Scenario, name: str, ns: int, count: int = 100) -> Scenario:
    """How long the answers to a port took."""
    return times(scenario, UPCALLS, "latency", _place(name), ns, count)


def times(scenario: Scenario, probe: str, name: str, labels: Mapping[str, Any], ns: int, count: int) -> Scenario:
    """A histogram of `count` samples of one length."""
    buckets = {"count": count, "sum": count * ns, "min": ns, "max": ns, "buckets": [[histogram.index(ns), count]]}
    return scenario.frame(
        "histogram", probe, name=name, interval_ns=INTERVAL_NS, unit="ns", labels=labels, delta=buckets, total=buckets
    )


def way(scenario: Scenario, direction: str, stages: Mapping[str, int], count: int = 100, to: str = "eth0") -> Scenario:
    """`count` packets from vnet0 that took so many ns in each stage."""
    whole = sum(stages.values())
    times(scenario, PATH, "crossing", {"direction": direction, "from": "vnet0", "to": to}, whole, count)
    for stage, ns in stages.items():
        times(scenario, PATH, "stages", {"direction": direction, "stage": stage}, ns, count)
    return scenario


def _place(name: str) -> dict[str, Any]:
    return {"datapath": DATAPATH, "port": name, "vm": "web-07", "netns": "host", "kind": "miss"}
