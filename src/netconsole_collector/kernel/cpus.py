"""Which CPUs this machine can have: values of per-CPU maps and arrays by CPU number depend on it."""

import os
from typing import List

_POSSIBLE = "/sys/devices/system/cpu/possible"


def possible_cpus() -> List[int]:
    """Numbers of the CPUs that could ever appear (not only those that are online).

    A per-CPU value has a slot for each, in this order. On some machines numbers are left out between them.
    """
    try:
        with open(_POSSIBLE) as file:
            ranges = [part.split("-") for part in file.read().strip().split(",")]
    except OSError:
        return list(range(os.cpu_count() or 1))
    return [cpu for ends in ranges for cpu in range(int(ends[0]), int(ends[-1]) + 1)]


def nr_cpu_ids() -> int:
    """One more than the highest number: the length of an array by CPU number, as the kernel calls it."""
    return max(possible_cpus()) + 1
