"""tx_queue_latency times every packet that waited, as shaper and receiver do, and knows what became of the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import pytest

from netconsole.telemetry import frames, histogram
from tests.support.live.measurement import Measurement
from tests.support.live.network import IS_EMULATED, LINGER, Wire, send_udp

PROBE = "tx_queue_latency"
PORT = 9
SOME = 2000
FEW = 5
LIMIT_S = 120.0
COUNTERS = ("queued", "sent", "dropped")

BITS_PER_S = 4_000_000
BURST_BYTES = 2000
PAYLOAD_BYTES = 958
FRAME_BYTES = PAYLOAD_BYTES + 42
"""With UDP, IPv4 and Ethernet headers: what tbf counts."""
PACKETS = 150
FULL_SOON = {"rate": "1mbit", "burst": "2kb", "limit": "20kb"}
"""A queue that also a slow sender fills: it takes 0.16 s to drain."""
HELD = 150
"""As many small packets as one socket's send buffer lets wait."""
COMPUTED = 1.2
"""Factor by which a percentile may differ from the delay that rate and backlog give: the histogram's error, and what
timers and other processes add."""
SLOT_ERROR = 1 / 16
"""Of a value, at mid-bucket: half of an eighth."""

# The receiver's kernel stamps packets as they arrive; the sender notes when it called and when it came back.
TIMED = (
    LINGER
    + """
import json, socket, struct, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from_address, to, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
linger(sender)
sender.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, int(sys.argv[5]))
calls = []
for number in range(count):
    before = time.time_ns()
    sender.sendto(struct.pack("=I", number).ljust(size, b"x"), (to, 7777))
    calls.append((before, time.time_ns()))
wait(sender)
print(json.dumps(calls))
"""
)
STAMPING = """
import json, socket, struct, sys
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
receiver.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
receiver.bind(("", 7777))
print("ready", flush=True)
arrivals = {}
for _ in range(int(sys.argv[1])):
    data, rest, _, _ = receiver.recvmsg(2000, 100)
    seconds, nanoseconds = struct.unpack("=qq", rest[0][2][:16])
    arrivals[struct.unpack_from("=I", data)[0]] = seconds * 10**9 + nanoseconds
print(json.dumps([arrivals[number] for number in sorted(arrivals)]))
"""
TAP_WITHOUT_READER = """
import fcntl, struct, sys
tap = open("/dev/net/tun", "r+b", buffering=0)
fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH22x", sys.argv[1].encode(), 0x1002))  # TUNSETIFF, IFF_TAP | IFF_NO_PI
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def queues(collector: Measurement) -> Measurement:
    collector.load(PROBE)
    return collector


@pytest.fixture(autouse=True)
def only_here(queues: Measurement, wire: Wire) -> Iterator[None]:
    """Other traffic is filtered out, of this machine and of the namespace itself (IPv6 asks for routers)."""
    queues.set(PROBE, netns=wire.a.inode, protocol="udp")
    queues.begin()
    yield


def counters(queues: Measurement) -> dict[str, int]:
    queues.settle()
    return {name: queues.counter(PROBE, name) for name in COUNTERS}


def samples(queues: Measurement, wire: Wire, **labels: frames.Label) -> frames.Buckets:
    found = queues.histograms(PROBE, "wait", netns=wire.a.name, device=wire.DEVICES[0], **labels)
    return histogram.add(one.total for one in found)


def test_a_device_without_a_queue_has_no_wait(queues: Measurement, wire: Wire) -> None:
    send_udp(wire.a, wire.ADDRESSES[1], PORT, SOME)
    assert counters(queues) == dict.fromkeys(COUNTERS, 0)
    assert samples(queues, wire) == histogram.EMPTY


def sent(wire: Wire, bits_per_s: int, saved_bytes: int, priority: int = 0) -> tuple[list[int], list[int]]:
    """Packets through a shaper with this rate, which may let go so many bytes at once: their least and longest waits.

    ``priority``: of the socket; the number of a class sends it there (htb_classify).
    """
    receiver = wire.b.start(STAMPING, PACKETS)
    assert receiver.stdout and receiver.stdout.readline() == "ready\n"
    calls = json.loads(wire.a.python(TIMED, *wire.ADDRESSES, PACKETS, PAYLOAD_BYTES, priority))
    arrivals = json.loads(receiver.communicate(timeout=LIMIT_S)[0])
    # The shaper cannot have let it go before the bytes ahead of it were paid for.
    paid = [
        (FRAME_BYTES * (number + 1) - saved_bytes) * 8 * 10**9 // bits_per_s - (after - calls[0][0])
        for number, (_, after) in enumerate(calls)
    ]
    # Queued after the call began, handed over before the receiver's stamp: a wait is never longer than this.
    return paid, [arrival - before for arrival, (before, _) in zip(arrivals, calls, strict=True)]


def assert_waits(waits: frames.Buckets, paid: list[int], longest: list[int]) -> None:
    """Between these bounds: their sum, and percentiles within the error of the histogram."""
    assert sum(n for _, n in waits.buckets) == waits.count == PACKETS
    assert waits.sum <= sum(longest)
    assert waits.sum >= sum(max(0, wait) for wait in paid)
    assert_percentiles(waits, paid, longest)


def assert_percentiles(waits: frames.Buckets, paid: list[int], longest: list[int]) -> None:
    for percent in (50, 90, 99):
        place = round(PACKETS * percent / 100) - 1
        least, most = sorted(paid)[place], sorted(longest)[place]
        measured = histogram.percentile(waits, percent)
        assert measured is not None
        print(f"p{percent} {measured / 1e6:.1f} ms, between {least / 1e6:.1f} and {most / 1e6:.1f}")
        assert least * (1 - SLOT_ERROR) <= measured <= most * (1 + SLOT_ERROR)
        assert IS_EMULATED or least / COMPUTED <= measured <= least * COMPUTED  # timers are late there


def test_the_wait_agrees_with_rate_backlog_and_receiver(queues: Measurement, wire: Wire) -> None:
    wire.shape(rate=f"{BITS_PER_S}bit", burst=str(BURST_BYTES), limit="10mb")
    earlier = samples(queues, wire)
    queues.begin()
    paid, longest = sent(wire, BITS_PER_S, BURST_BYTES)
    assert counters(queues) == {"queued": PACKETS, "sent": PACKETS, "dropped": 0}
    waits = samples(queues, wire)
    assert_waits(histogram.subtract(waits, earlier), paid, longest)
    # Where this test runs again, the longest wait may be one of before.
    assert waits.max is not None and max(paid) <= waits.max <= max(*longest, earlier.max or 0)


CLASSES = {"1:10": BITS_PER_S, "1:20": BITS_PER_S // 4}


def shape_classes(wire: Wire, default: str = "0") -> None:
    """An htb with these classes and their rates; ``default`` is the one for what names none."""
    here = wire.DEVICES[0]
    wire.a.tc("qdisc", "replace", "dev", here, "root", "handle", "1:", "htb", "default", default)
    for name, rate in CLASSES.items():
        shaped = ("htb", "rate", f"{rate}bit", "burst", str(BURST_BYTES), "cburst", str(BURST_BYTES))
        wire.a.tc("class", "add", "dev", here, "parent", "1:", "classid", name, *shaped)


def sent_to_class(wire: Wire, name: str) -> tuple[list[int], list[int]]:
    # An htb lets go a packet as long as it owes nothing: one more than a token bucket does.
    return sent(wire, CLASSES[name], BURST_BYTES + FRAME_BYTES, 0x10000 + int(name[2:], 16))


@pytest.mark.parametrize(("name", "other"), [("1:10", "20"), ("1:20", "10")])
def test_percentiles_of_one_class_are_its_own_while_another_has_a_queue(
    queues: Measurement, wire: Wire, name: str, other: str
) -> None:
    """On every kernel: the filter by port tells the classes apart."""
    shape_classes(wire, other)
    queues.set(PROBE, netns=wire.a.inode, protocol="udp", port=7777)
    queues.begin()
    earlier = samples(queues, wire)
    send_udp(wire.a, wire.ADDRESSES[1], PORT, HELD)
    bounds = sent_to_class(wire, name)
    counted = counters(queues)
    assert counted == {"queued": PACKETS, "sent": PACKETS, "dropped": 0}, queues.cost(PROBE).ledger
    waits = histogram.subtract(samples(queues, wire), earlier)
    assert waits.count == PACKETS
    assert_percentiles(waits, *bounds)


def test_the_wait_in_a_class_agrees_with_its_own_rate(queues: Measurement, wire: Wire) -> None:
    """Where functions can be watched; the leaves of classes are a pfifo each."""
    queues.set(PROBE, "details", netns=wire.a.inode, protocol="udp")
    if not any("pfifo_enqueue" in point for point in queues.statuses[PROBE].attach):
        queues.set(PROBE)
        pytest.skip("cannot run here: this kernel lets no function be watched")
    shape_classes(wire)
    try:
        queues.begin()
        earlier = {name: samples(queues, wire, tc_class=name) for name in CLASSES}
        bounds = {name: sent_to_class(wire, name) for name in CLASSES}
        queues.settle()
        for name in CLASSES:
            assert_waits(histogram.subtract(samples(queues, wire, tc_class=name), earlier[name]), *bounds[name])
        assert queues.counter(PROBE, "sent") == queues.samples(PROBE, "wait", netns=wire.a.name) == 2 * PACKETS
    finally:
        queues.set(PROBE)


def test_what_the_queue_sheds_is_told_from_what_it_sends(queues: Measurement, wire: Wire) -> None:
    wire.shape(**FULL_SOON)
    send_udp(wire.a, wire.ADDRESSES[1], PORT, SOME, senders=2, lingers=True)
    while wire.a.qdisc(wire.DEVICES[0])["qlen"]:
        pass
    qdisc = wire.a.qdisc(wire.DEVICES[0])
    counts = counters(queues)
    assert qdisc["drops"] > SOME // 10
    assert counts["queued"] == counts["sent"] + counts["dropped"] == SOME
    assert queues.total(PROBE, "dropped", netns=wire.a.name, device=wire.DEVICES[0]) == counts["dropped"]
    # The qdisc has no filter: its counts may hold a few packets that are not UDP.
    assert 0 <= qdisc["drops"] - counts["dropped"] <= FEW and 0 <= qdisc["packets"] - counts["sent"] <= FEW
    assert queues.ledger(PROBE, "join_missed") == 0


def is_attached_behind(queues: Measurement, another: bool) -> bool:
    """Whether the program that sees drops has its hook behind another probe's, or not."""
    (place,) = [one.attach for one in queues.cost(PROBE).programs if one.name == "freed"]
    return ("behind" in place) == another


