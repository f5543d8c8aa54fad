"""Reads this machine's TSC beside its monotonic clock, and what KVM adds to the TSC for the VM of a tap.

Arguments: the taps. Writes one JSON object: {"points": [{"ns", "tsc", "hz", "accuracy_us"}], "guest": {"vm", "offset",
"ratio", "fraction_bits"} or null}. Without an x86 CPU, or where memory may not be executed, there are no points.

Nothing in Python reads the TSC, so ten bytes of machine code do. The guest's part is in debugfs, where it is mounted
(arch/x86/kvm/debugfs.c).
"""

import ctypes
import glob
import json
import mmap
import os
import platform
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from netconsole_collector.names.vms import Vms

_RDTSC = b"\x0f\x31\x48\xc1\xe2\x20\x48\x09\xd0\xc3"
"""rdtsc; shl $32, %rdx; or %rdx, %rax; ret"""
_TRIES = 200
_APART_S = 0.05
"""Between the two readings that the frequency comes from. Two points that are far apart tell it better."""
_VCPUS = "/sys/kernel/debug/kvm/{}-*/vcpu*"
_MAX_OFFSET = 1 << 63

Json = Dict[str, Any]


def tsc_reader() -> Optional[Callable[[], int]]:
    """A function that reads the TSC. None where that is not possible."""
    if platform.machine() != "x86_64":
        return None
    try:
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return None
    code.write(_RDTSC)
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(address)
    read.memory = code  # type: ignore[attr-defined]
    return read


def reading(tsc: Callable[[], int]) -> Tuple[int, int, int]:
    """The clock in ns, the TSC at that moment, and how many ns the two can be apart: the best of several tries."""
    found = []
    for _ in range(_TRIES):
        before = time.clock_gettime(time.CLOCK_MONOTONIC)
        value = tsc()
        after = time.clock_gettime(time.CLOCK_MONOTONIC)
        first, last = int(before * 1e9), int(after * 1e9)
        found.append((last - first, first, value))
    width, first, value = min(found)
    return first + width // 2, value, max(1, (width + 1) // 2)


def points() -> List[Json]:
    """One point, or none."""
    tsc = tsc_reader()
    if tsc is None:
        return []
    first = reading(tsc)
    time.sleep(_APART_S)
    last = reading(tsc)
    if last[0] <= first[0] or last[1] <= first[1]:
        return []
    hz = (last[1] - first[1]) * 1e9 / (last[0] - first[0])
    return [{"ns": last[0], "tsc": last[1], "hz": hz, "accuracy_us": last[2] / 1000}]


def guest_of(taps: List[str], vcpus: str = _VCPUS, proc: str = "/proc") -> Optional[Json]:
    """What KVM adds for the VM of these taps. None when they are of several, or its CPUs have different offsets."""
    owners = Vms(proc).owners(taps)
    if len(owners) != 1:
        return None
    owner = owners[0]
    found = {_mapping(vcpu) for vcpu in glob.glob(vcpus.format(owner.pid))}
    if len(found) != 1 or None in found:
        return None
    offset, ratio, bits = found.pop()  # type: ignore[misc]
    return {"vm": owner.name, "offset": offset, "ratio": ratio, "fraction_bits": bits}


def _mapping(vcpu: str) -> Optional[Tuple[int, int, int]]:
    """Offset, ratio and its fraction's bits. The last two files are there only where the CPU can scale."""
    offset = _number(os.path.join(vcpu, "tsc-offset"))
    if offset is None or not -_MAX_OFFSET <= offset < _MAX_OFFSET:
        return None
    ratio = _number(os.path.join(vcpu, "tsc-scaling-ratio"))
    bits = _number(os.path.join(vcpu, "tsc-scaling-ratio-frac-bits"))
    return offset, ratio if ratio and bits else 0, bits if ratio and bits else 0


def _number(path: str) -> Optional[int]:
    try:
        with open(path) as file:
            return int(file.read(64))
    except (OSError, ValueError):
        return None


def main(arguments: List[str]) -> int:
    """Returns the exit status."""
    print(json.dumps({"points": points(), "guest": guest_of(arguments) if arguments else None}))
    sys.stdout.flush()
    return 0
