"""The live balance begins when drops are first watched, and a probe that begins again does not spoil it."""

from __future__ import annotations

from typing import Any

from netconsole.snapshot.balance_watch import BEGINS_AFTER, BalanceWatch
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Count, Row
from netconsole.telemetry.state import State
from tests.unit.telemetry.test_state import SECOND, Stream

LINK = {"device": "eth0", "netns": "host", "qdisc": "tbf"}
DROP = {"reason": "QDISC_DROP", "location": "f", "device": "eth0", "netns": "host", "protocol": "UDP"}


def table(stream: Stream, probe: str, name: str, labels: dict[str, Any], **totals: int) -> None:
    counts = {value: Count(delta=0, total=total) for value, total in totals.items()}
    row = Row(labels=labels, counts=counts)
    stamp = {**stream.stamp(), "probe": probe}
    stream.state.apply(frames.Table(**stamp, name=name, interval_ns=SECOND, full=False, rows=[row]))


def mode(stream: Stream, name: frames.Mode) -> None:
    stream.state.apply(frames.Status(**stream.stamp("kernel_drops"), state="attached", mode=name))


def ledger(stream: Stream, **totals: int) -> None:
    counts = {name: Count(delta=0, total=total) for name, total in totals.items()}
    stream.state.apply(frames.Cost(**stream.stamp("kernel_drops"), interval_ns=SECOND, ledger=counts))


def drops(stream: Stream, total: int) -> None:
    mode(stream, "summary")
    count = {"drops": Count(delta=0, total=total)}
    stamp = {**stream.stamp(), "probe": "kernel_drops"}
    stream.state.apply(frames.Counters(**stamp, interval_ns=SECOND, values=count))
    table(stream, "kernel_drops", "drops", DROP, count=total)


def told(watch: BalanceWatch, stream: Stream) -> list[tuple[str, int, int]]:
    watch.update(stream.state)
    return [(row.stage, row.dropped, row.unexplained) for row in watch.of(stream.state)]


def begun(watch: BalanceWatch, stream: Stream) -> None:
    for _ in range(BEGINS_AFTER):
        stream.end()
        watch.update(stream.state)


def test_what_the_kernels_counter_says_late_at_the_beginning_is_no_gap() -> None:
    """A loss of 10/s that goes on: the counter is read once in three seconds, the probe each second."""
    stream, watch = Stream(State()), BalanceWatch()
    stream.hello()
    for second in range(12):
        if second % 3 == 0:
            table(stream, "link_rates", "links", LINK, qdisc_drops=1000 + 10 * second)
        if second >= 2:
            drops(stream, 10 * (second - 2))
        stream.end()
        watch.update(stream.state)
    assert told(watch, stream) == [("qdisc", 30, 0)]
    table(stream, "link_rates", "links", LINK, qdisc_drops=1000 + 10 * 12 + 100)
    stream.end()
    assert told(watch, stream) == [("qdisc", 160, 70)], "what it misses later is one"


def test_a_replay_that_jumps_back_begins_again_there() -> None:
    late, watch = Stream(State()), BalanceWatch()
    late.mono_ns *= 2
    late.hello()
    table(late, "link_rates", "links", LINK, qdisc_drops=500)
    drops(late, 400)
    late.end()
    assert told(watch, late) == []
    early = Stream(State())
    early.hello()
    table(early, "link_rates", "links", LINK, qdisc_drops=100)
    drops(early, 80)
    early.end()
    assert told(watch, early) == []
    begun(watch, early)
    table(early, "link_rates", "links", LINK, qdisc_drops=130)
    drops(early, 105)
    early.end()
    assert told(watch, early) == [("qdisc", 30, 5)]


def test_it_begins_when_drops_are_watched() -> None:
    stream, watch = Stream(State()), BalanceWatch()
    stream.hello()
    table(stream, "link_rates", "links", LINK, qdisc_drops=500)
    assert told(watch, stream) == [("qdisc", 500, 500)]
    drops(stream, 0)
    assert told(watch, stream) == []
    begun(watch, stream)
    table(stream, "link_rates", "links", LINK, qdisc_drops=540)
    drops(stream, 30)
    assert told(watch, stream) == [("qdisc", 40, 10)]
    table(stream, "link_rates", "links", LINK, qdisc_drops=7)
    drops(stream, 30)
    assert told(watch, stream) == [("qdisc", 7, 0)]


def lasting(stream: Stream, watch: BalanceWatch, lost: int, seen: int) -> None:
    """It has begun, and then this much was lost and seen."""
    table(stream, "link_rates", "links", LINK, qdisc_drops=0)
    drops(stream, 0)
    begun(watch, stream)
    table(stream, "link_rates", "links", LINK, qdisc_drops=lost)
    drops(stream, seen)
    stream.end()


def test_it_begins_anew_when_the_probe_comes_back_from_mode_counters() -> None:
    """What it counts meanwhile is in no row, and would be unexplained for the rest of the session."""
    stream, watch = Stream(State()), BalanceWatch()
    stream.hello()
    lasting(stream, watch, 50, 50)
    mode(stream, "counters")
    table(stream, "link_rates", "links", LINK, qdisc_drops=5050)
    ledger(stream, unlisted=5000)
    stream.end()
    assert told(watch, stream) == [], "nothing can be said"
    drops(stream, 50)
    stream.end()
    assert told(watch, stream) == []
    begun(watch, stream)
    table(stream, "link_rates", "links", LINK, qdisc_drops=5150)
    drops(stream, 143)
    stream.end()
    assert told(watch, stream) == [("qdisc", 100, 7)]
    assert [row.hidden_by for row in watch.of(stream.state)] == [[]], "what was not listed is over"


def test_it_begins_when_the_probe_that_only_counted_lists_what_it_sees() -> None:
    stream, watch = Stream(State()), BalanceWatch()
    stream.hello()
    drops(stream, 0)
    mode(stream, "counters")
    table(stream, "link_rates", "links", LINK, qdisc_drops=900)
    for _ in range(2):
        begun(watch, stream)
    table(stream, "link_rates", "links", LINK, qdisc_drops=3000)
    drops(stream, 0)
    assert told(watch, stream) == []


def test_what_the_probe_does_not_list_is_unknown() -> None:
    stream, watch = Stream(State()), BalanceWatch()
    stream.hello()
    ledger(stream, unlisted=70)
    lasting(stream, watch, 200, 50)
    ledger(stream, unlisted=70 + 149)
    assert told(watch, stream) == [("qdisc", 200, 150)]
    assert [row.hidden_by for row in watch.of(stream.state)] == [[]], "what it did not list before has no part in it"
    ledger(stream, unlisted=70 + 150)
    assert told(watch, stream) == [("qdisc", 200, 150)]
    assert [row.hidden_by for row in watch.of(stream.state)] == [["unlisted"]]


def test_a_mode_that_changes_and_comes_back_within_an_interval_leaves_nothing_unexplained() -> None:
    stream, watch = Stream(State()), BalanceWatch()
    stream.hello()
    lasting(stream, watch, 200, 50)
    mode(stream, "counters")
    mode(stream, "summary")
    ledger(stream, unlisted=150)
    stream.end()
    assert told(watch, stream) == [("qdisc", 200, 150)]
    assert [row.hidden_by for row in watch.of(stream.state)] == [["unlisted"]]
