"""mirror on packets of the test's own: each kind of tunnel, wrong headers, garbage, and each stage of its way."""

from __future__ import annotations

import errno
import os
import random
import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.live.contexts.test_kernel_drops import reason
from tests.live.contexts.test_socket_drops import SOCK, Ends, Sockets
from tests.support.live.contexts.filters import FILTERS, FLOWS, NETNS, OTHER_NETNS
from tests.support.live.contexts.fragments import in_fragment, know_pages
from tests.support.live.contexts.memory import place_of
from tests.support.live.contexts.packets import IPV4, IPV6, MACS, TCP, UDP, Flow
from tests.support.live.contexts.unattached import UnattachedProbe

PROBE = "mirror"
Load = Callable[..., UnattachedProbe]
LINK, GRE = 14, 47
VXLAN, GENEVE = 4789, 6081
VNI = 0xABCDEF
MSG_PEEK = 2
LIMIT_S = 60.0
GSO_TCPV4, GSO_UDP_TUNNEL, GSO_UDP_L4 = 1 << 0, 1 << 10, 1 << 17
"""SKB_GSO_… of include/linux/skbuff.h."""
FLOW = ("device", "netns", "tunnel", "vni", "source", "source_port", "target", "target_port")
INNER = Flow("10.1.0.1", "10.2.0.1", 1000, 53)


def outer(protocol: int, body: bytes, source: str = "192.0.2.1") -> bytes:
    ends = socket.inet_aton(source) + socket.inet_aton("192.0.2.2")
    return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 1, 0, 64, protocol, 0) + ends + body


def udp(port: int, body: bytes, length: int = 0, source: str = "192.0.2.1") -> bytes:
    return outer(UDP, struct.pack(">HHHH", 50000, port, length or 8 + len(body), 0) + body, source)


def frame(flow: Flow = INNER, vlan: int = 0) -> bytes:
    tag = struct.pack(">HH", 0x8100, vlan) if vlan else b""
    return MACS + tag + struct.pack(">H", flow.ethertype) + flow.packet()


def vxlan(inner: bytes, flags: int = 8, **more: Any) -> bytes:
    return udp(VXLAN, struct.pack(">II", flags << 24, VNI << 8) + inner, **more)


