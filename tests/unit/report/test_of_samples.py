"""Samples as tables: what is one row, what is said once above the table, and which comes first."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole.report.blocks import Note, TextTable
from netconsole.report.of_samples import MAX_ROWS, samples

NINE_NS = 1_795_251_600_000_000_000
"""2026-11-21T09:00:00Z"""


def tables(*events: dict[str, Any]) -> list[TextTable]:
    return [block for block in samples(events) if isinstance(block, TextTable)]


def said(*events: dict[str, Any]) -> str:
    [note] = [block for block in samples(events) if isinstance(block, Note)]
    return note.text


def test_what_all_have_in_common_is_said_above_and_what_nobody_has_is_not() -> None:
    events = [{"name": "drop", "reason": reason, "vlan": 0, "port": None, "took_ns": 1500} for reason in ("a", "b")]
    assert said(*events).startswith("2 samples, name drop, took_ns 1.50 us; the most common first, then the slowest.")
    [table] = tables(*events)
    assert table == TextTable(
        ["samples", "first at (UTC)", "reason"], [["1", "–", "a"], ["1", "–", "b"]], frozenset({0}), 0
    )
    # Of a single kind all would be in common: it is a row.
    assert said(events[0]).startswith("1 sample; ")
    assert tables(events[0])[0].columns == ["samples", "first at (UTC)", "name", "reason", "took_ns"]
    mixed: list[dict[str, Any]] = [{"name": "drop", "reason": "a"}, {"name": "drop", "reason": "a", "vlan": 3}]
    assert said(*mixed).startswith("2 samples, name drop, reason a; ")
    assert tables(*mixed)[0].rows == [["1", "–", "–"], ["1", "–", "3"]]


@pytest.mark.parametrize("field", ["wall_ns", "mono_ns", "cpu", "length_bytes", "stack", "user_stack"])
def test_samples_that_differ_in_when_and_where_are_of_one_kind(field: str) -> None:
    [table, *_] = tables(*[{"reason": "a", field: number} for number in (1, 2)])
    assert [row[0] for row in table.rows] == ["2"] and table.columns[2:] == ["reason"]


def test_the_most_common_come_first_then_the_slowest() -> None:
    def kind(name: str, count: int, **times: Any) -> list[dict[str, Any]]:
        return [{"kind": name, **times}] * count

    events = [
        *kind("fast", 1, waited_ns=1000, wall_ns=NINE_NS),
        *kind("slow", 1, waited_ns=10, ran_ns=2000),
        *kind("odd", 1, waited_ns="long"),
        *kind("common", 2, waited_ns=1),
    ]
    [table] = tables(*events)
    assert table.rows == [
        ["2", "–", "common", "1 ns", "–"],
        ["1", "–", "slow", "10 ns", "2 us"],
        ["1", "09:00:00.000", "fast", "1 us", "–"],
        ["1", "–", "odd", "long", "–"],
    ]


@pytest.mark.parametrize(
    ("wall_ns", "shown"),
    [(NINE_NS + 1_234_900_000, "09:00:01.234"), (1 << 80, "–"), ("now", "–"), (None, "–"), (1.5, "–")],
)
def test_the_first_of_a_kind_says_when(wall_ns: Any, shown: str) -> None:
    [table] = tables({"wall_ns": wall_ns}, {"wall_ns": NINE_NS})
    assert table.rows == [["2", shown]]


@pytest.mark.parametrize(("count", "shown", "omitted"), [(9, 9, 0), (10, 10, 0), (12, 10, 2)])
def test_ten_kinds_and_ten_stacks_are_shown(count: int, shown: int, omitted: int) -> None:
    assert MAX_ROWS == 10
    kinds, stacks = tables(*[{"reason": f"r{n}", "stack": [f"f{n}", "g"]} for n in range(count)])
    assert (len(kinds.rows), kinds.omitted) == (len(stacks.rows), stacks.omitted) == (shown, omitted)
    assert stacks.rows[0] == ["1", "f0 < g"]
    assert stacks.columns == ["samples", "kernel stack, innermost first"] and stacks.numeric == {0}
    twice = tables({"stack": ["a"]}, {"stack": ["b"]}, {"stack": ["b"]})[-1]
    assert twice.rows == [["2", "b"], ["1", "a"]]
