"""tun_queues on packets, rings and flows of the test's own."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import pytest

from tests.support.live.contexts.budgets import MANY
from tests.support.live.contexts.filters import NETNS, OTHER_NETNS
from tests.support.live.contexts.machines import DEVICE, NAME, machine
from tests.support.live.contexts.memory import enumerator
from tests.support.live.contexts.packets import TCP, Flow
from tests.support.live.contexts.taps import Tap, Taps
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.vhost_types import NET_QUEUE

USUAL = Flow()
Load = Callable[..., UnattachedProbe]
FUNCTIONS = {"offered": "offered", "taken": "taken", "closed": "closed"}
SIZE = 256
S = 10**9
PERIOD_SHIFT = 33
"""Flows are counted in periods of 2^33 ns."""
TCPV4, TCPV6, UDP_L4, GRE = 1 << 0, 1 << 4, 1 << 17, 1 << 6
"""SKB_GSO_… of include/linux/skbuff.h."""


class Rings(Taps):
    def __init__(self, probe: UnattachedProbe) -> None:
        super().__init__(probe, DEVICE)
        for tap, size in ((self.here, SIZE), (self.there, 2 * SIZE)):
            slots = self.memory.keep(bytes(8 * size))
            self.memory.change("tun_file", tap.file, {"tx_ring.queue": slots, "tx_ring.size": size})

    def slots(self, tap: Tap, slots: int = 0) -> int:
        """Its ring gets other slots, and begins anew; where those were that it had."""
        (before,) = self.memory.pointers("tun_file", tap.file, "tx_ring.queue")
        self.memory.change("tun_file", tap.file, {"tx_ring.queue": slots or self.memory.keep(bytes(8 * SIZE))})
        self.memory.change("tun_file", tap.file, {"tx_ring.size": SIZE})
        self.ring(tap, 0, 0)
        return before

    def passes(self, tap: Tap) -> None:
        """One packet, through an empty ring."""
        end = self.memory.pointers("tun_file", tap.file, "tx_ring.consumer_head")[0]
        self.ring(tap, end, end)
        self.offered(tap)
        self.ring(tap, end + 1, end + 1)
        self.taken(tap)

    def ends(self, tap: Tap) -> None:
        """Its file has no users any more."""
        tap.has_users(self, False)
        self.ran("closed", 0, tap.opened)

    def ring(self, tap: Tap, producer: int, consumer: int) -> None:
        self.memory.change("tun_file", tap.file, {"tx_ring.producer": producer, "tx_ring.consumer_head": consumer})

    def offered(
        self, tap: Tap, payload: int = 20, gso: int = 0, hash: int = 0, queue: int | None = None, flow: Flow = USUAL
    ) -> int:
        skb = self.to_tap(tap, payload, flow)
        self.memory.change("sk_buff", skb, {"len": 42 + payload, "hash": hash})
        if queue is not None:
            self.memory.change("sk_buff", skb, {"queue_mapping": queue})
        head, end = self.memory.pointers("sk_buff", skb, "head", "end")
        self.memory.change("skb_shared_info", head + end, {"gso_size": 100 if gso else 0, "gso_type": gso})
        self.ran("offered", skb, tap.device)
        return skb

    def dropped(self, skb: int, reason: str = "FULL_RING") -> None:
        self.ran("dropped", skb, 0, enumerator("skb_drop_reason", f"SKB_DROP_REASON_{reason}"))

    def taken(self, tap: Tap, tail: int = 0, head: int = 0) -> None:
        """vhost gives a batch; it has packets inside that it has not delivered."""
        self.memory.put(tap.rx + NET_QUEUE["rxq"] + 8, struct.pack("=II", tail, head))
        self.ran("taken", 0, tap.rx)

    def ago(self, taken_ns: float, full_ns: float) -> None:
        """When vhost took the last batch of the only ring that is noted, and when that was first full; 0: never."""
        position, now = self.probe.running._maps["positions"], time.monotonic_ns()
        ((key, _),) = list(position.items())
        taken, full = (now - int(one) if one else 0 for one in (taken_ns, full_ns))
        position.set(key, struct.pack("=IIQQQ", 9, 0, taken, taken, full))


PLACES = [
    {"device": DEVICE, "netns": str(NETNS), "queue": 0, "vm": NAME},
    {"device": DEVICE, "netns": str(OTHER_NETNS), "queue": 1, "vm": NAME},
]


@pytest.mark.proves(
    "tun_queues", "tables.queues.{device,netns,queue,vm,packets,bytes,ring_full,taken,tcp_gso,udp_gso,other_gso,size}"
)
@pytest.mark.proves("tun_queues", "histograms.occupancy", "histograms.occupancy.{device,netns,queue,vm}")
@pytest.mark.proves("tun_queues", "counters.{packets,ring_full,strangers}", "modes.summary")
def test_packets_of_two_queues(load: Load) -> None:
    with machine():
        host = Rings(load("tun_queues", FUNCTIONS))
        for producer, consumer in ((5, 5), (9, 5), (3, SIZE - 4)):  # 0, 4 and, round the end, 7 packets inside
            host.ring(host.here, producer, consumer)
            host.offered(host.here)
        host.ring(host.there, 40, 10)
        for gso in (TCPV4, TCPV6, UDP_L4, GRE, GRE, 0):
            host.offered(host.there, 1000, gso)
        skb = host.offered(host.there)
        for reason in ("FULL_RING", "NOMEM", "FULL_RING"):
            host.dropped(skb, reason)
        host.offered(host.here, queue=9)  # there is no such queue
        host.ring(host.here, 3, SIZE - 4)
        host.taken(host.here)
        host.ring(host.here, 3, 2)
        host.taken(host.here, tail=5, head=3)  # 6 taken out of the ring, of which 2 wait
        host.ring(host.here, 3, 3)
        host.taken(host.here)
        host.probe.read()
    names = ("packets", "bytes", "ring_full", "stuck", "taken", "tcp_gso", "udp_gso", "other_gso", "size")
    here, there = sorted(host.probe.rows("queues"), key=lambda row: int(row["queue"]))
    assert {name: here[name] for name in PLACES[0]} == PLACES[0]
    assert {name: there[name] for name in PLACES[1]} == PLACES[1]
    # Where the ring was at the first packet, it began to count: 5, and 247 later 252.
    assert [here[name] for name in names] == [3, 3 * 62, 0, 0, 247 + 6 + 1, 0, 0, 0, SIZE]
    assert [there[name] for name in names] == [7, 6 * 1042 + 62, 2, 0, 0, 2, 1, 2, 2 * SIZE]
    assert host.probe.counters() == {"packets": 10, "ring_full": 2, "strangers": 1}
    found = sorted(host.probe.histograms("occupancy"), key=lambda one: int(one["queue"]))
    for one, place, figures in zip(found, PLACES, ((3, 11, 0, 7), (7, 7 * 30, 30, 30)), strict=True):
        assert {name: one[name] for name in place} == place
        assert (one["count"], one["sum"], one["min"], one["max"]) == figures
    assert host.probe.ledger() == {}


@pytest.mark.proves("tun_queues", "tables.spread.{device,netns,queue,vm,flows}")
def test_flows_of_two_queues(load: Load) -> None:
    with machine():
        host = Rings(load("tun_queues", FUNCTIONS))
        for part in (1, 2, 2, 63, 1):
            host.offered(host.here, hash=part << 26 | 5)
        host.offered(host.there, hash=7)
        host.offered(host.there, hash=0)
        host.probe.read()
    (table,) = [one for one in host.probe.bodies if one["kind"] == "table" and one["name"] == "spread"]
    rows = [{**row["labels"], **row["gauges"]} for row in table["rows"]]
    assert sorted(rows, key=lambda row: int(row["queue"])) == [{**PLACES[0], "flows": 3}, {**PLACES[1], "flows": 1}]


@pytest.mark.proves("tun_queues", "tables.spread.flows")
def test_flows_of_the_period_before_count_while_there_are_fewer_in_this_one(load: Load) -> None:
    probe = load("tun_queues", FUNCTIONS)
    host = Rings(probe)
    spread, parts = probe.running._maps["spread"], 0b1011 << 40 | 1 << 63 | 1
    for ago, flows in ((1, 5), (2, 1), (1, 5)):
        host.offered(host.here, hash=1 << 26)
        ((key, _),) = list(spread.items())
        period = time.monotonic_ns() >> PERIOD_SHIFT
        spread.set(key, struct.pack("=4Q", 99, parts, 99, period - ago))
        host.offered(host.here, hash=2 << 26)
        if time.monotonic_ns() >> PERIOD_SHIFT != period:
            continue  # it has ended meanwhile
        probe.read()
        (table,) = [one for one in probe.bodies if one["kind"] == "table" and one["name"] == "spread"]
        assert [row["gauges"]["flows"] for row in table["rows"]] == [flows]
    for part in range(3, 9):
        host.offered(host.here, hash=part << 26)
    probe.read()
    (table,) = [one for one in probe.bodies if one["kind"] == "table" and one["name"] == "spread"]
    assert [row["gauges"]["flows"] for row in table["rows"]] == [7]


@pytest.mark.proves("tun_queues", "tables.queues.stuck", "histograms.occupancy")
def test_a_queue_is_stuck_that_is_full_for_a_second_and_of_which_nothing_is_taken(load: Load) -> None:
    probe = load("tun_queues", FUNCTIONS)
    host = Rings(probe)
    slots = host.memory.pointers("tun_file", host.here.file, "tx_ring.queue")[0]
    host.ring(host.here, 9, 9)
    host.memory.put(slots + 9 * 8, b"\1")  # the ring is full
    skb = host.offered(host.here)
    host.dropped(skb)  # nobody has ever taken anything
    host.taken(host.here)
    for ago_ns, stuck in ((0.8 * S, 0), (1.1 * S, 1), (20 * S, 2)):
        host.ago(taken_ns=ago_ns + 1, full_ns=ago_ns)
        host.dropped(skb)
        probe.read()
        assert probe.row("queues")["stuck"] == stuck
    host.taken(host.here)
    host.dropped(skb)
    probe.read()
    assert (probe.row("queues")["stuck"], probe.row("queues")["ring_full"]) == (2, 5)
    (occupancy,) = probe.histograms("occupancy")
    assert (occupancy["count"], occupancy["sum"]) == (1, SIZE)


@pytest.mark.proves("tun_queues", "tables.queues.stuck")
def test_a_burst_after_a_pause_is_not_stuck(load: Load) -> None:
    """It fills the ring before vhost wakes; the last batch is as old as the pause, and an earlier burst older."""
    probe = load("tun_queues", FUNCTIONS)
    host = Rings(probe)
    skb = host.offered(host.here)
    for full_ns in (0, 30 * S):
        host.taken(host.here)
        host.ago(taken_ns=20 * S, full_ns=full_ns)
        host.dropped(skb)
        host.dropped(skb)
    probe.read()
    assert (probe.row("queues")["stuck"], probe.row("queues")["ring_full"]) == (0, 4)


def test_a_queue_that_ends_is_forgotten(load: Load) -> None:
    """Its memory may be another one's: name and position in the ring are read again at once."""
    probe = load("tun_queues", FUNCTIONS)
    host = Rings(probe)
    host.ring(host.here, 20, 10)
    host.offered(host.here)
    file = host.memory.make("file", {"private_data": host.here.file})
    host.ran("closed", 0, file)
    host.memory.change("net_device", host.here.device, {"name": b"another"})
    host.ring(host.here, 60, 50)
    host.offered(host.here)
    host.ring(host.here, 60, 53)
    host.taken(host.here)
    probe.read()
    rows = {row["device"]: (row["packets"], row["taken"]) for row in probe.rows("queues")}
    assert rows == {DEVICE: (1, 0), "another": (1, 3)}


