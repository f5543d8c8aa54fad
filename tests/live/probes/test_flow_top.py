"""flow_top counts every packet once, of a tunnel the flow inside, and is exact among very many flows."""

from __future__ import annotations

import struct

import pytest

from tests.support.live.measurement import Measurement
from tests.support.live.network import Wire, send_frames, send_udp

PROBE = "flow_top"
MANY = 3000
PORT = 5005
B = Wire.ADDRESSES[1]
INTERVAL_MS = 200
"""A thousand rows that all change take longer than the usual ones."""
HEAVY, PER_HEAVY, OTHERS = 8, 500, 20_000

# Frames of 128 bytes. The heavy flows come between the others, as they do on a real wire.
SEND_FLOWS = """
import os, socket, struct, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
device, heavy, per_heavy, others = sys.argv[1], *map(int, sys.argv[2:])
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind((device, 0))
def frame(source, port):
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 114, 0, 0, 64, 17, 0, source, bytes([198, 51, 100, 1]))
    return bytes.fromhex("02000000000b02000000000a0800") + ip + struct.pack(">HHHH", port, 9, 94, 0) + bytes(86)
large = [frame(bytes([198, 18, 0, n]), 1000 + n) for n in range(heavy)]
every, sent = others // (heavy * per_heavy), 0
for n in range(others):
    wire.send(frame(struct.pack(">I", 0x0a000000 + n), 2000))
    if n % every == 0 and sent < heavy * per_heavy:
        wire.send(large[sent % heavy])
        sent += 1
"""


@pytest.fixture(scope="module")
def top(collector: Measurement) -> Measurement:
    collector.load(PROBE)
    collector.command(command="interval", ms=INTERVAL_MS)
    return collector


def balance(top: Measurement) -> tuple[int, int]:
    """Packets that were counted since the probe was loaded, and those of all flows, by device."""
    counters = [top._counters.get((PROBE, name), 0) for name in ("received", "sent")]
    return sum(counters), sum(row.counts["packets"].total for row in top.all_rows(PROBE, "devices"))


def test_packets_are_counted_once_on_each_side(top: Measurement, wire: Wire) -> None:
    top.begin()
    send_udp(wire.a, B, PORT, MANY)
    top.settle()
    to_port = top.rows(PROBE, "flows", target=B, target_port=PORT)
    assert sorted((str(row.labels["device"]), str(row.labels["direction"])) for row in to_port) == [
        ("veth-a", "out"),
        ("veth-b", "in"),
    ]
    assert [row.counts for row in to_port] == [{"packets": MANY, "bytes": MANY * (64 + 42)}] * 2


def test_of_a_tunnel_the_flow_inside_is_counted(top: Measurement, wire: Wire) -> None:
    top.begin()
    send_frames(wire.a, Wire.DEVICES[0], [vxlan(bytes([198, 18, 1, 1]), 4000)] * 100)
    top.settle()
    rows = top.rows(PROBE, "flows", direction="in", device=Wire.DEVICES[1], target_port=53)
    assert [(row.labels["source"], row.labels["source_port"], row.labels["inner"]) for row in rows] == [
        ("198.18.1.1", 4000, 1)
    ]
    assert rows[0].counts == {"packets": 100, "bytes": 100 * len(vxlan(bytes(4), 0))}


def test_twenty_thousand_flows_are_counted_exactly(top: Measurement, wire: Wire) -> None:
    """The heavy ones among them are sent, the sums have all, and no packet is counted twice or lost."""
    top.begin()  # before a full table leaves out the rows of earlier tests: theirs go on with what they had
    top.set(PROBE, address="198.51.100.1")  # with what others send, counters and rows are never of the same moment
    wire.a.python(SEND_FLOWS, Wire.DEVICES[0], HEAVY, PER_HEAVY, OTHERS)
    top.settle()
    wire_packets = HEAVY * PER_HEAVY + OTHERS
    assert wire.b.statistics(Wire.DEVICES[1])["rx"]["packets"] >= wire_packets
    top.until(lambda: balance(top)[0] == balance(top)[1], "all packets in rows")
    for direction, device in zip(("out", "in"), Wire.DEVICES, strict=True):
        assert top.total(PROBE, "devices", "packets", direction=direction, device=device) == wire_packets
        assert top.total(PROBE, "ports", "packets", direction=direction, device=device, port=9) == wire_packets
    assert top.counter(PROBE, "left_packets") == 0
    for number in range(HEAVY):
        (row,) = top.rows(PROBE, "flows", direction="in", device=Wire.DEVICES[1], source=f"198.18.0.{number}")
        assert row.counts["packets"] == PER_HEAVY and row.gauges == {"missed": 0}
    top.set(PROBE)


def vxlan(source: bytes, port: int) -> bytes:
    """An Ethernet frame that carries a datagram to port 53 in VXLAN."""
    inner = ethernet() + ip(source, struct.pack(">HHHH", port, 53, 16, 0) + bytes(8))
    outer = struct.pack(">HHHHII", 50000, 4789, 16 + len(inner), 0, 1 << 27, 7 << 8)
    return ethernet() + ip(bytes([203, 0, 113, 1]), outer + inner)


def ethernet() -> bytes:
    return bytes.fromhex("02000000000b02000000000a0800")


def ip(source: bytes, payload: bytes) -> bytes:
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 0, 0, 64, 17, 0, source, bytes([198, 51, 100, 1]))
    return head + payload
