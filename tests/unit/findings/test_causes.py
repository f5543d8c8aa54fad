"""Incidents that belong together: by their cause, by what explains them, and across the beginning of a replay."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import pytest

from netconsole.base.timestamps import clock
from netconsole.findings.causes import Group, are_enough, is_same_place, shares_place
from netconsole.findings.incident import told
from netconsole.findings.incidents import Incidents
from netconsole.findings.match import Evidence, Level, Match
from netconsole.findings.open_incident import LEAVES_AFTER
from netconsole.findings.windows import Family
from netconsole.probes import catalogue
from netconsole.probes.manifest import Manifest
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Buckets, Count, Row
from netconsole.telemetry.histogram import index
from netconsole.telemetry.state import State
from tests.unit.findings.test_incidents import drops, run
from tests.unit.probes.test_manifest_reader import GOOD, make
from tests.unit.telemetry.test_state import SECOND, Stream

WITH_DEVICES = GOOD.partition("[[findings]]")[0].replace(
    '{ type = "pad[4]" }', '{ type = "pad[4]" }, { name = "device", type = "char[16]", as = "text" }'
)


def rule(reason: str, cause: str, more: str = "") -> str:
    """Drops for this reason are of that cause, by device."""
    return f"""
[[findings]]
table = "drops"
value = "count"
over = 1.0
at_once = 1.0
where = {{ reason = "{reason}" }}
cause = "{cause}"
place = ["device"]
{more}
say = "{{rate}}/s {cause}"
next = "Look there."
"""


CAUSES = rule("EFFECT", "effect") + rule("ROOT", "root", 'explains = ["effect"]')
PLACE: dict[str, frames.Label] = {"class": "suspicious", "provenance": "kernel"}


@pytest.fixture
def explained(tmp_path: Path) -> dict[str, Manifest]:
    """Drops for a reason ROOT explain those for a reason EFFECT at the same device."""
    return {"p": catalogue.load(make(tmp_path, WITH_DEVICES + CAUSES))}


def dropped(stream: Stream, *rows: tuple[str, str]) -> None:
    """An interval of ten drops for each reason and device."""
    table = stream.state.probes["p"].tables.get("drops")
    known = (
        {(row.labels["reason"], row.labels["device"]): row.total("count") for row in table.rows.values()}
        if table
        else {}
    )
    listed = [
        Row(
            labels={"reason": reason, "device": device, **PLACE},
            counts={"count": Count(delta=10, total=10 + (known.get((reason, device)) or 0))},
        )
        for reason, device in rows
    ]
    stream.state.apply(frames.Table(**stream.stamp(), name="drops", interval_ns=SECOND, full=False, rows=listed))
    stream.end()


def late(stream: Stream, value_ns: int) -> None:
    """An interval of twenty waits of this length."""
    slots = Buckets(count=20, sum=20 * value_ns, min=None, max=None, buckets=[(index(value_ns), 20)])
    stream.state.apply(
        frames.Histogram(
            **stream.stamp(), name="wait", interval_ns=SECOND, unit="ns", labels={"device": "eth0"}, delta=slots,
            total=slots,
        )
    )  # fmt: skip
    stream.end()


def test_what_a_new_incident_explains_was_its_beginning(stream: Stream, explained: dict[str, Manifest]) -> None:
    findings = Incidents(explained)
    for rows in ([("EFFECT", "eth0"), ("EFFECT", "eth1")],) * 3:
        dropped(stream, *rows)
        begun = {one.where["device"]: one.since_ns for one in findings.update(stream.state)}
    dropped(stream, ("EFFECT", "eth0"), ("EFFECT", "eth1"), ("ROOT", "eth0"))
    listed = {one.where["device"]: one for one in findings.update(stream.state)}
    assert {device: one.cause for device, one in listed.items()} == {"eth0": "root", "eth1": "effect"}
    assert {device: one.since_ns for device, one in listed.items()} == begun
    assert sorted(one.cause for one in findings.log) == ["effect", "root"]


def test_what_an_open_incident_explains_is_its_evidence(stream: Stream, explained: dict[str, Manifest]) -> None:
    findings = Incidents(explained)
    dropped(stream, ("ROOT", "eth0"))
    findings.update(stream.state)
    dropped(stream, ("ROOT", "eth0"), ("EFFECT", "eth0"))
    (one,) = findings.update(stream.state)
    assert (one.cause, len(one.evidence), one.total, one.peak) == ("root", 2, 20, 10.0), "those of its own cause"


def test_an_incident_of_a_percentile_remembers_its_peak(stream: Stream, manifests: dict[str, Manifest]) -> None:
    findings = Incidents(manifests)
    for value_ms in (2, 5, 3):
        late(stream, value_ms * 1_000_000)
        listed = findings.update(stream.state)
    assert listed[0].peak == pytest.approx(5_000_000, rel=0.0625)


def test_what_was_never_said_is_forgotten_when_it_is_quiet(stream: Stream, manifests: dict[str, Manifest]) -> None:
    """One late interval is nothing. Two of them later on are an incident that begins there."""
    findings = Incidents(manifests)
    late(stream, 2_000_000)
    assert findings.update(stream.state) == []
    for _ in range(LEAVES_AFTER):
        stream.end()
        assert findings.update(stream.state) == []
    begins_ns = stream.mono_ns
    for expected in (0, 1):
        late(stream, 2_000_000)
        assert len(listed := findings.update(stream.state)) == expected
    assert listed[0].since_ns >= begins_ns


def test_a_replay_goes_on_with_the_log_and_its_numbers(stream: Stream, manifests: dict[str, Manifest]) -> None:
    first = Incidents(manifests)
    for total in (150, 200):
        drops(stream, 50, total=total)
        drops(stream, 90, reason="OTHER")
        stream.end()
        before = {one.sentence: one for one in first.update(stream.state)}
    replayed = Incidents(manifests, before=first.saved())
    drops(stream, 50, total=250)
    drops(stream, 70, reason="THIRD")
    stream.end()
    listed = {one.sentence: one for one in replayed.update(stream.state)}
    known, new = listed["50/s QDISC_DROP"], listed["70/s THIRD"]
    assert (known.number, known.since_ns, known.total) == (
        before["50/s QDISC_DROP"].number, before["50/s QDISC_DROP"].since_ns, 150,
    )  # fmt: skip
    assert sorted(one.number for one in replayed.log) == [1, 2, 3] and new.number == 3


def test_the_intervals_of_the_console_are_none_of_the_collector(stream: Stream, manifests: dict[str, Manifest]) -> None:
    """What has to be found twice is not found again because the console's own sources were read meanwhile."""
    findings, console = Incidents(manifests), Stream(stream.state, "console")
    late(stream, 2_000_000)
    for _ in range(3):
        assert findings.update(stream.state) == []
        console.end()


