"""The commands: thin, one error line each, exit codes as documented. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from netconsole.base.errors import BadInput, Unable, bad, stat_of
from netconsole.base.figure import safe
from netconsole.cli import calibrate, compare
from netconsole.cli import record as cli_record
from netconsole.host import machine
from netconsole.run import preflight

if TYPE_CHECKING:
    from netconsole.probes.manifest import Manifest
    from netconsole.profile.profile import Profile
    from netconsole.session.protocol import ProbeRequest

DONE = 0
BAD_USAGE = 2
UNABLE = 3
INTERRUPTED = 130

DEFAULT_PROFILE = "summary"
DEFAULT_DURATION = "10s"
MAX_DURATION_S = 24 * 3600.0

_SETTINGS: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}
app = typer.Typer(help="Live troubleshooting console for the network of virtualisation hosts.", **_SETTINGS)
probes_app = typer.Typer(help="The probes: what each measures, and what it costs.", **_SETTINGS)
profiles_app = typer.Typer(help="The profiles: which probes run, in which mode, within which budget.", **_SETTINGS)
app.add_typer(probes_app, name="probes")
app.add_typer(profiles_app, name="profiles")
app.add_typer(compare.baseline_app, name="baseline")
app.command()(compare.compare)
app.command()(cli_record.record)
app.command()(cli_record.replay)
app.command()(calibrate.calibrate)

ProfileOption = Annotated[str, typer.Option("--profile", metavar="NAME|FILE", help="What to run.")]
ProbeOption = Annotated[
    list[str] | None,
    typer.Option("--probe", metavar="NAME", help="Run only this probe of the profile; repeatable."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


def main() -> None:
    """The console script."""
    _open_closed_streams()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line. Returns the exit code; every expected error is one line on standard error."""
    machine.begin()
    try:
        result = _commands()(args=list(arguments), prog_name="netconsole", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else DONE
    except BadInput as error:
        return _fail(str(error), BAD_USAGE)
    except click.ClickException as error:
        return _fail(f"{error.format_message()} (netconsole --help)", BAD_USAGE)
    except Unable as error:
        return _fail(str(error), UNABLE)
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        _drop_output()  # whoever read it has seen enough
        return DONE
    except OSError as error:
        # Files say so themselves (BadInput). What is left is most of all standard output, on a full disk.
        _drop_output()
        return _fail(safe(error.strerror or error), BAD_USAGE)


@functools.cache
def _commands() -> click.Command:
    """All of them, with their options: what takes longest of a short command."""
    return typer.main.get_command(app)


@app.callback(invoke_without_command=True)
def console(
    context: typer.Context,
    profile: ProfileOption = DEFAULT_PROFILE,
    probe: ProbeOption = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="NAME|FILE", help="Hold every figure against it.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Record all of it; the file is never overwritten.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help=preflight.FORCE_HELP)] = False,
    version: Annotated[bool, typer.Option("--version", help="Say the version and end.")] = False,
) -> int:
    """Open the console, live."""
    if context.invoked_subcommand is not None:
        belongs: dict[str, object] = {"--profile": profile != DEFAULT_PROFILE, "--probe": probe}
        belongs |= {"--baseline": baseline, "--record": record, "--force": force}
        for name, given in belongs.items():
            if given:
                raise bad(name, "", f"belongs after the command: netconsole {context.invoked_subcommand} {name} …")
        return DONE
    if version:
        import netconsole

        print(f"netconsole {netconsole.__version__}")
        return DONE
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise bad("terminal", "", "none here; `netconsole snapshot` measures without one")
    against = None
    if baseline is not None:
        from netconsole.compare.baseline import resolve

        against = baseline, resolve(baseline)[0]
    try:
        manifests, chosen, requests = _choose(profile, probe)
    except Unable as error:
        shown = cli_record.offer(str(error))
        if shown is None:
            raise
        return shown
    from netconsole.budget.enforcer import Governing
    from netconsole.escalation.escalator import Escalating
    from netconsole.recording.recorder import Recorder, describe
    from netconsole.run.deferred_start import Beginning
    from netconsole.run.headless import facts
    from netconsole.session.live import session_of
    from netconsole.tui.run import run as run_console

    later = [] if force else preflight.put_off(chosen, manifests, requests, probe or ())
    now = [request for request in requests if request not in later]
    preflight.before_start(chosen, manifests, now, force, may_ask=True, named=probe or ())
    session = session_of(now, chosen, manifests)
    recorder = None
    if record is not None:
        modes = {request.name: request.mode for request in requests}
        recorder = Recorder(record, describe(chosen, modes, manifests), chosen.budget)
        session.attach(recorder)
    governing = Governing(session, chosen, manifests)
    Beginning(session, governing, manifests, later).start()
    escalating = Escalating(session, governing, manifests)
    escalating.start()
    try:
        return run_console(session, chosen, manifests, governing, facts, against, recorder)
    finally:
        session.close()
        escalating.close()


@app.command()
def snapshot(
    profile: ProfileOption = DEFAULT_PROFILE,
    probe: ProbeOption = None,
    duration: Annotated[str, typer.Option(metavar="TIME", help="How long, such as 500ms, 10s, 5m.")] = DEFAULT_DURATION,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Default: stdout.")] = None,
    format: Annotated[
        str | None, typer.Option("--format", help="json, md or html. Default: from the file's ending.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="NAME|FILE", help="Compare with it; 1 when something is worse.")
    ] = None,
    redact: Annotated[bool, typer.Option("--redact", help="Pseudonyms for addresses and names.")] = False,
    force: Annotated[bool, typer.Option("--force", help=preflight.FORCE_HELP)] = False,
) -> int:
    """Measure without a screen and write what was measured. Progress goes to standard error."""
    from netconsole.profile.profile import parse_duration

    duration_s = parse_duration(duration)
    if duration_s is None or not 0 < duration_s <= MAX_DURATION_S:
        raise bad("--duration", "", f'expected a time from 1ms to 24h such as "10s", found "{safe(duration, 40)}"')
    from netconsole.base import output as out
    from netconsole.snapshot.document import FORMATS

    form = out.chosen(format, output, FORMATS, "json")
    reference = redactor = None
    if baseline is not None or redact:
        from netconsole.report import ticket

        reference, redactor = ticket.reference(baseline), ticket.redactor(redact)
    manifests, chosen, requests = _choose(profile, probe)
    from netconsole.budget.enforcer import Governing
    from netconsole.escalation.escalator import Escalating
    from netconsole.run import headless
    from netconsole.session.live import session_of

    start = preflight.before_start(chosen, manifests, requests, force, named=probe or ())
    requests = start.requests
    session = session_of(requests, chosen, manifests, headless.statistics_every_s(duration_s))
    governing = Governing(session, chosen, manifests)
    governing.leave_out(start.left_out)
    escalating = Escalating(session, governing, manifests)
    escalating.start()
    try:
        taken = headless.measure(session, manifests, chosen, duration_s, headless.facts, governing)
    except headless.Interrupted as error:
        return _fail(f"interrupted, nothing written: {error}", INTERRUPTED)
    finally:
        escalating.close()
    from netconsole.report import ticket  # late: what writes reports takes memory that the measuring does without

    content, found = ticket.render(taken, form, manifests, reference, redactor)
    out.write(content, output)
    measured = [name for name, data in taken.probes.items() if data.status in ("attached", "degraded")]
    wanted = [request.name for request in requests if request.source == "bpf"]
    if wanted and not set(wanted) & set(measured) and not governing.lowered:
        return _fail("no BPF probe could be attached; netconsole doctor says why and what would help", UNABLE)
    return found


@app.command()
def doctor(as_json: JsonOption = False) -> int:
    """What this host can do: privileges, BCC, kernel types, and the attach point of every probe."""
    from netconsole.run import doctor as examination

    report = examination.examine()
    if as_json:
        _print_json(report.as_json())
    else:
        print(examination.text(report))
    return DONE if report.ok else UNABLE


@probes_app.callback(invoke_without_command=True)
def probes(context: typer.Context, as_json: JsonOption = False) -> int:
    """List the probes."""
    return DONE if context.invoked_subcommand is not None else probes_list(as_json)


@probes_app.command("list")
def probes_list(as_json: JsonOption = False) -> int:
    """List the probes."""
    from netconsole.cli import listing
    from netconsole.probes.catalogue import load_all

    manifests = load_all()
    if as_json:
        _print_json([listing.probe_json(manifest) for manifest in manifests.values()])
    else:
        print(listing.probe_list(manifests))
    manifests.require_whole()
    return DONE


@probes_app.command("show")
def probes_show(
    name: str,
    as_json: JsonOption = False,
    forecast: Annotated[
        bool, typer.Option("--forecast", help="Count its hooks for a moment: what would it cost now?")
    ] = False,
) -> int:
    """What one probe measures, how, what it cannot see, and what it was found to cost on this host."""
    from netconsole.calibrate import store
    from netconsole.cli import listing
    from netconsole.probes.catalogue import load_all, pick

    manifest = pick(load_all(), name, "netconsole probes show")
    calibration = store.load()
    outlook = preflight.of_every_mode(manifest) if forecast else None
    if as_json:
        _print_json(listing.probe_json(manifest, calibration, outlook))
    else:
        print(listing.probe_text(manifest, calibration, outlook))
    return DONE


@probes_app.command("check")
def probes_check(directory: Path) -> int:
    """Check the manifest of a probe that is being written."""
    from netconsole.probes.catalogue import load

    manifest = load(directory)
    print(f"{manifest.name}: ok")
    return DONE


@profiles_app.callback(invoke_without_command=True)
def profiles(context: typer.Context, as_json: JsonOption = False) -> int:
    """List the profiles."""
    return DONE if context.invoked_subcommand is not None else profiles_list(as_json)


@profiles_app.command("list")
def profiles_list(as_json: JsonOption = False) -> int:
    """List the profiles."""
    from netconsole.cli import listing
    from netconsole.probes.catalogue import load_all
    from netconsole.profile.profile import available, load

    manifests = load_all()
    found: list[Profile] = []
    broken: list[BadInput] = []
    for name in available():
        try:
            found.append(load(name, manifests))
        except BadInput as error:
            broken.append(error)
    if as_json:
        _print_json([listing.profile_json(profile) for profile in found])
    else:
        print(listing.profile_list(found))
    if broken:
        raise BadInput(problem for error in broken for problem in error.problems)
    return DONE


@profiles_app.command("show")
def profiles_show(name: str, as_json: JsonOption = False) -> int:
    """A profile with everything that it inherits."""
    from netconsole.cli import listing
    from netconsole.probes.catalogue import load_all
    from netconsole.profile.profile import load

    manifests = load_all()
    profile = load(name, manifests)
    if as_json:
        _print_json(listing.profile_json(profile))
    else:
        print(listing.profile_text(profile, manifests))
    return DONE


@profiles_app.command("check")
def profiles_check(name: Annotated[str, typer.Argument(metavar="NAME|FILE")], as_json: JsonOption = False) -> int:
    """Check a profile: every mistake is named; of one that is right, every value, its origin and what it means."""
    from netconsole.cli import listing
    from netconsole.probes.catalogue import load_all
    from netconsole.profile.profile import find, load_file

    manifests = load_all()
    profile = load_file(find(name) if stat_of(Path(name)) is None else Path(name), manifests)
    if as_json:
        _print_json(listing.profile_json(profile, manifests))
    else:
        print(listing.profile_checked(profile, manifests))
    return DONE


def _choose(profile: str, names: Sequence[str] | None) -> tuple[dict[str, Manifest], Profile, Sequence[ProbeRequest]]:
    """Manifests, profile and what to run. Raises BadInput and Unable before anything is started."""
    from netconsole.host.identity import require
    from netconsole.probes.catalogue import load_all
    from netconsole.profile.profile import load, plan

    manifests = load_all()
    chosen = load(profile, manifests)
    requests = plan(chosen, manifests, names or ())
    if not requests:
        raise bad("--profile", chosen.name, "every probe in it is off: there is nothing to measure")
    require(requests)
    return manifests, chosen, requests


def _print_json(document: object) -> None:
    print(json.dumps(document, indent=2))


def _drop_output() -> None:
    """Nothing of what is left may be flushed at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _open_closed_streams() -> None:
    """A descriptor that was closed would be given to a file of ours, and Python has no stream for it."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(number, mode))


def _fail(message: str, code: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in message.splitlines():
            print(f"netconsole: {line}", file=sys.stderr)
    return code
