"""Which files have the types that a job needs: the kernel's own, of modules that are loaded, and carried ones."""

import os
from typing import Any, Dict, List

from netconsole_collector.probe.spec import named_modules, typed_modules
from netconsole_collector.types import btf, carried

Json = Dict[str, Any]


def of(job: Json, spec: Json) -> List[str]:
    """The first one is vmlinux's. Raises BtfError for a carried file that is not this kernel's."""
    vmlinux = job.get("btf", btf.VMLINUX)
    found = [vmlinux, *btf.module_paths(typed_modules(spec), os.path.dirname(vmlinux))]
    if "btf" not in job:  # another kernel's modules are not loaded here
        there = {os.path.basename(path) for path in found}
        without = sorted(name for name in named_modules(spec) if name.replace("-", "_") not in there)
        found += carried.paths(without, vmlinux, os.uname().release)
    return found


def lacking(spec: Json, loaded: List[str], directory: str = carried.DIRECTORY) -> List[str]:
    """Those of the loaded modules that have neither types of their own nor a carried file."""
    release = os.uname().release
    named = [name.replace("-", "_") for name in named_modules(spec) if name in loaded]
    own = [os.path.basename(path) for path in btf.module_paths(named)]
    return [one for one in named if one not in own and not os.path.exists(os.path.join(directory, release, one))]


def how_to_make(modules: List[str]) -> str:
    """The commands, for this kernel and these modules."""
    release = os.uname().release
    files = " ".join("$(modinfo -n {} | sed s,^,/usr/lib/debug,)".format(name) for name in modules)
    return (
        "apt install dwarves linux-image-{0}-dbg; netconsole types make --into {1} {2}; or make them on another "
        "machine, with --base and a copy of {3}, and carry the files to {1}/{0}/"
    ).format(release, carried.DIRECTORY, files, btf.VMLINUX)