def test_a_state_of_the_console_alone_has_intervals_too(manifests: dict[str, Manifest]) -> None:
    console = Stream(State(), "console")
    console.status()
    findings = Incidents(manifests)
    counts = []
    for _ in range(3):
        drops(console, 5)
        console.end()
        counts.append(len(findings.update(console.state)))
    assert counts == [0, 0, 1]


def test_single_intervals_with_losses_behind_them_are_no_blindness(
    stream: Stream, manifests: dict[str, Manifest]
) -> None:
    findings = Incidents(manifests)
    run(stream, findings, 2, 2000)
    for number in range(1, 4):
        stream.cost(ledger={"unlisted": Count(delta=7, total=7 * number)})
        run(stream, findings, 1)
        stream.cost(ledger={"unlisted": Count(delta=0, total=7 * number)})
        run(stream, findings, 1)
        (one,) = [one for one in findings.update(stream.state) if one.cause.startswith("p/")]
        assert one.blind_since_ns is None and one.at_least


def test_a_row_that_has_left_its_table_is_quiet(stream: Stream, manifests: dict[str, Manifest]) -> None:
    findings = Incidents(manifests)
    run(stream, findings, 2, 2000)
    for _ in range(LEAVES_AFTER):
        stream.state.apply(frames.Table(**stream.stamp(), name="drops", interval_ns=SECOND, full=True, rows=[]))
        stream.end()
        (one,) = findings.update(stream.state)
    assert one.ended_ns is not None


