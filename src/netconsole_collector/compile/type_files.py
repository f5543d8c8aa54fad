"""Which files have the types that a job needs: the kernel's own, of modules that are loaded, and carried ones."""

import os
import re
from typing import Any, Dict, List, Optional, Set, Tuple

from netconsole_collector.kernel import modules
from netconsole_collector.probe.spec import named_modules, typed_modules
from netconsole_collector.types import btf, copied_types, kernel_symbols, source_names

COMMAND = "    "
"""Before a command in a help of several lines."""
_DEB = ("apt download linux-image-{0}-dbg", "dpkg -x linux-image-{0}-dbg_*.deb debug")
_DEB_NOTE = (
    "The package's name is Debian's (Ubuntu: linux-image-unsigned-{0}-dbgsym). apt download needs no root, but the "
    "lists of the host's own release: it may be run on the host"
)
_RPM = (
    "dnf download --enablerepo='*debug*' kernel-debuginfo-{0}",
    "mkdir debug",
    "rpm2cpio kernel-debuginfo-{0}.rpm | cpio -idm -D debug",
)
_OF_RPM = re.compile(r"\.(?:el|fc|amzn|oe)\d")
"""In the release of a kernel of Fedora, RHEL and those made from it."""

Json = Dict[str, Any]


def of(job: Json, spec: Json) -> List[str]:
    """The first one is vmlinux's. Empty: there are no types of this kernel. Raises copied_types.UnusableTypes."""
    own, release = job.get("btf", btf.VMLINUX), release_of(job)
    directory = job.get("carried", copied_types.DIRECTORY)
    files = [own]
    if not os.path.exists(own):
        files = [copied_types.kernel_path(release, directory)]
        if not os.path.exists(files[0]):
            return []
        copied_types.check_kernel(files[0], release, *_kernel(job), _names(job, spec))
    files += btf.module_paths(typed_modules(spec), os.path.dirname(own))
    build_ids = {name: build_id(job, name) for name in sorted(lacking(spec, files))}
    return files + copied_types.paths(
        build_ids, files[0], release, directory, _names(job, spec) if build_ids else set()
    )


def are_own(job: Json, files: List[str]) -> bool:
    """Whether these are the kernel's own types: BTF-typed programs need its numbers."""
    return bool(files[0] == job.get("btf", btf.VMLINUX))


def _names(job: Json, spec: Json) -> Set[str]:
    return source_names.of_types(job["source"], str(spec["programs"]))


def _kernel(job: Json) -> Tuple[str, str]:
    """Build id and digest of the symbols. Of another kernel, as tests have it, the job says them."""
    if "btf" in job:
        return job.get("build_ids", {}).get(copied_types.KERNEL, ""), job.get("symbols", "")
    return copied_types.kernel_build_id_here(), kernel_symbols.here()


def build_id(job: Json, module: str) -> Optional[str]:
    """In hex; empty for a module that is built in, None for one that is not there.

    Of another kernel's modules, whoever asks for the compile says them.
    """
    return job.get("build_ids", {}).get(module) if "btf" in job else copied_types.build_id_here(module)


def absent(job: Json, spec: Json) -> List[str]:
    """Those of the named modules that are not loaded there."""
    if "modules" in job:
        return [name for name in named_modules(spec) if _in_sysfs(name) not in job["modules"]]
    return [name for name in named_modules(spec) if not modules.is_loaded(name)]


def lacking(spec: Json, files: List[str]) -> List[str]:
    """Those of the named modules whose types are in none of these files."""
    there = {os.path.basename(path) for path in files}
    return [name for name in map(_in_sysfs, named_modules(spec)) if name not in there]


def how_to_make(job: Json) -> str:
    """The way out in one line, and below it, indented, commands that are pasted one by one."""
    release = release_of(job)
    fetch, note = (_RPM, "dnf's lines have not been run") if _OF_RPM.search(release) else (_DEB, _DEB_NOTE)
    place = "the machine where the console runs" if "btf_digest" in job else "the host"
    return "\n".join(
        [
            "make types on any machine with netconsole and pahole 1.22 or newer (Debian 12: package dwarves), from the "
            "debug package of kernel {}:".format(release),
            *(COMMAND + line.format(release) for line in fetch),
            COMMAND + "netconsole types make debug",
            "{}. Carry the directory {} to {}, and there:".format(note.format(release), release, place),
            COMMAND + "sudo install -Dm644 -t {0}/{1} {1}/*".format(copied_types.DIRECTORY, release),
        ]
    )


def _in_sysfs(module: str) -> str:
    """Its name in /sys/module: of its characters only - may be written in two ways."""
    return module.replace("-", "_")


def release_of(job: Json) -> str:
    return str(job.get("release") or os.uname().release)
