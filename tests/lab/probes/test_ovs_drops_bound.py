"""ovs_drops in details: drops above its limits are counted and reported, and the samples of a flow are complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.lab.collector import InsideMeasurement
from tests.lab.conftest import Lab
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.network.testbed import BRIDGE, Testbed

PROBE = "ovs_drops"
STORM = 4000
FLOWS, EACH = 32, 10
"""Few enough for the budget's burst and the ring."""
ONE_IN = 4
HARDLY_ANYTHING_PCT = 0.01
"""Of a core: 13 us in a window, which a few rows take."""
GRANT_RUNS, OWED_S = 64, 8 * 0.134
"""Of the circuit breaker (docs/design/governor.md): such a grant of rows exceeds any debt, paid after so long."""
DROPPED = "priority=100,udp,in_port=vdrop,tp_dst=4444"

WIRE = f"""
ip netns add drop
ip link add vdrop type veth peer name eth0 netns drop
echo 1 >/proc/sys/net/ipv6/conf/vdrop/disable_ipv6
ip netns exec drop sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6'
ip link set vdrop up
ip -n drop link set eth0 up
ovs-vsctl add-port {BRIDGE} vdrop -- set Open_vSwitch . other_config:max-idle=600000
ovs-ofctl add-flow {BRIDGE} {DROPPED},actions=drop
"""
UNWIRE = f"""
ovs-ofctl --strict del-flows {BRIDGE} {DROPPED}
ovs-vsctl del-port {BRIDGE} vdrop -- remove Open_vSwitch . other_config max-idle
ip netns delete drop
"""

# Frames of so many flows in turn, apart by their source port; the datapath's own flow is one for all of them.
FRAMES = """
import socket, struct, sys
count, flows = map(int, sys.argv[1:])
device = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
device.bind(("eth0", 0))
head = bytes.fromhex("0242420000020242420000010800") + struct.pack("!BBHHHBBH", 0x45, 0, 48, 0, 0x4000, 64, 17, 0)
head += bytes([10, 9, 0, 1, 10, 9, 0, 2])
frames = [head + struct.pack("!HHHH", 20000 + flow, 4444, 28, 0) + bytes(20) for flow in range(flows)]
for number in range(count):
    device.send(frames[number % flows])
"""


def send(hypervisor: Hypervisor, count: int, flows: int = 1) -> None:
    hypervisor.run("ip", "netns", "exec", "drop", "python3", "-c", FRAMES, str(count), str(flows))


@pytest.fixture(scope="module")
def collector(testbed: Testbed, lab: Lab) -> Iterator[InsideMeasurement]:
    """With a flow in the datapath that drops what :func:`send` sends."""
    hypervisor, collector = testbed.hypervisor, lab.collector(testbed)
    collector.need(PROBE)
    hypervisor.shell(WIRE)
    collector.begin()
    send(hypervisor, 1)  # user space is asked about it
    collector.until(lambda: is_dropped(hypervisor, collector), "the flow that drops")
    yield collector
    hypervisor.shell(UNWIRE)
    collector.set(PROBE)


def is_dropped(hypervisor: Hypervisor, collector: InsideMeasurement) -> bool:
    send(hypervisor, 1)
    collector.settle()
    return bool(collector.counter(PROBE, "drops"))


@contextmanager
def bound(collector: InsideMeasurement, pct: float) -> Iterator[None]:
    assert collector.command(command="bound", kernel_cpu_pct=pct).ok
    try:
        yield
    finally:
        assert collector.command(command="bound", kernel_cpu_pct=0).ok


def assert_accounted(collector: InsideMeasurement, drops: int) -> None:
    """Each drop is in a row or said to be in none, each event submitted, suppressed or lost."""
    assert collector.counter(PROBE, "drops") == drops
    listed = collector.total(PROBE, "drops", port="vdrop")
    assert listed + collector.ledger(PROBE, "unlisted") + collector.ledger(PROBE, "map_full") == drops
    assert collector.ledger(PROBE, "unaccounted") == 0
    made = {name: collector.event_count(PROBE, name) for name in ("seen", "submitted", "suppressed", "lost")}
    assert made["seen"] == drops == made["submitted"] + made["suppressed"] + made["lost"]


@pytest.mark.proves("ovs_drops", "ledger.{unlisted,breaker}")
def test_the_time_that_rows_and_events_take_is_bounded_in_the_kernel(
    testbed: Testbed, collector: InsideMeasurement
) -> None:
    collector.set(PROBE, "details", events_per_s=100)
    with bound(collector, HARDLY_ANYTHING_PCT):
        collector.begin()
        begin_ns = collector.clock_ns()
        send(testbed.hypervisor, STORM)
        took_s = (collector.clock_ns() - begin_ns) / 1e9
        collector.settle()
    assert_accounted(collector, STORM)
    listed = STORM - collector.ledger(PROBE, "unlisted")
    grants = (took_s / OWED_S + 2) * int(testbed.hypervisor.run("nproc").text)
    print(f"{listed} of {STORM} drops in {took_s:.1f} s are in rows; the bound lets {grants:.0f} grants pass")
    assert 0 < listed <= grants * GRANT_RUNS < STORM
    assert collector.ledger(PROBE, "breaker") > STORM / 2


def test_without_a_bound_every_drop_is_in_a_row(testbed: Testbed, collector: InsideMeasurement) -> None:
    collector.set(PROBE, "details", events_per_s=100)
    collector.begin()
    send(testbed.hypervisor, STORM)
    collector.settle()
    assert_accounted(collector, STORM)
    assert collector.ledger(PROBE, "unlisted") == 0


@pytest.mark.proves("ovs_drops", "knobs.flows_one_in", "ledger.{unsampled,suppressed}", "events.drop.source_port")
def test_details_of_some_flows_are_whole(testbed: Testbed, collector: InsideMeasurement) -> None:
    collector.set(PROBE, "details", events_per_s=100_000, flows_one_in=ONE_IN)
    collector.begin()
    send(testbed.hypervisor, FLOWS * EACH, FLOWS)
    collector.settle()
    assert_accounted(collector, FLOWS * EACH)
    sampled = Counter(event.fields["source_port"] for event in collector.events if event.probe == PROBE)
    assert 0 < len(sampled) < FLOWS
    assert set(sampled.values()) == {EACH}, "a flow is seen whole or not at all"
    left_out = (FLOWS - len(sampled)) * EACH
    assert collector.ledger(PROBE, "unsampled") == collector.event_count(PROBE, "suppressed") == left_out
