"""Ratios need packets: of threads that moved hardly any, nothing is said and no verdict is given, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from netconsole.compare.compare import compare
from netconsole.findings.incidents import Incidents
from netconsole.probes import catalogue
from netconsole.probes.ratios import is_too_few, ratio, too_few
from netconsole.snapshot.document import Snapshot
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Count, Row
from netconsole.telemetry.state import State
from netconsole_collector.sources.ovs import pmd_threads
from tests.support.made_up import EMPTY, changed
from tests.unit.telemetry.test_state import SECOND, Stream

MANIFESTS = {"ovs_pmd": catalogue.shipped("ovs_pmd")}
SPEC = MANIFESTS["ovs_pmd"].tables["threads"]
RATIOS = {column.name: column for column in SPEC.value if column.part}
TIERS = ("simple_hits", "emc_hits", "smc_hits", "megaflow_hits", "upcalls")
GHZ, SECONDS = 2_500_000_000, 10


def counted(packets: int, cycles: int, emc_pct: float, batch: float = 32.0) -> dict[str, int]:
    """What a thread has counted in ten seconds, on a CPU of 2.5 GHz."""
    emc = round(packets * emc_pct / 100)
    return {
        **dict.fromkeys(pmd_threads.COUNTS, 0), "packets": packets, "passes": packets, "tx_packets": packets,
        "emc_hits": emc, "megaflow_hits": packets - emc, "tx_batches": round(packets / batch),
        "busy_iterations": round(packets / batch), "busy_cycles": packets * cycles,
        "idle_cycles": GHZ * SECONDS - packets * cycles,
    }  # fmt: skip


def snapshot(threads: Sequence[dict[str, int]]) -> Snapshot:
    """Of a host with a thread on each of so many cores. What was the last interval's is not of the whole run."""
    rows = [
        {"datapath": "ovs-netdev", "numa": core % 2, "core": core, **one, **dict.fromkeys(RATIOS)}
        for core, one in enumerate(threads)
    ]
    values = {column.name: {"unit": column.unit, "kind": column.kind, "worse": column.worse} for column in SPEC.value}
    probe: dict[str, Any] = {
        "status": "attached", "mode": "summary", "version": 1, "duration_s": SECONDS,
        "tables": {"threads": rows}, "columns": {"threads": {"labels": list(SPEC.labels), "values": values}},
    }  # fmt: skip
    return changed(EMPTY, duration_s=float(SECONDS), probes={"ovs_pmd": probe}, facts={})


PUBLISHED = {
    "healthy": snapshot([counted(3 + core, 172_000 + 3_300 * core, 0.0, 1.0) for core in range(20)]),
    "sick": snapshot([counted(2 + core, 24_103 + 900 * core, 100.0, 1.8) for core in range(20)]),
}
"""Two hosts of which one was slow, judged from 20 threads each that moved 0 kpps and were 100 % idle: the healthy one
had the highest cycles per packet and no hits in the EMC."""


def test_the_minimum_is_the_same_in_the_collector_and_in_the_manifest() -> None:
    assert SPEC.least == ("packets", pmd_threads.LEAST_PACKETS)
    assert {name: (column.part, column.whole) for name, column in RATIOS.items()} == pmd_threads.RATIOS
    assert all((column.unit == "%") == name.endswith("_pct") for name, column in RATIOS.items())


def test_a_ratio_is_of_two_counts_and_of_enough() -> None:
    busy = counted(1000, 250, 75.0)
    assert ratio(SPEC, RATIOS["emc_pct"], busy) == 75.0
    assert ratio(SPEC, RATIOS["cycles_per_packet"], busy) == 250.0
    idle = counted(999, 250, 75.0)
    assert is_too_few(SPEC, idle) and ratio(SPEC, RATIOS["emc_pct"], idle) is None
    assert too_few(SPEC) == "too few packets: fewer than 1000"
    assert ratio(SPEC, RATIOS["emc_pct"], {"packets": 5000}) is None, "its counts are not known"


