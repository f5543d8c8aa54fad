"""ovs_upcalls and ovs_drops against frames of a known number, and against what the datapath itself has counted."""

from __future__ import annotations

import re

import pytest

from .collector import InsideMeasurement
from .conftest import Lab
from .hypervisor import Hypervisor
from .testbed import BRIDGE, Testbed

pytestmark = pytest.mark.lab

PROBES = ("ovs_upcalls", "ovs_drops")
NEW_FLOWS = 30
DROPPED = 50
STORM = 4000
CONNECTIONS = 5

# Two namespaces on the bridge by veth. Nothing of them speaks by itself: no IPv6, fixed neighbours.
WIRES = """
for name in a b; do
    ip netns add $name
    ip link add v$name type veth peer name eth0 netns $name
    echo 1 >/proc/sys/net/ipv6/conf/v$name/disable_ipv6
    ip netns exec $name sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6'
    ip link set v$name up
    ip -n $name link set eth0 up
    ovs-vsctl add-port {bridge} v$name
done
ip -n a address add 10.9.0.1/24 dev eth0
ip -n b address add 10.9.0.2/24 dev eth0
ip -n a neighbour replace 10.9.0.2 lladdr $(ip netns exec b cat /sys/class/net/eth0/address) dev eth0 nud permanent
ip -n b neighbour replace 10.9.0.1 lladdr $(ip netns exec a cat /sys/class/net/eth0/address) dev eth0 nud permanent
"""

# Frames as they come from the wire, each of a sender of its own: the switch learns addresses, so each is a new flow.
FRAMES = """
import socket, struct, sys
what, count, first, step = sys.argv[1], *map(int, sys.argv[2:])
device = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
device.bind(("eth0", 0))
l4 = {
    "tcp": (6, struct.pack("!HHIIHHHH", 1000, 2000, 7, 8, 0x5002, 100, 0, 0)),
    "udp": (17, struct.pack("!HHHH", 1000, 4444, 28, 0) + bytes(20)),
    "icmp": (1, struct.pack("!BBHHH", 8, 0, 0, 5, 6) + bytes(20)),
    "udp6": (17, struct.pack("!HHHH", 1000, 2000, 28, 0) + bytes(20)),
    "icmp6": (58, struct.pack("!BBHHH", 128, 0, 0, 5, 6) + bytes(20)),
    "garbage": (6, bytes(3)),
    "vlan": (17, struct.pack("!HHHH", 1000, 2000, 28, 0) + bytes(20)),
    "qinq": (17, struct.pack("!HHHH", 1000, 2000, 28, 0) + bytes(20)),
    "large": (17, struct.pack("!HHHH", 1000, 5555, 1008, 0) + bytes(1000)),
    "metered": (17, struct.pack("!HHHH", 1000, 6666, 28, 0) + bytes(20)),
    "tracked": (17, b""),
}
tags = {"vlan": "8100002a", "qinq": "88a8002a81000063"}
protocol, payload = l4[what]
six = what.endswith("6")
end = b"\\xfd" + bytes(14)
for one in range(count):
    number = first + step * one
    if what == "tracked":  # each a connection of its own
        payload = struct.pack("!HHHH", 1000 + one, 7777, 28, 0) + bytes(20)
    if six:
        ip = struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + end + b"\\1" + end + b"\\2"
    else:
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0x4000, 64, protocol, 0)
        ip += b"\\12\\11\\0\\1" + b"\\12\\11\\0\\2"
    ethernet = bytes.fromhex("0242420000010242") + struct.pack("!I", number)
    ethernet += bytes.fromhex(tags.get(what, "")) + (b"\\x86\\xdd" if six else b"\\x08\\0")
    device.send(ethernet + (ip[:7] + bytes(3) if what == "garbage" else ip + payload))
"""


class Wires:
    """The two namespaces; every frame is sent by a, and comes in by the port va."""

    def __init__(self, testbed: Testbed) -> None:
        self.hypervisor: Hypervisor = testbed.hypervisor
        self.ovs = testbed.ovs
        self._senders = 0
        self.hypervisor.shell(WIRES.format(bridge=BRIDGE))

    def send(self, what: str, count: int, *, new: bool = True) -> None:
        """`new`: each from an address that the switch has never seen; else all from one that it has."""
        first = self._senders if new else 0
        self._senders += count if new else 0
        frames = (what, str(count), str(first), str(int(new)))
        self.hypervisor.run("ip", "netns", "exec", "a", "python3", "-c", FRAMES, *frames)


@pytest.fixture(scope="module")
def wires(testbed: Testbed) -> Wires:
    return Wires(testbed)


