"""The constants of a probe's readings are those of docs/design/governor.md and docs/design/collector.md."""

from __future__ import annotations

from netconsole_collector.probe import config, device_sets, running
from netconsole_collector.probe.reading import events, map_reader, tables
from tests.support.documents import Stated, check, each

GOVERNOR, COLLECTOR, FRAMES = "design/governor.md", "design/collector.md", "reference/frames.md"
WINDOW_MS = (1 << 27) // 1_000_000


@each(
    Stated(config.DETAILS_RUNS_PER_S, 20_000, GOVERNOR, "20 000 runs a second that pass the filters"),
    Stated(config._WINDOW_NS // 1_000_000, WINDOW_MS, GOVERNOR, "Time is divided into windows of 134 ms"),
    Stated(config._ATTENDED_S, 3, GOVERNOR, "twice the budget while the collector reads the probe, and for three"),
    Stated(config._BURST_SHARE, 4, COLLECTOR, "It saves up at most a quarter of a second's worth"),
    Stated(config._MAX_BURST_EVENTS, 64, COLLECTOR, "and at most 64 events"),
    Stated(map_reader._FULL, 0.75, COLLECTOR, "If a map is more than three quarters full"),
    Stated(map_reader.IDLE_INTERVALS, 60, COLLECTOR, "rows that were idle for 60 intervals are removed"),
    Stated(map_reader._ALMOST_FULL, 0.9, COLLECTOR, "If it is more than nine tenths full"),
    Stated(map_reader.SHORT_IDLE_INTERVALS, 10, COLLECTOR, "those idle for 10 are, too, the longest idle first"),
    Stated(map_reader._AHEAD, 3, COLLECTOR, "no room for three times as many new rows as have come in this interval"),
    Stated(tables.MAX_ROWS, 10_000, COLLECTOR, "One frame has at most 10 000 rows"),
    Stated(tables.MAX_EXAMPLES, 500, COLLECTOR, "The latest packets of the 500 busiest rows come with them"),
    Stated(events.MAX_EVENTS, 2000, COLLECTOR, "At most 2000 events per interval are taken from the ring buffer"),
    Stated(running.FULL_EVERY, 10, FRAMES, "Every tenth has all rows (`full`)"),
    Stated(running.FULL_EVERY, 10, FRAMES, "A `histogram` that did not change is sent every tenth interval"),
    Stated(device_sets.MAX_PATTERNS, 4, "reference/probes.md", "is a set of devices: at most four names"),
    Stated(device_sets.MAX_SETS, 2, "reference/probes.md", "A probe has at most two sets"),
)
def test_a_constant_is_the_one_that_the_page_names(one: Stated) -> None:
    check(one)
