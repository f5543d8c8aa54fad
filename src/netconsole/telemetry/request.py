"""What a session is asked to run: a probe, its mode and its knobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from netconsole.telemetry.frames import Mode, Scalar


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
