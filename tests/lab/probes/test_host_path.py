"""host_path through Open vSwitch's kernel datapath: each packet counts once, and a delay shows in the right stage."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import partial

import pytest

from tests.lab.collector import InsideMeasurement
from tests.lab.conftest import Lab
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.machine.l2 import Address
from tests.lab.network.testbed import BRIDGE, PREFIX_LENGTH, Testbed
from tests.support.live.path import HOST_PATH, PING, SERVE_TCP, TCP_PORT, Watch

WAN, FAR = "wan0", "10.77.0.200"
"""A port of the switch that stands for the physical device, and who is behind it, in a namespace of the same name."""
SETS = {"inside_devices": "kind:tap", "outside_devices": WAN}
PORT, TRACKED, COPIED, TUNNELLED = 9, 10, 11, 12
MANY, STORM = 2000, 10_000
SOME = 200
PINGS = 20
ASKED = 5
BYTES = 1_000_000
DELAY_MS = 40
FLOOD = """
import socket, sys
flood = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(int(sys.argv[3])):
    flood.sendto(b"x", (sys.argv[1], int(sys.argv[2])))
"""
STAGES = ("forward", "lookup", "upcall", "actions", "ct", "devices", "qdisc")


@pytest.fixture(scope="module")
def far(testbed: Testbed) -> Iterator[Address]:
    """Behind the switch: a - tap - Open vSwitch - veth - far. Everybody knows everybody's address."""
    hypervisor, guest = testbed.hypervisor, testbed.guests[0]
    hypervisor.shell(f"""
        ip netns add far
        ip link add {WAN} type veth peer name eth0 netns far
        for wire in "" "ip netns exec far"; do $wire sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6'; done
        ip link set {WAN} up
        ip -n far address add {FAR}/{PREFIX_LENGTH} dev eth0
        ip -n far link set eth0 up
        ip -n far neighbour replace {guest.card.at.ip} lladdr {guest.card.mac} dev eth0 nud permanent
    """)
    testbed.ovs.add_port(BRIDGE, WAN)
    mac = hypervisor.run("ip", "netns", "exec", "far", "cat", "/sys/class/net/eth0/address").text.strip()
    there = Address(FAR, mac)
    guest.run(f"arp -s {there.ip} {there.mac}")
    guest.run(f"ping -c 1 {FAR}")  # the switch learns where everybody is
    yield there
    testbed.ovs.vsctl("del-port", BRIDGE, WAN)
    hypervisor.run("ip", "netns", "delete", "far")


@pytest.fixture(scope="module")
def path(testbed: Testbed, lab: Lab, far: Address) -> InsideMeasurement:
    collector = lab.collector(testbed)
    collector.need(HOST_PATH, **SETS)
    return collector


def test_its_tracepoints_read_the_kernel_by_loads(testbed: Testbed, path: InsideMeasurement) -> None:
    """Typed by BTF before 6.2, from then on by casts. By helpers a packet would cost three times as much."""
    listed = json.loads(testbed.hypervisor.run("bpftool", "-j", "prog", "show").text)
    kinds = {one["type"] for one in listed if one.get("name") in ("on_receive", "on_queue", "on_send")}
    major, minor = testbed.hypervisor.tree.version.split(".")[:2]
    assert kinds == {"tracing" if (int(major), int(minor)) < (6, 2) else "raw_tracepoint"}


def watch_of(path: InsideMeasurement, **knobs: str | int | float) -> Watch:
    return Watch(path, **SETS, **knobs)


def counts(watch: Watch, direction: str) -> dict[str, int]:
    """Samples of each stage that has any."""
    found = {stage: watch.stage(direction, stage)[0] for stage in STAGES}
    return {stage: count for stage, count in found.items() if count}


def mean_ms(watch: Watch, direction: str, stage: str) -> float:
    count, total_ns = watch.stage(direction, stage)
    return total_ns / count / 1e6 if count else 0.0


