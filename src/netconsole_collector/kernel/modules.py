"""Which kernel modules this kernel has: loaded, or built in."""

import functools
import os
from typing import FrozenSet


def is_loaded(name: str) -> bool:
    """Also true for a built-in module. Without parameters such a module has no directory in sysfs."""
    return os.path.exists("/sys/module/{}".format(name)) or name in _built_in()


@functools.lru_cache(maxsize=None)
def _built_in() -> FrozenSet[str]:
    """Names from modules.builtin, which has one path per line. Empty when the kernel's files are not installed."""
    try:
        with open("/lib/modules/{}/modules.builtin".format(os.uname().release)) as file:
            return frozenset(os.path.basename(line).split(".")[0].replace("-", "_") for line in file)
    except OSError:
        return frozenset()
