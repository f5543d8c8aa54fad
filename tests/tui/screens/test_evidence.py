"""The page of a row: its header and keys, figures and losses, what it advises and copies, and the way back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netconsole.telemetry import frames
from netconsole.tui.screens.knobs import KnobsScreen
from netconsole.tui.screens.pages.detail import DetailScreen
from netconsole.tui.screens.snapshot import SnapshotScreen
from netconsole.tui.terminal.capabilities import Terminal
from netconsole.tui.terminal.driver import ConsoleDriver
from netconsole.tui.widgets.choice import Choice
from tests.support.fake_collector import Scenario
from tests.support.tui.played import PlayedSession
from tests.support.tui.running import running
from tests.support.tui.scenes import HOSTILE, host


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
        assert "packets so far · peak" in text
        assert text.index("→ Is the process running?") < text.index("first seen")


async def test_a_row_without_a_finding_has_no_advice() -> None:
    async with running() as one:
        await one.press("4")
        table = one.table("socket_drops-sockets")
        one.main.turn_to(table)
        await one.press("end")
        text = await one.press("enter")
        assert isinstance(one.app.screen, DetailScreen) and one.app.screen.subject == table.cursor_key
        assert "→" not in text.split("Losses")[0]


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


async def test_enter_opens_the_evidence_and_escape_goes_back_to_exactly_where_one_was() -> None:
    async with running() as one:
        await one.press("4")
        await one.press("down")
        table = one.table("kernel_drops-drops")
        chosen = table.cursor_key
        text = await one.press("enter")
        assert isinstance(one.app.screen, DetailScreen)
        assert "SOCKET_RCVBUFF" in text and "per second, last 10 min" in text
        text = await one.press("escape")
        assert one.main.current == "drops" and one.main.table() is table and table.cursor_key == chosen


async def test_a_finding_leads_to_its_row_with_losses_and_advice() -> None:
    async with running() as one:
        await one.press("enter")
        text = one.text() + await one.press("end")
        assert "iperf3" in text
        assert "→ Is the process running? Its receive buffer: net.core.rmem_max" in text
        assert "Losses" in text and "What it cannot see" in text


async def test_events_shed_by_the_collector_and_here_are_added_up() -> None:
    async with running() as one:
        probe = one.session.state.probes["kernel_drops"]
        probe.cost.ledger = {**probe.cost.ledger, "shed": frames.Count(delta=0, total=5)}
        probe.events_shed = 7
        text = await one.press("4", "enter", "end")
        assert re.search(r"shed +12 ", text)


async def test_a_histogram_is_drawn_with_its_percentiles() -> None:
    async with running() as one:
        await one.press("5")
        one.main.turn_to(one.table("tx_queue_latency-wait"))
        text = await one.press("enter")
        assert "█" in text and "p50" in text and "p99.9" in text
        assert "last interval" in text and "since attached" in text


async def test_the_page_of_a_row_lives_on() -> None:
    async with running() as one:
        await one.press("4", "enter")
        before = one.text()
        assert await one.play(2) != before


async def test_losses_mark_the_figures_and_are_explained_one_key_away() -> None:
    async with running(session=PlayedSession(host(12, lost=7))) as one:
        text = await one.play(2, lost=7)
        assert "≥" in text
        await one.press("4")
        text = await one.press("enter") + await one.press("end")
        assert "≥ missed" in text and "runs that the kernel skipped" in text


async def test_events_of_a_details_probe() -> None:
    session = PlayedSession(host(3))
    events = Scenario().status("kernel_drops", mode="details")
    for place in range(600):
        fields = {"device": HOSTILE, "source": f"192.0.2.{place % 250}", "stack": ["skb_release", "tcp_v4_rcv"]}
        events.frame("event", "kernel_drops", name="drop", fields=fields)
    session.play(events.end())
    async with running(session=session) as one:
        text = await one.press("8")
        assert "192.0.2." in text and "\x1b" not in text and "the rest is only counted" in text
        text = await one.press("tab", "enter")
        assert "stack, innermost first" in text and "tcp_v4_rcv" in text
