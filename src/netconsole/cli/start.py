"""The command, once its shell script has started Python.

It says at once that it has begun: importing the rest takes seconds on a busy host.
"""

from __future__ import annotations

import os
import sys

from netconsole.base import paths, priority
from netconsole.far import child

_ASKS = {"--help", "-h", "--version"}
"""These measure nothing."""


def main() -> None:
    """Runs :func:`netconsole.cli.main.main`."""
    has_terminal = os.isatty(0) and os.isatty(1)
    if opens_console(sys.argv[1:]) and has_terminal:
        priority.OWN.begin()
        priority.OWN.look(priority.STARTING)
        say("starting" + (", with raised priority: this host is busy" if priority.OWN.nice else ""))
    if measures_here(sys.argv[1:], has_terminal):
        child.start_early(paths.measuring_command())
    from netconsole.cli.main import main as run

    try:
        run()
    finally:
        child.end_early()
        priority.OWN.end()


def opens_console(arguments: list[str]) -> bool:
    """Whether a command line opens the console: it begins with no other command."""
    return (not arguments or arguments[0] == "replay" or arguments[0].startswith("--")) and not _ASKS & set(arguments)


def measures_here(arguments: list[str], has_terminal: bool) -> bool:
    """Whether a command line will most likely want the collector of this machine."""
    if arguments[:1] == ["replay"] or _ASKS & set(arguments) or any(one.startswith("--host") for one in arguments):
        return False
    return has_terminal if opens_console(arguments) else arguments[0] in ("snapshot", "record")


def say(line: str) -> None:
    """One line on the terminal, before there is a screen."""
    try:
        if os.isatty(2):
            os.write(2, f"netconsole: {line}\n".encode())
    except OSError:  # nobody reads it
        return
