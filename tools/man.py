"""Makes the manual page from the help of the commands themselves: python -m tools.man docs/reference/netconsole.1"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import typer

import netconsole
from netconsole.cli.help import EXAMPLES
from netconsole.cli.main import app

_HEAD = """netconsole shows live where a virtualisation host loses or delays packets. Without a command it opens
the console: it measures with BPF programs that count in the kernel, within the budget of its profile, and removes them
when it ends. It changes no setting of the host."""
_FILES = (
    ("$XDG_CONFIG_HOME/netconsole", "profiles, keys, the key of pseudonyms"),
    ("$XDG_DATA_HOME/netconsole", "baselines, calibrations, the log of escalations"),
    ("$XDG_STATE_HOME/netconsole", "choices of columns, order and rows in the console"),
    ("$XDG_CACHE_HOME/netconsole", "compiled programs, types of far kernels, the unpacked single file"),
)
_EXIT = (
    ("0", "done"),
    ("1", "done, and something was found: a regression, a broken budget"),
    ("2", "wrong usage, or a file that cannot be used"),
    ("3", "this host cannot do it: privileges, a feature of the kernel, BCC; or nothing could be compared"),
    ("130", "interrupted"),
)
_ENVIRONMENT = (
    ("NETCONSOLE_PYTHON", "the interpreter of the system, which has bcc"),
    ("NETCONSOLE_REDACT_KEY", "the key of pseudonyms: the same text on all hosts of a ticket"),
    ("NETCONSOLE_ASCII", "no characters but those of ASCII"),
    ("NO_COLOR", "no colours"),
    ("OVS_RUNDIR", "where Open vSwitch has its control sockets"),
)


def text() -> str:
    """The page in troff."""
    command = typer.main.get_command(app)
    assert isinstance(command, click.Group)
    lines = [
        f'.TH NETCONSOLE 1 "" "netconsole {netconsole.__version__}" "User Commands"',
        ".SH NAME", "netconsole \\- live troubleshooting console for the network of virtualisation hosts",
        ".SH SYNOPSIS", ".B netconsole", "[\\fIOPTIONS\\fR] [\\fICOMMAND\\fR]",
        ".SH DESCRIPTION", _plain(_HEAD),
        ".SH OPTIONS", *_options(command, click.Context(command, info_name="netconsole")),
        ".SH COMMANDS", *_commands(command, "netconsole"),
        ".SH EXIT STATUS", *_pairs(_EXIT),
        ".SH ENVIRONMENT", *_pairs(_ENVIRONMENT),
        ".SH FILES",
        *_pairs(_FILES),
        ".SH EXAMPLES", *_pairs(EXAMPLES),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _commands(group: click.Group, path: str) -> Iterator[str]:
    of_group = click.Context(group)
    for name in sorted(group.list_commands(of_group)):
        command = group.get_command(of_group, name)
        assert command is not None
        context = click.Context(command, info_name=f"{path} {name}")
        usage = " ".join(command.collect_usage_pieces(context))
        yield f".SS {_plain(f'{path} {name} {usage}')}"
        yield _plain(" ".join((command.help or "").split()))
        yield from _options(command, context)
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for one in command.get_params(context):
        record = one.get_help_record(context)
        if record is not None and "--help" not in one.opts:
            yield from _pairs((record,))


def _pairs(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for head, words in pairs:
        yield ".TP"
        yield f"\\fB{_plain(head)}\\fR"
        yield _plain(" ".join(words.split()))


def _plain(text: str) -> str:
    """Text that troff takes as it is."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", escaped)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text())
