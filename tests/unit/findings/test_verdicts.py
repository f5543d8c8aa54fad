"""Verdicts: what an answer says in words, what is asked for it, and that the shipped list names what there is."""

from __future__ import annotations

import shlex
import string
from collections.abc import Sequence
from typing import Any

import pytest

from netconsole.findings.verdicts import Verdicts, shipped
from netconsole.telemetry.request import WENT_ON
from netconsole_collector.questions.known import KNOWN, module

LABELS = {"netns", "device", "port", "reason", "location", "hook", "protocol", "ethertype", "provenance"}
EXAMPLE = {
    "source", "target", "source_port", "target_port", "vlan", "source_mac", "target_mac", "came_in_by", "length_bytes",
    "syn",
}  # fmt: skip
PACKET: dict[str, Any] = {
    "netns": "blue", "device": "vB", "reason": "IP_INADDRERRORS", "source": "192.0.2.1", "target": "198.51.100.7",
    "target_port": 9, "protocol": "UDP", "ethertype": "IPv4", "target_mac": "02:00:00:00:00:ff", "length_bytes": 1500,
}  # fmt: skip


@pytest.fixture
def verdicts() -> Verdicts:
    return shipped()


def said(verdicts: Verdicts, cause: str, **answer: Any) -> str | None:
    found = verdicts.verdict(cause, {**PACKET, **answer}, is_answered=True)
    return found.why if found is not None else None


