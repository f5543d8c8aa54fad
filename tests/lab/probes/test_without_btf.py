"""A kernel of which nobody can read BTF, as where it was built without: types were made of its debug package."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab.collector import CompiledInside, InsideMeasurement
from tests.lab.kernels.btf import made_kernel
from tests.lab.machine.errors import LabUnavailable
from tests.lab.network.testbed import BRIDGE, Testbed
from tests.lab.network.traffic import ping
from tests.lab.network.wires import Wires

ONLY_KERNEL = "debian-5.10"
pytestmark = pytest.mark.parametrize("testbed", [ONLY_KERNEL], indirect=True)

PROBES = ("kernel_drops", "vhost_queues", "tun_queues", "kvm_irqs", "ovs_drops", "ovs_upcalls")
OWN_TYPES = "/sys/kernel/btf"
PINGS, SENT, DROPPED, NEW_FLOWS = 40, 500, 50, 30


@pytest.fixture(scope="module")
def collector(testbed: Testbed) -> Iterator[InsideMeasurement]:
    """With the probes, on a machine that lost its own types and has the made ones where a user carries them."""
    hypervisor = testbed.hypervisor
    try:
        made = made_kernel(hypervisor.tree)
    except LabUnavailable as error:
        pytest.skip(str(error))
    places = (OWN_TYPES, hypervisor.types_inside)
    for place in places:
        hypervisor.run("mount", "-t", "tmpfs", "-o", "mode=755", "none", place)
    try:
        hypervisor.carry(made)
        collector = CompiledInside(hypervisor)
        with ThreadPoolExecutor() as pool:  # the collector compiles two at once
            list(pool.map(collector.load, PROBES))
        yield collector
        collector.close()
    finally:
        for place in places:
            hypervisor.run("umount", place)


def test_everything_attaches_by_what_needs_no_types_of_the_kernel_itself(collector: InsideMeasurement) -> None:
    for name in PROBES:
        status = collector.statuses[name]
        assert status.state == "attached", (name, status.why, status.missing)
        assert {point.partition(":")[0] for point in status.attach} <= {"kprobe", "kretprobe", "raw_tracepoint"}


def test_pings_of_a_guest_are_counted_on_its_queues(testbed: Testbed, collector: InsideMeasurement) -> None:
    guest = testbed.guests[0]
    device = guest.card.tap
    collector.begin()
    ping(testbed.hypervisor, guest, PINGS)
    collector.settle()
    collector.assert_whole("vhost_queues", "tun_queues")
    collector.assert_whole("kvm_irqs", but="missed")
    for direction in ("rx", "tx"):
        counted = collector.total("vhost_queues", "queues", "packets", device=device, direction=direction)
        assert counted == PINGS, direction
    assert collector.total("tun_queues", "queues", "taken", device=device) == PINGS
    signals = collector.total("vhost_queues", "queues", "signals", device=device)
    assert signals > 0
    for count in ("wakeups", "at_once", "accepted"):
        collector.assert_counted("kvm_irqs", collector.total("kvm_irqs", "lines", count, vm=guest.name), signals)


def test_datagrams_to_a_closed_port_are_drops(testbed: Testbed, collector: InsideMeasurement) -> None:
    """Before 5.17 the kernel gives no reason: the function that drops them tells."""
    collector.begin()
    testbed.guests[0].send_udp(SENT, testbed.bridge, port=9)
    collector.settle()
    places = {str(row.labels["location"]): row.counts["count"] for row in collector.rows("kernel_drops", "drops")}
    assert sum(count for place, count in places.items() if "udp4_lib_rcv" in place) == SENT, places


def test_the_switch_s_drops_and_upcalls(testbed: Testbed, wires: Wires, collector: InsideMeasurement) -> None:
    rules = {"priority=100,udp,in_port=va,tp_dst=4444": "drop", "priority=90,in_port=va": "output:vb"}
    collector.begin()
    before = wires.ovs.upcalls()
    wires.send("udp", NEW_FLOWS)
    collector.until(lambda: collector.counter("ovs_upcalls", "answered") >= NEW_FLOWS, "the answers")
    collector.settle()
    asked = wires.ovs.upcalls()["missed"] - before["missed"]
    assert collector.total("ovs_upcalls", "upcalls", "upcalls", kind="miss") == asked >= NEW_FLOWS
    for match, actions in rules.items():
        testbed.hypervisor.run("ovs-ofctl", "add-flow", BRIDGE, f"{match},actions={actions}")
    try:
        testbed.hypervisor.run("ovs-appctl", "revalidator/purge")
        wires.send("udp", 1, new=False)  # the flow is there
        collector.until(lambda: collector.counter("ovs_upcalls", "dropped") >= 1, "the flow that drops")
        collector.begin()
        wires.send("udp", DROPPED, new=False)
        collector.settle()
        assert collector.total("ovs_drops", "drops", reason="OVS_DROP_LAST_ACTION", port="va") == DROPPED
    finally:
        for match in rules:
            testbed.hypervisor.run("ovs-ofctl", "--strict", "del-flows", BRIDGE, match)
