"""The console itself and the command `snapshot`: both measure this host now."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from netconsole.base.errors import Unable, bad
from netconsole.base.figure import safe, things
from netconsole.cli import replay
from netconsole.cli.measuring import Measuring, spread
from netconsole.cli.options import (
    DONE,
    FOUND,
    INTERRUPTED,
    UNABLE,
    FormatOption,
    OutputOption,
    ReplaceOption,
    approach,
    belongs_after,
    fail,
    has_terminal,
    none_measured,
    only_one,
    time_of,
)
from netconsole.run.preflight import RunPlan

DEFAULT_DURATION = "10s"
MAX_NOTE = 2000


@spread
def console(
    context: typer.Context,
    what: Measuring,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="NAME|FILE", help="Compare every figure with this baseline.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Record everything to a new file.")
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> int:
    """Open the live console."""
    of_one_host = {"baseline": baseline, "record": record}
    given = [name for name, value in of_one_host.items() if value is not None]
    if context.invoked_subcommand is not None:
        for name in (*what.given(), *given):
            raise belongs_after(f"--{name}", context)
        return DONE
    if version:
        import netconsole

        print(f"netconsole {netconsole.__version__}")
        return DONE
    if not has_terminal():
        raise bad("terminal", "", "the console needs one; `netconsole snapshot` measures without")
    interval_s, against = what.interval_s(), None
    if what.host and len(what.host) > 1:
        if what.pcap is not None:
            raise bad("--pcap", "", "this option is for one host: open a console for each")
        for name in given:
            raise bad(f"--{name}", "", "this option is for one host; in the console of a host press b or w instead")
        return _rack(what.host, what.plan(interval_s))
    host = only_one(what.host, "netconsole")
    if baseline is not None:
        from netconsole.compare.baseline import resolve

        against = baseline, resolve(baseline)[0]
    with approach(host) as way:
        try:
            plan = what.plan(interval_s)
        except Unable as error:
            plan = what.plan(interval_s, counters_only=True)
            chosen = replay.offer(str(error), len(plan.requests))
            if chosen is None:
                raise
            if chosen != replay.THIS_HOST:
                return UNABLE if chosen == replay.NOTHING else replay.open_replay(Path(chosen))
        if sys.stderr.isatty():
            count = things(len(plan.requests), "probes")
            print(f"netconsole: profile {safe(plan.profile.name, 40)}, {count}; the screen opens next", file=sys.stderr)
        from netconsole.run.assembly import open_run
        from netconsole.tui.run import run_live

        with open_run(plan, way, defers=True, may_ask=True) as live:
            return run_live(live, against, None if record is None else live.recorder(record))


def _rack(hosts: Sequence[str], plan: RunPlan) -> int:
    """Several hosts: a line for each comes first."""
    from netconsole.run.rack import Rack
    from netconsole.tui.run import run_rack

    with contextlib.closing(Rack(hosts, plan)) as rack:
        print(f"netconsole: connecting to {len(hosts)} hosts…", flush=True)
        rack.open(lambda line: print(f"netconsole: {line}", flush=True))
        return run_rack(rack, plan.profile, plan.manifests)


@spread
def snapshot(
    what: Measuring,
    duration: Annotated[
        str, typer.Option(metavar="TIME", help="How long to measure, such as 500ms, 10s, 5m.")
    ] = DEFAULT_DURATION,
    output: OutputOption = None,
    replace: ReplaceOption = False,
    format: FormatOption = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="NAME|FILE",
            help="Compare with this baseline. Exit code 1 if something is worse, 3 if nothing could be compared.",
        ),
    ] = None,
    note: Annotated[
        str | None, typer.Option("--note", metavar="TEXT", help="A note for the reader: what you see or suspect.")
    ] = None,
    redact: Annotated[bool, typer.Option("--redact", help="Replace addresses and names by pseudonyms.")] = False,
) -> int:
    """Measure without a screen, and write a report. Progress goes to standard error."""
    host = only_one(what.host, "netconsole snapshot")
    duration_s = time_of("--duration", duration, "1ms", "24h", DEFAULT_DURATION)
    interval_s = what.interval_s(duration_s)
    from netconsole.base import output as out

    form = out.chosen(format, output, "json", replace)
    out.ready(output)
    reference = redactor = None
    if baseline is not None or redact:
        from netconsole.report import ticket

        reference, redactor = ticket.reference(baseline), ticket.redactor(redact)
    with approach(host) as way:
        plan = what.plan(interval_s, duration_s)
        from netconsole.run import headless
        from netconsole.run.assembly import open_run
        from netconsole.run.stop import Interrupted

        try:
            with open_run(plan, way) as live:
                taken = headless.measure(live, duration_s, note and note[:MAX_NOTE])
        except Interrupted as error:
            return fail(f"interrupted, nothing written: {error}", INTERRUPTED)
    from netconsole.report import ticket  # late: what writes reports takes memory that the measuring does without

    content, found = ticket.render(taken, form, plan.manifests, reference, redactor)
    out.write(content, output)
    out.print_progress(f"netconsole: {headless.outcome(taken, output, redact)}")
    measured = [name for name, data in taken.probes.items() if data.status in ("attached", "degraded")]
    own = [request.name for request in live.plan.requests if request.source == "bpf"]
    if not (set(own or measured) & set(measured)) and not live.enforcer.lowered:
        lost = live.session.connection().why
        if host is not None and lost is not None:
            return fail(f"{lost}; the report has what was measured before", UNABLE)
        return fail(none_measured(live.plan.requests), UNABLE)
    if any(one.action == "stopped" for one in live.enforcer.actions):
        return fail("the budget was exceeded, and the profile stops probes then; the report says when", FOUND)
    if found == UNABLE:
        return fail("nothing could be compared with the baseline; the report says why", UNABLE)
    return found
