"""Makes BTF by hand, to test its reader with types that no kernel here has."""

from __future__ import annotations

import struct
from pathlib import Path

MAGIC = 0xEB9F
SIGNED = 1


class BtfBuilder:
    """Types are numbered from 1, or from the end of the base that a module's BTF is split from."""

    def __init__(self, base: BtfBuilder | None = None) -> None:
        self.types = b""
        self.strings = b"\0" if base is None else b""
        self.count = 0
        self._first = 1 if base is None else base.next_id
        self._base_strings = 0 if base is None else len(base.strings)

    @property
    def next_id(self) -> int:
        return self._first + self.count

    def name(self, text: str) -> int:
        """Offset of a string; "" is 0."""
        if not text:
            return 0
        offset = self._base_strings + len(self.strings)
        self.strings += text.encode() + b"\0"
        return offset

    def add(self, kind: int, name: str, size: int, items: bytes = b"", count: int = 0, flag: bool = False) -> int:
        """One type; returns its id."""
        info = kind << 24 | count | (1 << 31 if flag else 0)
        self.types += struct.pack("=III", self.name(name), info, size) + items
        self.count += 1
        return self.next_id - 1

    def integer(self, name: str, size: int, bits: int | None = None, offset: int = 0) -> int:
        encoding = struct.pack("=I", offset << 16 | (size * 8 if bits is None else bits))
        return self.add(1, name, size, encoding)

    def pointer(self, target: int) -> int:
        return self.add(2, "", target)

    def array(self, element: int, count: int) -> int:
        return self.add(3, "", 0, struct.pack("=III", element, element, count))

    def record(self, name: str, size: int, members: list[tuple[str, int, int]], union: bool = False) -> int:
        """Members are (name, type, bit offset)."""
        items = b"".join(struct.pack("=III", self.name(n), t, at) for n, t, at in members)
        return self.add(5 if union else 4, name, size, items, len(members))

    def bit_record(self, name: str, size: int, members: list[tuple[str, int, int, int]]) -> int:
        """Members are (name, type, bit offset, width), in the newer encoding."""
        items = b"".join(struct.pack("=III", self.name(n), t, bits << 24 | at) for n, t, at, bits in members)
        return self.add(4, name, size, items, len(members), flag=True)

    def enum(self, name: str, values: list[tuple[str, int]], signed: bool = False) -> int:
        items = b"".join(struct.pack("=Ii" if signed else "=II", self.name(n), v) for n, v in values)
        return self.add(6, name, 4, items, len(values), flag=signed)

    def enum64(self, name: str, values: list[tuple[str, int]]) -> int:
        items = b"".join(struct.pack("=III", self.name(n), v & 0xFFFFFFFF, v >> 32 & 0xFFFFFFFF) for n, v in values)
        return self.add(19, name, 8, items, len(values))

    def forward(self, name: str) -> int:
        return self.add(7, name, 0)

    def typedef(self, name: str, target: int) -> int:
        return self.add(8, name, target)

    def qualifier(self, kind: int, target: int) -> int:
        return self.add(kind, "", target)

    def prototype(self, returns: int, parameters: list[int]) -> int:
        items = b"".join(struct.pack("=II", 0, parameter) for parameter in parameters)
        return self.add(13, "", returns, items, len(parameters))

    def function(self, name: str, prototype: int) -> int:
        return self.add(12, name, prototype)

    def write(self, path: Path) -> str:
        """The file; returns its path as the reader takes it."""
        header = struct.pack("=HBBIIIII", MAGIC, 1, 0, 24, 0, len(self.types), len(self.types), len(self.strings))
        path.write_bytes(header + self.types + self.strings)
        return str(path)
