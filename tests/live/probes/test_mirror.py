"""mirror: what is inside the tunnels is what was sent, and sent less received is what was lost, stage by stage."""

from __future__ import annotations

from collections.abc import Iterator
from subprocess import Popen

import pytest

from netconsole.telemetry import frames
from tests.live.probes.test_nic_counters import DROP_ALL
from tests.support.live.measurement import Measurement
from tests.support.live.network import Wire

PROBE = "mirror"
VXLAN, GENEVE = 4789, 6081
B = Wire.ADDRESSES[1]
WORKERS = 3
SMALL = 8192
"""Bytes of a buffer in which a few datagrams have room."""
LIMIT_S = 60.0

# Sockets that share the port; the first has a small buffer if so asked. A line "read" empties all of them.
SERVE = """
import os, socket, sys
workers, small = int(sys.argv[1]), int(sys.argv[2])
sockets = []
for number in range(workers):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.setsockopt(socket.SOL_SOCKET, 33, small if small and not number else 64 << 20)
    one.setblocking(False)
    one.bind(("", 4789))
    sockets.append(one)
print(*(os.fstat(one.fileno()).st_ino for one in sockets), flush=True)
for _ in sys.stdin:
    got = [0] * workers
    for number, one in enumerate(sockets):
        try:
            while one.recv(2048) is not None:
                got[number] += 1
        except BlockingIOError:
            pass
    print(*got, flush=True)
"""
# For each outer source port so many rounds: in each one packet of each inner flow. Prints packets and their bytes.
SEND = """
import socket, struct, sys
target, port, tuples, flows, rounds, vni, vlan = sys.argv[1], *map(int, sys.argv[2:])
senders = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(tuples)]
for number, one in enumerate(senders):
    one.bind(("", 40000 + number))
head = struct.pack(">II", 1 << 27, vni << 8) if port == 4789 else struct.pack(">HHI", 0, 0x6558, vni << 8)
tag = struct.pack(">HH", 0x8100, vlan) if vlan else b""
def frame(number):
    body = struct.pack(">HHHH", 1000 + number, 53, 28, 0) + bytes(20)
    ends = bytes([10, 1, number >> 8, number & 255, 10, 2, 0, 1])
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 48, 0, 0, 64, 17, 0) + ends
    return head + bytes.fromhex("02000000000b02000000000a") + tag + b"\\x08\\x00" + ip + body
frames, sent = [frame(number) for number in range(flows)], 0
for _ in range(rounds):
    for sender in senders:
        for one in frames:
            try:
                sent += sender.sendto(one, (target, port)) and 1
            except ConnectionRefusedError:
                sent += sender.sendto(one, (target, port)) and 1
print(sent, sent * (len(frames[0]) + 42))
"""
# So many times so many packets of VXLAN at once, of equal length. Prints packets and their bytes.
SEND_AT_ONCE = """
import socket, struct, sys
target, times, many = sys.argv[1], *map(int, sys.argv[2:])
inner = bytes.fromhex("02000000000b02000000000a0800")
inner += struct.pack(">BBHHHBBHII", 0x45, 0, 48, 0, 0, 64, 17, 0, 0x0A010001, 0x0A020001) + bytes(28)
one = struct.pack(">II", 1 << 27, 7 << 8) + inner
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.IPPROTO_UDP, 103, len(one))  # UDP_SEGMENT
for _ in range(times):
    sender.sendto(one * many, (target, 4789))
print(times * many, times * many * (len(one) + 42))
"""
GARBAGE = """
import random, socket, sys
chance, sender = random.Random(7), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(int(sys.argv[2])):
    first = bytes([chance.choice([0, 8, 8, 255])])
    sender.sendto(first + chance.randbytes(chance.choice([0, 3, 7, 12, 20, 29, 40, 60, 200])), (sys.argv[1], 4789))
"""


@pytest.fixture
def mirror(collector: Measurement, wire: Wire) -> Iterator[Measurement]:
    collector.load(PROBE, netns=wire.b.inode)
    collector.begin()
    yield collector
    collector.command(command="unload", probe=PROBE)


def serve(wire: Wire, small: int = 0) -> tuple[Popen[str], list[int]]:
    server = wire.b.start(SERVE, WORKERS, small)
    assert server.stdout
    return server, [int(word) for word in server.stdout.readline().split()]


def read(server: Popen[str]) -> list[int]:
    """What each worker receives now."""
    assert server.stdin and server.stdout
    server.stdin.write("read\n")
    server.stdin.flush()
    return [int(word) for word in server.stdout.readline().split()]


def ledger(mirror: Measurement) -> dict[str, int]:
    names = ("arrived", "lost_backlog", "lost_stack", "lost_socket", "queued", "received", "malformed")
    return {name: mirror.counter(PROBE, name) for name in names if mirror.counter(PROBE, name)}


