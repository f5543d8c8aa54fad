"""A calibration as a report: what each treatment changed, its time in the kernel, and what netconsole itself used."""

from __future__ import annotations

from collections.abc import Sequence

from netconsole.base import figure
from netconsole.calibrate.estimate import CONFIDENCE
from netconsole.calibrate.result import Calibration, Entry, InKernel, LoadChange, ProgramTime
from netconsole.report.blocks import Document, Heading, Note, ReportBlock, TextTable

_CHANGES = ["figure", "without", "with", "change", f"{CONFIDENCE:.0%} interval", "noise floor", "verdict"]
_KERNEL = ["in the kernel, minus empty programs", "runs", "ns", f"{CONFIDENCE:.0%} interval"]
_MIN_RUNS = 0.01
"""Runs per packet. Below this, the workload does not pass the probe's hooks: other traffic and timers do."""
_PROGRAMS = ["program", "attached to", "ns a run", "of that, an empty program"]


def of_calibration(calibration: Calibration, names: Sequence[str] | None = None) -> Document:
    """The report of all entries, or of those that ``names`` lists."""
    blocks: list[ReportBlock] = []
    for name in names if names is not None else list(calibration.entries):
        blocks += _entry(calibration.entries[name])
    blocks += [Heading("Method"), Note(calibration.method)]
    host = calibration.host
    return Document("What watching costs here", f"{host.name}, kernel {host.kernel}, {host.cpus} CPUs", blocks)


def _entry(entry: Entry) -> list[ReportBlock]:
    mode = ", ".join(f"{probe} in {mode}" for probe, mode in entry.probes.items())
    made = (
        f"{entry.created}; {entry.pairs} pairs of measurements of {figure.duration(entry.window_s, 's')}"
        " for each workload"
    )
    tool = entry.tool
    used = (
        f"The collector used {figure.percent(tool.cpu_pct)} of one core ({figure.percent(tool.idle_cpu_pct)} without"
        f" probes) and {figure.memory(tool.pss_kb)} (PSS), and wrote {figure.rate(tool.written_bytes_per_s, 'B')};"
        f" before that, the machine's CPUs were {figure.percent(entry.busy_pct)} busy."
    )
    blocks: list[ReportBlock] = [Heading(entry.name), Note(f"{mode}; {made}.")]
    blocks.append(TextTable(_CHANGES, [_change(one) for one in entry.changes], frozenset({1, 2, 3, 4, 5})))
    with_runs = [one for one in entry.kernel if one.runs >= _MIN_RUNS]
    if with_runs:
        blocks.append(TextTable(_KERNEL, [_kernel(one) for one in with_runs], frozenset({1, 2, 3})))
    if not entry.kernel:
        blocks.append(Note("This kernel does not measure the run time of BPF programs."))
    elif aside := [one.title for one in entry.kernel if one not in with_runs]:
        blocks.append(Note(f"The packets of these workloads do not pass the hooks: {', '.join(aside)}."))
    ran = [one for one in entry.programs if one.ns_per_run is not None]
    if ran:
        blocks.append(TextTable(_PROGRAMS, [_program(one) for one in ran], frozenset({2, 3})))
    return [*blocks, Note(used)]


def _change(one: LoadChange) -> list[str]:
    return [
        one.title,
        f"{figure.number(one.before)} {one.unit}",
        f"{figure.number(one.during)} {one.unit}",
        f"{_signed(one.change_pct.value)} %",
        f"{_signed(one.change_pct.low)} to {_signed(one.change_pct.high)} %",
        f"±{_signed(one.floor_pct).lstrip('+')} %",
        one.verdict,
    ]


def _kernel(one: InKernel) -> list[str]:
    what = f"{one.title}, per {one.unit}"
    span = f"{figure.number(one.ns.low)} to {figure.number(one.ns.high)}"
    return [what, figure.number(one.runs), figure.number(one.ns.value), span]


def _program(one: ProgramTime) -> list[str]:
    return [f"{one.probe}/{one.name}", one.attach, figure.number(one.ns_per_run), figure.number(one.empty_ns)]


def _signed(percent: float) -> str:
    """A percentage with its sign. It has one decimal; from 100 % on, it has none."""
    return f"{percent:+.1f}" if abs(percent) < 100 else f"{percent:+.0f}"
