"""The commands `probes`: the catalogue of probes, one of them, a check of one that is being written; and `types`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netconsole.base.errors import bad
from netconsole.cli.options import (
    DONE,
    SETTINGS,
    HostsOption,
    JsonOption,
    approach,
    belongs_after,
    enter,
    only_one,
    print_json,
)

probes_app = typer.Typer(help="Show the probes: what each measures, and what it costs.", **SETTINGS)

OWN_TYPES = "/sys/kernel/btf/vmlinux"
types_app = typer.Typer(help="Make kernel types, for hosts without BTF and for modules before 5.11.", **SETTINGS)


@types_app.callback()
def types() -> None:
    """Make kernel types, for hosts without BTF and for modules before 5.11."""


@types_app.command("make")
def types_make(
    files: Annotated[
        list[Path],
        typer.Argument(help="An unpacked debug package, or from one vmlinux and modules such as openvswitch.ko."),
    ],
    into: Annotated[Path, typer.Option(help="The directory to write into. Files are RELEASE/MODULE.")] = Path(),
    base: Annotated[
        Path | None, typer.Option(help=f"The kernel's own BTF, without a vmlinux. Default: {OWN_TYPES}.")
    ] = None,
    release: Annotated[str | None, typer.Option(help="The kernel's release, if the path does not say it.")] = None,
) -> int:
    """Make the types of a kernel without any, and of modules without, from their debug information."""
    from netconsole.probes import type_maker
    from netconsole.probes.catalogue import load_all, typed_modules
    from netconsole.probes.type_pruning import names_read
    from netconsole_collector.types import copied_types

    manifests = load_all()
    names, wanted = names_read(manifests.values()), set(typed_modules(manifests))
    kernels: list[Path] = []
    modules: list[Path] = []
    for given in files:
        for file in type_maker.found_in(given, wanted) if given.is_dir() else [given]:
            (kernels if type_maker.name_of(file) == type_maker.VMLINUX else modules).append(file)
    if len({kernel.resolve() for kernel in kernels}) + (base is not None) > 1:
        raise bad(kernels[-1], "", "name one kernel only: a vmlinux, or --base")
    if kernels and type_maker.own_types(kernels[0]) is None:
        release, content, below = type_maker.make_kernel(kernels[0], release, names)
        _write_types(into / release / type_maker.VMLINUX, content)
    elif not modules:
        raise bad(kernels[0], "", "this kernel has types of its own: name the modules that have none")
    else:
        below = type_maker.base_of(kernels[0] if kernels else base or Path(OWN_TYPES))
    for file in modules:
        release, module, content = type_maker.make_module(file, below, release, names)
        _write_types(into / release / module, content)
    print(
        f"On the host with kernel {release}, put these files into {copied_types.DIRECTORY}/{release}/, owned by root."
    )
    return DONE


def _write_types(path: Path, content: bytes) -> None:
    from netconsole.base.files import write_whole

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise bad(path.parent, "", f"this directory cannot be made: {error.strerror}") from None
    write_whole(path, content)
    print(f"{path}: {len(content) / 1000:.0f} kB")


@probes_app.callback(invoke_without_command=True)
def probes(context: typer.Context, as_json: JsonOption = False) -> int:
    """List the probes."""
    if context.invoked_subcommand is None:
        return probes_list(as_json)
    if as_json:
        raise belongs_after("--json", context)
    return DONE


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
        bool,
        typer.Option(
            "--forecast", help="Count calls of the hooks for a moment, and say what the probe would cost now."
        ),
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
        raise bad("--host", "", "--host goes with --forecast: the host tells what a probe would cost there now")
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
