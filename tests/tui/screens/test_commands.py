"""The key `x`: shows the commands of a finding, runs them when it is pressed again, and shows what they say."""

from __future__ import annotations

import pytest

from netconsole.telemetry.request import CommandOutput
from netconsole.tui.screens.commands import CommandsScreen
from tests.support.tui.played import PlayedSession
from tests.support.tui.running import running

COMMAND = "ip -s -d link show dev vnet3"


class Asked:
    """A host that answers: what it was asked, and what it says."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, str]] = []
        self.says: CommandOutput | OSError = CommandOutput("first\n\x1b[2Jsecond [bold]\n", 0, 0.0123, False)

    def stand_behind(self, session: PlayedSession) -> None:
        for name, does in (("ask_why", lambda _questions: None), ("run_command", self.run)):
            setattr(session, name, does)

    def run(self, netns: str, command: str) -> CommandOutput:
        self.commands.append((netns, command))
        if isinstance(self.says, OSError):
            raise self.says
        return self.says


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    host = Asked()
    monkeypatch.setattr(
        "netconsole.tui.row_keys.runnable", lambda *_: (COMMAND, f"ip netns exec blue {COMMAND}")
    )  # fmt: skip
    return host


async def test_commands_are_shown_before_they_run(asked: Asked) -> None:
    async with running(size=(80, 24)) as one:
        asked.stand_behind(one.session)
        assert "Run" in {entry.name for entry in one.app.findable(one.app.screen)}
        text = await one.press("x")
        assert isinstance(one.app.screen, CommandsScreen)
        assert f"$ {COMMAND}" in text and "each only reads" in text and "x run on this host" in text
        assert asked.commands == []
        text = await one.press("x")
        assert asked.commands == [("host", COMMAND), ("blue", COMMAND)]
        assert isinstance(asked.says, CommandOutput)
        assert one.app.watched.ran[COMMAND].output == asked.says.text, "a ticket may have it"
        assert "first" in text and "second [bold]" in text and "took 12.3 ms" in text and "x run again" in text
        await one.press("q")
        assert one.main.is_current


async def test_what_is_not_run_says_why(asked: Asked) -> None:
    asked.says = OSError(5, "command: ip is not installed there")
    async with running(size=(80, 24)) as one:
        asked.stand_behind(one.session)
        text = await one.press("x", "x")
        assert text.count("command: ip is not installed there") == 2


async def test_how_it_ended_and_what_was_cut_is_said(asked: Asked) -> None:
    asked.says = CommandOutput("end", 1, 2.0, True)
    async with running(size=(80, 24)) as one:
        asked.stand_behind(one.session)
        text = await one.press("x", "x")
        assert "took 2 s, ended with status 1, its beginning is cut off" in text


async def test_a_command_that_prints_nothing_is_said_to(asked: Asked) -> None:
    asked.says = CommandOutput("", 0, 0.0123, False)
    async with running(size=(80, 24)) as one:
        asked.stand_behind(one.session)
        text = await one.press("x", "x")
        assert text.count("the command printed nothing") == 2 and "took 12.3 ms" in text


async def test_without_a_host_or_a_command_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(size=(80, 24)) as one:
        monkeypatch.setattr("netconsole.tui.row_keys.runnable", lambda *_: ())
        assert "no command belongs to this row" in await one.press("x")
        monkeypatch.setattr("netconsole.tui.row_keys.runnable", lambda *_: (COMMAND,))
        assert "a recording has no host to run a command on" in await one.press("x")
