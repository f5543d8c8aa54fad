"""Which counter is said to move."""

from __future__ import annotations

import pytest

from netconsole_collector.questions import moving


@pytest.mark.parametrize(
    ("moved", "counted", "found", "is_now"),
    [
        ({"Blocked": 0, "Full": 6, "Errors": 9}, {"Blocked": 4, "Full": 6, "Errors": 9}, "Errors", True),
        ({"Blocked": 7, "Errors": 9}, {"Blocked": 7, "Errors": 9}, "Blocked", True),  # its file was read later
        (
            {"Blocked": 9, "Full": 0, "Errors": 9},
            {"Blocked": 9, "Full": 4, "Errors": 9},
            "Blocked",
            True,
        ),  # it comes first
        (
            {"Blocked": 0, "Errors": 0},
            {"Blocked": 0, "Errors": 5},
            "Errors",
            False,
        ),  # it is over, and nothing else has been
        (
            {"Blocked": 0, "Errors": 0},
            {"Blocked": 5, "Errors": 5},
            "Blocked",
            False,
        ),  # it is over, and both count the same
        ({"Blocked": 0, "Errors": 0}, {"Blocked": 1, "Errors": 5}, "", False),
        ({"Blocked": 0, "Errors": 0}, {"Blocked": 0, "Errors": 0}, "", False),
        ({}, {}, "", False),
    ],
)
def test_the_one_that_moves_most(moved: dict[str, int], counted: dict[str, int], found: str, is_now: bool) -> None:
    assert moving.most(moved, counted) == (found, is_now)
