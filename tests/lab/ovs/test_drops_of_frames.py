"""ovs_drops by frames of which every byte is known: labels, events, filters, and what is left out of its rows."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest

from netconsole.telemetry import frames
from netconsole_collector.types.header_tree import version_code
from tests.lab.collector import InsideMeasurement
from tests.lab.machine.hypervisor import CPUS
from tests.lab.network.frames import Sent
from tests.lab.network.ovs import SAYS_WHY
from tests.lab.network.testbed import BRIDGE, Testbed
from tests.lab.ovs.ends import Ends, events_of
from tests.support.live.ovs_frames import ALL, FILTERS, NETNS, PORT, TRAFFIC, Frame, expected_fields, expected_labels

PROBE = "ovs_drops"
EVERY_EVENT = {"events_per_s": 100_000}
DROPPED = Frame("10.9.0.1", "10.9.0.2", target_port=4444)
STORM, FEW, FROM_GUEST = 8000, 7, 5
"""`FEW` at once, one such lot after the other, are no storm for the circuit breaker (docs/design/governor.md)."""
EVENTS_PER_S, EVERY_NS = 4, 250_000_000
"""With so few no event is saved up (docs/design/collector.md)."""
LONG_NS = 6 * EVERY_NS
TAG_BYTES = 4
"""The datapath takes the tag out of the frame (net/openvswitch/flow.c, parse_vlan_tag)."""


@pytest.fixture(scope="module", autouse=True)
def dropping(ends: Ends, collector: InsideMeasurement) -> Iterator[None]:
    """All three ports drop what comes in, and the datapath has the flows that do it."""
    rules = [f"priority=300,in_port={port}" for port in PORT.values()]
    for rule in rules:
        ends.hypervisor.run("ovs-ofctl", "add-flow", BRIDGE, f"{rule},actions=drop")
    ends.hypervisor.run("ovs-appctl", "revalidator/purge")
    collector.begin()

    def all_are_dropped() -> bool:
        before = collector.counter(PROBE, "drops")
        ends.send_traffic(is_answered=False)
        collector.settle()
        return collector.counter(PROBE, "drops") - before == ALL

    collector.until(all_are_dropped, "flows that drop")
    yield
    for rule in rules:
        ends.hypervisor.run("ovs-ofctl", "--strict", "del-flows", BRIDGE, rule)
    ends.hypervisor.run("ovs-appctl", "revalidator/purge")


def by_flow(ends: Ends) -> dict[str, frames.Label]:
    """What is said of a drop by a flow that has no output: here, and how that is known."""
    says = version_code(ends.hypervisor.release) >= version_code(SAYS_WHY)
    return {
        "reason": "OVS_DROP_LAST_ACTION",
        "class": "benign",
        "provenance": "kernel" if says else "inferred",
        "location": "do_execute_actions" if says else "ovs_execute_actions",
    }


def await_flow(ends: Ends, collector: InsideMeasurement, place: str) -> None:
    """Until a frame is dropped by the datapath itself: before, user space was asked, and dropped it."""

    def is_dropped() -> bool:
        collector.begin()
        ends.sender.send(place, [DROPPED])
        collector.settle()
        return collector.counter(PROBE, "drops") == 1

    collector.until(is_dropped, "the flow that drops")


@pytest.mark.proves(
    "ovs_drops",
    "counters.drops",
    "tables.drops.{location,port,netns,vm,reason,class,provenance,count}",
    "tables.flows.{location,port,netns,vm,reason,class,provenance,source,target,target_port,ethertype,protocol,vlan,count}",
    "modes.summary",
)
def test_each_drop_is_told_by_port_and_flow(ends: Ends, collector: InsideMeasurement) -> None:
    collector.set(PROBE)
    collector.begin()
    ends.send_traffic(is_answered=False)
    collector.settle()
    collector.assert_whole(PROBE)
    assert collector.counter(PROBE, "drops") == ALL
    why = by_flow(ends)
    by_place = Counter({place: 0 for place, _ in TRAFFIC})
    for number, (place, _) in enumerate(TRAFFIC):
        by_place[place] += 1 << number
    rows = [(dict(row.labels), row.counts["count"]) for row in collector.rows(PROBE, "drops")]
    expected = [
        ({**why, "port": PORT[place], "netns": NETNS[place], "vm": None}, count) for place, count in by_place.items()
    ]
    assert sorted(rows, key=lambda one: one[1]) == sorted(expected, key=lambda one: one[1])
    flows = [(dict(row.labels), row.counts["count"]) for row in collector.rows(PROBE, "flows")]
    expected = [({**why, **expected_labels(place, frame)}, 1 << n) for n, (place, frame) in enumerate(TRAFFIC)]
    assert sorted(flows, key=lambda one: one[1]) == sorted(expected, key=lambda one: one[1])
    assert collector.event_count(PROBE, "seen") == 0, "summary submits nothing"


@pytest.mark.proves(
    "ovs_drops",
    "events.drop.{mono_ns,location,port,netns,reason,source,target,source_port,target_port,ethertype,vlan,protocol}",
    "events.drop.{length_bytes,cpu}",
    "modes.details",
)
def test_each_event_is_the_frame_that_was_sent(ends: Ends, collector: InsideMeasurement) -> None:
    """What the switch's own port sends is dropped before the call that sends it returns."""
    collector.set(PROBE, "details", **EVERY_EVENT)
    collector.begin()
    sent = []
    for number, (place, frame) in enumerate(TRAFFIC):
        sent.append((place, frame, number % CPUS, ends.sender.send(place, [frame], cpu=number % CPUS)))
        collector.until(lambda: len(events_of(collector, PROBE)) == len(sent), "the event")
    for event, (place, frame, cpu, [clock]) in zip(events_of(collector, PROBE), sent, strict=True):
        fields = dict(event.fields)
        dropped_ns = int(str(fields.pop("mono_ns")))
        size = len(frame.raw(1)) - (TAG_BYTES if frame.vlan else 0)
        assert fields == {**by_flow(ends), **expected_fields(place, frame), "length_bytes": size, "cpu": cpu}
        assert clock.began_ns < dropped_ns
        assert dropped_ns < clock.ended_ns or place != "c"


