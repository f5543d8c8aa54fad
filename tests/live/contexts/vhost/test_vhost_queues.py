"""vhost_queues on runs of the test's own: what they move, how long they and their wake-ups take, and who works."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.live.contexts.budgets import MANY
from tests.support.live.contexts.filters import NETNS, OTHER_NETNS
from tests.support.live.contexts.machines import DEVICE, NAME, machine
from tests.support.live.contexts.memory import size_of
from tests.support.live.contexts.moments import MS, Span, elapsed, lies, wait
from tests.support.live.contexts.taps import RX, TX, Tap, Taps
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.vhost_types import NET, NET_QUEUE, POLL, QUEUE
from tests.support.live.rivals import rival

Load = Callable[..., UnattachedProbe]
FUNCTIONS = {
    **{f"{one}_end": "ended" for one in ("rx_kick", "tx_kick", "rx_net", "tx_net")},
    **{one: one for one in ("rx_kick", "tx_kick", "rx_net", "tx_net", "flushed", "signalled", "sent", "woken")},
    "configured": "configured",
}
SIZE = 256
RUNS = 12
HEADER = 12
TUN_MSG_PTR = 2
READABLE = 1
LEFT_OUT_MS = 50


class Runs(Taps):
    def __init__(self, probe: UnattachedProbe) -> None:
        super().__init__(probe, DEVICE)
        self.avail = {}
        for tap in (self.here, self.there):
            self.memory.change("tun_file", tap.file, {"tx_ring.size": SIZE})
            for queue in (tap.rx, tap.tx):
                offered = ctypes.create_string_buffer(4 + 2 * SIZE + 2)  # the programs run in this process
                self.avail[queue] = offered
                self._long(queue + QUEUE["avail"], ctypes.addressof(offered))
                self._long(queue + NET_QUEUE["sock_hlen"], HEADER)
                self.memory.put(queue + QUEUE["num"], struct.pack("=I", SIZE))
                self.memory.put(queue + POLL["mask"], struct.pack("=I", READABLE))
        for tap in (self.here, self.there):
            for number in (RX, TX):
                self.memory.put(tap.net + NET["poll"] + number * POLL["bytes"] + POLL["mask"], b"\1")

    def _long(self, address: int, value: int) -> None:
        self.memory.put(address, value.to_bytes(8, sys.byteorder))

    def _poll(self, tap: Tap, direction: int, kicked: bool) -> int:
        return (tap.rx, tap.tx)[direction] if kicked else tap.net + NET["poll"] + direction * POLL["bytes"]

    def woken(self, tap: Tap, direction: int, kicked: bool, key: int = READABLE) -> Span:
        return self.ran("woken", self._poll(tap, direction, kicked) + POLL["wait"], 1, 0, key)

    def begun(self, tap: Tap, direction: int, kicked: bool) -> Span:
        program = f"{('rx', 'tx')[direction]}_{'kick' if kicked else 'net'}"
        return self.ran(program, self._poll(tap, direction, kicked) + POLL["work"])

    def ring(self, tap: Tap, consumer: int, tail: int = 0, head: int = 0) -> None:
        """What vhost has taken from the tap, and has inside."""
        self.memory.change("tun_file", tap.file, {"tx_ring.consumer_head": consumer})
        self._long(tap.rx + NET_QUEUE["rx_ring"], tap.ring)
        self.memory.put(tap.rx + NET_QUEUE["rxq"] + 8, struct.pack("=II", tail, head))

    def offers(self, queue: int, offered: int, used: int, flags: int = 0) -> None:
        """What the guest's side of the ring says, and where vhost is."""
        struct.pack_into("=HH", self.avail[queue], 0, flags, offered)
        self.memory.put(queue + QUEUE["last_used_idx"], struct.pack("=H", used))

    def flushed(self, queue: int, *lengths: int) -> None:
        heads = self.memory.keep(b"".join(struct.pack("=II", 0, length) for length in lengths).ljust(4096, b"\0"))
        self.ran("flushed", 0, queue, heads, len(lengths), len(lengths))

    def signalled(self, tap: Tap, direction: int) -> None:
        self.ran("signalled", tap.calls[direction])

    def ended(self) -> Span:
        return self.ran("rx_kick_end")

    def run(self, tap: Tap, direction: int = RX, kicked: bool = False, *lengths: int) -> None:
        self.begun(tap, direction, kicked)
        if lengths:
            self.flushed((tap.rx, tap.tx)[direction], *lengths)
        self.ended()


