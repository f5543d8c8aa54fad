"""The console's own sources against the running kernel: exact counts, without any BPF program."""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from netconsole.session.own_cost import OwnCost
from netconsole.telemetry import frames
from netconsole_collector.sources.base import FULL_EVERY
from netconsole_collector.sources.machine import MachineLoad
from netconsole_collector.sources.net.links import Links
from netconsole_collector.sources.net.sockets import SocketGroups
from netconsole_collector.sources.net.softnet import Softnet
from tests.support.live.measurement import LIMIT_S
from tests.support.live.network import PYTHON, Namespace, Wire, send_udp
from tests.support.sources import read_of, tables_of

CLOSED_PORT = 9
SOME = 3000
READINGS = 50
READ_UNTIL_QDISCS_ARE_READ = """
import json, sys, time
from netconsole_collector.sources.base import SourceReading
from netconsole_collector.sources.net.links import Links
from netconsole_collector.sources.machine import MachineLoad
links = Links()
links.open()
def tables():
    found = links.read(SourceReading(10**9, time.monotonic_ns()))
    return {one["name"]: one["rows"] for one in found if one["kind"] == "table"}
tables()
print("counting", flush=True)
sys.stdin.readline()
totals = {}
for _ in range(links.pace.every):
    mine = [row for row in tables()["links"] if row["labels"]["netns"] in ("host", sys.argv[1])]
    totals |= {row["labels"]["device"]: {name: one["total"] for name, one in row["counts"].items()} for row in mine}
links.close()
print(json.dumps(totals))
"""


@pytest.mark.proves("link_rates", "tables.links.{device,netns,tx_packets,qdisc_drops}", "modes.summary")
def test_link_rates_tell_what_a_device_sent_from_what_its_qdisc_shed(wire: Wire) -> None:
    wire.shape(rate="1mbit", burst="2kb", limit="20kb")
    reader = wire.a.start(READ_UNTIL_QDISCS_ARE_READ, wire.a.name, python=PYTHON)
    assert reader.stdout and reader.stdout.readline() == "counting\n"
    send_udp(wire.a, wire.ADDRESSES[1], CLOSED_PORT, SOME, lingers=True)
    while wire.a.qdisc(wire.DEVICES[0])["qlen"]:
        pass
    out, _ = reader.communicate("\n", timeout=LIMIT_S)
    counted, qdisc = json.loads(out)[wire.DEVICES[0]], wire.a.qdisc(wire.DEVICES[0])
    assert counted["tx_packets"] + counted["qdisc_drops"] == SOME
    assert (counted["tx_packets"], counted["qdisc_drops"]) == (qdisc["packets"], qdisc["drops"])
    assert counted["qdisc_drops"] > SOME // 10


class Reader:
    """link_rates from the host's own namespace, with all rows as they are now and what they have counted."""

    def __init__(self) -> None:
        self.links = Links()
        self.links.open()
        self.rows: dict[tuple[str, str], frames.Row] = {}
        self.queues: dict[tuple[str, str, str], frames.Row] = {}
        self.read()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *unused: object) -> None:
        self.links.close()

    def read(self) -> None:
        *others, table = read_of(self.links)
        assert isinstance(table, frames.Table)
        for row in (row for one in others if isinstance(one, frames.Table) for row in one.rows):
            self.queues[str(row.labels["netns"]), str(row.labels["device"]), str(row.labels["handle"])] = row
        found = {(str(row.labels["netns"]), str(row.labels["device"])): row for row in table.rows}
        self.rows = found if table.full else self.rows | found

    def until(self, is_so: Callable[[], bool]) -> None:
        """The kernel tells of a carrier up to a second late."""
        end = time.monotonic() + LIMIT_S
        while not is_so():
            assert time.monotonic() < end, self.rows
            self.read()

    def gauges(self, namespace: Namespace, device: str) -> dict[str, int | float | None]:
        return self.rows[namespace.name, device].gauges

    def queue(self, namespace: Namespace, device: str, handle: str) -> dict[str, int | float | None]:
        """Gauges of a child qdisc or class; none before it was read."""
        row = self.queues.get((namespace.name, device, handle))
        return row.gauges if row is not None else {}

    def total(self, namespace: Namespace, device: str, name: str) -> int:
        return self.rows[namespace.name, device].counts[name].total


