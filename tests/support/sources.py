"""Frames of what a source of the collector has read, as whoever reads the stream gets them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from netconsole.telemetry import frames
from netconsole_collector.sources.base import Json, KernelSource, SourceReading

SECOND_NS = 1_000_000_000


def frames_of(bodies: Sequence[Json]) -> list[frames.AnyFrame]:
    """Raises FrameError for a body that is none."""
    stamp = {"v": 1, "seq": 1, "mono_ns": 0, "wall_ns": 0}
    return [frames.decode(json.dumps({**stamp, **body}).encode()) for body in bodies]


def read_of(
    source: KernelSource, interval_ns: int = SECOND_NS, is_whole: bool = False, wall_ns: int | None = None
) -> list[frames.AnyFrame]:
    """The frames of one reading."""
    wall_ns = time.time_ns() if wall_ns is None else wall_ns
    return frames_of(source.read(SourceReading(interval_ns, time.monotonic_ns(), wall_ns, is_whole)))


def tables_of(source: KernelSource) -> list[frames.Table]:
    """The tables of one reading."""
    return [one for one in read_of(source) if isinstance(one, frames.Table)]
