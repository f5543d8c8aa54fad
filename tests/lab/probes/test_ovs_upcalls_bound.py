"""ovs_upcalls in details: above its time limit, upcalls are counted without a row, and still matched to answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.collector import InsideMeasurement
from tests.lab.conftest import Lab
from tests.lab.network.testbed import Testbed
from tests.lab.network.wires import Wires

PROBE = "ovs_upcalls"
NEW_FLOWS = 300
HARDLY_ANYTHING_PCT = 0.01
"""Of a core: 13 us in a window, which one upcall takes."""


@pytest.fixture
def collector(testbed: Testbed, lab: Lab) -> Iterator[InsideMeasurement]:
    collector = lab.collector(testbed)
    collector.need(PROBE)
    yield collector
    assert collector.command(command="bound", kernel_cpu_pct=0).ok
    collector.set(PROBE)


@pytest.mark.proves("ovs_upcalls", "ledger.{breaker,unlisted}")
@pytest.mark.parametrize("bound_pct", [HARDLY_ANYTHING_PCT, 0.0], ids=["above", "without"])
def test_upcalls_above_the_bound_are_counted_and_followed(
    wires: Wires, collector: InsideMeasurement, bound_pct: float
) -> None:
    collector.set(PROBE, "details", threshold_us=0)
    assert collector.command(command="bound", kernel_cpu_pct=bound_pct).ok
    collector.begin()
    wires.send("udp", NEW_FLOWS)
    collector.until(lambda: collector.counter(PROBE, "answered") == NEW_FLOWS, f"{NEW_FLOWS} answers")
    collector.settle()
    collector.assert_whole(PROBE)
    unlisted = collector.ledger(PROBE, "unlisted")
    print(f"{unlisted} of {NEW_FLOWS} upcalls are in no row")
    assert collector.counter(PROBE, "upcalls") == collector.counter(PROBE, "packets") == NEW_FLOWS
    for table in ("upcalls", "cpus"):
        assert collector.total(PROBE, table, "upcalls") + unlisted == NEW_FLOWS
    assert collector.samples(PROBE, "latency", port="va", kind="miss") == NEW_FLOWS
    made = {name: collector.event_count(PROBE, name) for name in ("seen", "submitted", "suppressed", "lost")}
    assert made["seen"] == NEW_FLOWS == made["submitted"] + made["suppressed"] + made["lost"]
    if bound_pct:
        assert unlisted > NEW_FLOWS / 2 and collector.ledger(PROBE, "breaker") > NEW_FLOWS / 2
    else:
        assert unlisted == collector.ledger(PROBE, "breaker") == 0
