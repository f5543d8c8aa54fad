"""kernel_drops counts every dropped packet once, under the right reason, device and protocol, and nothing else."""

from __future__ import annotations

import itertools
import os
import random
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netconsole.telemetry import frames
from tests.support.live import packets
from tests.support.live.collector_driver import Driver
from tests.support.live.measurement import LIMIT_S, Measurement
from tests.support.live.network import IS_EMULATED, SEND_UDP, Namespace, SleepingReceiver, Wire, send_frames, send_udp

PROBE = "kernel_drops"
CLOSED_PORT = 9
MANY = 10_000 if IS_EMULATED else 100_000
SOME = 5_000
NOBODY_LISTENS = next(one for one in ("__udp4_lib_rcv", "udp_rcv") if f" {one}\n" in Path("/proc/kallsyms").read_text())
"""Where UDP frees a datagram to a closed port. In 7.x the compiler has made one function of both."""
SHED_OVER_BYTES = 100
"""The burst of shed_large: tbf drops what is larger than its bucket, always and at once."""


@pytest.fixture(scope="module")
def drops(collector: Measurement) -> Measurement:
    collector.load(PROBE)
    return collector


@pytest.fixture(autouse=True)
def summary(drops: Measurement, wire: Wire) -> Iterator[None]:
    """Every test counts from here; whatever it sets is taken back."""
    drops.begin()
    yield
    drops.set(PROBE)


def counted(drops: Measurement, namespace: Namespace, **labels: frames.Label) -> int:
    drops.settle()
    return drops.total(PROBE, "drops", netns=namespace.name, **labels)


def shed_large(wire: Wire) -> None:
    """From now on the first end of the wire sheds every packet of more than SHED_OVER_BYTES."""
    wire.shape(rate="1gbit", burst=str(SHED_OVER_BYTES), limit="100000")


def by_reason(drops: Measurement, namespace: Namespace) -> Counter[frames.Label]:
    found: Counter[frames.Label] = Counter()
    for row in drops.rows(PROBE, "drops", netns=namespace.name):
        found[row.labels["reason"]] += row.counts["count"]
    return found


def test_every_datagram_to_a_closed_port_is_counted_once_on_loopback(drops: Measurement, namespace: Namespace) -> None:
    send_udp(namespace, "127.0.0.1", CLOSED_PORT, MANY, senders=4)
    assert counted(drops, namespace, device="lo") == MANY
    (row,) = drops.rows(PROBE, "drops", netns=namespace.name, device="lo")
    expected = {"ethertype": "IPv4", "protocol": "UDP", "location": NOBODY_LISTENS}
    assert expected.items() <= row.labels.items()
    if row.labels["provenance"] == "kernel":
        assert (row.labels["reason"], row.labels["class"]) == ("NO_SOCKET", "benign")


def test_a_message_that_nobody_reads_is_no_packet(drops: Measurement, namespace: Namespace) -> None:
    namespace.python("import socket; near, far = socket.socketpair(); near.send(b'never read'); far.close()")
    drops.settle()
    (row,) = drops.rows(PROBE, "drops", netns=namespace.name)
    assert (row.labels["protocol"], row.labels["class"], row.counts["count"]) == ("AF_UNIX", "benign", 1)


def test_a_collector_leaves_no_message_unread(drops: Measurement, namespace: Namespace) -> None:
    """It and its compile workers must not be the ones that drop."""
    with Driver(before=("ip", "netns", "exec", namespace.name)) as driver:
        driver.load()
    assert counted(drops, namespace, protocol="AF_UNIX") == 0


def test_every_datagram_to_a_closed_port_is_counted_once_behind_a_wire(drops: Measurement, wire: Wire) -> None:
    send_udp(wire.a, wire.ADDRESSES[1], CLOSED_PORT, MANY, senders=4)
    assert counted(drops, wire.b, device=wire.DEVICES[1], protocol="UDP") == MANY
    assert by_reason(drops, wire.b)["NO_SOCKET"] == MANY
    assert drops.total(PROBE, "drops", netns=wire.a.name, protocol="UDP") == 0


