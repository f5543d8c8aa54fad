"""The console as its user meets it: keys, panes, sizes. Driven by frames, without clock, process or kernel."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from netconsole.probes.catalogue import load_all
from netconsole.telemetry import frames
from netconsole.telemetry.action import BudgetAction
from netconsole.telemetry.session import Connection
from netconsole.tui.app import ConsoleApp
from netconsole.tui.host_view import WatchedHost
from netconsole.tui.panes.catalogue import panes
from netconsole.tui.panes.overview import stands_out
from tests.support.fake_collector import Scenario
from tests.support.tui.played import PROFILE, PlayedSession, console, screen_text
from tests.support.tui.running import Running, running_as
from tests.support.tui.scenes import HOSTILE, PROBE_DIRECTORY, attached, host
from tests.support.tui.vhost_scenes import Host

SIZES = [(120, 40), (80, 24), (40, 12), (20, 6), (200, 60)]


class Console(Running):
    """Waits for no thread: here and there one is held up to see what is shown meanwhile."""

    async def settled(self) -> str:
        for _ in range(2):
            await self.pilot.pause()
        return self.text()


@asynccontextmanager
async def running(session: PlayedSession | None = None, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Console]:
    async with running_as(Console, size, session) as one:
        yield one


async def test_the_overview_answers_first() -> None:
    async with running() as one:
        text = one.text()
        lines = text.splitlines()
        assert "hv-017" in lines[0] and "6.1.0-56-amd64" in lines[0] and "profile summary" in lines[0]
        assert "LIVE" in lines[0] and "data ≤ 2 s old" in lines[0]
        assert "2.5 % 11 MB ok" in lines[1]
        assert "STANDS OUT" in lines[2]
        assert lines[3].strip().startswith("!!") and "iperf3" in lines[3] and "since" in lines[3]
        for title in ("Drops", "Wait in the queue", "Sockets", "Softirqs", "Interfaces"):
            assert title in text


@pytest.mark.parametrize("size", SIZES)
async def test_no_size_is_refused(size: tuple[int, int]) -> None:
    async with running(size=size) as one:
        for key in "12345678":
            text = await one.press(key)
            assert len(text.splitlines()) <= size[1]
            assert all(len(line) <= size[0] for line in text.splitlines())
        assert "STANDS OUT" in await one.press("1")


async def test_below_80x24_it_says_what_is_hidden() -> None:
    async with running(size=(40, 12)) as one:
        assert "hidden: 5 tables (Tab), cost (7)" in one.text()
        assert "Drops" in (await one.press("tab")).splitlines()[3]


async def test_80x24_keeps_the_findings_above_the_tabs() -> None:
    async with running(size=(80, 24)) as one:
        seen = []
        for _ in range(6):
            text = await one.press("tab")
            assert "STANDS OUT" in text and " cost 2.5 % of a core · 11 MB · ok" in text
            seen.append(text)
        assert any("─ Softirqs" in text or "▸ Softirqs" in text for text in seen)
        assert any("▸ Interfaces" in text for text in seen)


async def test_it_can_be_resized_at_any_time() -> None:
    async with running() as one:
        for size in reversed(SIZES):
            await one.pilot.resize_terminal(*size)
            await one.pilot.pause()
            assert len(one.text().splitlines()) <= size[1]
        await one.pilot.resize_terminal(120, 40)
        assert "Interfaces" in await one.play()


async def test_hostile_names_are_only_text() -> None:
    async with running() as one:
        text = await one.press("4")
        assert "\x1b" not in text
        assert "[bold]x\\" in text
        assert HOSTILE not in text


async def test_a_recording_s_probe_of_any_name_is_only_text() -> None:
    async with running() as one:
        stamp: dict[str, Any] = {"mono_ns": 0, "wall_ns": 0, "mode": "summary"}
        states: tuple[frames.ProbeStatus, ...] = ("failed", "compiling", "unsupported")
        for seq, state in enumerate(states, 10_000):
            one.session.take(frames.Status(seq=seq, probe=f"{state}\x1b]0;{state}\x07", state=state, **stamp))
        for key in "123456789":
            await one.press(key)
            await one.play()
            assert not [char for char in one.text() if char in "\x1b\x07"]
        with one.app.scene() as scene:
            assert "\x1b" not in stands_out.note(scene)


async def test_panes_without_a_probe_say_what_is_missing_and_where_to_look() -> None:
    async with running() as one:
        for key, word in (("2", "vhost"), ("3", "Open vSwitch")):
            text = await one.press(key)
            assert word in text and "netconsole doctor" in text


async def test_probes_that_only_count_say_how_to_have_events() -> None:
    async with running() as one:
        for probe in one.session.state.probes.values():
            probe.mode = "counters"
            probe.events.clear()
        assert "for samples press i on a row" in " ".join((await one.press("8")).split())


async def test_unknown_is_a_dash_and_never_a_zero() -> None:
    session = PlayedSession(attached(Scenario()))
    async with running(session) as one:
        one.session.age = None
        text = await one.press("7")
        (line,) = [line for line in text.splitlines() if "link_rates" in line]
        assert "–" in line and " 0 " not in line.split("summary")[1].split("uncounted")[0][:40]


async def test_every_probe_has_a_state_a_reason_and_a_way_out() -> None:
    session = PlayedSession(host(3))
    one_line = Scenario().status("kernel_drops", "failed", why="no kernel types here", help="apt install linux-headers")
    session.play(one_line)
    async with running(session) as one:
        session.play(one_line)
        text = await one.press("7")
        assert "!! failed" in text and "no kernel types here; apt install linux-headers" in text
        assert "! degraded" in text
        text = await one.press("1")
        assert "kernel_drops failed: no kernel types here" in text or "not measured: no kernel types here" in text


@pytest.mark.parametrize("state", ["compiling", "attaching"])
async def test_loading_is_visible(state: str) -> None:
    scenario = Scenario().hello()
    for probe in ("kernel_drops", "tx_queue_latency"):
        scenario.status(probe, state)
    session = PlayedSession(scenario.end())
    app = console(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        session.play(Scenario().end())
        await pilot.pause()
        assert f"kernel_drops: {state}" in screen_text(app)


async def test_a_lost_collector_is_not_passed_over() -> None:
    async with running() as one:
        one.session.standing = Connection("lost", "it was killed", 3.0)
        one.session.age = 9.0
        text = await one.press("1")
        assert "COLLECTOR LOST, again in 3 s" in text
        assert "data ≤ 10 s old !" in text


async def test_the_age_is_stated_when_it_is_above_two_intervals() -> None:
    async with running() as one:
        one.session.age = 1.2
        assert "data ≤ 2 s old" in await one.press("1")
        one.session.age = 4.2
        assert "data ≤ 5 s old !" in await one.press("1")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_cost_takes_one_line_and_what_was_missed_a_word_more(size: tuple[int, int]) -> None:
    async with running(size=size) as one:
        said = [line.strip() for line in one.text().splitlines() if "11 MB" in line]
        assert len(said) == 1 and said[0].endswith(("cost 2.5 % of a core · 11 MB · ok", " 2.5 % 11 MB ok"))
        await one.play(2, lost=7)
        *_, cost, _keys = one.text().splitlines()
        assert cost.startswith(" cost") and cost.rstrip().endswith(" not counted 7")


async def test_the_header_says_that_probes_were_lowered() -> None:
    async with running() as one:
        assert "LOWERED" not in await one.play()
        one.app.watched.enforcer = SimpleNamespace(
            actions=(), pinned=frozenset(), lowered=("kernel_drops",), profile=PROFILE
        )  # type: ignore[assignment]
        assert "! 1 LOWERED" in (await one.play()).splitlines()[0]
        one.app.watched.enforcer = None


async def test_what_was_not_started_because_of_its_cost_is_said_at_once() -> None:
    because = "14 % of one core in total, the budget is 10 %. vhost_queues in summary: at least 900 ns a run"
    told = SimpleNamespace(
        actions=(BudgetAction(0.0, "vhost_queues", "not started", because),), on_action=lambda _: None
    )
    told.pinned, told.lowered, told.profile, told.is_read = frozenset(), (), PROFILE, int
    session = PlayedSession(host(12))
    watched = WatchedHost(session, PROFILE, load_all([PROBE_DIRECTORY]), enforcer=told)  # type: ignore[arg-type]
    app = ConsoleApp(watched)
    async with app.run_test(size=(120, 40)) as pilot:
        one = Console(app, pilot, session)
        assert "vhost_queues: not started: 14 % of one core in total" in await one.press()
        assert "not started" in await one.press("7")


async def test_the_help_is_searched_for_keys_and_words() -> None:
    async with running() as one:
        text = await one.press("question_mark", "slash", *"HOLD")
        assert "Pause: hold the order of rows, then the screen" in text and "Maximise" not in text
        assert "nothing here contains 'holdq'" in (await one.press("q")).lower()
        await one.press("backspace", "enter")
        text = await one.press("escape")
        assert "Maximise" in text and "STANDS OUT ranks" in text + await one.press("end")
        await one.press("slash", *"ranks")
        assert "STANDS OUT ranks what is worth a look" in one.text()
        assert "Maximise" in await one.press("escape"), "Esc in the field ends the search"
        await one.press("escape")
        assert one.app.screen is one.main


async def test_help_is_about_the_pane_in_front() -> None:
    async with running() as one:
        await one.press("5")
        text = await one.press("question_mark")
        assert "measures" in text and "How long packets wait" in text and "cannot see" in text and "NIC" in text
        text = await one.press("end")
        assert "Quit" in text


async def test_every_action_can_be_found_by_its_name() -> None:
    async with running() as one:
        found = {(entry.name, entry.keys) for entry in one.app.findable(one.app.screen)}
        wanted = {"Overview": "1", "Pause": "p, Space", "Filter": "/", "Edit knobs": "e", "Snapshot": "s"}
        assert {*wanted.items(), ("Help", "?, F1"), ("Columns", "c"), ("Quit", "q, Ctrl-C")} <= found


async def test_a_picture_of_the_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with running() as one:
        text = await one.press("S")
        (path,) = tmp_path.glob("*.svg")
        assert path.name in text
        svg = path.read_text()
        assert "STANDS" in svg.replace("&#160;", " ") and "http" not in svg.replace("http://www.w3.org", "")


async def test_without_details_the_events_pane_says_how() -> None:
    async with running() as one:
        assert "set kernel_drops to details" in await one.press("8")


async def test_a_key_can_be_given_to_another_action() -> None:
    session = PlayedSession(host(3))
    app = console(session)
    app.keys = {"pause": "f9"}
    async with app.run_test(size=(120, 40)) as pilot:
        steps = []
        for key in ("p", "f9"):
            await pilot.press(key)
            steps.append(app.pause.step)
        assert steps == ["live", "order"]


async def test_help_of_an_empty_pane_says_what_the_pane_says() -> None:
    async with running() as one:
        one.app.watched.manifests = load_all()
        one.main.renew(panes(load_all(), one.app.watched.probes_here()))
        said = "Path: not in profile summary; profile latency has it."
        assert said in await one.press("9")
        assert said in await one.press("question_mark")
        assert "no probe here times them" not in one.text()


async def test_help_of_a_pane_that_measures_does_not_say_that_nothing_does() -> None:
    async with running(PlayedSession(Host(1, 1).interval({(0, 0)}))) as one:
        one.app.watched.manifests = load_all()
        one.main.renew(panes(load_all(), one.app.watched.probes_here()))
        assert "vhost queues, worst first" in await one.press("2")
        assert "No vhost queues" not in await one.press("question_mark")


async def test_tabs_say_which_table_is_marked() -> None:
    async with running(size=(80, 24)) as one:
        line = one.text().splitlines()[2]
        assert "Sockets !!" in line and "Drops !" in line and "Softirq   Links" in line
        await one.pilot.resize_terminal(46, 24)
        line = (await one.play()).splitlines()[2]
        assert line.strip() == "Drops ! 1 of 5; Tab: next; !! Sockets (3)"
