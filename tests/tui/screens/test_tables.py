"""Tables under the user's hands: cursor, sorting, filter, pause, and what is drawn of them."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from textual.geometry import Region
from textual.widgets import Input

from netconsole.tui.panes.common import tables
from netconsole.tui.scene.scene import Scene
from netconsole.tui.screens.main import Desk, MainScreen
from netconsole.tui.screens.pane_view import PaneView
from netconsole.tui.widgets.columns import Cell, TableRow
from tests.support.tui.played import PlayedSession
from tests.support.tui.running import running
from tests.support.tui.scenes import host


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


async def test_the_cursor_stays_on_its_row_when_the_order_changes() -> None:
    async with running() as one:
        await one.press("4")
        table = one.table("kernel_drops-drops")
        one.main.turn_to(table)
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


async def test_the_first_press_sorts_by_a_figure_and_names_come_from_a_to_z() -> None:
    async with running() as one:
        await one.press("4", "greater_than_sign")
        table = one.table("kernel_drops-drops")
        assert table.sort_column == "count"
        while table.sort_column != "reason":
            await one.press("greater_than_sign")
        names = [str(table._rows[key].cells["reason"].sort) for key in table.keys]
        assert names == sorted(names, key=str.lower)


async def test_a_pane_that_was_open_before_is_drawn_once_and_its_rows_are_ranked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as one:
        await one.press("4", "6", "4", "6")  # at its second opening its tables have their sizes
        monkeypatch.setattr(one.app.pump, "_observe", lambda: False)  # no drawing but for the key
        drawn: list[str] = []
        ranked: list[str] = []
        draw, rank = MainScreen.draw, tables.table_rows

        def counting_draw(self: MainScreen, *arguments: Any) -> None:
            drawn.append(self.current)
            draw(self, *arguments)

        def counting_rank(scene: Scene, probe: str, name: str, *arguments: Any) -> Any:
            ranked.append(f"{probe}-{name}")
            return rank(scene, probe, name, *arguments)

        monkeypatch.setattr(MainScreen, "draw", counting_draw)
        monkeypatch.setattr(tables, "table_rows", counting_rank)
        await one.press("4")
        assert drawn == ["drops"]
        assert sorted(ranked) == sorted(set(ranked)) and "kernel_drops-drops" in ranked


async def test_a_pane_comes_to_the_front_with_its_rows_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as one:
        done: list[str] = []
        draw, repaint = PaneView.draw, Desk.repaint

        def drawn(view: PaneView, *scene: Any) -> None:
            done.append(view.pane.name)
            draw(view, *scene)

        def painted(desk: Desk) -> None:
            done.append("paint")
            repaint(desk)

        for key in ("drops", "overview"):
            await one.main.action_pane(key)
        await one.play(3)
        monkeypatch.setattr(PaneView, "draw", drawn)
        monkeypatch.setattr(Desk, "repaint", painted)
        await one.main.action_pane("drops")
        # Its rows of long ago never stand under a header of now.
        assert done == ["drops", "paint"]


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


async def test_the_filter_is_of_all_tables_and_stays_when_the_pane_changes() -> None:
    async with running() as one:
        await one.press("slash", *"udp", "enter")
        assert [len(one.table(name).keys) for name in ("kernel_drops-drops", "socket_drops-sockets")] == [3, 1]
        text = await one.press("4")
        assert "filter 'udp': 3 of 6" in text and "nf_hook_slow" not in text
        assert "nf_hook_slow" in await one.press("escape")
        assert "filter" not in (await one.press("1")).splitlines()[5]
        assert len(one.table("kernel_drops-drops").keys) > 3


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


async def test_thousands_of_rows_stay_bounded_and_quick() -> None:
    async with running(session=PlayedSession(host(2, rows=5000))) as one:
        text = await one.press("4", "end")
        table = one.table("kernel_drops-drops")
        assert len(table.keys) == 2000
        assert "2000 of 2000" in text
        assert len(table._histories) <= table.region.height
        await one.press("home")
        assert table.keys[0] == table.cursor_key


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
        monkeypatch.setattr(one.main.desk, "refresh", lambda *regions: refreshed.append(regions))
        table.show(table._all, now_s=0.0, title=table.title, note=table.note)
        one.main.desk.repaint()
        assert refreshed == []
        (changed, *others) = table._all
        cells = {**changed.cells, "count": Cell("4711", 4711)}
        table.show([TableRow(changed.key, cells), *others], now_s=0.0, title=table.title, note=table.note)
        one.main.desk.repaint()
        ((region,),) = refreshed
        assert region.height == 1 and region.width < table.region.width


async def test_z_gives_a_table_all_lines_and_takes_them_back() -> None:
    async with running() as one:
        titles = ("STANDS OUT ·", "Drops ·", "Sockets ·", "─ Interfaces ─")
        assert all(title in one.text() for title in titles)
        alone = await one.press("tab", "z")
        assert [title for title in titles if title in alone] == ["Drops ·"]
        whole = await one.press("z")
        assert all(title in whole for title in titles)


async def test_what_is_said_without_rows_takes_the_lines_that_are_free() -> None:
    async with running() as one:
        await one.press("4")
        table = one.table("kernel_drops-drops")
        words = [f"word{place}" for place in range(60)]
        table.show([], now_s=0.0, note=" ".join(words))
        said = " ".join(text for y in range(table.region.height) for text, _ in table.line(y, has_focus=True))
        assert [word for word in words if word not in said.split()] == []
        table.show([], now_s=0.0, note=" ".join(words * 50))
        lines = ["".join(text for text, _ in table.line(y, has_focus=True)) for y in range(table.region.height)]
        assert lines[-1].endswith("…")


async def test_the_free_lines_have_the_whole_sentence_of_the_row_under_the_cursor() -> None:
    async with running((40, 24)) as one:
        lines = (await one.press("down")).splitlines()
        at = next(place for place, line in enumerate(lines) if line.startswith("    "))
        whole = " ".join(" ".join(lines[at : at + 2]).split())
        assert re.search(r"^vnet3: 4.* FULL_RING at tun_net_xmit \([\d.]+ % of its packets\)", whole)


async def test_a_pane_names_its_tables_without_rows_in_one_line() -> None:
    async with running((80, 24)) as one:
        one.session.state.probes["softirq_health"].tables.clear()
        text = await one.press("6")
        view = one.main.view
        assert [table.name for _, table in view.tables_shown()] == ["link_rates-links"] and not view.one_at_a_time
        assert "quiet: Softirq " in text and one.main.table() is one.table("link_rates-links")
        await one.press("z")
        assert "quiet" not in one.text() and "nothing seen yet" in await one.press("tab"), "z has tabs of all"
        await one.press("z")
        assert "NET_RX" in await one.play() and "quiet" not in one.text(), "rows have come"
        one.session.state.probes["softirq_health"].tables.clear()
        assert "nothing seen yet" in await one.press("r"), "a table that empties stays where it is"


async def test_where_no_table_has_rows_the_first_says_why_and_the_others_are_one_line() -> None:
    async with running((80, 24)) as one:
        for name in ("softirq_health", "link_rates"):
            one.session.state.probes[name].tables.clear()
        text = await one.press("6")
        first, *others = one.main.view.pane.blocks
        assert [shown.block.name for shown, _ in one.main.view.tables_shown()] == [first.block.name]
        footer = text.splitlines()[-1]
        assert "Enter details" not in footer and "y copy" not in footer and "s snapshot" in footer
        assert "nothing seen yet" in text and f"quiet: {', '.join(one.tab for one in others)}"[:40] in text