@pytest.mark.proves("tun_queues", "tables.queues.taken")
@pytest.mark.parametrize("is_renamed", [False, True])
def test_what_comes_while_a_queue_ends_leaves_nothing_to_the_next_one_there(load: Load, is_renamed: bool) -> None:
    """tun_chr_close waits for rtnl; until then packets still come. Then all of its memory may be another one's."""
    probe = load("tun_queues", FUNCTIONS)
    host = Rings(probe)
    host.ring(host.here, 210, 200)
    host.offered(host.here)
    host.ends(host.here)
    for _ in range(2):
        host.offered(host.here)
    if is_renamed:
        host.memory.change("net_device", host.here.device, {"name": b"another"})
    host.here.has_users(host, True)
    host.ring(host.here, 0, 0)
    host.passes(host.here)
    probe.read()
    rows = {row["device"]: (row["packets"], row["taken"]) for row in probe.rows("queues")}
    assert rows == ({DEVICE: (3, 0), "another": (1, 1)} if is_renamed else {DEVICE: (4, 1)})


@pytest.mark.proves("tun_queues", "tables.queues.taken")
def test_slots_that_were_another_ring_s_say_nothing_about_this_one(load: Load) -> None:
    """A ring that gets another size frees its slots."""
    probe = load("tun_queues", FUNCTIONS)
    host = Rings(probe)
    host.ring(host.here, 200, 200)
    host.passes(host.here)
    freed = host.slots(host.here)
    host.slots(host.there, freed)
    host.passes(host.there)
    probe.read()
    assert {row["queue"]: row["taken"] for row in probe.rows("queues")} == {0: 1, 1: 1}


