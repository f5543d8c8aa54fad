"""The command line: all commands, one error line each, exit codes as documented.

Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import click
import typer

from netconsole.base.checker import close
from netconsole.base.errors import BadInput, HostLost, Unable
from netconsole.base.figure import safe
from netconsole.cli import measure
from netconsole.cli.help import HelpfulCommand, HelpfulGroup
from netconsole.cli.options import (
    BAD_USAGE,
    DONE,
    INTERRUPTED,
    SETTINGS,
    UNABLE,
    HostsOption,
    JsonOption,
    approach,
    enter,
    fail,
    only_one,
    print_json,
)
from netconsole.host import machine

COMPLETE = "_NETCONSOLE_COMPLETE"
"""What a shell sets to ask for completions, as Click and Typer name it."""

_COMMANDS = {
    "probes": ("probes", "probes_app"), "profiles": ("profiles", "profiles_app"),
    "baseline": ("compare", "baseline_app"), "ping": ("ping.commands", "ping_app"), "types": ("probes", "types_app"),
    "compare": ("compare", "compare"), "record": ("record", "record"), "replay": ("replay", "replay"),
    "calibrate": ("calibrate", "calibrate"), "snapshot": ("measure", "snapshot"), "vm": ("vm", "vm"),
    "doctor": ("main", "doctor"),
}  # fmt: skip
"""Each one's module in this package, and its name there."""
_HELPFUL = ("record", "snapshot", "vm")
"""Those whose options stand in groups."""


class _CommandGroup(HelpfulGroup):
    """Imports a command when it is asked for: all of them together take longer than most of them run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = _command(cmd_name)
        return super().get_command(ctx, cmd_name)


def _command(name: str) -> click.Command:
    module, attribute = _COMMANDS[name]
    found = getattr(import_module(f"netconsole.cli.{module}"), attribute)
    alone = typer.Typer(**SETTINGS)
    alone.callback()(lambda: None)  # without it Typer makes no group of a single command
    if isinstance(found, typer.Typer):
        alone.add_typer(found, name=name)
    else:
        alone.command(name, cls=HelpfulCommand if name in _HELPFUL else None)(found)
    group = typer.main.get_command(alone)
    assert isinstance(group, click.Group)
    return group.commands[name]


app = typer.Typer(cls=_CommandGroup, help="Shows live where a virtualisation host loses or delays packets.", **SETTINGS)
app.callback(invoke_without_command=True)(measure.console)


def main() -> None:
    """The console script."""
    _open_closed_streams()
    _prepare_completion()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line. Returns the exit code; every expected error is one line on standard error."""
    try:
        # What starts this may have left it at its default, so that Ctrl-C while importing prints no traceback.
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        machine.begin()
        result = _commands()(args=list(arguments), prog_name="netconsole", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else DONE
    except BadInput as error:
        return fail(str(error), BAD_USAGE)
    except click.ClickException as error:
        return fail(usage_line(error), BAD_USAGE)
    except Unable as error:
        return fail(str(error), UNABLE)
    except (KeyboardInterrupt, click.Abort):
        return fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        _drop_output()  # whoever read it has seen enough
        return DONE
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        _drop_output()  # Click saw it first, and would end with 1
        return DONE
    except HostLost as error:
        return fail(safe(error.strerror or error, 400), UNABLE)
    except OSError as error:
        # Files say so themselves (BadInput). What is left is most of all standard output, on a full disk.
        _drop_output()
        return fail(safe(error.strerror or error), BAD_USAGE)


@functools.cache
def _commands() -> click.Command:
    """The console's options, and the names of all commands."""
    return typer.main.get_command(app)


def doctor(
    as_json: JsonOption = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every attach point of every probe.")] = False,
    hosts: HostsOption = None,
) -> int:
    """Show what works on this host, what does not and why, and what would help."""
    from netconsole.base.output import print_progress
    from netconsole.probes.catalogue import load_all
    from netconsole.run import doctor as examination
    from netconsole.run import doctor_text

    with approach(only_one(hosts, "netconsole doctor")) as way:
        manifests = load_all()
        there = enter(way, manifests)
        report = examination.examine(manifests, there, lambda text: print_progress(f"netconsole: {text}"))
    if as_json:
        print_json(report.as_json())
    else:
        print(doctor_text.verbose(report) if verbose else doctor_text.brief(report))
    return DONE if report.ok else UNABLE


def _prepare_completion() -> None:
    """Where a shell asks for completions: its script and the answers are Typer's. Click would say ``bash_source``."""
    asked = os.environ.get(COMPLETE, "")
    if not asked:
        return
    from typer._completion_classes import completion_init

    completion_init()
    shell, _, what = asked.partition("_")
    os.environ[COMPLETE] = f"{what}_{shell}" if what in ("source", "complete") else asked


def _drop_output() -> None:
    """Nothing of what is left may be flushed at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _open_closed_streams() -> None:
    """A descriptor that was closed would be given to a file of ours, and Python has no stream for it."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(number, mode))


_NO_COMMAND_AT_ALL = "Missing command."
_NO_COMMAND = re.compile(r"No such command '(.*?)'", re.DOTALL)


def usage_line(error: click.ClickException) -> str:
    """The line for this error."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    name = context.command_path if context is not None else "netconsole"
    hint = f"({name} --help)"
    if context is not None and isinstance(error, click.NoSuchOption):
        known = sorted({option for one in context.command.get_params(context) for option in one.opts})
        return f'unknown option "{safe(error.option_name, 40)}"{_close(error.option_name, known)} {hint}'
    if context is not None and isinstance(context.command, click.Group):
        commands = sorted(context.command.list_commands(context))
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
