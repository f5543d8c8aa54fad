"""ovs_upcalls and ovs_drops, compared with a known number of frames and with the datapath's own counts."""

from __future__ import annotations

import re

import pytest

from netconsole_collector.types.header_tree import version_code
from tests.lab.collector import InsideMeasurement
from tests.lab.conftest import Lab
from tests.lab.kernels.each import PROVEN
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.network.ovs import NOBODY_S, SAYS_WHY
from tests.lab.network.testbed import BRIDGE, Testbed
from tests.lab.network.wires import IN_A, Wires
from tests.support.live import garbage

pytestmark = pytest.mark.parametrize("testbed", PROVEN, indirect=True)

PROBES = ("ovs_upcalls", "ovs_drops")
VSWITCHD = "/run/openvswitch/ovs-vswitchd.pid"
NEW_FLOWS = 30
GUEST_FLOWS = 5
DROPPED = 50
STORM = 4000
HANDLED = 500
GARBAGE = 5000
GARBAGE_LIMIT_S = 120.0
CONNECTIONS = 5


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


def await_answers(collector: InsideMeasurement, port: str, count: int) -> None:
    collector.until(lambda: upcalls(collector, port).get("answered") == count, f"{count} answers")


def test_everything_attaches(collector: InsideMeasurement) -> None:
    for probe in PROBES:
        status = collector.statuses[probe]
        assert status.state == "attached", (status.why, status.missing)


@pytest.mark.parametrize("what", ["tcp", "udp", "icmp", "udp6", "icmp6", "garbage", "vlan", "qinq"])
@pytest.mark.proves(
    "ovs_upcalls",
    "tables.upcalls.{upcalls,packets,answered,kind,port}",
    "histograms.latency.{kind,port}",
    "tables.cpus.upcalls",
    "tables.handlers.answered",
    "tables.flows.vlan",
    "ledger.parse_failed",
    "modes.summary",
)
def test_n_new_flows_are_n_upcalls_each_answered_once(wires: Wires, collector: InsideMeasurement, what: str) -> None:
    """Also of frames whose headers lie: the datapath's own parser judges them, and their count is in the ledger."""
    collector.begin()
    before = wires.ovs.upcalls()
    wires.send(what, NEW_FLOWS)
    await_answers(collector, "va", NEW_FLOWS)
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


@pytest.mark.proves("ovs_upcalls", "tables.flows.{upcalls,source,target_port}")
def test_new_flows_of_a_guest_are_upcalls_of_its_port(testbed: Testbed, collector: InsideMeasurement) -> None:
    guest, missed = testbed.guests[0], testbed.ovs.upcalls()["missed"]
    collector.begin()
    for number in range(1, GUEST_FLOWS + 1):
        testbed.hypervisor.run("ovs-appctl", "dpctl/del-flows")
        guest.send_udp(1, testbed.bridge, port=9)
        await_answers(collector, guest.card.tap, number)
    assert upcalls(collector, guest.card.tap)["upcalls"] == GUEST_FLOWS
    collector.settle()
    by_all_ports = collector.total("ovs_upcalls", "upcalls", "upcalls")  # the hypervisor says that the port is closed
    assert by_all_ports == testbed.ovs.upcalls()["missed"] - missed
    assert collector.total("ovs_upcalls", "flows", "upcalls", source=guest.card.at.ip, target_port=9) == GUEST_FLOWS


@pytest.mark.proves("ovs_upcalls", "tables.upcalls.{upcalls,packets,kind}", "tables.cpus.kind")
def test_what_a_flow_sends_to_user_space_is_of_kind_action(wires: Wires, collector: InsideMeasurement) -> None:
    """Without a controller ovs-vswitchd keeps such packets: nobody waits for an answer."""
    rule = "priority=100,udp,in_port=va,tp_dst=8888"
    wires.hypervisor.run("ovs-ofctl", "add-flow", BRIDGE, f"{rule},actions=controller")
    wires.send("kept", 1, new=False)  # the flow is there
    collector.begin()
    wires.send("kept", NEW_FLOWS, new=False)
    collector.until(lambda: upcalls(collector, kind="action").get("packets") == NEW_FLOWS, f"{NEW_FLOWS} packets")
    collector.settle()
    wires.hypervisor.run("ovs-ofctl", "--strict", "del-flows", BRIDGE, rule)
    assert upcalls(collector) == {
        **dict.fromkeys(("upcalls", "packets"), NEW_FLOWS),
        **dict.fromkeys(("answered", "failed", "dropped", "unanswered", "late"), 0),
    }
    assert collector.total("ovs_upcalls", "cpus", "upcalls", kind="action") == NEW_FLOWS


def handlers_ns(hypervisor: Hypervisor, process: str) -> int:
    """CPU time of all handlers by the scheduler's own account (the first figure of a task's schedstat)."""
    shown = hypervisor.shell(
        f"cd /proc/{process}/task; for one in $(grep -l handler */comm); do cat ${{one%comm}}schedstat; done"
    )
    return sum(int(line.split()[0]) for line in shown.splitlines())