PLACES = [
    {"device": DEVICE, "netns": str(NETNS), "queue": 0, "vm": NAME},
    {"device": DEVICE, "netns": str(OTHER_NETNS), "queue": 1, "vm": NAME},
]


def loaded(load: Load, **room: int) -> Runs:
    return Runs(load("vhost_queues", FUNCTIONS, **room))


def row_of(host: Runs, **labels: object) -> dict[str, object]:
    (row,) = [one for one in host.probe.rows("queues") if labels.items() <= one.items()]
    return row


@pytest.mark.proves("vhost_queues", "tables.queues.{device,netns,queue,direction,vm,runs,empty_runs,packets,buffers}")
@pytest.mark.proves("vhost_queues", "tables.queues.{bytes,kicks,arrivals,batches,signals,suppressed,size_buffers}")
@pytest.mark.proves("vhost_queues", "histograms.batch", "histograms.batch.{device,netns,queue,direction,vm}")
@pytest.mark.proves("vhost_queues", "counters.runs", "modes.summary")
def test_what_runs_move(load: Load) -> None:
    with machine():
        host = loaded(load)
        for _ in range(3):
            host.woken(host.here, RX, kicked=False)
        host.woken(host.here, RX, kicked=False, key=READABLE << 1)  # of something else
        host.ring(host.here, 250)
        host.begun(host.here, RX, kicked=False)
        host.flushed(host.here.rx, 100 + HEADER, 50 + HEADER)
        host.signalled(host.here, RX)
        host.flushed(host.here.rx, 200 + HEADER)
        host.ring(host.here, 253)
        host.ended()
        host.woken(host.there, TX, kicked=True)
        host.woken(host.there, TX, kicked=True)
        host.begun(host.there, TX, kicked=True)
        host.ran("sent", host.there.sock, host.message(), 300 + HEADER)
        host.flushed(host.there.tx, *[0] * 4)
        host.ended()
        host.run(host.there, TX, kicked=True)
        host.probe.read()
    names = ["runs", "empty_runs", "packets", "buffers", "bytes", "kicks", "arrivals", "batches", "signals"]
    names += ["suppressed", "size_buffers"]
    to_guest, from_guest = row_of(host, direction="rx", **PLACES[0]), row_of(host, direction="tx", **PLACES[1])
    assert [to_guest[name] for name in names] == [1, 0, 3, 3, 350, 0, 3, 2, 1, 1, SIZE]
    assert [from_guest[name] for name in names] == [2, 1, 4, 4, 300, 2, 0, 1, 0, 1, SIZE]
    assert len(host.probe.rows("queues")) == 2 and host.probe.counters() == {"runs": 3, "strangers": 0}
    found = {one["direction"]: one for one in host.probe.histograms("batch")}
    for direction, place, figures in (("rx", PLACES[0], (2, 3, 1, 2)), ("tx", PLACES[1], (1, 4, 4, 4))):
        one = found[direction]
        assert {name: one[name] for name in place} == place
        assert (one["count"], one["sum"], one["min"], one["max"]) == figures
    assert host.probe.ledger() == {}


def test_packets_that_wait_inside_are_not_moved_yet(load: Load) -> None:
    """What vhost has taken from the ring, and what it has inside before and after."""
    host = loaded(load)
    host.ring(host.here, 100, tail=5, head=3)
    host.begun(host.here, RX, kicked=False)
    host.flushed(host.here.rx, 90)
    host.ring(host.here, 110, tail=7, head=1)
    host.ended()
    host.probe.read()
    assert row_of(host, direction="rx")["packets"] == 10 + 2 - 6


