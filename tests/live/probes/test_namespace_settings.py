"""Facts of network namespaces: what decides whether a packet is taken is told apart, what only counts is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netconsole.host.here import Here
from netconsole.sources.facts import namespaces
from netconsole.sources.facts.reading import Fact, Facts
from tests.support.live.network import Namespace


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
    assert {"routes_ipv4", "routes_ipv6", "firewall"} <= set(before) and not any(
        one.volatile for one in before.values()
    )
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