@pytest.fixture(scope="module")
def collector(testbed: Testbed, lab: Lab) -> InsideMeasurement:
    collector = lab.collector(testbed)
    for probe in PROBES:
        collector.need(probe)
    return collector


def upcalls(collector: InsideMeasurement, port: str = "va", **labels: str) -> dict[str, int]:
    """The counts of a port since `begin`; empty when it had none."""
    rows = collector.rows("ovs_upcalls", "upcalls", port=port, **labels)
    assert len(rows) <= 1, rows
    return dict(rows[0].counts) if rows else {}


def test_everything_attaches(collector: InsideMeasurement) -> None:
    for probe in PROBES:
        status = collector.statuses[probe]
        assert status.state == "attached", (status.why, status.missing)


@pytest.mark.parametrize("what", ["tcp", "udp", "icmp", "udp6", "icmp6", "garbage", "vlan", "qinq"])
def test_n_new_flows_are_n_upcalls_each_answered_once(wires: Wires, collector: InsideMeasurement, what: str) -> None:
    """Also of frames whose headers lie: the datapath's own parser judges them, and their count is in the ledger."""
    collector.begin()
    before = wires.ovs.upcalls()
    wires.send(what, NEW_FLOWS)
    collector.until(lambda: upcalls(collector).get("answered") == NEW_FLOWS, f"{NEW_FLOWS} answers")
    counted = upcalls(collector, kind="miss")
    assert wires.ovs.upcalls()["missed"] - before["missed"] == NEW_FLOWS
    assert counted == {
        **dict.fromkeys(("upcalls", "packets", "answered"), NEW_FLOWS),
        **dict.fromkeys(("failed", "dropped", "unanswered", "late"), 0),
    }
    assert collector.samples("ovs_upcalls", "latency", port="va", kind="miss") == NEW_FLOWS
    assert collector.total("ovs_upcalls", "cpus", "upcalls") == NEW_FLOWS
    assert collector.total("ovs_upcalls", "handlers", "answered") == NEW_FLOWS
    assert collector.counter("ovs_upcalls", "unasked") == 0
    assert collector.ledger("ovs_upcalls", "join_missed") == 0
    assert collector.ledger("ovs_upcalls", "parse_failed") == (NEW_FLOWS if what == "garbage" else 0)
    assert collector.event_count("ovs_upcalls", "seen") == 0, "summary submits nothing"
    vlans = {row.labels["vlan"] for row in collector.rows("ovs_upcalls", "flows", port="va")}
    assert vlans == {42 if what in ("vlan", "qinq") else 0}


def test_a_flow_that_drops_is_told_from_silence_and_each_packet_it_drops_is_counted(
    wires: Wires, collector: InsideMeasurement
) -> None:
    hypervisor = wires.hypervisor
    hypervisor.run("ovs-ofctl", "add-flow", BRIDGE, "priority=100,udp,in_port=va,tp_dst=4444,actions=drop")
    collector.begin()
    wires.send("udp", 1, new=False)
    collector.until(lambda: upcalls(collector).get("dropped") == 1, "the flow")
    assert upcalls(collector)["unanswered"] == 0
    collector.begin()
    wires.send("udp", DROPPED, new=False)
    collector.settle()
    hypervisor.run("ovs-ofctl", "--strict", "del-flows", BRIDGE, "priority=100,udp,in_port=va,tp_dst=4444")
    (row,) = collector.rows("ovs_drops", "drops")
    assert (row.labels["port"], row.labels["reason"], row.labels["class"]) == ("va", "OVS_DROP_LAST_ACTION", "benign")
    assert row.counts["count"] == collector.counter("ovs_drops", "drops") == DROPPED
    (flow,) = collector.rows("ovs_drops", "flows")
    assert (flow.labels["source"], flow.labels["target_port"], flow.counts["count"]) == ("10.9.0.1", 4444, DROPPED)


def dropped(collector: InsideMeasurement, reason: str) -> int:
    """Drops at the port va since `begin`, which are all of this reason and no flow's own decision."""
    rows = collector.rows("ovs_drops", "drops", port="va")
    assert {(row.labels["reason"], row.labels["class"]) for row in rows} == {(reason, "suspicious")}
    assert collector.total("ovs_drops", "flows", port="va") == collector.counter("ovs_drops", "drops")
    return collector.counter("ovs_drops", "drops")