def assert_whole(watch: Watch, *directions: str) -> None:
    """Nothing escaped, and the stages are the whole."""
    assert watch.missed() == {}
    for direction in directions:
        assert sum(watch.stage(direction, stage)[1] for stage in STAGES) == watch.whole(direction) > 0


def forget_flows(hypervisor: Hypervisor) -> None:
    """The next packet of every flow is an upcall, the one after it none.

    Of flows that are taken from the datapath alone (dpctl/del-flows) the switch thinks that they are still there, and
    puts none again for as long as it would have kept them: then every packet is an upcall.
    """
    hypervisor.run("ovs-appctl", "revalidator/purge")


def test_everything_attaches(path: InsideMeasurement) -> None:
    status = path.statuses[HOST_PATH]
    assert status.state == "attached", (status.why, status.missing)
    functions = {point.partition(":")[2] for point in status.attach}
    assert {"ovs_do_execute_action" if tells_conntrack(path) else "ovs_execute_actions", "ovs_dp_upcall"} <= functions


def tells_conntrack(path: InsideMeasurement) -> bool:
    """Open vSwitch's own tracepoints say when each action begins, from 5.14 on."""
    return "raw_tracepoint:ovs_do_execute_action" in path.statuses[HOST_PATH].attach


def test_every_datagram_is_timed_once_by_stage(testbed: Testbed, path: InsideMeasurement, far: Address) -> None:
    watch = watch_of(path, protocol="udp")
    testbed.guests[0].send_udp(MANY, far, port=PORT)
    watch.stop()
    assert watch.crossed("out") == watch.counter("packets") == MANY
    found = counts(watch, "out")
    assert found.pop("upcall", 0) == watch.counter("returned") == watch.counter("asked")
    assert found == {"lookup": MANY, "actions": MANY, "qdisc": MANY}
    assert_whole(watch, "out")


def test_a_storm_is_counted_exactly_and_followed_in_part(
    testbed: Testbed, path: InsideMeasurement, far: Address
) -> None:
    guest = testbed.guests[0].card.at
    watch = watch_of(path)
    testbed.hypervisor.run("ip", "netns", "exec", "far", "python3", "-c", FLOOD, guest.ip, str(PORT), str(STORM))
    watch.stop()
    crossed, unlisted = watch.counter("crossed"), path.ledger(HOST_PATH, "unlisted")
    assert STORM <= crossed == watch.counter("packets") < STORM + SOME, "all of them, and the guest's few answers"
    assert unlisted > 0
    assert watch.added("crossing").count == crossed - unlisted
    assert_whole(watch, "in")


def test_every_echo_is_timed_once_each_way(testbed: Testbed, path: InsideMeasurement, far: Address) -> None:
    forget_flows(testbed.hypervisor)
    watch = watch_of(path, protocol="icmp")
    testbed.guests[0].run(f"ping -c {PINGS} {far.ip}", limit_s=PINGS + 30.0)
    watch.stop()
    assert (watch.crossed("out"), watch.crossed("in")) == (PINGS, PINGS)
    for direction in ("out", "in"):
        found = counts(watch, direction)
        assert found.pop("upcall") == 1
        assert found == {"lookup": PINGS, "actions": PINGS, "qdisc": PINGS}
    assert_whole(watch, "out", "in")


def test_the_switch_s_own_port_is_a_device_of_a_set(testbed: Testbed, path: InsideMeasurement, far: Address) -> None:
    watch = Watch(path, inside_devices="kind:internal", outside_devices=WAN, protocol="icmp")
    testbed.hypervisor.run("python3", "-c", PING, far.ip, str(PINGS))
    watch.stop()
    for direction, ends in (("out", (BRIDGE, WAN)), ("in", (WAN, BRIDGE))):
        assert watch.crossed(direction) == PINGS
        (between,) = path.histograms(HOST_PATH, "crossing", **dict(zip(("from", "to"), ends, strict=True)))
        assert between.total.count == PINGS
    assert_whole(watch, "out", "in")


