"""The command `vm`: what caps a virtual machine, from a measurement of some seconds or from a saved snapshot."""

from __future__ import annotations

import contextlib
from dataclasses import replace as altered
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
    from netconsole.run.preflight import RunPlan
    from netconsole.snapshot.document import Snapshot

DEFAULT_DURATION = "5s"
GUEST_PROBE = "block_path"


@spread
def vm(
    what: Measuring,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="As QEMU calls it. Without one: a line for each VM.")
    ] = None,
    snapshot: Annotated[
        Path | None, typer.Option("--snapshot", metavar="FILE", help="Look into this snapshot; nothing is measured.")
    ] = None,
    guest: Annotated[
        str | None,
        typer.Option(
            "--guest",
            metavar="ssh://[USER@]GUEST",
            help="Measure its disks inside it, too, and say which part of an I/O's time is this host's.",
        ),
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
    if guest is not None and name is None:
        raise bad("--guest", "", "say which VM that is: netconsole vm NAME --guest ssh://…")
    inside = None
    if snapshot is not None:
        from netconsole.snapshot.document import load

        given = [*what.given(), *(["guest"] if guest is not None else [])]
        given += ["duration"] if duration != DEFAULT_DURATION else []
        if given:
            raise bad(f"--{given[0]}", "", "with --snapshot nothing is measured: leave out one of the two")
        taken = load(snapshot)
    else:
        from netconsole.run.stop import Interrupted

        try:
            taken, inside = _measured(what, duration, guest)
        except Interrupted as error:
            return fail(f"interrupted, nothing written: {error}", INTERRUPTED)
    from netconsole.report.of_vm import page
    from netconsole.snapshot.machine_figures import machines

    known = machines(taken)
    if name is not None and name not in known:
        others = ", ".join(safe(one, 40) for one in known[:10]) or "none was seen"
        raise bad(name, "", f"no VM of this name here; known: {others}")
    content, is_capped = page(taken, name, form, inside)
    out.write(content, output)
    return FOUND if is_capped else DONE


def _measured(what: Measuring, duration: str, guest: str | None) -> tuple[Snapshot, Snapshot | None]:
    """The host, and the guest in the same span. Raises BadInput, Unable, Interrupted."""
    host = only_one(what.host, "netconsole vm")
    duration_s = time_of("--duration", duration, "1ms", "1h", DEFAULT_DURATION)
    interval_s = what.interval_s(duration_s)
    if guest is not None and not what.probe and what.profile == Measuring.profile:
        what = altered(what, profile="disk")
    with contextlib.ExitStack() as stack:
        ways = [stack.enter_context(approach(one)) for one in ([host] if guest is None else [host, guest])]
        plans = [what.plan(interval_s, duration_s)]
        if guest is not None:
            _check_disks(plans[0])
            inside = Measuring(probe=[GUEST_PROBE], interval=what.interval, force=what.force, host=[guest])
            plans.append(inside.plan(interval_s, duration_s))
        from netconsole.run import headless
        from netconsole.run.assembly import open_run

        lives = [stack.enter_context(open_run(plan, way)) for plan, way in zip(plans, ways, strict=True)]
        taken = headless.measure_together(lives, duration_s)
    return taken[0], taken[1] if guest is not None else None


def _check_disks(plan: RunPlan) -> None:
    """Raises BadInput for a plan that measures no disks."""
    if GUEST_PROBE not in {request.name for request in plan.requests}:
        raise bad("--guest", "", f"nothing here measures disks: use --profile disk, or add --probe {GUEST_PROBE}")