@pytest.mark.parametrize(("now", "before"), [("sick", "healthy"), ("healthy", "sick")])
@pytest.mark.parametrize("runs", [1, 3])
def test_of_idle_threads_there_is_no_verdict_and_it_says_why(now: str, before: str, runs: int) -> None:
    found = compare(PUBLISHED[now], [PUBLISHED[before]] * runs, manifests=MANIFESTS)
    assert found.verdict != "regressed"
    assert not [one.metric for one in found.findings if one.metric.startswith("ovs_pmd/gauge/")]
    reasons = {one.metric: one.why for one in found.not_comparable}
    for name in RATIOS:
        of_it = {why for metric, why in reasons.items() if f"threads.{name}/" in metric}
        assert of_it == {"too few packets: fewer than 1000"}, name


@pytest.mark.parametrize("runs", [1, 3])
def test_under_load_the_hits_and_the_cycles_come_first(runs: int) -> None:
    """The same load: with batches and the EMC, and with many flows, small batches and no EMC."""
    load = 10_000_000
    healthy, sick = snapshot([counted(load, 160, 99.0)]), snapshot([counted(load, 640, 1.0, 4.0)])
    found = compare(sick, [healthy] * runs, manifests=MANIFESTS)
    assert found.verdict == "regressed"
    names = [one.metric.split("/")[2] for one in found.findings]
    assert names[:2] == ["threads.emc_pct", "threads.cycles_per_packet"]
    assert [(one.baseline, one.current) for one in found.findings[:2]] == [(99.0, 1.0), (160.0, 640.0)]
    assert {one.direction for one in found.findings[2:]} <= {"different"}, "the rest follows"
    said = [one.what.partition(" (")[0] for one in found.findings[:2]]
    assert said == [
        "Share of emc hits datapath ovs-netdev, numa 0 fell from 99 % to 1 %",
        "Cycles per packet datapath ovs-netdev, numa 0 rose from 160 cycles to 640 cycles",
    ]


def test_threads_weigh_as_much_as_their_packets() -> None:
    """One thread has the load; the others have the means of a few hundred packets each."""
    few = [counted(900, 90_000, 0.0, 1.0)] * 4
    before = snapshot([counted(10_000_000, 160, 99.0), *[counted(900, 160, 99.0)] * 4])
    found = compare(snapshot([counted(10_000_000, 160, 99.0), *few]), [before], manifests=MANIFESTS)
    assert not [one for one in found.findings if one.metric.startswith("ovs_pmd/gauge/threads.emc_pct")]


@pytest.mark.parametrize("ratio_of_baseline", [0.6, 1.9])
def test_one_run_is_compared_by_a_margin(ratio_of_baseline: float) -> None:
    before = snapshot([counted(10_000_000, 200, 50.0)])
    now = snapshot([counted(10_000_000, round(200 * ratio_of_baseline), 50.0)])
    found = compare(now, [before], manifests=MANIFESTS)
    assert not [one for one in found.findings if one.significant and one.metric.startswith("ovs_pmd/gauge/")]


def test_no_finding_judges_an_idle_thread() -> None:
    stream, incidents = Stream(State()), Incidents(MANIFESTS)
    stream.hello()
    stream.state.apply(frames.Status(**stream.stamp("ovs_pmd"), state="attached", mode="summary"))
    counts = {name: Count(delta=count, total=count) for name, count in counted(15, 235_000, 0.0, 1.0).items()}
    row = Row(labels={"datapath": "d", "numa": 0, "core": 3}, counts=counts, gauges=dict.fromkeys(RATIOS))
    stream.state.apply(
        frames.Table(**stream.stamp("ovs_pmd"), name="threads", interval_ns=SECOND, full=True, rows=[row])
    )
    stream.end()
    assert incidents.update(stream.state) == []
