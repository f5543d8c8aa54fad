"""Reads ELF files of a kernel: their sections, notes and symbols."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# man 5 elf
_MAGIC = b"\x7fELF\2\1"
_SYMBOLS, _NOTE, _NO_BITS = 2, 7, 8  # SHT_SYMTAB, SHT_NOTE, SHT_NOBITS
CODE = 4
"""SHF_EXECINSTR, among a section's flags."""
_GLOBAL = 1  # STB_GLOBAL


class Section(NamedTuple):
    """Names are offsets into the section of names: see :meth:`Elf.name_of`."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class Symbol(NamedTuple):
    """``section`` is its number."""

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int


class Elf:
    """A file of 64 bits, little-endian. What it lacks or has wrong raises ValueError or struct.error."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        if data[: len(_MAGIC)] != _MAGIC:
            raise ValueError("not an ELF file of 64 bits")
        self.data = data
        (table,) = struct.unpack_from("<Q", data, 0x28)
        size, count, names = struct.unpack_from("<HHH", data, 0x3A)
        self.sections = [
            Section(*struct.unpack_from("<IIQQQQIIQQ", data, table + size * number)) for number in range(count)
        ]
        if names >= count:
            raise ValueError("no names of sections")
        self._names = self.content(self.sections[names])

    @classmethod
    def mapped(cls, path: Path) -> Elf:
        """Of a file that is not read as a whole: a kernel with debug information has 700 MB. Raises OSError too."""
        with path.open("rb") as file:
            return cls(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def section(self, name: str) -> bytes | None:
        """The content of the first section of this name; None if there is none, or it is kept in another file."""
        found = next((one for one in self.sections if self.name_of(one) == name), None)
        return None if found is None or found.type == _NO_BITS else self.content(found)

    def notes(self) -> bytes:
        """All of them, one behind the other."""
        return b"".join(self.content(one) for one in self.sections if one.type == _NOTE)

    def symbols(self) -> Iterator[Symbol]:
        for table in self.sections:
            if table.type != _SYMBOLS or table.link >= len(self.sections):
                continue
            names = self.content(self.sections[table.link])
            for name, *others in struct.iter_unpack("<IBBHQQ", self.content(table)):
                yield Symbol(_text(names, name), *others)

    def functions(self) -> Iterator[tuple[str, int]]:
        """Names and addresses of what is global code: T in the kernel's own list of symbols (/proc/kallsyms)."""
        for one in self.symbols():
            is_code = one.section < len(self.sections) and self.sections[one.section].flags & CODE
            if one.info >> 4 == _GLOBAL and is_code:
                yield one.name, one.value

    def name_of(self, section: Section) -> str:
        return _text(self._names, section.name)

    def content(self, section: Section) -> bytes:
        if section.offset + section.size > len(self.data):
            raise ValueError("cut off")
        return self.data[section.offset : section.offset + section.size]


def _text(strings: bytes, offset: int) -> str:
    return strings[offset : strings.index(b"\0", offset)].decode("ascii", "replace")
