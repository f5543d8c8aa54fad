"""Which kernel modules are here: loaded, or part of the kernel itself."""

import functools
import os
from typing import FrozenSet


def is_loaded(name: str) -> bool:
    """Also true of one that is built in: without parameters such a module has no directory in sysfs."""
    return os.path.exists("/sys/module/{}".format(name)) or name in _built_in()


@functools.lru_cache(maxsize=None)
def _built_in() -> FrozenSet[str]:
    """Names out of modules.builtin, a path a line; empty where the kernel's files are not installed."""
    try:
        with open("/lib/modules/{}/modules.builtin".format(os.uname().release)) as file:
            return frozenset(os.path.basename(line).split(".")[0].replace("-", "_") for line in file)
    except OSError:
        return frozenset()
