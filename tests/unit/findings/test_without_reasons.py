"""Kernels before 5.17 give no reason: what is told of a drop there by its function, and by what the host answers."""

from __future__ import annotations

import pytest

from netconsole.findings import verdicts
from netconsole.probes import catalogue
from netconsole.telemetry.frames import Label, Scalar

ROW: dict[str, Label] = {
    "netns": "blue",
    "device": "eth0",
    "ethertype": "IPv4",
    "protocol": "UDP",
    "hook": "none",
    "reason": "unknown",
    "provenance": "kernel",
    "class": "unknown",
}
PACKET: dict[str, Scalar] = {"source": "192.0.2.1", "target": "192.0.2.2", "length_bytes": 1400}
HEADER, SOCKET, PORT, FILTER, RING = (
    {"reason": name, "provenance": "inferred"}
    for name in ("IP_INHDR", "SOCKET_RCVBUFF", "NO_SOCKET", "NETFILTER_DROP", "FULL_RING")
)
ROUTES = {"reason": "IP_INNOROUTES", "provenance": "inferred", "location": "ip_error"}
TO_IPV6: dict[str, Label] = {"ethertype": "IPv6", "source": "2001:db8::1", "target": "2001:db8::2"}
RECEIVED, TURNED_AWAY = "__netif_receive_skb_core", "ip_rcv_finish_core.constprop.0"


@pytest.mark.parametrize(
    ("labels", "cause", "kind"),
    [
        ({"location": "ip_rcv_core", **HEADER, "hook": "to this host"}, "wrong-ip-header", "fault"),
        ({"location": "ip_rcv_core", **HEADER}, "other-mac", "unwanted"),
        ({"location": RECEIVED, "protocol": "not IP", "ethertype": "LLDP"}, "unspoken-protocol", "unwanted"),
        ({"location": RECEIVED}, "tc-drops", "refused"),
        ({"location": "kfree_skb_list"}, "list-freed", "unknown"),
        ({"location": "ip_local_deliver_finish", "protocol": "protocol 253"}, "no-protocol", "fault"),
        ({"location": "icmp_rcv", "protocol": "ICMP"}, "wrong-checksum", "unknown"),
        ({"location": "__udp4_lib_rcv", **PORT}, "nobody-listens", "refused"),
        ({"location": "__udp4_lib_rcv", **PORT, "hook": "to many"}, "unheard-broadcast", "unwanted"),
        ({"location": "ip6_rcv_core", "protocol": "ICMPv6", "ethertype": "IPv6"}, "not-joined", "unwanted"),
        ({"location": "br_flood", "ethertype": "IPv6", "hook": "to many"}, "unheard-broadcast", "unwanted"),
        ({"location": "br_flood", "protocol": "not IP", "ethertype": "ARP"}, "no-reason", "unknown"),
        ({"location": "ip6_rcv_core", "ethertype": "IPv6"}, "ipv6-absent", "unwanted"),
        ({"location": "ip6_forward", "ethertype": "IPv6"}, "not-forwarded", "fault"),
        ({"location": "ip6_parse_tlv", "ethertype": "IPv6"}, "wrong-ip-header", "fault"),
        ({"location": "tun_get_user", "protocol": "not IP"}, "device-not-ready", "fault"),
        ({"location": "veth_poll"}, "xdp-drops", "refused"),
        ({"location": "raw_rcv", "protocol": "OSPF", **SOCKET}, "receive-buffer-full", "full"),
        ({"location": "raw_rcv", **SOCKET}, "raw-socket", "unwanted"),
        ({"location": "ip_forward"}, "not-forwarded", "fault"),
        ({"location": "ip_forward", "hook": "to many"}, "other-broadcast", "unwanted"),
        ({"location": "ip6_pkt_drop", "ethertype": "IPv6"}, "no-route", "fault"),
        ({"location": TURNED_AWAY, "hook": "to this host"}, "martians", "refused"),
        ({"location": "tun_net_xmit", **RING}, "tap-ring-full", "full"),
        ({"location": "ip_finish_output"}, "cgroup-drops", "refused"),
        ({"location": "ip_fragment.constprop.0"}, "too-big", "fault"),
    ],
)
def test_a_function_tells_the_cause(labels: dict[str, Label], cause: str, kind: str) -> None:
    causes = catalogue.shipped("kernel_drops").tables["drops"].causes
    assert causes is not None
    found = causes.of({**ROW, **labels})
    assert found is not None and (found.cause, found.kind) == (cause, kind)


