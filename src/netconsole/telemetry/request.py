"""What a session is asked: probes to run, with their modes and knobs, and questions to its host about a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from netconsole.telemetry.frames import Mode, Scalar
from netconsole.telemetry.tables import RowKey


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """A probe to run. ``spec`` is the manifest as the collector takes it (docs/reference/probes.md), ``code`` its C."""

    name: str
    mode: Mode = "summary"
    knobs: Mapping[str, Scalar] = field(default_factory=dict)
    spec: Mapping[str, object] = field(default_factory=dict)
    code: str = ""
    source: str = "bpf"
    kernel_cpu_pct: float | None = None
    """What its details alone may take in the kernel, percent of one core; None: as much as those of all others."""


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
