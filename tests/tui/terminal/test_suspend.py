"""Ctrl-Z and fg: the shell gets its terminal, and the console gets it back with a screen that goes on."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.terminal_process import TerminalProcess
from tests.tui.terminal.test_process import FIRST_FIGURES, Clock, Start, console, scenario, start

pytestmark = pytest.mark.terminals
__all__ = ["scenario", "start"]


@pytest.fixture
def shell(scenario: Path, tmp_path: Path) -> Iterator[TerminalProcess]:
    """A shell with job control in which the console runs and shows figures."""
    command, environment = console(scenario, XDG_CONFIG_HOME=str(tmp_path))
    with TerminalProcess(["/bin/bash", "--norc", "--noprofile", "-i"], {**environment, "PS1": "$ "}) as process:
        process.until_text("$")
        process.press(f"{shlex.join(command)}\r")
        process.until_first(FIRST_FIGURES)
        yield process


def pid_of(shell: TerminalProcess) -> int:
    (pid,) = shell.children()
    return pid


def says(shell: TerminalProcess, number: int) -> None:
    """What is typed is the shell's, on a screen where nothing else is left: it computes."""
    shell.press(f"clear; echo said-$(({number}+0))\r")
    shell.until_text(f"said-{number}")


def goes_on(shell: TerminalProcess) -> None:
    """The whole screen is back, its clock goes on, and its keys work."""
    shell.press("fg\r")
    shell.until_text("STANDS OUT")
    shell.until_text(FIRST_FIGURES)
    Clock(shell).until_seconds(2)
    shell.press("4")
    shell.until_text("nf_hook_slow")
    shell.press("1")


def ends(shell: TerminalProcess) -> None:
    shell.press("q")
    shell.until_text("every probe is removed")
    says(shell, 7)


def test_the_shell_gets_the_terminal_and_gives_it_back(shell: TerminalProcess) -> None:
    for number in (1, 2):
        shell.press("\x1a")
        shell.until_text("Stopped")
        says(shell, number)
        goes_on(shell)
    ends(shell)


@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGSTOP], ids=lambda number: number.name)
def test_a_stop_from_outside_is_no_end(shell: TerminalProcess, number: signal.Signals) -> None:
    os.kill(pid_of(shell), number)
    shell.until_text("Stopped")
    shell.press("stty sane; clear\r")
    shell.until("an empty screen", lambda: FIRST_FIGURES not in shell.text())
    goes_on(shell)
    ends(shell)


def test_in_the_background_it_leaves_the_terminal_alone(shell: TerminalProcess) -> None:
    shell.press("\x1a")
    shell.until_text("Stopped")
    shell.press("set -b; clear; bg\r")  # -b: the shell tells of a stop at once
    shell.until_text("&")
    shell.until_text("Stopped")  # by SIGTTOU: it waits for the terminal
    says(shell, 3)
    goes_on(shell)
    ends(shell)


def test_without_a_shell_above_it_goes_on_at_once(start: Start) -> None:
    with start() as console:
        console.press("\x1a")
        Clock(console).until_seconds(2)
        console.press("4")
        console.until_text("nf_hook_slow")
        console.press("q")
        console.wait()
        assert console.status == 0
