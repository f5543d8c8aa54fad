"""socket_drops on sockets of the test's own: which socket, what went wrong there, and what is lost."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.support.live.contexts.budgets import MANY, without_time
from tests.support.live.contexts.filters import NETNS, OTHER_NETNS
from tests.support.live.contexts.memory import Members, place_of, size_of
from tests.support.live.contexts.packets import ICMP, IPV4, SENDER, TARGET, TCP, UDP, Flow, MadeUpHost
from tests.support.live.contexts.unattached import UnattachedProbe

PROBE = "socket_drops"
Load = Callable[..., UnattachedProbe]

SOCK = "inet_conn.icsk_inet.sk."
ESTABLISHED, TIME_WAIT, NEW_SYN = 1, 6, 12
STREAM, DATAGRAM, RAW = 1, 2, 3
STORM = 4000
"""More runs than may do the work of details in a window."""
FULL, NO_MEMORY = -errno.ENOMEM, -errno.ENOBUFS


@dataclass(frozen=True)
class Ends:
    """Of a socket. A peer of "" is none."""

    address: str = "192.0.2.1"
    port: int = 1111
    peer: str = "192.0.2.2"
    peer_port: int = 2222
    protocol: int = TCP


class Sockets(MadeUpHost):
    """Sockets in two namespaces."""

    def __init__(self, probe: UnattachedProbe) -> None:
        super().__init__(probe.memory)
        self.probe = probe
        self.here, self.there = self.net(NETNS), self.net(OTHER_NETNS)
        self._packets: dict[int, int] = {}

    def sock(self, ends: Ends, inode: int = 0, net: int = 0, members: Members | None = None) -> int:
        """A socket; ``inode`` of 0: it is no file any more."""
        is_6 = ":" in ends.address
        common: dict[str, int | bytes] = {
            "skc_state": ESTABLISHED,
            "skc_family": socket.AF_INET6 if is_6 else socket.AF_INET,
            "skc_num": ends.port,
            "skc_dport": socket.htons(ends.peer_port),
            "skc_net.net": net or self.here,
        }
        family = socket.AF_INET6 if is_6 else socket.AF_INET
        for name, address in (
            ("skc_v6_rcv_saddr" if is_6 else "skc_rcv_saddr", ends.address),
            ("skc_v6_daddr" if is_6 else "skc_daddr", ends.peer),
        ):
            if address:
                common[name] = socket.inet_pton(family, address)
        others = {"sk_protocol": ends.protocol, "sk_type": STREAM if ends.protocol == TCP else DATAGRAM}
        if inode:
            alloc = self.memory.make("socket_alloc", {"vfs_inode.i_ino": inode})
            others["sk_socket"] = alloc + place_of("socket_alloc", "socket")[0]
        return self.memory.make(
            "tcp_sock",
            {
                **{f"{SOCK}__sk_common.{name}": value for name, value in common.items()},
                **{f"{SOCK}{name}": value for name, value in others.items()},
                **(members or {}),
            },
        )

    def again(self, count: int) -> int:
        """The same packet each time that so many are asked for."""
        if count not in self._packets:
            self._packets[count] = self.segments(count)
        return self._packets[count]

    def segments(self, count: int) -> int:
        """A packet that stands for so many."""
        packet = self.memory.make("sk_buff", {})
        at = place_of("sk_buff", "cb")[0] + place_of("tcp_skb_cb", "tcp_gso_segs")[0]
        self.memory.put(packet + at, count.to_bytes(2, "little"))
        return packet


@pytest.mark.proves(
    "socket_drops",
    "counters.{udp_failed,queue_full,retransmits,resets_received,resets_sent}",
    "tables.sockets.{inode,address,peer,netns,port,peer_port,protocol}",
    "tables.sockets.{buffer_full,no_memory,retransmits,resets_received,resets_sent,buffer_bytes,segments_sent}",
    "modes.summary",
)
def test_each_socket_has_what_went_wrong_there(load: Load) -> None:
    probe = load(PROBE)
    host = Sockets(probe)
    buffer = {f"{SOCK}sk_rcvbuf": 4096}
    udp = host.sock(Ends(port=53, peer="", peer_port=0, protocol=UDP), 7001, members=buffer)
    for code in (FULL, FULL, NO_MEMORY, FULL):
        probe.run("udp_failed", code, udp)
    raw = host.sock(Ends(port=1, peer="", peer_port=0, protocol=ICMP), 7002, host.there, {f"{SOCK}sk_type": RAW})
    probe.run("queue_full", raw)
    probe.run("queue_full", raw)
    tcp6 = Ends("2001:db8::1", 80, "2001:db8::2", 4444)
    connection = host.sock(tcp6, 7003, host.there, {"segs_out": 900})
    for count in (1, 5):
        probe.run("retransmitted", connection, host.segments(count), 0)
    probe.run("retransmitted", connection, host.segments(9), -errno.EBUSY & 0xFFFFFFFF)  # it sent nothing
    probe.run("reset_received", connection)
    for _ in range(3):
        probe.run("reset_sent", connection)
    probe.read()
    assert probe.counters() == {
        "udp_failed": 4,
        "queue_full": 2,
        "retransmits": 6,
        "resets_received": 1,
        "resets_sent": 3,
    }
    rows = {row["inode"]: row for row in probe.rows("sockets")}
    nothing = dict.fromkeys(("buffer_full", "no_memory", "retransmits", "resets_received", "resets_sent"), 0)
    gauges = {"buffer_bytes": 0, "segments_sent": 0}

    def row(inode: int, ends: Ends, netns: int, protocol: str, /, **counts: int) -> dict[str, object]:
        labels = {"inode": inode, "process": None, "address": ends.address, "peer": ends.peer or None}
        place = {"netns": str(netns), "port": ends.port, "peer_port": ends.peer_port, "protocol": protocol}
        labels["merged"] = "no"
        return {**labels, **place, **nothing, **gauges, **counts}

    assert rows[7001] == row(
        7001, Ends(port=53, peer="", peer_port=0), NETNS, "UDP", buffer_full=3, no_memory=1, buffer_bytes=4096
    )
    assert rows[7002] == row(7002, Ends(port=0, peer="", peer_port=0), OTHER_NETNS, "ICMP", buffer_full=2)
    assert rows[7003] == row(7003, tcp6, OTHER_NETNS, "TCP", retransmits=6, segments_sent=900)
    service = Ends("2001:db8::1", 80, "", 0)
    assert rows[0] == row(0, service, OTHER_NETNS, "TCP", resets_received=1, resets_sent=3)
    assert len(rows) == 4 and probe.ledger() == {}


def test_resets_of_many_connections_are_one_row_of_their_service(load: Load) -> None:
    """A row of each connection would have one count; 600 connections a second filled the table (healthy.toml)."""
    probe = load(PROBE, sockets=4)
    host = Sockets(probe)
    service, peer, here = "198.51.100.1", "198.51.100.2", "192.0.2.1"
    for number in range(100):
        client = f"203.0.113.{number}"
        probe.run("reset_sent", host.sock(Ends(service, 443, client, 40000 + number), 7000 + number))
        probe.run("reset_received", host.sock(Ends(here, 50000 + number, peer, 443), 8000 + number))
        probe.run("reset_received", host.sock(Ends("2001:db8::1", 1, f"2001:db8::{number + 2:x}", 9), 0, host.there))
    probe.read()
    rows = {(row["address"], row["port"], row["peer"], row["peer_port"]): row for row in probe.rows("sockets")}
    counts = {place: (row["resets_sent"], row["resets_received"]) for place, row in rows.items()}
    assert counts == {
        (service, 443, None, 0): (100, 0),
        (here, 0, peer, 443): (0, 100),
        ("2001:db8::1", 1, None, 0): (0, 100),
    }
    assert probe.ledger() == {}


@pytest.mark.proves(
    "socket_drops",
    "tables.sockets.example.{mono_ns,source,target,source_port,target_port,source_mac,target_mac,came_in_by,vlan}",
    "tables.sockets.example.{ethertype,protocol,length_bytes}",
)
def test_a_socket_has_the_latest_packet_that_it_lost(load: Load) -> None:
    """Not one that came in after it before the next reading; and nothing that its tracepoint does not pass."""
    probe = load(PROBE)
    host = Sockets(probe)
    eth0 = host.device("eth0", host.here, 7)
    host.chain(host.here, [eth0])
    udp = host.sock(Ends(port=53, peer="", peer_port=0, protocol=UDP), 7001)
    raw = host.sock(Ends(port=1, peer="", peer_port=0, protocol=ICMP), 7002, members={f"{SOCK}sk_type": RAW})
    connection = host.sock(Ends(), 7003)
    at_socket: Members = {"skb_iif": 7, "dev": 0}
    before = time.monotonic_ns()
    first = host.packet(Flow("2001:db8::9", "2001:db8::1", 4444, 53, vlan=3), eth0, at_socket)
    for packet in (first, host.packet(Flow(), eth0)):
        probe.run("udp_failed", FULL, udp, host.arrived(packet))
    probe.run("queue_full", raw, host.frame(IPV4, b"\x55" + bytes(27), eth0, at_socket))
    probe.run("retransmitted", connection, host.segments(1), 0)
    probe.run("reset_received", connection)
    after = time.monotonic_ns()
    probe.read()
    (table,) = [one for one in probe.bodies if one["kind"] == "table" and one["name"] == "sockets"]
    found = {row["labels"]["inode"]: row.get("example") for row in table["rows"]}
    assert all(before <= found[inode].pop("mono_ns") <= after for inode in (7001, 7002))
    came = {"source_mac": SENDER, "target_mac": TARGET, "came_in_by": "eth0"}
    of_udp = {"source": "2001:db8::9", "source_port": 4444, "target": "2001:db8::1", "target_port": 53, "vlan": 3}
    assert found == {
        7001: {**of_udp, **came, "ethertype": "IPv6", "protocol": "UDP", "length_bytes": 68},
        7002: {**came, "ethertype": "IPv4", "protocol": "unparsed", "length_bytes": 28},
        7003: None,
        0: None,
    }
    assert probe.ledger() == {}, "what cannot be read of it is missing in no count"


@pytest.mark.proves("socket_drops", "tables.sockets.merged")
def test_a_merged_packet_is_as_many_datagrams_as_it_holds(load: Load) -> None:
    """At a socket with UDP_GRO. One that a guest sent in one piece says their size alone."""
    probe = load(PROBE)
    host = Sockets(probe)
    sock = host.sock(Ends(port=53, peer="", peer_port=0, protocol=UDP), 7001)
    head = host.memory.keep(bytes(size_of("skb_shared_info")))
    for size, segments, length, datagrams in ((0, 0, 100, 1), (1000, 40, 40_000, 40), (1000, 0, 3001, 4), (9, 0, 0, 1)):
        host.memory.change("skb_shared_info", head, {"gso_size": size, "gso_segs": segments})
        packet = host.memory.make("sk_buff", {"head": head, "len": length})
        before = probe.counters()["udp_failed"] if size else 0
        for code in (FULL, NO_MEMORY):
            probe.run("udp_failed", code, sock, packet)
        probe.read()
        assert probe.counters()["udp_failed"] - before == 2 * datagrams, (size, segments, length)
    row = probe.row("sockets")
    assert (row["buffer_full"], row["no_memory"], row["merged"]) == (46, 46, "no"), "they are told one by one"


ONE_IN = 16


@pytest.mark.proves("socket_drops", "knobs.rows_one_in", "ledger.estimated")
def test_rows_of_one_count_in_sixteen_keep_their_sockets_and_their_sum(load: Load) -> None:
    """Chance does 1.96 * sqrt(16 * n * (1 - p)) to a row of n counts (docs/reference/frames.md), three times in 60."""
    probe = load(PROBE)
    probe.set("summary", rows_one_in=ONE_IN)
    host = Sockets(probe)
    sockets = [host.sock(Ends(port=53 + number, protocol=UDP), 7001 + number) for number in range(2)]
    turns = 1000
    for _ in range(turns):
        for sock in (sockets[0], sockets[1], sockets[1], sockets[1]):
            probe.run("udp_failed", FULL, sock)
    for count in (1, 3, 40, 5, 15) * 250:  # at once: more and fewer than a block has
        probe.run("retransmitted", sockets[0], host.again(count), 0)
    probe.read()
    found = {row["inode"]: row for row in probe.rows("sockets")}
    counted = probe.counters()
    assert (counted["udp_failed"], counted["retransmits"]) == (4 * turns, 64 * 250)
    assert sum(row["buffer_full"] for row in found.values()) == 4 * turns, "of each whole block one stands for all"
    assert sum(row["retransmits"] for row in found.values()) == 64 * 250
    assert abs(found[7001]["buffer_full"] - turns) < 3 * (ONE_IN * turns * 0.75) ** 0.5 < turns / 2
    left_out = probe.ledger()["estimated"]
    assert 4 * turns * 15 / 16 < left_out < (4 * turns + 64 * 250) * 15 / 16 and "unlisted" not in probe.ledger()


def test_gauges_only_rise(load: Load) -> None:
    """Also where the kernel's own count of segments begins anew, at 32 bits."""
    probe = load(PROBE)
    host = Sockets(probe)
    connection = host.sock(Ends(), 7003)
    for segs_out, buffer, total in (
        (1000, 8192, 1000),
        (5000, 4096, 5000),
        (70, 9000, 70 + 2**32),
        (80, 1, 80 + 2**32),
    ):
        probe.memory.change("tcp_sock", connection, {"segs_out": segs_out, f"{SOCK}sk_rcvbuf": buffer})
        probe.run("retransmitted", connection, host.segments(1), 0)
        probe.read()
        assert probe.row("sockets")["segments_sent"] == total
    assert probe.row("sockets")["buffer_bytes"] == 9000


