"""Live comparison: every figure with a baseline has its ratio and difference, the overview what lasts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netconsole.probes import catalogue
from netconsole.snapshot import builder
from netconsole.snapshot.document import Snapshot
from netconsole.tui.panes.overview.against_baseline import Key
from tests.support.tui.played import PROFILE, PlayedSession
from tests.support.tui.running import FACTS, running
from tests.support.tui.scenes import PROBE_DIRECTORY, host


def runs(share: float, count: int = 5, **changes: Any) -> list[Snapshot]:
    """Runs of the same host on days when it dropped ``share`` of the packets that it drops now."""
    session = PlayedSession(host(12))
    made = builder.build(
        session.state, catalogue.load_all([PROBE_DIRECTORY]), PROFILE, builder.totals_at_start(session.state), FACTS
    )
    document = msgspec.to_builtins(made)
    # The played host counts from before its first interval: of a run, its twelve intervals are what there was.
    for row in document["probes"]["kernel_drops"]["tables"]["drops"]:
        row["count"] = round(row["count"] * share)
    for name, value in changes.items():
        document["probes"]["kernel_drops"][name] = value
    return [msgspec.convert(document, Snapshot)] * count


async def test_every_row_with_a_baseline_has_ratio_and_difference_in_words() -> None:
    async with running(baseline=("quiet", runs(0.1))) as one:
        await one.play()
        text = await one.press("4")
        heads = next(line for line in text.splitlines() if "vs baseline" in line)
        assert "change" in heads
        row = next(line for line in text.splitlines() if "FULL_RING" in line)
        assert "×" in row and "worse" in row and "+" in row and "/s" in row
        benign = next(line for line in text.splitlines() if "NO_SOCKET" in line)
        assert "more" in benign and "worse" not in benign


async def test_at_80_columns_it_is_on_the_page_of_the_row() -> None:
    async with running(size=(80, 24), baseline=("quiet", runs(0.1))) as one:
        await one.play()
        await one.press("4")
        text = await one.press("enter")
        assert "Against baseline quiet, the last interval" in text
        line = next(line for line in text.splitlines() if "baseline " in line and "packets/s" in line)
        assert "×" in line and "worse" in line


async def test_the_overview_lists_what_two_windows_agree_on_and_enter_shows_the_row() -> None:
    async with running(baseline=("quiet", runs(0.1))) as one:
        text = await one.play(2)
        assert "AGAINST BASELINE quiet" in text and "measuring the first windows" in text
        await one.play(7)
        text = await one.play(6)
        assert "worse" in text and "FULL_RING" in text
        table = one.app.main.view.tables["against"]
        one.main.turn_to(table)
        # Which of two faults leads is the ranks' matter: totals of the played host go up and down.
        table.select(next(key for key in table.keys if isinstance(key, Key) and "FULL_RING" in key.metric))
        text = await one.press("enter")
        assert "FULL_RING" in text and "Against baseline quiet" in text


async def test_what_cannot_be_compared_at_all_is_not_called_the_same() -> None:
    document = msgspec.to_builtins(runs(1.0, 1)[0])
    document["probes"] = {"other": document["probes"]["kernel_drops"]}
    async with running(baseline=("other", [msgspec.convert(document, Snapshot)] * 3)) as one:
        await one.play(9)
        text = await one.play(6)
        assert "nothing compared" in text and "nothing could be compared: " in text
        assert "nothing worse" not in text and "beyond chance" not in text


async def test_without_a_baseline_nothing_of_it_is_there() -> None:
    async with running() as one:
        assert "BASELINE" not in await one.play()
        assert "vs baseline" not in await one.press("4")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"version": 7}, "the probe has version 1 now and had version 7"),
        ({"mode": "details"}, "the probe runs in mode summary and ran in mode details"),
        ({"status": "failed", "why": "no BTF"}, "failed in the baseline: no BTF"),
    ],
)
async def test_what_cannot_be_compared_is_said_with_the_reason(changes: dict[str, Any], why: str) -> None:
    async with running(baseline=("quiet", runs(1.0, **changes))) as one:
        await one.play()
        text = await one.press("4")
        row = next(line for line in text.splitlines() if "FULL_RING" in line)
        assert "–" in row and "×" not in row
        await one.press("enter")
        assert why in await one.play()
