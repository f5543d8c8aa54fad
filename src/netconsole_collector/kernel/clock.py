"""The two clocks of a frame."""

import time


def mono_ns() -> int:
    """CLOCK_MONOTONIC: what the kernel's bpf_ktime_get_ns() returns."""
    return int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e9)


def wall_ns() -> int:
    return int(time.time() * 1e9)