@pytest.mark.proves(
    "link_rates",
    "tables.links.{no_carrier,peer_down,carrier_lost,carrier_lost_to_peer,admin_down,lost_to_peer,lost_without_carrier}",
    "tables.links.{carrier_losses,carrier_changes}",
)
def test_what_is_sent_without_a_carrier_is_counted_and_the_peer_named(wire: Wire) -> None:
    here, there = wire.DEVICES
    with Reader() as reader:
        assert reader.gauges(wire.a, here)["no_carrier"] == 0
        wire.b.ip("link", "set", there, "down")
        try:
            reader.until(lambda: reader.gauges(wire.a, here)["no_carrier"] == 1)
            gauges = reader.gauges(wire.a, here)
            assert (gauges["peer_down"], gauges["carrier_lost"], gauges["carrier_lost_to_peer"]) == (1, 1, 1)
            assert (reader.gauges(wire.b, there)["admin_down"], reader.gauges(wire.b, there)["carrier_lost"]) == (1, 0)
            before = wire.a.statistics(here)["tx"]["dropped"]
            names = "lost_to_peer", "lost_without_carrier"
            counted = [reader.total(wire.a, here, name) for name in names]
            send_udp(wire.a, wire.ADDRESSES[1], CLOSED_PORT, SOME)
            dropped = wire.a.statistics(here)["tx"]["dropped"] - before
            reader.read()
            assert dropped in (0, SOME), "the kernel counts them or it does not"
            assert [reader.total(wire.a, here, name) - one for name, one in zip(names, counted, strict=True)] == [
                dropped,
                dropped,
            ]
        finally:
            wire.b.ip("link", "set", there, "up")
            wire.lose(False)  # its neighbour went with the carrier
        reader.until(lambda: reader.gauges(wire.a, here)["no_carrier"] == 0)
        assert (reader.gauges(wire.a, here)["flaps"], reader.gauges(wire.b, there)["flaps"]) == (0, 0)
        assert reader.total(wire.a, here, "carrier_losses") == 1
        assert reader.total(wire.a, here, "carrier_changes") == 2


@pytest.mark.proves("link_rates", "tables.links.{kind,peer,peer_netns}")
def test_the_other_end_of_a_veth_is_told_wherever_it_is(wire: Wire) -> None:
    wire.a.ip("link", "add", "near", "type", "veth", "peer", "name", "far")
    try:
        with Reader() as reader:
            for namespace, device, kind, peer, peer_netns in (
                (wire.a, wire.DEVICES[0], "veth", wire.DEVICES[1], wire.b.name),
                (wire.b, wire.DEVICES[1], "veth", wire.DEVICES[0], wire.a.name),
                (wire.a, "near", "veth", "far", wire.a.name),
                (wire.a, "lo", None, None, None),
            ):
                labels = reader.rows[namespace.name, device].labels
                assert (labels["kind"], labels["peer"], labels["peer_netns"]) == (kind, peer, peer_netns)
    finally:
        wire.a.ip("link", "delete", "near")


@pytest.mark.proves("link_rates", "tables.links.{qdisc,shaper,qdisc_rate}")
def test_the_rate_of_a_shaper_is_told(wire: Wire) -> None:
    with Reader() as reader:
        wire.shape(rate="5mbit", burst="2kb", limit="20kb")
        # Qdiscs are read less often where that takes long, and of an idle namespace: a packet makes it busy.
        for _ in range(reader.links.pace.every):
            send_udp(wire.a, wire.ADDRESSES[1], CLOSED_PORT, 1)
            reader.read()
        row = reader.rows[wire.a.name, wire.DEVICES[0]]
        assert (row.labels["qdisc"], row.labels["shaper"]) == ("tbf", "tbf of 5 Mbit/s")
        assert row.gauges["qdisc_rate"] == 5_000_000


CLASS = re.compile(
    r"class htb (\S+) .*\n Sent (\d+) bytes (\d+) pkt \(dropped (\d+), overlimits (\d+) requeues (\d+)\)"
)
CLASS_FIGURES = "bytes", "packets", "drops", "overlimits", "requeues"


