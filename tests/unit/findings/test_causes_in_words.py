"""First sentences are for people: every reason that a kernel gives has words, and none has a name out of the kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from netconsole.base import figure
from netconsole.findings.rules import WHY, rule_of, say
from netconsole.findings.verdicts import shipped
from netconsole.probes import catalogue
from netconsole.probes.causes import CAUSE_LABELS, Causes
from netconsole.probes.manifest import FindingSpec
from netconsole.telemetry import frames
from netconsole_collector.names.drop_reasons import REASONS, DropReasons
from netconsole_collector.sources.net import nic_losses, protocol_losses
from tests.unit.findings.test_one_cause import BACKLOG, DROPS, FULL, PEER, RECEIVED, SENDER, SENT, Watched
from tests.unit.findings.test_rules_of_probes import AT_ONCE, DROP, of_rate

MANIFESTS = catalogue.load_all()
WORDS = {"rate": "9", "value": "9", "total": "9", "unit": "packets"}
SETTINGS = {"rp_filter", "gc_thresh3"}
"""Names that people type: they say what to set."""
CODE = re.compile(
    r"\b[A-Z][A-Z0-9]*_\w+"  # NOT_SPECIFIED
    r"|\b_*[a-z0-9]+_\w+"  # nft_do_chain
    r"|\bE[A-Z]{4,}\b"  # EAGAIN
    r"|\b(?:Ip|Ip6|Udp|Udp6|Tcp|Icmp|Icmp6|Xfrm|Conntrack)(?:Ext|In|Out|[A-Z])\w+"  # UdpNoPorts
)
PLACES = (
    "br_allowed_ingress", "br_handle_frame", "br_handle_frame_finish", "do_xdp_generic", "__dev_forward_skb2",
    "__neigh_event_send",
    "icmpv6_rcv", "ip_defrag", "ip_error", "ip_expire", "ip_rcv_finish_core", "macvlan_handle_frame", "rawv6_rcv",
    "sk_stream_kill_queues", "skb_release_data", "stp_pdu_rcv", "tcp_v4_rcv", "tun_queue_purge",
    "udp_destruct_common", "udp_rcv", "__udp4_lib_rcv", "veth_xdp_rcv_skb", "vxlan_rcv", "vxlan_xmit",
)  # fmt: skip
"""Where kernels 5.10 to 7.3 were seen to drop without a reason."""


def causes() -> Causes:
    found = MANIFESTS["kernel_drops"].tables["drops"].causes
    assert found is not None
    return found


def sentences() -> Iterator[str]:
    """The first sentences of all rules, for all causes that they know."""
    labels: dict[str, frames.Label] = dict.fromkeys(CAUSE_LABELS, "X")
    for manifest in MANIFESTS.values():
        for rule in manifest.findings:
            for case in rule.cases.values() or [rule]:
                matched = {name: values[0] for name, values in case.where.items()}
                known = dict.fromkeys(re.findall(r"{(\w+)}", case.say), "x")
                yield say(case, {**labels, **known, **matched, "reason": "X"}, WORDS)


def test_no_first_sentence_has_a_name_of_the_kernels_code() -> None:
    meanings = [*protocol_losses.LOSS.values(), *nic_losses.LOSS.values(), *nic_losses.SIGN.values()]
    found = [(word, text) for text in (*sentences(), *meanings) for word in CODE.findall(text)]
    assert [one for one in found if one[0] not in SETTINGS] == []
    assert CODE.findall("NOT_SPECIFIED at nft_do_chain: EAGAIN, UdpNoPorts") == [
        "NOT_SPECIFIED", "nft_do_chain", "EAGAIN", "UdpNoPorts",
    ]  # fmt: skip


def test_no_advice_names_a_key_of_the_console() -> None:
    """Files have it, too, and there is no key to press."""
    cases = [case for one in MANIFESTS.values() for rule in one.findings for case in rule.cases.values() or [rule]]
    assert [case.next for case in cases if "(key " in case.next] == []


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_has_words(reason: str) -> None:
    named = DropReasons({"9": reason}).labels(9, "anywhere")
    cause = causes().of({**DROP, **named, "location": "anywhere"})
    assert cause is not None and cause.cause != "unknown-reason" and "{reason}" not in cause.why


@pytest.mark.parametrize("place", PLACES)
def test_each_place_without_a_reason_that_was_seen_has_words(place: str) -> None:
    for suffix in ("", ".isra.0"):
        named = DropReasons({"2": "NOT_SPECIFIED"}).labels(2, place + suffix)
        cause = causes().of({**DROP, **named, "location": place + suffix})
        assert cause is not None and cause.cause not in ("no-reason", "local-message")


def test_a_reason_that_is_new_to_us_is_said_to_be_so() -> None:
    row = {**DROP, "reason": "SHINY_NEW", "class": "unknown"}
    (one,) = of_rate("kernel_drops", "drops", "count", row, 100, AT_ONCE)
    assert one.sentence == "uxva: a reason that netconsole does not know yet (SHINY_NEW): 100 UDP packets/s lost"
    row = {**DROP, "reason": "NOT_SPECIFIED", "class": "suspicious", "location": "some_new_function"}
    (one,) = of_rate("kernel_drops", "drops", "count", row, 100, AT_ONCE)
    assert one.sentence == "uxva: the kernel does not say why: 100 UDP packets/s lost"


@pytest.mark.parametrize(
    ("labels", "why", "command"),
    [
        ({"reason": "NETFILTER_DROP", "location": "nft_do_chain", "hook": "input"},
         "a rule or policy of nftables drops them (input hook)", "nft list ruleset"),
        ({"reason": "NETFILTER_DROP", "location": "nf_hook_slow", "hook": "forward"},
         "conntrack, NAT or iptables-legacy drops them (forward hook)", "conntrack -S"),
        ({"reason": "IP_INADDRERRORS", "location": "ip_error"},
         "they are for another host, and forwarding is off",
         "sysctl net.ipv4.ip_forward net/ipv4/conf/uxva/forwarding"),
        ({"reason": "NOT_SPECIFIED", "location": "ip_error"}, "a blackhole, prohibit or unreachable route", None),
        ({"reason": "PKT_TOO_BIG", "location": "ip_forward"}, "longer than the next MTU, and may not be cut", None),
        ({"reason": "IP_INHDR", "location": "ip_forward"}, "their TTL has run out", None),
        ({"reason": "NOT_SPECIFIED", "location": "veth_xdp_rcv_skb"}, "an XDP program drops them", None),
        ({"reason": "NO_TX_TARGET", "location": "vxlan_xmit"},
         "VXLAN knows no end for their MAC (no forwarding entry)", "bridge fdb show dev uxva"),
        ({"reason": "NOT_SPECIFIED", "location": "vxlan_xmit"},
         "VXLAN knows no end for their MAC (no forwarding entry)", "bridge fdb show dev uxva"),
        ({"reason": "NOT_SPECIFIED", "location": "vxlan_xmit_one"},
         "no route to the other end of the tunnel, or its own address is not here", "ip -d link show dev uxva"),
        ({"reason": "QUEUE_PURGE", "location": "neigh_invalidate", "class": "benign"},
         "the next hop does not answer (ARP or neighbour discovery)", "ip -s neighbour show dev uxva"),
        ({"reason": "SOCKET_FILTER", "location": "tun_net_xmit"}, "a filter of the tap refuses them", None),
        ({"reason": "BRIDGE_INGRESS_STP_STATE", "location": "br_handle_frame"},
         "the bridge port does not forward yet (STP)", "bridge -d link show dev uxva"),
    ],
)  # fmt: skip
def test_the_function_tells_who_dropped(labels: dict[str, frames.Label], why: str, command: str | None) -> None:
    (one,) = of_rate("kernel_drops", "drops", "count", {**DROP, "class": "suspicious", **labels}, 100, AT_ONCE)
    assert one.sentence.startswith(f"uxva: {why}: 100 UDP packets/s ")
    assert command is None or command in one.commands


def test_what_was_found_out_stands_in_place_of_the_words() -> None:
    manifest, labels = MANIFESTS["kernel_drops"], {**DROP, "reason": "IP_RPFILTER"}
    of_row = (rule_of(rule, causes(), labels) for rule in manifest.findings)
    (rule,) = (one for one in of_row if one is not None)
    assert say(rule, {**labels, WHY: "192.0.2.9 is routed by eth7"}, WORDS) == (
        "uxva: 192.0.2.9 is routed by eth7: 9 UDP packets/s lost"
    )


def test_packets_that_are_not_ip_are_called_by_their_ethertype() -> None:
    rule = FindingSpec("t", "v", "!", 1.0, "{device}: {rate} {protocol} packets/s", "")

    def said(protocol: str, ethertype: str) -> str:
        return say(rule, {"device": "eth0", "protocol": protocol, "ethertype": ethertype}, WORDS)

    assert said("not IP", "ARP") == "eth0: 9 ARP packets/s"
    assert said("unparsed", "none") == said("", "none") == "eth0: 9 packets/s"
    assert said("TCP", "IPv4") == "eth0: 9 TCP packets/s"


def test_at_80_columns_the_name_is_cut_before_the_cause() -> None:
    who, why, rest = "vnet-of-a-long-name (netns customer-7)", ": an XDP program drops them", ": 9 packets/s refused"
    whole = figure.fit_sentence(who, why, rest, 200)
    assert whole == who + why + rest
    assert figure.fit_sentence(who, why, rest, 75) == f"{who}{why}: 9 packe…"
    assert figure.fit_sentence(who, why, rest, 52) == "vnet-of-a-long-name (ne…: an XDP program drops them…"
    assert figure.fit_sentence(who, why, rest, 30) == "vnet-of-a-l…: an XDP program …"


def test_an_effect_gives_no_advice_of_its_own() -> None:
    """A full backlog behind a veth is no matter of its MTU."""
    ends = ((SENT, SENDER, 60), (RECEIVED, PEER, 60), (DROPS, FULL, 60), (BACKLOG, {"cpu": 1}, 60))
    (one,) = Watched().interval(*ends)
    assert one.next and not any("MTU" in text for text in one.next)
    assert not any(command.startswith("ip ") for command in one.commands)


OF_THE_MACHINE = re.compile(
    r"net[./]core[./](netdev_\w+|dev_weight\w*|rmem_\w+|wmem_\w+|busy_\w+|flow_limit\w*|rps_\w+|default_qdisc)"
    r"|net[./]ipv4[./](tcp_mem|udp_mem|tcp_max_orphans|route[./]\w+|inet_peer_\w+|neigh[./]default[./]gc_\w+)"
)
"""Not in other network namespaces than the host's (net_core_table of net/core/sysctl_net_core.c; ipv4_table)."""


def test_settings_of_the_whole_machine_are_looked_up_on_the_host() -> None:
    """In the namespace of a container there is no such file."""
    commands = [command for spec in causes().specs for command in spec.commands]
    commands += [command for verdict in shipped().verdicts for command in verdict.commands]
    commands += [command for one in MANIFESTS.values() for rule in one.findings for command in rule.commands]
    asked = [command for command in commands if OF_THE_MACHINE.search(command)]
    assert len(asked) >= 4
    assert [command for command in asked if not command.startswith("host: ")] == []
