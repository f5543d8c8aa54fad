"""The ledger of ovs_upcalls: what it could not match, had no row for, or could not tell, is counted exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.lab.collector import InsideMeasurement
from tests.lab.network.ovs import NOBODY_S
from tests.lab.ovs.ends import Ends, events_of
from tests.support.live.ovs_frames import ICMP, ICMPV6, TCP, Frame

PROBE = "ovs_upcalls"
FRAME = Frame("10.9.0.1", "10.9.0.2")
EVERY_EVENT = {"threshold_us": 0, "events_per_s": 100_000, "unanswered_after_ms": 60_000}
TWINS, SAME = 8, 12
"""So many packets that are the same in all their headers can wait for an answer; so many are sent."""
ONE, TWO, THREE, FAILED = 3, 5, 7, 11
SENDER = 0x7F000001
SEGMENTS, SEGMENT_BYTES = 4, 500
EVENTS, AT_ONCE = 2500, 100
"""More than the ring of 256 kB can have."""


@pytest.mark.proves("ovs_upcalls", "ledger.join_missed", "counters.{answered,unasked,packets}")
def test_of_packets_that_are_the_same_only_so_many_are_told_apart(ends: Ends, collector: InsideMeasurement) -> None:
    """The others are in the ledger, and then nobody has asked for their answers."""
    collector.set(PROBE, unanswered_after_ms=20_000)
    collector.begin()
    with ends.stopped():
        ends.sender.send("a", [FRAME] * SAME, sender=SENDER)
        collector.settle()
        assert collector.ledger(PROBE, "join_missed") == SAME - TWINS
    collector.until(lambda: collector.counter(PROBE, "unasked") == SAME - TWINS, "the last answer")
    names = ("upcalls", "packets", "answered", "unasked", "late", "unanswered")
    assert [collector.counter(PROBE, name) for name in names] == [SAME, SAME, TWINS, SAME - TWINS, 0, 0]
    assert collector.ledger(PROBE, "join_missed") == SAME - TWINS


UNLIKE: dict[str, Callable[[int], Frame]] = {
    "identification": lambda one: replace(FRAME, number=one),
    "length": lambda one: replace(FRAME, payload=one),
    "flow label": lambda one: Frame("fd00::1", "fd00::2", number=one),
    "TCP sequence": lambda one: replace(FRAME, protocol=TCP, sequence=one),
    "TCP acknowledgement": lambda one: replace(FRAME, protocol=TCP, acknowledgement=one),
    "ICMP sequence": lambda one: replace(FRAME, protocol=ICMP, sequence=one),
    "ICMPv6 sequence": lambda one: Frame("fd00::1", "fd00::2", ICMPV6, sequence=one),
}
"""Packets of one flow that differ in one thing."""


@pytest.mark.proves("ovs_upcalls", "ledger.join_missed", "counters.{answered,unasked,packets}")
def test_packets_of_a_flow_are_told_apart_by_what_differs(ends: Ends, collector: InsideMeasurement) -> None:
    """More of them wait than of packets that are the same can."""
    collector.set(PROBE, unanswered_after_ms=20_000)
    collector.begin()
    with ends.stopped():
        for number, make in enumerate(UNLIKE.values(), SENDER + 1):
            ends.sender.send("a", [make(one) for one in range(1, SAME + 1)], sender=number)
    count = SAME * len(UNLIKE)
    collector.until(lambda: collector.counter(PROBE, "answered") == count, "each answer")
    assert collector.counter(PROBE, "upcalls") == collector.counter(PROBE, "packets") == count
    assert collector.counter(PROBE, "unasked") == collector.ledger(PROBE, "join_missed") == 0


@pytest.mark.proves("ovs_upcalls", "counters.{upcalls,packets,answered}", "tables.upcalls.{upcalls,packets,answered}")
def test_a_large_packet_is_one_upcall_and_each_segment_a_packet(ends: Ends, collector: InsideMeasurement) -> None:
    collector.set(PROBE, unanswered_after_ms=20_000)
    collector.begin()
    before = ends.hypervisor.counter("vb", "tx_packets")
    large = replace(FRAME, protocol=TCP, payload=SEGMENTS * SEGMENT_BYTES - 1)
    for cpu in range(2):
        ends.sender.send_large("a", large, SEGMENT_BYTES, cpu=cpu)
    collector.until(lambda: collector.counter(PROBE, "answered") == 2 * SEGMENTS, "each segment")
    (row,) = collector.rows(PROBE, "upcalls")
    for name, count in {"upcalls": 2, "packets": 2 * SEGMENTS, "answered": 2 * SEGMENTS}.items():
        assert collector.counter(PROBE, name) == row.counts[name] == count
    assert ends.hypervisor.counter("vb", "tx_packets") - before == 2 * SEGMENTS
    collector.assert_whole(PROBE)
    collector.begin()
    with ends.ovs.without_handlers(NOBODY_S):
        ends.sender.send_large("a", large, SEGMENT_BYTES, cpu=0)
        collector.settle()
    (row,) = collector.rows(PROBE, "upcalls")
    counted = {name: count for name, count in row.counts.items() if count}
    assert counted == {"upcalls": 1, "failed": 1}, "its first segment is refused, and no other is tried"


@pytest.mark.proves("ovs_upcalls", "ledger.map_full")
def test_each_row_that_a_table_has_no_room_for_is_in_the_ledger(ends: Ends, collector: InsideMeasurement) -> None:
    """Of each table one row. An upcall looks for its port's row when it is asked, handed over and answered."""
    rows = dict.fromkeys(("upcalls", "cpus", "handlers", "failures"), 1)
    name = collector.load_altered(PROBE, rows=rows, number=52)

    def full_after(place: str, count: int, cpu: int, answered_by: str) -> int:
        collector.begin()
        ends.sender.send(place, [FRAME] * count, cpu=cpu, answered_by=answered_by)
        collector.settle()
        assert collector.counter(name, "upcalls") == count
        return collector.ledger(name, "map_full")

    try:
        assert full_after("a", ONE, 0, "vb") == 0, "it has the only rows"
        assert full_after("b", TWO, 0, "va") == 3 * TWO, "no row of its port"
        without = 2 if ends.ovs.asks_by_cpu else 1
        assert full_after("a", THREE, 1, "vb") == without * THREE, "no row of the CPU, none of its handler"
        with ends.ovs.without_handlers():
            assert full_after("a", ONE, 0, "") == 0
            assert full_after("b", FAILED, 0, "") == 3 * FAILED, "asked, and failed, and the failure itself"
        (row,) = collector.all_rows(name, "failures")
        assert row.labels["port"] == "va"
    finally:
        collector.command(command="unload", probe=name)


@pytest.mark.proves("ovs_upcalls", "ledger.lost")
def test_events_that_nobody_reads_are_counted_as_lost(ends: Ends, collector: InsideMeasurement) -> None:
    collector.set(PROBE, "details", **EVERY_EVENT)
    collector.begin()
    ends.hypervisor.run("pkill", "-STOP", "-f", "netconsole_collector")
    try:
        before = ends.hypervisor.counter("vb", "tx_packets")
        for sent in range(AT_ONCE, EVENTS + 1, AT_ONCE):
            ends.sender.send("a", [FRAME] * AT_ONCE)
            while ends.hypervisor.counter("vb", "tx_packets") < before + sent:
                pass
    finally:
        ends.hypervisor.run("pkill", "-CONT", "-f", "netconsole_collector")
        ends.hypervisor.run("ovs-appctl", "revalidator/purge")
    collector.settle()
    came = len(events_of(collector, PROBE)) + collector.ledger(PROBE, "shed")
    print(f"{came} of {EVENTS} events came")
    answers = collector.counter(PROBE, "answered") + collector.counter(PROBE, "late")  # or no CPU in time
    assert answers == collector.event_count(PROBE, "seen") == EVENTS
    assert collector.ledger(PROBE, "lost") == EVENTS - came > 0