@pytest.mark.proves("tun_queues", "tables.queues.taken")
def test_a_ring_that_gets_other_slots_is_counted_from_its_new_begin(load: Load) -> None:
    probe = load("tun_queues", FUNCTIONS)
    host = Rings(probe)
    host.ring(host.here, 200, 200)
    host.passes(host.here)
    first = host.slots(host.here)
    for slots in (0, first):
        host.slots(host.here, slots)
        host.ends(host.there)  # all queues are read again
        host.passes(host.here)
    host.slots(host.here)
    for consumed in (40, 43):  # no packet was seen before the first batch: how much that is, is not known
        host.ring(host.here, consumed, consumed)
        host.taken(host.here)
    probe.read()
    assert (probe.row("queues")["packets"], probe.row("queues")["taken"]) == (3, 3 + 3)


@pytest.mark.proves("tun_queues", "tables.queues.taken")
def test_what_vhost_had_in_its_buffer_at_the_begin_makes_no_4_billion_packets(load: Load) -> None:
    """Of 64 it has given 58; how many of them before, is not known. The other 6 are counted."""
    probe = load("tun_queues", FUNCTIONS)
    host = Rings(probe)
    host.ring(host.here, 20, 10)
    host.offered(host.here)
    host.taken(host.here, tail=64, head=58)
    host.taken(host.here, tail=64, head=64)
    probe.read()
    assert probe.row("queues")["taken"] == 6