@pytest.mark.proves(
    "ovs_drops", "knobs.{device,netns,address,port,protocol,vlan,ethertype,mac}", "modes.{summary,details}"
)
@pytest.mark.parametrize("mode", ["summary", "details"])
def test_filters_let_pass_what_they_name_and_nothing_else(ends: Ends, collector: InsideMeasurement, mode: str) -> None:
    found = {}
    for name, knobs, _ in FILTERS:
        collector.set(PROBE, mode, **EVERY_EVENT, **knobs(ends.netns))
        collector.begin()
        ends.send_traffic(is_answered=False)
        collector.settle()
        found[name] = collector.counter(PROBE, "drops")
        rows = {collector.total(PROBE, "drops"), collector.total(PROBE, "flows")}
        events = len(events_of(collector, PROBE))
        assert (rows, events) == ({found[name]}, found[name] if mode == "details" else 0), name
    assert found == {name: expected for name, _, expected in FILTERS}


@pytest.mark.proves(
    "ovs_drops",
    "counters.drops",
    "tables.drops.{location,port,netns,reason,class,provenance,count}",
    "tables.flows.{location,port,netns,reason,class,provenance,source,target,target_port,protocol,vlan,count}",
)
def test_what_user_space_is_not_asked_about_is_dropped_for_that(ends: Ends, collector: InsideMeasurement) -> None:
    """By a function that frees it, of links and of the switch's own port."""
    collector.set(PROBE)
    why = {"reason": "OVS_UPCALL_FAILED", "class": "suspicious", "provenance": "inferred"}
    why["location"] = "ovs_dp_process_packet"
    with ends.ovs.without_handlers():
        ends.hypervisor.run("ovs-appctl", "dpctl/del-flows")
        collector.begin()
        before = ends.ovs.upcalls()["lost"]
        ends.send_traffic(is_answered=False)
        collector.settle()
        assert ends.ovs.upcalls()["lost"] - before == collector.counter(PROBE, "drops") == ALL
    ends.hypervisor.run("ovs-appctl", "revalidator/purge")
    rows = {row.labels["port"]: (row.labels["netns"], row.counts["count"]) for row in collector.rows(PROBE, "drops")}
    assert rows == {"va": ("host", 7), "vb": ("host", 24), "oi": ("c", 32)}
    assert all(why.items() <= row.labels.items() for row in collector.rows(PROBE, "drops"))
    flows = [(dict(row.labels), row.counts["count"]) for row in collector.rows(PROBE, "flows")]
    expected = [({**why, **expected_labels(place, frame)}, 1 << n) for n, (place, frame) in enumerate(TRAFFIC)]
    assert sorted(flows, key=lambda one: one[1]) == expected


@pytest.mark.proves("ovs_drops", "tables.{drops,flows}.{vm,netns,port}")
def test_drops_of_a_guest_have_its_name(testbed: Testbed, ends: Ends, collector: InsideMeasurement) -> None:
    tap = ends.guest.card.tap
    collector.set(PROBE, device=tap)
    with ends.rule(f"priority=300,udp,in_port={tap},tp_dst=4444", "drop"):
        collector.begin()

        def is_dropped() -> bool:
            ends.guest.send_udp(1, testbed.bridge, port=4444)
            collector.settle()
            return bool(collector.counter(PROBE, "drops"))

        collector.until(is_dropped, "the flow that drops")
        collector.begin()
        ends.guest.send_udp(FROM_GUEST, testbed.bridge, port=4444)
        collector.settle()
    for table in ("drops", "flows"):
        (row,) = collector.rows(PROBE, table)
        assert {"port": tap, "netns": "host", "vm": ends.guest.name}.items() <= row.labels.items()
        assert row.counts["count"] == FROM_GUEST


