"""What stands out of a source that comes late goes on: its silence means nothing."""

from __future__ import annotations

from netconsole.findings.incident import Incident
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Label, Row
from tests.unit.findings.test_rules_of_probes import Played
from tests.unit.telemetry.test_state import SECOND

LINK: dict[str, Label] = {"device": "veth-a", "netns": "blue", "qdisc": "noqueue", "peer": "veth-b"}
LATE = 8
"""Intervals, more than those after which what is quiet has ended."""


def second(played: Played, carrier_lost: int | None) -> list[Incident]:
    """What goes on after a second; None: its source was not read in it."""
    if carrier_lost is not None:
        row = Row(labels=LINK, counts={}, gauges={"carrier_lost": carrier_lost})
        stamp = played.stream.stamp(played.probe)
        played.stream.state.apply(frames.Table(**stamp, name="links", interval_ns=SECOND, full=True, rows=[row]))
    return played.end()


def test_a_state_goes_on_while_its_source_is_late() -> None:
    played = Played("link_rates")
    (begun,) = second(played, 1)
    assert begun.cause == "no-carrier"
    for _ in range(LATE):
        (still,) = second(played, None)
        assert still.number == begun.number
    assert still.level == "?" and still.sentence == f"no longer measured: {begun.sentence}"
    (again,) = second(played, 1)
    assert (again.number, again.sentence, again.level) == (begun.number, begun.sentence, begun.level)


def test_it_ends_when_its_source_says_so() -> None:
    played = Played("link_rates")
    second(played, 1)
    assert [second(played, 0) for _ in range(LATE)][-1] == []