@pytest.mark.proves("tun_queues", "knobs.{device,netns}", "counters.{packets,ring_full}")
def test_filters(load: Load) -> None:
    """What is put in, dropped and taken is counted of the same queues, also of those that have a row from before."""
    host = Rings(load("tun_queues", FUNCTIONS))
    cases: list[tuple[dict[str, str | int], tuple[int, int]]] = [
        ({}, (1, 1)),
        ({"netns": NETNS}, (1, 0)),
        ({"netns": OTHER_NETNS}, (0, 1)),
        ({"device": DEVICE}, (1, 1)),
        ({"device": "made1"}, (0, 0)),
        ({}, (1, 1)),
    ]
    expected = [0, 0]
    for number, (knobs, wanted) in enumerate(cases):
        host.probe.set("summary", **knobs)
        for tap in (host.here, host.there):
            host.ring(tap, 10 + number, number)
            skb = host.offered(tap)
            host.dropped(skb)
            host.ring(tap, 10 + number, number + 1)
            host.taken(tap)
        host.probe.read()
        expected = [before + more for before, more in zip(expected, wanted, strict=True)]
        rows = {row["queue"]: row for row in host.probe.rows("queues")}
        for name in ("packets", "ring_full", "taken"):
            assert [rows[queue][name] for queue in (0, 1)] == expected, (name, knobs)
        counters = host.probe.counters()
        assert counters["packets"] == counters["ring_full"] == sum(expected)


