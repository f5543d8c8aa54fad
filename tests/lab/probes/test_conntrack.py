"""conntrack and ip_fragments on the hypervisor's kernel, which has kprobes and fentry; and packets of the switch."""

from __future__ import annotations

import pytest

from tests.lab.collector import InsideMeasurement
from tests.lab.kernels.compiled import bring, shipped
from tests.lab.network.testbed import BRIDGE, Testbed
from tests.lab.network.wires import Wires
from tests.lab.pytest_inside import run_pytest

pytestmark = pytest.mark.long

PROBES = ["conntrack", "ip_fragments"]
FILE = "tests/live/probes/test_conntrack.py"
RUN_LIMIT_S = 400.0
TRACKED = 20
FLOW = "priority=200,udp,in_port=va,tp_dst=7777"


def test_they_count_what_the_kernel_counts(testbed: Testbed) -> None:
    testbed.rest()
    bring(testbed.hypervisor, shipped(PROBES).values())
    run_pytest(testbed.hypervisor, FILE, limit_s=RUN_LIMIT_S).has_passed(FILE)


def test_packets_that_the_switch_tracks_are_counted_in_their_zone(
    testbed: Testbed, wires: Wires, vm_path: InsideMeasurement
) -> None:
    hypervisor = testbed.hypervisor
    hypervisor.run("ovs-ofctl", "add-flow", BRIDGE, f"{FLOW},actions=ct(commit,zone=77)")
    vm_path.begin()
    wires.send("tracked", TRACKED, new=False)
    vm_path.until(lambda: vm_path.total("conntrack", "packets", zone=77) >= TRACKED, "packets of the zone")
    hypervisor.run("ovs-ofctl", "--strict", "del-flows", BRIDGE, FLOW)
    assert vm_path.total("conntrack", "packets", zone=77, outcome="new", protocol="UDP") == TRACKED
    vm_path.assert_whole(*PROBES)
