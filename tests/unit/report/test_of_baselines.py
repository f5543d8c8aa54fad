"""Baselines and calibrations as reports: every figure of them in its place."""

from __future__ import annotations

from typing import Any

import msgspec

from netconsole.calibrate.result import Calibration
from netconsole.compare.baseline import Baseline, Summary
from netconsole.report import of_baseline, of_baselines
from netconsole.report.blocks import Document, Heading, Note, ReportBlock, TextTable
from netconsole.report.of_calibration import of_calibration
from netconsole.snapshot.document import Snapshot
from tests.support import made_up
from tests.support.ping import capture_of, echo

SUMMARY = Summary("monday", 2, ["hv-1", "hv-2"], ["6.1"], ["summary", "drops"], ["a", "b"], "2026-11-20", ["x", "y"])


def test_a_list_of_baselines() -> None:
    assert of_baselines([]) == Document(
        "No baselines yet", "netconsole baseline save NAME FILE makes one from snapshots.", []
    )
    row = ["monday", "2", "hv-1, hv-2", "summary, drops", "2026-11-20", "x; y"]
    assert of_baselines([SUMMARY, SUMMARY]) == Document(
        "Baselines",
        "2 in total",
        [TextTable(["name", "runs", "host", "profile", "last run", "good for"], [row, row], frozenset({1}))],
    )


def snapshot() -> Snapshot:
    """Of three probes, two of which measured."""
    document = made_up.document(1, samples=1, seconds=10.04)
    document["probes"] = {str(n): {"status": one} for n, one in enumerate(("attached", "degraded", "failed"))}
    return made_up.changed(document, cost={"machine_cpu_pct": 12.5})


def test_a_baseline_of_runs_and_of_a_ping() -> None:
    ping = [capture_of("sender-vm", [echo(1, 1, 1, 1), echo(2, 1, 1, 1)]).capture, capture_of("host", []).capture]
    whole = Baseline("", "monday", "2026-11-20", ["a.json"], [snapshot()], ping, ["vm.json", "host.json"])
    runs = TextTable(
        ["file", "created", "time", "host", "kernel", "profile", "probes", "machine busy"],
        [["a.json", "2026-11-02T21:00:00Z", "10 s", "hv-017", "6.1.0", "summary", "2", "12.5 %"]],
        frozenset({2, 6, 7}),
    )
    captures = TextTable(
        ["file", "role", "host", "echoes"],
        [["vm.json", "sender-vm", "of sender-vm", "2"], ["host.json", "host", "of host", "means"]],
        frozenset({3}),
    )
    good: list[ReportBlock] = [Heading("Good for"), Note("x; y")]
    of_runs: list[ReportBlock] = [Heading("Runs"), runs, Heading("Measured in every run"), Note("a, b")]
    of_ping: list[ReportBlock] = [Heading("Ping"), captures]
    title = ("Baseline monday", "saved 2026-11-20")
    assert of_baseline(whole, SUMMARY) == Document(*title, [*good, *of_ping, *of_runs])
    runs_alone = msgspec.structs.replace(whole, ping=[], ping_files=[])
    assert of_baseline(runs_alone, SUMMARY) == Document(*title, [*good, *of_runs])
    ping_alone = msgspec.structs.replace(whole, files=[], snapshots=[])
    assert of_baseline(ping_alone, SUMMARY) == Document(*title, [*good, *of_ping])
    nothing = Summary("monday", 1, [], [], [], [], "", [])
    assert of_baseline(runs_alone, nothing).blocks[-1] == Note("nothing")


SPAN = {"value": 40.0, "low": -0.05, "high": 100.4}
CHANGE = {
    "metric": "m", "title": "dropped", "unit": "ns", "before": 5000.0, "during": 7000.0, "change_pct": SPAN,
    "floor_pct": 2.0, "verdict": "slower",
}  # fmt: skip
IN_KERNEL = {"workload": "dropped", "title": "datagrams", "unit": "packet", "runs": 0.01, "ns": SPAN}
PROGRAM = {"probe": "p", "name": "drop", "attach": "raw_tracepoint:x", "ns_per_run": 2100.0, "empty_ns": 100.0}


