"""irq_path and tx_kick_path in details: above their time limit, rows stay exact and histograms have only a share."""

from __future__ import annotations

import pytest

from tests.lab.collector import InsideMeasurement
from tests.lab.network.testbed import Testbed

PROBES = ("irq_path", "tx_kick_path")
COUNTERS = {"irq_path": "interrupts", "tx_kick_path": "runs"}
"""How often a probe has followed something to its end: once for each echo and its answer, at most."""
ECHOES = ("busybox", "ping", "-c", "150", "-i", "0.005", "-W", "5")
"""So fast that a CPU has several in the 32 ms for which it is given runs: the second of them is timed."""
HARDLY_ANYTHING_PCT = 0.01
"""Of a core: 13 us in a window, which one that is followed takes."""


def follow(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    """Echoes, each of which is in a row of both probes. So fast some of them may be lost, wherever that is."""
    vm_path.begin()
    testbed.hypervisor.run(*ECHOES, testbed.guests[0].card.at.ip, check=False)
    vm_path.settle()
    for probe, counter in COUNTERS.items():
        rows = vm_path.total(probe, "queues", counter, device="vnet0")
        assert rows == vm_path.counter(probe, counter) > 0


@pytest.mark.parametrize("threshold_us", [0, 1_000_000], ids=["with events", "without"])
@pytest.mark.proves("irq_path", "ledger.unmeasured", "counters.interrupts")
@pytest.mark.proves("tx_kick_path", "ledger.unmeasured", "counters.runs")
def test_over_the_bound_all_is_counted_and_some_measured(
    testbed: Testbed, vm_path: InsideMeasurement, threshold_us: int
) -> None:
    """Without events it is the histograms themselves that are timed."""
    for probe in PROBES:
        vm_path.set(probe, "details", events_per_s=10_000, threshold_us=threshold_us)
    assert vm_path.command(command="bound", kernel_cpu_pct=HARDLY_ANYTHING_PCT).ok
    try:
        follow(testbed, vm_path)
    finally:
        assert vm_path.command(command="bound", kernel_cpu_pct=0).ok
        for probe in PROBES:
            vm_path.set(probe, "details", events_per_s=10_000, threshold_us=0)
    for probe, counter in COUNTERS.items():
        followed = vm_path.counter(probe, counter)
        measured = vm_path.samples(probe, "stages", device="vnet0", stage="total")
        made = {name: vm_path.event_count(probe, name) for name in ("seen", "submitted", "suppressed", "lost")}
        print(f"{probe}: {followed} followed, {measured} measured; events {made}")
        assert measured + vm_path.ledger(probe, "unmeasured") == followed
        assert measured < followed / 2
        assert made["seen"] == made["submitted"] + made["suppressed"] + made["lost"]
        assert made["seen"] == (0 if threshold_us else followed)
        assert made["suppressed"] >= vm_path.ledger(probe, "breaker") >= (0 if threshold_us else followed / 2)


def test_within_it_all_is_measured(testbed: Testbed, vm_path: InsideMeasurement) -> None:
    follow(testbed, vm_path)
    for probe, counter in COUNTERS.items():
        followed = vm_path.counter(probe, counter)
        assert vm_path.ledger(probe, "unmeasured") == 0
        assert vm_path.samples(probe, "stages", device="vnet0", stage="total") == followed
        assert vm_path.event_count(probe, "submitted") == followed
