"""What ends the console, and what only goes back."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from netconsole.escalation.investigation import Investigation
from netconsole.tui import host_app
from tests.support.tui.running import running


async def test_q_goes_back_from_a_page_and_ends_on_the_main_screen() -> None:
    async with running() as one:
        await one.press("4")
        for pages in (["enter"], ["enter", "question_mark"], ["question_mark"], ["b"], ["e"]):
            for key in pages:
                await one.press(key)
                assert one.app.screen is not one.main, key
            for _ in pages:
                await one.press("q")
            assert one.app.screen is one.main and one.app.is_running, pages
        await one.press("q")
        assert not one.app.is_running


async def test_q_asks_once_more_while_a_recording_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with running() as one:
        recording = SimpleNamespace(ended=None, path=tmp_path / "x", bytes=0, left_out=0)
        monkeypatch.setattr(type(one.app.watched.recordings), "progress", property(lambda _: recording))
        monkeypatch.setattr(host_app, "LEAVE_WITHIN_S", 0.0)
        for _ in range(2):  # each comes too late to be the second one
            assert "the recording goes on: press again to end all of it" in await one.press("q")
            assert one.app.is_running
        monkeypatch.setattr(host_app, "LEAVE_WITHIN_S", 3600.0)
        await one.press("q")
        assert not one.app.is_running


async def test_q_asks_once_more_while_a_row_is_investigated() -> None:
    async with running() as one:
        asked = Investigation("kernel_drops", (), "device=vnet3", began_s=1.0, now_s=13.0)
        one.app.watched.investigator = SimpleNamespace(investigation=asked)
        assert "the investigation has 18 s left: press again" in await one.press("ctrl+c")
        asked.why = "its time is over"
        await one.press("q")
        assert not one.app.is_running
