"""kernel_drops in mode details, on packets of the test's own: who sent them, by which way the kernel came there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.live.contexts.test_kernel_drops import PROBE, Drops, Load, symbol
from tests.support.live.contexts.budgets import MANY, without_time
from tests.support.live.contexts.filters import NETNS, OTHER_NETNS
from tests.support.live.contexts.packets import ARP, ETHERNET, HEADROOM, SENDER, TARGET, TCP, Flow
from tests.support.live.contexts.unattached import on_cpu

STORM = 4000
"""More runs than may do the work of details in a window."""


def ends(flow: Flow) -> dict[str, Any]:
    names = ("source", "target", "source_port", "target_port")
    return {name: getattr(flow, name) for name in names}


@pytest.mark.proves(
    "kernel_drops",
    "tables.flows.{location,device,source,target,netns,reason,class,provenance}",
    "tables.flows.{source_port,target_port,ethertype,vlan,protocol,count}",
)
def test_each_flow_has_its_drops(load: Load) -> None:
    probe = load(PROBE)
    host = Drops(probe)
    eth1 = host.device("a-long-name-eth", host.net(OTHER_NETNS), 3)
    one, other = Flow(vlan=42), Flow("2001:db8::1", "2001:db8:7::2", 53, 4444, TCP)
    receives, sends = symbol("ip_rcv"), symbol("ip_output")
    host.drop(host.packet(one, host.eth0), "XDP")  # in mode summary: in no flow
    probe.set("details")
    for _ in range(3):
        host.drop(host.packet(one, host.eth0), "NO_SOCKET", location=receives)
    for _ in range(2):
        host.drop(host.packet(one, host.eth0), "NO_SOCKET", location=sends)
    for _ in range(4):
        host.drop(host.packet(other, eth1), "QDISC_DROP", location=sends)
    host.drop(host.frame(ARP, bytes(28), eth1), "QDISC_DROP", location=sends)
    probe.read()
    first: dict[str, Any] = {"device": "eth0", "netns": str(NETNS), "reason": "NO_SOCKET", "class": "benign"}
    first |= {"provenance": "kernel", "ethertype": "IPv4", "protocol": "UDP", "vlan": 42, **ends(one)}
    second: dict[str, Any] = {"device": "a-long-name-eth", "netns": str(OTHER_NETNS), "reason": "QDISC_DROP"}
    second |= {"provenance": "kernel", "ethertype": "IPv6", "protocol": "TCP", "vlan": 0, **ends(other)}
    no_ip = {"source": None, "target": None, "source_port": 0, "target_port": 0, "ethertype": "ARP", "count": 1}
    expected = [
        {**second, "location": "ip_output", "count": 4},
        {**first, "location": "ip_rcv", "count": 3},
        {**first, "location": "ip_output", "count": 2},
        {**second, **no_ip, "location": "ip_output", "protocol": "not IP"},
    ]
    found = sorted(probe.rows("flows"), key=lambda row: -int(row["count"]))
    assert [{name: row[name] for name in wanted} for row, wanted in zip(found, expected, strict=True)] == expected
    assert len(probe.rows("stacks")) == 0


@pytest.mark.proves("kernel_drops", "tables.stacks.{location,reason,class,provenance,stack,count}", "knobs.by_stack")
def test_each_way_has_its_drops(load: Load) -> None:
    probe = load(PROBE)
    host = Drops(probe)
    packet, receives, sends = host.packet(Flow(), host.eth0), symbol("ip_rcv"), symbol("ip_output")
    probe.set("summary", by_stack=True)
    host.drop(packet)
    probe.set("details", by_stack=True)
    for why, location, times in (("NO_SOCKET", receives, 2), ("XDP", receives, 3), ("XDP", sends, 1)):
        for _ in range(times):
            host.drop(packet, why, location=location)
    probe.read()
    rows = probe.rows("stacks")
    assert {(row["reason"], row["location"]): row["count"] for row in rows} == {
        ("NO_SOCKET", "ip_rcv"): 2,
        ("XDP", "ip_rcv"): 3,
        ("XDP", "ip_output"): 1,
    }
    assert all("test_run" in row["stack"] for row in rows)
    assert "stack_failed" not in probe.ledger()


@pytest.mark.proves("kernel_drops", "events.drop.{source_mac,target_mac}")
def test_an_event_has_the_macs_of_a_packet_with_an_ethernet_header(load: Load) -> None:
    probe = load(PROBE)
    host = Drops(probe)
    probe.set("details", events_per_s=100_000)
    skb = host.packet(Flow(), host.eth0)
    expected: list[tuple[str | None, str | None]] = []
    for mac, network, has_header in (
        (0, ETHERNET, True),
        (0, ETHERNET + 4, True),
        (0, ETHERNET - 1, False),
        (0, 0, False),
        (0xFFFF - HEADROOM, ETHERNET, False),
    ):
        host.memory.change("sk_buff", skb, {"network_header": HEADROOM + network, "mac_header": HEADROOM + mac})
        host.drop(skb)
        expected.append((SENDER, TARGET) if has_header else (None, None))
    probe.read()
    assert [(event["source_mac"], event["target_mac"]) for event in probe.events()] == expected


def test_an_event_says_which_cpu_dropped(load: Load) -> None:
    probe = load(PROBE)
    host = Drops(probe)
    probe.set("details")
    host.drop(host.packet(Flow(), host.eth0))
    with on_cpu(1):
        host.drop(host.packet(Flow(), host.eth0))
    probe.read()
    assert [event["cpu"] for event in probe.events()] == [0, 1]
    assert host.rows("reason") == {"QDISC_DROP": 2}


def test_drops_that_a_filter_leaves_out_do_not_use_up_the_details(load: Load) -> None:
    """A storm elsewhere took them all: what a filter let pass was counted, and had no events."""
    probe = load(PROBE)
    host = Drops(probe)
    other = host.device("eth1", host.net(OTHER_NETNS), 3)
    for knobs in ({"netns": NETNS}, {"port": Flow().target_port}):
        probe.set("details", events_per_s=1e9, **knobs)
        drop = probe.prepare("drop", host.packet(Flow(), host.eth0), 0x1000, 2, 0)
        storm = probe.prepare("drop", host.packet(Flow(target_port=9), other), 0x1000, 2, 0)
        for _ in range(5):
            for _ in range(STORM):
                storm()
            drop()
    probe.read()
    assert probe.counters() == {"drops": 10} and probe.ledger() == {"seen": 10, "submitted": 10}


def test_drops_take_no_more_time_than_the_bound(load: Load) -> None:
    probe = load(PROBE)
    host = Drops(probe)
    call = probe.prepare("drop", host.packet(Flow(), host.eth0), 0x1000, 2, 0)
    ledger = without_time(probe, [call], without_rows="estimated")
    assert probe.counters() == {"drops": MANY} and ledger["seen"] == MANY and "unlisted" not in ledger
    # Rows go on, of one in 16: the first block and the last one are not whole.
    for table in ("drops", "flows"):
        assert abs(sum(row["count"] for row in probe.rows(table)) - MANY) < 2 * 16