@contextmanager
def with_kernel_drops(queues: Measurement) -> Iterator[None]:
    queues.load("kernel_drops")
    try:
        yield
    finally:
        queues.command(command="unload", probe="kernel_drops")


def test_drops_are_counted_once_while_another_probe_takes_over_the_hook_and_goes(
    queues: Measurement, wire: Wire
) -> None:
    wire.shape(**FULL_SOON)
    for is_shared in (False, True, False):
        with with_kernel_drops(queues) if is_shared else nullcontext():
            send_udp(wire.a, wire.ADDRESSES[1], PORT, SOME, senders=2, lingers=True)
            while wire.a.qdisc(wire.DEVICES[0])["qlen"]:
                pass
            counts = counters(queues)
            assert counts["queued"] == counts["sent"] + counts["dropped"] == SOME
            assert counts["dropped"] > SOME // 10
            queues.until(partial(is_attached_behind, queues, is_shared), "where it is attached")
            if is_shared:
                seen = queues.total("kernel_drops", "drops", netns=wire.a.name, device=wire.DEVICES[0])
                assert seen >= counts["dropped"]
        queues.begin()
    assert queues.ledger(PROBE, "join_missed") == 0


def test_what_a_purged_queue_held_is_dropped(queues: Measurement, wire: Wire) -> None:
    wire.shape(rate="8kbit", burst="2kb", limit="1mb")
    send_udp(wire.a, wire.ADDRESSES[1], PORT, HELD)
    wire.restore()
    counts = counters(queues)
    assert counts["queued"] == counts["sent"] + counts["dropped"] == HELD
    # At 8 kbit/s the shaper lets go one such packet in 0.1 s; the bucket is good for 20 at once.
    assert counts["dropped"] > HELD // 2
    assert queues.total(PROBE, "dropped", netns=wire.a.name, device=wire.DEVICES[0]) == counts["dropped"]