def test_a_socket_that_is_closing_has_no_inode(load: Load) -> None:
    probe = load(PROBE)
    host = Sockets(probe)
    for state in (TIME_WAIT, NEW_SYN):
        only_common = {f"{SOCK}__sk_common.skc_state": state, f"{SOCK}sk_protocol": UDP}
        probe.run("reset_sent", host.sock(Ends(port=state), 7009, members=only_common))
    released = host.sock(Ends(port=0, peer_port=9000), members={"inet_conn.icsk_inet.inet_sport": socket.htons(4321)})
    probe.run("reset_sent", released)
    probe.run("reset_sent", 0)  # nobody listens: there is no socket
    probe.read()
    rows = {row["port"]: (row["inode"], row["protocol"], row["buffer_bytes"]) for row in probe.rows("sockets")}
    assert rows == {TIME_WAIT: (0, "TCP", 0), NEW_SYN: (0, "TCP", 0), 4321: (0, "TCP", 0)}
    assert probe.counters()["resets_sent"] == 3
    probe.set("details")
    probe.run("reset_sent", released)
    probe.read()
    assert [event["queued_bytes"] for event in probe.events()] == [0]


@pytest.mark.proves("socket_drops", "tables.sockets.process")
def test_the_process_is_the_one_that_holds_the_socket(load: Load) -> None:
    probe = load(PROBE)
    host = Sockets(probe)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        probe.run("udp_failed", FULL, host.sock(Ends(protocol=UDP), os.fstat(held.fileno()).st_ino))
        probe.run("udp_failed", FULL, host.sock(Ends(protocol=UDP), 1))
        end = time.monotonic() + 20
        found: dict[int, str] = {}
        while not any(found.values()) and time.monotonic() < end:
            probe.read()
            found = {row["inode"]: row["process"] or "" for row in probe.rows("sockets")}
        assert f"({os.getpid()})" in found[os.fstat(held.fileno()).st_ino] and not found[1]


