"""Function names of kernel addresses, from /proc/kallsyms. They take about 2 MB; a dictionary would take 40 MB.

The addresses are in sorted arrays. The names are compressed in blocks, and a few blocks at a time are unpacked.
"""

import os
import time
import zlib
from array import array
from bisect import bisect_right
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

KALLSYMS = "/proc/kallsyms"

_PADDING = b"__pfx_"
"""Symbols of the padding before a function (CONFIG_CALL_PADDING). No code runs there, and they double the list."""
_BLOCK = 512
_MAX_KNOWN = 8192
_MAX_UNPACKED = 16
_REREAD_AFTER_S = 10.0
"""A module may have been loaded meanwhile. So kallsyms is read again for an unknown address, but only so often."""
_MODULES = "/sys/module"
_PAGE_BYTES = 4096
"""A module that was loaded meanwhile may begin on the next page behind another one (mm/execmem.c)."""
_MAX_FUNCTION_BYTES = 1 << 20
"""An address farther than this behind the last symbol of the kernel, or of a module, is not inside it."""


class _Run(NamedTuple):
    """The functions of the kernel, or of one module, sorted. ``blocks`` have their names, _BLOCK names in each."""

    first: int
    last: int
    module: str
    addresses: "array[int]"
    blocks: List[bytes]


class Symbols:
    """Reads kallsyms when the first address is asked for."""

    def __init__(self, path: str = KALLSYMS) -> None:
        self._path = path
        self._runs: List[_Run] = []
        self._read_at: Optional[float] = None
        self._modules = 0
        self._known: Dict[int, Tuple[str, int]] = {}
        self._unpacked: Dict[bytes, List[str]] = {}

    def function(self, address: int) -> str:
        """The function that contains an address. "0x…" when it is unknown, or kallsyms hides addresses."""
        return self._find(address)[0]

    def frame(self, address: int) -> str:
        """One line of a stack: function+0x12."""
        name, offset = self._find(address)
        return "{}+{:#x}".format(name, offset) if offset >= 0 else name

    def _find(self, address: int) -> Tuple[str, int]:
        """The function and the offset in it. The offset is -1 when the function is unknown."""
        known = self._known.get(address)
        if known is None:
            known, is_sure = self._search(address)
            if not is_sure and self._stale():
                self._read()
                known, _ = self._search(address)
                is_sure = True
            if known is None:
                return "{:#x}".format(address), -1
            if is_sure:
                if len(self._known) >= _MAX_KNOWN:
                    self._known.clear()
                self._known[address] = known
        return known

    def _stale(self) -> bool:
        is_old = self._read_at is None or time.monotonic() - self._read_at > _REREAD_AFTER_S
        return is_old or modules() != self._modules

    def _search(self, address: int) -> Tuple[Optional[Tuple[str, int]], bool]:
        """The function and the offset in it, and whether it is not in a module that may be new."""
        for run in self._runs:
            if run.first <= address < run.last + _MAX_FUNCTION_BYTES:
                index = bisect_right(run.addresses, address) - 1
                if run.module and address - run.addresses[index] >= _MAX_FUNCTION_BYTES:
                    continue
                name = self._names(run.blocks[index // _BLOCK])[index % _BLOCK]
                is_sure = not run.module or address // _PAGE_BYTES <= run.last // _PAGE_BYTES
                return (name, address - run.addresses[index]), is_sure
        return None, False

    def _names(self, block: bytes) -> List[str]:
        names = self._unpacked.get(block)
        if names is None:
            if len(self._unpacked) >= _MAX_UNPACKED:
                self._unpacked.clear()
            names = self._unpacked[block] = zlib.decompress(block).decode("utf-8", "backslashreplace").split("\n")
        return names

    def _read(self) -> None:
        """Reads kallsyms line by line. The kernel's own symbols come sorted; those of a module are sorted here."""
        self._read_at, self._modules = time.monotonic(), modules()
        self._runs, self._known, self._unpacked = [], {}, {}
        run = _RunBuilder("")
        try:
            with open(self._path, "rb") as file:
                for line in file:
                    words = line.split(None, 3)
                    if words[1] not in (b"t", b"T", b"w", b"W") or words[2].startswith(_PADDING):
                        continue
                    module = words[3].strip(b"[]\n\t ").decode("utf-8", "backslashreplace") if len(words) > 3 else ""
                    if module != run.module:
                        self._runs.extend(run.done())
                        run = _RunBuilder(module)
                    run.add(int(words[0], 16), words[2])
        except (OSError, ValueError, IndexError):
            pass  # what was read before the wrong line still helps
        self._runs.extend(run.done())
        self._runs.sort(key=lambda one: one.first, reverse=True)  # modules lie above the kernel


def modules() -> int:
    """How many modules this kernel has, roughly: it changes with each that is loaded or removed."""
    try:
        return os.stat(_MODULES).st_nlink
    except OSError:
        return 0


class _RunBuilder:
    """Collects the symbols of one run. Those of the kernel are packed as they come: a list of all would be too big."""

    def __init__(self, module: str) -> None:
        self.module = module
        self._addresses = array("Q")
        self._blocks: List[bytes] = []
        self._pending: List[Tuple[int, bytes]] = []

    def add(self, address: int, name: bytes) -> None:
        if not address:  # kernel.kptr_restrict
            return
        self._pending.append((address, name))
        if not self.module and len(self._pending) == _BLOCK:
            self._pack(self._pending)
            self._pending = []

    def _pack(self, symbols: Iterable[Tuple[int, bytes]]) -> None:
        ordered = sorted(symbols)
        for start in range(0, len(ordered), _BLOCK):
            block = ordered[start : start + _BLOCK]
            self._addresses.extend(address for address, _ in block)
            self._blocks.append(zlib.compress(b"\n".join(name for _, name in block), 1))

    def done(self) -> List[_Run]:
        self._pack(self._pending)
        if not self._addresses:
            return []
        return [_Run(self._addresses[0], self._addresses[-1], self.module, self._addresses, self._blocks)]
