"""The command `probes`: the catalogue of probes, one of them, and a check of one that is being written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netconsole.base.errors import bad
from netconsole.cli.options import DONE, SETTINGS, HostsOption, JsonOption, approach, enter, only_one, print_json

probes_app = typer.Typer(help="Show the probes: what each measures, and what it costs.", **SETTINGS)


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
        print_json([listing.probe_json(manifest) for manifest in manifests.values()])
    else:
        print(listing.probe_list(manifests))
    manifests.require_whole()
    return DONE


@probes_app.command("show")
def probes_show(
    name: str,
    as_json: JsonOption = False,
    forecast: Annotated[
        bool, typer.Option("--forecast", help="Count calls of its hooks for a moment, and say what it would cost now.")
    ] = False,
    hosts: HostsOption = None,
) -> int:
    """Show what one probe measures, how, what it cannot see, and what it costs on this host."""
    from netconsole.calibrate import store
    from netconsole.cli import listing
    from netconsole.probes.catalogue import load_all, pick
    from netconsole.run import preflight

    manifests = load_all()
    manifest = pick(manifests, name, "netconsole probes show")
    host = only_one(hosts, "netconsole probes show")
    if host is not None and not forecast:
        raise bad("--host", "", "says what a probe would cost there: add --forecast")
    calibration = store.load() if host is None else None
    outlook = None
    if forecast:
        with approach(host) as way:
            outlook = preflight.of_every_mode(manifest, enter(way, manifests))
    if as_json:
        print_json(listing.probe_json(manifest, calibration, outlook))
    else:
        print(listing.probe_text(manifest, calibration, outlook))
    return DONE


@probes_app.command("check")
def probes_check(directory: Path) -> int:
    """Check the manifest and the headers of a probe that you write."""
    from netconsole.probes.catalogue import load

    manifest = load(directory)
    manifest.code()  # its headers can be found
    print(f"{manifest.name}: ok")
    return DONE
