"""--help: all commands in the order of use, options in groups, nothing cut, examples last."""

from __future__ import annotations

import click
import pytest
import typer

from netconsole.cli.help import EXAMPLES
from netconsole.cli.main import app, run


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["--help"]) == 0
    return capsys.readouterr().out


def test_every_command_is_listed_whole_and_once(told: str) -> None:
    command = typer.main.get_command(app)
    assert isinstance(command, click.Group)
    listed = told.partition("Options:")[0]
    context = click.Context(command)
    names = command.list_commands(context)
    assert names
    for name in names:
        one = command.get_command(context, name)
        assert one is not None
        lines = [line for line in listed.splitlines() if line.startswith(f"  {name} ")]
        assert len(lines) == 1 and not lines[0].endswith("..."), name
        assert (one.help or "").split()[0] in lines[0]


def test_what_narrows_stands_under_a_heading_of_its_own(told: str) -> None:
    options, _, packets = told.partition("Options:")[2].partition("Only these packets:")
    assert "--profile" in options and "--device" not in options
    assert "--device" in packets and "--reason" in packets and "--profile" not in packets


def test_examples_come_last(told: str) -> None:
    assert all(command in told.partition("Examples:")[2] for command, _ in EXAMPLES)


def test_a_command_has_the_same_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["snapshot", "--help"]) == 0
    said = capsys.readouterr().out
    assert "--duration" in said.partition("Only these packets:")[0] and "Examples" not in said