def geneve(inner: bytes, options: int = 0, first: int = 0, type: int = 0x6558) -> bytes:
    return udp(GENEVE, struct.pack(">BBHI", first | options // 4, 0, type, VNI << 8) + bytes(options) + inner)


def gre(type: int, inner: bytes, flags: int = 0, fields: bytes = b"") -> bytes:
    return outer(GRE, struct.pack(">HH", flags, type) + fields + inner)


def erspan(inner: bytes, session: int) -> bytes:
    return gre(0x88BE, struct.pack(">II", 1 << 28 | session, 0) + inner, 0x1000, struct.pack(">I", 7))


class Mirror(Sockets):
    """A host with a device to which the mirror comes."""

    def __init__(self, probe: UnattachedProbe) -> None:
        super().__init__(probe)
        self.eth0 = self.device("eth0", self.here, 2)

    def arrive(self, packet: bytes, ethertype: int = IPV4, device: int = 0, **members: int) -> None:
        skb = self.arrived(self.frame(ethertype, packet, device or self.eth0))
        self.memory.change("sk_buff", skb, members)
        self.probe.run("arrived", skb)

    def drop(self, packet: bytes, why: str, **members: int) -> None:
        skb = self.arrived(self.frame(IPV4, packet, self.eth0))
        self.memory.change("sk_buff", skb, {"skb_iif": 2, **members})
        self.probe.run("dropped", skb, 0x1000, reason(why), 0)

    def read(self) -> dict[str, int]:
        """The counters that are not 0."""
        self.probe.read()
        return {name: count for name, count in self.probe.counters().items() if count and name != "arrived_bytes"}

    def wrong(self) -> dict[tuple[str, str], int]:
        return {(row["tunnel"], row["wrong"]): row["packets"] for row in self.probe.rows("malformed")}


def by(rows: list[dict[str, Any]], *labels: str) -> dict[Any, tuple[int, int]]:
    return {tuple(row[one] for one in labels): (row["packets"], row["bytes"]) for row in rows}


@pytest.mark.proves(
    "mirror",
    "counters.{arrived,arrived_bytes}",
    "tables.flows.{device,source,target,tunnel,netns,vni,source_port,target_port,ethertype,vlan,protocol,packets,bytes}",
    "tables.pairs.{device,netns,tunnel,vni,source,target,packets,bytes,flows}",
    "tables.vnis.{device,tunnel,netns,vni,packets,bytes}",
    "tables.queues.{device,netns,queue,cpu,packets,bytes}",
    "modes.summary",
)
def test_each_kind_of_tunnel_is_opened(load: Load) -> None:
    probe = load(PROBE)
    host = Mirror(probe)
    eth1 = host.device("eth1", host.net(OTHER_NETNS), 3)
    v6 = Flow("2001:db8::1", "2001:db8::2", 7, 8, TCP)
    over_v6 = vxlan(frame())[20:]
    outer6 = struct.pack(">IHBB", 6 << 28, len(over_v6), UDP, 64) + socket.inet_pton(10, "2001:db8:9::1") * 2 + over_v6
    key, checksum = struct.pack(">I", 99), bytes(4)
    sent: list[tuple[str, int, Flow, bytes]] = [
        ("VXLAN", VNI, INNER, vxlan(frame())),
        ("VXLAN", VNI, v6, vxlan(frame(v6))),
        ("VXLAN", VNI, INNER, vxlan(frame(vlan=77))),
        ("Geneve", VNI, INNER, geneve(frame(), options=12)),
        ("Geneve", VNI, v6, geneve(v6.packet(), type=IPV6)),
        ("GRE", 99, INNER, gre(0x6558, frame(), 0xA000, checksum + key)),
        ("GRE", 0, INNER, gre(IPV4, INNER.packet())),
        ("ERSPAN", 0, INNER, gre(0x88BE, frame())),
        ("ERSPAN", 5, INNER, erspan(frame(), 5)),
        (
            "ERSPAN",
            6,
            INNER,
            gre(0x22EB, struct.pack(">III", 2 << 28 | 6, 0, 1) + bytes(8) + frame(), 0x1000, bytes(4)),
        ),
    ]
    for number, (_, _, _, packet) in enumerate(sent):
        for _ in range(number + 1):
            host.arrive(packet)
    host.arrive(outer6, IPV6, eth1, queue_mapping=4)
    for other in (udp(53, bytes(40)), outer(TCP, bytes(40)), gre(0x880B, bytes(40), 0x3001)):
        host.arrive(other)  # no mirror
    many = sum(range(len(sent) + 1))
    assert host.read() == {"arrived": many + 1}
    size = sum((number + 1) * (LINK + len(packet)) for number, (_, _, _, packet) in enumerate(sent))
    assert probe.counters()["arrived_bytes"] == size + LINK + len(outer6)
    wanted = {
        ("eth0", str(NETNS), kind, vni, flow.source, flow.source_port, flow.target, flow.target_port, vlan): (
            number + 1,
            (number + 1) * (LINK + len(packet)),
        )
        for number, (kind, vni, flow, packet) in enumerate(sent)
        for vlan in [77 if number == 2 else 0]
    }
    there = ("eth1", str(OTHER_NETNS), "VXLAN", VNI, "10.1.0.1", 1000, "10.2.0.1", 53, 0)
    wanted[there] = (1, LINK + len(outer6))
    rows = probe.rows("flows")
    assert by(rows, *FLOW, "vlan") == wanted
    assert {(row["source"], row["protocol"], row["ethertype"]) for row in rows} == {
        ("10.1.0.1", "UDP", "IPv4"),
        ("2001:db8::1", "TCP", "IPv6"),
    }
    networks = by(probe.rows("vnis"), "device", "netns", "tunnel", "vni")
    assert {key[2:]: count for key, (count, _) in networks.items() if key[0] == "eth0"} == {
        ("VXLAN", VNI): 1 + 2 + 3,
        ("Geneve", VNI): 4 + 5,
        ("GRE", 99): 6,
        ("GRE", 0): 7,
        ("ERSPAN", 0): 8,
        ("ERSPAN", 5): 9,
        ("ERSPAN", 6): 10,
    }
    assert sum(size for _, size in networks.values()) == probe.counters()["arrived_bytes"]
    pair = ("eth0", str(NETNS), "VXLAN", VNI, "10.1.0.1", "10.2.0.1")
    pairs = {key: row for row in probe.rows("pairs") for key in [tuple(row[one] for one in (*FLOW[:5], "target"))]}
    assert (pairs[pair]["packets"], pairs[pair]["flows"]) == (4, 2)
    assert pairs[pair]["bytes"] == 4 * LINK + len(sent[0][3]) + 3 * len(sent[2][3])
    assert by(probe.rows("queues"), "device", "netns", "queue", "cpu") == {
        ("eth0", str(NETNS), 0, 0): (many, size),
        ("eth1", str(OTHER_NETNS), 3, 0): (1, LINK + len(outer6)),
    }
    assert probe.ledger() == {}


@pytest.mark.proves(
    "mirror",
    "tables.tuples.{device,source,target,tunnel,netns,source_port,target_port,packets,bytes}",
    "tables.senders.{device,netns,tunnel,source,packets,bytes,tuples}",
)
def test_a_sender_has_as_many_tuples_as_it_has_source_ports(load: Load) -> None:
    probe = load(PROBE)
    host = Mirror(probe)
    packet = vxlan(frame())
    for port in (50000, 50001, 50001):
        host.arrive(packet[:20] + struct.pack(">H", port) + packet[22:])
    host.arrive(vxlan(frame(), source="192.0.2.9"))
    host.arrive(gre(0x6558, frame()))
    host.read()
    here, size = ("eth0", str(NETNS)), LINK + len(packet)
    ends = ("source", "source_port", "target", "target_port")
    assert by(probe.rows("tuples"), "device", "netns", "tunnel", *ends) == {
        (*here, "VXLAN", "192.0.2.1", 50000, "192.0.2.2", VXLAN): (1, size),
        (*here, "VXLAN", "192.0.2.1", 50001, "192.0.2.2", VXLAN): (2, 2 * size),
        (*here, "VXLAN", "192.0.2.9", 50000, "192.0.2.2", VXLAN): (1, size),
        (*here, "GRE", "192.0.2.1", 0, "192.0.2.2", 0): (1, LINK + len(gre(0x6558, frame()))),
    }
    senders = {(row["tunnel"], row["source"]): (row["packets"], row["tuples"]) for row in probe.rows("senders")}
    assert senders == {("VXLAN", "192.0.2.1"): (3, 2), ("VXLAN", "192.0.2.9"): (1, 1), ("GRE", "192.0.2.1"): (1, 1)}
    assert {(row["device"], row["netns"]) for row in probe.rows("senders")} == {here}
    assert sum(row["bytes"] for row in probe.rows("senders")) == probe.counters()["arrived_bytes"]


def outer6(body: bytes) -> bytes:
    """From 2001:db8:9::1 to 2001:db8:8::2."""
    ends = socket.inet_pton(socket.AF_INET6, "2001:db8:9::1") + socket.inet_pton(socket.AF_INET6, "2001:db8:8::2")
    return struct.pack(">IHBB", 6 << 28, len(body), UDP, 64) + ends + body


def test_over_ipv6_and_at_a_device_with_a_long_name(load: Load) -> None:
    probe = load(PROBE)
    host = Mirror(probe)
    device = host.device("a-long-name-eth", host.here, 4)
    host.arrive(outer6(vxlan(frame())[20:]), IPV6, device)
    host.arrive(outer6(vxlan(frame(), flags=0)[20:]), IPV6, device)
    assert host.read() == {"arrived": 2, "malformed": 1}
    tuple_ = probe.row("tuples")
    assert (tuple_["device"], tuple_["source"], tuple_["target"]) == (
        "a-long-name-eth",
        "2001:db8:9::1",
        "2001:db8:8::2",
    )
    assert probe.row("malformed")["source"] == "2001:db8:9::1"
    assert {probe.row(table)["device"] for table in ("flows", "vnis", "queues", "senders")} == {"a-long-name-eth"}


@pytest.mark.proves("mirror", "counters.malformed", "tables.malformed.{wrong,tunnel,source,netns,packets}")
def test_wrong_headers_are_counted_by_what_is_wrong(load: Load) -> None:
    probe = load(PROBE)
    host = Mirror(probe)
    inner = frame()
    cases: list[tuple[bytes, tuple[str, str] | None]] = [
        (vxlan(inner, length=15), ("VXLAN", "wrong length")),
        (vxlan(inner, length=16), None),
        (vxlan(inner, length=8 + 8 + len(inner) + 1), ("VXLAN", "wrong length")),
        (vxlan(inner, flags=0), ("VXLAN", "wrong header")),
        (vxlan(inner[:13]), ("VXLAN", "cut short")),
        (vxlan(inner[:14]), ("VXLAN", "cut short")),
        (vxlan(inner[: 14 + 19]), ("VXLAN", "cut short")),
        (vxlan(inner[: 14 + 20]), None),
        (vxlan(inner[:14] + b"\x65" + inner[15:]), ("VXLAN", "wrong inside")),
        (vxlan(inner[:14] + b"\x44" + inner[15:]), ("VXLAN", "wrong inside")),
        (vxlan(frame(vlan=5)[:17]), ("VXLAN", "cut short")),
        (geneve(inner, first=0x40), ("Geneve", "wrong header")),
        (geneve(b"", first=1), ("Geneve", "wrong length")),
        (gre(0x6558, inner, 0x4000), ("GRE", "wrong header")),
        (gre(0x6558, b"\0\0\0", 0x2000), ("GRE", "cut short")),
        (gre(0x88BE, bytes(7), 0x1000, bytes(4)), ("ERSPAN", "cut short")),
        (vxlan(frame(Flow("10.1.0.1", "10.2.0.1", 1, VXLAN))), None),  # a tunnel inside is not opened
    ]
    wanted: dict[tuple[str, str], int] = {}
    for packet, wrong in cases:
        host.arrive(packet)
        if wrong:
            wanted[wrong] = wanted.get(wrong, 0) + 1
    assert host.read() == {"arrived": len(cases), "malformed": sum(wanted.values())}
    assert host.wrong() == wanted
    assert {(row["source"], row["netns"]) for row in probe.rows("malformed")} == {("192.0.2.1", str(NETNS))}
    assert probe.ledger() == {}


@pytest.mark.proves("mirror", "ledger.parse_failed")
def test_headers_that_lie_in_pages_are_no_wrong_ones(load: Load) -> None:
    """The linear data end before them, and the packet does not."""
    probe = load(PROBE)
    host = Mirror(probe)
    packet = vxlan(frame())
    skb = host.arrived(host.frame(IPV4, packet[:36], host.eth0))
    host.memory.change("sk_buff", skb, {"len": len(packet)})
    probe.run("arrived", skb)
    assert host.read() == {"arrived": 1} and probe.ledger() == {"parse_failed": 1}
    assert probe.row("senders")["bytes"] == LINK + len(packet)


@pytest.mark.parametrize(
    ("packet", "head"),
    [(vxlan(frame()), head) for head in (0, 20, 28, 36, 50)]
    + [
        (vxlan(frame(vlan=77)), 50),
        (geneve(frame(), options=8), 28),
        (erspan(frame(), 5), 20),
        (gre(IPV4, INNER.packet()), 24),
    ],
)
def test_headers_in_the_first_fragment_are_read_there(load: Load, packet: bytes, head: int) -> None:
    """As virtio_net, and a sender with UDP_SEGMENT over veth, leave them. ``head``: bytes in the linear data."""
    probe = load(PROBE)
    know_pages(probe)
    host = Mirror(probe)
    host.arrive(packet)
    for _ in range(2):
        skb = host.arrived(host.frame(IPV4, packet, host.eth0))
        probe.run("arrived", in_fragment(host.memory, skb, packet, head))
    assert host.read() == {"arrived": 3} and probe.ledger() == {}
    assert {probe.row(table)["packets"] for table in ("flows", "vnis", "senders")} == {3}
    assert probe.row("flows")["bytes"] == 3 * (LINK + len(packet)) == probe.counters()["arrived_bytes"]


def test_a_header_that_is_torn_between_two_places_is_not_read(load: Load) -> None:
    probe = load(PROBE)
    know_pages(probe)
    host = Mirror(probe)
    packet = vxlan(frame())
    skb = host.arrived(host.frame(IPV4, packet, host.eth0))
    probe.run("arrived", in_fragment(host.memory, skb, packet, 30))
    assert host.read() == {"arrived": 1} and probe.ledger() == {"parse_failed": 1}


def segmented(host: Mirror, packet: bytes, size: int, kind: int) -> int:
    """A packet that stands for several, each with so many bytes of payload: its sk_buff."""
    skb = host.merged(host.arrived(host.frame(IPV4, packet, host.eth0)), size)
    host.memory.change("sk_buff", skb, {"data_len": 1})
    head, end = host.memory.pointers("sk_buff", skb, "head", "end")
    host.memory.put(head + end + place_of("skb_shared_info", "gso_type")[0], struct.pack("=I", kind))
    return skb


def test_a_merged_packet_inside_counts_as_what_it_was_made_of(load: Load) -> None:
    probe = load(PROBE)
    host = Mirror(probe)
    inner = Flow("10.1.0.1", "10.2.0.1", 1000, 80, TCP)
    packet = vxlan(MACS + struct.pack(">H", IPV4) + inner.packet(2500 + 20))
    doff = 28 + 8 + 14 + 20 + 12
    packet = packet[:doff] + bytes([5 << 4]) + packet[doff + 1 :]
    probe.run("arrived", segmented(host, packet, 1000, GSO_TCPV4 | GSO_UDP_TUNNEL))
    headers = LINK + 28 + 8 + 14 + 20 + 20
    payload = LINK + len(packet) - headers
    assert host.read() == {"arrived": 3}
    assert by(probe.rows("flows"), "protocol") == {("TCP",): (3, payload + 3 * headers)}
    assert probe.counters()["arrived_bytes"] == payload + 3 * headers and probe.ledger() == {}


def test_of_packets_of_a_tunnel_that_were_put_together_the_first_is_opened(load: Load) -> None:
    """By UDP_SEGMENT, or by GRO: each has headers of its own. What is inside the others is said not to be known."""
    probe = load(PROBE)
    host = Mirror(probe)
    one = vxlan(frame())[28:]
    packet = udp(VXLAN, one + vxlan(frame(Flow("10.9.9.9")))[28:] + one[:-4])
    for _ in range(2):
        probe.run("arrived", segmented(host, packet, len(one), GSO_UDP_L4))
    assert host.read() == {"arrived": 6} and probe.ledger() == {"parse_failed": 4}
    whole = 2 * (LINK + len(packet) + 2 * (LINK + 28))
    assert probe.counters()["arrived_bytes"] == whole
    assert by(probe.rows("tuples"), "source") == {("192.0.2.1",): (6, whole)}
    assert by(probe.rows("flows"), "source") == {(INNER.source,): (2, 2 * (LINK + 28 + len(one)))}
    assert probe.row("vnis")["packets"] == 2 and probe.row("queues")["packets"] == 6


@pytest.mark.proves("mirror", "tables.numbered.{source,target,tunnel,netns,vni,packets,lost,late,restarts}")
def test_gaps_in_numbers_are_what_never_came(load: Load) -> None:
    probe = load(PROBE)
    host = Mirror(probe)

    def send(*numbers: int, key: int = 7) -> dict[str, int]:
        for number in numbers:
            host.arrive(gre(0x6558, frame(), 0x3000, struct.pack(">II", key, number & 0xFFFFFFFF)))
        host.read()
        (row,) = [row for row in probe.rows("numbered") if row["vni"] == key]
        ends = ("192.0.2.1", "192.0.2.2", "GRE", str(NETNS))
        assert tuple(row[one] for one in ("source", "target", "tunnel", "netns")) == ends
        return {name: row[name] for name in ("packets", "lost", "late", "restarts")}

    assert send(2**32 - 2, 2**32 - 1, 0, 1) == {"packets": 4, "lost": 0, "late": 0, "restarts": 0}
    assert send(5) == {"packets": 5, "lost": 3, "late": 0, "restarts": 0}
    assert send(3) == {"packets": 6, "lost": 2, "late": 1, "restarts": 0}  # it was only late
    assert send(5 + 4095, 5) == {"packets": 8, "lost": 2 + 4094 - 1, "late": 2, "restarts": 0}
    assert send(4, 5) == {"packets": 10, "lost": 2 + 4093, "late": 2, "restarts": 1}  # made anew
    assert send(6 + 2**20) == {"packets": 11, "lost": 2 + 4093 + 2**20, "late": 2, "restarts": 1}
    assert send(7 + 2**20 + 2**20 + 1)["restarts"] == 2
    assert send(9, 11, key=8) == {"packets": 2, "lost": 1, "late": 0, "restarts": 0}
    host.arrive(gre(0x6558, frame()))  # without a number
    host.read()
    assert len(probe.rows("numbered")) == 2 and probe.ledger() == {}


def test_garbage_trips_nothing(load: Load) -> None:
    probe = load(PROBE)
    host = Mirror(probe)
    chance = random.Random(20261128)
    skb = host.arrived(host.frame(IPV4, udp(VXLAN, bytes(100)), host.eth0))
    (head, data) = host.memory.pointers("sk_buff", skb, "head", "data")
    run, many = probe.prepare("arrived", skb), 20_000
    kinds = [udp(VXLAN, b""), udp(GENEVE, b""), outer(GRE, b"")]
    for _ in range(many):
        start = chance.choice(kinds)
        size = chance.randrange(0, 100)
        packet = start + bytes([chance.choice([0, 8, 0x10, 0xFF])]) + chance.randbytes(size)
        if chance.random() < 0.8:
            packet = packet[:24] + struct.pack(">H", len(packet) - 20) + packet[26:]
        host.memory.put(data, packet.ljust(160, b"\0"))
        host.memory.change("sk_buff", skb, {"tail": data - head + len(packet), "len": len(packet)})
        run()
    counted = host.read()
    assert 0 < counted["malformed"] < counted["arrived"] <= many
    assert probe.row("queues")["packets"] == counted["arrived"] == sum(row["packets"] for row in probe.rows("tuples"))
    assert sum(host.wrong().values()) == counted["malformed"]


@pytest.mark.proves(
    "mirror",
    "counters.{lost_backlog,lost_stack,lost_socket,queued,received}",
    "tables.workers.{inode,address,netns,protocol,port,queued,lost,received,buffer_bytes}",
    "tables.losses.{location,device,netns,reason,class,provenance,packets}",
    "knobs.vxlan_port",
)
def test_each_stage_has_what_is_lost_there(load: Load) -> None:
    probe = load(PROBE)
    host = Mirror(probe)
    packet = vxlan(frame())
    workers = [
        host.sock(Ends("0.0.0.0", VXLAN, "", 0, UDP), 7001, members={f"{SOCK}sk_rcvbuf": 4096}),
        host.sock(Ends("2001:db8::1", GENEVE, "", 0, UDP), 7002, host.there),
    ]
    others = [host.sock(Ends(port=VXLAN, protocol=TCP), 7003), host.sock(Ends(port=53, protocol=UDP), 7004)]
    for _ in range(5):
        host.arrive(packet)
    for sock in (*workers, workers[1], *others):
        probe.run("queued", sock)
        probe.run("received", sock, 100, 0)
    probe.run("received", workers[0], 100, MSG_PEEK)
    probe.run("received", workers[0], -errno.EAGAIN & 0xFFFFFFFF, 0)
    skb = host.packet(Flow(), host.eth0)
    for sock in (workers[0], others[1]):
        probe.run("failed", -errno.ENOMEM & 0xFFFFFFFF, sock, skb)
        if sock == workers[0]:
            host.drop(packet, "SOCKET_RCVBUFF")  # the same packet
    for _ in range(2):
        host.drop(packet, "NO_SOCKET")
    host.drop(packet, "CPU_BACKLOG", skb_iif=0)
    host.drop(packet, "QDISC_DROP", skb_iif=0)  # it is sent by this host
    host.drop(udp(53, bytes(40)), "NO_SOCKET")
    host.drop(packet, "NO_SOCKET", dev=host.memory.make("net_device", {"name": b"none"}))  # a socket's, and no device
    host.drop(gre(0x6558, frame()), "IP_NOPROTO")
    assert host.read() == {
        "arrived": 5,
        "queued": 3,
        "received": 3,
        "lost_socket": 1,
        "lost_stack": 4,
        "lost_backlog": 1,
    }
    rows = {row["inode"]: row for row in probe.rows("workers")}
    of_row = ("address", "netns", "protocol", "port", "queued", "lost", "received", "buffer_bytes")
    assert {inode: tuple(row[one] for one in of_row) for inode, row in rows.items()} == {
        7001: ("0.0.0.0", str(NETNS), "UDP", VXLAN, 1, 1, 1, 4096),
        7002: ("2001:db8::1", str(OTHER_NETNS), "UDP", GENEVE, 2, 0, 2, 0),
    }
    losses = {(row["reason"], row["device"], row["netns"]): row for row in probe.rows("losses")}
    assert {key: row["packets"] for key, row in losses.items()} == {
        ("NO_SOCKET", "eth0", str(NETNS)): 2,
        ("CPU_BACKLOG", "eth0", str(NETNS)): 1,
        ("IP_NOPROTO", "eth0", str(NETNS)): 1,
        ("NO_SOCKET", "", losses_netns(losses)): 1,
    }
    assert {(row["location"], row["provenance"]) for row in losses.values()} == {("0x1000", "kernel")}
    assert all(row["class"] in ("benign", "suspicious", "unknown") for row in losses.values())

    probe.set(vxlan_port=4790)
    host.arrive(packet)
    host.arrive(udp(4790, packet[28:]))
    probe.run("queued", workers[0])
    host.drop(packet, "NO_SOCKET")
    assert {**host.read(), "arrived": 6} == host.read() and probe.counters()["queued"] == 3


def losses_netns(losses: Mapping[tuple[str, str, str], Any]) -> str:
    """Of what has no device there is no namespace."""
    return next(netns for _, device, netns in losses if not device)


@pytest.mark.proves("mirror", "tables.workers.process")
def test_a_worker_has_the_process_that_holds_its_socket(load: Load) -> None:
    probe = load(PROBE)
    host = Mirror(probe)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        inode = os.fstat(held.fileno()).st_ino
        probe.run("queued", host.sock(Ends("0.0.0.0", VXLAN, "", 0, UDP), inode))
        end = time.monotonic() + LIMIT_S
        while not probe.bodies or probe.row("workers")["process"] is None:
            assert time.monotonic() < end
            probe.read()
    assert str(probe.row("workers")["process"]).endswith(f"({os.getpid()})")


@pytest.mark.proves("mirror", "knobs.{device,address,port,protocol,netns}")
def test_filters_let_pass_what_they_name(load: Load) -> None:
    probe = load(PROBE)
    host = Mirror(probe)
    packets = [host.arrived(host.frame(IPV4, vxlan(frame(flow)), host.eth0)) for flow in FLOWS]
    for knobs, wanted in FILTERS:
        probe.set(**knobs)
        for number, skb in enumerate(packets):
            before = probe.running._maps["nc_counters"].sum_of(0)
            probe.run("arrived", skb)
            assert probe.running._maps["nc_counters"].sum_of(0) - before == (number in wanted), (knobs, FLOWS[number])


@pytest.mark.proves(
    "mirror",
    "events.packet.{mono_ns,device,tunnel,source,target,netns,vni,source_port,target_port,ethertype,vlan,protocol}",
    "events.packet.{cpu,length_bytes,packet}",
    "knobs.packets",
    "modes.details",
)
def test_a_sample_has_the_flow_inside_and_how_the_packet_begins(load: Load) -> None:
    probe = load(PROBE)
    host = Mirror(probe)
    packet = vxlan(frame(vlan=77))
    host.arrive(packet)  # in mode summary
    probe.set("details", events_per_s=100_000)
    before = time.monotonic_ns()
    host.arrive(packet)
    after = time.monotonic_ns()
    probe.set("details", events_per_s=100_000, packets=True)
    longer = vxlan(frame(Flow("2001:db8::1", "2001:db8::2", 7, 8, TCP)) + bytes(100))
    host.arrive(longer)
    host.arrive(udp(53, bytes(40)))
    host.arrive(vxlan(frame(), flags=0))  # nothing inside
    assert host.read() == {"arrived": 4, "malformed": 1}
    first, second = probe.events()
    assert before <= first["mono_ns"] <= after
    wanted = {
        "device": "eth0", "tunnel": "VXLAN", "source": "10.1.0.1", "target": "10.2.0.1", "netns": str(NETNS),
        "vni": VNI, "source_port": 1000, "target_port": 53, "ethertype": "IPv4", "vlan": 77, "protocol": "UDP",
        "cpu": 0, "length_bytes": len(packet),
    }  # fmt: skip
    assert {name: value for name, value in first.items() if name != "mono_ns"} == wanted
    assert (second["source"], second["protocol"], second["source_port"]) == ("2001:db8::1", "TCP", 7)
    begin = (MACS + struct.pack(">H", IPV4) + longer)[:128]
    assert second["packet"] == f"1:{LINK + len(longer)}:{begin.hex()}"
    assert probe.ledger() == {"seen": 2, "submitted": 2}


@pytest.mark.proves("mirror", "knobs.{events_per_s,flows_one_in}", "ledger.{suppressed,unsampled}")
def test_samples_are_of_whole_flows_within_the_budget(load: Load) -> None:
    probe = load(PROBE)
    host = Mirror(probe)
    flows = [host.arrived(host.frame(IPV4, vxlan(frame(Flow(source_port=1 + n))), host.eth0)) for n in range(400)]
    probe.set("details", events_per_s=1e9, flows_one_in=4)
    for _ in range(2):
        for skb in flows:
            probe.run("arrived", skb)
    probe.read()
    ports = [one["source_port"] for one in probe.events()]
    sampled = len(set(ports))
    assert 60 < sampled < 140  # of 400 one in 4: five standard deviations
    assert sorted(ports) == sorted(2 * list(set(ports)))
    ledger = probe.ledger()
    assert ledger["unsampled"] == 800 - 2 * sampled == ledger["suppressed"] and ledger["seen"] == 800
    probe.set("details", events_per_s=100)
    run = probe.prepare("arrived", flows[0])
    for _ in range(5000):
        run()
    probe.read()
    assert probe.ledger()["submitted"] < 2 * sampled + 1000 and probe.row("vnis")["packets"] == 5800


@pytest.mark.proves("mirror", "knobs.{vlan,ethertype}", "ledger.map_full")
def test_filters_by_frame_and_full_tables(load: Load) -> None:
    probe = load(PROBE, flows=2, tuples=1, vnis=1, malformed=1)
    host = Mirror(probe)
    for knobs in ({"vlan": 77}, {"vlan": 78}, {"ethertype": IPV6}, {"ethertype": IPV4}):
        probe.set(**knobs)
        host.arrive(vxlan(frame(vlan=77)))
    assert host.read() == {"arrived": 2} and probe.row("flows")["packets"] == 2
    probe.set()
    for number in range(5):  # one flow and one tuple find a place; the network is known
        host.arrive(vxlan(frame(Flow(source_port=number)), source=f"192.0.2.{1 + number}"))
    assert host.read()["arrived"] == 7
    assert sum(row["packets"] for row in probe.rows("flows")) == 7
    assert probe.row("tuples")["packets"] == 3
    assert probe.row("vnis")["packets"] == 7
    assert probe.ledger() == {"map_full": 4}

    probe = load(PROBE, losses=1, tuples=1)
    host = Mirror(probe)
    for why in ("NO_SOCKET", "UDP_CSUM"):
        host.drop(vxlan(frame()), why)
    for number in (1, 2):  # what has no room in one table finds it in the other
        host.arrive(vxlan(frame(Flow(source_port=number)), source=f"192.0.2.{number}"))
    assert host.read() == {"arrived": 2, "lost_stack": 2}
    assert probe.row("losses")["packets"] == 1 and len(probe.rows("flows")) == 2
    assert probe.ledger() == {"map_full": 1 + 1}
