"""tx_kick_path on kicks, runs and packets of the test's own: each stage, each row, each event, and each loss."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.support.live.contexts.filters import NETNS, OTHER_NETNS
from tests.support.live.contexts.machines import DEVICE, NAME, machine
from tests.support.live.contexts.memory import place_of
from tests.support.live.contexts.moments import MS, Span, elapsed, lies, wait
from tests.support.live.contexts.taps import KICK_AT, TX, Tap, Taps, check_filters
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.vhost_types import QUEUE

PROBE = "tx_kick_path"
Load = Callable[..., UnattachedProbe]
FUNCTIONS = {"k3": "handed_over", "end": "ended", "k1": "kicked", "k2": "begun"}
STAGES = ("K1-K2", "K2-K3", "K3-K4")
FIELDS = ("k1_k2_ns", "k2_k3_ns", "k3_k4_ns")
LONGS = ((3, 1, 2), (1, 3, 1.5), (2, 1.5, 3))
TUN_MSG_PTR = 2  # include/linux/if_tun.h
BATCH, MANY = 7, 60


class Kicks(Taps):
    def kicked(self, tap: Tap) -> Span:
        device = tap.ioeventfd + place_of("_ioeventfd", "dev")[0]
        queue = self.memory.pointers("tun_file", tap.file, "queue_index")[0]
        return self.ran("k1", tap.vcpu, device, KICK_AT + queue, 2, tap.written)

    def begun(self, tap: Tap) -> Span:
        return self.ran("k2", tap.work(TX))

    def handed_over(self, tap: Tap, packets: int = 1) -> Span:
        message = self.message()
        if packets > 1:
            control = self.memory.make("tun_msg_ctl", {"type": TUN_MSG_PTR, "num": packets})
            message = self.message(control, 16)
        return self.ran("k3", tap.sock, message)

    def in_stack(self, tap: Tap) -> Span:
        return self.ran("k4", self.to_tap(tap))

    def ended(self) -> Span:
        return self.ran("end")

    def passes(self, tap: Tap, long: tuple[float, ...] = (0, 0, 0), kicks: int = 1) -> list[Span]:
        """When it passed its points."""
        first, *_ = [self.kicked(tap) for _ in range(kicks)]
        points = [first]
        for step, length in zip((self.begun, self.handed_over, self.in_stack), long, strict=True):
            wait(length)
            points.append(step(tap))
        self.ended()
        return points


def stages_of(points: list[Span]) -> list[Span]:
    return [elapsed(began, ended) for began, ended in pairwise(points)]


def loaded(load: Load, **room: int) -> Kicks:
    probe = load(PROBE, FUNCTIONS, **room)
    probe.set("details", events_per_s=1e6, threshold_us=0)
    return Kicks(probe, DEVICE)


@pytest.mark.proves("tx_kick_path", "histograms.stages", "histograms.stages.{device,netns,queue,stage,vm}")
@pytest.mark.proves("tx_kick_path", "events.run.{mono_ns,k1_k2_ns,k2_k3_ns,k3_k4_ns,total_ns}")
@pytest.mark.proves("tx_kick_path", "events.run.{device,netns,queue,worker,kicks}", "modes.details", "counters.runs")
@pytest.mark.proves("tx_kick_path", "tables.queues.{device,netns,queue,vm,runs,kicks,packets,batches}")
def test_each_stage_takes_as_long_as_it_took(load: Load) -> None:
    with machine():
        host = loaded(load)
        here = [host.passes(host.here, long, kicks=3) for long in LONGS]
        there = [host.passes(host.there, long) for long in LONGS[:2]]
        host.probe.read()
    places = [
        {"device": DEVICE, "netns": str(NETNS), "queue": 0, "vm": NAME},
        {"device": DEVICE, "netns": str(OTHER_NETNS), "queue": 1, "vm": NAME},
    ]
    nothing = {"unseen": 0, "continued_runs": 0, "continued_packets": 0}
    assert sorted(host.probe.rows("queues"), key=lambda row: int(row["queue"])) == [
        {**places[0], "runs": 3, "kicks": 9, "packets": 3, "batches": 3, **nothing},
        {**places[1], "runs": 2, "kicks": 2, "packets": 2, "batches": 2, **nothing},
    ]
    assert host.probe.counters() == {"runs": 5}
    found = {(one["queue"], one["stage"]): one for one in host.probe.histograms("stages")}
    assert len(found) == 8
    for place, passed in zip(places, (here, there), strict=True):
        of_queue = {stage: one for (queue, stage), one in found.items() if queue == place["queue"]}
        for one in of_queue.values():
            assert {name: one[name] for name in place} == place and one["count"] == len(passed)
        for number, stage in enumerate(STAGES):
            assert lies(of_queue[stage]["sum"], *(stages_of(one)[number] for one in passed)), stage
        assert lies(of_queue["total"]["sum"], *(elapsed(one[0], one[-1]) for one in passed))
    events = host.probe.events()
    expected = [(one, places[0], 3) for one in here] + [(one, places[1], 1) for one in there]
    for event, (points, place, kicks) in zip(events, expected, strict=True):
        assert {name: event[name] for name in place} == place
        assert event["kicks"] == kicks and f"({os.getpid()})" in event["worker"]
        for field, span in zip(FIELDS, stages_of(points), strict=True):
            assert lies(event[field], span), field
        assert lies(event["total_ns"], elapsed(points[0], points[-1])) and lies(event["mono_ns"], points[-1])
    assert host.probe.ledger() == {"seen": 5, "submitted": 5}


@pytest.mark.proves("tx_kick_path", "tables.queues.{unseen,continued_runs,continued_packets,packets,batches,kicks}")
def test_runs_of_other_kinds(load: Load) -> None:
    """A batch; a kick for nothing; a packet that never reaches the stack; a run that goes on without a kick."""
    host = loaded(load)
    tap = host.here
    host.kicked(tap)
    host.begun(tap)
    host.handed_over(tap, BATCH)
    host.in_stack(tap)
    host.in_stack(tap)
    host.handed_over(tap, 2)
    host.ended()
    for packets in (0, 4):
        host.kicked(tap)
        host.begun(tap)
        if packets:
            host.handed_over(tap, packets)
        host.ended()
    for packets in (5, 6):
        host.begun(tap)
        host.handed_over(tap, packets)
        host.in_stack(tap)
        host.ended()
    host.probe.read()
    row = host.probe.row("queues")
    names = ("runs", "kicks", "packets", "batches", "unseen", "continued_runs", "continued_packets")
    assert [row[name] for name in names] == [1, 3, BATCH + 2 + 4, 5, 2, 2, 5 + 6]
    assert host.probe.counters() == {"runs": 1}


@pytest.mark.proves("tx_kick_path", "ledger.join_missed", "tables.queues.runs", "counters.runs")
def test_a_run_whose_end_was_missed_is_in_the_ledger_and_in_no_row(load: Load) -> None:
    host = loaded(load)
    for _ in range(2):
        host.kicked(host.here)
        host.begun(host.here)
        host.handed_over(host.here)
        host.in_stack(host.here)
    host.ended()
    host.passes(host.here)
    host.probe.read()
    assert host.probe.row("queues")["runs"] == 2 and host.probe.counters() == {"runs": 2}
    assert host.probe.ledger()["join_missed"] == 1


@pytest.mark.proves("tx_kick_path", "tables.queues.{continued_runs,continued_packets}")
@pytest.mark.parametrize("queued_again", [True, False])
def test_a_queue_that_is_never_empty_has_no_kicks_and_that_is_no_other_layout(load: Load, queued_again: bool) -> None:
    """vhost queues its runs itself, and tells the guest not to kick. Runs without a kick are suspicious otherwise."""
    host = loaded(load)
    tap = host.here
    host.memory.put(tap.tx + QUEUE["used_flags"], bytes([queued_again, 0]))
    for _ in range(MANY):
        host.begun(tap)
        host.handed_over(tap, BATCH)
        host.ended()
    host.probe.read()
    rows = [(row["continued_runs"], row["continued_packets"]) for row in host.probe.rows("queues")]
    assert rows == ([(MANY, MANY * BATCH)] if queued_again else [])
    assert host.probe.running.detach_failed_checks() != queued_again


@pytest.mark.proves("tx_kick_path", "tables.queues.{runs,unseen}", "histograms.stages")
def test_a_later_packet_is_not_taken_for_the_first_one(load: Load) -> None:
    """The first one is dropped before the stack. What comes then is of the same run, and its time would be false."""
    host = loaded(load)
    host.kicked(host.here)
    host.begun(host.here)
    host.handed_over(host.here)
    wait(5)
    host.handed_over(host.here)
    host.in_stack(host.here)
    host.ended()
    host.probe.read()
    row = host.probe.row("queues")
    assert (row["runs"], row["unseen"], row["packets"]) == (0, 1, 2)
    assert host.probe.histograms("stages") == [] and host.probe.counters() == {"runs": 0}


@pytest.mark.proves("tx_kick_path", "knobs.seen_pct", "events.run.kicks", "tables.queues.kicks")
@pytest.mark.parametrize("again", [True, False])
def test_kicks_of_before_a_rest_are_of_no_run_after_it(load: Load, again: bool) -> None:
    host = loaded(load)
    for _ in range(3):
        host.kicked(host.here)
    host.probe.rest()
    host.probe.wake()
    if again:
        host.passes(host.here, kicks=2)
    else:
        host.begun(host.here)  # of the kicks before
        host.ended()
    host.probe.read()
    row = host.probe.row("queues")
    assert (row["kicks"], row["runs"], row["continued_runs"]) == ((2, 1, 0) if again else (0, 0, 1))
    assert [event["kicks"] for event in host.probe.events()] == ([2] if again else [])


@pytest.mark.proves("tx_kick_path", "knobs.seen_pct")
def test_runs_of_a_rest_are_no_other_layout(load: Load) -> None:
    """While programs are attached one after the other, kicks are not noted, and neither must runs be missing theirs."""
    host = loaded(load)
    host.probe.rest()
    for _ in range(MANY):
        host.kicked(host.here)
        host.begun(host.here)
        host.ended()
    assert not host.probe.running.detach_failed_checks()
    host.probe.wake()
    host.passes(host.here)
    host.probe.read()
    assert host.probe.row("queues")["runs"] == 1


@pytest.mark.proves("tx_kick_path", "knobs.netns", "tables.queues.{kicks,runs}", "histograms.stages")
@pytest.mark.parametrize("why", ["filter", "no backend", "another backend"])
def test_kicks_of_a_run_that_was_left_out_are_of_no_later_one(load: Load, why: str) -> None:
    host = loaded(load)
    tap = host.here
    backend = {"no backend": 0, "another backend": host.memory.make("tun_file", {})}.get(why, tap.sock)
    host.memory.put(tap.tx + QUEUE["private_data"], backend.to_bytes(8, sys.byteorder))
    host.probe.set("summary", netns=OTHER_NETNS if why == "filter" else 0)
    host.passes(tap, kicks=3)
    wait(5)
    host.probe.set("summary")
    host.memory.put(tap.tx + QUEUE["private_data"], tap.sock.to_bytes(8, sys.byteorder))
    points = host.passes(tap, kicks=2)
    host.probe.read()
    row = host.probe.row("queues")
    assert (row["kicks"], row["runs"], row["continued_runs"]) == (2, 1, 0)
    (total,) = [one for one in host.probe.histograms("stages") if one["stage"] == "total"]
    assert total["count"] == 1 and lies(total["sum"], elapsed(points[0], points[-1]))


@pytest.mark.proves("tx_kick_path", "tables.queues.kicks")
def test_what_another_eventfd_is_meant_with_is_no_kick(load: Load) -> None:
    """KVM asks each one at an address: by the address, the length, and the value that is written."""
    host = loaded(load)
    tap = host.here
    device = tap.ioeventfd + place_of("_ioeventfd", "dev")[0]
    two = host.memory.keep(b"\2".ljust(8, b"\0"))
    for address, length, value in ((KICK_AT + 9, 2, tap.written), (KICK_AT, 4, tap.written), (KICK_AT, 2, two)):
        host.ran("k1", tap.vcpu, device, address, length, value)
    host.passes(tap)
    host.probe.read()
    assert host.probe.row("queues")["kicks"] == 1


@pytest.mark.proves("tx_kick_path", "knobs.{device,netns}", "modes.summary", "modes.details")
def test_filters_and_modes(load: Load) -> None:
    host = loaded(load)
    check_filters(host, host.passes, grows="runs")


@pytest.mark.proves("tx_kick_path", "knobs.threshold_us")
def test_events_are_those_above_the_threshold(load: Load) -> None:
    """Some a little faster, some a little slower. A machine that is late makes more of them slow."""
    host = loaded(load)
    host.probe.set("details", events_per_s=1e6, threshold_us=22_000)
    passed = [host.passes(host.here, (length, 0, 0)) for length in (18, 24, 18, 24)]
    host.probe.read()
    events = host.probe.events()
    spans = [elapsed(one[0], one[-1]) for one in passed]
    assert sum(least > 22 * MS for least, _ in spans) <= len(events) <= sum(most > 22 * MS for _, most in spans)
    assert all(event["total_ns"] > 22 * MS for event in events) and len(events) >= 2


@pytest.mark.proves("tx_kick_path", "knobs.events_per_s", "ledger.suppressed")
def test_events_keep_their_budget(load: Load) -> None:
    host = loaded(load)
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


@pytest.mark.proves("tx_kick_path", "ledger.map_full")
def test_a_full_table(load: Load) -> None:
    host = loaded(load, queues=1)
    for _ in range(3):
        host.passes(host.here)
    for _ in range(5):
        host.passes(host.there)
    host.probe.read()
    assert [row["runs"] for row in host.probe.rows("queues")] == [3]
    assert host.probe.ledger()["map_full"] == 5


@pytest.mark.proves("tx_kick_path", "ledger.lost")
def test_events_for_which_there_is_no_room(load: Load) -> None:
    """The smallest ring, of one page, and nobody reads."""
    host = loaded(load, nc_events=4096)
    for _ in range(MANY):
        host.passes(host.here)
    host.probe.read()
    made, received = host.probe.ledger(), len(host.probe.events())
    assert made["seen"] == MANY == made["submitted"] + made["lost"]
    assert 0 < received == made["submitted"] < MANY


@pytest.mark.proves("tx_kick_path", "ledger.breaker")
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
