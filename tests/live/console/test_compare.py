"""Comparisons of real runs: what is done to a path is what is found first (bench/real_comparison.py has the rates)."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bench import real_comparison as bench
from netconsole.compare.compare import compare
from netconsole.snapshot.document import Snapshot

pytestmark = pytest.mark.starting

RUNS = 3


class Runs(NamedTuple):
    """The path's own runs, and the processes at its ends."""

    baseline: list[Snapshot]
    ends: bench.Ends


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    folder = tmp_path_factory.mktemp("runs")
    with bench.path() as ends:
        baseline = [bench.measure(folder, f"baseline-{number}") for number in range(RUNS)]
        probe = baseline[0].probes["tx_queue_latency"]
        if probe.status != "attached":
            pytest.skip(f"cannot run here: {probe.why}")
        yield Runs(baseline, ends)


@pytest.mark.parametrize("name", bench.FAULTS)
def test_what_is_done_to_a_path_is_found_first(runs: Runs, name: str, tmp_path: Path) -> None:
    """Worse, and finding 1 or 2; a switched-off offload is among the changed settings, and hurts no idle path."""
    fault, is_found = bench.FAULTS[name]
    with fault(runs.ends):
        found = compare(bench.measure(tmp_path, fault.__name__), runs.baseline)
    told = [(one.rank, one.direction, one.metric, one.why) for one in found.findings[:4] if one.significant]
    assert is_found(found), (found.verdict, told, found.facts_changed)


def test_a_loss_of_one_percent_by_a_firewall_is_found_beside_a_burst_in_the_baseline(
    runs: Runs, tmp_path: Path
) -> None:
    """A firewall's drops are of class benign, and none were there before; the burst is of other reasons."""
    if shutil.which("nft") is None:
        pytest.skip("cannot run here: no nft")
    with bench.one_session(tmp_path) as again:
        baseline = [again("calm-0"), again("calm-1")]
        with bench.bursts(random.Random(1)):
            baseline.append(again("bursty"))
        same = compare(again("same"), baseline)
        with bench.filtered(runs.ends, bench.PORTS["1 %"]):
            found = compare(again("lossy"), baseline)
    lost = baseline[2].probes["kernel_drops"].counters["drops"].total or 0
    assert lost >= bench.BURST
    assert same.verdict == "same", [(one.metric, one.why) for one in same.findings]
    first = found.findings[0]
    assert (found.verdict, found.exit_code, first.significant, first.direction) == ("regressed", 1, True, "worse")
    assert "reason=NETFILTER_DROP" in first.metric
