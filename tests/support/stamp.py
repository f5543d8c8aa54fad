"""What every made-up frame carries, typed: a frame that is made with ``**`` of it is checked like any other."""

from __future__ import annotations

from typing import TypedDict


class Stamp(TypedDict):
    """Number and clocks of a frame, ns."""

    seq: int
    mono_ns: int
    wall_ns: int
