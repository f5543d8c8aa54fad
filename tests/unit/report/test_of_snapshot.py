"""What lies behind the short form of a snapshot's report: each figure is worked out by hand here."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netconsole.ping.analysis.analyze import analyze
from netconsole.probes.catalogue import load_all
from netconsole.report.blocks import Bars, Curve, Document, Heading, Note, Quoted, ReportBlock, SummaryLines, TextTable
from netconsole.report.of_ping import ping_blocks
from netconsole.report.of_samples import samples
from netconsole.report.of_snapshot import FACT_AREAS, MAX_FACTS, MAX_HISTOGRAMS, MAX_LINES, MAX_ROWS, of_snapshot
from netconsole.snapshot.document import Snapshot
from tests.support import made_up
from tests.support.ping import linked

COLUMNS: dict[str, Any] = {
    "labels": ["device", "queue", "nobody"],
    "values": {
        "packets": {"unit": "packets"},
        "busy": {"unit": "us"},
        "longest": {"unit": "us", "kind": "max"},
        "backlog": {"unit": "", "kind": "max"},
        "errors": {"unit": ""},
    },
}


def report(probe: dict[str, Any] | None = None, **changes: Any) -> Document:
    """Of a snapshot of 10 s with one probe that nobody knows, and without incidents."""
    probes = {} if probe is None else {"own": {"status": "attached", **probe}}
    document = {**made_up.document(1, samples=1), "probes": probes, "incidents": [], "facts": {}, **changes}
    return of_snapshot(msgspec.convert(document, Snapshot))


def below(heading: str, found: Document) -> list[ReportBlock]:
    """The blocks below a heading, in what lies behind."""
    begin = found.behind.index(Heading(heading)) + 1
    ends = [at for at, block in enumerate(found.behind) if isinstance(block, Heading) and at >= begin]
    return found.behind[begin : min(ends, default=None)]


def of_probe(**probe: Any) -> list[ReportBlock]:
    return below("own", report(probe))


def table_of(rows: list[dict[str, Any]], **probe: Any) -> TextTable:
    [table] = of_probe(tables={"t": rows}, columns={"t": COLUMNS}, **probe)
    assert isinstance(table, TextTable)
    return table


def test_the_title_and_what_is_told_first() -> None:
    found = report({"status": "off", "why": "not wanted"}, note="slow\n since  9", duration_s=10.04)
    assert found.title == "netconsole snapshot of hv-017"
    assert found.subtitle == (
        "2026-11-02T21:00:00Z, 10 s, profile summary; kernel 6.1.0 (x86_64), Debian, 8 CPUs; netconsole 0.1.0"
    )
    assert found.blocks[:3] == [Heading("Note"), Note("slow since 9"), Heading("What stands out")]
    assert [block.text for block in report(note="").blocks if isinstance(block, Heading)] == [
        "What stands out",
        "What watching cost",
        "Not measured",
    ]


def test_what_has_no_room_at_the_top_comes_first_behind() -> None:
    incidents = [{"level": "!", "cause": "c", "what": f"thing {n}"} for n in range(5)]
    document = {**made_up.document(1, samples=1), "incidents": incidents}
    found = of_snapshot(msgspec.convert(document, Snapshot), most=3)
    top = found.blocks[1]
    assert isinstance(top, SummaryLines) and [line.text for line in top.lines] == ["thing 0", "thing 1", "thing 2"]
    assert found.blocks[2] == Note("2 more lines below.")
    assert found.behind[0] == Heading("What else stands out")
    others = found.behind[1]
    assert isinstance(others, SummaryLines) and [line.text for line in others.lines] == ["thing 3", "thing 4"]
    assert Heading("What else stands out") not in of_snapshot(msgspec.convert(document, Snapshot), most=5).behind


def test_the_order_behind() -> None:
    found = report(
        {"status": "degraded", "why": "half"},
        governor=[{"probe": "own", "because": "dear"}],
        facts={"kernel/release": {"value": "6", "source": "proc"}},
        drop_places=[{"level": "!", "stage": "s", "where": "w", "why": "y", "total": 1}],
        balance=[{"stage": "qdisc"}],
    )
    assert [block.text for block in found.behind if isinstance(block, Heading)] == [
        "Where packets died",
        "Balance",
        "own",
        "Budget",
        "Cost by probe",
        "Probes that measured nothing, or not everything",
        "Actions of the governor",
        "Configuration of the host",
    ]
    assert below("Budget", found) == [Note("The profile sets no budget.")]
    assert below("Probes that measured nothing, or not everything", found) == [
        TextTable(["probe", "state", "why"], [["own", "! degraded", "half"]])
    ]
    assert below("Actions of the governor", found) == [TextTable(["probe", "because"], [["own", "dear"]])]


def test_what_commands_said_stands_as_they_wrote_it_and_why_they_said_nothing() -> None:
    at = "2026-11-02T20:59:00Z"
    long = "\n".join(map(str, range(MAX_LINES + 2)))
    found = report(
        commands=[
            {"at": at, "command": "ip a", "output": "a\n\tb\n", "status": 1, "is_cut": True},
            {"at": at, "command": "ss -t", "output": "", "status": 0},
            {"at": at, "command": "tc -s qdisc", "why": "tc is not installed there"},
            {"at": at, "command": "ip l", "output": long, "status": 0},
        ]
    )
    blocks = below("What commands said", found)
    assert blocks[:6] == [
        Note(f"{at}, ended with status 1, its beginning is cut off"),
        Quoted(["$ ip a", "a", "        b"]),
        Note(at),
        Quoted(["$ ss -t", "(the command printed nothing)"]),
        Note(at),
        Quoted(["$ tc -s qdisc", "(tc is not installed there)"]),
    ]
    last = blocks[7]
    assert isinstance(last, Quoted)
    assert len(last.lines) == 1 + MAX_LINES + 1
    assert last.lines[-1] == "(2 more lines are in the JSON document)"


def test_a_probe_that_measured_is_told_with_its_title_and_what_it_cannot_see() -> None:
    probes = {"kernel_drops": {"status": "attached"}, "softnet": {"status": "off"}, "own": {"status": "attached"}}
    document = {**made_up.document(1, samples=1), "probes": probes}
    found = of_snapshot(msgspec.convert(document, Snapshot), load_all())
    title = f"{load_all()['kernel_drops'].title} (kernel_drops)"
    told = [block.text for block in found.behind if isinstance(block, Heading)]
    assert told[:3] == [title, "own", "Budget"]
    assert below(title, found) == [Note("The probe ran and counted nothing.")]
    assert below("Probes that measured nothing, or not everything", found) == [
        TextTable(["probe", "state", "why"], [["softnet", "off", "no reason given"]])
    ]
    [unseen] = below("What the probes cannot see", found)
    known = [[name, load_all()[name].cannot_see] for name in ("kernel_drops", "softnet")]
    assert unseen == TextTable(["probe", "what it cannot see"], [row for row in known if row[1]])


def test_a_place_is_written_exactly_and_ranks_no_row() -> None:
    values = {"runs": {"unit": "runs"}, "at": {"unit": "index", "kind": "max"}}
    rows = [{"device": "a", "runs": 3, "at": 65_530}, {"device": "b", "runs": 40, "at": 9}]
    (table,) = of_probe(tables={"t": rows}, columns={"t": {"labels": ["device"], "values": values}})
    assert isinstance(table, TextTable)
    assert table.rows == [["b", "40", "4", "9"], ["a", "3", "0.3", "65530"]]


@pytest.mark.parametrize(
    ("ledger", "counter", "longer", "row", "time"),
    [
        ({}, ["20", "2 packets/s"], "20", ["20", "2"], ["20 us", "2 us"]),
        ({"lost": 1}, ["20", "2 packets/s"], "20", ["20", "2"], ["20 us", "2 us"]),  # samples: every count is exact
        ({"missed": 1}, ["≥20", "≥2 packets/s"], "≥20", ["≥20", "≥2"], ["≥20 us", "≥2 us"]),
        ({"unlisted": 1}, ["20", "2 packets/s"], "20", ["≥20", "≥2"], ["≥20 us", "≥2 us"]),
        ({"unseen_ms": 1}, ["≥20", "2 packets/s"], "20", ["≥20", "2"], ["≥20 us", "2 us"]),
        ({"unseen_ms": 1, "missed": 1}, ["≥20", "≥2 packets/s"], "≥20", ["≥20", "≥2"], ["≥20 us", "≥2 us"]),
    ],
)
def test_what_was_missed_marks_what_it_makes_too_low(
    ledger: dict[str, int], counter: list[str], longer: str, row: list[str], time: list[str]
) -> None:
    """Rates are of the time in which the probe was attached. A counter with a time of its own counted all the time."""
    counted = {"total": 20, "per_s": 2.0, "unit": "packets"}
    counters = {"one": counted, "other": {**counted, "duration_s": 10.0}}
    rows = [{"device": "a", "packets": 20, "busy": 20}]
    columns = {"labels": ["device"], "values": {name: COLUMNS["values"][name] for name in ("packets", "busy")}}
    of_counters, of_rows, *_ = of_probe(ledger=ledger, counters=counters, tables={"t": rows}, columns={"t": columns})
    assert isinstance(of_counters, TextTable) and isinstance(of_rows, TextTable)
    assert of_counters.columns == ["counter", "total", "per second"] and of_counters.numeric == {1, 2}
    assert of_counters.rows == [["one", *counter], ["other", longer, counter[1]]]
    assert of_rows.rows == [["a", *row, *time]]


def test_a_counter_that_moved_has_a_curve() -> None:
    history = {"moved": [0.0, 3.0], "stood": [0.0, 0.0], "short": [5.0], "t.count": [1.0, 2.0]}
    counters = {name: {"total": 1} for name in ("moved", "stood", "short")}
    assert of_probe(history=history, counters=counters)[1:] == [Curve("moved", "per s", [0.0, 3.0])]


def test_columns_that_say_nothing_are_left_out_and_each_sum_has_its_rate() -> None:
    """In 5 s."""
    quiet = {"device": "a", "queue": "", "packets": 10, "busy": 0, "longest": 0, "backlog": 7, "errors": 0}
    busy = {"device": "b", "queue": 0, "packets": 5, "busy": 10_000, "longest": 1500, "backlog": None, "errors": 0}
    assert table_of([quiet, busy], duration_s=5.0) == TextTable(
        ["device", "queue", "packets (packets)", "per s", "busy", "per s", "longest", "backlog"],
        [
            ["b", "0", "5", "1", "10 ms", "2 ms", "1.50 ms", "–"],
            ["a", "", "10", "2", "0 ns", "0 ns", "0 ns", "7"],
        ],
        frozenset({2, 3, 4, 5, 6, 7}),
    )


def test_where_no_value_moved_the_first_is_shown_and_nothing_is_no_zero() -> None:
    assert table_of([{"device": "a"}]) == TextTable(
        ["device", "packets (packets)", "per s"], [["a", "–", "–"]], frozenset({1, 2})
    )
    assert table_of([{"device": "a", "packets": 0.5}], duration_s=0.0).rows == [["a", "–", "–"]]


@pytest.mark.parametrize(("count", "shown", "omitted"), [(29, 29, 0), (30, 30, 0), (32, 30, 2)])
def test_thirty_rows_are_shown_the_largest_first(count: int, shown: int, omitted: int) -> None:
    assert MAX_ROWS == 30
    rows = [{"device": f"eth{n}", "packets": 1 + n} for n in range(count)]
    table = table_of(rows)
    assert (len(table.rows), table.omitted) == (shown, omitted)
    assert table.rows[0][:2] == [f"eth{count - 1}", str(count)]
    [undeclared] = of_probe(tables={"t": rows})
    assert isinstance(undeclared, TextTable) and (len(undeclared.rows), undeclared.omitted) == (shown, omitted)
    assert undeclared.columns == ["device", "packets"] and undeclared.rows[0] == ["eth0", "1"]
    parts = [{"count": 1, "buckets": [[n, n + 1, 1]], "labels": {"device": f"eth{n}"}} for n in range(count)]
    _, of_parts, *bars = of_probe(histograms={"wait": {"unit": "us", "by": parts}})
    assert isinstance(of_parts, TextTable) and (len(of_parts.rows), of_parts.omitted) == (shown, omitted)
    assert len(bars) == MAX_HISTOGRAMS == 12


def test_rows_have_their_latest_packets_where_any_is_known() -> None:
    rows = [{"device": "a", "queue": 1, "packets": 1}, {"device": "b", "queue": 2, "packets": 5}]
    fields = {"protocol": "UDP", "source": "192.0.2.1", "target": "192.0.2.2", "target_port": 9}
    packets = [{"came": "2026-11-02T20:59:58Z", "fields": fields}, None]
    table = table_of(rows, row_examples={"t": packets})
    assert (table.columns[-1], table.numeric) == ("latest packet", frozenset({2, 3}))
    assert [row[-1] for row in table.rows] == ["", "UDP 192.0.2.1 → 192.0.2.2:9, at 20:59:58"]
    for unknown in ([None, None], packets[:1], []):
        assert "latest packet" not in table_of(rows, row_examples={"t": unknown}).columns


def test_an_incident_says_its_latest_packet_before_what_to_look_at() -> None:
    fields = {"source_mac": "02:00:00:00:00:01", "came_in_by": "vethB", "length_bytes": 98}
    packet = {"came": "2026-11-01T23:59:59Z", "fields": fields}
    one = {"level": "!", "cause": "c", "what": "thing", "next": ["Look."], "example": packet}
    found = report(incidents=[one, {**one, "example": None}])
    top = found.blocks[1]
    told = "from 02:00:00:00:00:01, came in by vethB, 98 bytes, at 2026-11-01T23:59:59Z"
    assert isinstance(top, SummaryLines)
    assert [line.more for line in top.lines] == [f"Latest packet: {told}. Look.", "Look."]


def test_what_is_not_known_ranks_last() -> None:
    rows: list[dict[str, Any]] = [{"device": "a", "packets": None}, {"device": "b", "packets": 0.5}]
    assert [row[0] for row in table_of(rows).rows] == ["b", "a"]
    parts = [
        {"count": 1, "labels": {"device": "a"}},  # an old snapshot without buckets
        {"count": 1, "buckets": [[0.4, 0.6, 1]], "labels": {"device": "b"}},
    ]
    _, table, *_ = of_probe(histograms={"wait": {"unit": "us", "by": parts}})
    assert isinstance(table, TextTable) and [row[0] for row in table.rows] == ["b", "a"]


def test_a_filter_stands_above_the_figures_and_samples_below() -> None:
    event = {"name": "drop", "wall_ns": 0, "reason": "NO_SOCKET"}
    told = of_probe(filters={"reason": "XDP"}, counters={"one": {"total": 1}}, events=[event])
    assert told[0] == Note("Only what passes the filter reason=XDP.")
    assert told[2:] == [*samples([event])] and len(told) > 3


def test_a_ping_that_was_measured_as_well_is_told_first_and_without_formulas() -> None:
    ping = analyze(linked(3))
    found = report({}, ping=msgspec.to_builtins(ping))
    assert found.behind[0] == Heading("A ping between two VMs")
    blocks = [*ping_blocks(ping, formulas=False)]
    assert found.behind[1 : 1 + len(blocks)] == blocks
    assert found.behind[1 + len(blocks)] == Heading("own")
    assert len(blocks) < len([*ping_blocks(ping, formulas=True)])


def test_a_table_without_rows_is_no_figure() -> None:
    assert of_probe(tables={"t": []}, columns={"t": COLUMNS}) == [Note("The probe ran and counted nothing.")]
    [table] = of_probe(tables={"t": [{"a": True, "b": False, "c": None}, {"c": 1.5}]}, columns={"t": {}})
    assert table == TextTable(["a", "b", "c"], [["yes", "no", "–"], ["–", "–", "1.5"]])


def test_the_slowest_histogram_comes_first_with_its_figures() -> None:
    """Of 100 samples, 98 lie between 0 and 2 us, one at 11 and one at 21: half are below 1, 99 of 100 at 11 or less."""
    slow = {
        "count": 100, "sum": 130.0, "max": 20.5, "buckets": [[0, 2, 98], [10, 12, 1], [20, 22, 1]],
        "labels": {"device": "b", "queue": 0},
    }  # fmt: skip
    fast = {"unit": "ms", "count": 4, "buckets": [[0.001, 0.003, 4]], "labels": {"device": "a"}}
    empty = {"count": 0, "labels": {"cpu": 1}}
    title, table, first, second = of_probe(histograms={"wait": {"unit": "us", "by": [fast, empty, slow]}})
    assert title == Note("Histogram wait: the highest p99 comes first.")
    assert table == TextTable(
        ["device", "queue", "samples", "mean", "p50", "p90", "p99", "p99.9", "max"],
        [
            ["b", "0", "100", "1.30 us", "1 us", "1 us", "11 us", "20.5 us", "20.5 us"],
            ["a", "–", "4", "–", "2 us", "2 us", "2 us", "2 us", "–"],
        ],
        frozenset({2, 3, 4, 5, 6, 7, 8}),
    )
    assert first == Bars(
        "wait device b, queue 0", "us", [(0, 2, 98), (10, 12, 1), (20, 22, 1)], {"p50": 1.0, "p90": 1.0, "p99": 11.0}
    )
    assert isinstance(second, Bars) and (second.title, second.unit) == ("wait device a", "ms")


def test_a_histogram_without_labels_is_its_own_part_and_an_empty_one_is_not_told() -> None:
    _, table, bars = of_probe(histograms={"wait": {"unit": "us", "count": 2, "buckets": [[0, 2, 2]]}})
    assert isinstance(table, TextTable) and table.rows[0][0] == "2" and table.numeric == set(range(7))
    assert isinstance(bars, Bars) and (bars.title, bars.unit) == ("wait", "us")
    assert of_probe(histograms={"wait": {"unit": "us"}}) == [Note("The probe ran and counted nothing.")]


def test_how_much_was_seen_and_what_was_not_timed_is_said() -> None:
    """Attached for 2.5 s of 10: a quarter of the time."""
    seen, untimed, nothing = of_probe(ledger={"unseen_ms": 7500, "unmeasured": 1234}, duration_s=2.5)
    assert isinstance(seen, Note) and seen.text.startswith("The probe was attached for 25 % of the time: rates are")
    assert isinstance(untimed, Note) and "1\u202f234 were not timed" in untimed.text
    assert nothing == Note("The probe ran and counted nothing.")
    never = of_probe(ledger={"unseen_ms": 7500})[0]
    assert isinstance(never, Note) and "for 0 % of the time" in never.text


def test_what_watching_cost() -> None:
    """30 ms of kernel time in 10 s are 0.3 % of a core."""
    process = {"cpu_pct": 1.5, "rss_kb": 1, "pss_kb": 2048}
    cost = {"kernel_cpu_pct": 0.3, "machine_cpu_pct": 40.0, "suppressed": 5, "lost": 6}
    ran = {"run_count": 1000, "run_time_ns": 30_000_000, "ns_per_run": 30_000.0}
    probes = {
        "timed": {"status": "attached", "cost": ran},
        "guessed": {"status": "attached", "cost": {"run_count": 2, "estimated": True}},
        "idle": {"status": "attached", "cost": {"run_count": 0, "run_time_ns": 0}},
        "without": {"status": "attached", "cost": {"run_time_ns": 5}},
    }
    whole, each = below("Cost by probe", report(probes=probes, cost={**cost, "console": process, "collector": process}))
    assert whole == TextTable(
        ["what", "measured"],
        [
            ["CPU time in the kernel, of one core", "0.3 %"],
            ["CPU time of collector and console, of one core", "3 %"],
            ["memory of collector and console (PSS)", "4 MB"],
            ["CPU time of the whole machine", "40 %"],
            ["events suppressed", "5"],
            ["events lost", "6"],
        ],
        frozenset({1}),
    )
    assert each == TextTable(
        ["probe", "runs", "per run", "of one core", ""],
        [
            ["timed", "1.00k", "30 us", "0.3 %", "measured"],
            ["guessed", "2", "–", "–", "estimated from windows"],
            ["idle", "0", "–", "0 %", "measured"],
        ],
        frozenset({1, 2, 3}),
    )


def test_a_share_of_no_time_is_not_known() -> None:
    probes = {"own": {"status": "attached", "cost": {"run_count": 1, "run_time_ns": 5}}}
    _, each = below("Cost by probe", report(probes=probes, duration_s=0.0))
    assert isinstance(each, TextTable) and each.rows == [["own", "1", "–", "–", "measured"]]


def test_the_budget_is_held_against_what_was_measured() -> None:
    profile = {"name": "summary", "budget": {"kernel_cpu_pct": 2.0}}
    [table] = below("Budget", report(profile=profile, cost={"kernel_cpu_pct": 1.0}))
    assert table == TextTable(
        ["what", "measured", "budget", "state"],
        [["time in the kernel, of one core", "1 %", "2 %", "ok"]],
        frozenset({1, 2}),
    )


def test_facts_are_told_by_area() -> None:
    def fact(value: Any, **more: Any) -> dict[str, Any]:
        return {"value": value, "source": "made up", **more}

    facts = {
        "tc/a": fact(1),
        "other/a": fact("not shown"),
        "cpu/list": fact(["a", "b"]),
        "cpu/on": fact(True),
        "kernel/a": fact(None, why="no such file"),
        "kernel/b": fact(None),
    }
    [table] = below("Configuration of the host", report(facts=facts))
    assert table == TextTable(
        ["fact", "value", "source"],
        [
            ["kernel/a", "unknown: no such file", "made up"],
            ["kernel/b", "unknown: no reason given", "made up"],
            ["cpu/list", "a, b", "made up"],
            ["cpu/on", "yes", "made up"],
            ["tc/a", "1", "made up"],
        ],
        omitted=1,
    )
    assert Heading("Configuration of the host") not in report().behind


@pytest.mark.parametrize(("count", "omitted"), [(300, 0), (301, 1)])
def test_three_hundred_facts_are_told(count: int, omitted: int) -> None:
    assert MAX_FACTS == 300 and FACT_AREAS[0] == "kernel/"
    facts = {f"kernel/{n}": {"value": n, "source": "s"} for n in range(count)}
    [table] = below("Configuration of the host", report(facts=facts))
    assert isinstance(table, TextTable) and (len(table.rows), table.omitted) == (300, omitted)


def test_a_list_in_a_row_is_a_stack() -> None:
    [table] = below("Actions of the governor", report(governor=[{"stack": ["a", "b"]}]))
    assert isinstance(table, TextTable) and table.rows == [["a < b"]]
