"""Baselines as a report: what each is good for, and one in detail."""

from __future__ import annotations

from collections.abc import Sequence

from netconsole.baseline import Baseline, Summary
from netconsole.report.blocks import Block, Document, Heading, Note, Table
from netconsole.snapshot_file import MEASURED


def of_baselines(summaries: Sequence[Summary]) -> Document:
    """All baselines, one line each."""
    if not summaries:
        return Document("No baselines yet", "netconsole baseline save NAME FILE makes one of snapshots.", [])
    rows = [
        [one.name, str(one.snapshots), ", ".join(one.hosts), ", ".join(one.profiles), one.created, "; ".join(one.notes)]
        for one in summaries
    ]
    head = ["name", "runs", "host", "profile", "last run", "good for"]
    return Document("Baselines", f"{len(summaries)} in all", [Table(head, rows, frozenset({1}))])


def of_baseline(baseline: Baseline, summary: Summary) -> Document:
    """One baseline with its runs and what every run measured."""
    rows = []
    for name, one in zip(baseline.files, baseline.snapshots, strict=True):
        measured = sum(probe.status in MEASURED for probe in one.probes.values())
        profile = one.profile.name
        rows.append(
            [name, one.created, f"{one.duration_s:.3g} s", one.host.name, one.host.kernel, profile, str(measured)]
        )
    blocks: list[Block] = [
        Heading("Good for"),
        Note("; ".join(summary.notes)),
        Heading("Runs"),
        Table(["file", "created", "time", "host", "kernel", "profile", "probes"], rows, frozenset({2, 6})),
        Heading("Measured in every run"),
        Note(", ".join(summary.probes) or "nothing"),
    ]
    return Document(f"Baseline {baseline.name}", f"saved {baseline.saved}", blocks)