@pytest.mark.parametrize(
    ("cause", "answer", "words"),
    [
        (
            "forwarding-off",
            {"forwarding_all": 0, "is_own": False},
            "they are for 198.51.100.7, and forwarding is off here",
        ),
        (
            "forwarding-off",
            {"forwarding_all": 1, "forwarding": 0, "is_own": False},
            "they are for 198.51.100.7, and forwarding is off for vB",
        ),
        ("forwarding-off", {"forwarding_all": 1, "forwarding": 1, "is_own": False}, None),
        (
            "refusing-route",
            {"refusal": "blackhole", "prefix": "198.51.100.0/24", "table": "main"},
            "the blackhole route 198.51.100.0/24 swallows what is for 198.51.100.7",
        ),
        ("refusing-route", {"refusal": None}, None),
        (
            "reverse-path",
            {"back_device": "eth1", "rp_filter": 1},
            "answers to 192.0.2.1 would leave by eth1 (rp_filter is 1)",
        ),
        (
            "reverse-path",
            {"back_device": None, "rp_filter": 1},
            "this host has no route back to 192.0.2.1 (rp_filter is 1)",
        ),
        ("too-big", {"out_mtu": 1400, "out_device": "eth1"}, "1500 bytes for 198.51.100.7, and eth1 takes 1400 (MTU)"),
        ("too-big", {"out_mtu": 1500, "out_device": "eth1"}, None),
        (
            "too-big",
            {"location": "ip_fragment.constprop.0", "out_mtu": 1400, "out_device": "eth1"},
            "1500 bytes, uncut, for 198.51.100.7, and eth1 takes 1400 (MTU)",
        ),
        (
            "no-route-out",
            {"remote": "203.0.113.2", "out_device": "eth1", "room": 1476},
            "1500 bytes, uncut, and the tunnel's way to 203.0.113.2 has room for 1476",
        ),
        (
            "no-route-out",
            {"remote": "203.0.113.2", "out_device": None, "room": None},
            "no route to the tunnel's other end 203.0.113.2",
        ),
        ("no-route-out", {"remote": "203.0.113.2", "out_device": "eth1", "room": 1500}, None),
        ("no-route-out", {"remote": None}, None),
        (
            "bridge-port-waits",
            {"state": "forwarding", "bridge": "br0", "ports": 1, "location": "br_handle_frame"},
            "br0 forwards here: a netfilter rule refuses them, or their IP header is wrong",
        ),
        (
            "bridge-port-waits",
            {"state": "forwarding", "bridge": "br0", "ports": 1, "has_vlans": True, "vlan": 77,
             "location": "br_handle_frame_finish"},
            "port of br0, of which no other port may be in VLAN 77",
        ),
        ("bridge-vlan", {"vlan": 77}, "this port of the bridge is not in VLAN 77"),
        (
            "bridge-vlan",
            {"vlan": 77, "location": "br_pass_frame_up"},
            "the bridge itself is not in VLAN 77, and they are for this host",
        ),
        (
            "bridge-vlan",
            {"source_mac": "02:00:00:00:00:0a"},
            "they have no VLAN, and this port of the bridge has none for such (PVID)",
        ),
        (
            "too-big",
            {"out_mtu": 600, "out_route_mtu": 600, "out_device": "eth1"},
            "1500 bytes for 198.51.100.7, and the route there takes 600 (MTU)",
        ),
        (
            "disk-slow",
            {"adds": "sda", "below": "sda", "adds_ms": 20.1, "mean_ms": 22.4, "stack": "dm-0 (LVM) > sda (disk)"},
            "sda adds 20.1 of 22.4 ms an I/O (dm-0 (LVM) > sda (disk))",
        ),
        (
            "disk-level-slow",
            {"adds": "dm-1", "below": "sda", "adds_ms": 20.1, "mean_ms": 22.4, "stack": "dm-1 (dm-crypt) > sda (disk)"},
            "dm-1 adds 20.1 of 22.4 ms an I/O (dm-1 (dm-crypt) > sda (disk))",
        ),
        ("disk-slow", {"adds": "sda", "below": None, "adds_ms": 20.1, "mean_ms": 20.1, "stack": "sda (disk)"}, None),
        ("qdisc-drops", {"kind": "htb", "classes": 2}, "a queue of its htb is full, or lets no more through"),
        (
            "qdisc-drops",
            {"kind": "mq", "classes": 4, "inner": "fq_codel"},
            "fq_codel (in its mq) is full, or lets no more through",
        ),
        (
            "tc-drops",
            {"filter": "matchall pref 1", "action": "police"},
            "the policer of tc filter matchall pref 1 lets no more through",
        ),
        (
            "tc-drops",
            {"filter": "matchall pref 1", "action": "gact", "reason": "TC_INGRESS"},
            "the tc filter matchall pref 1 drops them on receipt",
        ),
        (
            "firewall-drops",
            {"legacy_table": "filter", "legacy_chain": "INPUT", "legacy_rule": 2},
            "iptables-legacy: rule 2 of chain INPUT, table filter",
        ),
        (
            "listen-queue-full",
            {"is_time_wait": True, "has_refused": True, "syn": 1, "source_port": 4000, "process": "w", "waiting": 9,
             "limit": 1},
            "192.0.2.1:4000 reopens the connection to port 9 that has just ended",
        ),
        (
            "bridge-port-waits",  # before 6.14 the kernel does not tell it from a port that waits
            {"bridge": "br0", "state": "forwarding", "is_back": False, "is_locked": False, "is_isolated": False,
             "is_not_flooded": True, "ports": 2},
            "br0 does not know 02:00:00:00:00:ff, and its other ports take nothing unknown (flood off)",
        ),
        (
            "bridge-port-waits",
            {"bridge": "br0", "state": "forwarding", "is_back": False, "is_locked": False, "ports": 0},
            "br0 has no other port",
        ),
        (
            "time-wait",
            {"source_port": 4000},
            "192.0.2.1:4000 reopens the connection to port 9 that has just ended",
        ),
        (
            "ovs-drop-rule",
            {"match": "udp,tp_dst=9", "bridge": "br0", "table": 3, "cookie": "0x2a", "is_miss": False, "says": None},
            "the OpenFlow rule udp,tp_dst=9 drops them (br0, table 3, cookie 0x2a)",
        ),
        ("ovs-no-output", {"is_miss": True, "bridge": "br0", "table": 3, "match": None},
         "no OpenFlow rule of br0 fits them in table 3"),
        ("ovs-no-output", {"bridge": None, "table": None, "match": None, "is_miss": None}, None),
        ("ovs-meter", {"meter": 7, "bridge": "br0", "table": 0, "match": "udp"},
         "meter 7 of br0 lets no more through (table 0, rule udp)"),
        ("fragments", {"is_full": True, "memory": 66048, "limit": 65536, "waiting": 64},
         "no room for more fragments: 66048 of 65536 bytes are taken by 64 packets"),
        ("fragments", {"is_full": False, "memory": 5, "limit": 65536, "waiting": 1}, None),
        ("conntrack-drops", {"full": True, "entries": 9, "limit": 9}, "the table of connections is full: 9 of 9"),
        ("qdisc-drops", {"kind": "tbf", "classes": 1}, "its queueing discipline tbf is full, or lets no more through"),
        ("other-mac", {"is_own": True, "is_of_device": False, "mac_matches": False, "own_mac": "02:0b"}, None),
        ("firewall-drops", {"rule": None, "handle": 7, "remains": False, "table": "f", "chain": "in"},
         "nftables: rule 7 of table f, chain in"),
        ("firewall-drops", {"rule": "drop", "remains": True, "went_on": False, "table": "f", "chain": "in"}, None),
        ("firewall-drops", {"rule": "drop", "remains": True, "went_on": True, "table": "f", "chain": "in"},
         "nftables: drop (table f, chain in)"),
    ],
)  # fmt: skip
def test_an_answer_in_words(verdicts: Verdicts, cause: str, answer: dict[str, Any], words: str | None) -> None:
    assert said(verdicts, cause, **answer) == words