def test_the_handlers_times_are_those_of_the_scheduler(wires: Wires, collector: InsideMeasurement) -> None:
    def count(*names: str) -> int:
        return sum(collector.counter("ovs_upcalls", name) for name in names)

    hypervisor = wires.hypervisor
    process = hypervisor.read_file(VSWITCHD).decode().strip()
    before_ns = handlers_ns(hypervisor, process)
    collector.begin()
    wires.send("udp", HANDLED)
    collector.until(lambda: 0 < count("packets") <= count("answered", "dropped", "unanswered"), "the last answer")
    collector.settle()
    ran_ns = handlers_ns(hypervisor, process) - before_ns
    rows = collector.rows("ovs_upcalls", "handlers")
    assert sum(row.counts["answered"] for row in rows) == count("answered", "late")
    # The readings are not of one moment.
    assert ran_ns / 2 < sum(row.counts["cpu_ns"] for row in rows) < ran_ns * 1.5
    assert 0 < sum(row.counts["wakeups"] for row in rows) <= sum(row.counts["switches"] for row in rows)
    assert 0 < collector.samples("ovs_upcalls", "scheduled") <= sum(row.counts["switches"] for row in rows)


def put_dropping_flow(wires: Wires, collector: InsideMeasurement) -> None:
    """What is answered by a flow without an action does not come back."""
    wires.hypervisor.run("ovs-appctl", "revalidator/purge")
    collector.begin()
    wires.send("udp", 1, new=False)
    collector.until(lambda: upcalls(collector).get("dropped") == 1, "the flow")


@pytest.mark.proves("ovs_upcalls", "tables.upcalls.{upcalls,failed}")
def test_garbage_neither_miscounts_nor_trips(wires: Wires, collector: InsideMeasurement) -> None:
    """How many of these frames are new flows is the datapath's to say, by its own counters."""
    rules = {"priority=100,udp,in_port=va,tp_dst=4444": "drop", "priority=90,in_port=va": "output:vb"}
    for rule, actions in rules.items():
        wires.hypervisor.run("ovs-ofctl", "add-flow", BRIDGE, f"{rule},actions={actions}")
    wires.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=600000")  # the flow that drops stays
    put_dropping_flow(wires, collector)
    statuses = dict(collector.statuses)
    collector.begin()
    before = wires.ovs.upcalls()
    with wires.hypervisor.start(*IN_A, "python3", "-c", garbage.FUZZ, "eth0", "5", str(GARBAGE)) as fuzz:
        collector.until(lambda: bool(upcalls(collector)), "the first garbage")
        wires.send("udp", DROPPED, new=False)
        assert fuzz.wait(GARBAGE_LIMIT_S).code == 0
    collector.settle()
    after = wires.ovs.upcalls()
    wires.ovs.vsctl("remove", "Open_vSwitch", ".", "other_config", "max-idle")
    for rule in rules:
        wires.hypervisor.run("ovs-ofctl", "--strict", "del-flows", BRIDGE, rule)
    counted = upcalls(collector, kind="miss")
    assert counted["upcalls"] == after["missed"] - before["missed"] > 0
    assert counted["failed"] == after["lost"] - before["lost"]
    valid: dict[str, str | int] = {"port": "va", "source": "10.9.0.1", "target_port": 4444, "vlan": 0}
    assert collector.total("ovs_drops", "flows", reason="OVS_DROP_LAST_ACTION", **valid) == DROPPED
    assert collector.ledger("ovs_upcalls", "parse_failed") > 0
    assert collector.statuses == statuses, "none was tripped"


@pytest.mark.proves(
    "ovs_drops", "counters.drops", "tables.drops.{count,port,reason,class}", "tables.flows.{count,source,target_port}"
)
def test_a_flow_that_drops_is_told_from_silence_and_each_packet_it_drops_is_counted(
    wires: Wires, collector: InsideMeasurement
) -> None:
    hypervisor = wires.hypervisor
    hypervisor.run("ovs-ofctl", "add-flow", BRIDGE, "priority=100,udp,in_port=va,tp_dst=4444,actions=drop")
    put_dropping_flow(wires, collector)
    assert upcalls(collector)["unanswered"] == 0
    collector.begin()
    wires.send("udp", DROPPED, new=False)
    collector.settle()
    hypervisor.run("ovs-ofctl", "--strict", "del-flows", BRIDGE, "priority=100,udp,in_port=va,tp_dst=4444")
    (row,) = collector.rows("ovs_drops", "drops")
    assert (row.labels["port"], row.labels["reason"], row.labels["class"]) == ("va", "OVS_DROP_LAST_ACTION", "benign")
    assert row.labels["provenance"] == provenance(wires)
    assert row.counts["count"] == collector.counter("ovs_drops", "drops") == DROPPED
    (flow,) = collector.rows("ovs_drops", "flows")
    assert (flow.labels["source"], flow.labels["target_port"], flow.counts["count"]) == ("10.9.0.1", 4444, DROPPED)


