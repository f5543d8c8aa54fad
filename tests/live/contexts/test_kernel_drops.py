"""kernel_drops on packets of the test's own: what counts, under which labels, and what is lost."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netconsole_collector.probe.config import KnobError
from netconsole_collector.probe.reading.examples import READING, readings
from netconsole_collector.probe.reading.map_reader import IDLE_INTERVALS
from tests.support.live.contexts.filters import FILTERS, FLOWS, NETNS, OTHER_NETNS
from tests.support.live.contexts.memory import Members, enumerator, place_of
from tests.support.live.contexts.packets import (
    ARP,
    ETHERNET,
    HEADROOM,
    IPV4,
    IPV6,
    SENDER,
    TARGET,
    TCP,
    VLAN,
    Flow,
    MadeUpHost,
)
from tests.support.live.contexts.unattached import UnattachedProbe, on_cpu

PROBE = "kernel_drops"
Load = Callable[..., UnattachedProbe]

WINDOW_SHIFT = 27
"""A window of the circuit breaker is 2^27 ns of the monotonic clock (docs/design/governor.md)."""
GRANT = 64
CHAIN = 8
"""Devices of one place of the table that are looked at."""
IFF_UP, IFF_LOOPBACK = 1, 8
CPUS = os.sched_getaffinity(0)
FILLING = (1).to_bytes(8, "little")
"""The first member of the memory in which a stack is made."""


def reason(name: str) -> int:
    return enumerator("skb_drop_reason", f"SKB_DROP_REASON_{name}")


def symbol(name: str) -> int:
    """Where a function of this kernel lies."""
    lines = (line.split() for line in Path("/proc/kallsyms").read_text().splitlines())
    return next(int(words[0], 16) for words in lines if words[2] == name)


class Drops(MadeUpHost):
    """A device in a namespace, and the probe to which packets are dropped there."""

    def __init__(self, probe: UnattachedProbe) -> None:
        super().__init__(probe.memory)
        self.probe = probe
        self.net_ = self.net(NETNS)
        self.eth0 = self.device("eth0", self.net_, 2, {"flags": IFF_UP})

    def drop(self, skb: int, why: str = "QDISC_DROP", sock: int = 0, location: int = 0x1000) -> None:
        self.probe.run("drop", skb, location, reason(why), sock)

    def rows(self, *labels: str) -> dict[Any, int]:
        """Counts by these labels."""
        self.probe.read()
        found: dict[Any, int] = {}
        for row in self.probe.rows("drops"):
            key = tuple(row[label] for label in labels) if len(labels) > 1 else row[labels[0]]
            found[key] = found.get(key, 0) + row["count"]
        return found


@pytest.mark.proves(
    "kernel_drops",
    "counters.drops",
    "tables.drops.{location,device,netns,reason,class,provenance,ethertype,protocol,hook,count}",
    "modes.summary",
)
def test_a_drop_has_its_place_its_reason_and_its_protocol(load: Load) -> None:
    probe = load(PROBE)
    host = Drops(probe)
    eth1 = host.device("eth1", host.net(OTHER_NETNS), 3)
    receives = symbol("ip_rcv")
    host.drop(host.packet(Flow(), host.eth0), "NO_SOCKET", location=receives + 4)
    for _ in range(3):
        host.drop(host.packet(Flow("2001:db8::1", "2001:db8::2", protocol=TCP), eth1), "FULL_RING", location=receives)
    host.drop(host.frame(ARP, bytes(28), eth1), "NOT_SPECIFIED", location=receives)
    consumed = enumerator("skb_drop_reason", "SKB_CONSUMED")
    probe.run("drop", host.packet(Flow(), host.eth0), receives, consumed, 0)
    labels = ("location", "device", "netns", "reason", "class", "provenance", "ethertype", "protocol", "hook")
    assert host.rows(*labels) == {
        ("ip_rcv", "eth0", str(NETNS), "NO_SOCKET", "benign", "kernel", "IPv4", "UDP", "none"): 1,
        ("ip_rcv", "eth1", str(OTHER_NETNS), "FULL_RING", "suspicious", "kernel", "IPv6", "TCP", "none"): 3,
        ("ip_rcv", "eth1", str(OTHER_NETNS), "NOT_SPECIFIED", "suspicious", "kernel", "ARP", "not IP", "none"): 1,
    }
    assert probe.counters() == {"drops": 5} and probe.ledger() == {}


def test_the_device_of_a_packet_at_a_socket_is_where_it_came_in(load: Load) -> None:
    """By its index among devices of one place of the table, in the namespace of the socket."""
    probe = load(PROBE)
    host = Drops(probe)
    net = host.net(OTHER_NETNS)
    devices = [host.device(f"eth{number}", net, 5 + 256 * number) for number in range(CHAIN + 1)]
    host.chain(net, devices)
    sock = probe.memory.make("tcp_sock", {"inet_conn.icsk_inet.sk.__sk_common.skc_net.net": net})
    for number in (0, 1, 2, 2, 3, CHAIN - 1):
        host.drop(host.packet(Flow(), 0, {"skb_iif": 5 + 256 * number}), "SOCKET_RCVBUFF", sock)
    host.drop(host.packet(Flow(), 0, {"skb_iif": 5 + 256, "sk": sock}), "SOCKET_RCVBUFF")
    host.drop(host.packet(Flow(), 0, {"skb_iif": 5 + 256 * CHAIN}), "SOCKET_RCVBUFF", sock)
    host.drop(host.packet(Flow(), 0), "SOCKET_RCVBUFF", sock)
    # A node of a tree where a device was: its queues do not point back.
    node = probe.memory.make("net_device", {"name": b"rb_node", "_tx": probe.memory.make("netdev_queue", {})})
    host.drop(host.packet(Flow(), node, {"next": 1, "skb_iif": 5}), "SOCKET_RCVBUFF", sock)
    host.drop(host.packet(Flow(), host.eth0, {"next": 1}), "SOCKET_RCVBUFF", sock)
    here = str(OTHER_NETNS)
    assert host.rows("device", "netns") == {
        ("eth0", here): 2,
        ("eth1", here): 2,
        ("eth2", here): 2,
        ("eth3", here): 1,
        ("eth7", here): 1,
        ("", here): 2,
        ("eth0", str(NETNS)): 1,
    }


def examples(probe: UnattachedProbe) -> dict[str, dict[str, Any]]:
    """The latest packets of the last reading, by the reason of their row."""
    (table,) = [one for one in probe.bodies if one["kind"] == "table" and one["name"] == "drops"]
    return {row["labels"]["reason"]: row["example"] for row in table["rows"] if "example" in row}


@pytest.mark.proves(
    "kernel_drops",
    "tables.drops.example.{mono_ns,source,target,source_port,target_port,source_mac,target_mac,came_in_by,vlan}",
    "tables.drops.example.{ethertype,protocol,length_bytes}",
)
def test_a_row_has_its_latest_packet(load: Load) -> None:
    """Its length is that of the packet alone, wherever its data begin; what is not known of it is left out."""
    probe = load(PROBE)
    host = Drops(probe)
    eth1 = host.device("eth1", host.net_, 7)
    host.chain(host.net_, [eth1])
    sent, received = Flow(vlan=7), Flow("2001:db8::1", "2001:db8::2", 53, 4444, TCP)
    before = time.monotonic_ns()
    host.drop(host.packet(sent, host.eth0, {"skb_iif": 7}), "QDISC_DROP")
    host.drop(host.arrived(host.packet(received, host.eth0, {"skb_iif": 2}, payload=100)), "NO_SOCKET")
    host.drop(host.frame(ARP, bytes(28), host.eth0), "XDP")
    host.drop(host.frame(IPV4, Flow().packet()[:20], host.eth0), "TCP_CSUM")
    # Behind a tunnel's header the address of its sender stands where an Ethernet header has the protocol.
    of_tunnel = b"\x45" + bytes(11) + socket.inet_aton("192.0.2.9") + socket.inet_aton("192.0.2.8")
    skb = host.frame(IPV4, of_tunnel + Flow().packet(), host.eth0)
    probe.memory.change("sk_buff", skb, {"mac_header": HEADROOM + ETHERNET, "network_header": HEADROOM + ETHERNET + 20})
    host.drop(skb, "FULL_RING")
    after = time.monotonic_ns()
    probe.read()
    found = examples(probe)
    assert all(before <= one.pop("mono_ns") <= after for one in found.values())
    macs = {"source_mac": SENDER, "target_mac": TARGET}
    ends = {"source": "192.0.2.1", "target": "192.0.2.2"}
    ports = {"source_port": 1111, "target_port": 2222}
    ends6 = {"source": "2001:db8::1", "source_port": 53, "target": "2001:db8::2", "target_port": 4444}
    udp, tcp = {"ethertype": "IPv4", "protocol": "UDP"}, {"ethertype": "IPv6", "protocol": "TCP"}
    assert found == {
        "QDISC_DROP": {**udp, **ends, **ports, **macs, "vlan": 7, "came_in_by": "eth1", "length_bytes": 48},
        "NO_SOCKET": {**tcp, **ends6, **macs, "syn": 2, "came_in_by": "eth0", "length_bytes": 148},
        "XDP": {"ethertype": "ARP", "protocol": "not IP", **macs, "length_bytes": 28},
        "TCP_CSUM": {**udp, **ends, **macs, "length_bytes": 20},
        "FULL_RING": {**udp, **ends, **ports, "length_bytes": 48},
    }
    assert probe.ledger() == {}


def test_a_row_takes_another_packet_after_each_reading_and_no_more(load: Load) -> None:
    probe = load(PROBE)
    host = Drops(probe)
    for round_ in range(3):
        for port in range(1, 5):
            host.drop(host.packet(Flow(source_port=10 * round_ + port), host.eth0))
        assert host.rows("reason") == {"QDISC_DROP": 4 * (round_ + 1)}
        assert examples(probe)["QDISC_DROP"]["source_port"] == 10 * round_ + 1


@pytest.mark.skipif(len(CPUS) < 2, reason="one CPU does not write while it reads")
def test_an_example_that_is_read_while_it_is_written_is_never_of_two_packets(load: Load) -> None:
    """A process drops packets of two senders in turn, each after another reading; this one reads as fast as it can.

    Of examples that are written in place, one in a thousand is of both.
    """
    probe = load(PROBE)
    host = Drops(probe)
    flows = Flow(), Flow("198.51.100.1", "198.51.100.2", 53, 4444, mac="02:00:00:00:00:ee")
    skbs = [host.packet(flow, host.eth0, payload=20 * kind) for kind, flow in enumerate(flows, 1)]
    calls = [probe.prepare("drop", skb, 0x1000, reason("XDP"), 0) for skb in skbs]

    def drop() -> None:
        os.sched_setaffinity(0, {max(CPUS)})
        for number in itertools.count(1):
            probe.write(READING, readings(number))
            calls[number % 2]()

    reader = probe.running._tables[0]._examples
    assert reader is not None
    writer = multiprocessing.get_context("fork").Process(target=drop)
    writer.start()
    found: set[tuple[Any, ...]] = set()
    try:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            kept = reader.read()
            for key in kept:
                packet = reader.latest(kept, [key]) or {}
                found.add(tuple(packet.get(name) for name in ("source", "target_port", "source_mac", "length_bytes")))
    finally:
        writer.kill()
        writer.join()
    assert found == {("192.0.2.1", 2222, SENDER, 48), ("198.51.100.1", 4444, "02:00:00:00:00:ee", 68)}


def test_rows_that_read_the_same_have_the_latest_packet_of_both(load: Load) -> None:
    """Two places in one function."""
    probe = load(PROBE)
    host = Drops(probe)
    place = symbol("ip_rcv")
    for port, location in ((1, place + 4), (2, place + 8)):
        host.drop(host.packet(Flow(source_port=port), host.eth0), location=location)
    assert host.rows("location") == {"ip_rcv": 2}
    assert examples(probe)["QDISC_DROP"]["source_port"] == 2


def test_a_row_that_goes_takes_its_packet_with_it(load: Load) -> None:
    """Else its room would be gone, and another row had none. A map that is almost full keeps some of what is idle."""
    probe = load(PROBE, drops=5, examples=5)
    host = Drops(probe)
    why = ("QDISC_DROP", "NO_SOCKET", "XDP", "FULL_RING")
    for one in why:
        host.drop(host.packet(Flow(), host.eth0), one)
    host.rows("reason")
    for _ in range(IDLE_INTERVALS):
        host.drop(host.packet(Flow(), host.eth0), "XDP")
        host.rows("reason")
    assert set(host.rows("reason")) == {"XDP"}
    for one in ("XDP", "TCP_CSUM", "NO_SOCKET", "PKT_TOO_BIG"):
        host.drop(host.packet(Flow(), host.eth0), one)
    probe.read()
    assert set(examples(probe)) == {"XDP", "TCP_CSUM", "NO_SOCKET", "PKT_TOO_BIG"}


LOCAL, FORWARDED, LOCAL6 = 0x80000000, 0, 0x80000000
BRIDGED, TUNNELLED = 0x10, 0x80
TO_HOST, BROADCAST, MULTICAST, TO_ANOTHER = range(4)
"""PACKET_HOST, … of include/uapi/linux/if_packet.h."""


def test_a_firewall_s_hook_follows_from_what_was_done_to_the_packet(load: Load) -> None:
    probe = load(PROBE)
    host = Drops(probe)
    memory = probe.memory
    lo = host.device("lo", host.net_, 1, {"flags": IFF_UP | IFF_LOOPBACK})
    to_me, through = (memory.make("rtable", {"rt_flags": flags}) for flags in (LOCAL, FORWARDED))
    to_me6, through6 = (memory.make("rt6_info", {"rt6i_flags": flags}) for flags in (LOCAL6, 0))
    of_bridge, of_tunnel = (memory.make("rtable", {"dst.flags": flags}) for flags in (BRIDGED, TUNNELLED))
    v6, group = Flow("2001:db8::1", "2001:db8::2"), Flow("2001:db8::1", "ff02::1")
    cases: list[tuple[str, Flow, int, Members]] = [
        ("prerouting", Flow(), host.eth0, {"skb_iif": 2}),
        ("prerouting", Flow(), host.eth0, {"skb_iif": 2, "_skb_refdst": of_tunnel | 1}),
        ("none", Flow(), host.eth0, {"skb_iif": 9}),
        ("none", Flow(), host.eth0, {"skb_iif": 2, "_skb_refdst": of_bridge}),
        ("input", Flow(), host.eth0, {"skb_iif": 2, "_skb_refdst": to_me | 1}),
        ("input", v6, host.eth0, {"skb_iif": 2, "_skb_refdst": to_me6}),
        ("input", group, host.eth0, {"skb_iif": 2, "_skb_refdst": through6}),
        ("forward", Flow(), host.eth0, {"skb_iif": 2, "_skb_refdst": through}),
        ("forward", v6, host.eth0, {"skb_iif": 2, "_skb_refdst": through6}),
        ("postrouting", Flow(), host.eth0, {"skb_iif": 3, "_skb_refdst": through}),
        ("prerouting or input", Flow(), lo, {"skb_iif": 1, "_skb_refdst": to_me}),
        ("output", Flow(), 0, {"_skb_refdst": through}),
        ("none", Flow(), 0, {}),
    ]
    expected: dict[str, int] = {}
    for hook, flow, device, members in cases:
        host.drop(host.packet(flow, device, members), "NETFILTER_DROP")
        host.drop(host.packet(flow, device, members), "IP_RPFILTER")
        expected[hook] = expected.get(hook, 0) + 1
    found = host.rows("reason", "hook")
    assert {hook: count for (why, hook), count in found.items() if why == "NETFILTER_DROP"} == expected
    assert {hook for why, hook in found if why != "NETFILTER_DROP"} == {"none"}


def test_a_packet_for_this_host_alone_is_told_from_one_for_all(load: Load) -> None:
    """Where IP turns a packet away: a martian and an unwanted multicast are freed at one place, without a reason."""
    probe = load(PROBE)
    host = Drops(probe)
    at = place_of("sk_buff", "__pkt_type_offset")[0]
    v6, route = Flow("2001:db8::1", "2001:db8::2"), probe.memory.make("rtable", {})
    expected: Counter[tuple[str, str]] = Counter()
    for kind, told, flow, members in (
        (TO_HOST, "to this host", Flow(), {"skb_iif": 2}),
        (TO_HOST, "none", Flow(), {"skb_iif": 2, "_skb_refdst": route}),
        (TO_HOST, "none", Flow(), {}),
        (TO_HOST, "none", v6, {"skb_iif": 2}),
        (BROADCAST, "to many", Flow(), {"skb_iif": 2}),
        (BROADCAST, "to many", Flow(), {"skb_iif": 2, "_skb_refdst": route}),
        (BROADCAST, "none", Flow(), {}),
        (BROADCAST, "none", v6, {"skb_iif": 2}),
        (MULTICAST, "to many", Flow(), {"skb_iif": 2}),
        (TO_ANOTHER, "none", Flow(), {"skb_iif": 2}),
    ):
        skb = host.packet(flow, host.eth0, members)
        probe.memory.put(skb + at, bytes([0xF8 | kind]))
        for reason in ("NOT_SPECIFIED", "IP_RPFILTER", "IP_INADDRERRORS", "IP_INNOROUTES", "NO_SOCKET"):
            host.drop(skb, reason)
            is_said = reason == "NOT_SPECIFIED" or (told == "to many" and reason != "NO_SOCKET")
            expected[reason, told if is_said else "none"] += 1
        host.drop(skb, "IPV6DISABLED")
        of_frame = {TO_HOST: "to this host", BROADCAST: "to many"} if flow is v6 else {}
        expected["IPV6DISABLED", of_frame.get(kind, "none")] += 1
    assert host.rows("reason", "hook") == expected


def test_a_message_between_processes_is_no_packet(load: Load) -> None:
    probe = load(PROBE)
    host = Drops(probe)
    for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_UNIX):
        sock = probe.memory.make("tcp_sock", {"inet_conn.icsk_inet.sk.__sk_common.skc_family": family})
        host.drop(probe.memory.make("sk_buff", {"sk": sock, "network_header": 0xFFFF, "mac_header": 0xFFFF}))
    assert host.rows("protocol") == {"AF_UNIX": 2, "not IP": 1}


@pytest.mark.proves("kernel_drops", "knobs.{device,address,port,protocol,netns}", "modes.counters", "ledger.unlisted")
def test_filters_let_pass_what_they_name_and_nothing_else(load: Load) -> None:
    probe = load(PROBE)
    host = Drops(probe)
    packets = [host.packet(flow, host.eth0) for flow in FLOWS]
    counted = unlisted = 0
    for mode in ("summary", "counters", "details"):
        for knobs, wanted in FILTERS:
            probe.set(mode, **knobs)
            for number, skb in enumerate(packets):
                before = probe.running._maps["nc_counters"].sum_of(0)
                host.drop(skb)
                passed = probe.running._maps["nc_counters"].sum_of(0) - before
                assert passed == (number in wanted), (mode, knobs, FLOWS[number])
                counted += passed
                unlisted += passed if mode == "counters" else 0
    assert sum(host.rows("reason").values()) == counted - unlisted
    ledger = probe.ledger()
    assert ledger["unlisted"] == unlisted and "unaccounted" not in ledger


BY_REASON = (
    ("NO_SOCKET", {"NO_SOCKET"}),
    ("not:NO_SOCKET", {"QDISC_DROP", "XDP", "NOT_SPECIFIED"}),
    ("qdisc_drop, XDP", {"QDISC_DROP", "XDP"}),
    ("not:QDISC_DROP,XDP,NOT_SPECIFIED", {"NO_SOCKET"}),
    ("TCP_CSUM", set[str]()),
    ("", {"NO_SOCKET", "QDISC_DROP", "XDP", "NOT_SPECIFIED"}),
)


@pytest.mark.proves("kernel_drops", "knobs.reason")
@pytest.mark.parametrize("mode", ["summary", "details", "counters"])
def test_a_filter_of_reasons_counts_them_and_no_other(load: Load, mode: str) -> None:
    """Of either version of IP; on the running probe, and together with another filter."""
    probe = load(PROBE)
    host = Drops(probe)
    packets = [host.packet(flow, host.eth0) for flow in (Flow(), Flow("2001:db8::1", "2001:db8::2", protocol=TCP))]
    for text, wanted in BY_REASON:
        probe.set(mode, reason=text, protocol="")
        for why in ("NO_SOCKET", "QDISC_DROP", "XDP", "NOT_SPECIFIED"):
            before = probe.running._maps["nc_counters"].sum_of(0)
            for skb in packets:
                host.drop(skb, why)
            assert probe.running._maps["nc_counters"].sum_of(0) - before == (2 if why in wanted else 0), (text, why)
    probe.set(mode, reason="XDP", protocol="tcp")
    before = probe.running._maps["nc_counters"].sum_of(0)
    for skb in packets:
        for why in ("XDP", "NO_SOCKET"):
            host.drop(skb, why)
    assert probe.running._maps["nc_counters"].sum_of(0) - before == 1
    listed = {"NO_SOCKET": 6, "QDISC_DROP": 6, "XDP": 7, "NOT_SPECIFIED": 4}
    assert host.rows("reason") == (listed if mode != "counters" else {})
    assert "unaccounted" not in probe.ledger()


def test_a_reason_that_this_kernel_does_not_have_changes_nothing(load: Load) -> None:
    probe = load(PROBE)
    host = Drops(probe)
    probe.set("summary", reason="XDP")
    with pytest.raises(KnobError, match="this kernel has no drop reason XPD: did you mean XDP"):
        probe.set("summary", reason="XPD")
    for why in ("XDP", "NO_SOCKET"):
        host.drop(host.packet(Flow(), host.eth0), why)
    assert host.rows("reason") == {"XDP": 1}


def test_more_rows_than_places_near_a_cpu_are_all_exact(load: Load) -> None:
    """Some find theirs near the CPU from their second drop on, others share a place and are in the hash alone."""
    probe = load(PROBE)
    host = Drops(probe)
    devices = {f"dev{number}": host.device(f"dev{number}", host.net_, 10 + number) for number in range(200)}
    skb = host.packet(Flow(), host.eth0)
    for cpu, drops in zip(sorted(CPUS), (3, 2), strict=False):
        with on_cpu(cpu):
            for _ in range(drops):
                for device in devices.values():
                    probe.memory.change("sk_buff", skb, {"dev": device})
                    host.drop(skb, "NO_SOCKET")
    each = sum((3, 2)[: len(CPUS)])
    assert host.rows("device") == dict.fromkeys(devices, each)
    assert probe.counters() == {"drops": 200 * each} and probe.ledger() == {}
    near = probe.running._tables[0].reader._map.keys  # type: ignore[attr-defined]
    assert 32 <= len(near) <= 64 * len(CPUS), "the others share a place"


@pytest.mark.proves("kernel_drops", "ledger.{map_full,parse_failed}")
def test_what_finds_no_room_or_cannot_be_read_is_counted(load: Load) -> None:
    probe = load(PROBE, drops=1)
    host = Drops(probe)
    for why in ("QDISC_DROP", "NO_SOCKET", "QDISC_DROP", "XDP"):
        host.drop(host.packet(Flow(), host.eth0), why)
    assert host.rows("reason") == {"QDISC_DROP": 2}
    assert probe.counters() == {"drops": 4} and probe.ledger() == {"map_full": 2}

    probe = load(PROBE)
    host = Drops(probe)
    whole, whole6 = Flow().packet(), Flow("2001:db8::1", "2001:db8::2").packet()
    for ethertype, packet in (
        (IPV4, b"\x55" + whole[1:]),
        (IPV4, b"\x44" + whole[1:]),
        (IPV4, whole[:19]),
        (IPV6, b"\x40" + whole6[1:]),
        (IPV6, whole6[:39]),
        (IPV6, whole6[:6] + b"\x3c" + whole6[7:42]),  # an extension that is cut
        (VLAN, b"\0"),
    ):
        host.drop(host.frame(ethertype, packet, host.eth0))
    host.drop(host.frame(IPV4, whole[:20], host.eth0))  # without ports, for which nobody asks
    assert host.rows("protocol") == {"unparsed": 7, "UDP": 1}
    assert probe.ledger() == {"parse_failed": 7}


@pytest.mark.proves(
    "kernel_drops",
    "events.drop.{mono_ns,location,device,netns,hook,reason,ethertype,protocol,source,target,source_port,target_port}",
    "events.drop.{vlan,length_bytes,cpu,stack}",
    "modes.details",
)
def test_an_event_is_the_packet(load: Load) -> None:
    probe = load(PROBE)
    host = Drops(probe)
    probe.set("details", events_per_s=100_000)
    route = probe.memory.make("rtable", {"rt_flags": LOCAL})
    routed: Members = {"skb_iif": 2, "_skb_refdst": route}
    flows = Flow(vlan=7), Flow("2001:db8::1", "2001:db8::2", 53, 4444, TCP)
    skbs = [host.packet(flows[0], host.eth0, routed, payload=60), host.packet(flows[1], host.eth0, payload=100)]
    moments = []
    for skb in skbs:
        before = time.monotonic_ns()
        host.drop(skb, "NETFILTER_DROP", location=symbol("ip_rcv"))
        moments.append((before, time.monotonic_ns()))
    probe.read()
    events = probe.events()
    for event, flow, (low, high), length in zip(events, flows, moments, (102, 162), strict=True):
        assert low <= event["mono_ns"] <= high
        assert (event["location"], event["device"], event["netns"]) == ("ip_rcv", "eth0", str(NETNS))
        assert (event["source"], event["source_port"]) == (flow.source, flow.source_port)
        assert (event["target"], event["target_port"]) == (flow.target, flow.target_port)
        assert (event["vlan"], event["length_bytes"], event["cpu"]) == (flow.vlan, length, 0)
        assert (event["reason"], event["class"]) == ("NETFILTER_DROP", "benign")
        assert any("test_run" in frame for frame in event["stack"])  # what really runs the program here
    assert [(one["ethertype"], one["protocol"], one["hook"]) for one in events] == [
        ("IPv4", "UDP", "input"),
        ("IPv6", "TCP", "none"),
    ]
    assert probe.ledger() == {"seen": 2, "submitted": 2}


@pytest.mark.proves("kernel_drops", "events.drop.packet", "knobs.packets")
def test_an_event_has_the_begin_of_its_packet_where_that_is_asked_for(load: Load) -> None:
    """From its Ethernet header, or its network header where it has none; at most 128 bytes, and none by default."""
    probe = load(PROBE)
    host = Drops(probe)
    flow, long = Flow(), Flow("2001:db8::1", "2001:db8::2", 53, 4444, TCP)
    probe.set("details", events_per_s=100_000)
    host.drop(host.packet(flow, host.eth0))
    probe.set("details", events_per_s=100_000, packets=True)
    frame = bytes.fromhex((TARGET + SENDER).replace(":", "") + "0800") + flow.packet(20)
    host.drop(host.packet(flow, host.eth0))
    host.drop(host.packet(flow, host.eth0, {"mac_header": 0xFFFF}))
    host.drop(host.packet(long, host.eth0, payload=1000))
    host.drop(host.packet(flow, host.eth0, {"tail": 0}))
    probe.read()
    found = [event.get("packet") for event in probe.events()]
    assert found[:3] == [None, f"1:{len(frame)}:{frame.hex()}", f"101:{len(frame) - 14}:{frame[14:].hex()}"]
    link, length, begin = str(found[3]).split(":")
    assert (link, int(length), len(begin)) == ("1", 14 + 40 + 8 + 1000, 2 * 128)
    assert found[4] is None


@pytest.mark.proves("kernel_drops", "knobs.{events_per_s,flows_one_in}", "ledger.{suppressed,unsampled}")
def test_events_keep_their_budget_and_some_flows_are_whole(load: Load) -> None:
    probe = load(PROBE)
    host = Drops(probe)
    drop = probe.prepare("drop", host.packet(Flow(), host.eth0), 0x1000, reason("XDP"), 0)
    probe.set("details", events_per_s=200)
    began = time.monotonic_ns()
    for _ in range(120):  # a quarter of a second's worth at once: 50
        drop()
    earned = (time.monotonic_ns() - began) * 200 / 1e9
    probe.read()
    made = probe.ledger()
    assert made["seen"] == 120 == made["submitted"] + made["suppressed"]
    assert 50 <= made["submitted"] <= 50 + earned + 1

    probe = load(PROBE)
    host = Drops(probe)
    probe.set("details", events_per_s=1e9, flows_one_in=4)
    ways = [(Flow(source_port=1000 + n), Flow("192.0.2.2", "192.0.2.1", 2222, 1000 + n)) for n in range(400)]
    for skb in [host.packet(flow, host.eth0) for pair in ways for flow in pair]:
        host.drop(skb)
    probe.read()
    seen = {(event["source"], event["source_port"], event["target_port"]) for event in probe.events()}
    of_pairs = [[(flow.source, flow.source_port, flow.target_port) in seen for flow in pair] for pair in ways]
    assert all(one == other for one, other in of_pairs), "both directions of a flow or none"
    sampled = sum(one for one, _ in of_pairs)
    assert 60 < sampled < 140  # of 400 one in 4: five standard deviations
    ledger = probe.ledger()
    assert ledger["unsampled"] == ledger["suppressed"] == 2 * (400 - sampled) and ledger["seen"] == 800


def in_one_window(calls: Callable[[], None]) -> bool:
    """Runs them from the beginning of a window of the circuit breaker on; whether it has ended meanwhile."""
    window = (time.monotonic_ns() >> WINDOW_SHIFT) + 1
    while time.monotonic_ns() >> WINDOW_SHIFT < window:
        pass
    calls()
    return time.monotonic_ns() >> WINDOW_SHIFT == window


@pytest.mark.proves("kernel_drops", "knobs.rows_per_s", "ledger.breaker")
def test_the_circuit_breaker_bounds_runs_of_a_window(load: Load) -> None:
    """134 ms of what a second may have, up to the end of a grant of 64 runs: rows, and the details of 20000/s."""
    for mode, knobs, most, runs in (("summary", {"rows_per_s": 2000}, 268, 1000), ("details", {}, 2684, 4000)):
        for _ in range(50):
            probe = load(PROBE)
            host = Drops(probe)
            drop = probe.prepare("drop", host.packet(Flow(), host.eth0), 0x1000, reason("XDP"), 0)
            probe.set(mode, **knobs)

            def calls(drop: Callable[[], int] = drop, runs: int = runs) -> None:
                for _ in range(runs):
                    drop()

            if in_one_window(calls):
                break
        listed = sum(host.rows("reason").values())
        ledger = probe.ledger()
        assert probe.counters() == {"drops": runs} and "unaccounted" not in ledger
        if mode == "summary":
            assert most <= listed <= most + GRANT and ledger == {"unlisted": runs - listed}
        else:
            assert listed == runs and most <= runs - ledger["breaker"] <= most + GRANT
            assert ledger["seen"] == runs


@pytest.mark.proves("kernel_drops", "ledger.stack_failed")
def test_a_drop_amid_another_one_on_its_cpu_has_no_stack(load: Load) -> None:
    """An interrupt drops a packet while a program fills the stack of another one."""
    probe = load(PROBE)
    host = Drops(probe)
    probe.set("details", by_stack=True)
    packet = host.packet(Flow(), host.eth0)
    host.drop(packet)
    probe.read()
    assert [row["count"] for row in probe.rows("stacks")] == [1] and "stack_failed" not in probe.ledger()
    probe.write("ways", FILLING)
    for _ in range(3):
        host.drop(packet)
    probe.read()
    assert probe.ledger()["stack_failed"] == 3
    assert [row["count"] for row in probe.rows("stacks")] == [1]
    assert host.rows("reason") == {"QDISC_DROP": 4}


ONE_IN = 16
PERIODIC = ("NO_SOCKET", "QDISC_DROP", "QDISC_DROP", "QDISC_DROP")
"""What comes in turn: its period divides that of the blocks."""


@pytest.mark.proves("kernel_drops", "knobs.rows_one_in", "ledger.estimated")
def test_rows_of_one_packet_in_sixteen_keep_reasons_and_places_and_their_sum(load: Load) -> None:
    """Chance does 1.96 * sqrt(16 * n * (1 - p)) to a row of n packets (docs/reference/frames.md), three times in 60."""
    probe = load(PROBE)
    probe.set("summary", rows_one_in=ONE_IN)
    host = Drops(probe)
    skb = host.packet(Flow(), host.eth0)
    turns = 1000
    for _ in range(turns):
        for why in PERIODIC:
            host.drop(skb, why)
    found = host.rows("reason", "device", "protocol")
    assert probe.counters() == {"drops": len(PERIODIC) * turns}
    assert set(found) == {("NO_SOCKET", "eth0", "UDP"), ("QDISC_DROP", "eth0", "UDP")}
    assert sum(found.values()) == len(PERIODIC) * turns, "of each whole block one stands for all"
    error = 3 * (ONE_IN * turns * 0.75) ** 0.5
    assert abs(found["NO_SOCKET", "eth0", "UDP"] - turns) < error < turns / 2
    assert probe.ledger() == {"estimated": len(PERIODIC) * turns * (ONE_IN - 1) // ONE_IN}
    probe.set("summary", rows_one_in=1)
    host.drop(skb, "NO_SOCKET")
    assert host.rows("reason")["NO_SOCKET"] == found["NO_SOCKET", "eth0", "UDP"] + 1


def test_a_filter_is_before_the_share_of_the_packets(load: Load) -> None:
    """So rows add up to the counter of what passes it."""
    probe = load(PROBE)
    probe.set("summary", rows_one_in=ONE_IN, reason="NO_SOCKET")
    host = Drops(probe)
    skb = host.packet(Flow(), host.eth0)
    for _ in range(10 * ONE_IN):
        for why in PERIODIC:
            host.drop(skb, why)
    assert host.rows("reason") == {"NO_SOCKET": 10 * ONE_IN} and probe.counters() == {"drops": 10 * ONE_IN}
