"""The report of a ping's breakdown: which block it has for what, and what each row says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netconsole.ping.breakdown import (
    SCHEMA,
    Breakdown,
    BreakdownCheck,
    FactShown,
    Loss,
    PathTime,
    PingAdvice,
    PingComparison,
    TimeChange,
    Vantage,
)
from netconsole.ping.words import NOTED, NOTHING
from netconsole.report.blocks import (
    Heading,
    Note,
    ReportBlock,
    ScaledBar,
    ScaledPath,
    SummaryLine,
    SummaryLines,
    TextTable,
)
from netconsole.report.of_ping import MAX_ADVICE, of_ping

PLACES: dict[str, Any] = {"min_us": 1.0, "p50_us": 2.0, "p90_us": 3.0, "p99_us": 4.0, "max_us": 5.0}
KNOWN = TimeChange(40.0, 30.0, -10.0, 0.75, -10.0)
UNKNOWN = TimeChange(None, 30.0, None, None)


def time(mean_us: float | None, **more: Any) -> PathTime:
    return PathTime(mean_us, 9, **{"measured": True, "where": "here", "what": "way", "formula": "a - b", **more})


def breakdown(**changes: Any) -> Breakdown:
    made: dict[str, Any] = {
        "round_trip_us": 100.0,
        "paired_packets": 9,
        "segments": {"A": time(60.0, share_pct=60.0), "U_sender": time(40.0, measured=False)},
        "stages": {},
        "parts": {"sender_host_us": 70.0, "receiver_host_us": None},
        "layers": {"vm_internal_us": 60.0},
        "checks": [],
    }
    return Breakdown(SCHEMA, **{**made, **changes})


def sections(formulas: bool = True, **changes: Any) -> dict[str, list[ReportBlock]]:
    """The blocks under each heading."""
    found: dict[str, list[ReportBlock]] = {}
    for block in of_ping(breakdown(**changes), formulas).blocks:
        if isinstance(block, Heading):
            last = found[block.text] = []
        else:
            last.append(block)
    return found


def lines(*pairs: tuple[str, str]) -> SummaryLines:
    return SummaryLines([SummaryLine(word, text) for word, text in pairs])


def test_a_plain_breakdown_has_these_sections() -> None:
    plain = ["Where the time goes", "The way of an echo, us", "Time by part and by layer, us", "Checks", "Formulas"]
    assert list(sections()) == plain and list(sections(formulas=False)) == plain[:-1]


def test_findings_come_first_and_failed_checks_after_them() -> None:
    checks = [BreakdownCheck("a", True, "holds"), BreakdownCheck("b", False, "does not")]
    found = sections(findings=["One.", f"{NOTED}does not."], checks=checks)
    assert found["Where the time goes"] == [lines(("", "One."), ("!", "does not"))]
    assert found["Checks"] == [
        Note("1 check failed: see the lines with ! above."),
        lines(("ok", "a: holds")),
    ], "no complaint is said twice"


def test_the_way_is_drawn_with_halves_and_without_what_does_not_exist() -> None:
    segments = {"A": time(60.0, share_pct=60.0), "D": time(0.0, what=NOTHING), "U_sender": time(40.0, measured=False)}
    half = time(15.0, accuracy_us=0.5, share_pct=15.0)
    [way] = sections(segments=segments, halves={"U_sender": {"kick": half}})["The way of an echo, us"]
    assert way == ScaledPath(
        "the way of an echo, from top to bottom",
        "us",
        [
            ScaledBar("A", "here", 60.0, "60.0", "60 %"),
            ScaledBar("D", "here", 0.0, "none", ""),
            ScaledBar("U_sender", "here", 40.0, "40.0", "", False),
            ScaledBar(" kick", "±0.5", 15.0, "15.0", "15 %", False),
        ],
    )


def test_what_was_not_measured_is_named_in_one_line() -> None:
    segments = {"A": time(60.0), "B": time(None), "C": time(None), "D": time(0.0, what=NOTHING)}
    way, told = sections(segments=segments)["The way of an echo, us"]
    assert isinstance(way, ScaledPath) and [bar.name for bar in way.bars] == ["A", "D"]
    assert told == Note("Not measured here: B, C.")


def test_what_is_known_echo_by_echo_has_its_spread() -> None:
    known = time(2.5, by="packets", interval_us=(2.0, 3.0), **PLACES)
    segments = {
        "A": known,
        "B": time(2.5, by="packets", **PLACES),
        "D": msgspec.structs.replace(known, what=NOTHING),
        "F": time(2.5, by="means", **PLACES),
        "M": time(2.5, by="packets"),
    }
    [table] = sections(segments=segments, round_trip=known)["From echo to echo, us"]
    row = ["1.0", "2.0", "3.0", "4.0", "5.0"]
    assert table == TextTable(
        ["", "mean", "±", "min", "p50", "p90", "p99", "max"],
        [["round trip", "2.5", "0.5", *row], ["A", "2.5", "0.5", *row], ["B", "2.5", "–", *row]],
        frozenset({1, 2, 3, 4, 5, 6, 7}),
    )


@pytest.mark.parametrize(("total", "share"), [(40.0, "25 %"), (0.0, ""), (None, "")])
def test_stages_are_drawn_with_their_share_of_the_segment(total: float | None, share: str) -> None:
    rows = {"k1_k2": time(10.0), "k2_k3": time(None), "k3_k4": time(1.0), "total": time(total)}
    found = sections(stages={"B1": rows})
    [drawn] = found["Stages of B1, us"]
    assert isinstance(drawn, ScaledPath)
    assert drawn.title == f"stages of B1: {'–' if total is None else total} us"
    assert drawn.bars[:2] == [ScaledBar("K1→K2", "", 10.0, "10.0", share), ScaledBar("K2→K3", "", None, "–", "")]
    [formulas] = found["Formulas"]
    assert isinstance(formulas, SummaryLines)
    assert [line.text.partition(" =")[0] for line in formulas.lines] == [
        "A", "U_sender", "B1 K1→K2", "B1 K2→K3", "B1 K3→K4",
    ]  # fmt: skip
    assert formulas.lines[0] == SummaryLine("", "A = a - b; way")


def test_parts_and_layers_have_their_share_of_the_round_trip() -> None:
    parts, layers = sections(incomplete={"vm_internal_us": ["F"]})["Time by part and by layer, us"]
    rows = [["sender's host, with its VM", "70.0", "70 %"], ["receiver's host, with its VM", "–", "–"]]
    assert parts == TextTable(["parts", "mean", "share"], rows, frozenset({1, 2}))
    assert layers == TextTable(["layers", "mean", "share"], [["inside the VMs", "≥60.0", "60 %"]], frozenset({1, 2}))
    unknown, _ = sections(round_trip_us=None, incomplete={"receiver_host_us": ["D"]})["Time by part and by layer, us"]
    assert isinstance(unknown, TextTable) and [row[1:] for row in unknown.rows] == [["70.0", "–"], ["–", "–"]]


def test_several_segments_together_and_losses_are_tables() -> None:
    found = sections(composites={"a": time(7.0, what="all")}, losses=[Loss("here", 2, ["7/1", "7/2"])])
    assert found["Several segments together, us"] == [TextTable(["what", "mean"], [["all", "7.0"]], frozenset({1}))]
    assert found["Echoes without an answer in time"] == [
        TextTable(["echoes", "where", "first (id/seq)"], [["2", "here", "7/1, 7/2"]], frozenset({0}))
    ]


def test_a_comparison_has_a_table_of_each_kind() -> None:
    compared = PingComparison(
        KNOWN, {"A": KNOWN, "F": UNKNOWN}, {"B1": {"k1_k2": KNOWN, "rest": KNOWN}}, {"sender_host_us": KNOWN},
        {"vm_internal_us": KNOWN}, ["It changed."],
    )  # fmt: skip
    found = sections(comparison=compared)
    assert next(iter(found)) == "Compared with the baseline"
    assert found["Compared with the baseline"] == [lines(("", "It changed."))]
    known, numeric = ["40.0", "30.0", "-10.0", "×0.75", "-10 %"], frozenset({1, 2, 3, 4, 5})
    head = ["baseline", "current", "difference", "ratio", "share"]
    assert found["Differences, us"] == [
        TextTable(["segment", *head], [["A", *known], ["F", "–", "30.0", "–", "–", "–"]], numeric),
        TextTable(["layer", *head], [["inside the VMs", *known]], numeric),
        TextTable(["part", *head], [["sender's host, with its VM", *known]], numeric),
        TextTable(["stage of B1", *head], [["K1→K2", *known], ["not in any stage", *known]], numeric),
    ]


def advised(facts: list[FactShown], host: str = "hv", command: str = "") -> PingAdvice:
    return PingAdvice("A", "idle", host, "!", "cores sleep", command, facts)


def test_what_to_check_has_facts_and_a_command() -> None:
    facts = [FactShown("a", ["x", "y"], "!", "look"), FactShown("b", None, "?"), FactShown("c", 5, "ok")]
    [told] = sections(advice=[advised(facts, command="ls")])["What to check"]
    assert told == SummaryLines(
        [
            SummaryLine("!", "A, hv: idle: cores sleep.", "to see or change it: ls"),
            SummaryLine("!", "a = x, y: look"),
            SummaryLine("?", "b = –"),
            SummaryLine("ok", "c = 5"),
        ]
    )


def test_hosts_without_facts_are_named_once_and_twelve_hints_are_shown() -> None:
    assert MAX_ADVICE == 12
    without = [advised([], "z"), advised([], "a"), advised([], "z")]
    note, told = sections(advice=without)["What to check"]
    assert note == Note("? means that the capture has no such fact (a; z): look by hand.")
    assert told == lines(*[("!", f"A, {host}: idle: cores sleep.") for host in ("z", "a", "z")])
    fact = [FactShown("a", 1, "ok")]
    for more, last in ((0, None), (2, Note("2 more hints are in the JSON document."))):
        blocks = sections(advice=[advised(fact)] * (12 + more))["What to check"]
        assert isinstance(blocks[0], SummaryLines) and len(blocks[0].lines) == 24
        assert blocks[1:] == ([] if last is None else [last])


def test_captures_stand_in_the_order_of_the_way() -> None:
    captures = [Vantage("receiver-vm", "d", echoes=0), Vantage("sender-vm", "a", echoes=1, source="t")]
    [table] = sections(captures=captures)["Captures"]
    rows = [["sender-vm", "a", "1", "t"], ["receiver-vm", "d", "means", ""]]
    assert table == TextTable(["role", "host", "echoes", "measured by"], rows, frozenset({2}))


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        (None, "the round trip is not known; host h; sender-vm"),
        (time(None), "the round trip is not known; host h; sender-vm"),
        (time(99.0), "round trip 99.0 us, 9 echoes; host h; sender-vm"),
        (
            time(99.0, p50_us=98.0, p99_us=120.0, interval_us=(97.0, 101.0)),
            "round trip 99.0 ± 2.0 us, p50 98.0, p99 120.0, 9 echoes; host h; sender-vm",
        ),
    ],
)
def test_the_subtitle_is_the_round_trip(whole: PathTime | None, said: str) -> None:
    found = of_ping(breakdown(round_trip=whole, captures=[Vantage("host", "h"), Vantage("sender-vm")]))
    assert (found.title, found.subtitle) == ("netconsole ping breakdown", said)
