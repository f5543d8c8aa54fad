"""The columns of a table, as its user wants them."""

from __future__ import annotations

from tests.support.tui.running import running


async def test_columns_are_chosen_by_keyboard_and_remembered() -> None:
    async with running(size=(80, 24)) as one:
        await one.press("4", "z")
        heads = one.text().splitlines()
        assert not any(" sender" in line and "cause" in line and "trend" in line for line in heads)
        table = one.main.table()
        assert table is not None
        before = table.visible_columns
        hidden = [column.name for column in table.columns if column.name not in before]
        assert hidden, "not all columns have room in 80 columns"
        text = await one.press("c")
        assert "Columns of" in text and "no room: hide another column first" in text and "[x]" in text
        names = [column.name for column in table.columns]
        first = next(name for name in names if name in before and name != names[0])
        await one.press(*["down"] * names.index(first), "space")
        assert first not in table.visible_columns
        await one.press("escape", "5", "4")
        assert first not in table.visible_columns
        await one.press("c", *["down"] * names.index(first), "enter", "escape")
        assert first in table.visible_columns


async def test_the_last_column_stays() -> None:
    async with running() as one:
        await one.press("4", "c")
        table = one.main.table()
        assert table is not None
        await one.press(*(key for _ in table.columns for key in ("space", "down")))
        assert len(table.visible_columns) == 1


async def test_on_the_page_of_a_row_the_key_is_that_of_its_table() -> None:
    async with running() as one:
        assert "Columns of" in await one.press("4", "enter", "c")
