"""The command `calibrate`: thin, like those of :mod:`netconsole.cli.main`, which adds it."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from netconsole.base.errors import bad
from netconsole.base.figure import safe
from netconsole.cli.options import (
    FormatOption,
    HostsOption,
    OutputOption,
    ReplaceOption,
    approach,
    enter,
    only_one,
    time_of,
)
from netconsole.run.preflight import DEFAULT_PROFILE

if TYPE_CHECKING:
    from netconsole.calibrate.plan import Treatment
    from netconsole.probes.catalogue import Catalogue

DEFAULT_PAIRS = 5
MAX_PAIRS = 1000
DEFAULT_WINDOW = "400ms"


def calibrate(
    probe: Annotated[
        list[str] | None, typer.Option("--probe", metavar="NAME[:MODE]", help="Measure this probe alone. Repeatable.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME|FILE", help="Measure all probes of this profile together.")
    ] = None,
    pairs: Annotated[int, typer.Option(metavar="N", help="How many pairs of measurements, 5 or more.")] = DEFAULT_PAIRS,
    window: Annotated[str, typer.Option(metavar="TIME", help="How long each workload runs per turn.")] = DEFAULT_WINDOW,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    format: FormatOption = None,
    output: OutputOption = None,
    replace: ReplaceOption = False,
    force: Annotated[bool, typer.Option("--force", help="Measure even if the host is busy.")] = False,
    hosts: HostsOption = None,
) -> int:
    """Measure what the probes cost on a host: pairs with and without, with a test load.

    The load runs between two network namespaces of its own and keeps two CPUs busy.
    By default each probe of the profile summary is measured alone.
    """
    from netconsole.base import output as out
    from netconsole.calibrate.estimate import MIN_PAIRS
    from netconsole.host.privileges import require
    from netconsole.probes.catalogue import load_all

    host = only_one(hosts, "netconsole calibrate")
    if as_json and format not in (None, "json"):
        raise bad("--format", "", "contradicts --json: give one of them")
    form = out.chosen("json" if as_json else format, output, "text", replace)
    window_s = time_of("--window", window, "50ms", "60s", DEFAULT_WINDOW)
    if not MIN_PAIRS <= pairs <= MAX_PAIRS:
        raise bad("--pairs", "", f"expected a number from {MIN_PAIRS} to {MAX_PAIRS}, found {pairs}")
    manifests = load_all()
    treatments = _treatments(manifests, probe or [], profile)
    out.ready(output)
    if host is None:
        require([request for one in treatments for request in one.requests])
    # Late: what measures is not needed to say what is wrong with the command line.
    from netconsole.calibrate import plan, store
    from netconsole.calibrate.summary import entry
    from netconsole.host import door

    involved = [manifests[name] for name in dict.fromkeys(r.name for one in treatments for r in one.requests)]
    needed_s = plan.duration_s(len(treatments), pairs, window_s, plan.workloads_of(involved))
    _say(f"{len(treatments)} to measure, {pairs} pairs each: about {needed_s / 60:.1f} min with two CPUs busy")
    with approach(host) as way:
        there = enter(way, manifests)
        outcome = plan.run(treatments, involved, pairs, window_s, _say, force, host=there)
        of = door.describe(there)
    found = store.made((entry(one, outcome, manifests, pairs, window_s) for one in outcome.treatments), of)
    _say(f"stored in {safe(store.save(found))}")
    if form == "json":
        import msgspec

        content = msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
    else:
        from netconsole.report import rendered
        from netconsole.report.of_calibration import of_calibration

        content = rendered(of_calibration(found), form)
    out.write(content, output)
    return 0


def _treatments(manifests: Catalogue, names: list[str], profile: str | None) -> list[Treatment]:
    """What is to be measured: these probes, each by itself, and this profile as a whole."""
    from dataclasses import replace

    from netconsole.calibrate.plan import Treatment
    from netconsole.probes.catalogue import pick
    from netconsole.profile.loader import load
    from netconsole.profile.plan import plan
    from netconsole.profile.profile import Profile

    is_named = bool(names)
    if not names and profile is None:
        summary = load(DEFAULT_PROFILE, manifests)
        names = [request.name for request in plan(summary, manifests) if request.source == "bpf"]
    treatments = []
    for text in dict.fromkeys(names):
        name, _, mode = text.partition(":")
        manifest = pick(manifests, name, "--probe")
        wanted = next((one for one in manifest.modes if one == (mode or "summary")), None)
        if manifest.source != "bpf":
            raise bad(
                "--probe",
                name,
                "this probe does not run in the kernel: its cost is CPU time of the console (see self_cost)",
            )
        if wanted is None:
            raise bad(
                "--probe", name, f"this probe has no mode {safe(mode, 40)}; its modes are {', '.join(manifest.modes)}"
            )
        (request,) = plan(Profile(name), manifests, [name])
        treatments.append(Treatment(f"{name}:{wanted}", (replace(request, mode=wanted),), is_named))
    if profile is not None:
        chosen = load(profile, manifests)
        requests = tuple(request for request in plan(chosen, manifests) if request.source == "bpf")
        if not requests:
            raise bad("--profile", chosen.name, "no probe of this profile runs in the kernel")
        treatments.append(Treatment(f"profile {chosen.name}", requests, is_named=False))
    return treatments


def _say(line: str) -> None:
    # Whoever reads the progress may have gone: that is no reason to lose the measurement.
    with contextlib.suppress(OSError, ValueError):
        print(f"netconsole: {line}", file=sys.stderr, flush=True)