@pytest.mark.parametrize(
    ("labels", "location", "other"),
    [
        (SOCKET, "udp_queue_rcv_one_skb", "or its filter or IPsec refuses them"),
        (PORT, "__udp4_lib_rcv", "or their checksum is wrong"),
        (RING, "tun_net_xmit", "or a filter of the tap refuses them"),
    ],
)
def test_two_causes_that_end_at_one_place_are_both_said(labels: dict[str, Label], location: str, other: str) -> None:
    causes = catalogue.shipped("kernel_drops").tables["drops"].causes
    assert causes is not None
    found = causes.of({**ROW, **labels, "location": location})
    assert found is not None and other in found.why


@pytest.mark.parametrize(("labels", "location"), [(PORT, "__udp4_lib_rcv"), (SOCKET, "udp_queue_rcv_one_skb")])
def test_what_a_protocol_counts_of_it_is_no_second_fault(labels: dict[str, Label], location: str) -> None:
    """It was seen on 5.10: it was told by its place, and by the counter of UDP or IPsec."""
    causes = catalogue.shipped("kernel_drops").tables["drops"].causes
    assert causes is not None
    found = causes.of({**ROW, **labels, "location": location})
    assert found is not None and "protocol-loss" in found.explains


def test_a_firewall_at_an_unknown_hook_explains_what_could_not_be_sent() -> None:
    causes = catalogue.shipped("kernel_drops").tables["drops"].causes
    assert causes is not None
    found = causes.of({**ROW, **FILTER, "location": "nf_hook_slow"})
    assert found is not None and found.cause == "firewall-drops" and "send-refused" in found.explains


