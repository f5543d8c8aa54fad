"""Frames of what a source of the collector has read, as whoever reads the stream gets them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from netconsole.telemetry import frames
from netconsole_collector.sources.base import Json, KernelSource, SourceReading

SECOND_NS = 1_000_000_000


def frames_of(bodies: Sequence[Json]) -> list[frames.AnyFrame]:
    """Raises FrameError for a body that is none."""
    stamp = {"v": 1, "seq": 1, "mono_ns": 0, "wall_ns": 0}
    return [frames.decode(json.dumps({**stamp, **body}).encode()) for body in bodies]


def tables_of(source: KernelSource) -> list[frames.Table]:
    """The tables of one reading."""
    found = frames_of(source.read(SourceReading(SECOND_NS)))
    return [one for one in found if isinstance(one, frames.Table)]