def test_rows_add_up_to_the_counter_and_the_ledger_is_empty(drops: Measurement, namespace: Namespace) -> None:
    drops.set(PROBE, netns=namespace.inode)  # elsewhere on this machine packets may be dropped while the maps are read
    drops.begin()
    send_udp(namespace, "127.0.0.1", CLOSED_PORT, SOME)
    drops.settle()
    assert drops.total(PROBE, "drops") == drops.counter(PROBE, "drops") == SOME
    assert not any(drops.ledger(PROBE, entry) for entry in ("missed", "map_full", "evicted", "unaccounted"))


@pytest.mark.parametrize("version", [4, 6])
def test_who_opens_a_connection_is_told_from_the_rest_of_one_that_is_not_here(
    drops: Measurement, wire: Wire, version: int
) -> None:
    """Both go to a port that nobody has. FIN, SYN, RST and ACK are the bits 1, 2, 4 and 16."""
    made = {0x02: 30, 0x12: 5, 0x10: 40, 0x11: 7, 0x04: 3, 0x14: 2}
    if version == 6:
        wire.use_ipv6()
        frames_of = {
            flags: packets.ipv6(packets.tcp(CLOSED_PORT, flags=flags, source=packets.A6, target=packets.B6), 6)
            for flags in made
        }
    else:
        frames_of = {flags: packets.ipv4(packets.tcp(CLOSED_PORT, flags=flags), protocol=6) for flags in made}
    send_frames(wire.a, wire.DEVICES[0], [frames_of[flags] for flags, count in made.items() for _ in range(count)])
    where = {"device": wire.DEVICES[1], "reason": "NO_SOCKET", "protocol": "TCP"}
    opening = made[0x02] + made[0x12]
    assert counted(drops, wire.b, **where, hook="none") == opening
    assert counted(drops, wire.b, **where, hook="no SYN") == sum(made.values()) - opening


@pytest.mark.proves("kernel_drops", "tables.drops.example.syn")
@pytest.mark.parametrize("version", [4, 6])
def test_a_row_has_its_latest_packet_and_another_after_the_next_reading(
    drops: Measurement, wire: Wire, version: int
) -> None:
    """Of UDP and TCP, while what is counted stays exact."""
    if version == 6:
        wire.use_ipv6()
    source, target = wire.ADDRESSES6 if version == 6 else wire.ADDRESSES
    drops.set(PROBE, netns=wire.b.inode)
    for source_port in (40_001, 40_002):
        drops.begin()
        before_ns = drops.clock_ns()
        send_udp(wire.a, target, CLOSED_PORT, 50, source_port=source_port)
        refused = f"import socket; s = socket.socket(socket.AF_INET{'6' if version == 6 else ''})"
        wire.a.python(f"{refused}; s.bind(('{source}', {source_port})); s.connect_ex(('{target}', {CLOSED_PORT}))")
        drops.settle()
        for protocol, count, length in (("UDP", 50, 64 + (28 if version == 4 else 48)), ("TCP", 1, None)):
            labels = {"netns": wire.b.name, "device": wire.DEVICES[1], "protocol": protocol}
            (row,) = drops.rows(PROBE, "drops", ethertype=f"IPv{version}", **labels)
            assert row.counts == {"count": count}
            (whole,) = [one for one in drops.all_rows(PROBE, "drops") if one.labels == row.labels]
            packet = dict(whole.example)
            came_ns, bytes_ = packet.pop("mono_ns"), packet.pop("length_bytes")
            assert isinstance(came_ns, int) and before_ns <= came_ns <= drops.clock_ns()
            assert isinstance(bytes_, int) and (bytes_ == length or (length is None and bytes_ >= 40))
            assert packet == {
                "protocol": protocol, "ethertype": f"IPv{version}",
                "source": source, "source_port": source_port, "target": target, "target_port": CLOSED_PORT,
                "source_mac": wire.MACS[0], "target_mac": wire.MACS[1], "came_in_by": wire.DEVICES[1],
                **({"syn": 1} if protocol == "TCP" else {}),
            }  # fmt: skip