@pytest.mark.proves("vhost_queues", "tables.queues.{bytes,packets,signals}")
def test_bytes_of_batches_from_the_guest_and_to_it(load: Load) -> None:
    """From the guest up to 64 packets come at once; to it so many buffers as a batch may have."""
    host = loaded(load)
    size = size_of("xdp_buff")
    expected = 0
    host.begun(host.there, TX, kicked=True)
    for count in (1, 3, 64):
        buffers = host.memory.keep(bytes(64 * size))
        for number in range(64):  # what lies behind the batch does not count
            ends = {"data": 1 << 20, "data_end": (1 << 20) + 60 + number}
            host.memory.change("xdp_buff", buffers + number * size, ends)
        expected += sum(60 + number for number in range(count))
        control = host.memory.make("tun_msg_ctl", {"type": TUN_MSG_PTR, "num": count, "ptr": buffers})
        host.ran("sent", host.there.sock, host.message(control, 16), 9999)
    other = host.memory.make("tun_msg_ctl", {"type": TUN_MSG_PTR - 1, "num": 2, "ptr": buffers})
    host.ran("sent", host.there.sock, host.message(other, 16), 100 + HEADER)
    host.ran("sent", host.there.sock, host.message(control, 0), 1000 + HEADER)
    host.signalled(host.there, RX)  # of the queue's other direction
    host.signalled(host.here, TX)
    host.ended()
    host.probe.read()
    row = row_of(host, direction="tx")
    assert (row["bytes"], row["signals"]) == (expected + 1100, 0)

    consumed = total = 0
    for count in (1, 2, 63, 64, 65, 128, 200):
        lengths = [HEADER + 1000 + number for number in range(count)]
        host.ring(host.here, consumed)
        host.begun(host.here, RX, kicked=False)
        host.flushed(host.here.rx, *lengths)
        consumed = (consumed + count) % SIZE
        host.ring(host.here, consumed)
        host.ended()
        total += sum(lengths) - count * HEADER
        host.probe.read()
        assert row_of(host, direction="rx")["bytes"] == total, count


@pytest.mark.proves("vhost_queues", "tables.queues.{packets,bytes}", "ledger.join_missed")
@pytest.mark.parametrize(
    ("size", "runs", "least", "unknown"),
    [
        (256, (100, 256, 255, 256), 100 + 256 + 255 + 256, 0),
        (320, (256, 256), 512, 0),
        (1000, (256, 256), 512, 0),
        (200, (199, 200, 256), 199 + 200 + 56, 1),
        (100, (99, 100, 199, 200, 256), 99 + 100 + 99 + 100 + 56, 3),
        (10, (9, 10, 19, 256), 9 + 10 + 9 + 6, 2),
        (10, (6, 1), 7, 0),
    ],
)
def test_runs_that_go_round_a_short_ring(
    load: Load, size: int, runs: tuple[int, ...], least: int, unknown: int
) -> None:
    """Of at most 256 packets, as vhost delivers in a run. What may be more is in the ledger; the least is counted."""
    host = loaded(load)
    host.memory.change("tun_file", host.here.file, {"tx_ring.size": size})
    taken = size + 3
    host.ring(host.here, taken % size, tail=min(64, size))
    for number, count in enumerate(runs):
        waits = 0 if number % 2 else min(64, size)
        host.ring(host.here, taken % size, tail=waits)
        host.begun(host.here, RX, kicked=False)
        host.flushed(host.here.rx, *[100 + HEADER] * count)
        left = min(64, size) - waits
        taken += count - waits + left
        host.ring(host.here, taken % size, tail=left)
        host.ended()
    host.probe.read()
    row = row_of(host, direction="rx")
    assert (row["packets"], row["bytes"]) == (least, 100 * sum(runs))
    assert host.probe.ledger() == ({"join_missed": unknown} if unknown else {})


def after_a_run(host: Runs, buffers: int, consumed: int) -> dict[str, object]:
    """The row after one run of so many buffers of 100 bytes that has taken so many slots of its ring."""
    host.ring(host.here, 0)
    host.begun(host.here, RX, kicked=False)
    host.flushed(host.here.rx, *[100] * buffers)
    host.ring(host.here, consumed)
    host.ended()
    host.probe.read()
    return row_of(host, direction="rx")


