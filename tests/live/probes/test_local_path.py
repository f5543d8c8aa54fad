"""local_path times a host's own packets once each, between socket and device, in both directions."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.live.measurement import LIMIT_S, SEEN, Measurement
from tests.support.live.network import Wire, send_udp
from tests.support.live.path import PING, SEND_TCP, SERVE_TCP

PROBE = "local_path"
PORT, TCP_PORT = 5003, 5004
MANY = 20_000
SOME = 200
BYTES = 5_000_000
DEVICE = Wire.DEVICES[1]
A, B = Wire.ADDRESSES
HOLD_UDP = """
import socket, sys
sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE: room for all
sock.bind(("::", int(sys.argv[1])))
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def path(collector: Measurement) -> Measurement:
    collector.load(PROBE, host_devices=DEVICE)
    return collector


class Watch:
    """What was counted since: samples and nanoseconds by direction, and by stage.

    Knobs name the network namespace too: other tests have a device of this name in theirs.
    """

    def __init__(self, path: Measurement, **knobs: str | int | float) -> None:
        self.path = path
        path.set(PROBE, host_devices=DEVICE, **knobs)
        path.begin()
        self._before = self._now()

    def _now(self) -> dict[tuple[str, ...], tuple[int, int]]:
        return {
            (name, *map(str, one.labels.values())): (one.total.count, one.total.sum)
            for name in ("crossing", "stages")
            for one in self.path.histograms(PROBE, name)
        }

    def samples(self, *key: str) -> tuple[int, int]:
        """Count, and sum in ns, of the histograms whose name and labels begin so."""
        found = [
            (count, total, self._before.get(one, (0, 0)))
            for one, (count, total) in self._now().items()
            if one[: len(key)] == key
        ]
        return sum(count - before[0] for count, _, before in found), sum(
            total - before[1] for _, total, before in found
        )

    def counter(self, name: str) -> int:
        return self.path.counter(PROBE, name)

    def missed(self) -> dict[str, int]:
        entries = ("join_missed", "map_full", "parse_failed", "unaccounted")
        found = {entry: self.path.ledger(PROBE, entry) for entry in entries}
        found["evicted"] = self.counter("evicted")
        return {name: count for name, count in found.items() if count}


@pytest.fixture
def segments(wire: Wire) -> Iterator[dict[str, int]]:
    """Segments of TCP that each end has sent since the test began; filled in by calling wire's counters."""
    yield {end.name: sum(end.snmp("Tcp", name) for name in ("OutSegs", "RetransSegs")) for end in (wire.a, wire.b)}


def sent_since(before: dict[str, int], wire: Wire, end: str) -> int:
    namespace = wire.a if end == "a" else wire.b
    return sum(namespace.snmp("Tcp", name) for name in ("OutSegs", "RetransSegs")) - before[namespace.name]


@pytest.mark.parametrize("target", [Wire.ADDRESSES[1], Wire.ADDRESSES6[1]])
def test_every_datagram_to_its_socket(path: Measurement, wire: Wire, target: str) -> None:
    wire.use_ipv6()
    watch = Watch(path, protocol="udp", port=PORT, netns=wire.b.inode)
    receiver = wire.b.start(HOLD_UDP, PORT)
    assert receiver.stdout is not None
    assert receiver.stdout.readline() == "ready\n"
    send_udp(wire.a, target, PORT, MANY)
    receiver.communicate("end\n", timeout=LIMIT_S)
    path.settle()
    assert watch.counter("received") == watch.counter("delivered") == MANY
    assert watch.samples("crossing", "in", DEVICE, "datagram")[0] == MANY
    assert watch.missed() == {}


def test_every_datagram_from_its_socket(path: Measurement, wire: Wire) -> None:
    watch = Watch(path, protocol="udp", port=PORT, netns=wire.b.inode)
    send_udp(wire.b, A, PORT, MANY, senders=2)
    path.settle()
    assert watch.counter("left") == MANY
    assert watch.samples("crossing", "out")[0] == watch.samples("stages", "out", "qdisc")[0] == MANY
    stages = sum(watch.samples("stages", "out", stage)[1] for stage in ("stack", "devices", "qdisc"))
    assert stages == watch.samples("crossing", "out")[1]
    assert watch.missed() == {}


def test_the_time_that_rows_take_is_bounded_in_the_kernel(path: Measurement, wire: Wire) -> None:
    assert path.command(command="bound", kernel_cpu_pct=1e-6).ok
    try:
        path.set(PROBE, "details", host_devices=DEVICE, protocol="udp", port=PORT, threshold_us=1000)
        path.begin()
        send_udp(wire.b, A, PORT, MANY, senders=2)
        path.settle()
        unlisted = path.ledger(PROBE, "unlisted")
        assert path.counter(PROBE, "left") == path.counter(PROBE, "packets") == MANY, "counts stay exact"
        assert unlisted > MANY // 2
        assert path.samples(PROBE, "crossing") + unlisted == MANY
        assert path.total(PROBE, "flows", "packets") + unlisted == MANY
    finally:
        assert path.command(command="bound", kernel_cpu_pct=0).ok


