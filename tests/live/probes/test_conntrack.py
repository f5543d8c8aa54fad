"""conntrack and ip_fragments where there are kprobes: they count what was sent, and what the kernel counts itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netconsole_collector.sources.net.protocol_counters import parse_conntrack, parse_paired, parse_single
from tests.support.live.measurement import Measurement
from tests.support.live.network import Namespace, Wire, run, send_frames
from tests.support.live.packets import A6, A, B, fragment6, ipv4, ipv6, tcp, udp

PORT = 9
MORE_FRAGMENTS = 0x2000
TABLE = (
    "add table inet f",
    "add chain inet f pre { type filter hook prerouting priority 0 ; }",
    "add rule inet f pre ct state new counter",
)
ZONES = ("add chain inet f raw { type filter hook prerouting priority -300 ; }", "add rule inet f raw ct zone set 7")


@pytest.fixture(scope="module")
def loaded(collector: Measurement) -> Measurement:
    for probe in ("conntrack", "ip_fragments"):
        collector.load(probe, "details", events_per_s=10_000)
    return collector


@pytest.fixture
def tracking(loaded: Measurement, wire: Wire) -> Iterator[Measurement]:
    """With a rule in the second namespace that needs conntrack."""
    wire.use_ipv6()
    for line in TABLE:
        wire.b.run("nft", *line.split())
    yield loaded
    wire.b.run("nft", "delete", "table", "inet", "f")


def counted(namespace: Namespace) -> dict[str, int]:
    """What the kernel counts of conntrack and of fragments there."""
    found = dict(parse_conntrack(namespace.run("cat", "/proc/net/stat/nf_conntrack")))
    found |= dict(parse_paired(namespace.run("cat", "/proc/net/snmp")))
    return found | dict(parse_single(namespace.run("cat", "/proc/net/snmp6")))


def test_each_packet_has_its_outcome_and_an_invalid_one_its_reason(tracking: Measurement, wire: Wire) -> None:
    tracking.begin()
    before = counted(wire.b)
    send_frames(wire.a, "veth-a", [ipv4(udp(PORT, wrong=0x1234))] * 11)
    send_frames(wire.a, "veth-a", [ipv4(bytes([8, 0, 0xDE, 0xAD, 0, 1, 0, 1]), protocol=1)] * 12)
    send_frames(wire.a, "veth-a", [ipv4(udp(PORT))] * 5)
    send_frames(wire.a, "veth-a", [ipv4(tcp(PORT, options=b""), protocol=6)])
    after = counted(wire.b)
    tracking.settle()
    here = {"netns": wire.b.name}
    refused = {
        (str(row.labels["protocol"]), str(row.labels["reason"])): row.counts["count"]
        for row in tracking.rows("conntrack", "refused", device="veth-b", zone=0, outcome="invalid", **here)
    }
    assert {protocol: count for (protocol, _), count in refused.items()} == {"UDP": 11, "ICMP": 12}
    assert all("checksum" in reason for _, reason in refused), refused
    assert after["Conntrackinvalid"] - before["Conntrackinvalid"] == 11
    assert after["Conntrackicmp_error"] - before["Conntrackicmp_error"] == 12
    first = tracking.total("conntrack", "packets", outcome="new", protocol="UDP", **here)
    more = tracking.total("conntrack", "packets", outcome="established", protocol="UDP", **here)
    assert first + more == 5 and first >= 1
    assert tracking.total("conntrack", "changes", before="NONE", after="SYN_SENT", **here) == 1
    assert tracking.samples("conntrack", "time", protocol="UDP", **here) == 11 + 5
    for entry in ("missed", "join_missed", "map_full", "parse_failed", "unaccounted"):
        assert tracking.ledger("conntrack", entry) == 0, entry


def test_packets_of_a_zone_are_counted_there(tracking: Measurement, wire: Wire) -> None:
    for line in ZONES:
        wire.b.run("nft", *line.split())
    tracking.begin()
    send_frames(wire.a, "veth-a", [ipv4(udp(PORT))] * 6)
    tracking.settle()
    assert tracking.total("conntrack", "packets", netns=wire.b.name, zone=7, protocol="UDP") == 6


def test_fragments_that_never_come_are_counted_once_each(tracking: Measurement, wire: Wire) -> None:
    """By conntrack, which puts datagrams together before the host does."""
    for name in ("ipv4.ipfrag_time", "ipv6.ip6frag_time"):
        wire.b.run("sysctl", "-qw", f"net.{name}=1")
    tracking.begin()
    before = counted(wire.b)
    send_frames(wire.a, "veth-a", [ipv4(bytes(16), flags=MORE_FRAGMENTS, identity=n) for n in range(11)])
    send_frames(wire.a, "veth-a", [ipv4(bytes(16), flags=100, identity=100 + n) for n in range(7)])
    send_frames(wire.a, "veth-a", [ipv6(fragment6(n), following=44) for n in range(12)])
    whole = [(0, MORE_FRAGMENTS), (2, 0)]
    send_frames(wire.a, "veth-a", [ipv4(bytes(16), flags=flags | at, identity=500) for at, flags in whole])
    tracking.until(lambda: tracking.counter("ip_fragments", "failed") >= 30, "the end of 30 datagrams")
    after = counted(wire.b)
    assert after["IpReasmTimeout"] - before["IpReasmTimeout"] == 18
    rows = tracking.rows("ip_fragments", "failed", netns=wire.b.name, how="timeout")
    found = {(str(row.labels["source"]), str(row.labels["missing"])): row.counts["count"] for row in rows}
    assert found == {(A, "last"): 11, (A, "first"): 7, (A6, "last"): 12}, found
    assert {row.labels["target"] for row in rows} >= {B}
    assert tracking.counter("ip_fragments", "whole") == 1
    assert tracking.counter("ip_fragments", "failed") == 30


def test_a_full_table_drops_what_the_kernel_counts(tracking: Measurement, wire: Wire) -> None:
    """The table of all namespaces: one connection alone has room."""
    limit = "net.netfilter.nf_conntrack_max"
    usual = run("sysctl", "-n", limit).strip()
    run("sysctl", "-qw", f"{limit}=1")
    try:
        tracking.begin()
        before = counted(wire.b)
        send_frames(wire.a, "veth-a", [ipv4(udp(100 + n)) for n in range(50)])
        after = counted(wire.b)
    finally:
        run("sysctl", "-qw", f"{limit}={usual}")
    tracking.settle()
    dropped = after["Conntrackdrop"] - before["Conntrackdrop"]
    (row,) = tracking.rows("conntrack", "refused", netns=wire.b.name, outcome="dropped")
    assert row.counts["count"] == dropped > 0
    assert row.labels["reason"] == "the table is full, or there is no memory"