def test_a_whole_mirror_is_whole_and_its_inside_is_what_was_sent(mirror: Measurement, wire: Wire) -> None:
    tuples, flows, rounds, vni, vlan = 5, 40, 10, 0xABCDE, 77
    server, inodes = serve(wire)
    try:
        sent, size = map(int, wire.a.python(SEND, B, VXLAN, tuples, flows, rounds, vni, vlan).split())
        got = read(server)
        mirror.settle()
        assert sum(got) == sent == tuples * flows * rounds
        assert ledger(mirror) == {"arrived": sent, "queued": sent, "received": sent}
        assert mirror.counter(PROBE, "arrived_bytes") == size
        assert {row.labels["inode"]: row.counts for row in mirror.rows(PROBE, "workers")} == {
            inode: {"queued": count, "lost": 0, "received": count}
            for inode, count in zip(inodes, got, strict=True)
            if count
        }
        inside: dict[str, frames.Label] = {"vni": vni, "tunnel": "VXLAN", "device": Wire.DEVICES[1]}
        (network,) = mirror.rows(PROBE, "vnis", **inside)
        assert network.counts == {"packets": sent, "bytes": size, "tcp_bytes": 0, "tcp_missing": 0}
        each = {"packets": sent // flows, "bytes": size // flows}
        assert {row.labels["source"]: row.counts for row in mirror.rows(PROBE, "flows", vlan=vlan, **inside)} == {
            f"10.1.0.{number}": each for number in range(flows)
        }
        (sender,) = mirror.rows(PROBE, "senders")
        assert sender.labels["source"] == Wire.ADDRESSES[0] and sender.gauges == {"tuples": tuples}
        ports = {row.labels["source_port"]: row.counts["packets"] for row in mirror.rows(PROBE, "tuples")}
        assert ports == {40000 + number: sent // tuples for number in range(tuples)}
        assert sum(row.counts["packets"] for row in mirror.rows(PROBE, "queues")) == sent
    finally:
        server.communicate(timeout=LIMIT_S)


def test_what_a_worker_has_no_room_for_is_lost_there(mirror: Measurement, wire: Wire) -> None:
    """Nobody reads while it comes: the worker with the small buffer loses, and the others have all of theirs."""
    server, inodes = serve(wire, SMALL)
    try:
        sent = int(wire.a.python(SEND, B, VXLAN, 64, 10, 5, 5, 0).split()[0])
        got = read(server)
        mirror.settle()
        lost = sent - sum(got)
        assert lost > 0
        assert ledger(mirror) == {"arrived": sent, "queued": sum(got), "received": sum(got), "lost_socket": lost}
        rows = {row.labels["inode"]: row for row in mirror.rows(PROBE, "workers")}
        assert {inode: row.counts["lost"] for inode, row in rows.items() if row.counts["lost"]} == {inodes[0]: lost}
        assert rows[inodes[0]].gauges == {"buffer_bytes": SMALL * 2}  # as the kernel doubles it
        assert wire.b.snmp("Udp", "RcvbufErrors") >= lost
    finally:
        server.communicate(timeout=LIMIT_S)


def test_what_the_driver_loses_is_in_the_counters_of_the_nic(wire: Wire) -> None:
    """A program at the driver stands for a ring without room: what it drops never comes into the stack."""
    inside = Measurement(inside=wire.b)
    try:
        inside.load(PROBE, netns=wire.b.inode)
        inside.load("nic_counters")
        inside.begin()
        came = int(wire.a.python(SEND, B, GENEVE, 1, 5, 10, 9, 0).split()[0])
        dropper = wire.b.start(DROP_ALL, Wire.DEVICES[1])
        assert dropper.stdout and dropper.stdout.readline() == "ready\n"
        try:
            sent = came + int(wire.a.python(SEND, B, GENEVE, 1, 5, 20, 9, 0).split()[0])
        finally:
            dropper.communicate(timeout=LIMIT_S)
        counter: dict[str, frames.Label] = {"device": Wire.DEVICES[1], "counter": "rx_queue_N_xdp_drops"}
        inside.until(lambda: inside.total("nic_counters", "losses", **counter) == sent - came, "the driver's losses")
        assert ledger(inside) == {"arrived": came, "lost_stack": came}
    finally:
        inside.close()


def test_what_nobody_listens_for_is_lost_in_the_stack(mirror: Measurement, wire: Wire) -> None:
    sent = int(wire.a.python(SEND, B, GENEVE, 1, 5, 10, 9, 0).split()[0])
    mirror.settle()
    assert ledger(mirror) == {"arrived": sent, "lost_stack": sent}
    assert mirror.total(PROBE, "losses", "packets", reason="NO_SOCKET") == sent
    assert mirror.total(PROBE, "vnis", "packets", vni=9, tunnel="Geneve") == sent


def test_of_what_a_sender_hands_over_at_once_each_packet_is_counted(mirror: Measurement, wire: Wire) -> None:
    """By UDP_SEGMENT: one packet of the stack is ten on the wire, and in the sockets. What cannot be opened is said."""
    server, _ = serve(wire)
    try:
        sent, size = map(int, wire.a.python(SEND_AT_ONCE, B, 30, 10).split())
        got = read(server)
        mirror.settle()
        assert sum(got) == sent == 300
        assert ledger(mirror) == {"arrived": sent, "queued": sent, "received": sent}
        assert mirror.counter(PROBE, "arrived_bytes") == size
        opened = mirror.total(PROBE, "vnis", "packets")
        assert opened + mirror.ledger(PROBE, "parse_failed") == sent
    finally:
        server.communicate(timeout=LIMIT_S)


def test_garbage_is_counted_and_trips_nothing(mirror: Measurement, wire: Wire) -> None:
    many = 5000
    server, _ = serve(wire)
    try:
        wire.a.python(GARBAGE, B, many)
        got = read(server)
        mirror.settle()
        found = ledger(mirror)
        assert sum(got) == many and 0 < found.pop("malformed") <= many
        assert found == {"arrived": many, "queued": many, "received": many}
        rows = mirror.rows(PROBE, "malformed")
        assert sum(row.counts["packets"] for row in rows) == mirror.counter(PROBE, "malformed")
        assert {row.labels["wrong"] for row in rows} <= {"cut short", "wrong length", "wrong header", "wrong inside"}
        assert all(mirror.ledger(PROBE, entry) == 0 for entry in ("map_full", "unaccounted"))
    finally:
        server.communicate(timeout=LIMIT_S)