@contextlib.contextmanager
def flow(testbed: Testbed, port: int, actions: str) -> Iterator[None]:
    """What vnet0 sends to this port is done these actions to."""
    rule = f"priority=100,udp,in_port=vnet0,tp_dst={port}"
    testbed.hypervisor.run("ovs-ofctl", "add-flow", BRIDGE, f"{rule},actions={actions}")
    yield
    testbed.hypervisor.run("ovs-ofctl", "--strict", "del-flows", BRIDGE, rule)


def test_conntrack_is_a_stage(testbed: Testbed, path: InsideMeasurement, far: Address) -> None:
    """Where the kernel tells when it begins: else it is a part of the actions."""
    with flow(testbed, TRACKED, f"ct(commit,zone=7),output:{WAN}"):
        watch = watch_of(path, protocol="udp", port=TRACKED)
        testbed.guests[0].send_udp(SOME, far, port=TRACKED)
        watch.stop()
    found = counts(watch, "out")
    found.pop("upcall")
    stages = ["lookup", "actions", "qdisc", *(["ct"] if tells_conntrack(path) else [])]
    assert found == dict.fromkeys(stages, SOME)
    assert_whole(watch, "out")


def test_a_copy_for_another_port_is_followed(testbed: Testbed, path: InsideMeasurement, far: Address) -> None:
    with flow(testbed, COPIED, f"output:{WAN},output:vnet1"):
        testbed.guests[0].send_udp(1, far, port=COPIED)  # the flow is there
        watch = watch_of(path, protocol="udp", port=COPIED)
        testbed.guests[0].send_udp(SOME, far, port=COPIED)
        watch.stop()
    assert (watch.crossed("out"), watch.crossed("within"), watch.counter("copies")) == (SOME, SOME, SOME)
    assert_whole(watch, "out", "within")


TUNNEL = """
ip link add und0 type veth peer name und1 netns far
for wire in "" "ip netns exec far"; do $wire sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6'; done
ip address add 172.31.0.1/24 dev und0
ip link set und0 up
ip -n far link set und1 up
ip neighbour replace 172.31.0.2 lladdr 02:00:00:00:00:02 dev und0 nud permanent
ovs-vsctl add-port {bridge} tun0 -- set interface tun0 type={kind} options:remote_ip=172.31.0.2 options:key=7
"""


@pytest.mark.parametrize("kind", ["vxlan", "geneve"])
def test_a_packet_is_followed_into_its_tunnel(
    testbed: Testbed, path: InsideMeasurement, far: Address, kind: str
) -> None:
    testbed.hypervisor.shell(TUNNEL.format(bridge=BRIDGE, kind=kind))
    with flow(testbed, TUNNELLED, "output:tun0"):
        testbed.guests[0].send_udp(1, far, port=TUNNELLED)  # the flow is there
        watch = Watch(path, inside_devices="kind:tap", outside_devices="und0")
        testbed.guests[0].send_udp(SOME, far, port=TUNNELLED)
        watch.stop()
    testbed.hypervisor.shell(f"ovs-vsctl del-port {BRIDGE} tun0; ip link delete und0")
    (row,) = path.rows(HOST_PATH, "flows", direction="out")
    assert (row.labels["source"], row.labels["target_port"]) == (testbed.guests[0].card.at.ip, TUNNELLED)
    assert row.counts["samples"] == watch.crossed("out") == SOME
    assert counts(watch, "out") == dict.fromkeys(("lookup", "actions", "devices", "qdisc"), SOME)
    assert_whole(watch, "out")


