"""The top flows say between whom they are, also on the narrowest screen."""

from __future__ import annotations

import pytest

from netconsole.probes.catalogue import shipped
from netconsole.tui.panes.common.tables import table_block
from netconsole.tui.widgets.columns import place

FLOW = ["device", "source", "source_port", "target", "target_port"]


@pytest.mark.parametrize(("width", "more"), [(78, []), (118, ["direction", "vm", "protocol"])])
def test_who_sends_to_whom_is_never_left_out(width: int, more: list[str]) -> None:
    columns = table_block(shipped("flow_top"), "flows").columns
    shown = [one.column.name for one in place(columns, width)]
    assert shown[: len(FLOW + more)] == FLOW + more
    assert {"packets", "bytes"} <= set(shown)