def test_a_small_loss_that_has_stopped_is_said_as_it_was(stream: Stream, manifests: dict[str, Manifest]) -> None:
    findings = Incidents(manifests)
    for number in range(10):
        run(stream, findings, 1, 5, total=100 + 5 * number)
    last_ns = stream.state.collector.closed_wall_ns
    assert run(stream, findings, 2) == ["5/s QDISC_DROP"], "no mean that falls"
    assert run(stream, findings, 1) == ["up to 5/s QDISC_DROP"]
    (one,) = findings.update(stream.state)
    assert (one.ended_ns, one.still_since_ns) == (None, last_ns)
    assert told(one).endswith(f"; none since {clock(last_ns or 0)}")
    assert run(stream, findings, 1, 5, total=150) == ["3.50/s QDISC_DROP"]
    (one,) = findings.update(stream.state)
    assert one.still_since_ns is None


def test_places_are_the_same_unless_a_label_that_both_name_differs() -> None:
    assert is_same_place({"device": "lo"}, {"netns": "blue"})
    assert is_same_place({"device": "lo", "port": None}, {"device": "lo", "port": 53})
    assert not is_same_place({"device": "lo", "port": 80}, {"device": "lo", "port": 53})
    assert shares_place({"device": "lo"}, {"device": "lo"}) and not shares_place({"device": "lo"}, {"netns": "blue"})


@pytest.mark.parametrize(("netns", "causes"), [("host", ["qdisc-drops"]), ("blue", ["qdisc-drops", "send-refused"])])
def test_what_a_full_qdisc_refuses_is_one_incident_with_what_protocols_count_of_it(
    netns: str, causes: list[str]
) -> None:
    link = {"device": "eth0", "netns": "host", "qdisc": "tbf", "shaper": "tbf of 4 Mbit/s"}
    counted = {"counter": "UdpSndbufErrors", "class": "loss", "netns": netns, "meaning": "no room"}
    rows = {
        ("link_rates", "links", "qdisc_drops"): [link],
        ("protocol_counters", "counters", "count"): [counted, {**counted, "counter": "IpOutDiscards"}],
    }
    stream, incidents = Stream(State()), Incidents({name: catalogue.shipped(name) for name, _, _ in rows})
    stream.hello()
    for (probe, table, value), labels in rows.items():
        stream.state.apply(frames.Status(**stream.stamp(probe), state="attached", mode="summary"))
        moved = [Row(labels=one, counts={value: Count(delta=120, total=120)}) for one in labels]  # type: ignore[arg-type]
        frame = frames.Table(**stream.stamp(probe), name=table, interval_ns=SECOND, full=False, rows=moved)
        stream.state.apply(frame)
    stream.end()
    found = incidents.update(stream.state)
    assert sorted(one.cause for one in found) == causes
    assert found[0].sentence.startswith("eth0: tbf of 4 Mbit/s drops 120 packets/s")


Made: TypeAlias = tuple[str, Level, float, str, Family | None]
"""Cause, level, value, unit and family of a match."""


def group(*matches: Made) -> Group:
    made = [
        Match(Evidence("table", "p"), cause, level, lambda *_: "", value, 0.0, unit=unit, family=family)
        for cause, level, value, unit, family in matches
    ]
    return Group(made[0], {}, made)


DROPPED, COUNTED = Family("p", "drops", "count"), Family("q", "drops", "count")


def test_a_group_is_as_urgent_as_its_most_urgent_match() -> None:
    assert group(("a", "?", 1, "", None), ("a", "!!", 1, "", None), ("a", "!", 1, "", None)).level == "!!"


def test_the_amount_of_a_cause_is_what_the_source_counts_that_counts_most() -> None:
    """Two sources count the same packets; the rows of one do not."""
    of_both = group(
        ("a", "!", 30, "packets", DROPPED), ("a", "!", 25, "packets", DROPPED), ("a", "!", 50, "packets", COUNTED),
        ("b", "!", 900, "packets", COUNTED), ("a", "!", 700, "bytes", COUNTED),
    )  # fmt: skip
    assert of_both.amount("packets") == 55
    assert of_both.amount("bytes") == 700 and of_both.amount("runs") is None
    assert group(("a", "!", 30, "packets", DROPPED), ("a", "!", 1, "", None)).amount("packets") is None


