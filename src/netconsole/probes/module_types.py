"""Makes a module's types from its debug information, pruned to what probes read.

For kernels whose modules have no types of their own (before 5.11). pahole makes split BTF on top of the kernel's own.
What no shipped probe names is left out, and the file is bound to its kernel (netconsole_collector/types/carried.py).
"""

from __future__ import annotations

import hashlib
import re
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from netconsole.base.errors import Unable, bad
from netconsole_collector.types import btf as b
from netconsole_collector.types import carried

PAHOLE_LIMIT_S = 600.0
NO_PAHOLE = "pahole is missing: install dwarves (Debian, Ubuntu, Fedora, RHEL)"
_RELEASE = re.compile(r"/lib/modules/([^/]+)/")
_NAME = re.compile(r"([\w-]+)\.ko(?:\.debug)?")
_HEADER = struct.Struct("<HBBIIIII")
_TYPE = struct.Struct("<III")
_REFERRING = {b.PTR, b.TYPEDEF, b.VOLATILE, b.CONST, b.RESTRICT, b.FUNC, b.FUNC_PROTO, b.VAR, b.TYPE_TAG, b.DECL_TAG}
"""Kinds whose third word is a type. Others have a size there."""
_LISTS = {b.STRUCT: (12, True), b.UNION: (12, True), b.FUNC_PROTO: (8, True), b.ENUM: (8, False), b.ENUM64: (12, False)}
"""Bytes of an item of the list behind a type, and whether its second word is a type. The first one is a name."""
_AFTER = {b.INT: 4, b.VAR: 4, b.DECL_TAG: 4}
_TRACEPOINT = "btf_trace_"
"""Before a tracepoint's name in that of the typedef of what it tells."""
_ROOTS = {b.STRUCT, b.UNION, b.ENUM, b.ENUM64, b.TYPEDEF, b.FUNC}


def make(file: Path, base: Path, release: str | None, names: set[str]) -> tuple[str, str, bytes]:
    """The kernel's release, the module's name, and the content of its file.

    ``file`` is a module with debug information, ``base`` the kernel's own BTF (/sys/kernel/btf/vmlinux there).
    ``names`` are kept. Raises BadInput and Unable.
    """
    matched = _NAME.fullmatch(file.name)
    if matched is None:
        raise bad(file, "", "expected a module with debug information, such as openvswitch.ko")
    found = _RELEASE.search(str(file.resolve()))
    if release is None and found is None:
        raise bad(file, "", "the file is not below lib/modules/RELEASE: say with --release for which kernel it is")
    release = release or (found.group(1) if found else "")
    module = matched.group(1).replace("-", "_")
    try:
        id = build_id(file.read_bytes())
        vmlinux = base.read_bytes()
    except OSError as error:
        raise bad(error.filename or file, "", f"cannot read: {error.strerror}") from None
    except (ValueError, struct.error):
        raise bad(file, "", "this file is no module with a build id") from None
    try:
        whole = split_btf(file, base)
        types = pruned(vmlinux, whole, names)
        left_out = root_names(vmlinux, whole) - root_names(vmlinux, types)
    except (ValueError, struct.error, IndexError):
        raise bad(
            base, "", f"these types do not fit those of {module}: check that this is the BTF of kernel {release}"
        ) from None
    about = {"release": release, "module": module, "build_id": id, "vmlinux": hashlib.sha256(vmlinux).hexdigest()}
    return release, module, carried.sealed(about, left_out, types)


def split_btf(file: Path, base: Path) -> bytes:
    """What pahole makes of the debug information. Raises BadInput and Unable."""
    with tempfile.TemporaryDirectory(prefix="netconsole-") as directory:
        out = Path(directory) / "btf"
        command = ["pahole", "-J", f"--btf_base={base}", f"--btf_encode_detached={out}", str(file)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=PAHOLE_LIMIT_S, check=False)
        except FileNotFoundError:
            raise Unable(NO_PAHOLE) from None
        except subprocess.TimeoutExpired:
            raise bad(file, "", f"pahole took longer than {PAHOLE_LIMIT_S:g} s") from None
        if done.returncode == 0 and out.exists():
            return out.read_bytes()
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    raise bad(
        file,
        "",
        "pahole (1.22 or later) made no types of this module:"
        f" {said[-1] if said else 'the module may have no debug information'}",
    )


def build_id(elf: bytes) -> str:
    """The note of a 64-bit little-endian ELF file, in hex. Raises ValueError and struct.error."""
    if elf[:6] != b"\x7fELF\2\1":
        raise ValueError("not an ELF file of 64 bits")
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", elf, table + size * number) for number in range(count)]
    strings = sections[names][4]
    for name, kind, _, _, offset, length in sections:
        at = strings + name
        if kind == 7 and elf[at : elf.index(b"\0", at)] == b".note.gnu.build-id":  # SHT_NOTE
            return elf[offset + 16 : offset + length].hex()
    raise ValueError("no build id")