def test_names_from_outside_are_made_safe_and_quoted(verdicts: Verdicts) -> None:
    answer: dict[str, Any] = {
        "rule": 'log prefix "\x1b[2J" drop',
        "remains": False,
        "family": "inet",
        "table": "f; reboot",
        "chain": "in",
    }
    found = verdicts.verdict("firewall-drops", {**PACKET, **answer}, is_answered=True)
    assert found is not None and "\x1b" not in found.why
    assert found.commands == ("ip netns exec blue nft -a list chain inet 'f; reboot' in",)


@pytest.mark.parametrize(
    ("reason", "is_nobody", "syn", "moved", "why"),
    [
        ("unknown", True, 1, "", "nobody listens on TCP port 9 of 198.51.100.7"),
        ("unknown", False, 1, "", None),
        ("unknown", True, 0, "", None),  # late, of a connection that has ended
        ("unknown", False, 0, "TcpInCsumErrors", "a wrong TCP checksum, sent by 192.0.2.1"),
        (
            "unknown",
            False,
            1,
            "TcpExtTCPMD5NotFound",
            "the socket of port 9 wants a TCP signature (MD5); 192.0.2.1 sends none",
        ),
        (
            "unknown",
            False,
            1,
            "TcpExtTCPMD5Failure",
            "the TCP signature (MD5) of 192.0.2.1 is wrong, or unexpected, at port 9",
        ),
        ("NOT_SPECIFIED", True, 1, "", None),
        (
            "NOT_SPECIFIED",
            False,
            1,
            "TcpExtTCPMinTTLDrop",
            "the socket of port 9 takes near hosts alone (TTL): 192.0.2.1 is too far",
        ),
    ],
)
def test_what_tcp_refuses_is_told_where_the_kernel_gives_no_reason(
    verdicts: Verdicts, reason: str, is_nobody: bool, syn: int, moved: str, why: str | None
) -> None:
    """It was seen on 5.10: what ends in TCP was said to find no room, or nothing was said."""
    asked = {**PACKET, "protocol": "TCP", "reason": reason, "location": "tcp_v4_rcv", **({"syn": 1} if syn else {})}
    answer: dict[str, Any] = {"process": "sshd/7", "others": 0, "is_time_wait": False, "is_nobody": is_nobody}
    assert verdicts.verdict("listen-queue-full", asked, is_answered=False) is None
    answer |= {"moved": moved, "is_moving": True}
    found = verdicts.verdict("listen-queue-full", {**asked, **answer}, is_answered=True)
    assert (found.why if found is not None else None) == why
    assert found is None or found.level == "!"
    if moved:  # of another time: it says nothing of this packet
        assert verdicts.verdict("listen-queue-full", {**asked, **answer, "is_moving": False}, is_answered=True) is None


@pytest.mark.parametrize(
    ("moved", "why"),
    [
        ("TcpInCsumErrors", "a wrong TCP checksum, sent by 192.0.2.1"),  # nothing was ever reset here
        ("TcpOutRsts", "nobody listens on TCP port 9 of 198.51.100.7"),
        ("", "nobody listens on TCP port 9 of 198.51.100.7"),
    ],
)
def test_where_nobody_listens_a_wrong_checksum_is_told_when_all_is_over_too(
    verdicts: Verdicts, moved: str, why: str
) -> None:
    """It was seen on 5.10: asked too late, the host said that nobody listens, to whom it would have sent a reset."""
    asked = {**PACKET, "protocol": "TCP", "reason": "unknown", "location": "tcp_v4_rcv", "syn": 1}
    answer: dict[str, Any] = {"is_time_wait": False, "is_nobody": True, "moved": moved, "is_moving": False}
    found = verdicts.verdict("listen-queue-full", {**asked, **answer}, is_answered=True)
    assert found is not None and found.why == why
    question = verdicts.question("listen-queue-full", asked)
    assert question is not None and question.arguments["unheard"] == "TcpOutRsts"