def test_packets_of_many_buffers_are_no_more_than_a_run_delivers(load: Load) -> None:
    host = loaded(load)
    row = after_a_run(host, 300, 1)
    assert (row["packets"], row["bytes"]) == (1, 300 * 100 - HEADER)
    assert host.probe.ledger() == {}


def test_the_bytes_of_a_run_that_may_have_gone_round_are_the_least(load: Load) -> None:
    """Its packets took more buffers than one each, or went round once more: of more packets fewer bytes are theirs."""
    host = loaded(load)
    host.memory.change("tun_file", host.here.file, {"tx_ring.size": 100})
    row = after_a_run(host, 150, 40)
    assert (row["packets"], row["bytes"]) == (40, 150 * (100 - HEADER))
    assert host.probe.ledger() == {"join_missed": 1}


@pytest.mark.proves("vhost_queues", "histograms.{wake,run}", "tables.queues.run_ns")
@pytest.mark.proves("vhost_queues", "histograms.wake.{device,netns,queue,direction,vm}")
@pytest.mark.proves("vhost_queues", "histograms.run.{device,netns,queue,direction,vm}")
def test_times_of_wake_ups_and_runs(load: Load) -> None:
    """From the first wake-up on; a run that no wake-up began has no such time."""
    with machine():
        host = loaded(load)
        spans: dict[str, list[tuple[Span, Span]]] = {"rx": [], "tx": []}
        for tap, direction, late_ms, long_ms in (
            (host.here, RX, 3, 1),
            (host.there, TX, 1, 2),
            (host.here, RX, 1.5, 4),
        ):
            woken = host.woken(tap, direction, kicked=True)
            wait(late_ms / 2)
            host.woken(tap, direction, kicked=True)
            wait(late_ms / 2)
            begun = host.begun(tap, direction, kicked=True)
            wait(long_ms)
            spans[("rx", "tx")[direction]].append((elapsed(woken, begun), elapsed(begun, host.ended())))
        host.probe.read()
    for number, name in enumerate(("wake", "run")):
        found = {one["direction"]: one for one in host.probe.histograms(name)}
        for way, place in (("rx", PLACES[0]), ("tx", PLACES[1])):
            one, of_direction = found[way], spans[way]
            assert {label: one[label] for label in place} == place
            assert one["count"] == len(of_direction) and lies(one["sum"], *(both[number] for both in of_direction))
            if name == "run":
                assert row_of(host, direction=way)["run_ns"] == one["sum"]


@pytest.mark.proves(
    "vhost_queues", "tables.queues.{starved_runs,starving,depth_buffers,unsignalled_buffers,unanswered}"
)
def test_a_queue_without_buffers(load: Load) -> None:
    host = loaded(load)

    def read() -> list[object]:
        host.probe.read()
        row = row_of(host, queue=0, direction="rx")
        names = ("starved_runs", "starving", "depth_buffers", "unsignalled_buffers", "unanswered")
        return [row[name] for name in names]

    host.offers(host.here.rx, offered=40, used=33)
    host.ring(host.here, 0, tail=4, head=1)
    host.run(host.here, RX, False, 90, 90)
    assert read() == [0, 0, 7, 2, 0]
    host.offers(host.here.rx, offered=40, used=40)
    host.begun(host.here, RX, kicked=False)
    host.flushed(host.here.rx, 90)
    host.signalled(host.here, RX)
    host.ended()
    assert read() == [1, 1, 0, 0, 1]
    host.run(host.here)
    assert read() == [2, 1, 0, 0, 1]
    host.offers(host.here.rx, offered=40, used=40, flags=1)  # a reaction, and no buffers
    host.run(host.here)
    assert read() == [3, 1, 0, 0, 0]
    host.offers(host.here.rx, offered=50, used=40)
    host.run(host.here)
    assert read() == [3, 0, 10, 0, 0]


INDICES = ("avail_idx", "taken_idx", "used_idx", "has_event", "used_event", "avail_flags")
EVENT_IDX = 1 << 29