@pytest.mark.proves(
    "link_rates",
    "tables.queues.{device,netns,qdisc,handle,parent,packets,bytes,drops,requeues,overlimits}",
    "tables.queues.{backlog_packets,backlog_bytes}",
)
def test_classes_and_their_leaves_are_told_apart(wire: Wire) -> None:
    here = wire.DEVICES[0]
    wire.a.tc("qdisc", "replace", "dev", here, "root", "handle", "1:", "htb", "default", "10")
    for minor, leaf in (
        ("10", ("pfifo", "limit", "5")),
        ("20", ("tbf", "rate", "1mbit", "burst", "2kb", "limit", "9kb")),
    ):
        # What waits does so until both have looked.
        wire.a.tc("class", "add", "dev", here, "parent", "1:", "classid", f"1:{minor}", "htb", "rate", "80bit")
        wire.a.tc("qdisc", "add", "dev", here, "parent", f"1:{minor}", "handle", f"{minor}:", *leaf)
    links = Links()
    links.open()
    said = read_of(links)
    send_udp(wire.a, wire.ADDRESSES[1], CLOSED_PORT, SOME, size=500)
    told: dict[object, frames.Row] = {}
    for _ in range(READINGS):  # each has only what has changed; a slow machine does not read qdiscs every time
        told |= {
            row.labels["handle"]: row
            for frame in said
            if isinstance(frame, frames.Table) and frame.name == "queues"
            for row in frame.rows
            if (row.labels["device"], row.labels["netns"]) == (here, wire.a.name)
        }
        if told["10:"].counts["drops"].total:
            break
        said = read_of(links)
    links.close()
    known = {one["handle"]: one for one in json.loads(wire.a.tc("-s", "-j", "qdisc", "show", "dev", here))}
    for handle, *figures in CLASS.findall(wire.a.tc("-s", "class", "show", "dev", here)):  # it writes no JSON
        known[handle] = dict(zip(CLASS_FIGURES, map(int, figures), strict=True))
    assert {handle: (row.labels["qdisc"], row.labels["parent"]) for handle, row in told.items()} == {
        "1:10": ("htb class", "root"),
        "1:20": ("htb class", "root"),
        "10:": ("pfifo", "1:10"),
        "20:": ("tbf", "1:20"),
    }
    for handle, row in told.items():
        totals = {name: count.total for name, count in row.counts.items()}
        assert totals == {name: known[handle][name] for name in ("packets", "bytes", "drops", "requeues", "overlimits")}
    waits = known["10:"]["qlen"], known["10:"]["backlog"]
    assert (told["10:"].gauges["backlog_packets"], told["10:"].gauges["backlog_bytes"]) == waits
    assert told["10:"].counts["drops"].delta == known["1:"]["drops"] > SOME // 2


FLOOD = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    try:
        sender.sendto(bytes(int(sys.argv[3])), (sys.argv[1], int(sys.argv[2])))
    except OSError:
        pass  # the queue is full
