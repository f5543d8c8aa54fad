"""host_path times every packet that crosses the host once, in the right direction and stage, and nothing else."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator

import pytest

from netconsole.telemetry.histogram import percentile
from tests.support.live import garbage
from tests.support.live.measurement import LIMIT_S, SEEN, Measurement
from tests.support.live.network import IS_EMULATED, LINGER, Namespace, send_udp
from tests.support.live.path import A6, B6, HOST_PATH, INSIDE, MACS, OUTSIDE, PING, A, B, Host, Watch

PROBE = HOST_PATH
PORT = 9
MANY = 20_000
SOME = 200
BYTES = 5_000_000
PLACES = 4 * 4096
"""Packets that can be under way at a time (probes/common/path.h)."""
HOST, STRANGER = "10.99.0.3", ("10.99.0.4", "02:00:00:00:01:0d")
SETS = {"inside_devices": INSIDE, "outside_devices": OUTSIDE}


@pytest.fixture(scope="module")
def path(collector: Measurement) -> Measurement:
    collector.load(PROBE, **SETS)
    # Without Open vSwitch nothing is missing: its programs have nothing to see.
    assert collector.statuses[PROBE].state == "attached"
    return collector


@pytest.fixture(scope="module")
def tunnelled() -> Iterator[Host]:
    host = Host()
    try:
        host.vxlan()
        yield host
    finally:
        host.remove()


def watch_of(path: Measurement, **knobs: str | int | float) -> Watch:
    return Watch(path, **SETS, **knobs)


@pytest.mark.parametrize(("source", "target", "protocol"), [(A, B, "icmp"), (A6, B6, "icmpv6")])
@pytest.mark.proves("host_path", "tables.flows.{packets,direction,source,target}", "histograms.crossing.direction")
def test_every_echo_is_timed_once_each_way(
    path: Measurement, bridged: Host, source: str, target: str, protocol: str
) -> None:
    watch = watch_of(path, address=source, protocol=protocol)
    bridged.a.python(PING, target, SOME)
    watch.stop()
    assert (watch.crossed("out"), watch.crossed("in")) == (SOME, SOME), path.rows(PROBE, "flows")
    assert path.total(PROBE, "flows", "packets", direction="out", source=source, target=target) == SOME
    assert path.total(PROBE, "flows", "packets", direction="in", source=target, target=source) == SOME
    assert watch.missed() == {}


@pytest.mark.parametrize(("source", "target"), [(A, B), (A6, B6)])
def test_every_datagram_is_timed_once(path: Measurement, bridged: Host, source: str, target: str) -> None:
    watch = watch_of(path, address=source, protocol="udp")
    send_udp(bridged.a, target, PORT, MANY, senders=3)
    watch.stop()
    flows = [(row.labels, row.counts) for row in path.rows(PROBE, "flows")]
    assert watch.crossed("out") == watch.counter("crossed") == watch.counter("packets") == MANY, flows
    assert path.total(PROBE, "flows", "samples", source=source, target=target, target_port=PORT) == MANY
    assert watch.missed() == {}


@pytest.mark.parametrize("target", [B, B6])
def test_merged_packets_are_counted_as_those_they_stand_for(path: Measurement, bridged: Host, target: str) -> None:
    watch = watch_of(path, protocol="tcp")
    segments = bridged.tcp(target, BYTES)
    watch.stop()
    assert segments * SEEN < watch.counter("packets") <= segments
    assert watch.counter("crossed") < segments / 10
    assert watch.missed() == {}


def test_packets_cut_in_software_have_a_sample_each(path: Measurement, bridged: Host) -> None:
    bridged.h.ip("link", "set", OUTSIDE, "gso_max_segs", "1")  # as if the device could not cut
    try:
        watch = watch_of(path, protocol="tcp")
        segments = bridged.tcp(B, BYTES)
        watch.stop()
    finally:
        bridged.h.ip("link", "set", OUTSIDE, "gso_max_segs", "65535")
    assert watch.counter("segments") > BYTES / 2000
    assert segments * SEEN < watch.counter("packets") == watch.counter("crossed") <= segments


def test_the_time_that_rows_take_is_bounded_in_the_kernel(path: Measurement, bridged: Host) -> None:
    assert path.command(command="bound", kernel_cpu_pct=1e-6).ok
    try:
        path.set(PROBE, "details", **SETS, protocol="udp", threshold_us=1000)
        path.begin()
        send_udp(bridged.a, B, PORT, MANY, senders=3)
        path.settle()
        assert path.counter(PROBE, "crossed") == path.counter(PROBE, "packets") == MANY, "counts stay exact"
        unlisted = path.ledger(PROBE, "unlisted")
        assert unlisted > MANY // 2
        assert path.samples(PROBE, "crossing") + unlisted == MANY
        assert path.total(PROBE, "flows", "packets") + unlisted == MANY
        assert path.ledger(PROBE, "join_missed") == 0
    finally:
        assert path.command(command="bound", kernel_cpu_pct=0).ok


@pytest.mark.proves("host_path", "counters.copies")
def test_copies_of_a_flooded_packet_are_followed(path: Measurement, bridged: Host) -> None:
    watch = watch_of(path, protocol="udp")
    send = "import socket, sys\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
    send += "s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)\n"
    send += "for _ in range(int(sys.argv[1])): s.sendto(b'x', ('10.99.0.255', 9))"
    bridged.a.python(send, SOME)
    watch.stop()
    # The bridge sends a copy out and keeps the packet for itself.
    assert watch.crossed("out") == watch.counter("copies") == SOME
    assert watch.missed() == {}


def test_what_does_not_cross_has_no_sample(path: Measurement, bridged: Host) -> None:
    bridged.h.ip("address", "replace", f"{HOST}/24", "dev", "br0")
    mac = bridged.h.run("cat", "/sys/class/net/br0/address").strip()
    bridged.a.ip("neighbour", "replace", HOST, "lladdr", mac, "dev", "eth0", "nud", "permanent")
    bridged.h.ip("neighbour", "replace", B, "lladdr", "02:00:00:00:01:0b", "dev", "br0", "nud", "permanent")
    watch = watch_of(path, protocol="udp")
    send_udp(bridged.a, HOST, PORT, MANY)
    send_udp(bridged.h, B, PORT, MANY)
    watch.stop()
    assert watch.counter("received") == MANY
    assert watch.counter("reused") + watch.counter("evicted") >= MANY - PLACES  # they ended unseen
    assert watch.counter("from_host") > MANY * 0.99  # some look like the one before and pass for the same, sent again
    assert watch.counter("crossed") == watch.counter("unmatched") == 0
    assert watch.missed() == {}


FORWARDS = "until [ $(cat /sys/class/net/{}/brport/state) = 3 ]; do :; done"
"""BR_STATE_FORWARDING: a port that has just come up is not in use at once."""
HOLD = """
import os, socket, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE: room for all
sock.bind(("", int(sys.argv[2])))
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.proves("host_path", "counters.{received,crossed,packets}", "ledger.unlisted")
@pytest.mark.parametrize("network", ["bridged", "tunnelled"])
def test_a_storm_is_counted_exactly_and_followed_in_part(
    path: Measurement, network: str, request: pytest.FixtureRequest
) -> None:
    host: Host = request.getfixturevalue(network)
    nobody_answers = host.b.start(HOLD, min(os.sched_getaffinity(0)), PORT)
    assert nobody_answers.stdout is not None
    assert nobody_answers.stdout.readline() == "ready\n"
    watch = watch_of(path)
    send_udp(host.a, B, PORT, MANY, senders=3)
    watch.stop()
    nobody_answers.communicate("end\n", timeout=LIMIT_S)
    crossed, unlisted = watch.counter("crossed"), path.ledger(PROBE, "unlisted")
    assert watch.counter("received") == crossed == watch.counter("packets"), watch.missed()
    assert MANY <= crossed < MANY + SOME, "all of them, and what new devices ask their neighbours by IPv6"
    assert unlisted > 0
    assert watch.added("crossing").count == path.total(PROBE, "flows", "samples") == crossed - unlisted
    assert watch.missed() == {}


