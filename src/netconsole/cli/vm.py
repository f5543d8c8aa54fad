"""The command `vm`: what caps a virtual machine, from a measurement of some seconds or from a saved snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netconsole.base.errors import bad
from netconsole.base.figure import safe
from netconsole.cli.measuring import Measuring, spread
from netconsole.cli.options import (
    DONE,
    FOUND,
    INTERRUPTED,
    FormatOption,
    OutputOption,
    ReplaceOption,
    approach,
    fail,
    only_one,
    time_of,
)

if TYPE_CHECKING:
    from netconsole.snapshot.document import Snapshot

DEFAULT_DURATION = "5s"


@spread
def vm(
    what: Measuring,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="As QEMU calls it. Without one: a line for each VM.")
    ] = None,
    snapshot: Annotated[
        Path | None, typer.Option("--snapshot", metavar="FILE", help="Look into this snapshot; nothing is measured.")
    ] = None,
    duration: Annotated[
        str, typer.Option(metavar="TIME", help="How long to measure, such as 5s, 1m.")
    ] = DEFAULT_DURATION,
    output: OutputOption = None,
    replace: ReplaceOption = False,
    format: FormatOption = None,
) -> int:
    """Show one VM on one page, and first what caps it. Exit code 1 if something does."""
    from netconsole.base import output as out

    form = out.chosen(format, output, "text", replace)
    out.ready(output)
    if snapshot is not None:
        from netconsole.snapshot.document import load

        given = [*what.given(), *(["duration"] if duration != DEFAULT_DURATION else [])]
        if given:
            raise bad(f"--{given[0]}", "", "with --snapshot nothing is measured: leave out one of the two")
        taken = load(snapshot)
    else:
        from netconsole.run.stop import Interrupted

        try:
            taken = _measured(what, duration)
        except Interrupted as error:
            return fail(f"interrupted, nothing written: {error}", INTERRUPTED)
    from netconsole.report.of_vm import page
    from netconsole.snapshot.machine_figures import machines

    known = machines(taken)
    if name is not None and name not in known:
        others = ", ".join(safe(one, 40) for one in known[:10]) or "none was seen"
        raise bad(name, "", f"no VM of this name here; known: {others}")
    content, is_capped = page(taken, name, form)
    out.write(content, output)
    return FOUND if is_capped else DONE


def _measured(what: Measuring, duration: str) -> Snapshot:
    """Raises BadInput, Unable, Interrupted."""
    host = only_one(what.host, "netconsole vm")
    duration_s = time_of("--duration", duration, "1ms", "1h", DEFAULT_DURATION)
    with approach(host) as way:
        plan = what.plan(what.interval_s(duration_s), duration_s)
        from netconsole.run import headless
        from netconsole.run.assembly import open_run

        with open_run(plan, way) as live:
            return headless.measure(live, duration_s, None)
