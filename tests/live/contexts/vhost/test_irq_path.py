"""irq_path on packets, batches and interrupts of the test's own: each stage, each row, each event, and each loss."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice, pairwise

import pytest

from tests.support.live.contexts.filters import NETNS, OTHER_NETNS
from tests.support.live.contexts.machines import DEVICE, NAME, machine
from tests.support.live.contexts.memory import place_of
from tests.support.live.contexts.moments import MS, Span, elapsed, lies, wait
from tests.support.live.contexts.taps import EPOLLIN, MSI, RX, Tap, Taps, check_filters
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.vhost_types import QUEUE

PROBE = "irq_path"
Load = Callable[..., UnattachedProbe]
FUNCTIONS = {
    "deferred": "deferred",
    "s4": "heard",
    "s3": "told",
    "s1": "offered",
    "received": "received",
    "s2": "given",
}
STAGES = ("S1-S2", "S2-S3", "S3-S4", "S4-S5")
FIELDS = ("s1_s2_ns", "s2_s3_ns", "s3_s4_ns", "s4_s5_ns")
LONGS = ((3, 1, 2, 1.5), (1, 3, 1.5, 2), (2, 1.5, 1, 3), (1.5, 2, 3, 1))
"""In ms: another one is the longest each time."""
APIC, VECTOR = 5, 0x51
MANY = 60


@dataclass(frozen=True)
class Passed:
    """When an interrupt passed its points."""

    points: list[Span]

    @property
    def stages(self) -> list[Span]:
        return [elapsed(began, ended) for began, ended in pairwise(self.points)]

    @property
    def total(self) -> Span:
        return elapsed(self.points[0], self.points[-1])


class Interrupts(Taps):
    def offered(self, tap: Tap, count: int = 1) -> Span:
        """Packets that vhost then takes; when the first one came."""
        skbs = [self.to_tap(tap) for _ in range(count)]
        first, *_ = [self.ran("s1", skb, tap.device) for skb in skbs]
        for skb in skbs:
            self.ran("received", tap.sock, self.message(skb))
        return first

    def heard(self, tap: Tap, key: int = EPOLLIN) -> Span:
        return self.ran("s4", tap.lines[RX] + place_of("kvm_kernel_irqfd", "wait")[0], 3, 0, key)

    def deferred(self, tap: Tap) -> Span:
        return self.ran("deferred", tap.lines[RX] + place_of("kvm_kernel_irqfd", "inject")[0])

    def accepted(self) -> Span:
        return self.ran("s5", APIC, 0, 0, VECTOR)

    def given(self, tap: Tap) -> Span:
        return self.ran("s2", 0, tap.rx, 0, 1)

    def told(self, tap: Tap) -> Span:
        return self.ran("s3", tap.calls[RX])

    def passes(self, tap: Tap, long: tuple[float, ...] = (0, 0, 0, 0), packets: int = 1) -> Passed:
        points = [self.offered(tap, packets)]
        for step, length in zip((self.given, self.told, self.heard), long, strict=False):
            wait(length)
            points.append(step(tap))
        wait(long[3])
        return Passed([*points, self.accepted()])


def loaded(load: Load, **room: int) -> Interrupts:
    probe = load(PROBE, FUNCTIONS, **room)
    probe.set("details", events_per_s=1e6, threshold_us=0)
    return Interrupts(probe, DEVICE, (os.getpid(), os.getpid()))


@pytest.mark.proves("irq_path", "histograms.stages", "histograms.stages.{device,netns,queue,stage,vm}")
@pytest.mark.proves("irq_path", "events.interrupt.{mono_ns,s1_s2_ns,s2_s3_ns,s3_s4_ns,s4_s5_ns,total_ns}")
@pytest.mark.proves("irq_path", "events.interrupt.{device,netns,queue,gsi,apic,vector,packets}", "modes.details")
@pytest.mark.proves("irq_path", "tables.queues.{device,netns,queue,vm,interrupts,packets,coalesced,deferred}")
@pytest.mark.proves("irq_path", "counters.interrupts")
def test_each_stage_takes_as_long_as_it_took(load: Load) -> None:
    with machine():
        host = loaded(load)
        here = [host.passes(host.here, long, packets=3) for long in LONGS]
        there = [host.passes(host.there, long) for long in LONGS[:2]]
        host.probe.read()
    places = [
        {"device": DEVICE, "netns": str(NETNS), "queue": 0, "vm": NAME},
        {"device": DEVICE, "netns": str(OTHER_NETNS), "queue": 1, "vm": NAME},
    ]
    rows = host.probe.rows("queues")
    nothing = {"deferred": 0, "polled_batches": 0, "polled_packets": 0}
    assert sorted(rows, key=lambda row: int(row["queue"])) == [
        {**places[0], "interrupts": 4, "packets": 12, "coalesced": 8, **nothing},
        {**places[1], "interrupts": 2, "packets": 2, "coalesced": 0, **nothing},
    ]
    assert host.probe.counters() == {"interrupts": 6}
    found = {(one["queue"], one["stage"]): one for one in host.probe.histograms("stages")}
    assert len(found) == 10
    for place, passed in zip(places, (here, there), strict=True):
        of_queue = {stage: one for (queue, stage), one in found.items() if queue == place["queue"]}
        for one in of_queue.values():
            assert {name: one[name] for name in place} == place and one["count"] == len(passed)
        for number, stage in enumerate(STAGES):
            assert lies(of_queue[stage]["sum"], *(one.stages[number] for one in passed)), stage
        assert lies(of_queue["total"]["sum"], *(one.total for one in passed))
    events = host.probe.events()
    assert len(events) == 6
    for event, passed_one, tap, place, packets in [
        *((event, one, host.here, places[0], 3) for event, one in zip(events[:4], here, strict=True)),
        *((event, one, host.there, places[1], 1) for event, one in zip(events[4:], there, strict=True)),
    ]:
        assert {name: event[name] for name in place} == place
        assert (event["gsi"], event["apic"], event["vector"]) == (tap.gsi, APIC, VECTOR)
        assert event["packets"] == packets
        for field, span in zip(FIELDS, passed_one.stages, strict=True):
            assert lies(event[field], span), field
        assert lies(event["total_ns"], passed_one.total)
        assert lies(event["mono_ns"], passed_one.points[-1])
    assert {name: count for name, count in host.probe.ledger().items() if name not in ("seen", "submitted")} == {}


def test_without_s5_an_interrupt_is_followed_to_kvm(load: Load) -> None:
    """As on arm64. What S5 would tell is unknown, and nothing else is."""
    probe = load(PROBE, {**FUNCTIONS, "s4": "heard_last", "s5": "", "deferred": ""})
    probe.set("details", events_per_s=1e6, threshold_us=0)
    assert [one["name"] for one in probe.running.missing] == ["s5", "deferred"]
    host = Interrupts(probe, DEVICE, (os.getpid(), os.getpid()))
    passed = []
    with machine():
        for long in LONGS:
            points = [host.offered(host.here, 3)]
            for step, length in zip((host.given, host.told, host.heard), long, strict=False):
                wait(length)
                points.append(step(host.here))
            passed.append(Passed(points))
        host.heard(host.here)  # of nothing that is followed
        host.probe.read()
    place = {"device": DEVICE, "netns": str(NETNS), "queue": 0, "vm": NAME}
    counted = {"interrupts": 4, "packets": 12, "coalesced": 8, "polled_batches": 0, "polled_packets": 0}
    assert host.probe.rows("queues") == [{**place, **counted}]
    assert host.probe.counters() == {"interrupts": 4}
    found = {one["stage"]: one for one in host.probe.histograms("stages")}
    assert sorted(found) == sorted(STAGES[:3])
    for number, stage in enumerate(STAGES[:3]):
        assert found[stage]["count"] == 4
        assert lies(found[stage]["sum"], *(one.stages[number] for one in passed)), stage
    assert host.probe.events() == []
    assert host.probe.ledger() == {}


@pytest.mark.proves("irq_path", "tables.queues.{deferred,coalesced,packets,interrupts,polled_batches,polled_packets}")
def test_what_comes_before_it_has_arrived(load: Load) -> None:
    """A kernel worker delivers it, and a batch that comes until then is served as well; then one that is polled."""
    host = loaded(load)
    host.memory.change("kvm_kernel_irqfd", host.here.lines[RX], {"irq_entry.type": 0})
    first = host.offered(host.here, 2)
    host.given(host.here)
    host.told(host.here)
    host.heard(host.here)
    host.offered(host.here, 3)
    host.given(host.here)
    wait(2)
    host.deferred(host.here)
    last = host.accepted()
    host.offered(host.here, 4)
    host.given(host.here)  # no signal: the guest polls
    host.passes(host.there)
    host.offered(host.here, 1)
    host.given(host.here)
    host.probe.read()
    row = next(row for row in host.probe.rows("queues") if row["queue"] == 0)
    names = ("interrupts", "packets", "coalesced", "deferred", "polled_batches", "polled_packets")
    assert [row[name] for name in names] == [1, 5, 4, 1, 1, 4]
    event = host.probe.events()[0]
    assert lies(event["total_ns"], elapsed(first, last)) and event["packets"] == 5
    assert "join_missed" not in host.probe.ledger()


@pytest.mark.proves("irq_path", "knobs.{device,netns}", "modes.summary", "modes.details")
def test_filters_and_modes(load: Load) -> None:
    host = loaded(load)
    check_filters(host, host.passes, grows="interrupts")


@pytest.mark.proves("irq_path", "knobs.threshold_us")
def test_events_are_those_above_the_threshold(load: Load) -> None:
    """Some a little faster, some a little slower. A machine that is late makes more of them slow."""
    host = loaded(load)
    host.probe.set("details", events_per_s=1e6, threshold_us=22_000)
    passed = [host.passes(host.here, (length, 0, 0, 0)) for length in (18, 24, 18, 24)]
    host.probe.read()
    events = host.probe.events()
    spans = [one.total for one in passed]
    assert sum(least > 22 * MS for least, _ in spans) <= len(events) <= sum(most > 22 * MS for _, most in spans)
    assert all(event["total_ns"] > 22 * MS for event in events) and len(events) >= 2


@pytest.mark.proves("irq_path", "knobs.events_per_s", "ledger.suppressed")
def test_events_keep_their_budget(load: Load) -> None:
    host = loaded(load)
    host.probe.read()
    host.probe.set("details", threshold_us=0, events_per_s=100)
    began = time.monotonic_ns()
    for _ in range(MANY):
        host.passes(host.here)
    earned = (time.monotonic_ns() - began) * 100 / 1e9
    host.probe.read()
    made = host.probe.ledger()
    assert made["seen"] == MANY == made["submitted"] + made["suppressed"]
    assert 25 <= made["submitted"] <= 25 + earned + 1
    assert len(host.probe.events()) == made["submitted"]


@pytest.mark.proves("irq_path", "ledger.map_full")
def test_a_full_table(load: Load) -> None:
    host = loaded(load, queues=1)
    for _ in range(3):
        host.passes(host.here)
    for _ in range(5):
        host.passes(host.there)
    host.probe.read()
    assert [row["interrupts"] for row in host.probe.rows("queues")] == [3]
    assert host.probe.ledger()["map_full"] == 5


@pytest.mark.proves("irq_path", "ledger.join_missed")
def test_what_cannot_be_joined(load: Load) -> None:
    """A packet that nobody saw come; a signal that never arrives; a kernel worker that delivers nothing."""
    host = loaded(load)

    def missed() -> int:
        host.probe.read()
        return host.probe.ledger().get("join_missed", 0)

    host.ran("received", host.here.sock, host.message(host.to_tap(host.here)))
    host.given(host.here)
    assert missed() == 1
    for step in (host.given, host.told):
        host.offered(host.here)
        step(host.here)
    host.offered(host.here)
    host.given(host.here)
    assert missed() == 2
    host.accepted()
    host.passes(host.there)
    assert missed() == 2
    assert host.probe.counters() == {"interrupts": 1}


@pytest.mark.proves("irq_path", "knobs.netns", "ledger.join_missed", "histograms.stages")
@pytest.mark.proves("irq_path", "tables.queues.{polled_batches,polled_packets}", "counters.interrupts")
@pytest.mark.parametrize("is_signalled", [False, True])
def test_an_interrupt_of_a_queue_that_is_left_out_is_not_that_of_a_batch_before(load: Load, is_signalled: bool) -> None:
    """The batch before the filter was polled, or its signal has not arrived."""
    host = loaded(load)
    host.offered(host.here, 2)
    host.given(host.here)
    if is_signalled:
        host.told(host.here)
    host.probe.set("details", events_per_s=1e6, threshold_us=0, netns=OTHER_NETNS)
    for _ in range(2):
        host.passes(host.here)
    host.probe.read()
    rows = [(row["polled_batches"], row["polled_packets"]) for row in host.probe.rows("queues")]
    assert rows == ([] if is_signalled else [(1, 2)])
    assert host.probe.counters() == {"interrupts": 0} and host.probe.histograms("stages") == []
    assert host.probe.ledger() == ({"join_missed": 1} if is_signalled else {})


@pytest.mark.proves("irq_path", "ledger.join_missed", "histograms.stages", "counters.interrupts")
@pytest.mark.proves("irq_path", "tables.queues.{polled_batches,polled_packets}")
@pytest.mark.parametrize("is_signalled", [False, True])
def test_the_signal_of_a_batch_whose_first_packet_is_unknown_is_not_that_of_the_batch_before(
    load: Load, is_signalled: bool
) -> None:
    """Such a packet came by XDP, or its stamp was evicted."""
    host = loaded(load)
    host.offered(host.here, 2)
    host.given(host.here)
    if is_signalled:
        host.told(host.here)
    host.ran("received", host.here.sock, host.message(host.to_tap(host.here) | 1))
    for step in (host.given, host.told, host.heard):
        step(host.here)
    host.accepted()
    host.probe.read()
    rows = [(row["polled_batches"], row["polled_packets"]) for row in host.probe.rows("queues")]
    assert rows == ([] if is_signalled else [(1, 2)])
    assert host.probe.counters() == {"interrupts": 0} and host.probe.histograms("stages") == []
    assert host.probe.ledger() == {"join_missed": 2 if is_signalled else 1}


@pytest.mark.proves("irq_path", "ledger.join_missed", "histograms.stages", "counters.interrupts")
def test_an_interrupt_at_once_is_not_the_one_that_a_kernel_worker_could_not_deliver(load: Load) -> None:
    """Its line was masked. The signal after it is delivered at once; then all is as usual."""
    host = loaded(load)
    host.memory.change("kvm_kernel_irqfd", host.here.lines[RX], {"irq_entry.type": 0})
    host.offered(host.here)
    for step in (host.given, host.told, host.heard, host.deferred):
        step(host.here)
    host.memory.change("kvm_kernel_irqfd", host.here.lines[RX], {"irq_entry.type": MSI})
    host.passes(host.here)
    host.probe.read()
    assert host.probe.counters() == {"interrupts": 0} and host.probe.histograms("stages") == []
    assert host.probe.ledger() == {"join_missed": 1}
    passed = host.passes(host.here)
    host.probe.read()
    (total,) = [one for one in host.probe.histograms("stages") if one["stage"] == "total"]
    assert total["count"] == 1 and lies(total["sum"], passed.total)


@pytest.mark.proves("irq_path", "histograms.stages", "counters.interrupts")
@pytest.mark.parametrize("route", [0, 1])
def test_what_a_thread_accepts_next_is_not_of_a_line_that_is_never_delivered_at_once(load: Load, route: int) -> None:
    """Such as its own timer: the kernel worker delivers that of the line."""
    host = loaded(load)
    host.memory.change("kvm_kernel_irqfd", host.here.lines[RX], {"irq_entry.type": route})
    first = host.offered(host.here)
    for step in (host.given, host.told, host.heard):
        step(host.here)
    host.accepted()
    wait(2)
    host.deferred(host.here)
    last = host.accepted()
    host.probe.read()
    (total,) = [one for one in host.probe.histograms("stages") if one["stage"] == "total"]
    assert total["count"] == 1 and lies(total["sum"], elapsed(first, last))


@pytest.mark.proves("irq_path", "ledger.join_missed")
def test_a_kernel_worker_that_runs_twice_has_delivered_nothing_at_first(load: Load) -> None:
    host = loaded(load)
    host.memory.change("kvm_kernel_irqfd", host.here.lines[RX], {"irq_entry.type": 0})
    host.offered(host.here)
    for step in (host.given, host.told, host.heard, host.deferred, host.deferred):
        step(host.here)
    host.probe.read()
    assert host.probe.ledger().get("join_missed") == 1
    assert host.probe.row("queues")["deferred"] == 1 and host.probe.counters() == {"interrupts": 0}


@pytest.mark.proves("irq_path", "ledger.lost")
def test_events_for_which_there_is_no_room(load: Load) -> None:
    """The smallest ring, of one page, and nobody reads."""
    host = loaded(load, nc_events=4096)
    for _ in range(MANY):
        host.passes(host.here)
    host.probe.read()
    made, received = host.probe.ledger(), len(host.probe.events())
    assert made["seen"] == MANY == made["submitted"] + made["lost"]
    assert 0 < received == made["submitted"] < MANY


@pytest.mark.proves("irq_path", "ledger.breaker")
def test_details_that_the_breaker_ends(load: Load) -> None:
    """With next to no time for them, after the first ones no event is made; it takes 64 runs to find that out."""
    host = loaded(load)
    host.probe.running.bound(1e-6)
    for _ in range(3 * MANY):
        host.passes(host.here)
    host.probe.read()
    made = host.probe.ledger()
    assert made["seen"] == 3 * MANY == made["submitted"] + made["suppressed"]
    assert made["breaker"] == made["suppressed"] > 0
    assert len(host.probe.events()) == made["submitted"]


def of_one_set(count: int) -> list[int]:
    """Addresses of packets that share one set of the table of S1 (stamps_of)."""
    addresses = range(0xFFFF_8881_0000_0000, 0xFFFF_8882_0000_0000, 256)
    return list(islice((one for one in addresses if one * 0x9E37_79B9_7F4A_7C15 % 2**64 >> 51 == 77), count))


def known(host: Interrupts, came: dict[int, Span]) -> list[int]:
    """Of which packets S1 is known: each one, alone in its batch, passes the other points. Its time has to be right."""
    found = []
    for packet, span in came.items():
        host.probe.read()
        host.ran("received", host.here.sock, host.message(packet))
        for step in (host.given, host.told, host.heard):
            step(host.here)
        ended = host.accepted()
        host.probe.read()
        events = host.probe.events()
        assert all(lies(event["total_ns"], elapsed(span, ended)) for event in events)
        found += [packet] * len(events)
    return found


def test_the_oldest_of_more_packets_than_a_set_has_room_for_is_left_out(load: Load) -> None:
    host = loaded(load)
    packets = of_one_set(7)
    came = {packet: host.ran("s1", packet, host.here.device) for packet in packets}
    assert known(host, came) == packets[-4:]
    assert host.probe.ledger()["join_missed"] == 3


def test_a_packet_takes_its_own_place_or_a_free_one_before_another_ones(load: Load) -> None:
    host = loaded(load)
    first, second, third, fourth, fifth = of_one_set(5)
    came = {one: host.ran("s1", one, host.here.device) for one in (first, second, third, fourth)}
    came[second] = host.ran("s1", second, host.here.device)
    assert known(host, {third: came.pop(third)}) == [third]
    came[fifth] = host.ran("s1", fifth, host.here.device)
    assert known(host, came) == [first, second, fourth, fifth]
    assert known(host, {first: came[first]}) == []


@pytest.mark.proves("irq_path", "ledger.join_missed", "tables.queues.{coalesced,packets}")
@pytest.mark.parametrize(
    ("name", "netns", "queue"),
    [("tap-of-vm-1", NETNS, 1), ("tap-of-vm-2", NETNS, 0), ("our-of-vm-1", NETNS, 0), ("tap-of-vm-1", OTHER_NETNS, 0)],
)
def test_a_signal_that_another_queue_has_now_serves_no_batch_of_it(
    load: Load, name: str, netns: int, queue: int
) -> None:
    """A machine ended before its interrupt arrived; the kernel gave the address of its eventfd to another one's."""
    host = loaded(load)
    gone = Tap(host, "tap-of-vm-1", host.net(NETNS), 0, 1)
    now = Tap(host, name, host.net(netns), queue, 2)
    now.calls = gone.calls
    host.memory.change("kvm_kernel_irqfd", gone.lines[RX], {"irq_entry.type": 0})
    host.memory.put(now.rx + QUEUE["call_ctx"], gone.calls[RX].to_bytes(8, sys.byteorder))
    host.memory.change("kvm_kernel_irqfd", now.lines[RX], {"eventfd": gone.calls[RX]})
    host.offered(gone, 5)
    for step in (host.given, host.told, host.heard):
        step(gone)
    host.passes(now, packets=2)
    host.probe.read()
    row = host.probe.row("queues")
    names = ("device", "netns", "queue", "interrupts", "packets", "coalesced")
    assert [row[one] for one in names] == [name, str(netns), queue, 1, 2, 1]
    assert host.probe.ledger()["join_missed"] == 1
