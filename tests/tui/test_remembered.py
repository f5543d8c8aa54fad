"""Columns, order and rows on top are the same the next time; a broken file is as good as none."""

from __future__ import annotations

import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from netconsole.probes.catalogue import load_all
from netconsole.tui.app import ConsoleApp
from netconsole.tui.host_view import WatchedHost
from netconsole.tui.panes.drops.places import DropPlaceKey
from netconsole.tui.panes.overview.stands_out import IncidentKey
from netconsole.tui.remembered import MOST_PINNED, Remembered, file_of_user, key_of, pinned
from netconsole.tui.scene.scene import Subject
from tests.support.fake_collector import Scenario
from tests.support.tui.played import PROFILE, PlayedSession
from tests.support.tui.running import Running, running

DROPS = "kernel_drops-drops"


@asynccontextmanager
async def remembering() -> AsyncIterator[Running]:
    async with running(remembered=Remembered(file_of_user())) as one:
        yield one


async def test_what_was_chosen_is_there_the_next_time() -> None:
    async with remembering() as one:
        table = one.table(DROPS)
        one.main.turn_to(table)
        await one.press("down", "down")
        kept = table.cursor_key
        await one.press("asterisk", "greater_than_sign", "r")
        assert table.keys[0] == kept
        sorted_by = table.sort_column
        await one.press("c", "down", "space", "escape")
        hidden = {column.name for column in table.columns} - table.visible_columns
    assert stat.S_IMODE(file_of_user().stat().st_mode) == 0o600
    async with remembering() as one:
        again = one.table(DROPS)
        assert (again.sort_column, again.reverse) == (sorted_by, True) and sorted_by
        assert again.keys[0] == kept
        assert hidden <= {column.name for column in again.columns} - again.visible_columns
        marked = [line for line in one.text().splitlines() if line.startswith("*")]
        assert len(marked) == 1
        one.main.turn_to(again)
        await one.press("home", "asterisk")
        assert again.on_top == []
    assert json.loads(file_of_user().read_text())["tables"][DROPS]["pinned"] == []


async def test_nothing_is_written_before_something_was_chosen() -> None:
    async with remembering() as one:
        await one.press("4", "slash", *"udp", "enter", "escape", "down")
    assert not file_of_user().exists()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"\xff\xfe", b'{"schema": "other/1"}', b'{"tables": {"x": {"columns": [1]}}}',
        b'{"tables": {"x": {"sort": "%s"}}}' % (b"y" * 300), b"[" * 100_000, b" " * 300_000,
    ],
)  # fmt: skip
async def test_a_broken_file_is_as_good_as_none_and_written_anew(content: bytes) -> None:
    file_of_user().parent.mkdir(parents=True)
    file_of_user().write_bytes(content)
    async with remembering() as one:
        one.main.turn_to(one.table(DROPS))
        await one.press("r")
    assert json.loads(file_of_user().read_text())["tables"] == {
        DROPS: {"columns": {}, "sort": None, "reverse": True, "pinned": []}
    }


async def test_why_it_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    async with remembering() as one:
        one.main.turn_to(one.table(DROPS))
        text = await one.press("r")
        assert "not remembered: " in text and "Errno" not in text


async def test_a_place_where_packets_die_is_on_top_the_next_time() -> None:
    made = Scenario().hello().status("kernel_drops")
    names = {"location": "f", "protocol": "UDP", "class": "suspicious", "provenance": "kernel", "netns": "host"}
    rows = [
        {"labels": {**names, "reason": reason, "device": device}, "counts": {"count": (1, 9)}}
        for reason, device in (("FULL_RING", "vnet7"), ("QDISC_DROP", "eth0"))
    ]
    session = PlayedSession(made.table("kernel_drops", "drops", rows).end())
    kept: list[object] = []
    for _ in range(2):
        host = WatchedHost(session, PROFILE, load_all(), remembered=Remembered(file_of_user()))
        async with ConsoleApp(host).run_test() as pilot:
            await pilot.pause()
            await pilot.press("4")
            table = host.main.view.tables["drop-places"]
            if not kept:
                kept = table.keys[1:2]
                await pilot.press("down", "asterisk")
            assert isinstance(kept[0], DropPlaceKey) and table.keys[:1] == kept


def test_what_never_comes_again_or_has_no_room_is_not_kept() -> None:
    row = Subject("probe", "table", "rows", (("device", "vnet7"), ("queue", 2), ("netns", None)))
    event = Subject("probe", "event", "7", ())
    long = Subject("probe", "table", "rows", (("process", "x" * 300),))
    assert [key_of(one) for one in pinned([IncidentKey(1, row), event, long, row, ("a", "b")])] == [row]


def test_many_rows_on_top_cost_no_other_choice() -> None:
    rows = [Subject("probe", "table", "rows", (("device", f"vnet{number}"),)) for number in range(MOST_PINNED + 1)]
    first = Remembered(file_of_user())
    first.of("a").reverse = True
    first.of("b").pinned = pinned(rows)
    assert first.keep() == ""
    again = Remembered(file_of_user())
    assert again.of("a").reverse and [key_of(one) for one in again.of("b").pinned] == rows[1:]
