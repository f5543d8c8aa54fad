"""What dear probes will cost, said on standard error before they start; left out, refused or asked for if too much."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from netconsole.base.errors import Unable, bad

DEFAULT_PROFILE = "summary"
"""The profile that everybody starts with: summaries of its own, inherited or not, are left out if there is no room."""

if TYPE_CHECKING:
    from netconsole.budget.forecaster import Forecasts
    from netconsole.probes.manifest import Manifest
    from netconsole.probes.request import ProbeRequest
    from netconsole.profile.profile import Profile


@dataclass(frozen=True, slots=True)
class Start:
    """What is started, and what is not because of its cost: by name, and why."""

    requests: Sequence[ProbeRequest]
    left_out: Mapping[str, str] = field(default_factory=dict)


def before_start(
    profile: Profile,
    manifests: Mapping[str, Manifest],
    requests: Sequence[ProbeRequest],
    force: bool = False,
    may_ask: bool = False,
    named: Sequence[str] = (),
) -> Start:
    """Say the forecast, and leave out what DEFAULT_PROFILE alone asks for if it is too dear. ``named``: by the user.

    Raises Unable when the rest exceeds the budget and nobody said that it is wanted all the same.
    """
    from netconsole.budget import forecast

    modes = {request.name: request.mode for request in requests}
    dear = [(one, modes[one.name]) for one in _dear(requests, manifests)]
    if not dear:
        return Start(requests)
    from netconsole.budget.forecaster import forecast_now
    from netconsole.host import machine

    machine.before_pct()  # what is loaded to make the forecast is not how busy the machine was before
    try:
        outlook = forecast_now(dear)
    except Unable as error:
        _say(f"the cost cannot be forecast: {error}")
        return Start(requests)
    for one in outlook.forecasts:
        _say(forecast.describe(one))
    above = forecast.excess(outlook.forecasts, profile.budget, 0.0, outlook.packets_per_s)
    if above is None or force:
        return Start(requests)
    spare = [one.name for one in requests if _is_of_default_profile(profile, one, named)]
    out = {
        one.probe: one for one in forecast.too_costly(outlook.forecasts, profile.budget, spare, outlook.packets_per_s)
    }
    if out:
        for name in out:
            _say(f"{name} is not started: {above}. To start it: --probe {name}, --force, or e in the console")
        left_out = {name: f"{above}. {forecast.describe(one)}" for name, one in out.items()}
        return Start([request for request in requests if request.name not in out], left_out)
    why = f"profile {profile.name} would be over its budget from the start: {above}"
    if may_ask and _is_wanted(why):
        return Start(requests)
    raise Unable(f"{why}; --force starts it anyway, and the governor then reduces what costs too much")


def put_off(
    profile: Profile, manifests: Mapping[str, Manifest], requests: Sequence[ProbeRequest], named: Sequence[str]
) -> list[ProbeRequest]:
    """Dear summaries that DEFAULT_PROFILE alone asks for: an open console forecasts and starts them by itself."""
    dear = {manifest.name for manifest in _dear(requests, manifests)}
    return [one for one in requests if one.name in dear and _is_of_default_profile(profile, one, named)]


def _dear(requests: Sequence[ProbeRequest], manifests: Mapping[str, Manifest]) -> list[Manifest]:
    """What watches a module that is not here is not dear: it will be refused in a moment."""
    from netconsole.budget import forecast
    from netconsole.host.identity import shows_module

    return [one for one in forecast.wanted(requests, manifests) if not one.module or shows_module(one.module)]


def _is_of_default_profile(profile: Profile, request: ProbeRequest, named: Sequence[str]) -> bool:
    from netconsole.profile.profile import chosen_by

    return (
        request.mode != "details" and request.name not in named and chosen_by(profile, request.name) == DEFAULT_PROFILE
    )


def of_every_mode(manifest: Manifest) -> Forecasts:
    """What each mode of a probe would cost now. Raises BadInput and Unable."""
    from netconsole.budget.forecaster import forecast_now
    from netconsole.host.privileges import require
    from netconsole.profile.plan import plan
    from netconsole.profile.profile import Profile

    if manifest.source != "bpf":
        raise bad("--forecast", manifest.name, "does not run in the kernel: its cost is the console's own CPU time")
    require(plan(Profile(manifest.name), {manifest.name: manifest}, [manifest.name]))
    return forecast_now([(manifest, mode) for mode in manifest.modes])


def _is_wanted(why: str) -> bool:
    """Ask on standard output: it is the console's terminal, while standard error may be a file."""
    print(_wrapped(f"netconsole: {why}; start anyway? (y/N)", sys.stdout), end=" ", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _say(line: str) -> None:
    print(_wrapped(f"netconsole: {line}", sys.stderr), file=sys.stderr, flush=True)


def _wrapped(line: str, stream: TextIO) -> str:
    """For a terminal no word is cut; for a file a line is a line."""
    return textwrap.fill(line, shutil.get_terminal_size().columns) if stream.isatty() else line
