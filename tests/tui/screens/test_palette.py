"""The command palette: what can run here and now, each with its keys."""

from __future__ import annotations

from tests.support.tui.running import running


async def test_the_palette_offers_only_what_can_run_here_and_now() -> None:
    async with running(facts=None) as one:

        def offered() -> set[str]:
            commands = one.app.get_system_commands(one.app.screen)
            return {command.title.partition("  ")[0] for command in commands}

        first = offered()
        assert not first & {"Hosts", "Investigate", "Facts", "Undo, pin", "Show all", "Commands"}
        assert not any("forward" in title for title in first), "this is no replay"
        assert {"Copy", "Columns", "Maximise", "Filter"} <= first
        await one.press("slash", *"iperf", "enter")
        assert "Show all" in offered()
        await one.press("escape", "enter")
        assert {"Copy", "Overview", "Filter", "Help"} <= offered(), "the keys of the page of a row work too"
        await one.press("question_mark")
        assert not offered() & {"Copy", "Overview", "Filter", "Maximise", "Help"}


async def test_the_keys_of_all_palette_entries_are_shown_as_they_are() -> None:
    async with running() as one:
        text = await one.press("colon", *"quit")
        assert "Quit  q, Ctrl-C" in text
