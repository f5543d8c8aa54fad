"""Reads BTF, the kernel's description of its own types, of vmlinux and of modules.

Format: Documentation/bpf/btf.rst. The ("split") BTF of a module continues the numbers of vmlinux's types and strings,
and so does that of any other module. Here the ids of each module are moved behind those that were read before.
"""

import os
import re
import struct
from array import array
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

VMLINUX = "/sys/kernel/btf/vmlinux"
SEAL = b"netconsole types "
"""A file that begins so has a line of its own before its BTF (copied_types.py)."""
_DIRECTORY = "/sys/kernel/btf"

(
    INT,
    PTR,
    ARRAY,
    STRUCT,
    UNION,
    ENUM,
    FWD,
    TYPEDEF,
    VOLATILE,
    CONST,
    RESTRICT,
    FUNC,
    FUNC_PROTO,
    VAR,
    DATASEC,
    FLOAT,
) = range(1, 17)
DECL_TAG, TYPE_TAG, ENUM64 = 17, 18, 19
QUALIFIERS = (VOLATILE, CONST, RESTRICT, TYPE_TAG)

_NAME = re.compile(rb"[\w .$]*")
"""What names in a kernel's BTF consist of: C identifiers, the words of "long unsigned int", sections such as ".bss".
They become C, and the file may be that of a hostile host: nothing else may get there."""
_SHOWN_BYTES = 40
_MAX_NESTED = 256
"""Typedefs and qualifiers around a type: far more than any kernel has."""
_MAGIC = 0xEB9F
_HEADER = struct.Struct("=HBBIIIII")
_TYPE = struct.Struct("=III")
_EXTRA_BYTES = {INT: 4, ARRAY: 12, VAR: 4, DECL_TAG: 4}
_BYTES_PER_ITEM = {STRUCT: 12, UNION: 12, ENUM: 8, FUNC_PROTO: 8, DATASEC: 12, ENUM64: 12}


class BtfError(ValueError):
    """The file is not BTF, or has a type that this reader does not know. The message names the file."""


class Member(NamedTuple):
    """One member of a struct or union. The ``name`` of an anonymous one is ""."""

    name: str
    type: int
    bit_offset: int
    bits: int
    """Width of a bit-field; 0 for other members."""


class _BtfFile(NamedTuple):
    """The types and strings of one file, and their place among all ids."""

    types: bytes
    strings: bytes
    first_id: int
    id_shift: int
    """To be added to the ids of this file that are not vmlinux's."""


