"""Types for kernels without any, and for those whose modules have none (before 5.11): made by `netconsole types make`.

They were made elsewhere, from debug information, and carried to /etc/netconsole/btf/RELEASE/MODULE. A file is one line
of JSON and split BTF. The line binds it to one kernel and one build of the module. The file of the kernel itself is
called vmlinux, and its line binds it to the kernel's build and symbols. Wrong types would make wrong numbers: so a file
of another kernel, or one that is damaged, is refused and never half used. Neither is one of which a probe names more
than was kept: that would be taken for what this kernel does not have.
"""

import json
import os
import re
import stat
import struct
import zlib
from typing import AbstractSet, Any, Dict, Iterable, List, Optional, Tuple

from netconsole_collector.types.btf import SEAL, BtfError
from netconsole_collector.types.sha256 import sha256

DIRECTORY = "/etc/netconsole/btf"
FORMAT = "netconsole.types/2"
KERNEL = "vmlinux"
_MODULES = "/sys/module"
_NOTES = "/sys/kernel/notes"
_NOTE = struct.Struct("=III")
"""Before the name and the content of an ELF note: their lengths, and its type (man 5 elf)."""
_BUILD_ID, _GNU = 3, b"GNU\0"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MAX_BYTES = 16 << 20
_NAMED = 3
"""At most, of what a file lacks."""

Json = Dict[str, Any]


class UnusableTypes(BtfError):
    """A carried file must not be used. The message names it, and says why. ``module`` is whose types it has."""

    def __init__(self, module: str, why: str) -> None:
        super().__init__(why)
        self.module = module


def sealed(about: Json, left_out: Iterable[str], types: bytes, known: Iterable[str] = ()) -> bytes:
    """A file's content. ``about``: release, module and build_id (hex).

    Of a module also vmlinux, the digest of the file that has the kernel's types. Of the kernel symbols, their digest.
    ``left_out`` are names that there are, and these types do not have. ``known`` were looked for when they were made:
    none of them was left out, whatever else has its short form.
    """
    line = dict(about, format=FORMAT, sha256=sha256(types).hexdigest())
    line["left_out"] = sorted({_short(name) for name in left_out} - {_short(name) for name in known})
    return SEAL + json.dumps(line, sort_keys=True, separators=(",", ":")).encode() + b"\n" + types


def _short(name: str) -> int:
    """In place of a name: a module has thousands."""
    return zlib.crc32(name.encode())


def kernel_path(release: str, directory: str) -> str:
    """Where the kernel's own types are, if they were carried here."""
    return os.path.join(directory, release, KERNEL)


def check_kernel(path: str, release: str, build_id: str, symbols: str, names: AbstractSet[str]) -> None:
    """Whether this file is of the kernel with this build id and digest of symbols. Raises UnusableTypes."""
    if not symbols:
        why = "netconsole cannot tell whether this file is this kernel's, which hides the addresses of its symbols"
        raise UnusableTypes(
            KERNEL, "{}: {}: run sysctl kernel.kptr_restrict=1, and netconsole as root".format(path, why)
        )
    bound = {
        "build_id": (build_id, "this file is for another build of this kernel"),
        "symbols": (symbols, "this file is for another build of this kernel, whose symbols differ"),
    }
    _check(path, KERNEL, release, bound, names)


def paths(
    build_ids: Dict[str, Optional[str]], vmlinux: str, release: str, directory: str, names: AbstractSet[str]
) -> List[str]:
    """Of those of these modules for which somebody carried a file here. Raises UnusableTypes.

    ``build_ids`` of the modules, by name: None is not loaded, and left out. ``vmlinux`` is the path of the kernel's own
    BTF, or of the file that was made for it. ``names`` may be those of types that are needed.
    """
    found = []
    for name, build_id in build_ids.items():
        path = os.path.join(directory, release, name)
        if re.fullmatch(r"\w+", name) and build_id is not None and os.path.exists(path):
            with open(vmlinux, "rb") as file:
                kernel = sha256(file.read()).hexdigest()
            bound = {
                "vmlinux": (kernel, "this file is for another build of this kernel, whose own types differ"),
                "build_id": (build_id, "this file is for another build of this module"),
            }
            _check(path, name, release, bound, names)
            found.append(path)
    return found


def _check(path: str, name: str, release: str, bound: Dict[str, Tuple[str, str]], names: AbstractSet[str]) -> None:
    """Raises UnusableTypes. ``bound``: by key of its line what has to be there, and what is wrong if it is not."""
    try:
        problem = _problem(path, name, release, bound, names)
    except OSError as error:
        problem = "this file cannot be read: {}".format(error.strerror)
    if problem:
        raise UnusableTypes(name, "{}: {}".format(path, problem))


def _problem(path: str, name: str, release: str, bound: Dict[str, Tuple[str, str]], names: AbstractSet[str]) -> str:
    """Why a file must not be used; empty when it may."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        content = file.read(_MAX_BYTES)
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & _OTHERS_WRITE:
        return "users other than root may write this file: run chown root and chmod 644 on it"
    line, _, types = content.partition(b"\n")
    try:
        if not line.startswith(SEAL):
            raise ValueError
        about = json.loads(line[len(SEAL) :].decode())
        kept = {key: str(about[key]) for key in ("format", "sha256", "release", "module")}
        kept.update((key, str(about.get(key))) for key in bound)
        left_out = set(about.get("left_out", ()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "netconsole types make did not write this file"
    if kept["format"] != FORMAT:
        return "another version of netconsole wrote this file ({}): make the file anew".format(kept["format"][:40])
    if kept["sha256"] != sha256(types).hexdigest():
        return "this file is damaged or cut off: copy it here again"
    if (kept["release"], kept["module"]) != (release, name):
        return "this file is for {} of kernel {}".format(kept["module"][:64], kept["release"][:64])
    for key, (expected, wrong) in bound.items():
        if kept[key] != expected:
            return wrong
    lacking = [one for one in sorted(names) if _short(one) in left_out]
    if lacking:
        return "this file lacks {}, which netconsole reads now: make the file anew".format(", ".join(lacking[:_NAMED]))
    return ""


def build_id_here(module: str, modules: str = _MODULES) -> Optional[str]:
    """Of a module of this kernel, in hex. Empty if it has none, None if it is not loaded."""
    directory = os.path.join(modules, module)
    try:
        with open(os.path.join(directory, "notes", ".note.gnu.build-id"), "rb") as file:
            return build_id_in(file.read())
    except OSError:
        return "" if os.path.isdir(directory) else None


def kernel_build_id_here(notes: str = _NOTES) -> str:
    """Of this kernel, in hex; empty if it does not tell one."""
    try:
        with open(notes, "rb") as file:
            return build_id_in(file.read())
    except OSError:
        return ""


def build_id_in(notes: bytes) -> str:
    """In hex; empty when none of these ELF notes is one."""
    at = 0
    while at + _NOTE.size <= len(notes):
        name, content, kind = _NOTE.unpack_from(notes, at)
        begin = at + _NOTE.size + _padded(name)
        if kind == _BUILD_ID and notes[at + _NOTE.size : begin] == _GNU:
            return notes[begin : begin + content].hex()
        at = begin + _padded(content)
    return ""


def _padded(length: int) -> int:
    return (length + 3) & ~3
