"""ovs_upcalls by frames of which every byte is known: labels, events, filters, and what became of each upcall."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping

import pytest

from netconsole.telemetry import frames
from tests.lab.collector import InsideMeasurement
from tests.lab.machine.hypervisor import CPUS
from tests.lab.network.ovs import NOBODY_S
from tests.lab.network.testbed import BRIDGE, Testbed
from tests.lab.ovs.ends import Ends, events_of
from tests.support.live.ovs_frames import (
    ALL,
    ANSWERED_BY,
    DATAPATH,
    FILTERS,
    NETNS,
    PORT,
    SCTP,
    TRAFFIC,
    Frame,
    expected_fields,
    expected_labels,
)

PROBE = "ovs_upcalls"
SHORT_MS, PATIENT_MS = 300, 60_000
EVERY_EVENT = {"threshold_us": 0, "events_per_s": 100_000, "unanswered_after_ms": PATIENT_MS}
FEW = 7
PACKETS_OUT = 5
FROM_GUEST = 5


def counters(collector: InsideMeasurement) -> dict[str, int]:
    names = ["upcalls", "failed", "packets", "answered", "dropped", "unanswered", "late", "unasked", "refused"]
    found = {name: collector.counter(PROBE, name) for name in names}
    return {name: count for name, count in found.items() if count}


@pytest.mark.proves(
    "ovs_upcalls",
    "counters.{upcalls,packets,answered}",
    "tables.upcalls.{datapath,port,netns,vm,kind,upcalls,packets,answered}",
    "tables.cpus.{datapath,kind,cpu,upcalls}",
    "tables.flows.{port,netns,vm,source,target,target_port,ethertype,protocol,vlan,upcalls}",
    "histograms.latency.{datapath,port,netns,vm,kind}",
    "modes.summary",
)
def test_each_frame_is_told_by_port_flow_and_cpu(ends: Ends, collector: InsideMeasurement) -> None:
    collector.set(PROBE, unanswered_after_ms=PATIENT_MS)
    collector.begin()
    before = ends.ovs.upcalls()["missed"]
    for cpu in range(CPUS):
        for _ in range(cpu + 1):
            ends.send_traffic(cpu=cpu, is_answered=True)
    times = sum(range(1, CPUS + 1))
    collector.settle()
    collector.assert_whole(PROBE)
    assert ends.ovs.upcalls()["missed"] - before == ALL * times
    assert counters(collector) == dict.fromkeys(("upcalls", "packets", "answered"), ALL * times)
    assert {row.labels["cpu"]: row.counts["upcalls"] for row in collector.rows(PROBE, "cpus")} == {
        cpu: ALL * (cpu + 1) for cpu in range(CPUS)
    }
    of_all = {"datapath": DATAPATH, "kind": "miss"}
    assert all(of_all.items() <= row.labels.items() for row in collector.rows(PROBE, "cpus"))
    flows = [(dict(row.labels), row.counts["upcalls"]) for row in collector.rows(PROBE, "flows")]
    expected = [(expected_labels(place, frame), times << number) for number, (place, frame) in enumerate(TRAFFIC)]
    assert sorted(flows, key=lambda one: one[1]) == expected
    by_place = Counter({place: 0 for place, _ in TRAFFIC})
    for number, (place, _) in enumerate(TRAFFIC):
        by_place[place] += times << number
    for place, count in by_place.items():
        labels = {**of_all, "port": PORT[place], "netns": NETNS[place], "vm": None}
        (row,) = collector.rows(PROBE, "upcalls", port=PORT[place])
        assert row.labels == labels
        assert (row.counts["upcalls"], row.counts["packets"], row.counts["answered"]) == (count,) * 3
        assert collector.samples(PROBE, "latency", **labels) == count


@pytest.mark.proves(
    "ovs_upcalls",
    "events.upcall.{mono_ns,datapath,port,netns,kind,source,target,source_port,target_port,ethertype,vlan,protocol}",
    "events.upcall.{latency_ns,length_bytes,cpu,handler}",
    "modes.details",
)
def test_each_event_is_the_frame_that_was_sent(ends: Ends, collector: InsideMeasurement) -> None:
    collector.set(PROBE, "details", **EVERY_EVENT)
    collector.begin()
    sent = [
        (
            place,
            frame,
            number % CPUS,
            ends.sender.send(place, [frame], cpu=number % CPUS, answered_by=ANSWERED_BY[place]),
        )
        for number, (place, frame) in enumerate(TRAFFIC)
    ]
    collector.settle()
    events = sorted((event.fields for event in events_of(collector, PROBE)), key=lambda one: int(str(one["mono_ns"])))
    assert len(events) == len(sent)
    handler = f"ovs-vswitchd ({ends.vswitchd})"
    for fields, (place, frame, cpu, [clock]) in zip(events, sent, strict=True):
        answered_ns, latency_ns = int(str(fields.pop("mono_ns"))), int(str(fields.pop("latency_ns")))
        assert fields == {
            **expected_fields(place, frame),
            "datapath": DATAPATH,
            "kind": "miss",
            "cpu": cpu,
            "handler": handler,
            "length_bytes": len(frame.ip),
        }
        assert clock.began_ns < answered_ns - latency_ns < answered_ns < clock.ended_ns


ARP = struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, bytes(6), bytes((10, 9, 0, 1)), bytes(6), bytes((10, 9, 0, 2)))
ARP_FRAME = bytes.fromhex("024242000002" + "024400000001" + "0806") + ARP
UNUSUAL = (
    Frame("10.9.0.3", "10.9.0.4", SCTP),
    Frame("fd00::3", "fd00::4", SCTP, target_port=2001),
    Frame("10.9.0.5", "10.9.0.6", fragment_at=100),
    Frame("10.9.0.7", "10.9.0.8", vlan=4094),
)


@pytest.mark.proves(
    "ovs_upcalls",
    "tables.flows.{source,target,target_port,ethertype,protocol,vlan,upcalls}",
    "events.upcall.{source,target,source_port,target_port,ethertype,protocol,vlan}",
)
def test_what_is_not_usual_is_told_as_well(ends: Ends, collector: InsideMeasurement) -> None:
    collector.set(PROBE, "details", **EVERY_EVENT)
    ends.hypervisor.run("ovs-appctl", "revalidator/purge")
    collector.begin()
    ends.sender.send("a", [*UNUSUAL, ARP_FRAME], answered_by="vb")
    collector.settle()
    assert counters(collector) == dict.fromkeys(("upcalls", "packets", "answered"), len(UNUSUAL) + 1)
    arp: dict[str, frames.Label] = {"ethertype": "ARP", "protocol": "not IP", "target_port": 0, "vlan": 0}
    arp |= {"source": "10.9.0.1", "target": "10.9.0.2", "port": "va", "netns": "host", "vm": None}
    flows = [expected_labels("a", frame) for frame in UNUSUAL] + [arp]
    rows = collector.rows(PROBE, "flows")
    assert sorted((dict(row.labels) for row in rows), key=_source) == sorted(flows, key=_source)
    assert {row.counts["upcalls"] for row in rows} == {1}
    ports = [0 if frame.fragment_at else frame.source_port for frame in UNUSUAL] + [0]
    for event, flow, source_port in zip(events_of(collector, PROBE), flows, ports, strict=True):
        assert {**flow, "source_port": source_port}.items() <= event.fields.items()


def _source(labels: Mapping[str, frames.Label]) -> str:
    return str(labels["source"])


@pytest.mark.proves(
    "ovs_upcalls", "knobs.{device,netns,address,port,protocol,vlan,ethertype,mac}", "modes.{counters,details}"
)
@pytest.mark.parametrize("mode", ["counters", "details"])
def test_filters_let_pass_what_they_name_and_nothing_else(ends: Ends, collector: InsideMeasurement, mode: str) -> None:
    found = {}
    for name, knobs, _ in FILTERS:
        collector.set(PROBE, mode, **EVERY_EVENT, **knobs(ends.netns))
        collector.begin()
        ends.send_traffic(is_answered=True)
        collector.settle()
        counted = collector.counter(PROBE, "upcalls")
        found[name] = counted
        assert (collector.counter(PROBE, "unasked"), collector.ledger(PROBE, "join_missed")) == (0, 0), name
        if mode == "details":
            assert {
                collector.total(PROBE, "upcalls", "upcalls"),
                collector.total(PROBE, "cpus", "upcalls"),
                collector.total(PROBE, "flows", "upcalls"),
                collector.counter(PROBE, "answered"),
                collector.samples(PROBE, "latency"),
                len(events_of(collector, PROBE)),
            } == {counted}, name
    assert found == {name: expected for name, _, expected in FILTERS}


@pytest.mark.proves("ovs_upcalls", "modes.counters", "counters.upcalls", "ledger.unlisted")
def test_mode_counters_counts_and_does_nothing_else(ends: Ends, collector: InsideMeasurement) -> None:
    collector.set(PROBE, "counters")
    (point,) = collector.statuses[PROBE].attach
    assert point in ("raw_tracepoint:ovs_dp_upcall", "kprobe:ovs_dp_upcall"), "the tracepoint is there from 5.14 on"
    collector.begin()
    before = ends.ovs.upcalls()["missed"]
    ends.send_traffic(is_answered=True)
    collector.settle()
    assert ends.ovs.upcalls()["missed"] - before == ALL
    assert counters(collector) == {"upcalls": ALL}
    assert collector.ledger(PROBE, "unlisted") == ALL
    assert not any(collector.rows(PROBE, table) for table in ("upcalls", "cpus", "flows", "failures", "handlers"))
    assert collector.samples(PROBE, "latency") == collector.event_count(PROBE, "seen") == 0


@pytest.mark.proves("ovs_upcalls", "counters.{dropped,packets}", "tables.upcalls.{dropped,packets,answered}")
def test_what_user_space_decides_to_drop_is_counted_as_dropped(ends: Ends, collector: InsideMeasurement) -> None:
    """Below the rule that looks at the source, so that each frame is a new flow."""
    collector.set(PROBE, unanswered_after_ms=SHORT_MS)
    with ends.rule("priority=150,udp,in_port=va,tp_dst=4001", "drop"):
        collector.begin()
        ends.sender.send("a", [Frame("10.9.0.1", "10.9.0.2", target_port=4001)] * FEW)
        collector.until(
            lambda: sum(counters(collector).get(one, 0) for one in ("dropped", "unanswered")) == FEW, "fates"
        )
    assert counters(collector) == dict.fromkeys(("upcalls", "packets", "dropped"), FEW)
    (row,) = collector.rows(PROBE, "upcalls")
    assert {name: count for name, count in row.counts.items() if count} == counters(collector)
    assert collector.samples(PROBE, "latency", port="va") == FEW


@pytest.mark.proves("ovs_upcalls", "counters.unasked")
def test_what_a_controller_sends_was_not_asked_for(ends: Ends, collector: InsideMeasurement) -> None:
    collector.set(PROBE)
    collector.begin()
    before = ends.hypervisor.counter("vb", "tx_packets")
    out = f"in_port=LOCAL,packet={Frame('10.9.0.1', '10.9.0.2').raw(1).hex()},actions=output:vb"
    for _ in range(PACKETS_OUT):
        ends.hypervisor.run("ovs-ofctl", "packet-out", BRIDGE, out)
    collector.until(lambda: counters(collector).get("unasked") == PACKETS_OUT, "the packets")
    assert ends.hypervisor.counter("vb", "tx_packets") - before == PACKETS_OUT
    assert counters(collector) == {"unasked": PACKETS_OUT}


# To execute a packet (OVS_PACKET_CMD_EXECUTE) with a key whose port has the wrong length, and then one as it should be.
EXECUTE = """
import socket, struct, sys
from netconsole_collector.sources import netlink_messages as netlink
from netconsole_collector.sources.ovs import datapaths as ovs_netlink
opened = ovs_netlink.OvsNetlink()
family = netlink.families(opened._netlink)["ovs_packet"]
(datapath,) = opened.datapaths()
attribute = netlink.attribute
def execute(port):
    body = struct.pack("=BBxxi", 3, 1, datapath.ifindex)
    body += attribute(1, bytes.fromhex(sys.argv[2])) + attribute(2, attribute(3, port), True)
    body += attribute(3, b"", True)
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
    made.send(struct.pack("=IHHII", 16 + len(body), family, 5, 1, 0) + body)
    return -struct.unpack_from("=i", made.recv(4096), 16)[0]
