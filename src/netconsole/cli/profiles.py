"""The command `profiles`: the catalogue of profiles, one of them, and a check of one that is being written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netconsole.base.errors import BadInput
from netconsole.base.readers import stat_of
from netconsole.cli.options import DONE, SETTINGS, JsonOption, belongs_after, print_json

if TYPE_CHECKING:
    from netconsole.profile.profile import Profile

profiles_app = typer.Typer(help="Show the profiles: which probes run, in which mode, with which budget.", **SETTINGS)


@profiles_app.callback(invoke_without_command=True)
def profiles(context: typer.Context, as_json: JsonOption = False) -> int:
    """List the profiles."""
    if context.invoked_subcommand is None:
        return profiles_list(as_json)
    if as_json:
        raise belongs_after("--json", context)
    return DONE


@profiles_app.command("list")
def profiles_list(as_json: JsonOption = False) -> int:
    """List the profiles."""
    from netconsole.cli import listing
    from netconsole.probes.catalogue import load_all
    from netconsole.profile.loader import available, load

    manifests = load_all()
    found: list[Profile] = []
    broken: list[BadInput] = []
    for name in available():
        try:
            found.append(load(name, manifests))
        except BadInput as error:
            broken.append(error)
    if as_json:
        print_json([listing.profile_json(profile) for profile in found])
    else:
        print(listing.profile_list(found))
    if broken:
        raise BadInput(problem for error in broken for problem in error.problems)
    return DONE


@profiles_app.command("show")
def profiles_show(name: str, as_json: JsonOption = False) -> int:
    """Show a profile with everything that it inherits."""
    from netconsole.cli import listing
    from netconsole.probes.catalogue import load_all
    from netconsole.profile.loader import load

    manifests = load_all()
    profile = load(name, manifests)
    if as_json:
        print_json(listing.profile_json(profile))
    else:
        print(listing.profile_text(profile, manifests))
    return DONE


@profiles_app.command("check")
def profiles_check(name: Annotated[str, typer.Argument(metavar="NAME|FILE")], as_json: JsonOption = False) -> int:
    """Check a profile. Names every mistake, or else every value, where it comes from and what it means."""
    from netconsole.cli import listing
    from netconsole.probes.catalogue import load_all
    from netconsole.profile.loader import find, load_file

    manifests = load_all()
    profile = load_file(find(name) if stat_of(Path(name)) is None else Path(name), manifests)
    if as_json:
        print_json(listing.profile_json(profile, manifests))
    else:
        print(listing.profile_checked(profile, manifests))
    return DONE
