"""A guest's packets are counted by the tap, by Open vSwitch and by the receiver: all counts are equal."""

from __future__ import annotations

import re
import time

import pytest

from tests.lab.kernels.each import EACH
from tests.lab.network.testbed import Testbed

on_every_kernel = pytest.mark.parametrize("testbed", EACH, indirect=True)
pytestmark = [pytest.mark.long, on_every_kernel]

COUNT = 5000  # many rings full
CLOSED_PORT = 9
RING_LIMIT_S = 60.0


def udp_without_socket(testbed: Testbed) -> int:
    shown = testbed.hypervisor.run("nstat", "-asz", "UdpNoPorts").text
    return int(re.search(r"UdpNoPorts\s+(\d+)", shown)[1])  # type: ignore[index]


def test_guest_to_hypervisor(testbed: Testbed) -> None:
    def seen() -> dict[str, int]:
        return {
            "tap": testbed.hypervisor.counter("vnet0", "rx_packets"),
            "switch": testbed.ovs.port_counters("vnet0")["rx_packets"],
            "receiver": udp_without_socket(testbed),
        }

    # The bridge's own port hands packets over by the CPU's backlog, which sheds them where this machine is busy.
    testbed.hypervisor.run("sysctl", "-q", "-w", f"net.core.netdev_max_backlog={2 * COUNT}")
    before = seen()
    testbed.guests[0].send_udp(COUNT, testbed.bridge, port=CLOSED_PORT)
    after = seen()
    assert {name: after[name] - before[name] for name in after} == dict.fromkeys(after, COUNT)


@pytest.mark.parametrize("queue", [0, 1])
def test_each_queue_of_a_multi_queue_guest(testbed: Testbed, queue: int) -> None:
    before = testbed.hypervisor.counter("vnet1", "rx_packets")
    testbed.guests[1].send_udp(COUNT, testbed.bridge, port=CLOSED_PORT, queue=queue)
    assert testbed.hypervisor.counter("vnet1", "rx_packets") - before == COUNT


def test_guest_to_guest(testbed: Testbed) -> None:
    """What the first guest sends either gets into the second one's ring or is counted as dropped at its tap."""

    def seen() -> int:
        return sum(testbed.hypervisor.counter("vnet1", name) for name in ("tx_packets", "tx_dropped"))

    before = seen()
    testbed.guests[0].send_udp(COUNT, testbed.guests[1].card.at, port=CLOSED_PORT)
    # The tap counts a packet as sent when vhost takes it out of the ring: wait until the ring is empty.
    deadline = time.monotonic() + RING_LIMIT_S
    while seen() - before < COUNT and time.monotonic() < deadline:
        pass
    assert seen() - before == COUNT


def test_no_upcall_is_lost(testbed: Testbed) -> None:
    """Of these packets: other tests lose upcalls on purpose."""
    before = testbed.ovs.upcalls()
    testbed.hypervisor.run("ovs-dpctl", "del-flows")
    testbed.guests[0].run(f"ping -c 2 {testbed.guests[1].card.at.ip}")
    upcalls = testbed.ovs.upcalls()
    assert upcalls["lost"] == before["lost"]
    assert upcalls["missed"] > before["missed"]