class Btf:
    """The types of a kernel. Type id 0 is void."""

    def __init__(self, path: str = VMLINUX, modules: Sequence[str] = ()) -> None:
        """``modules`` are paths of split BTF on top of ``path``. Raises OSError and BtfError."""
        self._parts: List[_BtfFile] = []
        self._offsets = array("I", [0])
        self._kinds = bytearray(1)
        self._base_types = 1
        self._base_strings = 0
        self._by_name: List[Dict[int, List[int]]] = []
        self._enums: List[int] = []
        self._string_offsets: List[Dict[bytes, int]] = []
        self._alignments: Dict[int, int] = {}
        self._load(path)
        self._base_types = len(self._offsets)
        self._base_strings = len(self._parts[0].strings)
        for module in modules:
            self._load(module)

    def _load(self, path: str) -> None:
        with open(path, "rb") as file:
            raw = file.read()
        if raw.startswith(SEAL):
            raw = raw.partition(b"\n")[2]
        if len(raw) < _HEADER.size:
            raise BtfError("{}: too short for BTF".format(path))
        magic, version, _, header_bytes, type_at, type_bytes, string_at, string_bytes = _HEADER.unpack_from(raw)
        if magic != _MAGIC or version != 1:
            raise BtfError("{}: not BTF version 1 in this machine's byte order".format(path))
        types = raw[header_bytes + type_at : header_bytes + type_at + type_bytes]
        strings = raw[header_bytes + string_at : header_bytes + string_at + string_bytes]
        first_id = len(self._offsets)
        shift = first_id - self._base_types if self._parts else 0
        self._parts.append(_BtfFile(types, strings, first_id, shift))
        by_name: Dict[int, List[int]] = {}
        offset, end, unpack = 0, len(types), _TYPE.unpack_from
        while offset < end:
            name, info, _ = unpack(types, offset)
            kind = info >> 24 & 31
            identifier = len(self._offsets)
            self._offsets.append(offset)
            self._kinds.append(kind)
            offset += 12
            if kind in _BYTES_PER_ITEM:
                offset += (info & 0xFFFF) * _BYTES_PER_ITEM[kind]
                if kind in (ENUM, ENUM64):
                    self._enums.append(identifier)
            elif kind in _EXTRA_BYTES:
                offset += _EXTRA_BYTES[kind]
            elif not PTR <= kind <= TYPE_TAG:
                raise BtfError("{}: type of unknown kind {} (newer than this reader)".format(path, kind))
            if name:
                by_name.setdefault(name, []).append(identifier)
        self._by_name.append(by_name)

    # ---- one type ----

    def _raw(self, identifier: int) -> Tuple[int, int, int, int, int]:
        """File number, offset after the common fields, name offset, info word, size or type."""
        number = len(self._parts) - 1
        while identifier < self._parts[number].first_id:
            number -= 1
        offset = self._offsets[identifier]
        name, info, size = _TYPE.unpack_from(self._parts[number].types, offset)
        return number, offset + 12, name, info, size

    def _string(self, part: int, offset: int) -> str:
        strings = self._parts[0].strings
        if part and offset >= self._base_strings:
            strings, offset = self._parts[part].strings, offset - self._base_strings
        name = strings[offset : strings.index(b"\0", offset)]
        if not _NAME.fullmatch(name):
            raise BtfError("a type's name is not one of C: {!r}".format(name[:_SHOWN_BYTES]))
        return name.decode("ascii")

    def _id(self, part: int, identifier: int) -> int:
        return identifier + self._parts[part].id_shift if identifier >= self._base_types else identifier

    def kind(self, identifier: int) -> int:
        return self._kinds[identifier]

    def name(self, identifier: int) -> str:
        part, _, name, _, _ = self._raw(identifier)
        return self._string(part, name) if name else ""

    def target(self, identifier: int) -> int:
        """What a pointer, typedef, qualifier or function refers to."""
        part, _, _, _, reference = self._raw(identifier)
        return self._id(part, reference)

    def is_union_forward(self, identifier: int) -> bool:
        return bool(self._raw(identifier)[3] >> 31)

    def strip(self, identifier: int, typedefs: bool = True) -> int:
        """The type without qualifiers, and without typedefs too."""
        for _ in range(_MAX_NESTED):
            kind = self.kind(identifier)
            if not identifier or kind not in QUALIFIERS and not (typedefs and kind == TYPEDEF):
                return identifier
            identifier = self.target(identifier)
        raise BtfError("its types refer to each other in a circle")

    def element(self, identifier: int) -> Tuple[int, int]:
        """Of an array: the type of its elements, and their number."""
        part, at, _, _, _ = self._raw(identifier)
        element, _, count = _TYPE.unpack_from(self._parts[part].types, at)
        return self._id(part, element), count

    def members(self, identifier: int) -> List[Member]:
        """Of a struct or union, in both encodings of bit-fields (kind_flag, and the older one in the integer)."""
        part, at, _, info, _ = self._raw(identifier)
        types = self._parts[part].types
        result = []
        for number in range(info & 0xFFFF):
            name, raw_type, place = _TYPE.unpack_from(types, at + 12 * number)
            member_type, bits = self._id(part, raw_type), 0
            if info >> 31:
                place, bits = place & 0xFFFFFF, place >> 24
            else:
                place, bits = self._old_bit_field(member_type, place)
            result.append(Member(self._string(part, name) if name else "", member_type, place, bits))
        return result

    def _old_bit_field(self, member_type: int, place: int) -> Tuple[int, int]:
        base = self.strip(member_type)
        if self.kind(base) != INT:
            return place, 0
        part, at, _, _, size = self._raw(base)
        encoding = struct.unpack_from("=I", self._parts[part].types, at)[0]
        bits = encoding & 0xFF
        return (place + (encoding >> 16 & 0xFF), bits) if bits != size * 8 else (place, 0)

    def enumerators(self, identifier: int) -> List[Tuple[str, int]]:
        """Of an enum: names and values."""
        part, at, _, info, _ = self._raw(identifier)
        types, signed = self._parts[part].types, info >> 31
        result = []
        for number in range(info & 0xFFFF):
            if self.kind(identifier) == ENUM:
                name, value = struct.unpack_from("=Ii" if signed else "=II", types, at + 8 * number)
            else:
                name, low, high = _TYPE.unpack_from(types, at + 12 * number)
                value = (high << 32 | low) - ((1 << 64) if signed and high >> 31 else 0)
            result.append((self._string(part, name), value))
        return result

    def parameters(self, identifier: int) -> Optional[int]:
        """How many parameters a function, function pointer or prototype has; None for other types."""
        identifier = self.strip(identifier)
        while self.kind(identifier) in (FUNC, PTR):
            identifier = self.strip(self.target(identifier))
        return self._raw(identifier)[3] & 0xFFFF if self.kind(identifier) == FUNC_PROTO else None

    def parameter_types(self, function: int) -> List[int]:
        """Of a function: the types of its parameters."""
        part, at, _, info, _ = self._raw(self.strip(self.target(function)))
        pairs = [struct.unpack_from("=II", self._parts[part].types, at + 8 * number) for number in range(info & 0xFFFF)]
        return [self._id(part, parameter_type) for _, parameter_type in pairs]

    def size(self, identifier: int) -> int:
        """Bytes. 0 for void, functions, and types that are only declared."""
        identifier = self.strip(identifier)
        kind = self.kind(identifier)
        if kind in (INT, STRUCT, UNION, ENUM, ENUM64, FLOAT):
            return self._raw(identifier)[4]
        if kind == PTR:
            return struct.calcsize("P")
        if kind == ARRAY:
            element, count = self.element(identifier)
            return count * self.size(element)
        return 0

    def alignment(self, identifier: int) -> int:
        """Bytes. BTF does not have it: it is the strictest one that the size and the offsets of the members allow."""
        identifier = self.strip(identifier)
        known = self._alignments.get(identifier)
        if known is not None:
            return known
        kind = self.kind(identifier)
        if kind == ARRAY:
            result = self.alignment(self.element(identifier)[0])
        elif kind in (STRUCT, UNION):
            result = self._record_alignment(identifier)
        else:
            result = max(1, min(8, self.size(identifier)))
        self._alignments[identifier] = result
        return result

    def _record_alignment(self, identifier: int) -> int:
        result, size = 1, self.size(identifier)
        for member in self.members(identifier):
            wanted = self.size(member.type) if member.bits else self.alignment(member.type)
            while not member.bits and wanted > 1 and member.bit_offset // 8 % wanted:
                wanted //= 2  # a packed member
            result = max(result, min(wanted, 8) if member.bits else wanted)
        while result > 1 and size % result:
            result //= 2
        return result

    # ---- by name ----

    def named(self, name: str, kinds: Sequence[int]) -> List[int]:
        """Ids of the types of these kinds with this name. Those of vmlinux come first."""
        found: List[int] = []
        for part in range(len(self._parts)):
            for offset in self._offsets_of(name, part):
                found.extend(i for i in self._by_name[part].get(offset, ()) if self.kind(i) in kinds)
        return found

    def _offsets_of(self, name: str, part: int) -> Iterator[int]:
        """Offsets of this name in the strings that the types of a file may use: its own, and vmlinux's."""
        for number in sorted({0, part}):
            while len(self._string_offsets) <= number:
                self._string_offsets.append(self._scan_strings(len(self._string_offsets)))
            offset = self._string_offsets[number].get(name.encode())
            if offset is not None:
                yield offset

    def _scan_strings(self, part: int) -> Dict[bytes, int]:
        offsets: Dict[bytes, int] = {}
        offset = self._base_strings if part else 0
        for name in self._parts[part].strings.split(b"\0"):
            offsets[name] = offset
            offset += len(name) + 1
        return offsets

    def record(self, name: str) -> Optional[int]:
        """The struct or union of this name; None when there is none."""
        return next(iter(self.named(name, (STRUCT, UNION))), None)

    def vmlinux_id(self, name: str, kind: int) -> int:
        """The kernel's own id of a type of vmlinux, for attach_btf_id; 0 when there is none."""
        return next((i for i in self.named(name, (kind,)) if i < self._base_types), 0)

    def own_id(self, identifier: int) -> Tuple[int, int]:
        """The kernel's own id of a type, and whose it is: 0 is vmlinux, n the n-th of the modules."""
        number = len(self._parts) - 1
        while identifier < self._parts[number].first_id:
            number -= 1
        return identifier - self._parts[number].id_shift, number

    def enums_with(self, names: Set[str]) -> List[int]:
        """All enums, also anonymous ones, that have one of these enumerators."""
        wanted = [{o for n in names for o in self._offsets_of(n, part)} for part in range(len(self._parts))]
        found = []
        for identifier in self._enums:
            part, at, _, info, _ = self._raw(identifier)
            count = info & 0xFFFF
            layout = "I4x" if self.kind(identifier) == ENUM else "I8x"
            offsets = struct.unpack_from("=" + layout * count, self._parts[part].types, at)
            if not wanted[part].isdisjoint(offsets):
                found.append(identifier)
        return found


def module_paths(names: Sequence[str], directory: str = _DIRECTORY) -> List[str]:
    """Paths of the split BTF (5.11) of those of these modules that are loaded. A built-in module is in vmlinux."""
    paths = [os.path.join(directory, name.replace("-", "_")) for name in names if name != "vmlinux"]
    return [path for path in paths if os.path.exists(path)]