ENDS = (
    Ends(protocol=UDP),
    Ends("192.0.2.9", 5, "192.0.2.1", 1111),
    Ends("198.51.100.7", 5, "203.0.113.1", 6),
    Ends("2001:db8::1", 7, "2001:db8::2", 8),
    Ends("2001:db8:1::1", 9, "2001:db8::1", 7, UDP),
)
FILTERS: list[tuple[dict[str, str | int], set[int]]] = [
    ({}, {0, 1, 2, 3, 4}),
    ({"address": "192.0.2.1"}, {0, 1}),
    ({"address": "192.0.2.8/29"}, {1}),
    ({"address": "203.0.113.0/24"}, {2}),
    ({"address": "2001:db8::1"}, {3, 4}),
    ({"address": "2001:db8:1::/48"}, {4}),
    ({"port": 1111}, {0, 1}),
    ({"port": 7}, {3, 4}),
    ({"port": 6}, {2}),
    ({"protocol": "udp"}, {0, 4}),
    ({"protocol": "tcp", "port": 5}, {1, 2}),
    ({"netns": NETNS}, {0, 1, 2, 3, 4}),
    ({"netns": OTHER_NETNS}, set()),
    ({"netns": NETNS, "address": "2001:db8::/48", "protocol": "udp"}, {4}),
    ({"address": "192.0.2.1,192.0.2.2"}, {0}),
    ({"address": "from:192.0.2.2,to:192.0.2.1"}, {0}),
    ({"address": "from:192.0.2.1,to:198.51.100.7"}, set()),
    ({"address": "2001:db8::1,2001:db8:1::1"}, {4}),
    ({"port": "from:5,to:1111"}, {1}),
    ({"port": "to:5,from:6"}, {2}),
    ({"port": "1111,6"}, set()),
]


