"""Puts empty programs on the hooks of real ones, to measure what a hook itself costs and how often it is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from netconsole.probes.includes import behind_headers
from netconsole.probes.manifest import Manifest
from netconsole.probes.request import ProbeRequest

NAME = "empty"
CODE = "int nothing(void *ctx)\n{\n    return 0;\n}\n"


def request(manifests: Iterable[Manifest]) -> ProbeRequest:
    """A probe with one empty program for every attach point of these probes."""
    found: dict[str, Mapping[str, object]] = {}
    modules: set[str] = set()
    for manifest in manifests:
        modules.update(manifest.btf_modules)
        for program in manifest.programs:
            attach = [{"point": one.point, "function": "nothing"} for one in program.attach]
            found.setdefault(program.attach[0].point, {"name": f"on_{len(found)}", "required": False, "attach": attach})
    about = {"name": NAME, "version": 1, "modes": ["summary"], "btf_modules": sorted(modules)}
    spec = {"probe": about, "programs": list(found.values())}
    return ProbeRequest(NAME, "summary", {}, spec, behind_headers(CODE))