MANY_ECHOES = 20 * SOME
"""Others on that CPU may take the addresses first."""


def test_another_packet_at_the_same_address_is_no_sample(path: Measurement, bridged: Host) -> None:
    """What a sends ends in a socket of h. A stranger's echoes leave at the addresses of the dead."""
    stranger, device, cpu, (ip, mac) = Namespace(), f"ncs{os.getpid()}", min(os.sched_getaffinity(0)), STRANGER
    try:
        # A bridge takes the lowest address of its ports for its own: not this one.
        own = (device, "address", "fe:ff:ff:ff:ff:0c")
        bridged.h.ip("link", "add", *own, "type", "veth", "peer", "name", "eth0", "netns", stranger.name)
        bridged.h.ip("link", "set", device, "master", "br0", "up")
        stranger.ip("link", "set", "eth0", "address", mac, "up")
        stranger.ip("address", "add", f"{ip}/24", "dev", "eth0")
        stranger.ip("neighbour", "replace", B, "lladdr", MACS[1], "dev", "eth0", "nud", "permanent")
        bridged.b.ip("neighbour", "replace", ip, "lladdr", mac, "dev", "eth0", "nud", "permanent")
        bridge = bridged.h.run("cat", "/sys/class/net/br0/address").strip()
        bridged.h.ip("address", "replace", f"{HOST}/24", "dev", "br0")
        bridged.a.ip("neighbour", "replace", HOST, "lladdr", bridge, "dev", "eth0", "nud", "permanent")
        bridged.h.run("sh", "-c", FORWARDS.format(device))
        watch = watch_of(path)
        echoes = exchanged = 0
        while not exchanged and echoes < MANY_ECHOES:
            socket = bridged.h.start(HOLD, cpu, PORT)
            assert socket.stdout is not None
            assert socket.stdout.readline() == "ready\n"
            send_udp(bridged.a, HOST, PORT, SOME)
            socket.communicate("end\n", timeout=LIMIT_S)
            stranger.run("taskset", "--cpu-list", str(cpu), sys.executable, "-c", PING, B, str(SOME))
            watch.stop()
            echoes, exchanged = echoes + SOME, watch.counter("exchanged")
    finally:
        stranger.remove()
    assert path.rows(PROBE, "flows", source=ip) == path.rows(PROBE, "flows", target=HOST) == []
    assert exchanged > 0
    assert exchanged + watch.counter("unmatched") >= echoes
    assert path.ledger(PROBE, "join_missed") == 0, "none of these began on a device of a set"


