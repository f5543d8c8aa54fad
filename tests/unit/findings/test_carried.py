"""Incidents of a recording's log that had not ended where a replay begins: found again, still waited for, or ended."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from netconsole.findings.causes import Group, joined
from netconsole.findings.incidents import Carried, Incidents
from netconsole.findings.of_rules import RULE
from netconsole.findings.saved_log import SavedIncident
from netconsole.findings.windows import LONG
from netconsole.probes.manifest import Manifest
from tests.unit.findings.test_incidents import drops, matches, nothing
from tests.unit.telemetry.test_state import Stream


@pytest.fixture
def before(stream: Stream, manifests: dict[str, Manifest]) -> list[SavedIncident]:
    """Two rows of one rule that dropped when the recording was saved."""
    findings = Incidents(manifests)
    for total in (50, 100):
        drops(stream, 50, "A", total=total)
        drops(stream, 50, "B", total=total)
        stream.end()
        findings.update(stream.state)
    return findings.saved()


def group_of(stream: Stream, manifests: dict[str, Manifest], reason: str) -> Group:
    """What is found of this reason in one interval."""
    drops(stream, 50, reason, total=150)
    stream.end()
    (group,) = [one for one in joined(matches(stream.state, manifests)) if one.lead.labels["reason"] == reason]
    return group


def of_reason(before: list[SavedIncident], reason: str) -> SavedIncident:
    return next(one for one in before if reason in one.sentence)


@pytest.mark.parametrize("reason", ["A", "B"])
def test_an_incident_goes_on_by_its_evidence(
    stream: Stream, manifests: dict[str, Manifest], before: list[SavedIncident], reason: str
) -> None:
    carried = Carried(before)
    group = group_of(stream, manifests, reason)
    assert carried.take(group) == of_reason(before, reason)
    assert carried.take(group) is None
    assert [one.sentence for one in carried.saved().values()] == [
        one.sentence for one in before if one != of_reason(before, reason)
    ]


def test_another_row_of_a_rule_without_a_cause_is_another_incident(
    stream: Stream, manifests: dict[str, Manifest], before: list[SavedIncident]
) -> None:
    carried = Carried(before)
    group = group_of(stream, manifests, "C")
    assert RULE in group.place and carried.take(group) is None


def test_other_evidence_of_one_cause_at_one_place_goes_on_with_it(
    stream: Stream, manifests: dict[str, Manifest], before: list[SavedIncident]
) -> None:
    named = [
        SavedIncident(**{**{name: getattr(one, name) for name in one.__struct_fields__}, "where": {"device": device}})
        for one, device in zip(before, ("eth0", "eth1"), strict=True)
    ]
    group = group_of(stream, manifests, "C")
    elsewhere, there = replace(group, place={"device": "eth2"}), replace(group, place={"device": "eth1"})
    carried = Carried(named)
    assert carried.take(elsewhere) is None
    assert carried.take(there) == named[1]


def test_what_waits_ends_after_a_quiet_minute_at_its_last_move(
    stream: Stream, manifests: dict[str, Manifest], before: list[SavedIncident]
) -> None:
    carried = Carried(before)
    for number in range(LONG - 1):
        assert carried.is_recent
        if number == 9:
            drops(stream, 1, "A", total=101)
        else:
            nothing(stream)
        stream.end()
        listed = carried.update(stream.state)
        assert [one.ended_ns for one in listed] == [None, None]
    nothing(stream)
    stream.end()
    ended = {one.sentence: one.ended_ns for one in carried.update(stream.state)}
    b = of_reason(before, "B")
    assert ended == {of_reason(before, "A").sentence: None, b.sentence: b.last_ns}
    assert not carried.is_recent
    assert list(carried.saved()) == [of_reason(before, "A").number]


def test_nobody_knows_the_end_while_its_probe_does_not_measure(stream: Stream, before: list[SavedIncident]) -> None:
    carried = Carried(before)
    stream.status("off")
    for _ in range(2 * LONG):
        stream.end()
        assert [one.ended_ns for one in carried.update(stream.state)] == [None, None]


def test_what_was_not_said_yet_is_not_listed(stream: Stream, before: list[SavedIncident]) -> None:
    fields = {name: getattr(before[0], name) for name in before[0].__struct_fields__}
    carried = Carried([SavedIncident(**{**fields, "shown": False})])
    stream.end()
    assert carried.update(stream.state) == [] and len(carried.saved()) == 1


def test_a_session_that_began_with_nothing_waits_for_nothing(stream: Stream) -> None:
    carried = Carried([])
    assert not carried.is_recent and carried.update(stream.state) == []


def test_an_incident_that_goes_on_began_when_the_earlier_of_both_did(
    stream: Stream, manifests: dict[str, Manifest], before: list[SavedIncident]
) -> None:
    """A replay that begins amid it finds it later; one that looks back may find it earlier."""
    earlier, later = (replace_since(one, since) for one, since in zip(before, (1, 10**18), strict=True))
    findings = Incidents(manifests, before=[earlier, later])
    for total in (150, 200):
        drops(stream, 50, "A", total=total)
        drops(stream, 50, "B", total=total)
        stream.end()
        findings.update(stream.state)
    found = {one.number: one.since_ns for one in findings.log}
    assert found[earlier.number] == 1 and found[later.number] < 10**18


def replace_since(one: SavedIncident, since_ns: int) -> SavedIncident:
    return msgspec.structs.replace(one, since_ns=since_ns)