@pytest.mark.proves(
    "socket_drops", "knobs.{address,port,protocol,netns}", "modes.{counters,details}", "ledger.unlisted"
)
def test_filters_let_pass_what_they_name_and_nothing_else(load: Load) -> None:
    probe = load(PROBE)
    host = Sockets(probe)
    sockets = [host.sock(ends, 8000 + number) for number, ends in enumerate(ENDS)]
    segments = host.segments(3)
    counted = unlisted = 0
    for mode in ("summary", "counters", "details"):
        for knobs, wanted in FILTERS:
            probe.set(mode, **knobs)
            for number, sock in enumerate(sockets):
                before = probe.running._maps["nc_counters"].sum_of(2)
                probe.run("retransmitted", sock, segments, 0)
                passed = probe.running._maps["nc_counters"].sum_of(2) - before
                assert passed == 3 * (number in wanted), (mode, knobs, ENDS[number])
                counted += passed
                unlisted += passed if mode == "counters" else 0
    probe.read()
    assert sum(row["retransmits"] for row in probe.rows("sockets")) == counted - unlisted
    assert probe.ledger()["unlisted"] == unlisted


@pytest.mark.proves(
    "socket_drops",
    "events.socket.{mono_ns,inode,process,address,peer,netns,port,peer_port,protocol,what,queued_bytes}",
)
def test_an_event_is_what_happened_at_the_socket(load: Load) -> None:
    probe = load(PROBE)
    host = Sockets(probe)
    probe.set("details", events_per_s=100_000)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        inode = os.fstat(held.fileno()).st_ino
        sock = host.sock(Ends(), inode, members={f"{SOCK}sk_backlog.rmem_alloc.counter": 12345})
        before = time.monotonic_ns()
        probe.run("udp_failed", FULL, sock)
        probe.run("queue_full", sock)
        probe.run("retransmitted", sock, host.segments(1), 0)
        probe.run("reset_received", sock)
        probe.run("reset_sent", sock)
        after = time.monotonic_ns()
        probe.read()
    events = probe.events()
    what = ["udp receive", "queue full", "retransmit", "reset received", "reset sent"]
    assert [event["what"] for event in events] == what
    assert before <= events[0]["mono_ns"] < events[-1]["mono_ns"] <= after
    for event in events:
        assert (event["address"], event["port"], event["peer"], event["peer_port"]) == (
            "192.0.2.1",
            1111,
            "192.0.2.2",
            2222,
        )
        assert (event["inode"], event["netns"], event["protocol"]) == (inode, str(NETNS), "TCP")
        assert event["queued_bytes"] == 12345
        assert f"({os.getpid()})" in event["process"]
    assert probe.ledger() == {"seen": 5, "submitted": 5}


