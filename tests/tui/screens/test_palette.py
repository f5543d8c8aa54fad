"""Finding by name: what can run here and now, each with its keys, VMs, and rows of all tables."""

from __future__ import annotations

import pytest

from netconsole.telemetry.frames import Label
from netconsole.tui.panes import named_rows
from netconsole.tui.screens.find import Findable, found
from netconsole.tui.screens.pages.detail import DetailScreen
from tests.support.tui.running import running


async def test_the_palette_offers_only_what_can_run_here_and_now() -> None:
    async with running(facts=None) as one:

        def offered() -> set[str]:
            return {entry.name for entry in one.app.findable(one.app.screen)}

        first = offered()
        assert not first & {"Hosts", "Investigate", "Facts", "Undo, pin", "Show all", "Find", "Up", "Start"}
        assert "Run" not in first, "no command belongs to this row"
        assert not any("forward" in title for title in first), "nothing is remembered, and this is no replay"
        assert {"Copy", "Columns", "Maximise", "Filter", "Sort", "Details"} <= first
        await one.press("slash", *"iperf", "enter")
        assert "Show all" in offered()
        await one.press("escape", "enter")
        assert {"Copy", "Overview", "Filter", "Help"} <= offered(), "the keys of the page of a row work too"
        await one.press("question_mark")
        assert not offered() & {"Copy", "Overview", "Filter", "Maximise", "Help"}


async def test_the_keys_of_what_is_found_are_shown_as_they_are() -> None:
    async with running() as one:
        text = await one.press("colon", *"quit")
        assert text.splitlines()[2].split()[:3] == ["Quit", "q,", "Ctrl-C"]


async def test_one_line_each_and_the_best_first() -> None:
    async with running((80, 24)) as one:
        text = await one.press("colon", *"dro")
        first, second = text.splitlines()[2:4]
        assert first.startswith(" Drops ") and " 4 " in first and "dropped packets by reason" in first
        assert second.strip() and "nothing has this name" not in text
        await one.press("enter")
        assert one.main.current == "drops"


async def test_a_row_of_any_table_is_opened_by_a_part_of_its_name() -> None:
    async with running((80, 24)) as one:
        text = await one.press("colon", *"net_rx 3")
        assert text.splitlines()[2].split() == ["NET_RX", "cpu", "3", "Softirqs"]
        text = await one.press("enter")
        assert isinstance(one.app.screen, DetailScreen) and one.app.screen.subject.probe == "softirq_health"


async def test_esc_leaves_everything_as_it_was() -> None:
    async with running() as one:
        before = one.main.current
        assert "nothing has this name" in await one.press("colon", *"qqqqq", "enter")
        await one.press("escape")
        assert one.app.screen is one.main and one.main.current == before


async def test_what_is_typed_is_always_a_name() -> None:
    async with running() as one:
        text = await one.press("colon", *"drop", "tab", "q", "shift+tab", "1")
        assert one.app.is_running and text.startswith("dropq1")


async def test_an_action_of_the_table_is_done_on_the_table() -> None:
    async with running() as one:
        await one.press("colon", *"reverse", "enter")
        table = one.main.table()
        assert table is not None and table.reverse


NAMES = ("web-107", "web-07", "web-070", "a07", "db-1")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("web-07", ["web-07", "web-070"]),
        ("07", ["web-07", "web-070", "a07", "web-107"]),
        ("WEB 07", ["web-07", "web-070", "web-107"]),
        ("", list(NAMES)),
        ("7 virtual", ["a07", "web-07", "web-107", "web-070"]),
        ("x", []),
    ],
)
def test_the_best_match_is_first(text: str, names: list[str]) -> None:
    entries = [Findable(name, "", "a virtual machine", lambda: None) for name in NAMES]
    assert [entry.name for entry in found(entries, text)] == names


def test_what_it_is_about_stands_before_what_only_names_it() -> None:
    """`:vnet7` opens a row of vnet7, not one of its peer that happens to have the shorter name."""
    labels = {"location": "nft_do_chain", "device": "vnet7", "netns": "host", "vm": "web-07"}
    assert named_rows._name(labels, {}) == "web-07 vnet7 nft_do_chain host"
    socket: dict[str, Label] = {"inode": 7469077, "process": "named (15477)", "port": 53}
    assert named_rows._name(socket, {}) == "named (15477) inode 7469077 port 53"
    names = ("eth0 host veth vnet7", "vnet7 web veth noqueue eth0 host")
    entries = [Findable(name, "", "Links", lambda: None) for name in names]
    assert [entry.name for entry in found(entries, "vnet7")] == [names[1], names[0]]
    assert [entry.name for entry in found(entries, "eth0")] == list(names)