@pytest.mark.proves("tx_queue_latency", "tables.dropped.carrier")
def test_what_is_sent_without_a_carrier_is_told_from_what_a_queue_drops(queues: Measurement, wire: Wire) -> None:
    wire.a.ip("tuntap", "add", "tap-none", "mode", "tap")
    wire.a.run("sysctl", "-qw", "net.ipv6.conf.tap-none.disable_ipv6=1")
    wire.a.ip("address", "add", "198.51.100.1/24", "dev", "tap-none")
    wire.a.ip("link", "set", "tap-none", "up")
    try:
        other = ("lladdr", "02:00:00:00:00:0c", "dev", "tap-none", "nud", "permanent")
        wire.a.ip("neighbour", "replace", "198.51.100.2", *other)
        queues.begin()
        send_udp(wire.a, "198.51.100.2", PORT, SOME)
        queues.settle()
        assert queues.total(PROBE, "dropped", netns=wire.a.name, device="tap-none", carrier="none") == SOME
        assert not queues.total(PROBE, "dropped", netns=wire.a.name, carrier="")
    finally:
        wire.a.ip("link", "delete", "tap-none")


def test_what_the_driver_refuses_is_counted_by_code_in_details(queues: Measurement, wire: Wire) -> None:
    assert "raw_tracepoint:net_dev_xmit" not in queues.statuses[PROBE].attach
    queues.set(PROBE, "details", netns=wire.a.inode, protocol="udp")
    assert "raw_tracepoint:net_dev_xmit" in queues.statuses[PROBE].attach
    queues.begin()
    tap = wire.a.start(TAP_WITHOUT_READER, "tap-full")
    try:
        assert tap.stdout and tap.stdout.readline() == "ready\n"
        wire.a.run("sysctl", "-qw", "net.ipv6.conf.tap-full.disable_ipv6=1")
        wire.a.ip("link", "set", "tap-full", "up")
        wire.a.ip("address", "add", "198.51.100.1/24", "dev", "tap-full")
        other = ("lladdr", "02:00:00:00:00:0c", "dev", "tap-full", "nud", "permanent")
        wire.a.ip("neighbour", "replace", "198.51.100.2", *other)
        send_udp(wire.a, "198.51.100.2", PORT, SOME)
        full = wire.a.statistics("tap-full")["tx"]["dropped"]
        queues.settle()
        # Where the ring's end stops the queue instead, the qdisc holds and sheds, and the driver refuses nothing.
        found = queues.total(PROBE, "refused", netns=wire.a.name, device="tap-full", code="dropped", queue=0)
        assert found == full == queues.counter(PROBE, "refused")
        assert full or queues.total(PROBE, "dropped", netns=wire.a.name, device="tap-full")
        queues.set(PROBE, "details", netns=wire.a.inode, port=PORT + 1)
        queues.begin()
        for port in (PORT, PORT + 1):
            send_udp(wire.a, "198.51.100.2", port, SOME // 2)
        queues.settle()
        assert queues.counter(PROBE, "refused") == (SOME // 2 if full else 0)
    finally:
        tap.communicate(timeout=LIMIT_S)
        queues.set(PROBE, "summary")
    assert "raw_tracepoint:net_dev_xmit" not in queues.statuses[PROBE].attach


def test_events_are_those_over_the_threshold(queues: Measurement, wire: Wire) -> None:
    wire.shape(rate=f"{BITS_PER_S}bit", burst=str(BURST_BYTES), limit="10mb")
    threshold_us = 50_000
    queues.set(
        PROBE, "details", netns=wire.a.inode, protocol="udp", port=PORT, threshold_us=threshold_us, events_per_s=100_000
    )
    queues.begin()
    send_udp(wire.a, wire.ADDRESSES[1], PORT, PACKETS, size=PAYLOAD_BYTES, lingers=True)
    while wire.a.qdisc(wire.DEVICES[0])["qlen"]:
        pass
    queues.settle()
    seen = queues.event_count(PROBE, "seen")
    ledger = {name: entry.total for name, entry in queues.cost(PROBE).ledger.items() if entry.total}
    counted = {name: queues.counter(PROBE, name) for name in ("queued", "sent", "dropped")}
    assert counted == {"queued": PACKETS, "sent": PACKETS, "dropped": 0}, ledger
    assert 0 < seen < PACKETS
    assert seen == sum(queues.event_count(PROBE, what) for what in ("submitted", "suppressed", "lost"))
    waited = [event.fields for event in queues.events]
    assert len(waited) + queues.ledger(PROBE, "shed") == queues.event_count(PROBE, "submitted")
    assert all(float(str(fields["waited_ns"])) > threshold_us * 1000 for fields in waited)
    assert {(fields["target"], fields["target_port"], fields["device"]) for fields in waited} == {
        (wire.ADDRESSES[1], PORT, wire.DEVICES[0])
    }


def test_the_time_that_rows_take_is_bounded_in_the_kernel_and_counts_stay_exact(
    queues: Measurement, wire: Wire
) -> None:
    """Next to nothing is allowed: packets are counted on their way in and out, and hardly one is in a row."""
    wire.shape(**FULL_SOON)
    queues.set(PROBE, "details", netns=wire.a.inode, protocol="udp", threshold_us=1000)
    for bound_pct in (1e-6, 0.0):
        assert queues.command(command="bound", kernel_cpu_pct=bound_pct).ok
        queues.begin()
        send_udp(wire.a, wire.ADDRESSES[1], PORT, SOME, senders=2, lingers=True)
        while wire.a.qdisc(wire.DEVICES[0])["qlen"]:
            pass
        counts = counters(queues)
        assert counts["queued"] == counts["sent"] + counts["dropped"] == SOME
        listed = queues.samples(PROBE, "wait", netns=wire.a.name)
        listed += queues.total(PROBE, "dropped", netns=wire.a.name)
        assert listed + queues.ledger(PROBE, "unlisted") == SOME
        assert (queues.ledger(PROBE, "unlisted") > SOME // 2) == bool(bound_pct)
        assert queues.ledger(PROBE, "unaccounted") == 0


@pytest.mark.parametrize(
    ("knobs", "share"), [({"port": PORT}, 0.5), ({"address": "192.0.2.2"}, 1.0), ({"device": "veth-b"}, 0.0)]
)
def test_filters(queues: Measurement, wire: Wire, knobs: dict[str, frames.Scalar], share: float) -> None:
    wire.shape(rate="100mbit", burst="100kb", limit="10mb")
    queues.set(PROBE, protocol="udp", **{"netns": wire.a.inode, **knobs})
    queues.begin()
    for port in (PORT, PORT + 1):
        send_udp(wire.a, wire.ADDRESSES[1], port, 200)
    assert counters(queues)["queued"] == 400 * share
