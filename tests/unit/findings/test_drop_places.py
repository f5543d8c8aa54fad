"""Where packets die: one line each place, and what two sources count of the same packets is counted once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from netconsole.findings.drop_places import CountedRow, DropPlace, drop_places, with_incidents
from netconsole.findings.windows import Family
from netconsole.probes import catalogue
from netconsole.probes.manifest import Manifest
from netconsole.telemetry.tables import row_key

ROOT = Path(__file__).parents[3]
KERNEL = ("kernel_drops", "drops", "count")
COUNTERS = ("protocol_counters", "counters", "count")
SOCKETS = ("socket_drops", "sockets", "buffer_full")


@pytest.fixture(scope="module")
def manifests() -> Mapping[str, Manifest]:
    return catalogue.load_all([ROOT / "probes"])


def row(source: tuple[str, str, str], total: int, per_s: float = 0.0, **labels: Any) -> CountedRow:
    return CountedRow(Family(*source), row_key(labels), labels, total, per_s, False)


def kernel(reason: str, total: int, per_s: float = 0.0, **labels: Any) -> CountedRow:
    known = {"location": "f", "device": "eth0", "netns": "host", "protocol": "UDP", "class": "suspicious", **labels}
    return row(KERNEL, total, per_s, reason=reason, **known)


def told(found: list[DropPlace]) -> list[tuple[str, str, int]]:
    return [(place.stage, place.at, place.total) for place in found]


def links(value: str, total: int, per_s: float = 0.0, **labels: Any) -> CountedRow:
    return row(("link_rates", "links", value), total, per_s, **{"device": "eth0", "netns": "host", **labels})


def counter(name: str, total: int, per_s: float = 0.0, netns: str = "host") -> CountedRow:
    return row(COUNTERS, total, per_s, counter=name, netns=netns, meaning="words", **{"class": "loss"})


def test_what_sources_count_of_the_same_packets_is_one_line(manifests: dict[str, Manifest]) -> None:
    found = drop_places(
        [
            kernel("QDISC_DROP", 690, 100.0, location="__dev_queue_xmit"),
            kernel("QDISC_OVERLIMIT", 10, location="tbf_enqueue", protocol="TCP"),
            links("qdisc_drops", 700, 100.0, qdisc="tbf", shaper="tbf 10 Mbit/s"),
            row(("tx_queue_latency", "dropped", "count"), 650, 99.0, device="eth0", netns="host", queue=0),
            counter("IpOutDiscards", 600, 99.0),
            counter("UdpSndbufErrors", 600, 99.0),
        ],
        manifests,
    )
    assert told(found) == [("qdisc", "eth0", 700)]
    assert found[0].say == "shed by tbf 10 Mbit/s"
    assert len({one.family.probe for one in found[0].rows}) == 4


def test_another_device_or_namespace_is_another_place(manifests: dict[str, Manifest]) -> None:
    rows = [
        kernel("QDISC_DROP", 5),
        kernel("QDISC_DROP", 4, device="eth1"),
        kernel("QDISC_DROP", 3, netns="blue"),
        links("qdisc_drops", 5),
        links("qdisc_drops", 4, device="eth1"),
    ]
    assert told(drop_places(rows, manifests)) == [
        ("qdisc", "eth0", 5),
        ("qdisc", "eth1", 4),
        ("qdisc", "eth0 (netns blue)", 3),
    ]


def test_sockets_tell_what_kernel_and_protocol_count_without_them(manifests: dict[str, Manifest]) -> None:
    sockets = [
        row(SOCKETS, total, process="dns", protocol="UDP", port=port, netns="host", inode=port)
        for port, total in ((53, 30), (54, 20))
    ]
    coarse = [kernel("SOCKET_RCVBUFF", 50), counter("UdpRcvbufErrors", 40), counter("Udp6RcvbufErrors", 10)]
    assert told(drop_places([*coarse, *sockets], manifests)) == [
        ("socket", "dns UDP port 53", 30),
        ("socket", "dns UDP port 54", 20),
    ]
    assert told(drop_places(coarse, manifests)) == [("socket", "UDP", 50)]


def test_what_only_the_coarse_counter_has_is_a_line_of_its_own(manifests: dict[str, Manifest]) -> None:
    rows = [
        kernel("CPU_BACKLOG", 100, 10.0),
        kernel("UNHANDLED_PROTO", 50, 5.0, **{"class": "benign"}),
        links("rx_drops", 1000, 100.0),
        row(("softnet", "cpus", "dropped"), 100, 10.0, cpu=0),
    ]
    found = drop_places(rows, manifests)
    assert told(found) == [("driver", "eth0", 850), ("backlog", "eth0", 100), ("device", "eth0", 50)]
    assert found[0].per_s == 85.0
    assert [place.level for place in found] == ["!", "!", "ok"]


def test_a_few_more_than_others_saw_are_no_line(manifests: dict[str, Manifest]) -> None:
    """Sources do not begin and are not read in one moment."""
    rows = [kernel("FULL_RING", 70, 10.0, device="vnet0"), links("tx_drops", 100, 10.2, device="vnet0")]
    assert told(drop_places(rows, manifests)) == [("tap", "vnet0", 70)]


def test_a_full_conntrack_table_is_not_called_a_firewall(manifests: dict[str, Manifest]) -> None:
    refused = [counter("Conntrackdrop", 40, netns="blue"), kernel("NETFILTER_DROP", 40, netns="blue", hook="input")]
    assert told(drop_places(refused, manifests)) == [("conntrack", "Conntrackdrop (netns blue)", 40)]
    more = [*refused[:1], kernel("NETFILTER_DROP", 100, netns="blue", hook="input")]
    assert told(drop_places(more, manifests)) == [
        ("firewall", "eth0 (netns blue)", 60),
        ("conntrack", "Conntrackdrop (netns blue)", 40),
    ]


@pytest.mark.parametrize("reason", ["OVS_NO_PORT", "OVS_TOO_LARGE"])
def test_what_a_port_of_open_vswitch_does_not_take_is_counted_once(reason: str, manifests: dict[str, Manifest]) -> None:
    """Before 6.7 the kernel tells one place of the datapath too few."""
    coarse = kernel("OVS_ACTION_FAILED", 76, location="do_execute_actions", device="vnet0")
    place: dict[str, Any] = {"location": "do_output", "port": "vnet0", "netns": "host", "class": "suspicious"}
    fine = row(("ovs_drops", "drops", "count"), 75, reason=reason, **place)
    assert told(drop_places([coarse, fine], manifests)) == [("OVS", "vnet0", 75)]
    assert told(drop_places([coarse], manifests)) == [("OVS", "vnet0", 76)]


def test_packets_that_clash_are_not_told_again_as_dropped(manifests: dict[str, Manifest]) -> None:
    """conntrack counts them twice, and netfilter frees them."""
    freed = kernel("NETFILTER_DROP", 8, netns="blue", hook="input")
    clash = [counter("Conntrackdrop", 8, netns="blue"), counter("Conntrackinsert_failed", 8, netns="blue"), freed]
    assert told(drop_places(clash, manifests)) == [("conntrack", "Conntrackinsert_failed (netns blue)", 8)]
    full = [counter("Conntrackdrop", 100, netns="blue"), *clash[1:2]]
    assert told(drop_places(full, manifests)) == [
        ("conntrack", "Conntrackdrop (netns blue)", 92),
        ("conntrack", "Conntrackinsert_failed (netns blue)", 8),
    ]


def nic(counter: str, total: int, kind: str = "loss") -> CountedRow:
    labels = {"device": "eth0", "counter": counter, "class": kind, "meaning": "words"}
    return row(("nic_counters", "losses", "count"), total, 10.0, **labels)


def test_what_the_nic_names_is_not_told_again_by_its_device(manifests: dict[str, Manifest]) -> None:
    rows = [nic("rx_missed_errors", 100), nic("rx_crc_errors", 40), nic("rx_prioN_discards", 90, "part")]
    rows += [links("rx_drops", 100, 10.0), links("rx_errors", 90, 10.0)]
    found = drop_places(rows, manifests)
    assert sorted(told(found)) == [
        ("driver", "eth0", 50),
        ("nic", "eth0 rx_crc_errors", 40),
        ("nic", "eth0 rx_missed_errors", 100),
    ]
    assert {"link_rates", "nic_counters"} == {one.family.probe for place in found for one in place.rows}


def test_a_timeout_of_fragments_is_counted_once(manifests: dict[str, Manifest]) -> None:
    counters = [counter("IpReasmFails", 2), counter("IpReasmTimeout", 2)]
    assert told(drop_places(counters, manifests)) == [("protocol", "IpReasmFails", 2)]
    freed = kernel("FRAG_REASM_TIMEOUT", 3)
    assert told(drop_places([*counters, freed], manifests)) == [("fragments", "eth0", 3)]


VETH = {"qdisc": "noqueue", "shaper": None}
SENDER = {"device": "veth-a", "netns": "red", "peer": "veth-b", "peer_netns": "host", **VETH}
PEER = {"device": "veth-b", "netns": "host", "peer": "veth-a", "peer_netns": "red", **VETH}


@pytest.mark.parametrize(
    ("freed", "place"),
    [
        (("NOT_SPECIFIED", "veth-a", "red", "__dev_forward_skb2"), ("link", "veth-a (netns red)", 60)),
        (("CPU_BACKLOG", "veth-b", "host", "enqueue_to_backlog"), ("backlog", "veth-b", 60)),
        (None, ("link", "veth-a (netns red)", 60)),
    ],
)
def test_what_a_peer_refuses_is_one_line_though_both_ends_count_it(
    manifests: dict[str, Manifest], freed: tuple[str, str, str, str] | None, place: tuple[str, str, int]
) -> None:
    rows = [links("tx_drops", 60, 6.0, **SENDER), links("rx_drops", 60, 6.0, **PEER)]
    if freed is not None:
        reason, device, netns, location = freed
        rows.append(kernel(reason, 60, 6.0, device=device, netns=netns, location=location))
    for some in (rows, rows[::-1]):
        assert told(drop_places(some, manifests)) == [place]
    rows[1] = links("rx_drops", 90, 9.0, **PEER)
    assert told(drop_places(rows, manifests)) == [place, ("driver", "veth-b", 30)]
    elsewhere = links("rx_drops", 60, 6.0, **{**PEER, "peer": "veth-c"})
    assert ("driver", "veth-b", 60) in told(drop_places([rows[0], elsewhere], manifests))


def test_names_from_outside_stay_text(manifests: dict[str, Manifest]) -> None:
    found = drop_places([kernel("QDISC_DROP", 1, device="{netns}\x1b[2J")], manifests)
    assert told(found) == [("qdisc", "{netns}\\x1b[2J", 1)]


def test_a_row_of_several_places_gives_none_of_them_the_level_of_its_incident(manifests: dict[str, Manifest]) -> None:
    """What IP did not send: the qdisc of one device shed some of it, the peer of another one refused the rest."""
    refused = links("tx_drops", 50, 5.0, **{**SENDER, "netns": "host"})
    shed, unsent = links("qdisc_drops", 60, 6.0, qdisc="tbf"), counter("IpOutDiscards", 110, 11.0)
    found = drop_places([shed, refused, unsent], manifests)
    marked = with_incidents(found, lambda row: "!" if row is refused else "!!")
    assert [(place.stage, place.level, len(place.rows)) for place in marked] == [("qdisc", "!!", 2), ("link", "!", 2)]
