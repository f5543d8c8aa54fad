"""The page of a row: its header, its keys, what it advises, and what it copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.tui.screens.detail import DetailScreen
from netconsole.tui.screens.knobs import KnobsScreen
from netconsole.tui.screens.snapshot import SnapshotScreen
from netconsole.tui.terminal.capabilities import Terminal
from netconsole.tui.terminal.driver import ConsoleDriver
from netconsole.tui.widgets.choice import Choice
from tests.support.tui.running import running


async def test_it_says_whether_it_is_live_and_how_old_its_figures_are() -> None:
    async with running(size=(80, 24)) as one:
        text = await one.press("enter")
        assert isinstance(one.app.screen, DetailScreen)
        assert "LIVE" in text.splitlines()[0] and "s old" in text.splitlines()[0]
        assert "PAUSED" in (await one.press("p", "p")).splitlines()[0]


async def test_advice_and_how_much_stand_above_the_figures() -> None:
    async with running(size=(80, 24)) as one:
        lines = (await one.press("enter")).splitlines()
        assert "Sockets: iperf3" in lines[1]
        text = "\n".join(lines)
        assert "packets so far · at most" in text
        assert text.index("→ Is the process running?") < text.index("first seen")


async def test_a_row_without_a_finding_has_advice_only_for_what_it_counted() -> None:
    async with running() as one:
        await one.press("4")
        table = one.table("socket_drops-sockets")
        table.focus()
        await one.press("end")
        text = await one.press("enter")
        assert isinstance(one.app.screen, DetailScreen) and one.app.screen.subject == table.cursor_key
        assert "receive buffer" not in text


async def test_all_keys_work_on_it() -> None:
    async with running() as one:
        await one.press("enter", "4")
        assert one.main.is_current and one.main.current == "drops"
        await one.press("enter", "e")
        assert isinstance(one.app.screen, KnobsScreen) and one.app.screen.probe == "kernel_drops"
        await one.press("escape")
        assert isinstance(one.app.screen, DetailScreen)
        await one.press("s")
        assert isinstance(one.app.screen, SnapshotScreen)
        await one.press("escape", "slash")
        assert one.main.query_one("#filter").has_focus


async def test_y_copies_one_text_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as one:
        await one.press("down")
        said = await one.press("y")
        assert one.app.clipboard.startswith("! ") and "FULL_RING" in one.app.clipboard
        assert f"copied 1 of 2: {one.app.clipboard}" in said
        await one.press("y")
        assert "reason=FULL_RING" in one.app.clipboard and "device=vnet3" in one.app.clipboard
        await one.press("enter")
        assert "copied 1 of 2" in await one.press("y")
        monkeypatch.setattr(ConsoleDriver, "terminal", Terminal(colour=False, unicode=False, plain=True))
        before = one.app.clipboard
        assert "no clipboard here; row: kernel_drops" in await one.press("y")
        assert one.app.clipboard == before


async def test_no_key_of_the_console_works_while_a_form_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with running() as one:
        await one.press("s", "down")
        assert isinstance(one.app.focused, Choice)
        await one.press("S", "w", "p", "y", "question_mark", "colon")
        assert isinstance(one.app.screen, SnapshotScreen) and list(tmp_path.iterdir()) == []
        assert one.app.pause.step == "live"
        await one.press("q")
        assert one.main.is_current and one.app.is_running
