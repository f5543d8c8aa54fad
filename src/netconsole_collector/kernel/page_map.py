"""Where x86-64 keeps its map of all memory and its array of struct page: two variables whose place differs by boot."""

from typing import Tuple

_KALLSYMS = "/proc/kallsyms"
_VARIABLES = (b"page_offset_base", b"vmemmap_base")


def addresses(kallsyms: str = _KALLSYMS) -> Tuple[int, int]:
    """Of page_offset_base and vmemmap_base (arch/x86/mm/kaslr.c).

    Zeros: another machine, a kernel that does not list variables (CONFIG_KALLSYMS_ALL), or one that hides addresses.
    """
    found = {}
    try:
        with open(kallsyms, "rb") as file:
            for line in file:
                if line.endswith(b"_base\n"):
                    address, _, name = line.split()[:3]
                    if name in _VARIABLES:
                        found[name] = int(address, 16)
    except OSError:
        pass
    first, second = (found.get(name, 0) for name in _VARIABLES)
    return (first, second) if first and second else (0, 0)
