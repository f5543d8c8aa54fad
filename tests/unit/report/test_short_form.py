"""The short form of a report: what it says first, and what it leaves for below."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netconsole.report.blocks import Note, SummaryLine, SummaryLines
from netconsole.report.short_form import MAX_NAMES, OVER, budget_rows, first, gaps, kept, standing_out_lines
from netconsole.snapshot.document import Snapshot
from netconsole.telemetry.ledger import LEDGER_COUNTS, UNSEEN
from tests.support import made_up


def snapshot(**changes: Any) -> Snapshot:
    document: dict[str, Any] = made_up.document(1, samples=20)
    return msgspec.convert({**document, "incidents": [], **changes}, Snapshot)


def probe(status: str = "attached", **more: Any) -> dict[str, Any]:
    return {"status": status, "attach": [], **more}


@pytest.mark.parametrize(("most", "note"), [(2, "3 more lines below."), (4, "1 more line below."), (5, "")])
def test_so_many_lines_are_first_and_it_says_how_many_are_not(most: int, note: str) -> None:
    lines = [SummaryLine("!", str(number)) for number in range(5)]
    assert list(first(lines, most)) == [SummaryLines(lines[:most]), *([Note(note)] if note else [])]


def test_one_lost_count_makes_a_lower_bound() -> None:
    assert "missed" in LEDGER_COUNTS
    for n, told in ((0, False), (1, True)):
        made = snapshot(probes={"a": probe(ledger={"missed": n})})
        texts = [line.text for line in standing_out_lines(made, {})]
        assert any("a: counts are a lower bound" in text for text in texts) is told, texts
        assert ("nothing stands out in 1 probes: a" in texts) is not told


def test_time_without_a_probe_is_told_as_time_and_not_as_a_count() -> None:
    made = snapshot(probes={"a": probe(ledger={UNSEEN: 2500, "missed": 0}), "b": probe(ledger={"missed": 3})})
    word = LEDGER_COUNTS["missed"].partition(":")[0]
    assert [line.text for line in standing_out_lines(made, {})] == [
        "a: counts are a lower bound (≥): not attached for 2.50 s",
        f"b: counts are a lower bound (≥): 3 {word}",
    ]


def test_without_a_probe_that_measured_nothing_is_said_of_it() -> None:
    made = snapshot(probes={"a": probe("failed", why="no")})
    assert [(line.word, line.text) for line in standing_out_lines(made, {})] == [("?", "no probe measured anything")]


@pytest.mark.parametrize(
    ("pct", "budget", "word", "told"),
    [
        (2.0, {"kernel_cpu_pct": 2.0}, "ok", "within the budget"),
        (2.01, {"kernel_cpu_pct": 2.0}, "!", "over the budget"),
        (99.0, {}, "ok", "the profile sets no budget"),
        (99.0, {"action": "warn", "record_mb_per_min": 1.0}, "ok", "the profile sets no budget"),
    ],
)
def test_a_budget_is_kept_up_to_its_limit(pct: float, budget: dict[str, Any], word: str, told: str) -> None:
    cost = {"kernel_cpu_pct": pct, "collector": {"cpu_pct": 1.0}, "console": {"cpu_pct": 2.0, "pss_kb": 2048}}
    made = snapshot(profile={"name": "p", "budget": budget}, cost=cost)
    line, *rest = kept(made)
    assert (line.word, line.text.rpartition(": ")[2]) == (word, told)
    assert "3 % of one core and 2 MB in console and collector" in line.text
    assert len(rest) == (word == "!")


def test_memory_is_held_against_megabytes_of_1024_kb() -> None:
    for kb, state in ((20 * 1024, "ok"), (20 * 1024 + 1, "over")):
        made = snapshot(profile={"name": "p", "budget": {"memory_mb": 20.0}}, cost={"console": {"pss_kb": kb}})
        ((*_, word),) = budget_rows(made)
        assert state in word
    ((*_, word),) = budget_rows(snapshot(profile={"name": "p", "budget": {"memory_mb": 20.0}}, cost={}))
    assert word == "? not measured"


@pytest.mark.parametrize(
    ("packets", "bytes_of_one", "measured"),
    [
        (50_000, 1514.0, "2 us"),  # 2 % of a core in 10 000 packets per second
        (49_999, 1514.0, "–"),  # too few to tell
        (25_000, 3028.0, "2 us"),  # of twice the size: each stands for two
        (100_000, 64.0, "1 us"),
    ],
)
def test_time_per_packet_is_told_from_ten_thousand_a_second_on(
    packets: int, bytes_of_one: float, measured: str
) -> None:
    softnet = probe(duration_s=5.0, tables={"cpus": [{"processed": packets - 7}, {"processed": 7}, {}]})
    links = probe(tables={"links": [{"rx_packets": 100, "rx_bytes": 100 * bytes_of_one}]})
    profile = {"name": "p", "budget": {"ns_per_packet": 1500.0}}
    made = snapshot(probes={"softnet": softnet, "link_rates": links}, profile=profile, cost={"kernel_cpu_pct": 2.0})
    ((_, value, limit, state),) = budget_rows(made)
    assert (value, limit) == (measured, "1.50 us")
    assert state == {"2 us": OVER, "–": "? not measured", "1 us": "ok"}[measured]


def test_each_reason_is_said_once_the_one_of_most_probes_first() -> None:
    many = {f"p{number}": probe("unsupported", why="no BTF") for number in range(MAX_NAMES + 1)}
    found = gaps(snapshot(probes={"x": probe("failed", why="no room"), "ok": probe(), **many}))
    names = ", ".join(list(many)[:MAX_NAMES])
    assert [line.text for line in found] == [f"{names} …: unsupported: no BTF", "x: failed: no room"]
    exactly = gaps(snapshot(probes=dict(list(many.items())[:MAX_NAMES])))
    assert [line.text for line in exactly] == [f"{names}: unsupported: no BTF"]
    assert [line.text for line in gaps(snapshot(probes={"ok": probe()}))] == ["every probe of the profile measured"]
