"""The command, once its shell script has started Python.

It says at once that it has begun: importing the rest takes seconds on a busy host.
"""

from __future__ import annotations

import os
import sys

from netconsole.base import priority


def main() -> None:
    """Runs :func:`netconsole.cli.main.main`."""
    if opens_console(sys.argv[1:]) and os.isatty(0) and os.isatty(1):
        priority.OWN.begin()
        priority.OWN.look(priority.STARTING)
        say("starting" + (", with raised priority: this host is busy" if priority.OWN.nice else ""))
    from netconsole.cli.main import main as run

    try:
        run()
    finally:
        priority.OWN.end()


def opens_console(arguments: list[str]) -> bool:
    """Whether a command line opens the console: it begins with no other command."""
    return (not arguments or arguments[0] == "replay" or arguments[0].startswith("--")) and not {
        "--help", "-h", "--version"
    } & set(arguments)  # fmt: skip


def say(line: str) -> None:
    """One line on the terminal, before there is a screen."""
    try:
        if os.isatty(2):
            os.write(2, f"netconsole: {line}\n".encode())
    except OSError:  # nobody reads it
        return
