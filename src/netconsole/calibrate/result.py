"""The document of a calibration, as it is stored and printed as JSON (docs/use/calibrate.md)."""

from __future__ import annotations

from typing import Literal

import msgspec

from netconsole.calibrate.estimate import LoadVerdict
from netconsole.snapshot.document import HostData

SCHEMA = "netconsole.calibration/1"


class Bounds(msgspec.Struct, frozen=True):
    """A figure and its confidence interval."""

    value: float
    low: float
    high: float


class LoadChange(msgspec.Struct, frozen=True):
    """One figure of the load: without and with (medians), and by how much it changed, in percent."""

    metric: str
    title: str
    unit: str
    before: float
    during: float
    change_pct: Bounds
    floor_pct: float
    verdict: LoadVerdict


class ProgramTime(msgspec.Struct, frozen=True):
    """One BPF program. ``empty_ns``: a run of an empty program at the same hook, including the measuring itself."""

    probe: str
    name: str
    attach: str
    ns_per_run: float | None
    empty_ns: float | None


class InKernel(msgspec.Struct, frozen=True):
    """Time of the programs per packet or round trip of one workload, minus that of empty programs."""

    workload: str
    title: str
    unit: str
    runs: float
    ns: Bounds


class PerCount(msgspec.Struct, frozen=True):
    """In-kernel cost of one count of the probe's own counter: the estimate where run times cannot be measured."""

    counter: str
    unit: str
    ns: float
    basis: Literal["run times", "CPU of the sender"]


class ToolUse(msgspec.Struct, frozen=True):
    """The collector's process with the probes, as pidstat shows it. ``idle_cpu_pct``: the same without probes."""

    cpu_pct: float
    idle_cpu_pct: float
    pss_kb: int | None
    written_bytes_per_s: float


class Entry(msgspec.Struct, frozen=True):
    """What one treatment costs: a probe in a mode, or all probes of a profile."""

    name: str
    probes: dict[str, str]
    """Mode by probe."""
    versions: dict[str, int]
    created: str
    pairs: int
    window_s: float
    busy_pct: float
    """How busy the machine was before."""
    changes: list[LoadChange]
    kernel: list[InKernel]
    programs: list[ProgramTime]
    per_count: dict[str, PerCount]
    """By probe."""
    tool: ToolUse


class Calibration(msgspec.Struct, frozen=True):
    """All results on one host with one kernel."""

    schema: str
    netconsole: str
    host: HostData
    method: str
    entries: dict[str, Entry]
