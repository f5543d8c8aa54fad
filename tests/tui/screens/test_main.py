"""The console as its user meets it: keys, panes, sizes. Driven by frames, without clock, process or kernel."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.geometry import Region
from textual.widgets import Input

from netconsole.base.errors import Unable
from netconsole.probes.catalogue import load_all
from netconsole.probes.knobs import hint
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import ProbeChoice
from netconsole.session.protocol import Connection
from netconsole.telemetry import frames
from netconsole.telemetry.action import BudgetAction
from netconsole.tui.app import ConsoleApp
from netconsole.tui.panes.overview import stands_out
from netconsole.tui.screens import knobs as form_of_knobs
from netconsole.tui.screens.detail import DetailScreen
from netconsole.tui.screens.main import MainScreen
from netconsole.tui.watched import WatchedHost
from netconsole.tui.widgets.choice import Choice
from netconsole.tui.widgets.columns import Cell, TableRow
from tests.support.fake_collector import Scenario
from tests.support.tui.played import PROFILE, PlayedSession, console, screen_text
from tests.support.tui.running import Running, running_as
from tests.support.tui.scenes import HOSTILE, PROBE_DIRECTORY, attached, host

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
        assert "% of a core" in lines[1] and "ok" in lines[1]
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
            assert "STANDS OUT" in text and "cost:" in text
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


async def test_every_row_of_tables_goes_from_edge_to_edge_after_a_resize() -> None:
    async with running(size=(80, 24)) as one:
        await one.pilot.resize_terminal(120, 40)
        await one.play()
        rows: dict[int, list[tuple[int, int]]] = {}
        for _, table in one.main.view.tables_shown():
            rows.setdefault(table.region.y, []).append((table.region.x, table.region.right))
        assert max(len(row) for row in rows.values()) > 1
        for row in rows.values():
            assert (row[0][0], row[-1][1]) == (0, 120)
            assert all(right + 1 == x for (_, right), (x, _) in pairwise(row))


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


async def test_the_cursor_stays_on_its_row_when_the_order_changes() -> None:
    async with running() as one:
        await one.press("4")
        table = one.table("kernel_drops-drops")
        table.focus()
        await one.press("down", "down")
        chosen = table.cursor_key
        assert one.main.table() is table
        table.show(list(reversed(table._all)), now_s=1e9)
        assert table.cursor_key == chosen
        assert table.keys.index(chosen) != 2


async def test_rows_are_sorted_by_any_column_and_back() -> None:
    async with running() as one:
        await one.press("4")
        table = one.table("kernel_drops-drops")
        first = table.keys
        seen = set()
        for _ in range(len(table.columns) + 1):
            await one.press("greater_than_sign")
            seen.add(table.sort_column)
        assert {"reason", "count", "total"} <= seen
        while table.sort_column != "count":
            await one.press("greater_than_sign")
        rates = [table._rows[key].cells["count"].sort for key in table.keys]
        assert rates == sorted(rates, key=lambda rate: -float(rate or 0))
        await one.press("r")
        assert table.keys != first
        while table.sort_column is not None:
            await one.press("less_than_sign")


async def test_a_pane_comes_to_the_front_with_its_rows_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as one:
        drawn: list[bool] = []
        draw = MainScreen.draw

        def watched(screen: MainScreen, *scene: Any) -> None:
            drawn.append(screen.app._batch_count > 0)
            draw(screen, *scene)

        for key in ("drops", "overview"):
            await one.main.action_pane(key)
        await one.play(3)
        monkeypatch.setattr(MainScreen, "draw", watched)
        await one.main.action_pane("drops")
        # Drawn before Textual could paint it: its rows of long ago never stand under a header of now.
        assert drawn == [True]


async def test_the_filter_is_a_plain_substring() -> None:
    async with running() as one:
        await one.press("4", "slash")
        assert isinstance(one.app.screen.focused, Input)
        text = await one.press(*"vnet3")
        assert "tun_net_xmit" in text and "nf_hook_slow" not in text
        text = await one.press("enter")
        assert "filter 'vnet3': 1 of 6" in text
        text = await one.press("escape")
        assert "nf_hook_slow" in text


async def test_what_looks_like_a_pattern_is_none() -> None:
    async with running() as one:
        await one.press("4", "slash")
        box = one.app.screen.query_one("#filter", Input)
        for typed in ("[", "(", "*", "[bold]x", "\\"):
            box.value = typed
            await one.pilot.pause()
            shown = len(one.table("kernel_drops-drops").keys)
            assert shown == (1 if typed in ("[", "[bold]x", "\\") else 0)


async def test_keys_typed_into_the_filter_are_no_commands() -> None:
    async with running() as one:
        await one.press("4", "slash", *"qps1")
        assert one.app.is_running and one.app.pause.step == "live"
        assert one.main.current == "drops"


async def test_pause_holds_the_order_then_the_screen_while_measuring_goes_on() -> None:
    async with running() as one:
        text = await one.press("p")
        assert "ORDER HELD" in text
        assert one.table("kernel_drops-drops")._order.frozen
        text = await one.press("p")
        assert re.search(r"PAUSED \d+ s", text)
        before = [line for line in text.splitlines() if "Drops ·" in line]
        text = await one.play(5)
        assert [line for line in text.splitlines() if "Drops ·" in line] == before
        assert one.session.state.collector.intervals > 12
        text = await one.press("4")
        assert before[0].split("─")[1].strip() in text, "another pane shows the same moment"
        text = await one.press("p")
        assert "LIVE" in text
        assert before[0].split("─")[1].strip() not in text


async def test_a_held_screen_is_as_old_as_it_is_held_though_the_collector_is_lost_meanwhile() -> None:
    async with running() as one:
        await one.press("p", "p")
        one.session.age = 5000.0
        (age_s,) = re.findall(r"data ≤ (\d+) s old", await one.press("4"))
        assert int(age_s) < 5000


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
        assert one.main.current == "drops" and table.has_focus and table.cursor_key == chosen


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


async def test_probes_that_only_count_say_how_to_have_events() -> None:
    async with running() as one:
        for probe in one.session.state.probes.values():
            probe.mode = "counters"
            probe.events.clear()
        assert "for samples press i on a row" in " ".join((await one.press("8")).split())


async def test_a_histogram_is_drawn_with_its_percentiles() -> None:
    async with running() as one:
        await one.press("5")
        one.table("tx_queue_latency-wait").focus()
        text = await one.press("enter")
        assert "█" in text and "p50" in text and "p99.9" in text
        assert "last interval" in text and "since attached" in text


async def test_the_page_of_a_row_lives_on() -> None:
    async with running() as one:
        await one.press("4", "enter")
        before = one.text()
        assert await one.play(2) != before


async def test_losses_mark_the_figures_and_are_explained_one_key_away() -> None:
    async with running(PlayedSession(host(12, lost=7))) as one:
        text = await one.play(2, lost=7)
        assert "≥" in text
        await one.press("4")
        text = await one.press("enter") + await one.press("end")
        assert "≥ missed" in text and "runs that the kernel skipped" in text


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


async def test_knobs_are_checked_as_in_a_profile_and_set_on_the_running_probe() -> None:
    async with running() as one:
        one.table("kernel_drops-drops").focus()
        text = await one.press("e")
        assert "Knobs of kernel_drops" in text and "device" in text and "events_per_s" in text
        form = one.app.screen
        form.query_one("#knob-port", Input).value = "99999"
        text = await one.press("enter")
        assert "port: expected a whole number from 0 to 65535, P,Q or from:P,to:Q, found 99999" in text
        assert one.session.asked == []
        form.query_one("#knob-port", Input).value = "443"
        form.query_one("#knob-mode", Choice).choose("details")
        text = await one.press("enter")
        assert "applied to the running probe" in text
        ((probe, mode, knobs),) = one.session.asked
        assert (probe, mode) == ("kernel_drops", "details")
        assert knobs is not None and knobs["port"] == 443
        await one.press("escape")
        assert isinstance(one.app.screen, MainScreen)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_overview_holds_every_cost_against_its_limit(size: tuple[int, int]) -> None:
    async with running(size=size) as one:
        await one.play(6)
        strip = " ".join(one.text().partition(" cost: ")[2].split())
        costs = ["in kernel", "per packet", "user", "memory", "events", "lost", "suppressed"]
        costs += ["statistics on", "host idle"]
        assert [cost for cost in costs if cost not in strip] == []


async def test_the_header_says_that_probes_were_lowered() -> None:
    async with running() as one:
        assert "LOWERED" not in await one.play()
        one.app.watched.enforcer = SimpleNamespace(
            actions=(), pinned=frozenset(), lowered=("kernel_drops",), profile=PROFILE
        )  # type: ignore[assignment]
        assert "! 1 LOWERED" in (await one.play()).splitlines()[0]
        one.app.watched.enforcer = None


async def test_a_refusal_of_the_collector_is_told() -> None:
    async with running() as one:
        one.session.refuse = "the map is gone \x1b[2J"
        text = await one.press("e", "enter")
        assert "refused: the map is gone \\x1b[2J" in text


async def test_a_mode_is_chosen_from_a_list_and_the_help_of_a_knob_is_whole() -> None:
    async with running(size=(80, 24)) as one:
        one.table("kernel_drops-drops").focus()
        text = await one.press("e")
        assert "[summary] details" in text and "details samples single events as well" in " ".join(text.split())
        assert "[details]" in await one.press("right")
        for name, default in one.app.manifests["kernel_drops"].knobs.items():
            one.app.screen.query_one(f"#knob-{name}").focus()
            text = " ".join((await one.press()).split())
            assert f"{name}: {hint(name, default)}" in text
        await one.press("enter")
        assert [(probe, mode) for probe, mode, _ in one.session.asked] == [("kernel_drops", "details")]


async def test_what_is_dearer_is_forecast_first_and_asked_for_again_when_it_is_over_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The played probes run nowhere, so none of them is dear.
    monkeypatch.setattr(form_of_knobs, "is_costly", lambda manifest, mode: mode == "details")
    async with running() as one:
        above: list[str | None] = ["3 % of one core in total, the budget is 2 %", None]
        one.app._forecaster = lambda: lambda manifest, mode: (f"{manifest.name} in {mode}: ≈ 420 ns", above.pop(0))  # type: ignore[method-assign]
        one.table("kernel_drops-drops").focus()
        await one.press("e")
        form = one.app.screen
        form.query_one("#knob-mode", Choice).choose("details")
        await one.press("enter")
        await one.app.workers.wait_for_complete()
        text = " ".join((await one.press()).split())
        assert (
            "over the budget: 3 % of one core in total, the budget is 2 %; press Enter again" in text
            and "≈ 420 ns" in text
        )
        assert one.session.asked == []
        assert "applied" in await one.press("enter")
        assert [(probe, mode) for probe, mode, _ in one.session.asked] == [("kernel_drops", "details")]
        form.query_one("#knob-events_per_s", Input).value = "50"  # something else: to be forecast again
        await one.press("enter")
        await one.app.workers.wait_for_complete()
        assert "kernel_drops in details: ≈ 420 ns" in await one.press()
        assert len(one.session.asked) == 2 and not above


async def test_a_probe_is_switched_off_where_its_knobs_are() -> None:
    async with running() as one:
        one.table("kernel_drops-drops").focus()
        await one.press("e")
        one.app.screen.query_one("#knob-mode", Choice).choose("off")
        assert "applied" in await one.press("enter")
        assert one.session.asked == [("kernel_drops", "off", None)]


async def test_a_probe_that_is_off_is_loaded_again_where_its_knobs_are() -> None:
    async with running() as one:
        stamp: dict[str, Any] = {"mono_ns": 0, "wall_ns": 0, "mode": "summary"}
        one.session.take(frames.Status(seq=10_000, probe="kernel_drops", state="off", **stamp))
        one.table("kernel_drops-drops").focus()
        await one.press("e")
        one.app.screen.query_one("#knob-mode", Choice).choose("details")
        one.app.screen.query_one("#knob-port", Input).value = "443"
        assert "applied" in await one.press("enter")
        ((probe, mode, knobs),) = one.session.reloaded
        assert (probe, mode) == ("kernel_drops", "details") and knobs is not None and knobs["port"] == 443
        assert one.session.asked == []


async def test_a_probe_that_the_session_lacks_is_started_where_its_knobs_are() -> None:
    async with running() as one:
        lacking = "socket_drops"
        del one.session.state.probes[lacking]
        begun: list[tuple[str, ProbeChoice]] = []
        done: Future[None] = Future()

        def begin(manifest: Manifest, wanted: ProbeChoice) -> Future[None]:
            begun.append((manifest.name, wanted))
            if len(begun) == 1:
                raise Unable("needs root")
            done.set_result(None)
            return done

        one.app.watched.enforcer = SimpleNamespace(  # type: ignore[assignment]
            actions=(),
            pinned=frozenset(),
            lowered=(),
            profile=PROFILE,
            forecast_now=None,
            begin=begin,
            governs=lambda _: False,
        )
        titles = {command.title for command in one.app.get_system_commands(one.app.screen)}
        assert f"Start {lacking}" in titles
        one.app.action_knobs(lacking)
        text = await one.press()
        assert f"Knobs of {lacking}" in text and "set a mode to start it" in text
        mode = one.app.screen.query_one("#knob-mode", Choice)
        assert mode.value == "off" and "the probe does not run" in await one.press("enter")
        mode.choose("summary")
        assert "refused: needs root" in await one.press("enter")
        assert "applied" in await one.press("enter")
        assert [(name, wanted.mode) for name, wanted in begun] == [(lacking, "summary")] * 2
        one.app.watched.enforcer = None


async def test_what_was_not_started_because_of_its_cost_is_said_at_once() -> None:
    because = "14 % of one core in total, the budget is 10 %. vhost_queues in summary: at least 900 ns a run"
    told = SimpleNamespace(
        actions=(BudgetAction(0.0, "vhost_queues", "not started", because),), on_action=lambda _: None
    )
    told.pinned, told.lowered, told.profile = frozenset(), (), PROFILE
    session = PlayedSession(host(12))
    watched = WatchedHost(session, PROFILE, load_all([PROBE_DIRECTORY]), enforcer=told)  # type: ignore[arg-type]
    app = ConsoleApp(watched)
    async with app.run_test(size=(120, 40)) as pilot:
        one = Console(app, pilot, session)
        assert "vhost_queues: not started: 14 % of one core in total" in await one.press()
        assert "not started" in await one.press("7")


async def test_help_is_about_the_pane_in_front() -> None:
    async with running() as one:
        await one.press("5")
        text = await one.press("question_mark")
        assert "measures" in text and "How long packets wait" in text and "cannot see" in text and "NIC" in text
        text = await one.press("end")
        assert "Quit" in text


async def test_every_action_is_in_the_palette() -> None:
    async with running() as one:
        titles = {command.title for command in one.app.get_system_commands(one.app.screen)}
        wanted = {"Overview  1", "Pause  p, Space", "Filter  /", "Edit knobs  e", "Snapshot  s", "Help  ?, F1"}
        assert {*wanted, "Columns  c", "Quit  q, Ctrl-C"} <= titles


async def test_the_palette_runs_an_action() -> None:
    async with running() as one:
        await one.press("colon")
        await one.press(*"drops")
        await one.pilot.app.workers.wait_for_complete()
        await one.press("down", "enter")
        await one.pilot.pause()
        assert one.main.current == "drops"


async def test_a_picture_of_the_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with running() as one:
        text = await one.press("S")
        (path,) = tmp_path.glob("*.svg")
        assert path.name in text
        svg = path.read_text()
        assert "STANDS" in svg.replace("&#160;", " ") and "http" not in svg.replace("http://www.w3.org", "")


async def test_thousands_of_rows_stay_bounded_and_quick() -> None:
    async with running(PlayedSession(host(2, rows=5000))) as one:
        text = await one.press("4", "end")
        table = one.table("kernel_drops-drops")
        assert len(table.keys) == 2000
        assert "2000 of 2000" in text
        assert len(table._histories) <= table.size.height
        await one.press("home")
        assert table.keys[0] == table.cursor_key


async def test_events_of_a_details_probe() -> None:
    session = PlayedSession(host(3))
    events = Scenario().status("kernel_drops", mode="details")
    for place in range(600):
        fields = {"device": HOSTILE, "source": f"192.0.2.{place % 250}", "stack": ["skb_release", "tcp_v4_rcv"]}
        events.frame("event", "kernel_drops", name="drop", fields=fields)
    session.play(events.end())
    async with running(session) as one:
        text = await one.press("8")
        assert "192.0.2." in text and "\x1b" not in text and "the rest is only counted" in text
        text = await one.press("enter")
        assert "stack, innermost first" in text and "tcp_v4_rcv" in text


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


async def test_nothing_is_drawn_while_output_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as one:
        before = one.text()
        monkeypatch.setattr(one.app.pump, "_backlog", lambda: 1)
        assert await one.play(3) == before
        assert one.app.pump.skipped == 1
        monkeypatch.setattr(one.app.pump, "_backlog", lambda: 0)
        one.app.pump.idle()
        await one.pilot.pause()
        assert one.text() != before, "the newest picture is drawn as soon as there is room"


async def test_only_what_changed_is_refreshed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as one:
        table = one.table("kernel_drops-drops")
        refreshed: list[tuple[Region, ...]] = []
        monkeypatch.setattr(table, "refresh", lambda *regions: refreshed.append(regions))
        table.show(table._all, now_s=0.0, title=table.title, note=table.note)
        assert refreshed == []
        (changed, *others) = table._all
        cells = {**changed.cells, "count": Cell("4711", 4711)}
        table.show([TableRow(changed.key, cells), *others], now_s=0.0, title=table.title, note=table.note)
        ((region,),) = refreshed
        assert region.height == 1 and region.width < table.size.width


async def test_z_gives_a_table_all_lines_and_takes_them_back() -> None:
    async with running() as one:
        titles = ("STANDS OUT ·", "Drops ·", "Sockets ·", "─ Interfaces ─")
        assert all(title in one.text() for title in titles)
        alone = await one.press("tab", "z")
        assert [title for title in titles if title in alone] == ["Drops ·"]
        whole = await one.press("z")
        assert all(title in whole for title in titles)