@pytest.mark.proves(
    "vhost_queues", "tables.queues.{avail_idx,taken_idx,used_idx,has_event,used_event,avail_flags,depth_buffers}"
)
@pytest.mark.proves("vhost_queues", "events.run.{avail_idx,taken_idx,used_idx,has_event,used_event,avail_flags}")
@pytest.mark.proves("vhost_queues", "events.run.{mono_ns,device,netns,queue,direction,packets,buffers,batches}")
@pytest.mark.proves("vhost_queues", "events.run.{signals,waiting,took_ns}", "modes.{summary,details}")
@pytest.mark.proves("vhost_queues", "knobs.threshold_us", "knobs.events_per_s")
def test_the_indices_of_a_ring_after_each_run(load: Load) -> None:
    """In the row as they are now, and in a sample of each run as they were; what is counted is the same without."""
    with machine():
        host = loaded(load)
        host.probe.set("details", events_per_s=1e6, threshold_us=0)
        expected: list[tuple[int, ...]] = []
        moments: list[tuple[Span, Span]] = []
        for offered, taken, used, wanted, flags in ((65_535, 65_530, 65_500, 65_490, 0), (4, 3, 2, 0xFFFF, 1)):
            queue = host.here.rx
            host.offers(queue, offered, used, flags)
            struct.pack_into("=H", host.avail[queue], 4 + 2 * SIZE, wanted)
            host.memory.put(queue + QUEUE["last_avail_idx"], struct.pack("=H", taken))
            host._long(queue + QUEUE["acked_features"], EVENT_IDX)
            host.ring(host.here, 0, tail=5, head=1)
            begun = host.begun(host.here, RX, kicked=False)
            host.flushed(queue, 100, 100)
            host.signalled(host.here, RX)
            host.ring(host.here, 3, tail=7, head=6)
            moments.append((begun, host.ended()))
            expected.append((offered, taken, used, 1, wanted, flags))
        host._long(host.there.tx + QUEUE["acked_features"], 0)
        host.offers(host.there.tx, 20, 10)
        host.run(host.there, TX)
        host.probe.read()
    row = row_of(host, direction="rx")
    assert tuple(row[name] for name in INDICES) == expected[-1] and row["depth_buffers"] == 2
    events = host.probe.events()
    assert [tuple(event[name] for name in INDICES) for event in events[:2]] == expected
    names = ("direction", "packets", "buffers", "batches", "signals", "waiting")
    assert [tuple(event[name] for name in names) for event in events] == [("rx", 6, 2, 1, 1, 1)] * 2 + [
        ("tx", 0, 0, 0, 0, 0)
    ]
    for sampled, (started, done) in zip(events[:2], moments, strict=True):
        assert {name: sampled[name] for name in PLACES[0]} == PLACES[0]
        assert lies(sampled["took_ns"], elapsed(started, done)) and done[0] <= sampled["mono_ns"] <= done[1]
    assert events[2]["has_event"] == 0 and events[2]["avail_idx"] == 20
    assert host.probe.counters() == {"runs": 3, "strangers": 0}

    host.probe.set("details", events_per_s=1e6, threshold_us=1000)
    host.begun(host.here, RX, kicked=False)
    wait(1.5)
    host.ended()
    host.run(host.here)
    host.probe.set("details", events_per_s=1, threshold_us=0)
    for _ in range(RUNS):
        host.run(host.here)
    host.probe.read()
    assert host.probe.events()[0]["took_ns"] > MS and len(host.probe.events()) < RUNS
    assert host.probe.ledger()["suppressed"] > 0
    host.probe.set("summary")
    host.run(host.here)
    host.probe.read()
    assert host.probe.events() == [] and host.probe.counters()["runs"] == 3 + 2 + RUNS + 1