def test_tcp_counts_as_the_segments_that_it_stands_for(testbed: Testbed, path: InsideMeasurement, far: Address) -> None:
    hypervisor, guest = testbed.hypervisor, testbed.guests[0]
    in_far = ("ip", "netns", "exec", "far")

    def segments() -> int:
        """OutSegs leaves out what is sent again."""
        shown = [guest.run("cat /proc/net/snmp"), hypervisor.run(*in_far, "cat", "/proc/net/snmp").text]
        lines = [[line.split() for line in text.splitlines() if line.startswith("Tcp:")] for text in shown]
        tables = [dict(zip(names, values, strict=True)) for names, values in lines]
        return sum(int(table[name]) for table in tables for name in ("OutSegs", "RetransSegs"))

    watch = watch_of(path, protocol="tcp")
    before = segments()
    with hypervisor.start(*in_far, "python3", "-c", SERVE_TCP, str(TCP_PORT)) as server:
        server.wait_for(b"ready\n")
        guest.run(f"dd if=/dev/zero bs={BYTES} count=1 2>/dev/null | nc {far.ip} {TCP_PORT}")
        assert int(server.wait_for(b"\n")) == BYTES
    path.until(lambda: watch.counter("packets") >= segments() - before, "the last segment")
    watch.stop()
    assert watch.counter("packets") == segments() - before
    assert watch.counter("crossed") < watch.counter("packets")
    assert_whole(watch, "out", "in")


@pytest.mark.parametrize("qdisc", ["netem delay {}ms", "tbf rate 8mbit burst 1600 limit 1000000"])
def test_a_delay_in_the_queue_shows_there_alone(
    testbed: Testbed, path: InsideMeasurement, far: Address, qdisc: str
) -> None:
    words = qdisc.format(DELAY_MS).split()
    testbed.guests[0].send_udp(1, far, port=PORT)  # the flow is there
    testbed.hypervisor.run("tc", "qdisc", "replace", "dev", WAN, "root", *words)
    try:
        watch = watch_of(path, protocol="udp")
        testbed.guests[0].send_udp(PINGS, far, port=PORT, size=1400)
        path.until(lambda: watch.counter("crossed") == PINGS, "the last packet")
        watch.stop()
    finally:
        testbed.hypervisor.run("tc", "qdisc", "delete", "dev", WAN, "root")
    assert watch.crossed("out") == PINGS
    # 1400 bytes at 8 Mbit/s are 1.4 ms: on average a packet waits for half of the others.
    expected_ms = DELAY_MS if "netem" in words else 1.4 * (PINGS - 1) / 2 / 2
    assert mean_ms(watch, "out", "qdisc") > expected_ms
    for stage in ("lookup", "actions", "upcall", "devices", "forward"):
        assert mean_ms(watch, "out", stage) < expected_ms / 2, stage
    assert_whole(watch, "out")


def has_crossed(watch: Watch, packets: int) -> bool:
    return watch.counter("crossed") == packets


def test_a_switch_that_takes_its_time_shows_as_upcall_alone(
    testbed: Testbed, path: InsideMeasurement, far: Address
) -> None:
    hypervisor = testbed.hypervisor
    vswitchd = hypervisor.read_file("/run/openvswitch/ovs-vswitchd.pid").decode().strip()
    watch = watch_of(path, protocol="udp")
    for number in range(1, ASKED + 1):
        forget_flows(hypervisor)
        hypervisor.run("kill", "-STOP", vswitchd)
        try:
            testbed.guests[0].send_udp(1, far, port=PORT)
            hypervisor.run("sleep", str(DELAY_MS / 1000))
        finally:
            hypervisor.run("kill", "-CONT", vswitchd)
        path.until(partial(has_crossed, watch, number), "the packet")
    watch.stop()
    assert counts(watch, "out") == dict.fromkeys(("lookup", "upcall", "actions", "qdisc"), ASKED)
    assert watch.counter("asked") == watch.counter("returned") == ASKED
    assert mean_ms(watch, "out", "upcall") > DELAY_MS
    for stage in ("lookup", "actions", "qdisc"):
        assert mean_ms(watch, "out", stage) < DELAY_MS / 2, stage
    assert_whole(watch, "out")
