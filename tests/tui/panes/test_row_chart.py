"""The chart of a row: its figures, its times, its peak, and the incidents under it."""

from __future__ import annotations

import re

from netconsole.base.timestamps import clock
from netconsole.tui.panes import row_chart
from netconsole.tui.scene.scene import Subject
from netconsole.tui.screens.pages.chart import ChartScreen
from tests.support.tui.running import running


async def test_the_chart_has_its_peak_with_its_time_and_its_incident() -> None:
    async with running((80, 24)) as one:
        await one.play(20)
        text = await one.press("Z")
        assert isinstance(one.app.screen, ChartScreen)
        lines = text.splitlines()
        assert lines[0].startswith(" Sockets: iperf3")
        with one.app.scene() as scene:
            known = row_chart.history(scene, one.app.screen.subject)
            (incident,) = [found for found in scene.findings if "5001" in found.sentence]
        assert known is not None
        values = [value or 0.0 for value in known.values]
        at_ns = known.until_ns - values[::-1].index(max(values)) * known.interval_ns
        peak = re.search(r"peak ([0-9.]+)/s at ([0-9:]+)", lines[1])
        assert peak is not None and float(peak[1]) == max(values) and peak[2] == clock(at_ns)
        (spans,) = [line for line in lines if "incident" in line]
        begins = (spans.index("[") - row_chart.EDGE) // ((80 - row_chart.EDGE - 1) // len(values))
        first_ns = known.until_ns - len(values) * known.interval_ns
        assert abs(first_ns + begins * known.interval_ns - incident.since_ns) <= known.interval_ns
        assert spans.rstrip().endswith("="), "it goes on"
        assert any(line.strip().startswith(clock(first_ns)) for line in lines)


async def test_the_row_charted_before_stands_below_if_wanted() -> None:
    async with running((120, 40)) as one:
        await one.press("Z", "escape", "down")
        text = await one.press("Z")
        assert "the row charted before" in text and "iperf3" not in text
        text = await one.press("Z")
        assert text.index("vnet3") < text.index("iperf3") and len(text.splitlines()) <= 40
        assert "iperf3" not in await one.press("Z")


async def test_a_row_without_history_says_so() -> None:
    async with running() as one:
        with one.app.scene() as scene:
            gone = Subject("kernel_drops", "table", "drops", (("device", "gone"),))
            lines = row_chart.lines(scene, gone, 80, 20)
        assert "no history is kept" in lines[1][0][0]
