"""Facts of network namespaces: what decides whether a packet is taken is told apart, what only counts is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netconsole_collector.primitives.here import Here
from netconsole_collector.questions.facts import namespaces
from netconsole_collector.questions.facts.reading import Fact, Facts
from tests.support.live.network import Namespace

FAMILIES = ("ipv4", "ipv6")
LEGACY = """
import ctypes, socket, struct, sys
name, verdict = b"filter".ljust(32, b"\\0"), int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
one = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
def asked(what, room, size=0):
    answer = ctypes.create_string_buffer((name + struct.pack("=I", size)).ljust(room, b"\\0"), room)
    length = ctypes.c_uint32(room)
    if libc.getsockopt(one.fileno(), 0, what, answer, ctypes.byref(length)):
        raise OSError(ctypes.get_errno(), "getsockopt")
    return answer.raw
info = struct.unpack("=32s13I", asked(64, 84))  # IPT_SO_GET_INFO: it makes the table
hooks, places, count, size = info[1], info[2:12], info[12], info[13]
entries = bytearray(asked(65, 40 + size, size)[40:])  # IPT_SO_GET_ENTRIES
struct.pack_into("=i", entries, places[5 + 1] + 112 + 32, -verdict - 1)  # the policy of the hook input
counters = ctypes.create_string_buffer(16 * count)
words = struct.pack("=32s3I10IIQ", name, hooks, count, size, *places, count, ctypes.addressof(counters))
words += bytes(entries)
if libc.setsockopt(one.fileno(), 0, 64, words, len(words)):  # IPT_SO_SET_REPLACE
    raise OSError(ctypes.get_errno(), "setsockopt")
"""
DROP, ACCEPT = 0, 1


@pytest.fixture
def place() -> Iterator[Namespace]:
    made = Namespace()
    yield made
    made.remove()


def facts_of(place: Namespace) -> dict[str, Fact]:
    """Without the name of the namespace."""
    found = Facts(Here())
    namespaces.settings(found)
    begin = f"namespace/{place.name}/"
    return {name.removeprefix(begin): fact for name, fact in found.taken().items() if name.startswith(begin)}


def changed(before: dict[str, Fact], after: dict[str, Fact]) -> set[str]:
    return {name for name in {*before, *after} if before.get(name) != after.get(name)}


def test_what_is_set_up_differently_is_a_fact(place: Namespace) -> None:
    before = facts_of(place)
    kinds = {
        f"{kind}_{family}" for kind in ("routes", "other_routes", "rules", "firewall_legacy") for family in FAMILIES
    }
    assert {*kinds, "firewall"} <= set(before) and not any(one.volatile for one in before.values())
    place.run("sysctl", "-qw", "net.ipv4.conf.lo.rp_filter=2", "net.ipv4.conf.all.forwarding=1")
    after = facts_of(place)
    sysctls = {"sysctl/net.ipv4.conf.lo.rp_filter", "sysctl/net.ipv4.conf.all.forwarding"}
    assert sysctls <= changed(before, after) and after["sysctl/net.ipv4.conf.lo.rp_filter"].value == "2"
    before = after
    place.ip("route", "add", "blackhole", "203.0.113.0/24")
    after = facts_of(place)
    assert changed(before, after) == {"routes_ipv4"}
    place.ip("route", "replace", "unreachable", "203.0.113.0/24")
    assert changed(after, facts_of(place)) == {"routes_ipv4"}, "as many, and others"


def test_a_rule_is_told_by_what_it_does_and_not_by_what_it_counts(place: Namespace) -> None:
    def rules(text: str) -> str | int | float | list[str] | None:
        place.run("nft", "-f", "-", input=f"flush ruleset\ntable inet t {{\nchain c {{\n{text}\n}}\n}}\n")
        return facts_of(place)["firewall"].value

    hook = "type filter hook input priority 0; policy accept;"
    first = rules(f"{hook} counter udp dport 53 drop")
    place.python("import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 53))")
    assert "packets 1" in place.run("nft", "list", "ruleset")
    assert facts_of(place)["firewall"].value == first, "it has counted a packet, and is the same"
    others = [
        rules(f"{hook} counter udp dport 54 drop"),
        rules(f"{hook.replace('accept', 'drop')} counter udp dport 53 drop"),
        rules(f"{hook} counter udp dport 53 drop; counter udp dport 53 drop"),
    ]
    assert len({first, *others}) == 4
    assert rules(f"{hook} counter udp dport 53 drop") == first, "however often it was made"


def test_rules_of_iptables_legacy_are_facts_by_what_they_do(place: Namespace) -> None:
    """nftables does not know of them."""
    before = facts_of(place)
    assert str(before["firewall_legacy_ipv4"].value).startswith("0 rules, ")
    try:
        place.python(LEGACY, ACCEPT)
    except AssertionError as error:
        pytest.skip(f"cannot run here: this kernel has no iptables-legacy: {error}")
    made = facts_of(place)
    assert changed(before, made) == {"firewall_legacy_ipv4"} and "4 rules, " in str(made["firewall_legacy_ipv4"].value)
    place.ip("link", "set", "lo", "up")
    place.python("import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 53))")
    assert facts_of(place)["firewall_legacy_ipv4"] == made["firewall_legacy_ipv4"], "it has counted a packet"
    place.python(LEGACY, DROP)
    assert changed(made, facts_of(place)) >= {"firewall_legacy_ipv4"}, "as many, and another policy"


@pytest.mark.parametrize("family", FAMILIES)
def test_rules_of_routing_and_their_tables_are_facts(place: Namespace, family: str) -> None:
    kind, prefix = ("-4", "203.0.113.0/24") if family == "ipv4" else ("-6", "2001:db8::/32")
    before = facts_of(place)
    assert str(before[f"other_routes_{family}"].value).startswith("0 routes, ")
    place.ip(kind, "rule", "add", "fwmark", "7", "lookup", "100")
    ruled = facts_of(place)
    assert f"rules_{family}" in changed(before, ruled) <= {f"rules_{family}", f"routes_{family}"}
    place.ip("link", "add", "veth-p", "type", "veth", "peer", "name", "veth-q")
    place.ip("link", "set", "veth-p", "up")
    place.ip(kind, "route", "add", prefix, "dev", "veth-p", "table", "100")
    routed = facts_of(place)
    assert f"other_routes_{family}" in changed(ruled, routed)
    assert str(routed[f"other_routes_{family}"].value).startswith("1 routes, ")
    place.ip(kind, "route", "replace", "unreachable", prefix, "table", "100")
    assert f"other_routes_{family}" in changed(routed, facts_of(place))
