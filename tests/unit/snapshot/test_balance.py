"""The balance closes where probes saw what the kernel counted, and is open where one did not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from netconsole.snapshot.balance import LEFT_OUT, SEEN_BY, RowsOf, balance_of, balance_sums
from netconsole.snapshot.document import BalanceData, ProbeData
from netconsole.telemetry.frames import Scalar


def probe(table: str, *rows: dict[str, Any], **ledger: int) -> ProbeData:
    return ProbeData(status="attached", tables={table: list(rows)}, ledger=ledger)


def of_qdisc(count: int) -> dict[str, Any]:
    return {"reason": "QDISC_DROP", "device": "eth0", "netns": "host", "count": count}


def balance(
    probes: Mapping[str, ProbeData], filters: Mapping[str, Scalar] | None = None, earlier: ProbeData | None = None
) -> list[BalanceData]:
    """Of what these probes counted, and before it kernel_drops in ``earlier``."""

    def rows_of(known: Mapping[str, ProbeData]) -> RowsOf:
        return lambda name, table: known[name].tables.get(table, []) if name in known else []

    longest = probes if earlier is None else {**probes, SEEN_BY: earlier}
    ledger = longest[SEEN_BY].ledger if SEEN_BY in longest else None
    return balance_of(rows_of(probes), filters, ledger, None if earlier is None else rows_of(longest))


COUNTED = {
    "link_rates": probe(
        "links", {"device": "eth0", "netns": "host", "qdisc_drops": 300}, {"device": "lo", "qdisc_drops": 0}
    ),
    "softnet": probe("cpus", {"cpu": 0, "dropped": 5}, {"cpu": 1, "dropped": 7}),
    "protocol_counters": probe(
        "counters",
        {"counter": "UdpRcvbufErrors", "netns": "blue", "count": 40},
        {"counter": "UdpInErrors", "netns": "blue", "count": 9},
    ),
}
SEEN = probe(
    "drops",
    {"reason": "QDISC_DROP", "device": "eth0", "netns": "host", "protocol": "UDP", "count": 300},
    {"reason": "CPU_BACKLOG", "device": "eth0", "netns": "host", "protocol": "TCP", "count": 12},
    {"reason": "SOCKET_RCVBUFF", "device": "eth0", "netns": "blue", "protocol": "UDP", "count": 30},
    {"reason": "SOCKET_RCVBUFF", "device": "eth1", "netns": "blue", "protocol": "UDP", "count": 10},
    {"reason": "SOCKET_RCVBUFF", "device": "eth1", "netns": "host", "protocol": "UDP", "count": 99},
)


def test_it_closes_where_every_loss_was_seen() -> None:
    found = balance({**COUNTED, "kernel_drops": SEEN})
    assert [(row.stage, row.device, row.netns, row.dropped, row.unexplained, row.coverage_pct) for row in found] == [
        ("qdisc", "eth0", "host", 300, 0, 100.0),
        ("udp-socket", None, "blue", 40, 0, 100.0),
        ("backlog", None, None, 12, 0, 100.0),
    ]


def test_it_is_open_where_a_probe_is_away_or_blind() -> None:
    assert [(row.stage, row.unexplained, row.coverage_pct) for row in balance(COUNTED)] == [
        ("qdisc", 300, 0.0),
        ("udp-socket", 40, 0.0),
        ("backlog", 12, 0.0),
    ]
    blind = probe("drops", {"reason": "QDISC_DROP", "device": "eth0", "netns": "host", "count": 270})
    first = balance({"link_rates": COUNTED["link_rates"], "kernel_drops": blind})[0]
    assert (first.unexplained, first.coverage_pct) == (30, 90.0)


def test_what_a_driver_loses_where_nobody_looks_stays_open() -> None:
    links = probe("links", {"device": "vnet0", "netns": "host", "tx_drops": 120, "rx_drops": 9, "tx_packets": 500})
    seen = probe(
        "drops",
        {"reason": "FULL_RING", "location": "tun_net_xmit", "device": "vnet0", "netns": "host", "count": 90},
        {"reason": "QDISC_DROP", "location": "__dev_queue_xmit", "device": "vnet0", "netns": "host", "count": 30},
        {"reason": "NOT_SPECIFIED", "location": "__dev_queue_xmit", "device": "vnet0", "netns": "host", "count": 10},
        {"reason": "UNHANDLED_PROTO", "location": "f", "device": "vnet0", "netns": "host", "count": 9},
    )
    found = balance({"link_rates": links, "kernel_drops": seen})
    assert [(row.stage, row.entered, row.left, row.dropped, row.unexplained) for row in found] == [
        ("device-send", None, 500, 120, 20),
        ("device-receive", None, None, 9, 0),
    ]


def test_what_an_end_of_a_pair_refuses_is_seen_at_the_other_end() -> None:
    """Of two veths with different MTUs: the sender's tx_dropped and the other's rx_dropped count the same packets."""

    def received(device: str, netns: str, rx_drops: int, **more: Any) -> dict[str, Any]:
        return {"device": device, "netns": netns, "tx_drops": 0, "rx_drops": rx_drops, "rx_packets": 7, **more}

    links = probe(
        "links",
        received("veth-a", "blue", 0, peer="eth0", peer_netns="green") | {"tx_drops": 100, "tx_packets": 7},
        received("eth0", "green", 100, peer="veth-a", peer_netns="blue"),
        received("veth-c", "blue", 0, peer="eth0", peer_netns="red") | {"tx_drops": 99, "tx_packets": 7},
        received("eth0", "red", 99, peer="veth-c", peer_netns="blue"),
        received("eth0", "host", 100),
    )

    def unexplained(at_a: int, at_c: int) -> dict[tuple[str, str | None, str | None], tuple[int, float | None]]:
        refused = {"reason": "NOT_SPECIFIED", "location": "__dev_forward_skb2", "netns": "blue"}
        elsewhere = {**refused, "device": "macvlan0", "count": 500}
        seen = [
            {**refused, "device": "veth-a", "count": at_a},
            {**refused, "device": "veth-c", "count": at_c},
            elsewhere,
        ]
        found = balance({"link_rates": links, "kernel_drops": probe("drops", *seen)})
        return {(row.stage, row.device, row.netns): (row.unexplained, row.coverage_pct) for row in found}

    assert unexplained(100, 99) == {
        ("device-send", "veth-a", "blue"): (0, 100.0),
        ("device-send", "veth-c", "blue"): (0, 100.0),
        ("device-receive", "eth0", "green"): (0, 100.0),
        ("device-receive", "eth0", "red"): (0, 100.0),
        ("device-receive", "eth0", "host"): (100, 0.0),
    }
    found = unexplained(60, 100)
    assert found["device-receive", "eth0", "green"] == (40, 60.0)
    assert found["device-receive", "eth0", "red"] == (0, 100.0), "more than were counted explain no more"
    assert found["device-receive", "eth0", "host"] == (100, 0.0)


def test_upcalls_that_were_lost_are_held_against_packets_that_were_freed() -> None:
    lost = probe("datapaths", {"datapath": "ovs-system", "hits": 1000, "lost": 8})
    freed = probe("drops", {"reason": "OVS_UPCALL_FAILED", "location": "ovs_dp_process_packet", "count": 8})
    [row] = balance({"ovs_flows": lost, "kernel_drops": freed})
    assert (row.stage, row.entered, row.dropped, row.coverage_pct) == ("datapath", 1000, 8, 100.0)


@pytest.mark.parametrize("counter", ["UdpRcvbufErrors", "UdpMemErrors", "Udp6RcvbufErrors", "Udp6MemErrors"])
@pytest.mark.parametrize("reason", ["SOCKET_RCVBUFF", "PROTO_MEM"])
def test_full_sockets_and_used_up_memory_are_losses_of_udp(counter: str, reason: str) -> None:
    counted = probe("counters", {"counter": counter, "netns": "blue", "count": 40})
    rows = [{"reason": reason, "netns": "blue", "protocol": protocol, "count": 10} for protocol in ("UDP", "TCP")]
    (row,) = balance({"protocol_counters": counted, "kernel_drops": probe("drops", *rows)})
    assert (row.dropped, row.unexplained, row.coverage_pct) == (40, 30, 25.0), "those of TCP are others"


@pytest.mark.parametrize(
    "reason",
    ["QDISC_DROP", "QDISC_OVERLIMIT", "QDISC_CONGESTED", "QDISC_EDT_HORIZON", "CAKE_FLOOD", "FQ_BAND_LIMIT", "OTHER"],
)
def test_a_qdiscs_losses_are_those_of_its_own_device(reason: str) -> None:
    links = probe(
        "links",
        {"device": "eth0", "netns": "host", "qdisc_drops": 3},
        {"device": "eth0", "netns": "blue", "qdisc_drops": 8},
        {"device": "eth1", "netns": "host", "qdisc_drops": None},
    )
    seen = {"reason": reason, "device": "eth0", "netns": "host", "count": 5}
    found = balance({"link_rates": links, "kernel_drops": probe("drops", seen)})
    explained = 0 if reason == "OTHER" else 3
    assert [(row.netns, row.unexplained) for row in found] == [("blue", 8), ("host", 3 - explained)]
    assert found[1].coverage_pct == (0.0 if reason == "OTHER" else 100.0), "more than were counted explain no more"


def test_a_coverage_has_three_digits_and_the_largest_gap_comes_first() -> None:
    links = probe(
        "links",
        {"device": "a", "netns": "host", "qdisc_drops": 3},
        {"device": "b", "netns": "host", "qdisc_drops": 90},
        {"device": "c", "netns": "host", "qdisc_drops": 91},
    )
    seen = probe(
        "drops",
        {"reason": "QDISC_DROP", "device": "a", "netns": "host", "count": 1},
        {"reason": "QDISC_DROP", "device": "b", "netns": "host", "count": 88},
        {"reason": "QDISC_DROP", "device": "c", "netns": "host", "count": 89},
    )
    found = balance({"link_rates": links, "kernel_drops": seen})
    assert [(row.device, row.unexplained, row.coverage_pct) for row in found] == [
        ("c", 2, 97.802),
        ("b", 2, 97.778),
        ("a", 2, 33.333),
    ]


def test_what_a_filter_hides_is_told_apart_from_what_nobody_explains() -> None:
    seen = probe("drops", {"reason": "SOCKET_RCVBUFF", "netns": "blue", "protocol": "UDP", "count": 30})
    found = balance({**COUNTED, "kernel_drops": seen}, {"netns": 4026531840})
    assert [(row.stage, row.unexplained, row.hidden_by) for row in found] == [
        ("qdisc", 300, ["netns"]),
        ("backlog", 12, ["netns"]),
        ("udp-socket", 10, []),
    ]
    sums = balance_sums(found)
    assert (sums.lost, sums.unexplained, sums.hidden, sums.filters, sums.seen_pct) == (40, 10, 312, ("netns",), 75.0)
    set_to: dict[str, Scalar] = {"netns": 4026531840, "port": 53}
    assert not any(row.hidden_by for row in balance({**COUNTED, "kernel_drops": SEEN}, set_to))


@pytest.mark.parametrize(
    ("reason", "hidden"),
    [
        ("NO_SOCKET", {"qdisc", "backlog", "udp-socket"}),
        ("not:QDISC_DROP", {"qdisc"}),
        ("cpu_backlog,SOCKET_RCVBUFF,proto_mem", {"qdisc"}),
        ("SOCKET_RCVBUFF", {"qdisc", "backlog", "udp-socket"}),
        ("not:NO_SOCKET", set()),
        ("from another version: 1", {"qdisc", "backlog", "udp-socket"}),
    ],
)
def test_a_filter_of_reasons_hides_only_where_a_stage_has_others(reason: str, hidden: set[str]) -> None:
    found = balance({**COUNTED, "kernel_drops": probe("drops")}, {"reason": reason})
    assert {row.stage for row in found if row.hidden_by == ["reason"]} == hidden
    assert {row.stage for row in found if not row.hidden_by} == {"qdisc", "backlog", "udp-socket"} - hidden


@pytest.mark.parametrize("entry", LEFT_OUT)
def test_what_was_counted_and_not_listed_is_unknown_and_no_more_than_that(entry: str) -> None:
    links = {"link_rates": COUNTED["link_rates"]}
    (row,) = found = balance({**links, "kernel_drops": probe("drops", of_qdisc(100), **{entry: 200})})
    assert (row.dropped, row.unexplained, row.coverage_pct, row.hidden_by) == (300, 200, 33.333, [entry])
    sums = balance_sums(found)
    assert (sums.lost, sums.unexplained, sums.hidden, sums.filters, sums.unknown) == (100, 0, 0, (), 200)
    (row,) = found = balance({**links, "kernel_drops": probe("drops", of_qdisc(100), **{entry: 199})})
    assert (row.unexplained, row.hidden_by) == (200, []), "a packet is missing that was not even counted"
    assert balance_sums(found).unexplained == 200
    (row,) = balance({**links, "kernel_drops": probe("drops", of_qdisc(300), **{entry: 200})})
    assert (row.unexplained, row.hidden_by) == (0, [])


def test_what_says_nothing_of_packets_hides_none() -> None:
    seen = probe("drops", of_qdisc(100), suppressed=900, breaker=900, lost=900, stack_failed=900)
    (row,) = balance({"link_rates": COUNTED["link_rates"], "kernel_drops": seen})
    assert (row.unexplained, row.hidden_by) == (200, [])


def test_all_that_hides_a_loss_is_named_and_a_filter_hides_more() -> None:
    seen = probe("drops", of_qdisc(280), unlisted=12, map_full=8)
    found = balance({**COUNTED, "kernel_drops": seen}, {"netns": 4026531840})
    assert [(row.stage, row.unexplained, row.hidden_by) for row in found] == [
        ("udp-socket", 40, ["netns"]),
        ("qdisc", 20, ["unlisted", "map_full"]),
        ("backlog", 12, ["netns", "unlisted", "map_full"]),
    ]
    sums = balance_sums(found)
    assert (sums.lost, sums.unexplained, sums.hidden, sums.filters, sums.unknown) == (280, 0, 52, ("netns",), 20)


@pytest.mark.parametrize(
    ("before", "unlisted", "hidden_by"),
    [
        (0, 0, []),
        (23, 0, []),
        (24, 0, ["begin"]),
        (500, 0, ["begin"]),
        (20, 3, []),
        (20, 4, ["unlisted", "begin"]),
        (0, 24, ["unlisted"]),
    ],
)
def test_what_was_seen_before_the_begin_makes_a_loss_unknown_and_closes_none(
    before: int, unlisted: int, hidden_by: list[str]
) -> None:
    seen = {"link_rates": COUNTED["link_rates"], "kernel_drops": probe("drops", of_qdisc(276))}
    (row,) = balance(seen, earlier=probe("drops", of_qdisc(276 + before), unlisted=unlisted))
    assert (row.dropped, row.unexplained, row.coverage_pct, row.hidden_by) == (300, 24, 92.0, hidden_by)


def test_what_a_pair_refused_before_the_begin_makes_the_other_end_unknown() -> None:
    refused = {"reason": "NOT_SPECIFIED", "location": "__dev_forward_skb2", "device": "veth-a", "netns": "blue"}
    links = probe(
        "links",
        {"device": "veth-a", "netns": "blue", "tx_drops": 0, "peer": "eth0", "peer_netns": "green"},
        {"device": "eth0", "netns": "green", "rx_drops": 50, "peer": "veth-a", "peer_netns": "blue"},
    )
    seen = {"link_rates": links, "kernel_drops": probe("drops", {**refused, "count": 30})}
    (row,) = balance(seen, earlier=probe("drops", {**refused, "count": 50}))
    assert (row.stage, row.unexplained, row.coverage_pct, row.hidden_by) == ("device-receive", 20, 60.0, ["begin"])


def test_a_device_that_is_no_name_is_none() -> None:
    links = probe("links", {"device": 7, "netns": "host", "qdisc_drops": 300})
    (loss,) = balance({"link_rates": links, "kernel_drops": probe("drops")})
    assert (loss.unexplained, loss.device, loss.netns) == (300, None, "host")


@pytest.mark.parametrize(
    ("stage", "counter", "reason", "protocol"),
    [
        ("closed-port", "UdpNoPorts", "NO_SOCKET", "UDP"),
        ("closed-port", "Udp6NoPorts", "NO_SOCKET", "UDP"),
        ("reverse-path", "TcpExtIPReversePathFilter", "IP_RPFILTER", "UDP"),
        ("no-route", "IpExtInNoRoutes", "IP_INNOROUTES", "TCP"),
        ("no-route", "Ip6InNoRoutes", "IP_INNOROUTES", "TCP"),
        ("ip-address", "IpInAddrErrors", "IP_INADDRERRORS", "UDP"),
        ("ip-header", "IpInHdrErrors", "IP_CSUM", "UDP"),
        ("ip-protocol", "IpInUnknownProtos", "IP_NOPROTO", "protocol 200"),
        ("too-long", "IpFragFails", "PKT_TOO_BIG", "UDP"),
        ("udp-checksum", "UdpInCsumErrors", "UDP_CSUM", "UDP"),
        ("tcp-checksum", "TcpInCsumErrors", "TCP_CSUM", "TCP"),
    ],
)
def test_what_a_protocol_counts_and_frees_is_a_stage(stage: str, counter: str, reason: str, protocol: str) -> None:
    counted = probe("counters", {"counter": counter, "netns": "blue", "count": 75_000})
    seen = [
        {"reason": reason, "netns": "blue", "protocol": protocol, "count": 74_000},
        {"reason": reason, "netns": "red", "protocol": protocol, "count": 5},
        {"reason": "NO_SOCKET", "netns": "blue", "protocol": "TCP", "count": 500},
    ]
    (row,) = balance({"protocol_counters": counted, "kernel_drops": probe("drops", *seen)})
    assert (row.stage, row.device, row.netns) == (stage, None, "blue")
    assert (row.dropped, row.unexplained) == (75_000, 1000)


@pytest.mark.parametrize("shed_by_its_own", [0, 40])
def test_what_a_device_without_a_carrier_loses_is_seen_as_of_a_qdisc(shed_by_its_own: int) -> None:
    """A noop qdisc stands in for its own: the kernel says QDISC_DROP, and the device counts it."""
    links = probe(
        "links",
        {
            "device": "tap1",
            "netns": "host",
            "tx_drops": 900,
            "lost_without_carrier": 900,
            "qdisc_drops": shed_by_its_own,
        },
        {"device": "tap2", "netns": "host", "tx_drops": 50, "lost_without_carrier": 0, "qdisc_drops": 0},
    )
    shed = {"reason": "QDISC_DROP", "location": "__dev_queue_xmit", "netns": "host"}
    seen: list[dict[str, Any]] = [{**shed, "device": "tap1", "count": 900}, {**shed, "device": "tap2", "count": 50}]
    found = balance({"link_rates": links, "kernel_drops": probe("drops", *seen)})
    assert {(row.stage, row.device): row.unexplained for row in found} == {
        ("device-send", "tap1"): shed_by_its_own,
        ("device-send", "tap2"): 50,
        **({("qdisc", "tap1"): 0} if shed_by_its_own else {}),
    }


def test_one_packet_at_a_full_backlog_is_explained_wherever_it_is_counted() -> None:
    pair = ({"device": "veth-a", "netns": "blue"}, {"device": "veth-b", "netns": "green"})
    ends = [
        {**one, "peer": other["device"], "peer_netns": other["netns"], "tx_drops": 0, "rx_drops": 0}
        for one, other in (pair, pair[::-1])
    ]
    links = probe("links", {**ends[0], "tx_drops": 800}, {**ends[1], "rx_drops": 800})
    seen = {"reason": "CPU_BACKLOG", "location": "enqueue_to_backlog", **pair[1], "count": 800}
    softnet = probe("cpus", {"cpu": 0, "dropped": 800})
    found = balance({"link_rates": links, "softnet": softnet, "kernel_drops": probe("drops", seen)})
    assert {row.stage: (row.dropped, row.unexplained) for row in found} == {
        "device-send": (800, 0),
        "device-receive": (800, 0),
        "backlog": (800, 0),
    }
