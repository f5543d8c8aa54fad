"""Baselines as a report: a list that says what each is good for, and one baseline in detail."""

from __future__ import annotations

from collections.abc import Sequence

from netconsole.base import figure
from netconsole.compare.baseline import Baseline, Summary
from netconsole.report.blocks import Document, Heading, Note, ReportBlock, TextTable
from netconsole.snapshot.document import MEASURED, number


def of_baselines(summaries: Sequence[Summary]) -> Document:
    """All baselines, one line each."""
    if not summaries:
        return Document("No baselines yet", "netconsole baseline save NAME FILE makes one from snapshots.", [])
    rows = [
        [one.name, str(one.snapshots), ", ".join(one.hosts), ", ".join(one.profiles), one.created, "; ".join(one.notes)]
        for one in summaries
    ]
    head = ["name", "runs", "host", "profile", "last run", "good for"]
    return Document("Baselines", f"{len(summaries)} in total", [TextTable(head, rows, frozenset({1}))])


def of_baseline(baseline: Baseline, summary: Summary) -> Document:
    """One baseline: its runs, the conditions of each, and the probes that every run measured."""
    rows = []
    for name, one in zip(baseline.files, baseline.snapshots, strict=True):
        measured = sum(probe.status in MEASURED for probe in one.probes.values())
        profile = one.profile.name
        busy = figure.percent(number(one.cost.get("machine_cpu_pct")))
        length = f"{one.duration_s:.3g} s"
        rows.append([name, one.created, length, one.host.name, one.host.kernel, profile, str(measured), busy])
    blocks: list[ReportBlock] = [Heading("Good for"), Note("; ".join(summary.notes))]
    if baseline.ping:
        captures = [
            [file, one.role, one.host, str(len(one.packets)) if one.packets else "means"]
            for file, one in zip(baseline.ping_files, baseline.ping, strict=False)
        ]
        blocks += [Heading("Ping"), TextTable(["file", "role", "host", "echoes"], captures, frozenset({3}))]
    if not baseline.snapshots:
        return Document(f"Baseline {baseline.name}", f"saved {baseline.saved}", blocks)
    blocks += [
        Heading("Runs"),
        TextTable(
            ["file", "created", "time", "host", "kernel", "profile", "probes", "machine busy"],
            rows,
            frozenset({2, 6, 7}),
        ),
        Heading("Measured in every run"),
        Note(", ".join(summary.probes) or "nothing"),
    ]
    return Document(f"Baseline {baseline.name}", f"saved {baseline.saved}", blocks)
