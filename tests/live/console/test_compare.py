"""Comparisons of real runs: what is done to a path is what is found first (bench/real_comparison.py has the rates)."""

from __future__ import annotations

import os
import subprocess
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
    """The path's own runs, and the process that sends."""

    baseline: list[Snapshot]
    source: subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    folder = tmp_path_factory.mktemp("runs")
    with bench.path() as source:
        baseline = [bench.measure(folder, f"baseline-{number}") for number in range(RUNS)]
        probe = baseline[0].probes["tx_queue_latency"]
        if probe.status != "attached":
            pytest.skip(f"cannot run here: {probe.why}")
        yield Runs(baseline, source)


@pytest.mark.parametrize("name", bench.FAULTS)
def test_what_is_done_to_a_path_is_found_first(runs: Runs, name: str, tmp_path: Path) -> None:
    """Worse, and finding 1 or 2; a switched-off offload is among the changed settings, and hurts no idle path."""
    fault, is_found = bench.FAULTS[name]
    with fault(runs.source):
        found = compare(bench.measure(tmp_path, fault.__name__), runs.baseline)
    told = [(one.rank, one.direction, one.metric, one.why) for one in found.findings[:4] if one.significant]
    assert is_found(found), (found.verdict, told, found.facts_changed)