@pytest.mark.proves("tun_queues", "events.packet.{mono_ns,device,netns,queue,length_bytes,segment_bytes}")
@pytest.mark.proves("tun_queues", "events.packet.{in_ring,size,producer,consumer,source,target,source_port}")
@pytest.mark.proves("tun_queues", "events.packet.{target_port,ethertype,vlan,protocol}", "modes.{summary,details}")
def test_samples_say_whose_packets_fill_a_ring(load: Load) -> None:
    """Each packet is counted, sampled or not."""
    with machine():
        host = Rings(load("tun_queues", FUNCTIONS))
        host.probe.set("details", events_per_s=1e6)
        flows = [Flow(), Flow("2001:db8::1", "2001:db8::2", 53, 4444, TCP)]
        before = time.monotonic_ns()
        for number, flow in enumerate(flows):
            host.ring(host.here, 9 + number, 5)
            host.offered(host.here, 100, (0, TCPV6)[number], flow=flow)
        after = time.monotonic_ns()
        host.probe.set("summary")
        host.offered(host.here)
        host.probe.read()
    events = host.probe.events()
    assert len(events) == 2 and host.probe.counters()["packets"] == 3
    for number, (event, flow) in enumerate(zip(events, flows, strict=True)):
        assert {name: event[name] for name in PLACES[0]} == PLACES[0]
        ends = [event[name] for name in ("source", "target", "source_port", "target_port")]
        assert ends == [flow.source, flow.target, flow.source_port, flow.target_port]
        assert (event["protocol"], event["vlan"]) == (("UDP", 0), ("TCP", 0))[number]
        assert event["ethertype"] == ("IPv4", "IPv6")[number]
        ring = [event[name] for name in ("producer", "consumer", "in_ring", "size")]
        assert ring == [9 + number, 5, 4 + number, SIZE]
        assert (event["length_bytes"], event["segment_bytes"]) == (142, 100 * number)
        assert before < event["mono_ns"] < after


@pytest.mark.proves(
    "tun_queues", "knobs.{flows_one_in,events_per_s}", "ledger.{breaker,suppressed,lost,parse_failed,unsampled}"
)
def test_samples_that_there_is_no_time_or_room_for(load: Load) -> None:
    """All packets are counted, and a flow is sampled whole or not at all."""
    host = Rings(load("tun_queues", FUNCTIONS, nc_events=4096))
    host.probe.set("details", events_per_s=1e9, flows_one_in=4)
    for port in range(64):
        host.offered(host.here, flow=Flow(source_port=port))
    host.probe.read()
    chosen = {event["source_port"] for event in host.probe.events()}
    assert 0 < len(chosen) < 32
    host.offered(host.here, flow=Flow(source_port=min(chosen)))
    short = host.to_tap(host.here)
    host.memory.change("sk_buff", short, {"tail": host.memory.pointers("sk_buff", short, "network_header")[0] + 4})
    host.ran("offered", short, host.here.device)
    host.probe.read()
    assert host.probe.events()[0]["source_port"] == min(chosen)
    assert host.probe.ledger()["unsampled"] == 64 - len(chosen)
    assert host.probe.ledger()["parse_failed"] == 1
    host.probe.set("details", events_per_s=1e9)
    seen = host.probe.ledger()["seen"]
    packet = host.to_tap(host.here)
    for _ in range(MANY):
        host.ran("offered", packet, host.here.device)
    host.probe.read()
    assert host.probe.ledger()["lost"] > 0 and host.probe.ledger()["seen"] == seen + MANY
    before = host.probe.ledger()["suppressed"]
    host.probe.running.bound(1e-6)
    for _ in range(3 * MANY):
        host.ran("offered", packet, host.here.device)
    host.probe.read()
    made = host.probe.ledger()
    assert made["breaker"] == made["suppressed"] - before > 2 * MANY
    assert host.probe.counters()["packets"] == host.probe.row("queues")["packets"] == 66 + 4 * MANY
    host.probe.running.bound(0)
    host.probe.set("details", events_per_s=1)
    for _ in range(MANY):
        host.ran("offered", packet, host.here.device)
    host.probe.read()
    assert len(host.probe.events()) < 10 and host.probe.ledger()["seen"] >= seen + 2 * MANY


@pytest.mark.proves("tun_queues", "ledger.map_full")
def test_full_tables(load: Load) -> None:
    host = Rings(load("tun_queues", FUNCTIONS, queues=1))
    host.offered(host.here)
    for _ in range(4):
        host.offered(host.there, hash=1 << 30)
    host.probe.read()
    assert host.probe.ledger() == {"map_full": 4}
