"""ovs_drops on a datapath of the test's own: which packets it drops, why, at which port, and what is lost."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import pytest

from tests.support.live.contexts.budgets import FEW, MANY, spend_events, spend_time
from tests.support.live.contexts.datapath import BUCKETS, LINK_HEADER, TEXT, Attribute, Datapath
from tests.support.live.contexts.filters import BY_FRAME, FILTERS, FLOWS, FRAMES, NETNS, OTHER_NETNS
from tests.support.live.contexts.hooks import FUNCTION_AT
from tests.support.live.contexts.memory import enumerator
from tests.support.live.contexts.ovs_types import REASONS, reasons
from tests.support.live.contexts.packets import MTU, TCP, Flow
from tests.support.live.contexts.unattached import UnattachedProbe, on_cpu

PROBE = "ovs_drops"
Load = Callable[..., UnattachedProbe]
OLD = {"by_flow": "executed", "metering": "metering", "metered": "metered"}
NEW: dict[str, str] = {}
"""Programs before Linux 6.7, and from then on: the one that sees packets freed is enough."""
SET: Attribute = ("SET", bytes(4))
LONGEST = 24
OUTPUTS = 8
"""Actions of which the probe knows whether they send a packet, and those that it looks at for a port."""


def to(port: int) -> Attribute:
    return "OUTPUT", struct.pack("=I", port)


def reason(name: str) -> int:
    return enumerator("skb_drop_reason", f"SKB_DROP_REASON_{name}")


SENDS: list[tuple[list[Attribute], bool]] = [
    ([], False),
    ([SET], False),
    ([to(1)], True),
    ([SET, to(1)], True),
    ([to(1), SET], False),
    ([SET, ("RECIRC", bytes(4))], True),
    ([("SAMPLE", bytes(12))], True),
    ([SET, ("CLONE", bytes(16))], True),
    ([("CHECK_PKT_LEN", bytes(20))], True),
    ([("USERSPACE", bytes(8))], True),
    ([("OUTPUT", bytes(8))], True),
    ([("RECIRC", bytes(8))], True),
    ([("CT", b""), SET], True),
    ([("METER", bytes(4)), SET], True),
    ([("USERSPACE", bytes(8)), SET], False),
    ([("SET", bytes(2)), ("CT", bytes(9)), SET], True),
    ([SET] * LONGEST, False),
    ([SET] * (LONGEST + 1), True),
    ([SET] * (LONGEST - 1) + [("CT", b"")], True),
]
"""Actions, and whether one of them sends the packet or takes it over."""


@pytest.mark.proves("ovs_drops", "counters.drops", "tables.drops.{location,port,netns,reason,count}", "modes.summary")
def test_a_flow_drops_whose_last_action_sends_nothing(load: Load) -> None:
    """Before 6.7."""
    probe = load(PROBE, OLD)
    host = Datapath(probe)
    skb, dropped = host.packet(Flow(), host.link_), 0
    for actions, is_sent in SENDS:
        probe.run("by_flow", host.path, skb, host.actions(*actions))
        dropped += not is_sent
        expected = {(hex(FUNCTION_AT), "a-link-of-a-vm", str(NETNS), "OVS_DROP_LAST_ACTION"): dropped}
        assert host.rows("location", "port", "netns", "reason") == expected, actions
    assert probe.counters() == {"drops": dropped} and probe.ledger() == {}


def test_each_reason_of_the_datapath_counts_once_by_the_program_that_sees_packets_freed(load: Load) -> None:
    """From 6.7, those of flows and of meters as well."""
    probe = load(PROBE, NEW)
    host = Datapath(probe)
    assert [one.name for one in probe.running.programs] == ["freed"] and probe.running.missing == []
    skb = host.packet(Flow(), host.none)  # the reason is enough
    for value in reasons().values():
        host.freed(skb, host.text, value)
    assert host.rows("location", "port", "reason") == {
        (hex(host.text), "eth9", f"OVS_DROP_{name}"): 1 for name in REASONS
    }


def test_a_meter_drops_what_it_says(load: Load) -> None:
    probe = load(PROBE, OLD)
    host = Datapath(probe)
    skb = host.packet(Flow(), host.own)
    for result, calls in ((1, 1), (0, 1), (0x100, 1), (1, 2)):
        probe.run("metering", host.path, skb)
        for _ in range(calls):
            probe.run("metered", host.path, skb, 0, 0, 0, 0, result)
    assert host.rows("location", "port", "netns", "reason") == {
        (hex(FUNCTION_AT), "br0", str(OTHER_NETNS), "OVS_DROP_METER"): 2
    }


@pytest.mark.proves("ovs_drops", "knobs.seen_pct", "counters.drops")
def test_nothing_is_counted_in_a_rest_and_no_meter_s_packet_of_before_it_after_it(load: Load) -> None:
    probe = load(PROBE, OLD)
    host = Datapath(probe)
    skb = host.packet(Flow(), host.own)

    def metered(result: int = 1) -> None:
        probe.run("metered", host.path, skb, 0, 0, 0, 0, result)

    probe.run("metering", host.path, skb)  # its end is not seen
    probe.rest()
    metered()
    probe.run("metering", host.path, skb)
    probe.run("by_flow", host.path, skb, host.actions(SET))
    probe.wake()
    metered()
    probe.run("by_flow", host.path, skb, host.actions(SET))
    probe.run("metering", host.path, skb)
    metered()
    assert host.rows("reason") == {("OVS_DROP_LAST_ACTION",): 1, ("OVS_DROP_METER",): 1}
    assert probe.counters() == {"drops": 2}


def test_what_the_module_frees_of_its_ports_is_dropped(load: Load) -> None:
    probe = load(PROBE, OLD)
    host = Datapath(probe)
    why = reason("NOT_SPECIFIED")
    devices = [(host.link_, 1), (host.own, 1), (host.none, 0), (0, 0)]
    for location, is_inside in ((-1, 0), (0, 1), (TEXT - 1, 1), (TEXT, 0)):
        for device, is_port in devices:
            before = probe.counters()["drops"] if probe.bodies else 0
            host.freed(host.packet(Flow(), device), host.text + location, why)
            probe.read()
            assert probe.counters()["drops"] - before == is_inside * is_port, (location, device)
    assert host.rows("location", "port", "netns", "reason") == {
        (hex(host.text + place), port, str(netns), "NOT_SPECIFIED"): 1
        for place in (0, TEXT - 1)
        for port, netns in (("a-link-of-a-vm", NETNS), ("br0", OTHER_NETNS))
    }
    # What does not point back to the device is no port.
    stranger = host.port(5, host.none)
    host.memory.change("net_device", host.link_, {"rx_handler_data": stranger})
    host.freed(host.packet(Flow(), host.link_), host.text, why)
    probe.read()
    assert probe.counters() == {"drops": 4}


def test_a_function_that_ends_with_a_jump_is_told_by_the_call(load: Load) -> None:
    probe = load(PROBE, OLD)
    host = Datapath(probe)
    why, skb = reason("NOT_SPECIFIED"), host.packet(Flow(), host.link_)
    back, forth = host.call_at(200, 16), host.call_at(20, 240)
    out = host.call_at(100, TEXT)
    host.memory.put(host.text + 60, b"\xe9" + struct.pack("=i", -30))
    for location in (back, forth, out, host.text + 65):
        host.freed(skb, location, why)
    places = (host.text + 16, host.text + 240, out, host.text + 65)
    assert host.rows("location") == {(hex(place),): 1 for place in places}


SIZES: list[tuple[list[Attribute], int, int, bool]] = [
    ([to(3)], MTU + LINK_HEADER + 1, 0, True),
    ([to(3)], MTU + LINK_HEADER, 0, False),
    ([to(3)], 9000, 1000, False),
    ([to(3 + BUCKETS)], 9000, 0, True),
    ([to(4)], 9000, 0, False),
    ([to(3 + 2 * BUCKETS)], 9000, 0, False),
    ([("SET", struct.pack("=I", 3))], 9000, 0, False),
    ([("SET", bytes(9)), to(4), to(3)], 9000, 0, True),
    ([SET] * (OUTPUTS - 1) + [to(3)], 9000, 0, True),
    ([SET] * OUTPUTS + [to(3)], 9000, 0, False),
    ([], 9000, 0, False),
]
"""Actions, length of the packet, length of its segments (0: it is one), and whether it is too large for a port."""


def test_a_packet_that_a_port_cannot_send_was_too_large(load: Load) -> None:
    probe = load(PROBE, OLD)
    host = Datapath(probe)
    location = host.call_at(20, 240)
    expected: dict[tuple[str], int] = {}
    for actions, length, segments, is_too_large in SIZES:
        skb = host.merged(host.packet(Flow(), host.link_), segments)
        host.memory.change("sk_buff", skb, {"len": length})
        probe.set(port=9)  # what the flow decides is counted for no packet of this test
        probe.run("by_flow", host.path, skb, host.actions(*actions))
        probe.set()
        host.freed(skb, location, reason("NOT_SPECIFIED"))
        why = ("OVS_TOO_LARGE" if is_too_large else "NOT_SPECIFIED",)
        expected[why] = expected.get(why, 0) + 1
        assert host.rows("reason") == expected, (actions, length, segments)


@pytest.mark.proves(
    "ovs_drops",
    "tables.flows.{location,port,netns,reason,source,target,target_port,ethertype,protocol,vlan,count}",
    "events.drop.{mono_ns,location,port,netns,reason,source,target,source_port,target_port,ethertype,vlan,protocol}",
    "events.drop.{length_bytes,cpu}",
    "modes.details",
)
def test_each_flow_has_its_drops_and_an_event_is_the_packet(load: Load) -> None:
    probe = load(PROBE, NEW)
    host = Datapath(probe)
    probe.set("details", events_per_s=100_000)
    one, other = Flow(vlan=42), Flow("2001:db8::1", "2001:db8:7::2", 53, 4444, TCP)
    why = reasons()["ACTION_ERROR"]
    spans = []
    for cpu, (flow, device, times) in enumerate(((one, host.link_, 2), (other, host.own, 1))):
        skb = host.packet(flow, device, payload=60)
        with on_cpu(cpu):
            for _ in range(times):
                before = time.monotonic_ns()
                host.freed(skb, host.text + cpu, why)
                spans.append((before, time.monotonic_ns()))
    probe.read()
    name = "OVS_DROP_ACTION_ERROR"
    wanted = [
        ((hex(host.text), "a-link-of-a-vm", str(NETNS), name), one, ("IPv4", "UDP", 42)),
        ((hex(host.text + 1), "br0", str(OTHER_NETNS), name), other, ("IPv6", "TCP", 0)),
    ]
    place = ("location", "port", "netns", "reason")
    flow_labels = (*place, "source", "target", "target_port", "ethertype", "protocol", "vlan", "count")
    assert {tuple(row[label] for label in flow_labels) for row in probe.rows("flows")} == {
        (*key, flow.source, flow.target, flow.target_port, *kind, count)
        for (key, flow, kind), count in zip(wanted, (2, 1), strict=True)
    }
    for event, (low, high), number in zip(probe.events(), spans, (0, 0, 1), strict=True):
        key, flow, (ethertype, protocol, vlan) = wanted[number]
        assert tuple(event[label] for label in place) == key and low <= event["mono_ns"] <= high
        assert (event["source"], event["source_port"]) == (flow.source, flow.source_port)
        assert (event["target"], event["target_port"]) == (flow.target, flow.target_port)
        assert (event["ethertype"], event["protocol"], event["vlan"]) == (ethertype, protocol, vlan)
        assert (event["cpu"], event["length_bytes"]) == (number, LINK_HEADER + len(flow.packet(60)))
    assert probe.ledger() == {"seen": 3, "submitted": 3}


@pytest.mark.proves("ovs_drops", "knobs.{device,address,port,protocol,netns,vlan,ethertype,mac}")
def test_filters_let_pass_what_they_name_and_nothing_else(load: Load) -> None:
    probe = load(PROBE, NEW)
    host = Datapath(probe)
    eth0 = host.device("eth0", host.net(NETNS), 2)
    packets = [host.packet(flow, eth0) for flow in FRAMES]

    def passed() -> list[int]:
        found = list[int]()
        for skb in packets:
            before = probe.running._maps["nc_counters"].sum_of(0)
            host.freed(skb, host.text, reasons()["ACTION_ERROR"])
            found.append(probe.running._maps["nc_counters"].sum_of(0) - before)
        return found

    for knobs, wanted in FILTERS:
        probe.set(**knobs)
        assert passed()[: len(FLOWS)] == [int(number in wanted) for number in range(len(FLOWS))], knobs
    for knobs, flows in BY_FRAME:
        probe.set(**knobs)
        assert passed() == [int(flow in flows) for flow in FRAMES], knobs


@pytest.mark.proves("ovs_drops", "knobs.events_per_s", "ledger.{map_full,suppressed,breaker,unlisted}")
def test_what_has_no_room_or_no_budget_is_counted(load: Load) -> None:
    probe = load(PROBE, NEW, drops=1)
    host = Datapath(probe)
    skb = host.packet(Flow(), host.link_)
    for place in (0, 1, 0, 2):
        host.freed(skb, host.text + place, reasons()["ACTION_ERROR"])
    probe.read()
    assert probe.row("drops")["count"] == 2 and probe.ledger() == {"map_full": 2}
    assert sorted(row["count"] for row in probe.rows("flows")) == [1, 1, 2]

    probe = load(PROBE, NEW)
    host = Datapath(probe)
    calls = [probe.prepare("freed", host.packet(Flow(), host.link_), host.text, reasons()["ACTION_ERROR"])]
    now = spend_time(probe, calls, spend_events(probe, calls))
    assert probe.row("drops")["count"] + now["unlisted"] == FEW + MANY == probe.counters()["drops"]
    assert now["seen"] == FEW + MANY