"""


@pytest.mark.proves("link_rates", "tables.queues.wait_ns")
def test_the_wait_in_a_class_is_that_of_its_backlog_at_its_rate(wire: Wire) -> None:
    """The queue stands: what waits has to wait until the shaper has let go all that is before it."""
    here, rate, limit, size = wire.DEVICES[0], 400_000, 30, 958
    wire.a.tc("qdisc", "replace", "dev", here, "root", "handle", "1:", "htb", "default", "10")
    shaped = ("htb", "rate", f"{rate}bit", "burst", "1000", "cburst", "1000")
    wire.a.tc("class", "add", "dev", here, "parent", "1:", "classid", "1:10", *shaped)
    wire.a.tc("qdisc", "add", "dev", here, "parent", "1:10", "handle", "10:", "pfifo", "limit", str(limit))
    full_s = limit * (size + 42) * 8 / rate
    sender = wire.a.start(FLOOD, wire.ADDRESSES[1], CLOSED_PORT, size)
    try:
        with Reader() as reader:
            reader.until(lambda: reader.queue(wire.a, here, "1:10").get("backlog_packets") == limit)
            sent = wire.a.qdisc(here)["packets"]
            while wire.a.qdisc(here)["packets"] < sent + limit // 2:
                pass  # between two readings that follow each other one packet says nothing of a rate
            reader.read()
            for handle in ("1:10", "10:"):
                wait_ns = reader.queue(wire.a, here, handle)["wait_ns"]
                assert wait_ns is not None and wait_ns / 1e9 > 0.85 * full_s
    finally:
        sender.kill()
        sender.wait()


def test_namespaces_that_come_are_read_and_those_that_go_are_let_go_at_once(wire: Wire) -> None:
    own = own_namespace()
    with Reader() as reader:
        one = Namespace()
        try:
            one.ip("link", "add", "[red]$(x)\\", "type", "veth", "peer", "name", "vanishing", "netns", wire.a.name)
            reader.read()
            assert (one.name, "[red]$(x)\\") in reader.rows
            assert (wire.a.name, "vanishing") in reader.rows
        finally:
            one.remove()
        end = time.monotonic() + LIMIT_S
        while "vanishing" in wire.a.ip("link"):  # with no reading: a socket of ours would keep both ends
            assert time.monotonic() < end
        for _ in range(FULL_EVERY + 1):
            reader.read()
        assert {netns for netns, _ in reader.rows} >= {"host", wire.a.name}
        assert one.name not in {netns for netns, _ in reader.rows}
        assert own_namespace() == own, "entered by threads of its own"


def own_namespace() -> int:
    return Path("/proc/thread-self/ns/net").stat().st_ino


def test_a_namespace_that_only_a_process_has_is_read_until_it_ends(wire: Wire) -> None:
    process = subprocess.Popen(
        ["unshare", "-n", "sh", "-c", "ip link set lo up; echo; exec cat"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout and process.stdout.readline() == "\n"
        inode = str(Path(f"/proc/{process.pid}/ns/net").stat().st_ino)
        wire.a.ip("link", "add", "vanishing", "type", "veth", "peer", "name", "inner", "netns", str(process.pid))
        with Reader() as reader:
            assert (inode, "lo") in reader.rows and (inode, "inner") in reader.rows
            process.communicate()
            end = time.monotonic() + LIMIT_S
            while "vanishing" in wire.a.ip("link"):
                assert time.monotonic() < end
            for _ in range(FULL_EVERY + 1):
                reader.read()
            assert inode not in {netns for netns, _ in reader.rows}
    finally:
        process.kill()
        process.wait()


@pytest.mark.proves("softnet", "tables.cpus.processed", "modes.summary")
def test_softnet_lies_between_two_readings_of_the_kernels_own_count(wire: Wire) -> None:
    source = Softnet()
    outside = received()
    tables_of(source)
    inside = received()
    send_udp(wire.a, wire.ADDRESSES[1], CLOSED_PORT, SOME)
    least = received() - inside
    (table,) = tables_of(source)
    most = received() - outside
    counted = sum(row.counts["processed"].delta for row in table.rows)
    assert SOME <= least <= counted <= most


def received() -> int:
    """Packets that all CPUs took in: the first column (net/core/net-procfs.c, softnet_seq_show)."""
    return sum(int(line.split()[0], 16) for line in Path("/proc/net/softnet_stat").read_text().splitlines())


@pytest.mark.proves("socket_groups", "tables.sockets.{inode,process,port,drops}", "modes.summary")
@pytest.mark.proves("socket_groups", "tables.sockets.{protocol,address,waiting}")
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
        seen = {row.labels["inode"]: row for row in tables_of(source)[0].rows if row.labels["port"] == port}
        assert len(seen) == 3
        assert all(str(row.labels["process"]).endswith(f"/{os.getpid()}") for row in seen.values())
        # One flow: all datagrams are for the same socket, and nobody reads.
        for _ in range(100):
            sender.sendto(b"x" * 700, ("127.0.0.1", port))
        moved = [row for row in tables_of(source)[0].rows if row.labels["port"] == port]
        assert len(moved) == 1
        (full,) = moved
        assert (full.labels["protocol"], full.labels["address"]) == ("udp", "127.0.0.1")
        assert full.gauges["waiting"] == _waiting_bytes(full.labels["inode"]) > 0
        accepted = 100 - moved[0].counts["drops"].delta
        assert 0 < accepted < 100
        for one in group:
            one.setblocking(False)
        assert accepted == sum(_drain(one) for one in group)
    finally:
        source.close()
        for one in (*group, sender):
            one.close()


def _waiting_bytes(inode: frames.Label) -> int:
    """What the kernel itself says of a UDP socket: tx_queue:rx_queue is the fifth column (net/ipv4/udp.c)."""
    lines = (line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:])
    (waiting,) = (int(words[4].partition(":")[2], 16) for words in lines if words[9] == str(inode))
    return waiting


def _drain(one: socket.socket) -> int:
    for count in itertools.count():
        try:
            one.recv(1)
        except BlockingIOError:
            return count
    raise AssertionError


def test_own_cost_is_what_the_kernel_says() -> None:
    own = OwnCost()
    sum(range(2_000_000))
    usage = own.usage()
    assert usage.cpu_ns is not None and usage.cpu_ns > 1_000_000
    assert usage.rss_kb is not None and usage.rss_kb > 5_000
    assert usage.pss_kb is not None and usage.pss_kb <= usage.rss_kb
    source = MachineLoad()
    source.open()
    (row,) = tables_of(source)[0].rows
    assert row.counts["busy_ms"].delta <= row.counts["all_ms"].delta
