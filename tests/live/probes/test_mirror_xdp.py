"""mirror_xdp: what the driver hands over is what was sent, at native and generic XDP; and it leaves nothing behind."""

from __future__ import annotations

import copy
import json
import os
import random
import select
import signal
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from netconsole.telemetry import frames
from tests.live.contexts.test_mirror import INNER, erspan, frame, geneve, gre, udp, vxlan
from tests.live.contexts.test_mirror_streams import Segment
from tests.live.probes.test_mirror import SEND, SERVE, VXLAN, WORKERS, B, read
from tests.support.live.contexts.filters import FILTERS, FLOWS
from tests.support.live.contexts.packets import IPV4, IPV6, MACS, Flow
from tests.support.live.measurement import LIMIT_S, Measurement, manifest_of
from tests.support.live.network import Namespace, Wire, send_frames

PROBE = "mirror_xdp"
DEVICE = Wire.DEVICES[1]
ARP = bytes.fromhex("02000000000b02000000000a0806") + bytes(46)
# The frames of its input, all of them so many times, a thousand in a call.
FLOOD = """
import ctypes, os, socket, struct, sys
frames = [bytes.fromhex(line) for line in sys.stdin]
device, passes = sys.argv[1], int(sys.argv[2])
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind((device, 0))
libc = ctypes.CDLL(None, use_errno=True)
kept = [ctypes.create_string_buffer(one, len(one)) for one in frames]
vectors = ctypes.create_string_buffer(b"".join(struct.pack("=QQ", ctypes.addressof(one), len(one)) for one in kept))
at = ctypes.addressof(vectors)
each = (struct.pack("=QIIQQQQII8x", 0, 0, 0, at + 16 * n, 1, 0, 0, 0, 0) for n in range(len(kept)))
messages = ctypes.create_string_buffer(b"".join(each))
start = ctypes.addressof(messages)
for _ in range(passes):
    done = 0
    while done < len(kept):
        count = libc.sendmmsg(wire.fileno(), ctypes.c_void_p(start + 64 * done), len(kept) - done, 0)
        if count < 0 and ctypes.get_errno() != 105:
            raise OSError(ctypes.get_errno(), "sendmmsg")
        done += max(0, count)
"""

# Of a VXLAN frame, its only argument: so many inner flows by their source address, one packet of each in turn. From the
# second quarter on those of the last `heavy` numbers come between them, the n-th of these `least` + n times. Prints the
# number of packets.
MANY = """
import ctypes, socket, struct, sys
device, light, heavy, least, at, line = sys.argv[1], *map(int, sys.argv[2:6]), sys.argv[6]
frame = bytes.fromhex(line)
often = [light + n for n in range(heavy) for _ in range(least + n)]
often = often[::2] + often[1::2]
begin, order, done = light // 4, [], 0
for number in range(light):
    order.append(number)
    while done < len(often) * (number + 1 - begin) // (light - begin):
        order.append(often[done])
        done += 1
size, batch = len(frame), 1000
kept = ctypes.create_string_buffer(frame * batch, size * batch)
base = ctypes.addressof(kept)
vectors = ctypes.create_string_buffer(b"".join(struct.pack("=QQ", base + size * n, size) for n in range(batch)))
head = ctypes.addressof(vectors)
each = (struct.pack("=QIIQQQQII8x", 0, 0, 0, head + 16 * n, 1, 0, 0, 0, 0) for n in range(batch))
messages = ctypes.create_string_buffer(b"".join(each))
start = ctypes.addressof(messages)
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind((device, 0))
libc = ctypes.CDLL(None, use_errno=True)
for first in range(0, len(order), batch):
    part = order[first : first + batch]
    for place, number in enumerate(part):
        struct.pack_into(">I", kept, size * place + at, 0x0A000000 + number)
    done = 0
    while done < len(part):
        count = libc.sendmmsg(wire.fileno(), ctypes.c_void_p(start + 64 * done), len(part) - done, 0)
        if count < 0 and ctypes.get_errno() != 105:
            raise OSError(ctypes.get_errno(), "sendmmsg")
        done += max(0, count)
print(len(order))
"""
MOST_KB = 64_000
"""Kernel memory of all maps."""
ROWS_KB = 12_000
"""65 536 rows take more."""
INNER_SOURCE = 14 + 28 + 8 + 14 + 12
"""Offset of the inner source address in a frame of VXLAN."""


