"""The commands `ping …`: where the time of a ping between two VMs goes. Thin, like those of netconsole.cli.main."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netconsole.cli.options import DONE, FOUND, SETTINGS, FormatOption, OutputOption, ReplaceOption
from netconsole.cli.ping import ping_capture, ping_run

ping_app = typer.Typer(help="Where the time of a ping between two VMs goes.", **SETTINGS)


@ping_app.callback()
def _ping() -> None:
    """Where the time of a ping between two VMs goes."""


ping_app.command()(ping_capture.capture)
ping_app.command()(ping_run.run)


@ping_app.command()
def analyze(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="The captures of one ping, or logs of other tools. ROLE=FILE says whose a log is."
        ),
    ],
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline",
            metavar="FILE|NAME",
            help="A file of the case to compare with (repeatable), or a baseline's name. Exit code 1 if regressed.",
        ),
    ] = None,
    output: OutputOption = None,
    replace: ReplaceOption = False,
    format: FormatOption = None,
    into: Annotated[
        Path | None, typer.Option("--into", metavar="SNAPSHOT", help="Also write the breakdown into this snapshot.")
    ] = None,
    formulas: Annotated[bool, typer.Option("--formulas", help="In text, show the formula of every time.")] = False,
) -> int:
    """Merge the captures of one ping, and say where its time goes."""
    from netconsole.base import output as out
    from netconsole.compare.ping_case import baseline_case
    from netconsole.ping.cases import read_case
    from netconsole.ping.compared import against
    from netconsole.report.ping_file import into_snapshot, ping_document

    form = out.chosen(format, output, "text", replace)
    case = read_case(files)
    found = case.breakdown
    if baseline:
        found = against(case, baseline_case(baseline))
    if into is not None:
        into_snapshot(found, into)
    content = ping_document(found, form, formulas)
    out.write(content, output)
    return FOUND if found.comparison is not None and found.comparison.verdict == "regressed" else DONE
