"""How ``--help`` is laid out: options in groups, commands in the order of use, examples last."""

from __future__ import annotations

from collections.abc import Iterable

import click
from typer.core import TyperCommand, TyperGroup

_PACKETS = ("device", "vm", "netns", "address", "port", "protocol", "vlan", "ethertype", "mac", "reason")
"""Names of the parameters that narrow what is measured; they stand under a heading of their own."""
_COMMANDS = {
    "Look": ("vm", "ping", "replay"),
    "Write": ("snapshot", "record"),
    "Compare": ("compare", "baseline"),
    "Set up": ("doctor", "calibrate", "probes", "profiles", "types"),
}
"""The commands in the order of use. Without one the console is shown."""
EXAMPLES = (
    ("netconsole", "opens the console with the profile summary"),
    ("netconsole doctor", "says what works on this host, what does not and why, and what would help"),
    ("netconsole snapshot --duration 30s --note 'web-07 is slow' -o ticket.md", "measures 30 s, and writes a report"),
    ("netconsole compare now.json quiet", "says what changed since the baseline quiet"),
    ("netconsole --host ssh://root@hv-017", "opens the console for another host; nothing is installed there"),
)


def _write_options(command: click.Command, context: click.Context, formatter: click.HelpFormatter) -> None:
    lines: dict[str, list[tuple[str, str]]] = {"Options": [], "Only these packets": []}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            lines["Only these packets" if parameter.name in _PACKETS else "Options"].append(record)
    _write(formatter, lines.items())


def _write(formatter: click.HelpFormatter, sections: Iterable[tuple[str, list[tuple[str, str]]]]) -> None:
    for heading, lines in sections:
        if lines:
            with formatter.section(heading):
                formatter.write_dl(lines)


class HelpfulCommand(TyperCommand):
    """A command whose options stand in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_options(self, ctx, formatter)


class HelpfulGroup(TyperGroup):
    """The whole program: commands first in the order of use, then its own options, then examples."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = [(heading, [self._line(ctx, name) for name in names]) for heading, names in _COMMANDS.items()]
        _write(formatter, sections)
        _write_options(self, ctx, formatter)
        _write(formatter, [("Examples", list(EXAMPLES))])

    def _line(self, context: click.Context, name: str) -> tuple[str, str]:
        command = self.get_command(context, name)
        assert command is not None, name
        return name, command.get_short_help_str(limit=400)
