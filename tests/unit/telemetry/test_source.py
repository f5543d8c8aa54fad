"""The process of a source: its CPU time and memory, and what is unknown of them."""

from __future__ import annotations

from netconsole.telemetry import frames
from netconsole.telemetry.source import SourceState

SECOND = 1_000_000_000


def cost(interval_ns: int, cpu_ns: int | None, pss_kb: int | None = None) -> frames.Cost:
    usage = frames.Usage(cpu_ns=cpu_ns, rss_kb=200, pss_kb=pss_kb)
    return frames.Cost(source="collector", seq=1, mono_ns=0, wall_ns=0, interval_ns=interval_ns, usage=usage)


def used(source: SourceState, *intervals: frames.Cost) -> None:
    for frame in intervals:
        source.use(frame, source.timeline.tick + 1)
        source.close(frame)


def test_cpu_time_is_a_share_of_its_own_interval() -> None:
    source = SourceState()
    used(source, cost(2 * SECOND, SECOND // 2, 150))
    assert (source.cpu_pct, source.cpu_ns, source.rss_kb, source.pss_kb) == (25.0, SECOND // 2, 200, 150)
    used(source, cost(SECOND, SECOND // 10))
    assert (source.cpu_pct, source.cpu_ns, source.pss_kb) == (10.0, 6 * SECOND // 10, None)
    assert source.cpu_history(3) == [None, 25.0, 10.0]


def test_what_is_not_told_is_unknown() -> None:
    source = SourceState()
    used(source, cost(SECOND, SECOND), cost(SECOND, None), cost(0, 5))
    assert (source.cpu_pct, source.cpu_ns) == (None, SECOND)
    assert source.cpu_history(3) == [100.0, None, None]
    source.use(frames.Cost(source="collector", seq=1, mono_ns=0, wall_ns=0, interval_ns=SECOND), 4)
    assert (source.cpu_pct, source.rss_kb) == (None, 200)