@pytest.mark.proves("vhost_queues", "ledger.{breaker,suppressed,lost}")
def test_samples_that_there_is_no_time_or_room_for(load: Load) -> None:
    """All runs are counted."""
    host = loaded(load, nc_events=4096)
    host.probe.set("details", events_per_s=1e9, threshold_us=0)
    for _ in range(MANY):
        host.run(host.here)
    host.probe.read()
    made, received = host.probe.ledger(), len(host.probe.events())
    assert made["seen"] == MANY == made["submitted"] + made["lost"]
    assert 0 < received == made["submitted"] < MANY
    host.probe.running.bound(1e-6)
    for _ in range(3 * MANY):
        host.run(host.here)
    host.probe.read()
    made = host.probe.ledger()
    assert made["seen"] == 4 * MANY and made["breaker"] == made["suppressed"] > 2 * MANY
    assert host.probe.counters()["runs"] == 4 * MANY == row_of(host)["runs"]


@pytest.mark.proves("vhost_queues", "tables.workers.{device,netns,queue,vm,worker,cpu,node}")
def test_whose_worker_it_is(load: Load) -> None:
    """This thread is the worker."""
    with machine():
        host = loaded(load)
        for tap in (host.here, host.there):
            host.run(tap)
            wait(9)
        host.probe.read()
    (table,) = [one for one in host.probe.bodies if one["kind"] == "table" and one["name"] == "workers"]
    rows = sorted(({**row["labels"], **row["gauges"]} for row in table["rows"]), key=lambda row: int(row["queue"]))
    node = next(int(one.name[4:]) for one in Path("/sys/devices/system/cpu/cpu0").glob("node*"))
    for row, place in zip(rows, PLACES, strict=True):
        assert {name: row[name] for name in place} == place
        assert f"({os.getpid()})" in row["worker"] and (row["cpu"], row["node"]) == (0, node)


@pytest.mark.proves("vhost_queues", "knobs.{device,netns}", "counters.strangers")
def test_filters_and_strangers(load: Load) -> None:
    host = loaded(load)

    def counted(**knobs: str | int) -> list[int]:
        """Runs of each queue by now."""
        host.probe.set("summary", **knobs)
        host.run(host.here)
        host.run(host.there)
        host.probe.read()
        rows = {row["queue"]: row["runs"] for row in host.probe.rows("queues")}
        assert host.probe.counters()["runs"] == sum(rows.values())
        return [rows.get(0, 0), rows.get(1, 0)]

    assert counted() == [1, 1]
    assert counted(netns=NETNS) == [2, 1]
    assert counted(netns=OTHER_NETNS) == [2, 2]
    assert counted(device=DEVICE) == [3, 3]
    assert counted(device="made1") == [3, 3]
    assert host.probe.counters()["strangers"] == 0
    stranger = host.memory.make("tun_file", {"tun": host.here.tun, "queue_index": 7})
    distance = host.here.sock - host.here.file
    for _ in range(4):
        host._long(host.here.rx + QUEUE["private_data"], stranger + distance)
        host.run(host.here)
    host.probe.read()
    assert host.probe.counters() == {"runs": 6, "strangers": 4}


@pytest.mark.proves("vhost_queues", "knobs.netns", "tables.queues.{kicks,unsignalled_buffers}")
@pytest.mark.proves("vhost_queues", "histograms.{wake,scheduled}", "tables.workers.cpu_ns")
def test_what_a_filter_left_out_is_not_of_the_next_run(load: Load) -> None:
    """Its wake-ups, its waits and time of a CPU, and its interrupt."""
    host = loaded(load)
    host.run(host.here, RX, True, 90, 90)
    host.probe.set("summary", netns=OTHER_NETNS)
    for _ in range(3):
        host.woken(host.here, RX, kicked=True)
    host.begun(host.here, RX, kicked=True)
    host.signalled(host.here, RX)
    host.ended()
    time.sleep(0.001)
    wait(LEFT_OUT_MS)
    host.probe.set("summary")
    woken = host.woken(host.here, RX, kicked=True)
    begun = host.begun(host.here, RX, kicked=True)
    host.flushed(host.here.rx, 90)
    host.ended()
    host.probe.read()
    (wake,) = host.probe.histograms("wake")
    assert wake["count"] == 1 and lies(wake["sum"], elapsed(woken, begun))
    row = row_of(host, direction="rx")
    assert (row["kicks"], row["runs"], row["unsignalled_buffers"]) == (1, 2, 1)
    assert host.probe.histograms("scheduled") == []
    wait(9)  # the row is updated once in 4 ms
    host.run(host.here)
    host.probe.read()
    assert 0 < host.probe.row("workers")["cpu_ns"] < LEFT_OUT_MS * MS