def test_echoes_come_to_the_socket_that_waits_for_them(path: Measurement, wire: Wire) -> None:
    watch = Watch(path, protocol="icmp", netns=wire.b.inode)
    wire.b.python(PING, A, SOME)
    path.settle()
    assert watch.samples("crossing", "out", "queue")[0] + watch.samples("crossing", "out", "datagram")[0] == SOME
    assert watch.samples("crossing", "in", DEVICE, "datagram")[0] == SOME
    assert watch.missed() == {}


def tcp(wire: Wire, target: str) -> None:
    """From a to b."""
    server = wire.b.start(SERVE_TCP, TCP_PORT)
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    wire.a.python(SEND_TCP, target, TCP_PORT, BYTES)
    told, _ = server.communicate(timeout=LIMIT_S)
    assert int(told) == BYTES


def test_tcp_in_is_timed_to_the_established_connection(path: Measurement, wire: Wire, segments: dict[str, int]) -> None:
    watch = Watch(path, protocol="tcp", port=TCP_PORT, netns=wire.b.inode)
    tcp(wire, B)
    path.settle()
    # All but the three of opening and the few of closing, which TCP handles before or after.
    packets = path.total(PROBE, "flows", "packets", direction="in")
    assert sent_since(segments, wire, "a") * SEEN <= packets <= sent_since(segments, wire, "a")
    assert watch.samples("crossing", "in", DEVICE, "tcp")[0] == watch.counter("delivered")
    assert watch.missed() == {}


def test_tcp_out_is_timed_from_the_moment_it_was_made(path: Measurement, wire: Wire, segments: dict[str, int]) -> None:
    watch = Watch(path, protocol="tcp", port=TCP_PORT, netns=wire.b.inode)
    tcp(wire, B)
    path.settle()
    packets = path.total(PROBE, "flows", "packets", direction="out")
    assert sent_since(segments, wire, "b") * SEEN <= packets <= sent_since(segments, wire, "b")
    assert watch.samples("crossing", "out", "tcp")[0] == watch.counter("left") > 0
    assert watch.samples("stages", "out", "stack")[0] == watch.counter("left")
    assert watch.missed() == {}


def test_tcp_segments_that_the_kernel_cuts_have_a_sample_each(
    path: Measurement, wire: Wire, segments: dict[str, int]
) -> None:
    path.set(PROBE, host_devices=Wire.DEVICES[0], protocol="tcp", port=TCP_PORT)
    wire.a.ip("link", "set", Wire.DEVICES[0], "gso_max_segs", "1")
    try:
        path.begin()
        tcp(wire, B)
        path.settle()
    finally:
        wire.a.ip("link", "set", Wire.DEVICES[0], "gso_max_segs", "65535")
    sent = sent_since(segments, wire, "a")
    left = path.counter(PROBE, "left")
    assert left == path.total(PROBE, "flows", "packets", direction="out")
    assert sent * SEEN < left <= sent


def test_what_waits_in_the_queue_waits_in_no_other_stage(path: Measurement, wire: Wire) -> None:
    packets, size = 40, 958
    wire.b.tc("qdisc", "replace", "dev", DEVICE, "root", "tbf", "rate", "1mbit", "burst", "1500", "limit", "1000000")
    watch = Watch(path, protocol="udp", port=PORT, netns=wire.b.inode)
    send_udp(wire.b, A, PORT, packets, size, lingers=True)
    wire.b.drain(DEVICE)
    path.settle()
    assert watch.counter("left") == packets
    waited = watch.samples("stages", "out", "qdisc")[1]
    each_ns = 1000 * 8 * 1000
    # The n-th waits for n - 1 others; a machine that is busy sends them later, or wakes the shaper later.
    assert waited > packets * (packets - 1) / 2 * each_ns / 2
    assert watch.samples("crossing", "out")[1] - waited < waited / 10


def test_summary_submits_nothing_and_details_within_their_budget(path: Measurement, wire: Wire) -> None:
    watch = Watch(path, protocol="udp", port=PORT, threshold_us=0.001, netns=wire.b.inode)
    send_udp(wire.b, A, PORT, SOME)
    path.settle()
    assert watch.counter("slow") == SOME
    assert path.event_count(PROBE, "seen") == 0
    path.set(PROBE, "details", host_devices=DEVICE, protocol="udp", port=PORT, threshold_us=0.001, events_per_s=20)
    path.begin()
    send_udp(wire.b, A, PORT, MANY)
    path.settle()
    counts = {name: path.event_count(PROBE, name) for name in ("seen", "submitted", "suppressed", "lost")}
    assert counts["seen"] == MANY == counts["submitted"] + counts["suppressed"] + counts["lost"]
    assert 0 < counts["submitted"] < MANY / 10
    fields = path.events[-1].fields
    assert (fields["to"], fields["source"], fields["target"], fields["direction"]) == (DEVICE, B, A, "out")
    assert json.dumps(fields)
