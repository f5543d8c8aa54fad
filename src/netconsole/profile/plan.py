"""Turns a profile into the probes to run on this host, with their knobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netconsole.probes.catalogue import pick
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import ProbeChoice, Profile
from netconsole.telemetry.request import ProbeRequest


def plan(profile: Profile, manifests: Mapping[str, Manifest], only: Sequence[str] = ()) -> list[ProbeRequest]:
    """The probes of the profile that are not off; or ``only`` these, in mode summary if the profile lacks them.

    A knob has the probe's value in the profile, else the profile's filter of that name, else the manifest's default.
    """
    names = [pick(manifests, name).name for name in dict.fromkeys(only)] if only else list(profile.probes)
    requests = []
    for name in names:
        choice = profile.probes.get(name, ProbeChoice())
        mode = choice.mode
        if mode == "off":
            if not only:
                continue
            mode = "summary"
        manifest = manifests[name]
        filters = {knob: value for knob, value in profile.filters.items() if knob in manifest.knobs}
        knobs = {**manifest.knobs, **filters, **choice.knobs}
        requests.append(ProbeRequest(name, mode, knobs, manifest.raw, manifest.code(), manifest.source))
    return requests
