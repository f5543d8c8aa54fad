"""What the command line did not understand, in one line: an unknown option or command names what is close, once."""

from __future__ import annotations

import re

import click

from netconsole.base.checker import close
from netconsole.base.figure import safe

_NO_COMMAND_AT_ALL = "Missing command."
_NO_COMMAND = re.compile(r"No such command '(.*?)'", re.DOTALL)


def told(error: click.ClickException) -> str:
    """The line for this error."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    name = context.command_path if context is not None else "netconsole"
    hint = f"({name} --help)"
    if context is not None and isinstance(error, click.NoSuchOption):
        known = sorted({option for one in context.command.get_params(context) for option in one.opts})
        return f'unknown option "{safe(error.option_name, 40)}"{_close(error.option_name, known)} {hint}'
    if context is not None and isinstance(context.command, click.Group):
        commands = sorted(context.command.commands)
        unknown = _NO_COMMAND.match(error.message)
        if unknown is not None:
            return f'unknown command "{safe(unknown[1], 40)}"{_close(unknown[1], commands)} {hint}'
        if error.message == _NO_COMMAND_AT_ALL:
            return f"name a command: {', '.join(commands)} {hint}"
    return f"{safe(error.format_message(), 400)} {hint}"


def _close(word: str, known: list[str]) -> str:
    """A short option is close to nothing, and a list of all would be long."""
    found = close(word, known)
    return found if "did you mean" in found else ""
