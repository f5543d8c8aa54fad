"""Which files have the types that a job needs: the kernel's own, of modules that are loaded, and carried ones."""

import os
from typing import Any, Dict, List, Optional

from netconsole_collector.kernel import modules
from netconsole_collector.probe.spec import named_modules, typed_modules
from netconsole_collector.types import btf, carried, source_names

Json = Dict[str, Any]


def of(job: Json, spec: Json) -> List[str]:
    """The first one is vmlinux's. Raises carried.UnusableTypes."""
    vmlinux = job.get("btf", btf.VMLINUX)
    own = [vmlinux, *btf.module_paths(typed_modules(spec), os.path.dirname(vmlinux))]
    build_ids = {name: build_id(job, name) for name in sorted(lacking(spec, own))}
    names = source_names.of_types(job["source"], str(spec["programs"])) if build_ids else set()
    return own + carried.paths(build_ids, vmlinux, _release(job), job.get("carried", carried.DIRECTORY), names)


def build_id(job: Json, module: str) -> Optional[str]:
    """In hex; empty for a module that is built in, None for one that is not there.

    Of another kernel's modules, whoever asks for the compile says them.
    """
    return job.get("build_ids", {}).get(module) if "btf" in job else carried.build_id_here(module)


def absent(job: Json, spec: Json) -> List[str]:
    """Those of the named modules that are not loaded there."""
    if "modules" in job:
        return [name for name in named_modules(spec) if _in_sysfs(name) not in job["modules"]]
    return [name for name in named_modules(spec) if not modules.is_loaded(name)]


def lacking(spec: Json, files: List[str]) -> List[str]:
    """Those of the named modules whose types are in none of these files."""
    there = {os.path.basename(path) for path in files}
    return [name for name in map(_in_sysfs, named_modules(spec)) if name not in there]


def how_to_make(job: Json, lacking: List[str]) -> str:
    """The commands, for this kernel and these modules."""
    files = " ".join("$(modinfo -n {} | sed s,^,/usr/lib/debug,)".format(name) for name in lacking)
    return (
        "apt install dwarves linux-image-{0}-dbg; netconsole types make --into {1} {2}; or make them on another "
        "machine, with --base and a copy of {3}, and carry the files to {1}/{0}/ where netconsole runs"
    ).format(_release(job), carried.DIRECTORY, files, btf.VMLINUX)


def _in_sysfs(module: str) -> str:
    """Its name in /sys/module: of its characters only - may be written in two ways."""
    return module.replace("-", "_")


def _release(job: Json) -> str:
    return str(job.get("release") or os.uname().release)