@pytest.fixture
def inside(wire: Wire) -> Iterator[Measurement]:
    measurement = Measurement(inside=wire.b)
    yield measurement
    measurement.close()


def program_at(namespace: Namespace, device: str = DEVICE) -> dict[str, object]:
    """What the kernel says of the XDP program at a device; empty: there is none."""
    (link,) = json.loads(namespace.ip("-json", "-details", "link", "show", "dev", device))
    found: dict[str, object] = link.get("xdp", {})
    return found


def refusal(measurement: Measurement, **knobs: frames.Scalar) -> str:
    """Why it is not loaded with these knobs."""
    manifest = manifest_of(PROBE)
    spec = {"spec": manifest.raw, "source": manifest.code(), "mode": "summary"}
    reply = measurement.command(command="load", probe=PROBE, knobs={**manifest.knobs, **knobs}, **spec)
    assert not reply.ok
    return str(reply.error)


@pytest.mark.proves(
    "mirror_xdp",
    "counters.{seen,arrived,arrived_bytes}",
    "tables.flows.{device,source,target,tunnel,vni,source_port,target_port,ethertype,vlan,protocol,packets,bytes}",
    "tables.vnis.{device,tunnel,vni,packets,bytes}",
    "tables.queues.{device,packets,bytes}",
    "tables.tuples.{source,source_port,target,target_port,packets}",
    "modes.summary",
)
@pytest.mark.parametrize("way", ["native", "generic"])
def test_what_comes_to_the_driver_is_what_was_sent(inside: Measurement, wire: Wire, way: str) -> None:
    if way == "generic":
        wire.a.ip("link", "set", Wire.DEVICES[0], "mtu", "9000")
    inside.load(PROBE, device=DEVICE)
    assert list(inside.statuses[PROBE].attach) == [f"xdp:{way}:{DEVICE}"]
    inside.begin()
    tuples, flows, rounds, vni, vlan = 5, 40, 10, 0xABCDE, 77
    sent, size = map(int, wire.a.python(SEND, B, VXLAN, tuples, flows, rounds, vni, vlan).split())
    others = 7
    send_frames(wire.a, Wire.DEVICES[0], [ARP] * others)
    inside.settle()
    assert inside.counter(PROBE, "seen") == sent + others
    assert inside.counter(PROBE, "arrived") == sent == tuples * flows * rounds
    assert inside.counter(PROBE, "arrived_bytes") == size
    within: dict[str, frames.Label] = {"vni": vni, "tunnel": "VXLAN", "device": DEVICE}
    both = {"packets": sent, "bytes": size, "tcp_bytes": 0, "tcp_missing": 0}
    assert [(row.labels, row.counts) for row in inside.rows(PROBE, "vnis")] == [(within, both)]
    assert sum(row.counts["packets"] for row in inside.rows(PROBE, "queues")) == sent
    rows = inside.rows(PROBE, "flows")
    assert {row.labels["source_port"]: row.counts["packets"] for row in rows} == {
        1000 + number: sent // flows for number in range(flows)
    }
    for row in rows:
        number = int(str(row.labels["source_port"])) - 1000
        assert row.labels == {
            **within, "source": f"10.1.{number >> 8}.{number & 255}", "target": "10.2.0.1", "target_port": 53,
            "source_port": 1000 + number, "ethertype": "IPv4", "vlan": vlan, "protocol": "UDP",
        }  # fmt: skip
    outer = {row.labels["source_port"]: row.counts["packets"] for row in inside.rows(PROBE, "tuples")}
    assert outer == {40000 + number: sent // tuples for number in range(tuples)}
    inside.command(command="unload", probe=PROBE)
    assert not program_at(wire.b)


PACKETS = [
    vxlan(frame(vlan=77)), vxlan(frame(vlan=77)), vxlan(frame(Flow("2001:db8::1", "2001:db8::2", 7, 8))),
    geneve(frame(), options=8), gre(0x6558, frame()), gre(0x0800, INNER.packet()), erspan(frame(), 0x155),
    *(gre(0x6558, frame(), 0x3000, struct.pack(">II", 7, number)) for number in (1, 2, 6, 4)),
    vxlan(frame(), flags=0), vxlan(frame()[:13]), vxlan(frame(), length=15), geneve(frame(), first=0x40),
    vxlan(frame(), source="192.0.2.77"), *(vxlan(Segment(at, 100).packet()) for at in (0, 200, 400)),
]  # fmt: skip
"""A tunnel of each kind, numbers with a gap, wrong headers, TCP with two gaps."""


def on_the_wire(packet: bytes) -> bytes:
    return MACS + struct.pack(">H", IPV4) + packet


def without_netns(labels: Mapping[str, frames.Label]) -> frozenset[tuple[str, frames.Label]]:
    return frozenset((name, value) for name, value in labels.items() if name not in ("netns", "queue", "cpu"))


@pytest.mark.proves(
    "mirror_xdp",
    "counters.malformed",
    "tables.malformed.{wrong,tunnel,source,packets}",
    "tables.numbered.{source,target,tunnel,vni,packets,lost,late,restarts}",
    "tables.pairs.{device,tunnel,vni,source,target,packets,bytes,flows}",
    "tables.senders.{device,tunnel,source,packets,bytes,tuples}",
    "tables.tuples.{device,tunnel,bytes}",
    "tables.queues.{queue,cpu}",
    "tables.flows.missing",
    "tables.vnis.{tcp_bytes,tcp_missing}",
)
def test_the_stack_and_the_driver_see_the_same(inside: Measurement, wire: Wire) -> None:
    """The probe mirror looks at each packet again, behind the driver, and is proven by packets of its own."""
    inside.load(PROBE, device=DEVICE)
    inside.load("mirror", netns=wire.b.inode)
    inside.begin()
    send_frames(wire.a, Wire.DEVICES[0], [on_the_wire(packet) for packet in PACKETS])
    inside.settle()
    assert inside.counter(PROBE, "seen") == inside.counter(PROBE, "arrived") == len(PACKETS)
    for counter in ("arrived", "arrived_bytes", "malformed"):
        assert inside.counter(PROBE, counter) == inside.counter("mirror", counter)
    assert inside.counter(PROBE, "malformed") == 4
    for table in ("flows", "pairs", "vnis", "tuples", "senders", "queues", "malformed", "numbered"):
        here, there = ({without_netns(row.labels): (row.counts, row.gauges) for row in inside.rows(probe, table)}
                       for probe in (PROBE, "mirror"))  # fmt: skip
        assert here and here == there, table
    assert {row.labels["queue"] for row in inside.rows(PROBE, "queues")} == {0}
    (stream,) = inside.rows(PROBE, "flows", protocol="TCP")
    assert stream.gauges == {"missed": 0, "missing": 100}
    assert inside.total(PROBE, "vnis", "tcp_bytes") == 500
    assert inside.total(PROBE, "vnis", "tcp_missing") == 100
    (numbered,) = inside.rows(PROBE, "numbered", vni=7)
    assert numbered.counts == {"packets": 4, "lost": 2, "late": 1, "restarts": 0}


@pytest.mark.proves("mirror_xdp", "knobs.{device,address,port,protocol,vlan,ethertype,vxlan_port}")
def test_filters_are_of_what_is_inside(inside: Measurement, wire: Wire) -> None:
    flows = [*FLOWS, Flow(vlan=42)]
    packets = [on_the_wire(vxlan(frame(replace(one, vlan=0), one.vlan))) for one in flows]
    inside.load(PROBE, device=DEVICE)
    of_frames: list[tuple[dict[str, str | int], set[int]]] = [
        ({"vlan": 42}, {6}),
        ({"vlan": 43}, set()),
        ({"ethertype": 0x86DD}, {4, 5}),
        ({"vxlan_port": 4790}, set()),
    ]
    of_flows = [(knobs, wanted) for knobs, wanted in FILTERS if knobs and not knobs.keys() & {"device", "netns"}]
    for knobs, wanted in [*of_frames, *of_flows[:8], of_flows[-1]]:
        inside.set(PROBE, device=DEVICE, **knobs)
        inside.begin()
        send_frames(wire.a, Wire.DEVICES[0], packets if "vlan" in knobs else packets[:6])
        inside.settle()
        assert inside.counter(PROBE, "arrived") == len(wanted), knobs


@pytest.mark.proves("mirror_xdp", "ledger.{map_full,parse_failed}")
def test_what_has_no_room_or_cannot_be_read_is_in_the_ledger(inside: Measurement, wire: Wire) -> None:
    manifest = manifest_of(PROBE)
    spec = copy.deepcopy(dict(manifest.raw))
    spec["tables"]["tuples"]["max_rows"] = 2  # type: ignore[index]
    knobs = {**manifest.knobs, "device": DEVICE}
    load: dict[str, object] = {"spec": spec, "source": manifest.code(), "mode": "summary", "knobs": knobs}
    assert inside.command(command="load", probe=PROBE, **load).ok
    inside.begin()
    extended = struct.pack(">IHBB", 6 << 28, 16, 0, 64) + bytes(32) + bytes([17, 0, 1, 4, 0, 0, 0, 0]) + bytes(8)
    tuples = [vxlan(frame(), source=f"192.0.2.{number}") for number in range(5)]
    packets = [*tuples, vxlan(MACS + struct.pack(">H", IPV6) + extended)]
    send_frames(wire.a, Wire.DEVICES[0], [on_the_wire(packet) for packet in packets])
    inside.settle()
    assert inside.counter(PROBE, "arrived") == len(packets)
    assert inside.ledger(PROBE, "map_full") == len(tuples) - 2
    assert inside.ledger(PROBE, "parse_failed") == 1


def test_sixty_thousand_flows_are_as_many_exact_rows(inside: Measurement, wire: Wire) -> None:
    """Of all of them the busiest are sent; the row of their hosts is the sum of all."""
    many, each = 60_000, 3
    for probe, knobs in ((PROBE, {"device": DEVICE}), ("mirror", {"netns": wire.b.inode})):
        inside.load(probe, **knobs)
    inside.begin()
    packets = [on_the_wire(vxlan(frame(Flow(source_port=1 + number)))) for number in range(many)]
    wire.a.python(FLOOD, Wire.DEVICES[0], each, input="".join(f"{one.hex()}\n" for one in packets))
    inside.command(command="read_whole")  # of many flows the rows are read less often
    inside.settle()
    for probe in (PROBE, "mirror"):
        (pair,) = inside.rows(probe, "pairs")
        size = each * sum(map(len, packets))
        assert (pair.counts, pair.gauges) == ({"packets": each * many, "bytes": size}, {"flows": many})
        rows = inside.rows(probe, "flows")
        assert rows and {row.counts["packets"] for row in rows} == {each}
        assert inside.ledger(probe, "map_full") == 0


@pytest.mark.proves("mirror", "counters.left_packets", "tables.flows.missed", "tables.cpus.{cpu,flows,packets,at_most}")
@pytest.mark.proves(
    "mirror_xdp", "counters.left_packets", "tables.flows.missed", "tables.cpus.{cpu,flows,packets,at_most}"
)
@pytest.mark.parametrize("probe", [PROBE, "mirror"])
def test_among_three_hundred_thousand_flows_the_busiest_are_named(inside: Measurement, wire: Wire, probe: str) -> None:
    """A row is short by less than one packet of 65 536, and says so; sums and counters lack nothing."""
    light, heavy, least = 300_000, 100, 200
    inside.load(probe, **({"device": DEVICE} if probe == PROBE else {"netns": wire.b.inode}))
    inside.begin()
    line = on_the_wire(vxlan(frame())).hex()
    sent = int(wire.a.python(MANY, Wire.DEVICES[0], light, heavy, least, INNER_SOURCE, line))
    inside.command(command="read_whole")  # of many flows the rows are read less often
    inside.settle()
    assert inside.counter(probe, "arrived") == sent == inside.total(probe, "vnis", "packets")
    assert inside.ledger(probe, "map_full") == 0 < inside.counter(probe, "left_packets")
    rows = {str(row.labels["source"]): row for row in inside.rows(probe, "flows")}
    for number in range(heavy):
        source = socket.inet_ntoa(struct.pack(">I", 0x0A000000 + light + number))
        packets, missed = rows[source].counts["packets"], rows[source].gauges["missed"] or 0
        assert packets <= least + number <= packets + min(missed, sent // 65_536), source
    left = inside.rows(probe, "cpus")
    assert sum(row.counts["packets"] for row in left) == inside.counter(probe, "left_packets")
    assert {row.labels["cpu"] for row in left} <= set(os.sched_getaffinity(0))
    for row in left:
        assert 0 < row.counts["flows"] <= light and (row.gauges["at_most"] or 0) <= 2 * sent // 65_536
    inside.until(lambda: (inside.cost(probe).maps_kb or 0) > ROWS_KB, "their memory is read again")
    assert (inside.cost(probe).maps_kb or 0) < MOST_KB


def test_a_million_packets_of_garbage_pass_and_are_counted(inside: Measurement, wire: Wire) -> None:
    """The driver and the stack count the same, and no circuit breaker trips."""
    chance, kinds, passes = random.Random(7), 1000, 1000
    inside.load(PROBE, device=DEVICE)
    inside.load("mirror", netns=wire.b.inode)
    inside.begin()
    before = wire.b.statistics(DEVICE)["rx"]
    garbage = [
        udp(VXLAN, bytes([chance.choice([0, 8, 255])]) + chance.randbytes(chance.randrange(90))) for _ in range(kinds)
    ]
    cut = [on_the_wire(one[: chance.randrange(1, len(one))] if chance.random() < 0.3 else one) for one in garbage]
    wire.a.python(FLOOD, Wire.DEVICES[0], passes, input="".join(f"{one.hex()}\n" for one in cut))
    inside.settle()
    after = wire.b.statistics(DEVICE)["rx"]
    assert inside.counter(PROBE, "seen") == after["packets"] - before["packets"] == kinds * passes
    assert after["dropped"] == before["dropped"]
    for name in ("arrived", "malformed"):
        assert inside.counter(PROBE, name) == inside.counter("mirror", name)
    assert 0 < inside.counter(PROBE, "malformed") <= inside.counter(PROBE, "arrived") <= kinds * passes
    for probe in (PROBE, "mirror"):
        assert inside.ledger(probe, "breaker") == inside.ledger(probe, "map_full") == 0
        assert inside.total(probe, "malformed", "packets") == inside.counter(probe, "malformed")


def test_a_stopped_collector_disturbs_nobody_and_misses_nothing(inside: Measurement, wire: Wire) -> None:
    """The same holds for a minute; that takes too long here (docs/subjects/mirror.md)."""
    inside.load(PROBE, device=DEVICE)
    inside.load("mirror", netns=wire.b.inode)
    server = wire.b.start(SERVE, WORKERS, 0)
    try:
        assert server.stdout and server.stdout.readline()
        inside.begin()
        os.kill(inside.pid, signal.SIGSTOP)
        try:
            sent = int(wire.a.python(SEND, B, VXLAN, 5, 40, 10, 7, 0).split()[0])
            assert sum(read(server)) == sent
        finally:
            os.kill(inside.pid, signal.SIGCONT)
        inside.settle()
        for probe in (PROBE, "mirror"):
            assert inside.counter(probe, "arrived") == inside.total(probe, "flows", "packets") == sent
            assert inside.ledger(probe, "map_full") == inside.ledger(probe, "missed") == 0
        assert inside.counter("mirror", "queued") == inside.counter("mirror", "received") == sent
    finally:
        server.communicate(timeout=LIMIT_S)


def test_a_killed_collector_leaves_no_program_and_disturbs_nobody(inside: Measurement, wire: Wire) -> None:
    inside.load(PROBE, device=DEVICE)
    inside.load("mirror", netns=wire.b.inode)
    assert program_at(wire.b)
    server = wire.b.start(SERVE, WORKERS, 0)
    try:
        assert server.stdout and server.stdout.readline()
        sender = wire.a.start(SEND, B, VXLAN, 5, 40, 100, 7, 0)
        with os.fdopen(os.pidfd_open(inside.pid), "rb") as ended:
            os.kill(inside.pid, signal.SIGKILL)
            assert select.select([ended], [], [], LIMIT_S)[0]
        sent = int(sender.communicate(timeout=LIMIT_S)[0].split()[0])
        assert sum(read(server)) == sent
        assert not program_at(wire.b)
    finally:
        server.communicate(timeout=LIMIT_S)


def test_another_program_stays(inside: Measurement, wire: Wire) -> None:
    first = Measurement(inside=wire.b)
    try:
        first.load(PROBE, device=DEVICE)
        before = program_at(wire.b)
        why = refusal(inside, device=DEVICE)
        assert "another XDP program is there already" in why
        assert program_at(wire.b) == before
    finally:
        first.close()


def test_it_needs_a_device_and_stays_there(inside: Measurement, wire: Wire) -> None:
    assert "name it (--device" in refusal(inside)
    assert "no device nowhere in the network namespace" in refusal(inside, device="nowhere")
    inside.load(PROBE, device=DEVICE)
    reply = inside.command(command="set", probe=PROBE, mode="summary", knobs={"device": "lo"})
    assert not reply.ok and "stays at its device" in str(reply.error)


@pytest.mark.parametrize("how", ["name", "netns"])
def test_a_device_with_another_name_or_namespace_is_left_and_said(inside: Measurement, wire: Wire, how: str) -> None:
    """Else its figures would be taken for those of whatever has its name now."""
    wire.b.ip("link", "add", "xdp-a", "type", "veth", "peer", "name", "xdp-b")
    inside.load(PROBE, device="xdp-a")
    to, there = (wire.a, "xdp-a") if how == "netns" else (wire.b, "xdp-c")
    wire.b.ip("link", "set", "xdp-a", how, wire.a.name if how == "netns" else there)
    inside.until(lambda: inside.statuses[PROBE].state == "degraded", "its device is another one")
    assert "another name now, or is in another network namespace" in str(inside.statuses[PROBE].why)
    assert not inside.statuses[PROBE].attach and not program_at(to, there)
    wire.b.ip("link", "del", "xdp-b")


def test_a_device_that_goes_is_said(inside: Measurement, wire: Wire) -> None:
    wire.b.ip("link", "add", "xdp-a", "type", "veth", "peer", "name", "xdp-b")
    inside.load(PROBE, device="xdp-a")
    wire.b.ip("link", "del", "xdp-a")
    inside.until(lambda: inside.statuses[PROBE].state == "degraded", "its device is gone")
    assert "its device is gone" in str(inside.statuses[PROBE].why) and not inside.statuses[PROBE].attach
    inside.command(command="unload", probe=PROBE)
    inside.load(PROBE, device=DEVICE)
