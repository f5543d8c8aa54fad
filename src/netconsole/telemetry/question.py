"""A question to a host about a row: why does it count?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from netconsole.telemetry.frames import Scalar
from netconsole.telemetry.tables import RowKey

WENT_ON = "went_on"
"""In an answer: whether more was lost while the host was asked."""


class CommandOutput(NamedTuple):
    """What a command wrote, the end of it where ``is_cut``, and how it ended; ``seconds``: how long it took."""

    text: str
    status: int
    seconds: float
    is_cut: bool


class HostQuestion(NamedTuple):
    """``name`` and ``arguments`` as the collector takes them (docs/design/collector.md#questions)."""

    probe: str
    table: str
    key: RowKey
    name: str
    arguments: Mapping[str, Scalar]
    incident: int = 0
    """Of which incident it is: the next one of the same row asks again."""