def test_a_row_of_a_storm_from_two_senders_has_a_packet_of_one_of_them(drops: Measurement, wire: Wire) -> None:
    """Each CPU keeps another one after each reading, and what is counted stays exact."""
    drops.set(PROBE, netns=wire.b.inode)
    drops.begin()
    began_ns, seen = drops.clock_ns(), set[int]()
    ports, cpus = (CLOSED_PORT, CLOSED_PORT + 1), sorted(os.sched_getaffinity(0))
    storms = [
        wire.a.start(SEND_UDP, wire.ADDRESSES[1], port, MANY // 2, 10 * port, cpu, 40_000 + port, 0)
        for port, cpu in zip(ports, itertools.cycle(cpus), strict=False)
    ]
    try:
        while any(storm.poll() is None for storm in storms):
            drops.settle()
            for row in drops.all_rows(PROBE, "drops", netns=wire.b.name, device=wire.DEVICES[1], protocol="UDP"):
                packet = row.example
                if (packet["mono_ns"] or 0) < began_ns:  # type: ignore[operator]
                    continue  # an earlier test's
                port = packet["target_port"]
                assert isinstance(port, int)
                assert (packet["source_port"], packet["length_bytes"]) == (40_000 + port, 28 + 10 * port)
                seen.add(port)
        assert [storm.wait() for storm in storms] == [0, 0]
    finally:
        for storm in storms:
            storm.kill()
    assert counted(drops, wire.b, device=wire.DEVICES[1], protocol="UDP") == MANY
    assert seen == set(ports)


def test_what_a_full_qdisc_sheds_is_counted_at_its_device(drops: Measurement, wire: Wire) -> None:
    wire.shape(rate="1mbit", burst="2kb", limit="20kb")
    send_udp(wire.a, wire.ADDRESSES[1], CLOSED_PORT, SOME, senders=2)
    shed = wire.a.qdisc(wire.DEVICES[0])["drops"]
    assert shed > SOME // 10
    assert counted(drops, wire.a, device=wire.DEVICES[0], protocol="UDP") == shed
    for row in drops.rows(PROBE, "drops", netns=wire.a.name, device=wire.DEVICES[0], protocol="UDP"):
        assert row.labels["provenance"] != "kernel" or str(row.labels["reason"]).startswith("QDISC")


def test_what_a_full_receive_buffer_refuses_is_counted_where_it_came_in(drops: Measurement, wire: Wire) -> None:
    before = wire.b.snmp("Udp", "RcvbufErrors")
    with SleepingReceiver(wire.b) as receiver:
        send_udp(wire.a, wire.ADDRESSES[1], receiver.port, SOME, senders=2)
        refused = wire.b.snmp("Udp", "RcvbufErrors") - before
        assert refused > SOME // 2
        assert counted(drops, wire.b, device=wire.DEVICES[1], reason="SOCKET_RCVBUFF", protocol="UDP") == refused


RECEIVER = """
import socket
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
receiver.bind(("", 0))
print(receiver.getsockname()[1], flush=True)
for _ in range(%d):
    receiver.recv(100)
"""


def test_packets_that_arrive_are_not_counted(drops: Measurement, wire: Wire) -> None:
    receiver = wire.b.start(RECEIVER % SOME)
    assert receiver.stdout
    port = int(receiver.stdout.readline())
    send_udp(wire.a, wire.ADDRESSES[1], port, SOME, senders=2)
    receiver.communicate(timeout=LIMIT_S)
    assert counted(drops, wire.b, protocol="UDP") == 0
    assert counted(drops, wire.a, protocol="UDP") == 0


def test_every_drop_is_submitted_suppressed_or_lost(drops: Measurement, wire: Wire) -> None:
    drops.set(PROBE, "details", netns=wire.b.inode, protocol="udp", events_per_s=200)
    drops.begin()
    send_udp(wire.a, wire.ADDRESSES[1], CLOSED_PORT, SOME, senders=2)
    drops.settle()
    made = {name: drops.event_count(PROBE, name) for name in ("seen", "submitted", "suppressed", "lost")}
    assert made["seen"] == drops.counter(PROBE, "drops") == SOME
    assert made["seen"] == made["submitted"] + made["suppressed"] + made["lost"]
    assert 0 < made["submitted"] < SOME
    assert len(drops.events) + drops.ledger(PROBE, "shed") == made["submitted"]
    fields = drops.events[0].fields
    assert (fields["source"], fields["target"]) == wire.ADDRESSES
    assert (fields["device"], fields["target_port"], fields["protocol"]) == (wire.DEVICES[1], CLOSED_PORT, "UDP")
    assert fields["length_bytes"] and fields["source_port"]
    stack = fields["stack"]
    assert isinstance(stack, list) and any("udp" in str(frame) for frame in stack)


@pytest.mark.proves(
    "kernel_drops",
    "tables.flows.{source,target,source_port,target_port,vlan,protocol,ethertype,reason,class,provenance}",
    "tables.flows.{device,location,netns,count}",
    "tables.stacks.{stack,location,reason,class,provenance,count}",
    "knobs.by_stack",
    "events.drop.{source_mac,target_mac}",
)
def test_every_flow_and_every_way_has_its_exact_total(drops: Measurement, wire: Wire) -> None:
    drops.set(PROBE, "details", netns=wire.b.inode, protocol="udp", by_stack=True)
    drops.begin()
    sent = {CLOSED_PORT: 300, CLOSED_PORT + 1: 20, CLOSED_PORT + 2: 1}
    for port, count in sent.items():
        send_udp(wire.a, wire.ADDRESSES[1], port, count, source_port=4000)
    drops.settle()
    flows = drops.rows(PROBE, "flows", netns=wire.b.name, device=wire.DEVICES[1])
    assert {row.labels["target_port"]: row.counts["count"] for row in flows} == sent
    where: dict[str, frames.Label] = {"location": NOBODY_LISTENS}
    if flows[0].labels["provenance"] == "kernel":  # before 5.17 it has no reasons
        where |= {"reason": "NO_SOCKET", "class": "benign", "provenance": "kernel"}
    who = {"source": wire.ADDRESSES[0], "target": wire.ADDRESSES[1], "source_port": 4000, "vlan": 0}
    expected = {**where, **who, "protocol": "UDP", "ethertype": "IPv4"}
    assert all({name: row.labels[name] for name in expected} == expected for row in flows)
    stacks = drops.rows(PROBE, "stacks")
    kept_out = drops.ledger(PROBE, "breaker") + drops.ledger(PROBE, "stack_failed")
    assert sum(row.counts["count"] for row in stacks) == sum(sent.values()) - kept_out
    assert all({name: row.labels[name] for name in where} == where for row in stacks)
    assert all(f"{NOBODY_LISTENS} < " in str(row.labels["stack"]) for row in stacks)
    assert drops.events
    assert {(event.fields["source_mac"], event.fields["target_mac"]) for event in drops.events} == {wire.MACS}


@pytest.mark.parametrize(
    ("knobs", "share"),
    [
        (lambda wire: {"device": wire.DEVICES[1]}, 1.0),
        (lambda wire: {"device": wire.DEVICES[0]}, 0.0),
        (lambda wire: {"port": CLOSED_PORT}, 0.5),
        (lambda wire: {"port": CLOSED_PORT + 2}, 0.0),
        (lambda wire: {"protocol": "udp"}, 1.0),
        (lambda wire: {"protocol": "tcp"}, 0.0),
        (lambda wire: {"address": wire.ADDRESSES[0]}, 1.0),
        (lambda wire: {"address": "192.0.2.0/30"}, 1.0),
        (lambda wire: {"address": "192.0.2.128/25"}, 0.0),
        (lambda wire: {"address": "2001:db8::/32"}, 0.0),
        (lambda wire: {"address": ",".join(wire.ADDRESSES[::-1]), "port": f"to:{CLOSED_PORT}"}, 0.0),
        (lambda wire: {"address": ",".join(wire.ADDRESSES)}, 1.0),
        (lambda wire: {"address": "from:{},to:{}".format(*wire.ADDRESSES), "port": f"to:{CLOSED_PORT}"}, 0.5),
        (lambda wire: {"address": "to:{},from:{}".format(*wire.ADDRESSES)}, 0.0),
        (lambda wire: {"netns": wire.b.inode}, 1.0),
        (lambda wire: {"netns": wire.a.inode}, 0.0),
        (lambda wire: {"device": wire.DEVICES[1], "port": CLOSED_PORT, "protocol": "17", "netns": wire.b.inode}, 0.5),
    ],
)
def test_filters(
    drops: Measurement, wire: Wire, knobs: Callable[[Wire], dict[str, frames.Scalar]], share: float
) -> None:
    drops.set(PROBE, **knobs(wire))
    for port in (CLOSED_PORT, CLOSED_PORT + 1):
        send_udp(wire.a, wire.ADDRESSES[1], port, 500)
    assert counted(drops, wire.b, protocol="UDP") == 1000 * share


def test_ipv6(drops: Measurement, wire: Wire) -> None:
    wire.use_ipv6()
    drops.set(PROBE, address=wire.ADDRESSES6[0])
    send_udp(wire.a, wire.ADDRESSES6[1], CLOSED_PORT, 500)
    assert counted(drops, wire.b, device=wire.DEVICES[1], ethertype="IPv6", protocol="UDP") == 500


# ---- packets as they should not be: built here, shed by a qdisc, and held against a parser of our own ----


def ethernet(ethertype: int, payload: bytes, tags: tuple[int, ...] = ()) -> bytes:
    mac = bytes.fromhex("02000000000b02000000000a")
    inside = b"".join(struct.pack(">HH", 0x8100, tag) for tag in tags)
    return (mac + inside + struct.pack(">H", ethertype) + payload).ljust(SHED_OVER_BYTES + 40, b"\0")


def ipv4(protocol: int, payload: bytes, offset: int = 0, options: bytes = b"") -> bytes:
    words = 5 + len(options) // 4
    head = struct.pack(">BBHHHBBH", 0x40 | words, 0, words * 4 + len(payload), 1, offset, 64, protocol, 0)
    return head + socket.inet_aton("192.0.2.1") + socket.inet_aton("192.0.2.2") + options + payload


def ipv6(following: int, payload: bytes) -> bytes:
    ends = (socket.inet_pton(socket.AF_INET6, text) for text in ("2001:db8::1", "2001:db8::2"))
    return struct.pack(">IHBB", 0x60000000, len(payload), following, 64) + b"".join(ends) + payload


PORTS = struct.pack(">HHHH", 1111, 2222, 8, 0)
FRAMES = {
    "IPv4": (ethernet(0x0800, ipv4(17, PORTS)), "IPv4", "UDP", (1111, 2222), 0),
    "IPv4 with options": (ethernet(0x0800, ipv4(17, PORTS, options=b"\1" * 8)), "IPv4", "UDP", (1111, 2222), 0),
    "first fragment": (ethernet(0x0800, ipv4(17, PORTS, 0x2000)), "IPv4", "UDP", (1111, 2222), 0),
    "later fragment": (ethernet(0x0800, ipv4(17, PORTS, 0x2001)), "IPv4", "UDP", (0, 0), 0),
    "VLAN": (ethernet(0x0800, ipv4(6, PORTS), (42,)), "IPv4", "TCP", (1111, 2222), 42),
    "two VLANs": (ethernet(0x0800, ipv4(6, PORTS), (42, 43)), "IPv4", "TCP", (1111, 2222), 42),
    "ICMP": (ethernet(0x0800, ipv4(1, PORTS)), "IPv4", "ICMP", (0, 0), 0),
    "IPv6": (ethernet(0x86DD, ipv6(17, PORTS)), "IPv6", "UDP", (1111, 2222), 0),
    "IPv6 with extensions": (
        ethernet(0x86DD, ipv6(0, bytes([60, 0, 1, 4, 0, 0, 0, 0]) + bytes([17, 0, 1, 4, 0, 0, 0, 0]) + PORTS)),
        *("IPv6", "UDP", (1111, 2222), 0),
    ),
    "IPv6 later fragment": (
        ethernet(0x86DD, ipv6(44, bytes([17, 0, 0, 8, 0, 0, 0, 1]) + PORTS)),
        *("IPv6", "UDP", (0, 0), 0),
    ),
    "IPv6, too many extensions": (
        ethernet(0x86DD, ipv6(60, bytes([60, 0, 1, 4, 0, 0, 0, 0]) * 8 + PORTS)),
        *("IPv6", "unparsed", (0, 0), 0),
    ),
    "ARP": (ethernet(0x0806, bytes(28)), "ARP", "not IP", (0, 0), 0),
    "IPv4 of version 5": (ethernet(0x0800, b"\x55" + ipv4(17, PORTS)[1:]), "IPv4", "unparsed", (0, 0), 0),
    "IPv4, header too short": (ethernet(0x0800, b"\x44" + ipv4(17, PORTS)[1:]), "IPv4", "unparsed", (0, 0), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMES)
def test_headers_are_read(drops: Measurement, wire: Wire, name: str) -> None:
    frame, ethertype, protocol, ports, vlan = FRAMES[name]
    shed_large(wire)
    drops.set(PROBE, "details", netns=wire.a.inode, events_per_s=100_000)
    drops.begin()
    send_frames(wire.a, wire.DEVICES[0], [frame] * 3)
    assert counted(drops, wire.a, device=wire.DEVICES[0], ethertype=ethertype, protocol=protocol) == 3
    assert drops.ledger(PROBE, "parse_failed") == (3 if protocol == "unparsed" else 0)
    mine = [event.fields for event in drops.events if event.fields["length_bytes"] == len(frame)]
    assert [(f["source_port"], f["target_port"], f["vlan"], f["protocol"]) for f in mine] == [
        (*ports, vlan, protocol)
    ] * 3


@pytest.mark.parametrize(("knobs", "counts"), [({"vlan": 42}, 3), ({"ethertype": 0x0806}, 4), ({"vlan": 43}, 0)])
def test_vlan_and_ethertype_filter(
    drops: Measurement, wire: Wire, knobs: dict[str, frames.Scalar], counts: int
) -> None:
    drops.set(PROBE, **knobs)
    shed_large(wire)
    send_frames(wire.a, wire.DEVICES[0], [FRAMES["VLAN"][0]] * 3 + [FRAMES["ARP"][0]] * 4)
    assert counted(drops, wire.a, device=wire.DEVICES[0]) == counts


def expected_protocol(frame: bytes) -> tuple[str, bool]:
    """What a frame of random bytes is, by a parser that shares nothing with the probe: (family, unparsed)."""
    ethertype = int.from_bytes(frame[12:14], "big")
    inside = frame[14:]
    if ethertype == 0x0800:
        return "IPv4", inside[0] >> 4 != 4 or inside[0] & 15 < 5
    if ethertype == 0x86DD:
        following, at, fragment = inside[6], 40, False
        for _ in range(6):
            if fragment or following not in (0, 43, 44, 51, 60):
                break
            if at + 4 > len(inside):
                return "IPv6", True
            length = {44: 8, 51: (inside[at + 1] + 2) * 4}.get(following, (inside[at + 1] + 1) * 8)
            fragment = following == 44 and int.from_bytes(inside[at + 2 : at + 4], "big") & 0xFFF8 != 0
            following, at = inside[at], at + length
        return "IPv6", inside[0] >> 4 != 6 or (not fragment and following in (0, 43, 44, 51, 60))
    return "other", False


def test_garbage_is_counted_and_nothing_is_read_into_it(drops: Measurement, wire: Wire) -> None:
    random.seed(20261121)
    mac = bytes.fromhex("02000000000b02000000000a")
    garbage = []
    for _ in range(3000):
        ethertype = random.choice((0x0800, 0x0800, 0x86DD, 0x86DD, 0x0806, 0x1234))
        body = bytearray(random.randbytes(random.randint(SHED_OVER_BYTES, 600)))
        if ethertype == 0x86DD and random.random() < 0.8:
            body[0] = 0x60 | body[0] & 15
            body[6] = random.choice((0, 6, 17, 43, 44, 51, 58, 60))
        elif random.random() < 0.8:
            body[0] = 0x40 | body[0] & 15
        garbage.append(mac + ethertype.to_bytes(2, "big") + bytes(body))
    shed_large(wire)
    drops.set(PROBE, netns=wire.a.inode)  # other tests send garbage, too
    drops.begin()
    send_frames(wire.a, wire.DEVICES[0], garbage)
    assert wire.a.qdisc(wire.DEVICES[0])["drops"] == len(garbage)
    assert counted(drops, wire.a, device=wire.DEVICES[0]) == len(garbage)
    expected = Counter(expected_protocol(frame) for frame in garbage)
    found: Counter[tuple[str, bool]] = Counter()
    for row in drops.rows(PROBE, "drops", netns=wire.a.name, device=wire.DEVICES[0]):
        family = str(row.labels["ethertype"])
        key = (family if family in ("IPv4", "IPv6") else "other", row.labels["protocol"] == "unparsed")
        found[key] += row.counts["count"]
    assert found == expected
    unparsed = sum(count for (_, bad), count in expected.items() if bad)
    assert unparsed and drops.ledger(PROBE, "parse_failed") == unparsed


# ---- the circuit breaker ----


def test_what_the_circuit_breaker_keeps_out_is_counted(drops: Measurement, wire: Wire) -> None:
    drops.set(PROBE, "details", netns=wire.b.inode, protocol="udp", events_per_s=100, rows_per_s=1000)
    drops.begin()
    send_udp(wire.a, wire.ADDRESSES[1], CLOSED_PORT, MANY, senders=2)
    drops.settle()
    made = {name: drops.event_count(PROBE, name) for name in ("seen", "submitted", "suppressed", "lost")}
    assert made["seen"] == drops.counter(PROBE, "drops") == MANY
    assert made["seen"] == made["submitted"] + made["suppressed"] + made["lost"]
    unlisted = drops.ledger(PROBE, "unlisted")
    assert unlisted and drops.total(PROBE, "drops", netns=wire.b.name) + unlisted == MANY
    assert drops.ledger(PROBE, "unaccounted") == 0
    assert made["submitted"] > 0


def test_the_time_that_details_take_is_bounded_in_the_kernel(drops: Measurement, wire: Wire) -> None:
    """A hundredth of a percent is soon used up: from then on one drop in 16 stands for all in the rows."""
    assert drops.command(command="bound", kernel_cpu_pct=0.01).ok
    drops.set(PROBE, "details", netns=wire.b.inode, protocol="udp", events_per_s=100)
    drops.begin()
    send_udp(wire.a, wire.ADDRESSES[1], CLOSED_PORT, MANY, senders=2)
    drops.settle()
    assert drops.counter(PROBE, "drops") == drops.event_count(PROBE, "seen") == MANY
    assert drops.ledger(PROBE, "estimated") > MANY // 2 and not drops.ledger(PROBE, "unlisted")
    assert drops.total(PROBE, "drops", netns=wire.b.name) == pytest.approx(MANY, rel=0.01)
    assert drops.ledger(PROBE, "breaker") > MANY // 2 and drops.ledger(PROBE, "unaccounted") == 0
    assert drops.command(command="bound", kernel_cpu_pct=0).ok
    drops.begin()
    send_udp(wire.a, wire.ADDRESSES[1], CLOSED_PORT, SOME)
    drops.settle()
    assert drops.total(PROBE, "drops", netns=wire.b.name) == SOME and not drops.ledger(PROBE, "estimated")


SEND_FLOWS = """
import socket, sys
target, port, flows, each = sys.argv[1], *map(int, sys.argv[2:])
for number in range(flows):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("", 20_000 + number))
        for _ in range(each):
            sender.sendto(bytes(64), (target, port))
"""


def test_details_of_some_flows_are_whole(drops: Measurement, wire: Wire) -> None:
    flows, each = 32, 10  # few enough for the budget's burst and the ring
    drops.set(PROBE, "details", netns=wire.b.inode, protocol="udp", events_per_s=100_000, flows_one_in=4)
    drops.begin()
    wire.a.python(SEND_FLOWS, wire.ADDRESSES[1], CLOSED_PORT, flows, each)
    drops.settle()
    made = {name: drops.event_count(PROBE, name) for name in ("seen", "submitted", "suppressed", "lost")}
    assert made["seen"] == drops.counter(PROBE, "drops") == flows * each
    assert made["seen"] == made["submitted"] + made["suppressed"] + made["lost"]
    sampled = Counter(event.fields["source_port"] for event in drops.events)
    assert 0 < len(sampled) < flows
    assert drops.ledger(PROBE, "unsampled") == (flows - len(sampled)) * each
    assert (made["suppressed"], made["lost"]) == (drops.ledger(PROBE, "unsampled"), 0)
    assert set(sampled.values()) == {each}, "a flow is seen whole or not at all"


def test_counters_alone_count_what_passes_the_filters(drops: Measurement, wire: Wire) -> None:
    drops.set(PROBE, "counters", netns=wire.b.inode, port=CLOSED_PORT)
    drops.begin()
    for port in (CLOSED_PORT, CLOSED_PORT + 1):
        send_udp(wire.a, wire.ADDRESSES[1], port, SOME)
    drops.settle()
    assert drops.counter(PROBE, "drops") == drops.ledger(PROBE, "unlisted") == SOME
    assert drops.total(PROBE, "drops") == drops.ledger(PROBE, "unaccounted") == 0
