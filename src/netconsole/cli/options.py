"""What commands share: exit codes, options, and the way to a host."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netconsole.base.errors import BadInput, bad

if TYPE_CHECKING:
    from netconsole.far.door import Approach
    from netconsole.far.host import AnyHost
    from netconsole.probes.manifest import Manifest
    from netconsole.telemetry.request import ProbeRequest

DONE = 0
FOUND = 1
"""Done, and something was found: a regression, a broken budget."""
BAD_USAGE = 2
UNABLE = 3
INTERRUPTED = 130

FORCE_HELP = "Start even if the forecast is over the budget."
SETTINGS: dict[str, Any] = {
    "context_settings": {"help_option_names": ["-h", "--help"]},
    "add_completion": False,  # click completes without options of its own: docs/use/console.md
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
}
"""Of every Typer application."""


def _profile_names() -> list[str]:
    from netconsole.profile.loader import available

    return list(available())


def _probe_names() -> list[str]:
    from netconsole.probes.catalogue import load_all

    return sorted(load_all())


def _not_a_dash(output: Path | None) -> Path | None:
    """The file of -o. ``-o -`` is standard output, as everywhere."""
    return None if output == Path("-") else output


OutputOption = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Write to this file, not to stdout.", callback=_not_a_dash),
]
ProfileOption = Annotated[
    str,
    typer.Option("--profile", metavar="NAME|FILE", help="The profile to run.", autocompletion=_profile_names),
]
ProbeOption = Annotated[
    list[str] | None,
    typer.Option("--probe", metavar="NAME", help="Run only this probe. Repeatable.", autocompletion=_probe_names),
]
ForceOption = Annotated[bool, typer.Option("--force", help=FORCE_HELP)]
HostsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--host", metavar="ssh://[USER@]HOST[:PORT]", help="Measure this host over SSH. Nothing is installed there."
    ),
]
FormatOption = Annotated[
    str | None, typer.Option("--format", help="text, md, html or json. Default: by the file's ending.")
]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Replace the file of -o if it exists.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def belongs_after(option: str, context: typer.Context) -> BadInput:
    """The error for an option before a command that would not get it."""
    command = f"{context.command_path} {context.invoked_subcommand}"
    return bad(option, "", f"write it after the command: {command} {option} …")


def none_measured(requests: Sequence[ProbeRequest]) -> str:
    """What a run says that measured nothing. Why was said of each probe."""
    is_own = any(request.source == "bpf" for request in requests)
    what = "no BPF probe could be attached" if is_own else "no probe could measure anything"
    return f"{what}; netconsole doctor says why, and what would help"


def time_of(option: str, text: str, least: str, most: str, example: str) -> float:
    """Seconds of an option that takes a time from ``least`` to ``most``. Raises BadInput."""
    from netconsole.base.figure import parse_duration, safe

    least_s, most_s = (parse_duration(one) or 0.0 for one in (least, most))
    seconds = parse_duration(text)
    if seconds is None or not least_s <= seconds <= most_s:
        found = f'such as "{example}", found "{safe(text, 40)}"'
        raise bad(option, "", f"expected a time from {least} to {most} {found}")
    return seconds


def only_one(hosts: Sequence[str] | None, command: str) -> str | None:
    """The host of ``--host`` for a command that takes one; None is this machine. Raises BadInput."""
    if hosts and len(hosts) > 1:
        raise bad("--host", "", f"{command} takes one host: run it once for each (the console takes several)")
    return hosts[0] if hosts else None


def approach(host: str | None) -> contextlib.closing[Approach]:
    """Log in to the host of ``--host`` meanwhile; None: this machine. Raises BadInput."""
    from netconsole.far.door import Approach

    return contextlib.closing(Approach(host, may_ask=sys.stdin.isatty()))


def enter(approach: Approach, manifests: Mapping[str, Manifest]) -> AnyHost:
    """The host, after the login. Raises Unable."""
    from netconsole.probes.catalogue import typed_modules

    return approach.enter(typed_modules(manifests))


def entered(host: str | None, manifests: Mapping[str, Manifest]) -> AnyHost:
    """Both in one: the host of ``--host``. The caller closes it. Raises BadInput and Unable."""
    with contextlib.ExitStack() as undone:
        way = undone.enter_context(approach(host))
        found = enter(way, manifests)
        undone.pop_all()
        return found


def has_terminal() -> bool:
    """Whether the console can be shown here. It reads standard input and draws on standard output.

    Standard error may be a file: messages go there, and questions to standard output.
    """
    return sys.stdin.isatty() and sys.stdout.isatty()


def print_json(document: object) -> None:
    print(json.dumps(document, indent=2))


def fail(message: str, code: int) -> int:
    """Tell the message on standard error, line by line. Returns the exit code."""
    with contextlib.suppress(OSError, ValueError):
        for line in message.splitlines():
            print(f"netconsole: {line}", file=sys.stderr)
    return code
