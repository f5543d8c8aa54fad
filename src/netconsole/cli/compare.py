"""The commands `baseline` and `compare`: thin, like those of :mod:`netconsole.cli.main`, which adds them."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from netconsole.base.figure import safe
from netconsole.cli.options import SETTINGS, UNABLE, FormatOption, OutputOption, ReplaceOption, fail
from netconsole.run.preflight import DEFAULT_PROFILE

baseline_app = typer.Typer(help="Baselines: snapshots of good days under a name.", **SETTINGS)


@baseline_app.callback(invoke_without_command=True)
def baselines(context: typer.Context) -> int:
    """List the baselines."""
    return 0 if context.invoked_subcommand is not None else baseline_list()


@baseline_app.command("save")
def baseline_save(
    name: str,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Snapshots, and captures of one ping. Three or more snapshots tell how much figures vary.",
        ),
    ],
) -> int:
    """Make a baseline from snapshots, or from the captures of a ping. It replaces one of the same name."""
    from netconsole.compare import baseline
    from netconsole.report import of_baseline, to_text

    before = baseline.saved_at(name)
    saved = baseline.save(name, files)
    if before is not None:
        print(f"netconsole: replaced {safe(name)} of {before}", file=sys.stderr)
    print(to_text(of_baseline(saved, baseline.summary(saved, None, None))), end="")
    return 0


@baseline_app.command("list")
def baseline_list(
    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME", help="The profile that you measure with now.")
    ] = DEFAULT_PROFILE,
) -> int:
    """List the baselines, and what each is good for on this host with this profile."""
    from netconsole.compare import baseline
    from netconsole.profile.loader import find
    from netconsole.report import of_baselines, to_text

    print(to_text(of_baselines(baseline.summaries(_here(), find(profile).stem))), end="")
    return 0


@baseline_app.command("show")
def baseline_show(name: str) -> int:
    """Show the runs of a baseline."""
    from netconsole.compare import baseline
    from netconsole.report import of_baseline, to_text

    found = baseline.load(name)
    print(to_text(of_baseline(found, baseline.summary(found, _here(), DEFAULT_PROFILE))), end="")
    return 0


@baseline_app.command("remove")
def baseline_remove(name: str) -> int:
    """Remove a baseline."""
    from netconsole.compare import baseline

    baseline.remove(name)
    print(f"{safe(name)}: removed")
    return 0


def compare(
    current: Annotated[Path, typer.Argument(metavar="CURRENT", help="A snapshot.")],
    baseline: Annotated[str, typer.Argument(metavar="BASELINE", help="The name of a baseline, or a snapshot.")],
    output: OutputOption = None,
    replace: ReplaceOption = False,
    format: FormatOption = None,
) -> int:
    """Compare a snapshot with a baseline: what changed by more than chance?

    Exit code 1 if something is worse, 3 if nothing could be compared.
    """
    from netconsole.base import output as out
    from netconsole.compare.baseline import resolve
    from netconsole.compare.compare import compare as compared
    from netconsole.compare.document import encode
    from netconsole.probes.catalogue import load_all
    from netconsole.report import of_comparison, rendered
    from netconsole.snapshot.document import load

    # A short life with half a million small objects and no cycles: looking for garbage would double the time.
    gc.disable()
    form = out.chosen(format, output, "text", replace)
    now = load(current)
    snapshots, names = resolve(baseline)
    found = compared(now, snapshots, names, load_all())
    content = encode(found) if form == "json" else rendered(of_comparison(found), form)
    out.write(content, output)
    if found.verdict == "unknown":
        return fail(f"nothing could be compared: {safe(found.why_unknown, 400)}", UNABLE)
    return found.exit_code


def _here() -> Any:
    from netconsole.host.identity import describe
    from netconsole.snapshot.document import HostData

    host = describe()
    return HostData(name=host.name, kernel=host.kernel)
