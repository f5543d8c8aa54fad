"""Reads what `netconsole types make` has to know of a kernel's ELF files: sections, notes and symbols.

A kernel with debug information has 700 MB: the file is mapped and not read.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# man 5 elf
_MAGIC = b"\x7fELF\2\1"
_SYMBOLS, _NOTE, _NO_BITS = 2, 7, 8  # SHT_SYMTAB, SHT_NOTE, SHT_NOBITS
_CODE = 4  # SHF_EXECINSTR
_GLOBAL = 1  # STB_GLOBAL


class _Section(NamedTuple):
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


class Elf:
    """A file of 64 bits, little-endian. What it lacks or has wrong raises ValueError or struct.error."""

    def __init__(self, path: Path) -> None:
        """Raises OSError too."""
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ValueError("not an ELF file of 64 bits")
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        (table,) = struct.unpack_from("<Q", self.data, 0x28)
        size, count, names = struct.unpack_from("<HHH", self.data, 0x3A)
        self._sections = [
            _Section(*struct.unpack_from("<IIQQQQIIQQ", self.data, table + size * number)) for number in range(count)
        ]
        if names >= count:
            raise ValueError("no names of sections")
        self._names = self._content(self._sections[names])

    def section(self, name: str) -> bytes | None:
        """The content of the first section of this name; None if there is none, or it is kept in another file."""
        found = next((one for one in self._sections if _text(self._names, one.name) == name.encode()), None)
        return None if found is None or found.type == _NO_BITS else self._content(found)

    def notes(self) -> bytes:
        """All of them, one behind the other."""
        return b"".join(self._content(one) for one in self._sections if one.type == _NOTE)

    def functions(self) -> Iterator[tuple[str, int]]:
        """Names and addresses of what is global code: T in the kernel's own list of symbols (/proc/kallsyms)."""
        for table in self._sections:
            if table.type != _SYMBOLS or table.link >= len(self._sections):
                continue
            names = self._content(self._sections[table.link])
            for name, info, _, section, value, _ in struct.iter_unpack("<IBBHQQ", self._content(table)):
                is_code = section < len(self._sections) and self._sections[section].flags & _CODE
                if info >> 4 == _GLOBAL and is_code:
                    yield _text(names, name).decode("ascii", "replace"), value

    def _content(self, section: _Section) -> bytes:
        if section.offset + section.size > len(self.data):
            raise ValueError("cut off")
        return self.data[section.offset : section.offset + section.size]


def _text(strings: bytes, offset: int) -> bytes:
    return strings[offset : strings.index(b"\0", offset)]