refused = [execute(struct.pack("=H", 1)) for _ in range(int(sys.argv[1]))]
print(*refused, execute(struct.pack("=I", 1)))
"""


@pytest.mark.proves("ovs_upcalls", "counters.{refused,unasked}")
def test_what_the_datapath_does_not_understand_is_refused(ends: Ends, collector: InsideMeasurement) -> None:
    collector.set(PROBE)
    collector.begin()
    frame = Frame("10.9.0.1", "10.9.0.2").raw(1).hex()
    *refused, last = map(int, ends.hypervisor.python("-c", EXECUTE, str(FEW), frame).split())
    assert all(refused) and len(refused) == FEW and not last, "errors of the kernel"
    collector.settle()
    assert counters(collector) == {"refused": FEW, "unasked": 1}


@pytest.mark.proves(
    "ovs_upcalls",
    "counters.{failed,upcalls}",
    "tables.upcalls.failed",
    "tables.cpus.{failed,cpu,kind}",
    "tables.failures.{datapath,port,netns,error,kind,count}",
)
def test_upcalls_that_fail_are_told_by_port_error_and_kind(ends: Ends, collector: InsideMeasurement) -> None:
    collector.set(PROBE)
    kept = Frame("10.9.0.1", "10.9.0.2", target_port=8888)
    with ends.rule("priority=300,udp,in_port=va,tp_dst=8888", "controller"):
        ends.sender.send("a", [kept])
        collector.until(lambda: _has_flow(ends, kept), "its flow")
        collector.begin()
        before = ends.ovs.upcalls()["lost"]
        with ends.ovs.without_handlers(NOBODY_S):
            ends.send_traffic(cpu=1, is_answered=False)
            ends.sender.send("a", [kept] * FEW, cpu=0)
            collector.settle()
        lost = ends.ovs.upcalls()["lost"] - before
    failed = FEW if ends.ovs.asks_by_cpu else 0  # before 5.15 the flow's action has a handler's socket of its own
    assert lost == ALL + failed
    expected = {"upcalls": ALL + FEW, "failed": ALL + failed, "packets": FEW - failed}
    assert counters(collector) == {name: count for name, count in expected.items() if count}
    of_cpus = {(row.labels["kind"], row.labels["cpu"]): row.counts["failed"] for row in collector.rows(PROBE, "cpus")}
    assert of_cpus == {("miss", 1): ALL, ("action", 0): failed}
    misses = {"va": 7, "vb": 24, "oi": 32}
    by_port = {(port, "c" if port == "oi" else "host", "miss"): count for port, count in misses.items()}
    by_port["va", "host", "action"] = failed
    rows = collector.rows(PROBE, "failures")
    assert {tuple(row.labels[one] for one in ("port", "netns", "kind")): row.counts["count"] for row in rows} == {
        place: count for place, count in by_port.items() if count
    }
    assert {(row.labels["datapath"], row.labels["error"]) for row in rows} == {(DATAPATH, "ECONNREFUSED")}
    rows = collector.rows(PROBE, "upcalls")
    assert {
        tuple(row.labels[one] for one in ("port", "netns", "kind")): row.counts["failed"] for row in rows
    } == by_port


def _has_flow(ends: Ends, frame: Frame) -> bool:
    ends.sender.send("a", [frame])
    return "userspace(" in ends.hypervisor.run("ovs-appctl", "dpctl/dump-flows").text


@pytest.mark.proves(
    "ovs_upcalls",
    "tables.{upcalls,flows,failures}.vm",
    "histograms.latency.{vm,port,netns}",
    "tables.flows.{source,target,target_port,port,netns}",
)
def test_upcalls_of_a_guest_have_its_name(testbed: Testbed, ends: Ends, collector: InsideMeasurement) -> None:
    collector.set(PROBE, device=ends.guest.card.tap)
    labels = {"port": ends.guest.card.tap, "netns": "host", "vm": ends.guest.name}
    ends.hypervisor.run("ovs-appctl", "revalidator/purge")
    collector.begin()
    ends.guest.send_udp(1, testbed.bridge, port=9)
    collector.until(lambda: collector.counter(PROBE, "answered") == 1, "the answer")
    for table in ("upcalls", "flows"):
        (row,) = collector.rows(PROBE, table)
        assert labels.items() <= row.labels.items() and row.counts["upcalls"] == 1
    flow = {"source": ends.guest.card.at.ip, "target": testbed.bridge.ip, "target_port": 9, "protocol": "UDP"}
    assert flow.items() <= row.labels.items()
    assert collector.samples(PROBE, "latency", **labels) == 1
    collector.begin()
    ends.hypervisor.run("ovs-appctl", "dpctl/del-flows")
    with ends.ovs.without_handlers():
        ends.guest.send_udp(FROM_GUEST, testbed.bridge, port=9)
        collector.settle()
    ends.hypervisor.run("ovs-appctl", "revalidator/purge")
    (row,) = collector.rows(PROBE, "failures")
    assert labels.items() <= row.labels.items() and row.counts["count"] == FROM_GUEST
