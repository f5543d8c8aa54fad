"""A comparison as a report: the verdict and its causes first, then each finding with all its figures."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netconsole.compare.document import Comparison
from netconsole.report import of_comparison
from netconsole.report.blocks import (
    Document,
    Heading,
    Note,
    ReportBlock,
    ScaledBar,
    ScaledPath,
    SummaryLine,
    SummaryLines,
    TextTable,
)

SIDE = {"host": "hv", "created": "2026-11-20T21:00:00Z", "profile": "summary", "duration_s": 10.04}
FINDING = {
    "rank": 1, "metric": "m", "unit": "us", "baseline": 1.0, "current": 1500.0, "ratio": 1500.0, "difference": 1499.0,
    "spread": 0.5, "significant": True, "direction": "worse", "why": "w", "statistic": "p99", "what": "it rose",
}  # fmt: skip
ROW = ["1", "worse", "m", "p99", "1 us", "1.50 ms", "×1.50k", "1.50 ms", "500 ns"]


def report(most: int | None = None, **more: Any) -> Document:
    empty: dict[str, Any] = {"verdict": "same", "findings": [], "facts_changed": [], "not_comparable": []}
    comparison = msgspec.convert({**empty, **more}, Comparison)
    return of_comparison(comparison) if most is None else of_comparison(comparison, most)


def headings(found: Document) -> list[str]:
    return [block.text for block in found.blocks if isinstance(block, Heading)]


def below(heading: str, found: Document) -> list[ReportBlock]:
    begin = found.blocks.index(Heading(heading)) + 1
    ends = [at for at, block in enumerate(found.blocks) if isinstance(block, Heading) and at >= begin]
    return found.blocks[begin : min(ends, default=None)]


def lines(found: Document) -> list[tuple[str, str]]:
    return [(one.word, one.text) for block in found.blocks if isinstance(block, SummaryLines) for one in block.lines]


def test_what_stands_out_there_is_told_once_with_what_to_do_next() -> None:
    told = {"incident": "eth0 loses", "next": ["Look.", "Ask."], "commands": ["ip link"]}
    found = report(verdict="regressed", findings=[{**FINDING, **told}, {**FINDING, **told, "rank": 2}, FINDING])
    [summary] = [block for block in found.blocks if isinstance(block, SummaryLines)]
    assert [(one.more, one.commands) for one in summary.lines] == [
        ("eth0 loses. Look. Ask.", ("ip link",)),
        ("", ()),
        ("", ()),
    ]


def test_a_comparison_without_any_change() -> None:
    found = report(compared=12)
    assert (found.title, found.subtitle) == ("netconsole comparison", "current")
    assert found.blocks == [
        Heading("Verdict"),
        Note("Same: nothing changed beyond chance. 12 figures compared."),
        Heading("Changed configuration"),
        Note("No known fact of the host differs."),
    ]


def test_a_comparison_of_nothing_says_why() -> None:
    found = report(verdict="unknown", not_comparable=[{"metric": "m", "why": "w"}])
    assert found.blocks[1] == Note("Unknown: nothing could be compared. m: w.")
    assert headings(found) == ["Verdict", "Changed configuration", "Not compared"]
    assert report(compared=0).blocks[1] == Note("Same: all that could be compared is 0 on both sides.")


def test_names_that_differ_are_said_beside_the_verdict() -> None:
    left_out = [{"metric": "names", "why": "only the baseline is redacted"}, {"metric": "m", "why": "w"}]
    found = report(compared=1, not_comparable=left_out)
    assert found.blocks[2] == Note("Names: only the baseline is redacted.")


@pytest.mark.parametrize(
    ("names", "baselines", "said"),
    [
        ("now.json", 0, "now.json, hv, 2026-11-20T21:00:00Z, profile summary, 10 s"),
        ("", 1, "current: hv, 2026-11-20T21:00:00Z, profile summary, 10 s; baseline: b0, hv, 2026-11-20T21:00:00Z,"
                " profile summary, 10 s"),
        ("", 3, "current: hv, 2026-11-20T21:00:00Z, profile summary, 10 s; baseline: b0, hv, 2026-11-20T21:00:00Z,"
                " profile summary, 10 s and 2 more"),
    ],
)  # fmt: skip
def test_what_was_compared_is_named(names: str, baselines: int, said: str) -> None:
    found = report(current={**SIDE, "name": names}, baseline=[{**SIDE, "name": f"b{n}"} for n in range(baselines)])
    assert found.subtitle == said


def test_findings_with_their_figures_and_those_that_may_be_chance() -> None:
    chance = {**FINDING, "rank": 4, "significant": False, "direction": "different", "ratio": None, "spread": None}
    better = {**FINDING, "rank": 2, "direction": "better", "statistic": "rate", "unit": "packets/s", "baseline": None}
    other = {**FINDING, "rank": 3, "direction": "different", "statistic": "value", "what": "it moved"}
    found = report(verdict="regressed", findings=[FINDING, better, other, chance], findings_omitted=7)
    assert found.blocks[1] == Note("Regressed: something is worse beyond chance. 0 figures compared.")
    assert lines(found) == [("!! worse", "1. it rose"), ("ok better", "2. it rose"), ("! different", "3. it moved")]
    table, more = below("Findings", found)
    head = ["", "direction", "metric", "figure", "baseline", "current", "ratio", "difference", "spread"]
    rest = ["–", "1.50k packets/s", "×1.50k", "1.50k packets/s", "0.5 packets/s"]
    assert table == TextTable(
        head,
        [ROW, ["2", "better", "m", "", *rest], ["3", "different", "m", "", *ROW[4:]]],
        frozenset({0, 4, 5, 6, 7, 8}),
    )
    assert more == Note("7 more findings are in the JSON document.")
    [uncertain] = below("Large changes that may be chance", found)
    assert isinstance(uncertain, TextTable)
    assert uncertain.rows == [["4", "different", "m", "p99", "1 us", "1.50 ms", "–", "1.50 ms", "–"]]
    assert report(verdict="changed").blocks[1] == Note(
        "Changed: figures or settings changed, but nothing is worse beyond chance. 0 figures compared."
    )


def change(fact: str, ranks: list[int], **more: Any) -> dict[str, Any]:
    return {"fact": fact, "baseline": "on", "current": None, "may_explain": ranks, **more}


def test_three_causes_stand_first_that_of_the_strongest_change_at_the_top() -> None:
    changes = [
        change("c", [2]),
        change("none", []),
        change("a", [1, 2, 3, 4, 5, 6]),
        change("d", [9]),
        change("e", [3]),
    ]
    found = report(facts_changed=changes, findings=[FINDING])
    assert lines(found) == [
        ("cause?", "a: on before, not there now; it may explain finding 1, 2, 3, 4, 5 …"),
        ("cause?", "c: on before, not there now; it may explain finding 2"),
        ("cause?", "e: on before, not there now; it may explain finding 3"),
        ("!! worse", "1. it rose"),
    ]
    assert lines(report(most=2, facts_changed=changes, findings=[FINDING])) == lines(found)[:2]
    five = change("x", [1, 2, 3, 4, 5], baseline=["a", "b"], current=False)
    [table] = below("Changed configuration", report(facts_changed=[five, change("y", [])]))
    assert table == TextTable(
        ["fact", "baseline", "current", "may explain finding"],
        [["x", "a, b", "False", "1, 2, 3, 4, 5"], ["y", "on", "not there", "none"]],
    )


def test_ten_lines_say_what_changed() -> None:
    findings = [{**FINDING, "rank": 1 + n} for n in range(12)]
    assert [text for _, text in lines(report(findings=findings))] == [f"{1 + n}. it rose" for n in range(10)]


@pytest.mark.parametrize("count", [99, 100, 102])
def test_a_hundred_changes_and_fifty_left_out_figures_are_shown(count: int) -> None:
    left_out = [{"metric": f"m{n}", "why": f"w{n}"} for n in range(count // 2)]
    found = report(facts_changed=[change(f"f{n}", []) for n in range(count)], not_comparable=left_out)
    [facts], [others] = below("Changed configuration", found), below("Not compared", found)
    assert isinstance(facts, TextTable) and isinstance(others, TextTable)
    assert (len(facts.rows), facts.omitted) == (min(count, 100), max(0, count - 100))
    assert (len(others.rows), others.omitted) == (min(count // 2, 50), max(0, count // 2 - 50))
    assert (others.columns, others.rows[0]) == (["what", "why"], ["m0", "w0"])


def test_what_was_not_compared_for_one_reason_is_one_line() -> None:
    new = "only in the current snapshot"
    of_va = [{"metric": f"link_rates/gauge/links.{name}/device=va,netns=a/b", "why": new} for name in ("rx", "tx")]
    alone = [
        {"metric": "kernel_drops/table/drops/location=f,device=lo,netns=host", "why": new},
        {"metric": "m/gauge/x/a=b", "why": "w"},
    ]
    few = [{"metric": f"p/gauge/t.value{n}", "why": "fewer"} for n in range(10)]
    [table] = below("Not compared", report(not_comparable=[*of_va, *alone, *few]))
    assert isinstance(table, TextTable)
    assert table.rows == [
        ["3 figures: va (netns a/b), lo", new],
        ["m/gauge/x/a=b", "w"],
        [f"10 figures: {', '.join(f'p t.value{n}' for n in range(8))} and 2 more", "fewer"],
    ]


def test_conditions_are_told_with_the_range_of_the_baseline() -> None:
    def condition(low: float | None, high: float | None) -> dict[str, Any]:
        return {"condition": "machine", "unit": "%", "low": low, "high": high, "current": 3.0}

    [table] = below("Conditions", report(conditions=[condition(1.0, 2.0), condition(1.0, 1.0), condition(None, None)]))
    assert table == TextTable(
        ["what", "baseline", "current"],
        [["machine", "1 % to 2 %", "3 %"], ["machine", "1 %", "3 %"], ["machine", "–", "3 %"]],
        frozenset({1, 2}),
    )


def test_the_order_of_its_parts() -> None:
    place = {"stage": "s", "where": "w", "why": "y", "level": "!", "baseline_per_s": 1.0, "current_per_s": 2.0}
    found = report(
        findings=[FINDING, {**FINDING, "significant": False}],
        conditions=[{"condition": "c", "unit": "", "low": 1.0, "high": 1.0, "current": 1.0}],
        not_comparable=[{"metric": "m", "why": "w"}],
        drop_places=[place],
        machines=[{"vm": "web", "is_capped": True, "baseline": "nothing", "current": "a shaper"}],
    )
    (vm,) = below("What caps VMs, where that changed", found)
    assert vm == SummaryLines([SummaryLine("!!", "web: a shaper", "Before: nothing")])
    assert headings(found) == [
        "Verdict", "Findings", "What caps VMs, where that changed", "Where packets died", "Changed configuration",
        "Conditions",
        "Large changes that may be chance", "Not compared",
    ]  # fmt: skip
    bars = [ScaledBar("then", "", 1.0, "1 us"), ScaledBar("now", "", 1500.0, "1.50 ms")]
    chart = ScaledPath("m p99", "", bars)
    assert found.blocks[2] == SummaryLines([SummaryLine("!! worse", "1. it rose", chart=chart)])
