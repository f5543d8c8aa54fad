"""Which CPUs this machine can have: values of per-CPU maps and arrays by CPU number depend on it."""

import os
from typing import List

ONLINE = "/sys/devices/system/cpu/online"
MAX_CPUS = 8192
"""The most that Linux has (NR_CPUS of its configurations)."""
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


def numbers(text: str) -> List[int]:
    """The CPUs of a list such as ``0-3,8``; empty for what is none."""
    try:
        ranges = [part.split("-") for part in text.strip().split(",")]
        ends = [(int(one[0]), int(one[-1])) for one in ranges]
    except ValueError:
        return []
    if any(last >= MAX_CPUS for _, last in ends):
        return []
    return sorted({cpu for first, last in ends for cpu in range(max(0, first), last + 1)})
