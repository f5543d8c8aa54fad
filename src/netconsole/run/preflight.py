"""Looks before probes start: is there the interface that they are narrowed to, and what will expensive ones cost?

What is above the budget is left out, refused, or the user confirms it.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from netconsole.base.errors import Unable, bad
from netconsole.base.output import print_progress
from netconsole.far.host import THIS_HOST, AnyHost

DEFAULT_PROFILE = "summary"
"""The profile that everybody starts with. Its summaries, also inherited ones, are left out if they do not fit."""

if TYPE_CHECKING:
    from netconsole.budget.forecaster import Forecasts
    from netconsole.probes.manifest import Manifest
    from netconsole.profile.profile import Profile
    from netconsole.telemetry.request import ProbeRequest


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What is measured: the same on every host.

    ``named``: probes that the user named, which are not left out. ``force``: they start whatever they cost.
    ``interval_s``: from one reading to the next. ``duration_s``: None if it measures until somebody ends it.
    """

    profile: Profile
    manifests: Mapping[str, Manifest]
    requests: Sequence[ProbeRequest]
    named: Sequence[str] = ()
    force: bool = False
    interval_s: float = 1.0
    duration_s: float | None = None
    packets: Path | None = None
    """The file of sampled packets; None: there is none."""

    @property
    def watched(self) -> dict[str, Manifest]:
        """The manifests of the probes that run, or may. Those of all others need not be read."""
        names = sorted({*self.profile.probes, *(request.name for request in self.requests)})
        return {name: self.manifests[name] for name in names if name in self.manifests}


@dataclass(frozen=True, slots=True)
class Start:
    """What is started; and by name what is not started because of its cost, and why."""

    requests: Sequence[ProbeRequest]
    left_out: Mapping[str, str] = field(default_factory=dict)


def before_start(
    plan: RunPlan, host: AnyHost = THIS_HOST, may_ask: bool = False, say: Callable[[str], None] | None = None
) -> Start:
    """Report a missing interface and the forecast. Leave out too expensive probes that only DEFAULT_PROFILE asks for.

    ``say``: reports it; None: standard error does. Raises Unable when the rest exceeds the budget, unless the plan
    forces it, or the user confirms it where he may be asked.
    """
    from netconsole.budget import forecast
    from netconsole.profile.scope import host_wide, said, words

    say, profile, requests = say or _say, plan.profile, plan.requests
    if wide := host_wide(profile, plan.manifests, (request.name for request in requests)):
        say(f"only {words(said(profile))}; host-wide: {', '.join(wide)}")
    if device := str(profile.filters.get("device") or ""):
        _say_if_missing(device, host, say)
    modes = {request.name: request.mode for request in requests}
    expensive = [(one, modes[one.name]) for one in _expensive(plan, host)]
    if not expensive:
        return Start(requests)
    from netconsole.budget.forecaster import forecast_now
    from netconsole.host import machine

    machine.before_pct()  # the load of making the forecast does not count as load before measuring
    try:
        outlook = forecast_now(expensive, host=host)
    except Unable as error:
        say(f"the cost cannot be forecast: {error}")
        return Start(requests)
    knobs = {request.name: request.knobs for request in requests}
    forecasts = [forecast.of_share(one, knobs[one.probe]) for one in outlook.forecasts]
    for one in forecasts:
        say(forecast.describe(one))
    above = forecast.excess(forecasts, profile.budget, 0.0, outlook.packets_per_s)
    if above is None or plan.force:
        return Start(requests)
    spare = [one.name for one in requests if _is_of_default_profile(plan, one)]
    out = {one.probe: one for one in forecast.too_costly(forecasts, profile.budget, spare, outlook.packets_per_s)}
    if out:
        for name in out:
            say(f"{name} is not started: {above}. To start it: --probe {name}, --force, or e in the console")
        left_out = {name: f"{above}. {forecast.describe(one)}" for name, one in out.items()}
        return Start([request for request in requests if request.name not in out], left_out)
    why = f"profile {profile.name} would be over its budget from the start: {above}"
    if may_ask and _is_wanted(why):
        return Start(requests)
    raise Unable(f"{why}; --force starts it anyway, and the governor then reduces what costs too much")


def defer_expensive(plan: RunPlan, host: AnyHost = THIS_HOST) -> list[ProbeRequest]:
    """Expensive summaries that only DEFAULT_PROFILE asks for. The console forecasts and starts them after it opened."""
    expensive = {manifest.name for manifest in _expensive(plan, host)}
    return [one for one in plan.requests if one.name in expensive and _is_of_default_profile(plan, one)]


def _expensive(plan: RunPlan, host: AnyHost) -> list[Manifest]:
    """The expensive probes. Those of a missing kernel module are not forecast, because they will be refused."""
    from netconsole.budget import forecast
    from netconsole.host.identity import shows_module

    def is_loaded(module: str) -> bool:
        return shows_module(module) if host.about is None else module in host.about.modules

    return [one for one in forecast.wanted(plan.requests, plan.manifests) if not one.module or is_loaded(one.module)]


def _say_if_missing(device: str, host: AnyHost, say: Callable[[str], None]) -> None:
    """A name with a mistake in it measures nothing. It is no error: the interface may come later, as a tap does."""
    from netconsole.base.checker import close
    from netconsole.base.figure import safe
    from netconsole.host import door

    try:
        names = door.ask(host, "interfaces", None, set[str])
    except OSError:
        return
    if device not in names:
        where = "in any network namespace that is watched now"
        known = close(device, sorted(names))
        say(f"device {safe(device, 40)}: no interface has this name {where}; it is watched for{known}")


def _is_of_default_profile(plan: RunPlan, request: ProbeRequest) -> bool:
    from netconsole.profile.profile import chosen_by

    is_named = request.name in plan.named
    return request.mode != "details" and not is_named and chosen_by(plan.profile, request.name) == DEFAULT_PROFILE


def of_every_mode(manifest: Manifest, host: AnyHost = THIS_HOST) -> Forecasts:
    """What each mode of a probe would cost now. Raises BadInput and Unable."""
    from netconsole.budget.forecaster import forecast_now
    from netconsole.host.privileges import require
    from netconsole.profile.plan import plan
    from netconsole.profile.profile import Profile

    if manifest.source != "bpf":
        raise bad(
            "--forecast", manifest.name, "this probe does not run in the kernel: its cost is CPU time of the console"
        )
    if host.about is None:
        require(plan(Profile(manifest.name), {manifest.name: manifest}, [manifest.name]))
    return forecast_now([(manifest, mode) for mode in manifest.modes], host=host)


def _is_wanted(why: str) -> bool:
    """Ask on standard output. That is the console's terminal, while standard error may be a file."""
    print(_wrapped(f"netconsole: {why}; start anyway? (y/N)", sys.stdout), end=" ", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _say(line: str) -> None:
    print_progress(_wrapped(f"netconsole: {line}", sys.stderr))


def _wrapped(line: str, stream: TextIO) -> str:
    """Wrap lines between words for a terminal. Do not wrap them for a file."""
    return textwrap.fill(line, shutil.get_terminal_size().columns) if stream.isatty() else line
