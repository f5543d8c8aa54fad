"""Types of modules for kernels whose modules have none (before 5.11): files made by `netconsole types make`.

They were made elsewhere, from debug information, and carried to /etc/netconsole/btf/RELEASE/MODULE. A file is one line
of JSON and split BTF. The line binds it to one kernel and one build of the module. Wrong types would make wrong
numbers: so a file of another kernel, or one that is damaged, is refused and never half used.
"""

import hashlib
import json
import os
import re
import stat
from typing import Any, Dict, List, Optional

from netconsole_collector.types.btf import SEAL, BtfError

DIRECTORY = "/etc/netconsole/btf"
FORMAT = "netconsole.types/1"
_MODULES = "/sys/module"
_NOTE_BYTES = 16
"""Of an ELF note before its content: three lengths, and "GNU" with its zero (man 5 elf)."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MAX_BYTES = 16 << 20

Json = Dict[str, Any]


def sealed(about: Json, types: bytes) -> bytes:
    """A file's content. ``about``: release, module, build_id (hex) and vmlinux (digest of the kernel's own BTF)."""
    line = dict(about, format=FORMAT, sha256=hashlib.sha256(types).hexdigest())
    return SEAL + json.dumps(line, sort_keys=True).encode() + b"\n" + types


def paths(build_ids: Dict[str, Optional[str]], vmlinux: str, release: str, directory: str) -> List[str]:
    """Of those of these modules for which somebody carried a file here. Raises BtfError for one that is not for them.

    ``build_ids`` of the modules, by name: None is not loaded, and left out. ``vmlinux`` is the path of the kernel's own
    BTF.
    """
    found = []
    for name, build_id in build_ids.items():
        path = os.path.join(directory, release, name)
        if re.fullmatch(r"\w+", name) and build_id is not None and os.path.exists(path):
            problem = _problem(path, name, vmlinux, release, build_id)
            if problem:
                raise BtfError("{}: {}".format(path, problem))
            found.append(path)
    return found


def _problem(path: str, name: str, vmlinux: str, release: str, build_id: str) -> str:
    """Why a file must not be used; empty when it may."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        content = file.read(_MAX_BYTES)
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & _OTHERS_WRITE:
        return "others may write it: chown root and chmod 600 it"
    line, _, types = content.partition(b"\n")
    try:
        if not line.startswith(SEAL):
            raise ValueError
        about = json.loads(line[len(SEAL) :].decode())
        kept = {key: str(about[key]) for key in ("format", "sha256", "release", "module", "build_id", "vmlinux")}
    except (ValueError, KeyError, TypeError):
        return "not a file of netconsole types make"
    if kept["format"] != FORMAT:
        return "of another version of netconsole ({}): make it anew".format(kept["format"][:40])
    if kept["sha256"] != hashlib.sha256(types).hexdigest():
        return "damaged or cut off: carry it here again"
    if (kept["release"], kept["module"]) != (release, name):
        return "made for {} of kernel {}".format(kept["module"][:64], kept["release"][:64])
    with open(vmlinux, "rb") as file:
        if kept["vmlinux"] != hashlib.sha256(file.read()).hexdigest():
            return "made for another build of this kernel: its own types differ"
    if kept["build_id"] != build_id:
        return "made for another build of this module"
    return ""


def build_id_here(module: str, modules: str = _MODULES) -> Optional[str]:
    """Of a module of this kernel, in hex. Empty if it has none, None if it is not loaded."""
    directory = os.path.join(modules, module)
    try:
        with open(os.path.join(directory, "notes", ".note.gnu.build-id"), "rb") as file:
            return file.read()[_NOTE_BYTES:].hex()
    except OSError:
        return "" if os.path.isdir(directory) else None