@pytest.mark.parametrize(("lost", "enough"), [(109, True), (109.1, False)])
def test_causes_are_enough_for_twice_of_what_they_count_together(lost: float, enough: bool) -> None:
    """The rows of an effect are counted together, too: 1 and 109."""
    causes = [group(("a", "!", 30, "packets", DROPPED)), group(("c", "!", 25, "packets", DROPPED))]
    effect = group(("b", "!", 1, "packets", COUNTED), ("b", "!", lost, "packets", COUNTED))
    assert are_enough(causes, effect) is enough
    assert are_enough([*causes, group(("d", "!", 1, "", None))], effect), "a state explains any amount"


@pytest.mark.parametrize(("rows", "enough"), [(1, True), (2, False), (10, False)])
def test_an_effect_is_as_large_as_all_its_rows(rows: int, enough: bool) -> None:
    causes = [group(("a", "!", 60, "packets", DROPPED))]
    row: Made = ("b", "!", 110, "packets", COUNTED)
    assert are_enough(causes, group(*[row] * rows)) is enough


def test_two_sources_that_count_the_same_packets_do_not_make_an_effect_larger() -> None:
    causes = [group(("a", "!", 60, "packets", DROPPED))]
    row: Made = ("b", "!", 60, "packets", COUNTED)
    other: Made = ("b", "!", 110, "packets", DROPPED)
    assert are_enough(causes, group(row, row, other))
    assert not are_enough(causes, group(row, row, other, ("b", "!", 11, "packets", DROPPED)))


def test_a_state_beside_an_effect_makes_its_count_no_smaller() -> None:
    causes = [group(("a", "!", 30, "packets", DROPPED))]
    effect = group(("b", "!", 61, "packets", COUNTED), ("b", "!", 1, "", None), ("b", "!", 900, "packets", None))
    assert not are_enough(causes, effect)
    assert are_enough(causes, group(("b", "!", 60, "packets", COUNTED), ("b", "!", 900, "packets", None)))


def test_only_what_proves_the_effect_itself_has_to_be_explained() -> None:
    causes = [group(("a", "!", 30, "packets", DROPPED))]
    effect = group(
        ("b", "!", 60, "packets", COUNTED), ("c", "!", 900, "packets", COUNTED), ("b", "!", 900, "bytes", COUNTED)
    )
    assert are_enough(causes, effect)


def test_a_counter_that_is_read_later_is_no_later_end() -> None:
    manifests = {name: catalogue.shipped(name) for name in ("kernel_drops", "protocol_counters")}
    stream, findings = Stream(State()), Incidents(manifests)
    stream.hello()
    place: dict[str, frames.Label] = {"netns": "blue", "protocol": "UDP", "device": "eth0", "reason": "SOCKET_RCVBUFF"}
    counter: dict[str, frames.Label] = {
        "netns": "blue",
        "counter": "UdpRcvbufErrors",
        "class": "loss",
        "meaning": "full",
    }
    last_ns = 0
    for second in range(8 + LEAVES_AFTER):
        for probe, table, labels, moves in (
            ("kernel_drops", "drops", place, second < 5),
            ("protocol_counters", "counters", counter, second == 7),
        ):
            row = Row(labels=labels, counts={"count": Count(delta=300, total=300 * (second + 1))})
            stream.state.apply(frames.Status(**stream.stamp(probe), state="attached", mode="summary"))
            stamp, rows = stream.stamp(probe), [row] if moves else []
            stream.state.apply(frames.Table(**stamp, name=table, interval_ns=SECOND, full=False, rows=rows))
        stream.end()
        if second == 4:
            last_ns = stream.state.collector.closed_wall_ns or 0
        said = findings.update(stream.state)
    (one,) = said
    assert one.ended_ns == last_ns
