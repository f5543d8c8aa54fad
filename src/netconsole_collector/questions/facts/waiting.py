"""What keeps threads of a VM from their CPU: how long they waited for it, and the limit of their control group."""

from typing import List, Optional, Tuple

from netconsole_collector.questions.facts.reading import Facts

_CGROUPS = "/sys/fs/cgroup"
_MAX_DEPTH = 12
_STEAL = 7
"""Of the times in the first line of /proc/stat (proc(5))."""


def waited_pct(facts: Facts, where: str) -> Optional[float]:
    """The share of the time that a thread wanted to run in which it waited for a CPU, since it began.

    Source: ``where``/schedstat: nanoseconds on a CPU, nanoseconds waiting. None where the kernel does not count it.
    """
    try:
        ran, waited = (int(text) for text in facts.text(f"{where}/schedstat").split()[:2])
    except (OSError, ValueError):
        return None
    return round(100 * waited / (ran + waited), 2) if ran + waited > 0 else None


def cpu_max(facts: Facts, pid: int) -> Optional[str]:
    """The tightest CPU limit of a process and of the groups around it: "quota period" in us, or "max" without one.

    Control groups of version 2 only. None where nothing can be read.
    """
    try:
        lines = facts.text(f"/proc/{pid}/cgroup").splitlines()
    except OSError:
        return None
    path = next((line[3:] for line in lines if line.startswith("0::/")), None)
    if path is None or ".." in path.split("/"):
        return None
    steps = [step for step in path.split("/") if step][:_MAX_DEPTH]
    found: List[Tuple[float, str]] = []
    read = False
    for depth in range(1, len(steps) + 1):
        try:
            text = facts.text(f"{_CGROUPS}/{'/'.join(steps[:depth])}/cpu.max").strip()
        except OSError:
            continue
        read = True
        quota, _, period = text.partition(" ")
        if quota.isdecimal() and period.isdecimal() and int(period):
            found.append((int(quota) / int(period), text))
    if not read:
        return None
    return min(found)[1] if found else "max"


def steal_pct(facts: Facts) -> Optional[float]:
    """The share of its time that a guest's host gave to others, since it booted. None where it is not counted."""
    try:
        times = [int(text) for text in facts.text("/proc/stat").partition("\n")[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    whole = sum(times)
    return round(100 * times[_STEAL] / whole, 2) if len(times) > _STEAL and whole > 0 else None
