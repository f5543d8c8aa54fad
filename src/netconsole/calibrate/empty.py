"""Puts empty programs on the hooks of real ones, to measure what a hook itself costs and how often it is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from netconsole.probes.includes import behind_headers
from netconsole.probes.manifest import Manifest
from netconsole.telemetry.request import ProbeRequest

NAME = "empty"
CODE = "int nothing(void *ctx)\n{\n    return 0;\n}\n"


def request(manifests: Iterable[Manifest]) -> ProbeRequest:
    """A probe with one empty program for all programs of these probes that have the same alternatives."""
    found: dict[tuple[tuple[tuple[str, str], ...], str], Mapping[str, object]] = {}
    modules: set[str] = set()
    for manifest in manifests:
        modules.update(manifest.btf_modules)
        for program in manifest.programs:
            points = tuple((one.point, one.when) for one in program.attach)
            attach = [
                {"point": point, "function": "nothing", **({"when": when} if when else {})} for point, when in points
            ]
            unless = {"unless": program.unless} if program.unless else {}
            found.setdefault(
                (points, program.unless), {"name": f"on_{len(found)}", "required": False, "attach": attach, **unless}
            )
    about = {"name": NAME, "version": 1, "modes": ["summary"], "btf_modules": sorted(modules)}
    spec = {"probe": about, "programs": list(found.values())}
    return ProbeRequest(NAME, "summary", {}, spec, behind_headers(CODE))
