"""The keys that every made-up frame needs, with types, so that mypy checks a frame that is made with ``**``."""

from __future__ import annotations

from typing import TypedDict


class Stamp(TypedDict):
    """Number and clocks of a frame, ns."""

    seq: int
    mono_ns: int
    wall_ns: int