def entry(**more: Any) -> dict[str, Any]:
    plain = {
        "name": "p:summary", "probes": {"p": "summary", "q": "details"}, "versions": {}, "created": "2026-11-20",
        "pairs": 6, "window_s": 0.4, "busy_pct": 3.0, "changes": [CHANGE], "kernel": [IN_KERNEL], "programs": [PROGRAM],
        "per_count": {},
        "tool": {"cpu_pct": 1.5, "idle_cpu_pct": 0.5, "pss_kb": 2048, "written_bytes_per_s": 1500.0},
    }  # fmt: skip
    return {**plain, **more}


def calibration(**entries: dict[str, Any]) -> Calibration:
    host = {"name": "hv", "kernel": "6.1", "cpus": 8}
    document = {"schema": "", "netconsole": "", "host": host, "method": "in pairs", "entries": entries}
    return msgspec.convert(document, Calibration)


def test_a_calibration_with_all_its_figures() -> None:
    found = of_calibration(calibration(one=entry()))
    assert (found.title, found.subtitle) == ("What watching costs here", "hv, kernel 6.1, 8 CPUs")
    assert found.blocks == [
        Heading("p:summary"),
        Note("p in summary, q in details; 2026-11-20; 6 pairs of measurements of 400 ms for each workload."),
        TextTable(
            ["figure", "without", "with", "change", "99% interval", "noise floor", "verdict"],
            [["dropped", "5.00k ns", "7.00k ns", "+40.0 %", "-0.1 to +100 %", "±2.0 %", "slower"]],
            frozenset({1, 2, 3, 4, 5}),
        ),
        TextTable(
            ["in the kernel, minus empty programs", "runs", "ns", "99% interval"],
            [["datagrams, per packet", "0.01", "40", "-0.05 to 100"]],
            frozenset({1, 2, 3}),
        ),
        TextTable(
            ["program", "attached to", "ns a run", "of that, an empty program"],
            [["p/drop", "raw_tracepoint:x", "2.10k", "100"]],
            frozenset({2, 3}),
        ),
        Note(
            "The collector used 1.50 % of one core (0.5 % without probes) and 2 MB (PSS), and wrote 1.50k B/s; before"
            " that, the machine's CPUs were 3 % busy."
        ),
        Heading("Method"),
        Note("in pairs"),
    ]


def test_what_a_calibration_could_not_measure_is_said() -> None:
    aside = [{**IN_KERNEL, "runs": 0.0099, "title": name} for name in ("one", "two")]
    unknown = [{**PROGRAM, "ns_per_run": None}]
    found = of_calibration(
        calibration(a=entry(kernel=[IN_KERNEL, *aside], programs=[*unknown, PROGRAM]), b=entry(kernel=[], programs=[]))
    )
    begin = found.blocks.index(Heading("p:summary"), 1)
    first, second = found.blocks[:begin], found.blocks[begin:]
    assert [len(block.rows) for block in first if isinstance(block, TextTable)] == [1, 1, 1]
    assert Note("The packets of these workloads do not pass the hooks: one, two.") in first
    no_times = Note("This kernel does not measure the run time of BPF programs.")
    assert no_times in second and no_times not in first
    assert len([block for block in second if isinstance(block, TextTable)]) == 1


def test_only_the_entries_that_are_asked_for_are_shown() -> None:
    both = calibration(a=entry(name="a"), b=entry(name="b"))
    shown = [[one.text for one in of_calibration(both, names).blocks if isinstance(one, Heading)]
             for names in (None, ["b"], [])]  # fmt: skip
    assert shown == [["a", "b", "Method"], ["b", "Method"], ["Method"]]