@pytest.mark.proves("ovs_drops", "ledger.parse_failed", "tables.flows.protocol")
def test_what_cannot_be_parsed_is_said(ends: Ends, collector: InsideMeasurement) -> None:
    """Its Ethernet header says IPv4, and the packet ends within that header."""
    collector.set(PROBE)
    await_flow(ends, collector, "a")
    torn = DROPPED.raw(1)[:24]

    def all_are_dropped() -> bool:
        collector.begin()
        ends.sender.send("a", [torn], times=FEW)
        collector.settle()
        return collector.counter(PROBE, "drops") == FEW

    collector.until(all_are_dropped, "the flow that drops")
    ends.sender.send("a", [DROPPED] * FEW)
    collector.settle()
    assert collector.counter(PROBE, "drops") == 2 * FEW
    assert collector.ledger(PROBE, "parse_failed") == FEW
    by_protocol = {row.labels["protocol"]: row.counts["count"] for row in collector.rows(PROBE, "flows")}
    assert by_protocol == {"unparsed": FEW, "UDP": FEW}


@pytest.mark.proves("ovs_drops", "knobs.events_per_s", "ledger.suppressed")
def test_events_are_as_many_as_the_budget_lets_pass(ends: Ends, collector: InsideMeasurement) -> None:
    """No two are nearer to each other, and after that time the next drop is one."""
    collector.set(PROBE)
    await_flow(ends, collector, "c")
    collector.set(PROBE, "details", events_per_s=EVENTS_PER_S)
    collector.begin()
    sent: list[Sent] = []
    while not sent or sent[-1].ended_ns - sent[0].began_ns < LONG_NS:
        sent += ends.sender.send("c", [DROPPED], cpu=0, times=FEW)
    collector.settle()
    told = sorted(int(str(event.fields["mono_ns"])) for event in events_of(collector, PROBE))
    assert collector.event_count(PROBE, "seen") == len(sent)
    assert collector.event_count(PROBE, "suppressed") == collector.ledger(PROBE, "suppressed") == len(sent) - len(told)
    assert collector.ledger(PROBE, "breaker") == 0
    assert len(told) > 2
    for this, following in itertools.pairwise(told):
        assert following - this >= EVERY_NS
        assert not [one for one in sent if one.began_ns >= this + EVERY_NS and one.ended_ns < following]


@pytest.mark.proves("ovs_drops", "ledger.lost")
def test_events_that_nobody_reads_are_counted_as_lost(ends: Ends, collector: InsideMeasurement) -> None:
    collector.set(PROBE)
    await_flow(ends, collector, "c")
    collector.set(PROBE, "details", **EVERY_EVENT)
    collector.begin()
    ends.hypervisor.run("pkill", "-STOP", "-f", "netconsole_collector")
    try:
        ends.sender.send("c", [DROPPED], times=STORM)
    finally:
        ends.hypervisor.run("pkill", "-CONT", "-f", "netconsole_collector")
    collector.settle()
    assert collector.counter(PROBE, "drops") == collector.total(PROBE, "drops") == STORM
    came = len(events_of(collector, PROBE)) + collector.ledger(PROBE, "shed")
    print(f"{came} of {STORM} events came")
    refused = collector.event_count(PROBE, "suppressed")  # by the circuit breaker, where a drop takes no time
    assert collector.ledger(PROBE, "lost") == collector.event_count(PROBE, "lost") == STORM - came - refused > 0


@pytest.mark.proves("ovs_drops", "ledger.map_full")
def test_a_drop_for_which_the_table_has_no_row_is_in_the_ledger(ends: Ends, collector: InsideMeasurement) -> None:
    collector.set(PROBE)
    for place in ("a", "b"):
        await_flow(ends, collector, place)
    name = collector.load_altered(PROBE, rows={"drops": 1}, number=51)
    try:
        collector.begin()
        ends.sender.send("a", [DROPPED] * FEW)
        ends.sender.send("b", [DROPPED] * FROM_GUEST)
        collector.settle()
        (row,) = collector.rows(name, "drops")
        assert (row.labels["port"], row.counts["count"]) == ("va", FEW)
        assert collector.total(name, "flows") == collector.counter(name, "drops") == FEW + FROM_GUEST
        assert collector.ledger(name, "map_full") == FROM_GUEST
    finally:
        collector.command(command="unload", probe=name)
