"""The message after the exit: how long it ran, what it cost, what went wrong, and the files it wrote."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from netconsole.base import figure
from netconsole.findings.incident import Incident, once_each, told
from netconsole.telemetry.session import Session

MAX_TOLD = 5
"""Incidents that the summary after the exit names."""


def describe_end(
    session: Session,
    started_s: float,
    snapshots: Sequence[Path],
    incidents: Sequence[Incident] = (),
    host: str = "",
) -> str:
    """The message, of one session that was begun at ``started_s`` of the monotonic clock. ``host`` begins each line."""
    with session.view() as state:
        elapsed = figure.elapsed(time.monotonic() - started_s)
        # With a name it is one of several: what the console itself costs is shared by all of them.
        used = sum(source.cpu_ns for source in ([state.collector] if host else state.sources.values()))
        kernel = sum(
            (program.cpu_pct or 0.0) / 100 * probe.cost.elapsed_ns
            for probe in state.probes.values()
            for program in probe.cost.programs.values()
        )
    cost = f"{figure.duration(used)} of CPU time in user space and {figure.duration(kernel)} in the kernel"
    lines = [f"watched for {elapsed}; every probe is removed", f"it cost {cost}{' there' if host else ''}"]
    if told_of := once_each([one for one in incidents if not one.is_ours], incidents):
        lines.append(_how_many(told_of))
        lines += [f"  {one.level} {told(one)}" for one in told_of[-MAX_TOLD:]]
    lines += [f"snapshot in {figure.safe(snapshots[-1])}"] if snapshots else []
    named = f"{host}: " if host else ""
    return "\n".join(f"netconsole: {named}{line}" for line in lines)


def _how_many(incidents: Sequence[Incident]) -> str:
    """How many there were, and how many of them are over."""
    count, ended = len(incidents), sum(one.ended_ns is not None for one in incidents)
    if count == 1:
        return "1 incident, which has ended:" if ended else "1 incident, which goes on:"
    which = f"; the last {MAX_TOLD}" if count > MAX_TOLD else ""
    return f"{count} incidents, {ended} of them over{which}:"
