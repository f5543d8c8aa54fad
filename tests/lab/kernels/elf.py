"""Reads the machine code of a kernel's modules: where it calls a function or can be traced."""

from __future__ import annotations

import functools
import struct
from typing import NamedTuple

from netconsole.probes import type_maker

# man 5 elf, and the x86-64 psABI
_RELOCATIONS = 4  # SHT_RELA
_FUNCTION = 2  # STT_FUNC
_CALL = 4  # R_X86_64_PLT32: calls, and jumps at the end of a function


class Place(NamedTuple):
    """An instruction, by its function and its distance in bytes from the function's begin."""

    function: str
    offset: int


class _Relocation(NamedTuple):
    at: int
    type: int
    symbol: type_maker.Symbol
    addend: int


class Elf(type_maker.Elf):
    """Raises ValueError when it is none."""

    def types(self) -> bytes:
        """BTF. Raises KeyError when there is none."""
        found = self.section(".BTF")
        if found is None:
            raise KeyError("no section .BTF")
        return found

    def calls(self, callee: str) -> list[Place]:
        """Where a module's functions call one of another section; `static_call(x)` is a call of `__SCT__x`."""
        found = []
        for section in self.sections:
            if section.type == _RELOCATIONS and self.sections[section.info].flags & type_maker.CODE:
                for one in self._relocations(section):
                    if one.type == _CALL and one.symbol.name == callee:
                        found.append(self._place(section.info, one.at))
        return found

    def traces(self, tracepoint: str) -> list[Place]:
        """Where the kernel patches in a jump when this tracepoint is on (struct jump_entry: code, target, key)."""
        (table,) = [one for one in self.sections if self.name_of(one) == ".rela__jump_table"]
        entries = {one.at: one for one in self._relocations(table)}
        codes = [entries[at - 8] for at, key in entries.items() if key.symbol.name == f"__tracepoint_{tracepoint}"]
        return [self._place(code.symbol.section, code.symbol.value + code.addend) for code in codes]

    @functools.cached_property
    def _all_symbols(self) -> list[type_maker.Symbol]:
        return list(self.symbols())

    def _relocations(self, section: type_maker.Section) -> list[_Relocation]:
        entries = struct.iter_unpack("<QQq", self.content(section))
        return [
            _Relocation(at, info & 0xFFFFFFFF, self._all_symbols[info >> 32], addend) for at, info, addend in entries
        ]

    def _place(self, section: int, at: int) -> Place:
        for one in self._all_symbols:
            if one.info & 0xF == _FUNCTION and one.section == section and one.value <= at < one.value + one.size:
                return Place(one.name, at - one.value)
        raise ValueError(f"no function at {at:#x} of section {section}")
