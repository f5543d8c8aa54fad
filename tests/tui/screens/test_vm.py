"""The key `v`: the VM of a row on one page, made of what a few intervals have counted."""

from __future__ import annotations

import pytest

from netconsole.tui.screens.pages.vm import INTERVALS, VmScreen
from tests.support.tui.running import running


async def test_a_row_of_no_vm_says_so() -> None:
    async with running(size=(80, 24)) as one:
        text = await one.press("v")
        assert "choose a row of a VM, or of its tap" in text and one.main.is_current


async def test_the_page_comes_after_some_intervals_and_q_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netconsole.tui.row_keys.machine", lambda *_: "web-07")
    async with running(size=(80, 24)) as one:
        text = await one.press("v")
        assert isinstance(one.app.screen, VmScreen) and f"VM web-07  measuring, {INTERVALS} intervals" in text
        assert "WHAT MAY CAP IT" not in await one.play(INTERVALS - 1)
        text = await one.play(1)
        assert "WHAT MAY CAP IT" in text and f"{INTERVALS} s, profile" in text
        assert "nothing that was measured caps it" in text
        await one.press("v")
        await one.press("q")
        assert one.main.is_current
