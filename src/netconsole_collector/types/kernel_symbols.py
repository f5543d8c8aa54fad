"""A digest of the kernel's symbols: it tells two builds of a kernel apart where the kernel has no BTF.

Of each global function in the kernel's text it has the name, and how far it is from the begin of the text: where that
lies in memory is another place at each boot. What the kernel's list of symbols leaves out on some versions is not used
(scripts/kallsyms.c, scripts/mksysmap).
"""

import re
from typing import Iterable, Tuple

from netconsole_collector.types.sha256 import sha256

_SYMBOLS = "/proc/kallsyms"
_FIRST, _LAST = "_stext", "_etext"
_NAME = (
    r"(?!__efistub_|__pi_|__kvm_nvhe_|__cfi_|__crc_|__kstrtab|__ksymtab|__UNIQUE_ID_)"
    r"[A-Za-z_]\w*(?<!_from_arm)(?<!_from_thumb)(?<!_veneer)"
)
_USED = re.compile(_NAME)
_LINE = re.compile(r"^([0-9a-f]+) T ({})$".format(_NAME), re.ASCII | re.MULTILINE)
"""A symbol of a module, or of a BPF program, has its owner as a fourth word."""


def digest(symbols: Iterable[Tuple[str, int]]) -> str:
    """Of global functions and their addresses; empty if these do not tell, as where the addresses are hidden."""
    return _digest((name, address) for name, address in symbols if _USED.fullmatch(name))


def here(path: str = _SYMBOLS) -> str:
    """Of the running kernel."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return _digest((name, int(address, 16)) for address, name in _LINE.findall(file.read()))
    except OSError:
        return ""


def _digest(symbols: Iterable[Tuple[str, int]]) -> str:
    known = [(address, name) for name, address in symbols]
    first = min((address for address, name in known if name == _FIRST), default=0)
    last = max((address for address, name in known if name == _LAST), default=0)
    inside = sorted(one for one in known if first <= one[0] < last)
    text = "\n".join(["%x %s" % (address - first, name) for address, name in inside])
    return sha256(text.encode()).hexdigest() if inside else ""
