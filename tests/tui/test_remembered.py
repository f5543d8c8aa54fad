"""Columns, order and rows on top are the same the next time; a broken file is as good as none."""

from __future__ import annotations

import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from netconsole.tui.remembered import Remembered, file_of_user
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
        assert "not remembered: " in await one.press("r")