TIMED_RECEIVE = """
import socket, struct, sys
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS: when it was received, by the same clock
receiver.bind(("", int(sys.argv[1])))
print("ready", flush=True)
for _ in range(int(sys.argv[2])):
    packet, [(_, _, stamp)], *_ = receiver.recvmsg(2048, 64)
    seconds, rest_ns = struct.unpack("qq", stamp)
    print(seconds * 10**9 + rest_ns - struct.unpack_from("q", packet)[0], flush=True)
"""
# Once they cross a bridge, its socket no longer knows of them: so the sender is told how long to stay (LINGER).
TIMED_SEND = (
    LINGER
    + """
import select, socket, struct, sys
target, port, count, size, lingers = sys.argv[1], *map(int, sys.argv[2:])
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if lingers:
    linger(sender)
for _ in range(count):
    sender.sendto(struct.pack("q", time.time_ns()).ljust(size, b"\\0"), (target, port))
print("sent", flush=True)
while lingers and not select.select([sys.stdin], [], [], 0)[0]:
    pass
"""
)
HISTOGRAM_ERROR = 1 / 16
"""At mid-bucket: docs of netconsole.telemetry.histogram."""


def send_timed(host: Host, device: str, count: int, size: int) -> None:
    """So many datagrams from a to b, which wait in the queue of this device of h; until none does any more."""
    sender = host.a.start(TIMED_SEND, B, PORT, count, size, int(not IS_EMULATED))
    assert sender.stdout is not None
    assert sender.stdout.readline() == "sent\n"
    host.h.drain(device)
    sender.communicate(timeout=LIMIT_S)


