"""The console's own sources against the running kernel: exact counts, without any BPF program."""

from __future__ import annotations

import itertools
import json
import os
import socket
from pathlib import Path

from netconsole.sources.base import FrameMaker
from netconsole.sources.own_cost import OwnCost
from netconsole.sources.sockets import SocketGroups
from netconsole.sources.softnet import Softnet
from netconsole.telemetry import frames
from tests.support.live.measurement import LIMIT_S
from tests.support.live.network import PYTHON, Wire, send_udp

CLOSED_PORT = 9
SOME = 3000
READ_TWICE = """
import json, sys
from netconsole.sources.base import FrameMaker
from netconsole.sources.links import Links
links, make = Links(), FrameMaker()
links.open()
links.read(make)
print("counting", flush=True)
sys.stdin.readline()
(table,) = links.read(make)
links.close()
print(json.dumps({row.labels["device"]: {name: one.delta for name, one in row.counts.items()} for row in table.rows}))
"""


def test_link_rates_tell_what_a_device_sent_from_what_its_qdisc_shed(wire: Wire) -> None:
    wire.shape(rate="1mbit", burst="2kb", limit="20kb")
    reader = wire.a.start(READ_TWICE, python=PYTHON)
    assert reader.stdout and reader.stdout.readline() == "counting\n"
    send_udp(wire.a, wire.ADDRESSES[1], CLOSED_PORT, SOME, lingers=True)
    while wire.a.qdisc(wire.DEVICES[0])["qlen"]:
        pass
    out, _ = reader.communicate("\n", timeout=LIMIT_S)
    counted, qdisc = json.loads(out)[wire.DEVICES[0]], wire.a.qdisc(wire.DEVICES[0])
    assert counted["tx_packets"] + counted["qdisc_drops"] == SOME
    assert (counted["tx_packets"], counted["qdisc_drops"]) == (qdisc["packets"], qdisc["drops"])
    assert counted["qdisc_drops"] > SOME // 10


def test_softnet_lies_between_two_readings_of_the_kernels_own_count(wire: Wire) -> None:
    source, make = Softnet(), FrameMaker()
    outside = received()
    source.read(make)
    inside = received()
    send_udp(wire.a, wire.ADDRESSES[1], CLOSED_PORT, SOME)
    least = received() - inside
    (table,) = source.read(make)
    most = received() - outside
    assert isinstance(table, frames.Table)
    counted = sum(row.counts["processed"].delta for row in table.rows)
    assert SOME <= least <= counted <= most


def received() -> int:
    """Packets that all CPUs took in: the first column (net/core/net-procfs.c, softnet_seq_show)."""
    return sum(int(line.split()[0], 16) for line in Path("/proc/net/softnet_stat").read_text().splitlines())


def test_the_idle_siblings_of_a_dropping_socket_are_seen() -> None:
    group = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    source = SocketGroups()
    try:
        for one in group:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            one.bind(("127.0.0.1", group[0].getsockname()[1]))
        port = group[0].getsockname()[1]
        source.open()
        make = FrameMaker()
        seen = {row.labels["inode"]: row for row in source.read(make)[0].rows if row.labels["port"] == port}  # type: ignore[union-attr]
        assert len(seen) == 3
        assert all(str(row.labels["process"]).endswith(f"/{os.getpid()}") for row in seen.values())
        # One flow: all datagrams are for the same socket, and nobody reads.
        for _ in range(100):
            sender.sendto(b"x" * 700, ("127.0.0.1", port))
        moved = [row for row in source.read(make)[0].rows if row.labels["port"] == port]  # type: ignore[union-attr]
        assert len(moved) == 1
        accepted = 100 - moved[0].counts["drops"].delta
        assert 0 < accepted < 100
        for one in group:
            one.setblocking(False)
        assert accepted == sum(_drain(one) for one in group)
    finally:
        source.close()
        for one in (*group, sender):
            one.close()


def _drain(one: socket.socket) -> int:
    for count in itertools.count():
        try:
            one.recv(1)
        except BlockingIOError:
            return count
    raise AssertionError


def test_own_cost_is_what_the_kernel_says() -> None:
    own = OwnCost()
    own.open()
    sum(range(2_000_000))
    usage = own.usage()
    assert usage.cpu_ns is not None and usage.cpu_ns > 1_000_000
    assert usage.rss_kb is not None and usage.rss_kb > 5_000
    assert usage.pss_kb is not None and usage.pss_kb <= usage.rss_kb
    (row,) = own.read(FrameMaker())[0].rows  # type: ignore[union-attr]
    assert row.counts["busy_ms"].delta <= row.counts["all_ms"].delta
