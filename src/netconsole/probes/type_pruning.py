"""Leaves out of BTF what probes do not read. The layout of its types is in Documentation/bpf/btf.rst."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from netconsole.probes.manifest import Manifest
from netconsole_collector.names import drop_reasons
from netconsole_collector.types import btf as b
from netconsole_collector.types import source_names

_HEADER = struct.Struct("<HBBIIIII")
_MAGIC = 0xEB9F
_TYPE = struct.Struct("<III")
_WORD = struct.Struct("<I")
_REFERRING = {b.PTR, b.TYPEDEF, b.VOLATILE, b.CONST, b.RESTRICT, b.FUNC, b.FUNC_PROTO, b.VAR, b.TYPE_TAG, b.DECL_TAG}
"""Kinds whose third word is a type. Others have a size there."""
_LISTS = {b.STRUCT: (12, True), b.UNION: (12, True), b.FUNC_PROTO: (8, True), b.ENUM: (8, False), b.ENUM64: (12, False)}
"""Bytes of an item of the list behind a type, and whether its second word is a type. The first one is a name."""
_AFTER = {b.INT: 4, b.VAR: 4, b.DECL_TAG: 4}
_TRACEPOINT = "btf_trace_"
"""Before a tracepoint's name in that of the typedef of what it tells."""
_ROOTS = {b.STRUCT, b.UNION, b.ENUM, b.ENUM64, b.TYPEDEF, b.FUNC}


def names_read(manifests: Iterable[Manifest]) -> set[str]:
    """What may be a type or a function of the kernel in the sources of these probes."""
    names = {"pt_regs", *drop_reasons.ENUMS}
    for manifest in manifests:
        if manifest.source == "bpf":
            names |= source_names.of_types(manifest.code(), str(manifest.raw["programs"]))
    return names


class Types:
    """Types, each with its bytes. ``number`` is the place of one among them, an id what others call it by.

    Of a module (split BTF): ids and names below those of vmlinux are vmlinux's.
    """

    def __init__(self, vmlinux: bytes | None, types: bytes) -> None:
        """``types`` are those of a module on top of ``vmlinux``; None: they are vmlinux's own.

        Raises ValueError, struct.error and IndexError for what is no BTF.
        """
        base_types, self._base_strings = (b"", b"") if vmlinux is None else _parts(vmlinux)
        own, self.strings = _parts(types)
        self.first_id = 1 + sum(1 for _ in _each(base_types))
        self.types = [bytearray(one) for one in _each(own)]

    @property
    def first_name(self) -> int:
        """The offset of the first name that is not vmlinux's."""
        return len(self._base_strings)

    def name(self, offset: int) -> str:
        strings = self._base_strings
        if offset >= len(strings):
            strings, offset = self.strings, offset - len(strings)
        return strings[offset : strings.index(b"\0", offset)].decode("ascii", "replace")

    def root_names(self, number: int) -> list[str]:
        """Of a type: its own name, of an enum those of its values as well, of a tracepoint that of the tracepoint."""
        one = self.types[number]
        kind = _kind(one)
        if kind not in _ROOTS:
            return []
        offsets = name_offsets(one) if kind in (b.ENUM, b.ENUM64) else name_offsets(one)[:1]
        found = [self.name(offset) for offset in offsets]
        return found + [name[len(_TRACEPOINT) :] for name in found if name.startswith(_TRACEPOINT)]

    def with_names(self, names: set[str]) -> set[int]:
        """The numbers of those that a source can name by one of these."""
        return {number for number in range(len(self.types)) if names.intersection(self.root_names(number))}

    def needed(self, numbers: Iterable[int]) -> tuple[set[int], set[int]]:
        """The numbers of these types and of all that they need, and the ids of those of vmlinux that they refer to."""
        kept: set[int] = set()
        below: set[int] = set()
        waiting = list(numbers)
        while waiting:
            number = waiting.pop()
            if number in kept:
                continue
            kept.add(number)
            referred = ids(self.types[number])
            waiting += [identifier - self.first_id for identifier in referred if identifier >= self.first_id]
            below.update(identifier for identifier in referred if 0 < identifier < self.first_id)
        return kept, below


def pruned(vmlinux: bytes | None, types: bytes, names: set[str]) -> bytes:
    """Those types that have one of these names, and all that they need, with numbers of their own.

    ``types`` are those of a module on top of ``vmlinux``; None: they are vmlinux's own. Raises as :class:`Types` does.
    """
    split = Types(vmlinux, types)
    order = sorted(split.needed(split.with_names(names))[0])
    new_ids = {split.first_id + number: split.first_id + place for place, number in enumerate(order)}
    strings, places = (bytearray(b"\0"), {"": 0}) if vmlinux is None else (bytearray(), {})
    for number in order:
        one = split.types[number]
        for at, identifier in zip(_ids_at(one), ids(one), strict=True):
            _WORD.pack_into(one, at, new_ids.get(identifier, identifier))
        for at, offset in zip(_names_at(one), name_offsets(one), strict=True):
            if offset >= split.first_name:
                name = split.name(offset)
                if name not in places:
                    places[name] = split.first_name + len(strings)
                    strings += name.encode() + b"\0"
                _WORD.pack_into(one, at, places[name])
    return written([split.types[number] for number in order], bytes(strings))


def root_names(vmlinux: bytes | None, types: bytes) -> set[str]:
    """By which a source can name these types, of vmlinux itself (None) or of a module."""
    split = Types(vmlinux, types)
    return {name for number in range(len(split.types)) for name in split.root_names(number) if name}


def written(types: Iterable[bytearray], strings: bytes) -> bytes:
    """BTF that consists of these."""
    content = b"".join(types)
    return _HEADER.pack(_MAGIC, 1, 0, _HEADER.size, 0, len(content), len(content), len(strings)) + content + strings


def ids(one: bytearray) -> list[int]:
    """Of the types that a type refers to."""
    return [int(_WORD.unpack_from(one, at)[0]) for at in _ids_at(one)]


def name_offsets(one: bytearray) -> list[int]:
    """Of a type's own name, and those of its members, parameters or values."""
    return [int(_WORD.unpack_from(one, at)[0]) for at in _names_at(one)]


def _parts(raw: bytes) -> tuple[bytes, bytes]:
    magic, version, _, header, types_at, types, strings_at, strings = _HEADER.unpack_from(raw)
    if (magic, version) != (_MAGIC, 1) or len(raw) < header + strings_at + strings:
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


def _ids_at(one: bytearray) -> list[int]:
    kind = _kind(one)
    places = [8] if kind in _REFERRING else [12, 16] if kind == b.ARRAY else []
    item, has_types = _LISTS.get(kind, (0, False))
    return places + (list(range(16, len(one), item)) if has_types else [])


def _names_at(one: bytearray) -> list[int]:
    item, _ = _LISTS.get(_kind(one), (0, False))
    return [0, *(range(12, len(one), item) if item else ())]
