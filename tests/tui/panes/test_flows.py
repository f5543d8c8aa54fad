"""The top flows say between whom they are, also on the narrowest screen."""

from __future__ import annotations

import pytest

from netconsole.probes.catalogue import shipped
from netconsole.telemetry.session import Connection
from netconsole.tui.panes.common.tables import table_block
from netconsole.tui.scene.scene import Scene
from netconsole.tui.widgets.columns import place
from tests.support.fake_collector import Scenario
from tests.support.tui.played import PROFILE, PlayedSession

FLOW = ["device", "source", "source_port", "target", "target_port"]


@pytest.mark.parametrize(("width", "more"), [(78, []), (118, ["direction", "vm", "protocol"])])
def test_who_sends_to_whom_is_never_left_out(width: int, more: list[str]) -> None:
    columns = table_block(shipped("flow_top"), "flows").columns
    shown = [one.column.name for one in place(columns, width)]
    assert shown[: len(FLOW + more)] == FLOW + more
    assert {"packets", "bytes"} <= set(shown)


def test_what_is_counted_and_not_listed_is_said_above_the_table() -> None:
    block = table_block(shipped("flow_top"), "flows")
    row = {"labels": {"device": "eth0"}, "counts": {"packets": (1, 1)}}
    for omitted, said in ((58_976, ["the busiest 1, 59.0k more are counted"]), (0, [])):
        made = Scenario().hello().status("flow_top").table("flow_top", "flows", [row], full=True, omitted=omitted)
        state = PlayedSession(made.end()).state
        title = block.title(Scene(state, {"flow_top": shipped("flow_top")}, PROFILE, Connection("live")))
        assert title.split(" · ") == ["Top flows", *said]
