"""Which kernel modules this kernel has: loaded, or built in."""

import functools
import os
from typing import FrozenSet, List, Tuple

_KALLSYMS = "/proc/kallsyms"
_MAX_FUNCTION_BYTES = 1 << 20


def is_loaded(name: str) -> bool:
    """Also true for a built-in module. Without parameters such a module has no directory in sysfs."""
    return os.path.exists("/sys/module/{}".format(name)) or name in _built_in()


def text_of(name: str, kallsyms: str = _KALLSYMS) -> Tuple[int, int]:
    """Where the functions of a loaded module begin, and where they end: before the next function of another one.

    Raises ValueError when they cannot be known: the message says why.
    """
    starts: List[int] = []
    others: List[int] = []
    ours = "[{}]".format(name.replace("-", "_")).encode()
    with open(kallsyms, "rb") as file:
        for line in file:
            if not line.endswith(b"]\n"):
                continue
            words = line.split()
            if words[1] in (b"t", b"T"):
                (starts if words[3] == ours else others).append(int(words[0], 16))
    if not starts:
        raise ValueError("{} is built into this kernel: its functions cannot be told from others".format(name))
    if not any(starts):
        raise ValueError("kernel.kptr_restrict hides where the functions of {} are".format(name))
    last = max(starts)
    return min(starts), min([one for one in others if one > last] + [last + _MAX_FUNCTION_BYTES])


@functools.lru_cache(maxsize=None)
def _built_in() -> FrozenSet[str]:
    """Names from modules.builtin, which has one path per line. Empty when the kernel's files are not installed."""
    try:
        with open("/lib/modules/{}/modules.builtin".format(os.uname().release)) as file:
            return frozenset(os.path.basename(line).split(".")[0].replace("-", "_") for line in file)
    except OSError:
        return frozenset()