def test_packets_too_large_for_their_port_are_drops_of_its_action(wires: Wires, collector: InsideMeasurement) -> None:
    hypervisor = wires.hypervisor
    hypervisor.run("ovs-ofctl", "add-flow", BRIDGE, "priority=100,udp,in_port=va,tp_dst=5555,actions=output:vb")
    hypervisor.run("ip", "link", "set", "vb", "mtu", "600")
    try:
        collector.begin()
        wires.send("large", DROPPED, new=False)
        collector.settle()
    finally:
        hypervisor.run("ip", "link", "set", "vb", "mtu", "1500")
    # ovs_vport_send ends with a jump to kfree_skb: what is seen is the function that called it.
    assert dropped(collector, "OVS_ACTION_FAILED") == DROPPED


def test_what_a_meter_drops_is_what_it_says(wires: Wires, collector: InsideMeasurement) -> None:
    hypervisor = wires.hypervisor
    openflow = ("ovs-ofctl", "-O", "OpenFlow13")
    hypervisor.run(*openflow, "add-meter", BRIDGE, "meter=1,pktps,burst,band=type=drop,rate=1,burst_size=10")
    rule = "priority=100,udp,in_port=va,tp_dst=6666,actions=meter:1,output:vb"
    hypervisor.run(*openflow, "add-flow", BRIDGE, rule)
    collector.begin()
    wires.send("metered", DROPPED, new=False)
    collector.settle()
    shown = hypervisor.run(*openflow, "meter-stats", BRIDGE, "meter=1").text
    hypervisor.run(*openflow, "--strict", "del-flows", BRIDGE, rule.partition(",actions")[0])
    hypervisor.run(*openflow, "del-meter", BRIDGE, "meter=1")
    (by_band,) = re.findall(r"0: packet_count:(\d+)", shown)
    assert dropped(collector, "OVS_DROP_METER") == int(by_band) > 0


def test_connections_over_a_zone_s_limit_are_drops_of_conntrack(wires: Wires, collector: InsideMeasurement) -> None:
    hypervisor = wires.hypervisor
    hypervisor.run("ovs-appctl", "dpctl/ct-set-limits", f"zone=5,limit={CONNECTIONS}")
    rule = "priority=100,udp,in_port=va,tp_dst=7777,actions=ct(commit,zone=5),output:vb"
    hypervisor.run("ovs-ofctl", "add-flow", BRIDGE, rule)
    collector.begin()
    wires.send("tracked", NEW_FLOWS, new=False)
    collector.settle()
    hypervisor.run("ovs-ofctl", "--strict", "del-flows", BRIDGE, rule.partition(",actions")[0])
    assert dropped(collector, "OVS_DROP_CONNTRACK") == NEW_FLOWS - CONNECTIONS


def test_a_stopped_switch_owes_every_answer_and_gives_them_late(wires: Wires, collector: InsideMeasurement) -> None:
    pid = wires.hypervisor.read_file("/run/openvswitch/ovs-vswitchd.pid").decode().strip()
    collector.begin()
    before = wires.ovs.upcalls()
    wires.hypervisor.run("kill", "-STOP", pid)
    try:
        wires.send("udp", STORM)
        after = wires.ovs.upcalls()
        lost = after["lost"] - before["lost"]
        owed = STORM - lost
        collector.until(lambda: upcalls(collector).get("unanswered") == owed, f"{owed} unanswered")
        counted = upcalls(collector)
        failures = collector.total("ovs_upcalls", "failures", port="va", error="EAGAIN")
    finally:
        wires.hypervisor.run("kill", "-CONT", pid)
    assert after["missed"] - before["missed"] == STORM
    assert (counted["upcalls"], counted["failed"], counted["packets"], counted["answered"]) == (STORM, lost, owed, 0)
    assert failures == lost
    collector.until(lambda: upcalls(collector).get("late") == owed, f"{owed} late answers")


def test_the_trap_of_no_handler_is_named(wires: Wires, collector: InsideMeasurement) -> None:
    """A datapath whose ports have no upcall socket, as of a switch that was started too early."""
    wires.hypervisor.shell("ovs-vsctl del-port va; ovs-dpctl add-dp deaf; ovs-dpctl add-if deaf va")
    collector.begin()
    try:
        wires.send("tcp", NEW_FLOWS)
        collector.settle()
        (failure,) = collector.rows("ovs_upcalls", "failures")
        counted = upcalls(collector)
        drops = collector.total("ovs_drops", "drops", port="va", reason="OVS_UPCALL_FAILED")
    finally:
        wires.hypervisor.shell(f"ovs-dpctl del-dp deaf; ovs-vsctl add-port {BRIDGE} va")
    assert (failure.labels["error"], failure.labels["datapath"], failure.labels["port"]) == ("ENOTCONN", "deaf", "va")
    assert failure.counts["count"] == counted["upcalls"] == counted["failed"] == drops == NEW_FLOWS