def test_what_a_filter_leaves_out_does_not_use_up_the_details(load: Load) -> None:
    """A storm at another socket took them all: what the filter let pass was counted, and had no events."""
    probe = load(PROBE)
    host = Sockets(probe)
    sockets = [host.sock(ends, 8000 + number) for number, ends in enumerate(ENDS[:2])]
    probe.set("details", events_per_s=1e9, address="192.0.2.8/29")
    storm, call = (probe.prepare("reset_sent", sock) for sock in sockets)
    for _ in range(5):
        for _ in range(STORM):
            storm()
        call()
    probe.read()
    assert probe.counters()["resets_sent"] == 5 and probe.ledger() == {"seen": 5, "submitted": 5}


@pytest.mark.proves(
    "socket_drops", "knobs.{events_per_s,flows_one_in}", "ledger.{suppressed,unsampled,breaker,map_full}"
)
def test_what_has_no_room_or_no_budget_is_counted(load: Load) -> None:
    probe = load(PROBE, sockets=2)
    host = Sockets(probe)
    sockets = [host.sock(Ends(), 8000 + number) for number in range(5)]
    for sock in sockets:
        probe.run("queue_full", sock)
    probe.read()
    assert len(probe.rows("sockets")) == 2 and probe.ledger() == {"map_full": 3}

    probe.set("details", events_per_s=200)
    call = probe.prepare("reset_sent", sockets[0])
    began = time.monotonic_ns()
    for _ in range(120):  # a quarter of a second's worth at once: 50
        call()
    earned = (time.monotonic_ns() - began) * 200 / 1e9
    probe.read()
    made = probe.ledger()
    assert made["seen"] == 120 == made["submitted"] + made["suppressed"]
    assert 50 <= made["submitted"] <= 50 + earned + 1

    probe.set("details", events_per_s=1e9, flows_one_in=4)
    for port in range(2000, 2400):
        probe.memory.change("tcp_sock", sockets[0], {f"{SOCK}__sk_common.skc_num": port})
        probe.run("reset_sent", sockets[0])
    probe.read()
    sampled = len({event["port"] for event in probe.events()})
    now = probe.ledger()
    assert 60 < sampled < 140 and now["unsampled"] == 400 - sampled  # of 400 one in 4: five standard deviations

    last = without_time(probe, [call], "estimated")  # rows go on, scaled
    assert last["breaker"] * 14 / 16 < last["estimated"] < last["breaker"] and "unlisted" not in last
    assert probe.counters()["resets_sent"] == 120 + 400 + MANY
