"""What dear probes will cost, said on standard error before they start; refused, or asked for, above the budget."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from netconsole.problems import Unable, bad

FORCE_HELP = "Start also what is forecast to be over the budget."

if TYPE_CHECKING:
    from netconsole.forecasting import Outlook
    from netconsole.probes import Manifest
    from netconsole.profiles import Profile
    from netconsole.session import ProbeRequest


def before_start(
    profile: Profile,
    manifests: Mapping[str, Manifest],
    requests: Sequence[ProbeRequest],
    force: bool = False,
    may_ask: bool = False,
) -> None:
    """Say the forecast. Raises Unable when it exceeds the budget and nobody said that it is wanted all the same."""
    from netconsole import forecast
    from netconsole.host import shows_module

    modes = {request.name: request.mode for request in requests}
    found = forecast.wanted(requests, manifests)
    # What watches a module that is not here will be refused in a moment: there is nothing to forecast.
    dear = [(one, modes[one.name]) for one in found if not one.module or shows_module(one.module)]
    if not dear:
        return
    from netconsole import machine
    from netconsole.forecasting import look_ahead

    machine.before_pct()  # what is loaded to make the forecast is not how busy the machine was before
    try:
        outlook = look_ahead(dear)
    except Unable as error:
        _say(f"no forecast of what it will cost: {error}")
        return
    for one in outlook.forecasts:
        _say(forecast.said(one))
    above = forecast.excess(outlook.forecasts, profile.budget, 0.0, outlook.packets_per_s)
    if above is None or force:
        return
    why = f"profile {profile.name} would be over its budget from the start: {above}"
    if may_ask and _is_wanted(why):
        return
    raise Unable(f"{why}; --force starts it all the same, and the governor then gives up what is too much")


def of_every_mode(manifest: Manifest) -> Outlook:
    """What each mode of a probe would cost now. Raises BadInput and Unable."""
    from netconsole.forecasting import look_ahead
    from netconsole.host import require
    from netconsole.profiles import Profile, plan

    if manifest.source != "bpf":
        raise bad("--forecast", manifest.name, "is not in the kernel: its cost is the console's own CPU time")
    require(plan(Profile(manifest.name), {manifest.name: manifest}, [manifest.name]))
    return look_ahead([(manifest, mode) for mode in manifest.modes])


def _is_wanted(why: str) -> bool:
    print(_wrapped(f"netconsole: {why}; start all the same? (y/N)"), end=" ", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _say(line: str) -> None:
    print(_wrapped(f"netconsole: {line}"), file=sys.stderr, flush=True)


def _wrapped(line: str) -> str:
    """For a terminal no word is cut; for a file a line is a line."""
    return textwrap.fill(line, shutil.get_terminal_size().columns) if sys.stderr.isatty() else line