def test_a_delay_in_the_queue_shows_there_and_nowhere_else(path: Measurement, bridged: Host) -> None:
    packets, size = 40, 958  # 1000 bytes with their headers
    receiver = bridged.b.start(TIMED_RECEIVE, PORT, packets)
    assert receiver.stdout is not None
    assert receiver.stdout.readline() == "ready\n"
    bridged.h.tc(
        *("qdisc", "replace", "dev", OUTSIDE, "root", "tbf", "rate", "1mbit", "burst", "1500", "limit", "1000000"),
    )
    try:
        watch = watch_of(path, protocol="udp")
        send_timed(bridged, OUTSIDE, packets, size)
        watch.stop()
    finally:
        bridged.h.tc("qdisc", "delete", "dev", OUTSIDE, "root")
    each_ns = 1000 * 8 * 1000
    count, waited = watch.stage("out", "qdisc")
    assert count == watch.crossed("out") == packets
    # The n-th waits for n - 1 others; a machine that is busy sends them later, or wakes the shaper later.
    assert waited > packets * (packets - 1) / 2 * each_ns / 2
    assert watch.stage("out", "forward")[1] < waited / 10
    assert watch.stage("out", "forward")[1] + waited == watch.whole("out")
    took_ns = sorted(map(int, receiver.communicate(timeout=LIMIT_S)[0].split()))
    assert len(took_ns) == packets
    for percent in (25, 50, 75):
        by_clocks = took_ns[packets * percent // 100 - 1]
        shown = percentile(watch.added("stages", "out", "qdisc"), percent)
        assert shown == pytest.approx(by_clocks, rel=2 * HISTOGRAM_ERROR)  # and what is not the queue's


def test_stages_add_up(path: Measurement, bridged: Host) -> None:
    watch = watch_of(path, protocol="udp")
    send_udp(bridged.a, B, PORT, MANY, senders=2)
    watch.stop()
    stages = [watch.stage("out", name) for name in ("forward", "devices", "qdisc")]
    assert sum(total for _, total in stages) == watch.whole("out") > 0
    assert stages[0][0] == stages[2][0] == MANY


def test_details_are_a_budgeted_sample_of_what_is_slow(path: Measurement, bridged: Host) -> None:
    path.set(PROBE, "details", **SETS, protocol="udp", threshold_us=0.001, events_per_s=20)
    path.begin()
    send_udp(bridged.a, B, PORT, MANY)
    path.settle()
    counts = {name: path.event_count(PROBE, name) for name in ("seen", "submitted", "suppressed", "lost")}
    assert counts["seen"] == path.counter(PROBE, "slow") == path.counter(PROBE, "crossed") == MANY
    assert counts["seen"] == counts["submitted"] + counts["suppressed"] + counts["lost"]
    assert 0 < counts["submitted"] < MANY / 10
    fields = path.events[-1].fields
    assert (fields["from"], fields["to"], fields["source"], fields["target"]) == (INSIDE, OUTSIDE, A, B)
    assert (fields["target_port"], fields["packets"], fields["direction"]) == (PORT, 1, "out")
    stages = [fields[f"{name}_ns"] for name in ("forward", "lookup", "upcall", "actions", "ct", "devices", "qdisc")]
    assert sum(int(str(stage)) for stage in stages) == fields["total_ns"]


@pytest.mark.proves("host_path", "modes.summary")
def test_summary_submits_nothing(path: Measurement, bridged: Host) -> None:
    watch = watch_of(path, protocol="udp", threshold_us=0.001)
    send_udp(bridged.a, B, PORT, SOME)
    watch.stop()
    assert watch.counter("slow") == SOME
    assert path.event_count(PROBE, "seen") == 0


def test_flow_in_a_tunnel_is_the_inner_one(path: Measurement, tunnelled: Host) -> None:
    watch = watch_of(path, protocol="icmp")
    tunnelled.a.python(PING, B, SOME)
    watch.stop()
    assert (watch.crossed("out"), watch.crossed("in")) == (SOME, SOME), path.rows(PROBE, "flows")
    assert path.total(PROBE, "flows", "packets", direction="out", source=A, target=B) == SOME
    assert path.total(PROBE, "flows", "packets", direction="in", source=B, target=A) == SOME
    assert watch.stage("out", "devices")[0] == SOME
    assert watch.missed() == {}


def test_a_delay_in_the_tunnel_device_shows_there(path: Measurement, tunnelled: Host) -> None:
    packets, size = 40, 958
    tunnelled.h.tc(
        *("qdisc", "replace", "dev", "vx7", "root", "tbf", "rate", "1mbit", "burst", "1500", "limit", "1000000"),
    )
    try:
        watch = watch_of(path, protocol="udp")
        send_timed(tunnelled, "vx7", packets, size)
        watch.stop()
    finally:
        tunnelled.h.tc("qdisc", "delete", "dev", "vx7", "root")
    assert watch.crossed("out") == packets
    waited = watch.stage("out", "devices")[1]
    assert waited > packets * packets / 4 * 8_000_000
    assert watch.stage("out", "forward")[1] + watch.stage("out", "qdisc")[1] < waited / 10


def test_garbage_on_the_wire_changes_no_figure(path: Measurement, bridged: Host) -> None:
    watch = watch_of(path, threshold_us=1e6)  # which makes it follow each packet
    send_udp(bridged.a, B, 7777, 1, source_port=7778)  # its row is there before the table fills up
    fuzz = bridged.a.start(garbage.FUZZ, "eth0", random.randrange(2**31), garbage.PACKETS)
    send_udp(bridged.a, B, 7777, MANY, source_port=7778)
    path.settle()  # before the row is idle: the collector makes room in a full table
    assert path.total(PROBE, "flows", "samples", source=A, target=B, source_port=7778, target_port=7777) == MANY + 1
    fuzz.communicate(timeout=garbage.LIMIT_S)
    assert fuzz.returncode == 0
    watch.stop()
    assert path.ledger(PROBE, "parse_failed") > garbage.PACKETS / 100
    assert path.ledger(PROBE, "missed") == 0
    assert watch.crossed("out") > MANY
