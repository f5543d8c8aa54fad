"""In 80 columns the names of panes stay as long as there is room, whatever is marked."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole.telemetry.session import Connection
from netconsole.tui.panes.overview.header import second_line
from netconsole.tui.scene.scene import Scene
from tests.support.fake_collector import Scenario
from tests.support.tui.played import PROFILE, PlayedSession

EMPTY = {"vhost", "ovs", "path"}


def names(marks: dict[str, Any]) -> str:
    scene = Scene(PlayedSession(Scenario().hello().end()).state, {}, PROFILE, Connection("live"))
    line, has_cost = second_line(scene, "drops", marks, 80, EMPTY)
    assert not has_cost, "the names need the line"
    return "".join(text for text, _ in line)


@pytest.mark.parametrize("marks", [{}, {"drops": "!", "host": "!", "flows": "!!"}])
def test_all_names_stand_where_80_columns_hold_them(marks: dict[str, str]) -> None:
    shown = names(marks)
    assert "2vhost 3OVS" in shown and shown.endswith("dDisk") and len(shown) <= 80


def test_names_of_empty_panes_make_room_for_marks() -> None:
    shown = names({"overview": "!!", "drops": "!!", "queues": "!!", "host": "!!", "flows": "!!"})
    assert "1Overview!! 2 3 4Drops!! 5Queues!!" in shown and shown.endswith("0Flows!! dDisk")