@pytest.mark.parametrize(
    ("syn", "answer", "why"),
    [
        (2, {}, "192.0.2.1 goes on with a connection to port 9 that 198.51.100.7 does not know"),
        (3, {}, "192.0.2.1 resets a connection with port 9 that 198.51.100.7 does not know"),
        (2, {"is_callers": True}, None),
        (2, {"is_moving": True, "moved": "TcpExtTCPAbortOnClose"}, None),
        (3, {"is_callers": True}, None),
    ],
)
def test_a_connection_that_is_not_here_is_told_from_one_that_a_program_gave_up(
    verdicts: Verdicts, syn: int, answer: dict[str, Any], why: str | None
) -> None:
    """After a failover somebody may well listen, and a reset asks for nobody."""
    nobody: dict[str, Any] = {"process": None, "port": None, "peer": None, "is_callers": False, "is_moving": False}
    assert said(verdicts, "unknown-connection", protocol="TCP", syn=syn, **{**nobody, **answer}) == why


@pytest.mark.parametrize(("provenance", "is_unsure"), [("inferred", True), ("kernel", False)])
def test_a_wrong_checksum_is_not_ruled_out_where_the_kernel_gives_no_reason(
    verdicts: Verdicts, provenance: str, is_unsure: bool
) -> None:
    answer: dict[str, Any] = {"process": "reader/7", "port": 9, "peer": None, "is_elsewhere": False}
    found = verdicts.verdict("nobody-listens", {**PACKET, "provenance": provenance, **answer}, is_answered=True)
    assert found is not None and found.why.startswith("reader/7 has port 9")
    assert ("their checksum is wrong, or" in found.why) == is_unsure


def test_a_path_of_a_command_is_never_cut(verdicts: Verdicts) -> None:
    group = f"/kubepods.slice/{200 * 'x'}/machine-qemu\\x2d1\\x2dweb.scope"
    answer: dict[str, Any] = {"throttled_pct": 40, "limit": "50 ms in 100 ms", "group": group}
    found = verdicts.verdict("cpu-wait", {"tid": 7, **answer}, is_answered=True)
    assert found is not None and shlex.split(found.commands[0]) == ["cat", f"/sys/fs/cgroup{group}/cpu.stat"]


def test_nobody_asks_what_cannot_be_answered(verdicts: Verdicts) -> None:
    asked = verdicts.question("nobody-listens", PACKET)
    assert asked is not None and asked.name == "sockets"
    assert asked.arguments == {
        "netns": "blue", "wanted": "port", "protocol": "UDP", "port": 9, "target": "198.51.100.7", "device": "vB",
    }  # fmt: skip
    assert verdicts.question("nobody-listens", {**PACKET, "target_port": None}) is None, "the port is not known yet"
    assert verdicts.question("firewall-drops", {**PACKET, "location": "nf_hook_slow+0x4"}) == (
        "conntrack", {"netns": "blue", "protocol": "IPv4"},
    )  # fmt: skip


def test_a_command_of_the_host_is_not_run_in_the_namespace(verdicts: Verdicts) -> None:
    found = verdicts.verdict("xdp-drops", {**PACKET, "xdp": "shield", "xdp_id": 7}, is_answered=True)
    assert found is not None
    assert found.commands == ("bpftool prog show id 7", "ip netns exec blue ip -d link show dev vB")


def test_the_shipped_ones_name_what_there_is(verdicts: Verdicts) -> None:
    assert {spec.name for spec in verdicts.questions} <= KNOWN.keys()
    for spec in verdicts.verdicts:
        names = {
            name
            for template in (spec.why, spec.next, *spec.commands)
            for _, name, _, _ in string.Formatter().parse(template)
            if name
        } | set(spec.when) - {WENT_ON}
        asked = [module(name) for name in questions_of(verdicts, spec.causes)]
        told = " ".join(f"{one.__doc__} {one.answer.__doc__}" for one in asked)
        unknown = {name for name in names - LABELS - EXAMPLE if f"`{name}`" not in told}
        assert not unknown, (spec.causes, unknown)
        assert len(spec.why) <= 90, spec.why


def questions_of(verdicts: Verdicts, causes: Sequence[str]) -> set[str]:
    return {spec.name for spec in verdicts.questions if set(spec.causes) & set(causes)}
