"""STANDS OUT: one incident a cause, complete, exact, and never called ended while it goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netconsole.base import figure
from netconsole.base.timestamps import clock, utc
from netconsole.findings import incidents, saved_log
from netconsole.findings import matches as matches_module
from netconsole.findings.incident import document, told
from netconsole.findings.incidents import ENDED_SHOWN, Incidents
from netconsole.findings.match import Match, RowVerdict
from netconsole.findings.open_incident import LEAVES_AFTER, LEAVES_AFTER_LASTING, PAUSES
from netconsole.findings.rules import fits, say
from netconsole.findings.windows import SHORT, Windows
from netconsole.probes import catalogue
from netconsole.probes.manifest import Manifest
from netconsole.snapshot.document import ExampleData
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Buckets, Count, Row
from netconsole.telemetry.histogram import index
from netconsole.telemetry.session import Connection
from netconsole.telemetry.state import State
from tests.unit.telemetry.test_state import SECOND, Stream

ROOT = Path(__file__).parents[3]


def matches(state: State, manifests: dict[str, Manifest], *more: Any) -> list[Match]:
    """What stands out in the interval that has just ended."""
    windows = Windows(manifests)
    windows.update(state)
    return matches_module.matches(state, manifests, windows, *more)


def said(match: Match) -> str:
    return match.sentence(match.labels, match.value, None, False, False, False)


def drops(stream: Stream, delta: int, reason: str = "QDISC_DROP", kind: str = "suspicious", total: int = 100) -> None:
    row = Row(
        labels={"reason": reason, "class": kind, "provenance": "kernel"},
        counts={"count": Count(delta=delta, total=total)},
    )
    frame = frames.Table(**stream.stamp(), name="drops", interval_ns=SECOND, full=False, rows=[row])
    stream.state.apply(frame)


def nothing(stream: Stream) -> None:
    """The table is sent, and no row of it has moved."""
    stream.state.apply(frames.Table(**stream.stamp(), name="drops", interval_ns=SECOND, full=False, rows=[]))


def run(stream: Stream, findings: Incidents, intervals: int, delta: int = 0, **values: Any) -> list[str]:
    listed: list[str] = []
    for _ in range(intervals):
        if delta:
            drops(stream, delta, **values)
        else:
            nothing(stream)
        stream.end()
        listed = [one.sentence for one in findings.update(stream.state)]
    return listed


def test_what_is_large_appears_at_once(stream: Stream, manifests: dict[str, Manifest]) -> None:
    findings = Incidents(manifests)
    assert run(stream, findings, 1, 50) == ["50/s QDISC_DROP"]
    one = findings.update(stream.state)[0]
    assert (one.level, one.probe, one.ended_ns, one.next) == ("!", "p", None, ("Look there.",))
    assert one.history[-1:] == (50.0,)
    assert one.evidence[0].name == "drops"
    assert one.evidence[0].key in stream.state.probes["p"].tables["drops"].rows


def test_an_incident_has_the_latest_packet_of_its_largest_row_and_keeps_it(
    stream: Stream, manifests: dict[str, Manifest]
) -> None:
    """Rows of one cause at one place are one incident: here those of two directions."""
    manifest = manifests["p"]
    rules = tuple(replace(rule, cause="full", place=("reason",)) for rule in manifest.findings)
    findings = Incidents({"p": replace(manifest, findings=rules)})
    for second in (1, 2):
        rows = [
            Row(
                labels={"reason": "QDISC_DROP", "class": "suspicious", "hook": hook},
                counts={"count": Count(delta=delta, total=second * delta)},
                example={"mono_ns": stream.mono_ns, "source": f"192.0.2.{second}{delta}"} if has_packet else {},
            )
            for hook, delta, has_packet in (("out", 60, True), ("in", 50, True), ("none", 70, False))
        ]
        frame = frames.Table(**stream.stamp(), name="drops", interval_ns=SECOND, full=False, rows=rows)
        stream.state.apply(frame)
        stream.end()
        (one,) = findings.update(stream.state)
        assert one.example is not None and one.example.fields == {"source": f"192.0.2.{second}60"}
        came_ns = one.example.wall_ns
    run(stream, findings, LEAVES_AFTER)
    (one,) = findings.update(stream.state)
    assert one.ended_ns is not None and one.example is not None
    assert (one.example.wall_ns, one.example.text("source")) == (came_ns, "192.0.2.260")
    (told_so,) = document([one])
    assert told_so.example == ExampleData(utc(came_ns / 1e9), {"source": "192.0.2.260"})
    (again,) = saved_log.decode(saved_log.encode(findings.saved()))
    assert again.told().example == one.example


def test_an_incident_of_rows_without_a_packet_has_none(stream: Stream, manifests: dict[str, Manifest]) -> None:
    findings = Incidents(manifests)
    run(stream, findings, 1, 50)
    (one,) = findings.update(stream.state)
    assert one.example is None and document([one])[0].example is None


def test_what_is_small_appears_when_it_has_lasted(stream: Stream, manifests: dict[str, Manifest]) -> None:
    findings = Incidents(manifests)
    assert run(stream, findings, 2, 5) == []
    assert run(stream, findings, 1, 5) == ["1.50/s QDISC_DROP"]
    assert findings.update(stream.state)[0].total == 15


def test_looking_twice_at_one_interval_is_no_second_interval(stream: Stream, manifests: dict[str, Manifest]) -> None:
    findings = Incidents(manifests)
    run(stream, findings, 2, 5)
    assert findings.update(stream.state) == []
    assert findings.update(stream.state) == []


def test_a_finding_that_rests_shortly_stays(stream: Stream, manifests: dict[str, Manifest]) -> None:
    findings = Incidents(manifests)
    run(stream, findings, 2, 50)
    run(stream, findings, LEAVES_AFTER - 1)
    assert findings.update(stream.state)[0].ended_ns is None
    since = findings.update(stream.state)[0].since_ns
    run(stream, findings, 1, 50)
    run(stream, findings, LEAVES_AFTER - 1)
    assert findings.update(stream.state)[0].since_ns == since


def test_a_finding_ends_after_five_quiet_intervals_and_leaves_later(
    stream: Stream, manifests: dict[str, Manifest]
) -> None:
    findings = Incidents(manifests)
    run(stream, findings, 2, 50)
    last_ns = stream.state.collector.closed_wall_ns
    run(stream, findings, LEAVES_AFTER)
    assert findings.update(stream.state)[0].ended_ns == last_ns
    assert run(stream, findings, ENDED_SHOWN) != []
    assert run(stream, findings, 1) == []


def test_a_burst_of_one_second_is_said_with_its_total(stream: Stream, manifests: dict[str, Manifest]) -> None:
    findings = Incidents(manifests)
    run(stream, findings, 1, 2755, total=2755)
    run(stream, findings, LEAVES_AFTER)
    (one,) = findings.update(stream.state)
    assert one.ended_ns is not None and (one.total, one.peak) == (2755, 2755.0)
    assert told(one) == "up to 2.75k/s QDISC_DROP; 2\u202f755 packets in 1 s"


def test_what_ended_stays_in_the_log_with_peak_total_begin_and_end(
    stream: Stream, manifests: dict[str, Manifest]
) -> None:
    findings, total = Incidents(manifests), 1000
    for delta in (950, 955, 940, 260):
        total += delta
        run(stream, findings, 1, delta, total=total)
    run(stream, findings, LEAVES_AFTER + ENDED_SHOWN + 5)
    assert findings.update(stream.state) == []
    (one,) = findings.log
    assert (one.total, one.peak, one.at_least) == (950 + 955 + 940 + 260, 955.0, False)
    assert one.ended_ns is not None and one.ended_ns - one.since_ns == 4 * SECOND
    assert one.sentence == "up to 955/s QDISC_DROP"


def test_what_comes_back_after_its_end_is_another_incident(stream: Stream, manifests: dict[str, Manifest]) -> None:
    findings = Incidents(manifests)
    run(stream, findings, 1, 50, total=50)
    run(stream, findings, LEAVES_AFTER)
    run(stream, findings, 1, 70, total=120)
    assert [(one.total, one.ended_ns is None) for one in findings.log] == [(50, False), (70, True)]


def test_what_comes_again_is_one_line_that_says_how_often(stream: Stream, manifests: dict[str, Manifest]) -> None:
    findings = Incidents(manifests)
    for again, (delta, total) in enumerate(((50, 50), (70, 120), (1077, 1197))):
        run(stream, findings, 1, delta, total=total)
        (one,) = findings.update(stream.state)
        assert (one.ended_ns, len(one.before)) == (None, again)
        run(stream, findings, LEAVES_AFTER)
    (one,) = findings.update(stream.state)
    assert one.ended_ns is not None and [part.total for part in one.before] == [50, 70]
    first, second, _ = findings.log
    assert [(part.since_ns, part.ended_ns) for part in one.before] == [
        (first.since_ns, first.ended_ns), (second.since_ns, second.ended_ns),
    ]  # fmt: skip
    in_all = "1\u202f197 packets in all"
    assert told(one) == f"up to {figure.number(1077)}/s QDISC_DROP; 3 times, last {clock(one.ended_ns)}, {in_all}"


def test_another_place_is_another_line(stream: Stream, manifests: dict[str, Manifest]) -> None:
    findings = Incidents(manifests)
    run(stream, findings, 1, 50, total=50)
    run(stream, findings, LEAVES_AFTER)
    run(stream, findings, 1, 70, total=120, reason="FULL_RING")
    assert [(one.total, one.before) for one in findings.update(stream.state)] == [(70, ()), (50, ())]


def test_single_small_moves_far_apart_are_nothing(stream: Stream, manifests: dict[str, Manifest]) -> None:
    findings = Incidents(manifests)
    for _ in range(5):
        assert run(stream, findings, 1, 5) == []
        assert run(stream, findings, 9) == []


@pytest.mark.parametrize(("pause", "patience"), [(1, PAUSES), (2, 2 * PAUSES), (4, LEAVES_AFTER_LASTING)])
def test_a_small_loss_has_ended_after_ten_of_its_pauses(
    stream: Stream, manifests: dict[str, Manifest], pause: int, patience: int
) -> None:
    findings, total = Incidents(manifests), 100
    for _ in range(4):
        total += 8
        run(stream, findings, 1, 8, total=total)
        run(stream, findings, pause - 1)
    quiet = pause - 1
    run(stream, findings, patience - quiet - 1)
    assert [one.ended_ns for one in findings.update(stream.state)] == [None]
    run(stream, findings, 1)
    (one,) = findings.update(stream.state)
    assert one.ended_ns is not None and one.total == 4 * 8


def test_silence_of_a_probe_that_does_not_measure_is_no_end(stream: Stream, manifests: dict[str, Manifest]) -> None:
    findings = Incidents(manifests)
    run(stream, findings, 2, 2000)
    stream.status("off", why="over its budget")
    run(stream, findings, 3 * LEAVES_AFTER)
    one = next(one for one in findings.update(stream.state) if one.cause.startswith("p/"))
    assert (one.level, one.ended_ns) == ("?", None) and one.blind_since_ns is not None
    assert one.sentence == "no longer measured: at its peak ≥2.00k/s QDISC_DROP"
    stream.status()
    run(stream, findings, 1, 300)
    one = findings.update(stream.state)[0]
    assert (one.sentence, one.blind_since_ns, one.at_least) == ("300/s QDISC_DROP", None, True)


def test_silence_of_a_table_that_is_not_sent_is_no_end(stream: Stream, manifests: dict[str, Manifest]) -> None:
    """In counters alone a probe is attached, and its rows stand still."""
    findings = Incidents(manifests)
    run(stream, findings, 2, 2000)
    for _ in range(3 * LEAVES_AFTER):
        stream.end()
        listed = findings.update(stream.state)
    assert [one.level for one in listed] == ["?"]


def test_silence_with_losses_behind_it_is_no_end(stream: Stream, manifests: dict[str, Manifest]) -> None:
    findings = Incidents(manifests)
    run(stream, findings, 2, 2000)
    for number in range(3 * LEAVES_AFTER):
        stream.cost(ledger={"unlisted": Count(delta=7, total=7 + 7 * number)})
        run(stream, findings, 1)
    assert [one.ended_ns for one in findings.update(stream.state)] == [None]


def test_rules_look_at_labels_and_limits(stream: Stream, manifests: dict[str, Manifest]) -> None:
    drops(stream, 5, kind="benign")
    drops(stream, 1, reason="TINY")
    stream.end()
    assert matches(stream.state, manifests) == []


def test_what_explains_most_comes_first_and_what_ended_last(stream: Stream, manifests: dict[str, Manifest]) -> None:
    findings = Incidents(manifests)
    run(stream, findings, 2, 50, reason="OVER")
    run(stream, findings, LEAVES_AFTER)
    for _ in range(2):
        drops(stream, 10, reason="SMALL")
        drops(stream, 900, reason="LARGE")
        late = Buckets(count=20, sum=20 * 2_000_000, min=None, max=None, buckets=[(index(2_000_000), 20)])
        stream.state.apply(
            frames.Histogram(
                **stream.stamp(), name="wait", interval_ns=SECOND, unit="ns", labels={"device": "[bold]\x1bx"},
                delta=late, total=late,
            )
        )  # fmt: skip
        stream.end()
        findings.update(stream.state)
    listed = [one.sentence for one in findings.update(stream.state)]
    assert listed[1:] == ["900/s LARGE", "10/s SMALL", "up to 50/s OVER"]
    assert listed[0].startswith("[bold]\\x1bx: p99 ")
    assert listed[0].endswith(" ms at 20/s")


def test_a_device_of_another_network_namespace_is_told_from_the_hosts(
    stream: Stream, manifests: dict[str, Manifest]
) -> None:
    late = Buckets(count=20, sum=20 * 2_000_000, min=None, max=None, buckets=[(index(2_000_000), 20)])
    for device, namespace in (("lo", "host"), ("lo", "blue"), ("lo", "4026532017"), ("", "host"), ("", "blue")):
        labels: dict[str, frames.Label] = {"device": device, "netns": namespace}
        stamp = stream.stamp()
        frame = frames.Histogram(
            **stamp, name="wait", interval_ns=SECOND, unit="ns", labels=labels, delta=late, total=late
        )
        stream.state.apply(frame)
    stream.end()
    where = {said(match).partition(":")[0] for match in matches(stream.state, manifests)}
    assert where == {"lo", "lo (netns blue)", "lo (netns 4026532017)", "this host", "netns blue"}


def test_polls_of_no_device_are_those_of_the_backlog() -> None:
    manifest = catalogue.shipped("softirq_health")
    labels = {"device": "", "netns": None, "cpu": 3}
    *_, last = (rule for rule in manifest.findings if rule.table == "exhausted" and fits(rule, labels))
    assert say(last, labels, {"rate": "700"}) == "CPU 3: 700 polls/s of its backlog end with packets still waiting"


def test_a_percentile_of_few_samples_is_no_finding(stream: Stream, manifests: dict[str, Manifest]) -> None:
    late = Buckets(count=3, sum=9, min=None, max=None, buckets=[(index(2_000_000), 3)])
    stream.state.apply(
        frames.Histogram(
            **stream.stamp(),
            name="wait",
            interval_ns=SECOND,
            unit="ns",
            labels={"device": "lo"},
            delta=late,
            total=late,
        )
    )
    stream.end()
    assert matches(stream.state, manifests) == []


def test_a_count_with_losses_is_said_to_be_a_lower_bound(stream: Stream, manifests: dict[str, Manifest]) -> None:
    """The rate while its interval lacks something, the total and the peak for good."""
    findings = Incidents(manifests)

    def interval(missed: int) -> tuple[str, bool]:
        stream.cost(ledger={"missed": Count(delta=missed, total=2)})
        run(stream, findings, 1, 50)
        (one,) = [one for one in findings.update(stream.state) if one.level == "!"]
        return one.sentence, one.at_least

    assert interval(2) == ("≥50/s QDISC_DROP", True)
    assert interval(0) == ("50/s QDISC_DROP", True)
    run(stream, findings, LEAVES_AFTER)
    (ended,) = [one for one in findings.update(stream.state) if one.ended_ns is not None and one.is_count]
    assert (ended.sentence, ended.at_least) == ("at its peak ≥50/s QDISC_DROP", True)


def test_a_mean_is_a_lower_bound_as_long_as_one_of_its_intervals(
    stream: Stream, manifests: dict[str, Manifest]
) -> None:
    findings = Incidents(manifests)
    run(stream, findings, SHORT, 5)
    for number in range(SHORT + 1):
        stream.cost(ledger={"missed": Count(delta=int(number == 0), total=1)})
        said_now = run(stream, findings, 1, 5)
        assert ("≥5/s QDISC_DROP" in said_now) == (number < SHORT), said_now


@given(
    st.lists(
        st.sampled_from(["seen", "not sent", "off", "counters", "unlisted", "lost", "restarted"]),
        min_size=1,
        max_size=60,
    )
)
def test_nothing_is_called_ended_while_its_counter_moves(what_happens: list[str]) -> None:
    """Through every move of the governor, a lost collector, and losses of the measurement."""
    manifests = {"p": catalogue.shipped("kernel_drops")}
    stream, findings, total = Stream(State()), Incidents(manifests), 1000
    stream.hello()
    stream.status()
    labels: dict[str, frames.Label] = {"device": "eth0", "netns": "host", "reason": "IP_CSUM", "class": "suspicious"}
    labels |= {"location": "ip_rcv_core", "protocol": "UDP", "ethertype": "IPv4", "provenance": "kernel"}
    for what in ["seen", "seen", *what_happens]:
        total += 500
        connection = None
        if what == "restarted":
            stream.hello()
            total = 500
        stream.status("off" if what == "off" else "attached", **({"why": "over its budget"} if what == "off" else {}))
        row = Row(labels=labels, counts={"count": Count(delta=500, total=total)})
        if what in ("seen", "restarted"):
            stream.state.apply(frames.Table(**stream.stamp(), name="drops", interval_ns=SECOND, full=False, rows=[row]))
        elif what == "unlisted":
            stream.cost(ledger={"unlisted": Count(delta=500, total=total)})
            nothing(stream)
        if what == "lost":
            connection = Connection("lost", "killed", 1.0)
        else:
            stream.end()
        listed = [one for one in findings.update(stream.state, connection) if one.cause == "wrong-checksum"]
        assert [one.ended_ns for one in listed] == [None]


def test_one_cause_at_one_place_is_one_incident(stream: Stream) -> None:
    """A full receive buffer is seen by three probes: the one that names the socket says it."""
    names = ("kernel_drops", "socket_drops", "socket_groups")
    manifests = {name: catalogue.shipped(name) for name in names}
    findings = Incidents(manifests)
    drop: dict[str, frames.Label] = {
        "device": "lo",
        "netns": "host",
        "protocol": "UDP",
        "reason": "SOCKET_RCVBUFF",
        "class": "suspicious",
    }
    drop |= {"location": "__udp_enqueue_schedule_skb", "ethertype": "IPv4", "provenance": "kernel"}
    sock: dict[str, frames.Label] = {
        "process": "dns-cache (1782)",
        "protocol": "UDP",
        "port": 5353,
        "netns": "host",
        "peer": None,
    }
    sock |= {"address": "127.0.0.1", "peer_port": 0}
    for total in (955, 1910):
        for probe, table, value, labels in (
            ("kernel_drops", "drops", "count", drop),
            ("socket_drops", "sockets", "buffer_full", sock),
        ):
            status = frames.Status(**stream.stamp(probe), state="attached", mode="summary")
            stream.state.apply(status)
            gauges: dict[str, int | float | None] = {"buffer_bytes": 8192} if probe == "socket_drops" else {}
            row = Row(labels=labels, counts={value: Count(delta=955, total=total)}, gauges=gauges)
            stamp = stream.stamp(probe)
            stream.state.apply(frames.Table(**stamp, name=table, interval_ns=SECOND, full=False, rows=[row]))
        stream.end()
        (one,) = findings.update(stream.state)
    assert one.sentence == "dns-cache (1782) UDP port 5353: its receive buffer of 8 kB is full: 955 packets/s lost"
    assert (one.level, one.cause, one.total) == ("!!", "receive-buffer-full", 1910)
    assert {evidence.probe for evidence in one.evidence} == {"kernel_drops", "socket_drops"}
    assert one.where == {
        "device": "lo",
        "netns": "host",
        "process": "dns-cache (1782)",
        "address": "127.0.0.1",
        "port": 5353,
    }


def test_where_there_are_too_many_the_worst_are_shown(
    stream: Stream, manifests: dict[str, Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (incidents.MAX_SHOWN, incidents.MAX_LOG) == (200, 1000)
    monkeypatch.setattr(incidents, "MAX_SHOWN", 2)
    monkeypatch.setattr(incidents, "MAX_LOG", 3)
    findings = Incidents(manifests)
    for reason, per_s in (("A", 50), ("B", 80), ("C", 20), ("D", 60)):
        for second in (1, 2, 3):
            drops(stream, per_s, reason, total=per_s * second)
            stream.end()
            findings.update(stream.state)
    for total in (1, 2, 3):
        for reason, per_s in (("A", 50), ("B", 80), ("C", 20), ("D", 60)):
            drops(stream, per_s, reason, total=per_s * (3 + total))
        stream.end()
        shown = findings.update(stream.state)
    assert [one.sentence.rpartition(" ")[2] for one in shown] == ["B", "D"]
    assert len([*findings.log]) == 3


def test_a_row_has_the_state_of_its_worst_finding_as_long_as_its_incident_goes_on(
    stream: Stream, manifests: dict[str, Manifest]
) -> None:
    findings = Incidents(manifests)
    run(stream, findings, 1, 50)
    (row,) = stream.state.probes["p"].tables["drops"].rows
    assert findings.verdicts == {("p", "table", "drops", row): RowVerdict("!", "look at it", "", 0, 50.0)}
    run(stream, findings, LEAVES_AFTER - 1)
    assert [one.level for one in findings.verdicts.values()] == ["!"]
    run(stream, findings, 1)
    assert not findings.verdicts
