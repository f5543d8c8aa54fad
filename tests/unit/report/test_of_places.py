"""Where packets died, in a report: the ranked list, the balance, and the list then and now."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netconsole.compare.document import Comparison, PlaceChange
from netconsole.report.blocks import Heading, Note, TextTable
from netconsole.report.of_places import MAX_PLACES, drop_places, losses_held_against, where_packets_died
from netconsole.snapshot.document import Snapshot
from tests.support import made_up

PLACE: dict[str, Any] = {"level": "!", "stage": "qdisc", "where": "eth0", "why": "full", "total": 1500}
LOST: dict[str, Any] = {"stage": "backlog"}


def snapshot(**changes: Any) -> Snapshot:
    return msgspec.convert({**made_up.document(1, samples=20), "incidents": [], **changes}, Snapshot)


def listed(*places: dict[str, Any]) -> list[Any]:
    return list(drop_places(snapshot(drop_places=[{**PLACE, **place} for place in places])))


def held(*rows: dict[str, Any], **more: Any) -> list[Any]:
    return list(losses_held_against(snapshot(balance=[{**LOST, **row} for row in rows], **more)))


def drops(status: str, **more: Any) -> dict[str, Any]:
    return {"probes": {"kernel_drops": {"status": status, "attach": [], **more}}}


def test_each_place_is_a_line() -> None:
    [title, table] = listed({"per_s": 150.0, "sender": "192.0.2.1"}, {"where": "", "at_least": True, "per_s": 2.0})
    assert title == Heading("Where packets died")
    assert table == TextTable(
        ["", "packets", "per s", "place", "cause", "first sender"],
        [
            ["!", "1\u202f500", "150", "qdisc eth0", "full", "192.0.2.1"],
            ["!", "≥1\u202f500", "≥2", "qdisc", "full", "–"],
        ],
        frozenset({1, 2}),
    )


@pytest.mark.parametrize(("more", "omitted"), [(-1, 0), (0, 0), (2, 2)])
def test_thirty_places_are_shown(more: int, omitted: int) -> None:
    assert MAX_PLACES == 30
    tables = [listed(*[{}] * (30 + more))[-1], held(*[{}] * (30 + more))[-1]]
    for table in tables:
        assert (len(table.rows), table.omitted) == (min(30, 30 + more), omitted)


def test_where_nothing_died_nothing_is_said() -> None:
    assert listed() == held() == list(losses_held_against(snapshot(balance=None))) == []


def test_the_balance_has_what_was_seen_of_each_loss() -> None:
    [title, note, table] = held(
        {"device": "eth0", "netns": "web", "in": 5000, "out": 4000, "dropped": 1000, "unexplained": 250,
         "coverage_pct": 75.0},
        {"netns": "web"},
        {"device": "eth1"},
        {},
        **drops("attached"),
    )  # fmt: skip
    assert title == Heading("Balance")
    assert note == Note("Probes saw 75 % of the 1\u202f000 packets that the kernel itself counts as lost.")
    assert table == TextTable(
        ["stage", "place", "in", "out", "lost", "unexplained", "seen %"],
        [
            ["backlog", "eth0 netns web", "5\u202f000", "4\u202f000", "1\u202f000", "250", "75"],
            *(["backlog", place, "–", "–", "0", "0", "–"] for place in ("netns web", "eth1", "host")),
        ],
        frozenset({2, 3, 4, 5, 6}),
    )


def test_what_a_filter_may_hide_is_told_apart() -> None:
    [_, seen, hidden, table] = held(
        {"dropped": 90, "unexplained": 90, "hidden_by": ["netns", "reason"]}, {"dropped": 10, "unexplained": 5}
    )
    assert seen == Note("Probes saw 50 % of the 10 packets that the kernel itself counts as lost.")
    assert hidden == Note(
        "The kernel counts 90 more lost packets. The filter by netns, reason may hide them from kernel_drops: "
        "measure without the filter to see them."
    )
    assert [row[5] for row in table.rows] == ["90 (filter)", "5"]


def test_what_may_have_been_seen_and_is_in_no_row_is_told_apart() -> None:
    [_, seen, unknown, table] = held(
        {"dropped": 90, "unexplained": 80, "hidden_by": ["unlisted"]}, {"dropped": 10, "unexplained": 5}
    )
    assert seen == Note("Probes saw 75 % of the 20 packets that the kernel itself counts as lost.")
    assert unknown == Note(
        "Whether kernel_drops saw 80 more lost packets is not known: it has as many in no row, or saw as many just "
        "before the begin."
    )
    assert [row[5] for row in table.rows] == ["80 (unknown)", "5"]


@pytest.mark.parametrize(
    ("status", "why", "told"),
    [
        ("attached", None, None),
        ("degraded", "few hooks", None),
        ("off", "over the budget", " (over the budget)"),
        ("failed", None, ""),
    ],
)
def test_a_balance_without_the_probe_says_so(status: str, why: str | None, told: str | None) -> None:
    blocks = held({}, **drops(status, why=why))
    said = [one.text for one in blocks if isinstance(one, Note)]
    end = "what was lost without it is unexplained."
    assert said == ([] if told is None else [f"kernel_drops was not attached at the end{told}: {end}"])
    assert not [one for one in held({}, probes={}) if isinstance(one, Note)]


def test_the_places_of_a_comparison_then_and_now() -> None:
    def of(*places: PlaceChange) -> list[Any]:
        made = Comparison(verdict="same", findings=[], facts_changed=[], not_comparable=[], drop_places=[*places])
        return list(where_packets_died(made))

    one, other = PlaceChange("qdisc", "eth0", "full", "!", 0.0, 12.0), PlaceChange("backlog", "", "cpu", "?", 3.0, 0.0)
    unknown = PlaceChange("port", "lo", "closed", "!", 3.0, None)
    assert of(one, other, unknown) == [
        Heading("Where packets died"),
        TextTable(
            ["", "place", "cause", "baseline per s", "current per s"],
            [
                ["!", "qdisc eth0", "full", "0", "12"],
                ["?", "backlog", "cpu", "3", "0"],
                ["!", "port lo", "closed", "3", "–"],
            ],
            frozenset({3, 4}),
        ),
    ]
    assert of() == []
    for more, omitted in ((-1, 0), (0, 0), (2, 2)):
        table = of(*[one] * (MAX_PLACES + more))[-1]
        assert (len(table.rows), table.omitted) == (min(MAX_PLACES, MAX_PLACES + more), omitted)
