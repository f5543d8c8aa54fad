"""Reads ELF files of a kernel: their sections, and where a module's machine code calls a function or can be traced."""

from __future__ import annotations

import functools
import struct
from typing import NamedTuple

# man 5 elf, and the x86-64 psABI
_SYMBOLS, _RELOCATIONS = 2, 4  # SHT_SYMTAB, SHT_RELA
_CODE, _FUNCTION = 4, 2  # SHF_EXECINSTR, STT_FUNC
_CALL = 4  # R_X86_64_PLT32: calls, and jumps at the end of a function


class Place(NamedTuple):
    """An instruction, by its function and its distance in bytes from the function's begin."""

    function: str
    offset: int


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


class _Symbol(NamedTuple):
    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


class _Relocation(NamedTuple):
    at: int
    type: int
    symbol: _Symbol
    addend: int


class Elf:
    """A 64-bit little-endian file. Raises ValueError when it is none."""

    def __init__(self, data: bytes) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit little-endian ELF file")
        self._data = data
        (table,) = struct.unpack_from("<Q", data, 0x28)
        entry_size, count, names = struct.unpack_from("<HHH", data, 0x3A)
        headers = (struct.unpack_from("<IIQQQQIIQQ", data, table + number * entry_size) for number in range(count))
        self._sections = [_Section(*header) for header in headers]
        self._names = self._sections[names]

    def section(self, wanted: str) -> bytes:
        """A section's bytes by name. Raises KeyError when there is none."""
        return self._bytes(self._named(wanted))

    def calls(self, callee: str) -> list[Place]:
        """Where a module's functions call one of another section; `static_call(x)` is a call of `__SCT__x`."""
        found = []
        for section in self._sections:
            if section.type == _RELOCATIONS and self._sections[section.info].flags & _CODE:
                for one in self._relocations(section):
                    if one.type == _CALL and self._name(one.symbol) == callee:
                        found.append(self._place(section.info, one.at))
        return found

    def traces(self, tracepoint: str) -> list[Place]:
        """Where the kernel patches in a jump when this tracepoint is on (struct jump_entry: code, target, key)."""
        entries = {one.at: one for one in self._relocations(self._named(".rela__jump_table"))}
        codes = [
            entries[at - 8] for at, key in entries.items() if self._name(key.symbol) == f"__tracepoint_{tracepoint}"
        ]
        return [self._place(code.symbol.section, code.symbol.value + code.addend) for code in codes]

    @functools.cached_property
    def _symbols(self) -> list[_Symbol]:
        (table,) = [section for section in self._sections if section.type == _SYMBOLS]
        return [_Symbol(*entry) for entry in struct.iter_unpack("<IBBHQQ", self._bytes(table))]

    @functools.cached_property
    def _strings(self) -> _Section:
        (table,) = [section for section in self._sections if section.type == _SYMBOLS]
        return self._sections[table.link]

    def _relocations(self, section: _Section) -> list[_Relocation]:
        entries = struct.iter_unpack("<QQq", self._bytes(section))
        return [_Relocation(at, info & 0xFFFFFFFF, self._symbols[info >> 32], addend) for at, info, addend in entries]

    def _place(self, section: int, at: int) -> Place:
        for one in self._symbols:
            if one.info & 0xF == _FUNCTION and one.section == section and one.value <= at < one.value + one.size:
                return Place(self._name(one), at - one.value)
        raise ValueError(f"no function at {at:#x} of section {section}")

    def _named(self, wanted: str) -> _Section:
        for section in self._sections:
            if self._text(self._names, section.name) == wanted:
                return section
        raise KeyError(f"no section {wanted}")

    def _name(self, symbol: _Symbol) -> str:
        return self._text(self._strings, symbol.name)

    def _text(self, strings: _Section, at: int) -> str:
        start = strings.offset + at
        return self._data[start : self._data.index(b"\0", start)].decode()

    def _bytes(self, section: _Section) -> bytes:
        return self._data[section.offset : section.offset + section.size]