@pytest.mark.proves("vhost_queues", "histograms.wake", "tables.queues.{kicks,runs}")
@pytest.mark.parametrize("backend", ["none", "another"])
def test_a_wake_up_of_before_the_queue_has_its_tap_is_not_of_the_next_run(load: Load, backend: str) -> None:
    """QEMU gives vhost the kick first, which begins readable: the run that it wakes finds no backend."""
    host = loaded(load)
    before = 0 if backend == "none" else host.memory.make("tun_file", {})
    host._long(host.here.rx + QUEUE["private_data"], before)
    for _ in range(3):
        host.woken(host.here, RX, kicked=True)
    host.run(host.here, RX, True)
    wait(LEFT_OUT_MS)
    host._long(host.here.rx + QUEUE["private_data"], host.here.sock)
    woken = host.woken(host.here, RX, kicked=True)
    begun = host.begun(host.here, RX, kicked=True)
    host.ended()
    host.probe.read()
    (wake,) = host.probe.histograms("wake")
    assert wake["count"] == 1 and lies(wake["sum"], elapsed(woken, begun))
    row = row_of(host, direction="rx")
    assert (row["kicks"], row["runs"]) == (1, 1)


@pytest.mark.proves("vhost_queues", "ledger.{map_full,join_missed,parse_failed}")
def test_what_is_lost_is_in_the_ledger(load: Load) -> None:
    host = loaded(load, queues=1)
    host.run(host.here)
    for _ in range(3):
        host.run(host.there)
    host.probe.read()
    assert host.probe.ledger() == {"map_full": 3}
    for _ in range(3):
        host.begun(host.here, RX, kicked=False)
    host.ended()
    control = host.memory.make("tun_msg_ctl", {"type": TUN_MSG_PTR, "num": 65})
    host.begun(host.here, RX, kicked=False)
    host.ran("sent", host.here.sock, host.message(control, 16))
    host.ended()
    host.probe.read()
    assert host.probe.ledger() == {"map_full": 3, "join_missed": 2, "parse_failed": 1}


@pytest.mark.proves("vhost_queues", "tables.workers.{cpu_ns,switches,waited_ms}", "histograms.scheduled")
@pytest.mark.proves("vhost_queues", "histograms.scheduled.{device,netns,queue,vm}")
def test_what_the_scheduler_says_of_a_worker(load: Load) -> None:
    """cpu_ns, waited_ms and switches are those of schedstat: this thread is the worker, and another has its CPU too."""
    with machine(), rival(0):
        host = loaded(load)

        def run() -> tuple[list[int], list[int]]:
            before = totals()
            host.run(host.there, TX, True)
            return before, totals()

        first = run()
        for _ in range(RUNS):
            time.sleep(0.003)
            run()
        wait(9)  # the row is updated once in 4 ms
        last = run()
        host.probe.read()
    row = host.probe.row("workers")
    least = [b - a for a, b in zip(first[1], last[0], strict=True)]
    most = [b - a for a, b in zip(first[0], last[1], strict=True)]
    assert least[0] <= row["cpu_ns"] <= most[0]
    assert least[1] // MS <= row["waited_ms"] <= most[1] // MS and most[1] > MS
    assert RUNS <= least[2] <= row["switches"] <= most[2]
    (delays,) = host.probe.histograms("scheduled")
    assert {name: delays[name] for name in PLACES[1]} == PLACES[1]
    assert RUNS <= delays["count"] <= RUNS + 1 and least[1] <= delays["sum"] <= most[1]


def totals() -> list[int]:
    """Of this thread: CPU time and waits in ns, and how often it got a CPU."""
    return [int(one) for one in Path("/proc/thread-self/schedstat").read_text().split()]