@pytest.mark.parametrize(
    ("cause", "labels", "answer", "why"),
    [
        (
            "nobody-listens",
            PORT,
            {"process": None, "target_port": 4789},
            "nobody listens on UDP port 4789 of 192.0.2.2, or their checksum is wrong",
        ),
        (
            "nobody-listens",
            PORT,
            {"process": None, "target_port": 4789, "moved": "UdpNoPorts"},
            "nobody listens on UDP port 4789 of 192.0.2.2",
        ),
        (
            "nobody-listens",
            PORT,
            {"process": None, "target_port": 4789, "moved": "UdpInCsumErrors"},
            "a wrong UDP checksum, sent by 192.0.2.1",
        ),
        (
            "nobody-listens",
            {**PORT, **TO_IPV6},
            {"process": None, "target_port": 4789, "moved": "Udp6InCsumErrors"},
            "a wrong UDP checksum, or none, sent by 2001:db8::1",
        ),
        (
            "receive-buffer-full",
            SOCKET,
            {"process": "named/7", "port": 53, "moved": "XfrmInPolBlock"},
            "an IPsec policy forbids what 192.0.2.1 sends to 192.0.2.2",
        ),
        (
            "receive-buffer-full",
            SOCKET,
            {"process": "named/7", "port": 53, "moved": "UdpInErrors", "group_program": "sd_fw_ingress"},
            "a BPF program of its control group (sd_fw_ingress) refuses what named/7 should get",
        ),
        (
            "receive-buffer-full",
            SOCKET,
            {"process": "named/7", "port": 53, "moved": "UdpInErrors"},
            "named/7, port 53, has a filter that refuses them",
        ),
        (
            "not-forwarded",
            {"location": "ip_forward"},
            {"out_mtu": 1280, "out_device": "out"},
            "1400 bytes for 192.0.2.2, and out takes 1280 (MTU)",
        ),
        (
            "not-forwarded",
            {"location": "ip_forward"},
            {"out_mtu": 1400, "out_device": "out"},
            "their TTL has run out on the way to 192.0.2.2, or a policy forbids to send them on",
        ),
        (
            "no-route",
            ROUTES,
            {"forwarding": 0, "forwarding_all": 1, "is_own": False},
            "they are for 192.0.2.2, and forwarding is off for eth0",
        ),
        (
            "no-route",
            ROUTES,
            {"forwarding": 1, "forwarding_all": 1, "is_own": False, "refusal": "blackhole", "prefix": "192.0.2.0/24"},
            "the blackhole route 192.0.2.0/24 swallows what is for 192.0.2.2",
        ),
        (
            "not-forwarded",
            {"location": "ip6_forward", **TO_IPV6},
            {"forwarding_all": 0, "is_own": False, "out_mtu": 1280, "out_device": "out"},
            "they are for 2001:db8::2, and IPv6 forwarding is off here",
        ),
        (
            "not-forwarded",
            {"location": "ip6_forward", **TO_IPV6},
            {"forwarding_all": 1, "is_own": False, "out_mtu": 1280, "out_device": "out"},
            "1400 bytes for 2001:db8::2, and out takes 1280 (MTU)",
        ),
        (
            "not-forwarded",
            {"location": "ip6_forward", **TO_IPV6},
            {"forwarding_all": 0, "is_own": True, "is_dad_failed": True},
            "2001:db8::2 may not be used here: another host has it, too (DAD failed)",
        ),
        (
            "ipv6-absent",
            {"location": "ip6_rcv_core", **TO_IPV6},
            {"disable_ipv6": 1, "disable_ipv6_all": 0},
            "IPv6 is off for eth0 (disable_ipv6), and 2001:db8::1 sends to 2001:db8::2",
        ),
        (
            "ipv6-absent",
            {"location": "ip6_rcv_core", **TO_IPV6},
            {"disable_ipv6": 0, "source": "::1"},
            "::1 cannot be the sender of what comes in by eth0",
        ),
        (
            "not-joined",
            {"location": TURNED_AWAY, "hook": "to many"},
            {"drop_unicast": 1, "is_own": True},
            "to one address, in frames to all (drop_unicast_in_l2_multicast)",
        ),
        (
            "device-not-ready",
            {"location": "tun_get_user"},
            {"is_up": False},
            "eth0 is down",
        ),
        (
            "tc-drops",
            {"location": RECEIVED},
            {"filter": "matchall pref 1", "action": "police"},
            "the policer of tc filter matchall pref 1 lets no more through",
        ),
        (
            "martians",
            {"location": TURNED_AWAY},
            {"rp_filter": 1, "back_kind": "unicast", "back_device": "other0"},
            "answers to 192.0.2.1 would leave by other0 (rp_filter is 1)",
        ),
        (
            "martians",
            {"location": TURNED_AWAY},
            {"rp_filter": 1, "back_kind": None, "back_device": None},
            "this host has no route back to 192.0.2.1 (rp_filter is 1)",
        ),
        (
            "martians",
            {"location": TURNED_AWAY},
            {"rp_filter": 1, "back_kind": None, "back_device": None, "source": "224.0.0.9"},
            "224.0.0.9 cannot be the sender of what comes in by eth0",
        ),
        (
            "martians",
            {"location": TURNED_AWAY},
            {"rp_filter": 1, "back_kind": "local", "back_device": "lo"},
            "192.0.2.1 cannot be the sender of what comes in by eth0",
        ),
    ],
)
def test_what_the_host_answers_tells_the_rest(
    cause: str, labels: dict[str, Label], answer: dict[str, Scalar | None], why: str
) -> None:
    found = verdicts.shipped().verdict(cause, {**ROW, **PACKET, **labels, **answer}, is_answered=True)
    assert found is not None and found.why == why


@pytest.mark.parametrize(("provenance", "is_asked"), [("inferred", True), ("kernel", False)])
def test_counters_are_asked_about_where_the_kernel_gives_no_reason(provenance: str, is_asked: bool) -> None:
    asked = verdicts.shipped().question(
        "nobody-listens", {**ROW, **PACKET, **PORT, "target_port": 53, "provenance": provenance}
    )
    assert asked is not None and asked.name == "sockets" and ("counters" in asked.arguments) == is_asked


@pytest.mark.parametrize(("process", "asked_of"), [(None, "sockets"), ("named (7)", "reader")])
def test_of_a_socket_that_is_known_to_be_full_its_reader_is_asked(process: str | None, asked_of: str) -> None:
    asked = verdicts.shipped().question(
        "receive-buffer-full", {**ROW, **PACKET, **SOCKET, "target_port": 53, "process": process}
    )
    assert asked is not None and asked.name == asked_of


@pytest.mark.parametrize(("provenance", "is_asked"), [("inferred", True), ("kernel", False)])
def test_rules_of_nftables_are_asked_about_too(provenance: str, is_asked: bool) -> None:
    """From 5.17 on they end at a function of their own."""
    labels: dict[str, Label] = {"reason": "NETFILTER_DROP", "location": "nf_hook_slow", "provenance": provenance}
    asked = verdicts.shipped().question("firewall-drops", {**ROW, **PACKET, **labels})
    assert asked is not None and asked.name == "conntrack" and bool(asked.arguments.get("or_rules")) == is_asked