def provenance(wires: Wires) -> str:
    """Of a reason that the datapath itself gives, where its kernel has reasons of sub-systems."""
    return "kernel" if version_code(wires.hypervisor.release) >= version_code(SAYS_WHY) else "inferred"


def dropped(collector: InsideMeasurement, reason: str) -> int:
    """Drops at the port va since `begin`, which are all of this reason and no flow's own decision."""
    rows = collector.rows("ovs_drops", "drops", port="va")
    assert {(row.labels["reason"], row.labels["class"]) for row in rows} == {(reason, "suspicious")}
    assert collector.total("ovs_drops", "flows", port="va", reason=reason) == collector.counter("ovs_drops", "drops")
    return collector.counter("ovs_drops", "drops")


OUTPUT_FAILS = {"mtu 600": "OVS_TOO_LARGE", "down": "OVS_NO_PORT"}
"""What is done to the port vb, and why packets of 1000 bytes are not sent by it."""
DOWN_BY_KERNEL = "DEV_READY"
"""What the kernel itself says of a port that is down: 6.12 does, 6.1 does not."""


@pytest.mark.proves("ovs_drops", "counters.drops", "tables.drops.{reason,class}", "tables.flows.count")
@pytest.mark.parametrize("change", OUTPUT_FAILS)
def test_a_port_that_does_not_take_a_packet_is_told_from_one_that_it_is_too_large_for(
    wires: Wires, collector: InsideMeasurement, change: str
) -> None:
    hypervisor = wires.hypervisor
    rule = "priority=100,udp,in_port=va,tp_dst=5555"
    hypervisor.run("ovs-ofctl", "add-flow", BRIDGE, f"{rule},actions=output:vb")
    hypervisor.run("ovs-appctl", "revalidator/purge")
    collector.begin()
    wires.send("large", 1, new=False)
    await_answers(collector, "va", 1)
    process = hypervisor.read_file(VSWITCHD).decode().strip()
    hypervisor.run("kill", "-STOP", process)  # it would see the change, and put another flow
    try:
        hypervisor.run("ip", "link", "set", "vb", *change.split())
        collector.begin()
        wires.send("large", DROPPED, new=False)
        collector.settle()
    finally:
        hypervisor.run("ip", "link", "set", "vb", "mtu", "1500", "up")
        hypervisor.run("kill", "-CONT", process)
        hypervisor.run("ovs-ofctl", "--strict", "del-flows", BRIDGE, rule)
    version = version_code(hypervisor.release)
    if change == "down" and version < version_code("6.1"):  # the datapath does not look: the device's queue drops it
        assert not collector.rows("ovs_drops", "drops")
        return
    says = change == "down" and version >= version_code("6.12")
    assert dropped(collector, DOWN_BY_KERNEL if says else OUTPUT_FAILS[change]) == DROPPED


@pytest.mark.proves("ovs_drops", "tables.drops.{count,reason}")
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
    assert {row.labels["provenance"] for row in collector.rows("ovs_drops", "drops")} == {provenance(wires)}


@pytest.mark.proves("ovs_drops", "counters.drops", "tables.drops.{reason,class}", "tables.flows.count")
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
    assert {row.labels["provenance"] for row in collector.rows("ovs_drops", "drops")} == {provenance(wires)}


@pytest.mark.proves(
    "ovs_upcalls",
    "counters.{failed,unanswered,late}",
    "tables.upcalls.{failed,unanswered,late}",
    "tables.failures.{count,error,port}",
)
def test_a_stopped_switch_owes_every_answer_and_gives_them_late(wires: Wires, collector: InsideMeasurement) -> None:
    pid = wires.hypervisor.read_file(VSWITCHD).decode().strip()
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
    assert failures == lost == collector.counter("ovs_upcalls", "failed")
    assert collector.counter("ovs_upcalls", "unanswered") == owed
    collector.until(lambda: upcalls(collector).get("late") == owed, f"{owed} late answers")
    assert collector.counter("ovs_upcalls", "late") == owed


@pytest.mark.proves("ovs_upcalls", "tables.failures.{error,count}", "tables.upcalls.failed")
def test_a_handler_that_is_gone_is_named(wires: Wires, collector: InsideMeasurement) -> None:
    collector.begin()
    with wires.ovs.without_handlers(NOBODY_S):
        wires.send("tcp", NEW_FLOWS)
        collector.settle()
    (failure,) = collector.rows("ovs_upcalls", "failures", port="va")
    assert (failure.labels["error"], failure.counts["count"]) == ("ECONNREFUSED", NEW_FLOWS)
    assert upcalls(collector)["failed"] == NEW_FLOWS


@pytest.mark.proves("ovs_upcalls", "tables.failures.{datapath,port,error,count}")
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
