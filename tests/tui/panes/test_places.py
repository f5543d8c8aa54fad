"""A place of the ranked list, where there is little room: the namespace tells it from others of its kind."""

from __future__ import annotations

import pytest

from netconsole.tui.panes.drops.places import COLUMNS, ends
from netconsole.tui.widgets.columns import Cell, TableRow
from netconsole.tui.widgets.columns import place as placed
from netconsole.tui.widgets.table_model import TableModel


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("protocol TcpExtListenOverflows (netns web)", ("protocol TcpExtListenOverflows", " (web)")),
        ("qdisc eth0", None),
    ],
)
def test_a_namespace_is_the_end_that_stays(where: str, expected: tuple[str, str] | None) -> None:
    assert ends(where) == expected


@pytest.mark.parametrize("netns", ["web-blue", "web-red"])
def test_at_80_columns_places_of_two_namespaces_differ(netns: str) -> None:
    where = f"protocol TcpExtListenOverflows (netns {netns})"
    table = TableModel("places", "", COLUMNS)
    table._placed = placed(COLUMNS, 80)
    row = TableRow("key", {"place": Cell(where, where, ends=ends(where))})
    text = "".join(piece for piece, _ in table._row_line(row, 80))
    assert f"… ({netns})" in text and "protocol Tcp" in text