class _Split:
    """The types of a module, each with its bytes. Ids and names below those of vmlinux are vmlinux's."""

    def __init__(self, vmlinux: bytes, module: bytes) -> None:
        base_types, self._base_strings = _parts(vmlinux)
        types, self._strings = _parts(module)
        self.first = 1 + sum(1 for _ in _each(base_types))
        self.types = [bytearray(one) for one in _each(types)]

    def name(self, offset: int) -> str:
        strings = self._base_strings
        if offset >= len(strings):
            strings, offset = self._strings, offset - len(strings)
        return strings[offset : strings.index(b"\0", offset)].decode("ascii", "replace")

    @property
    def base_length(self) -> int:
        return len(self._base_strings)


def pruned(vmlinux: bytes, module: bytes, names: set[str]) -> bytes:
    """Split BTF: those types of a module that have one of these names, and all that they need. Raises ValueError."""
    split = _Split(vmlinux, module)
    kept: set[int] = set()
    waiting = [number for number, one in enumerate(split.types) if names.intersection(_root_names(split, one))]
    while waiting:
        number = waiting.pop()
        if number in kept:
            continue
        kept.add(number)
        referred = [struct.unpack_from("<I", split.types[number], at)[0] for at in _references(split.types[number])]
        waiting += [identifier - split.first for identifier in referred if identifier >= split.first]
    order = sorted(kept)
    new_ids = {split.first + number: split.first + place for place, number in enumerate(order)}
    strings, places = bytearray(), {}
    for number in order:
        one = split.types[number]
        for at in _references(one):
            (identifier,) = struct.unpack_from("<I", one, at)
            struct.pack_into("<I", one, at, new_ids.get(identifier, identifier))
        for at in _names(one):
            (offset,) = struct.unpack_from("<I", one, at)
            if offset >= split.base_length:
                name = split.name(offset)
                if name not in places:
                    places[name] = split.base_length + len(strings)
                    strings += name.encode() + b"\0"
                struct.pack_into("<I", one, at, places[name])
    types = b"".join(bytes(split.types[number]) for number in order)
    header = _HEADER.pack(0xEB9F, 1, 0, _HEADER.size, 0, len(types), len(types), len(strings))
    return header + types + bytes(strings)


def root_names(vmlinux: bytes, module: bytes) -> set[str]:
    """By which a source can name the types of a module."""
    split = _Split(vmlinux, module)
    return {name for one in split.types for name in _root_names(split, one) if name}


def _root_names(split: _Split, one: bytearray) -> list[str]:
    """Of a type: its own name, of an enum those of its values as well, of a tracepoint that of the tracepoint."""
    kind = _kind(one)
    if kind not in _ROOTS:
        return []
    offsets: Iterable[int] = _names(one) if kind in (b.ENUM, b.ENUM64) else (0,)
    found = [split.name(struct.unpack_from("<I", one, at)[0]) for at in offsets]
    return found + [name[len(_TRACEPOINT) :] for name in found if name.startswith(_TRACEPOINT)]


def _parts(raw: bytes) -> tuple[bytes, bytes]:
    magic, version, _, header, types_at, types, strings_at, strings = _HEADER.unpack_from(raw)
    if (magic, version) != (0xEB9F, 1) or len(raw) < header + strings_at + strings:
        raise ValueError("not BTF")
    return raw[header + types_at :][:types], raw[header + strings_at :][:strings]


def _each(types: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(types):
        _, info, _ = _TYPE.unpack_from(types, at)
        kind, count = info >> 24 & 31, info & 0xFFFF
        item = 12 if kind == b.DATASEC else _LISTS.get(kind, (0, False))[0]
        size = _TYPE.size + (12 if kind == b.ARRAY else _AFTER.get(kind, 0)) + count * item
        yield types[at : at + size]
        at += size


def _kind(one: bytearray) -> int:
    return int(_TYPE.unpack_from(one)[1] >> 24 & 31)


def _references(one: bytearray) -> list[int]:
    """Where a type has the ids of others."""
    kind = _kind(one)
    places = [8] if kind in _REFERRING else [12, 16] if kind == b.ARRAY else []
    item, has_types = _LISTS.get(kind, (0, False))
    return places + (list(range(16, len(one), item)) if has_types else [])


def _names(one: bytearray) -> list[int]:
    """Where a type has the offsets of names."""
    item, _ = _LISTS.get(_kind(one), (0, False))
    return [0, *(range(12, len(one), item) if item else ())]
