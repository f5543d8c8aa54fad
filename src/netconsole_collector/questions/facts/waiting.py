"""What keeps threads of a VM from their CPU: how long they waited for it, and the limit of their control group."""

from typing import Optional

from netconsole_collector.questions.facts.reading import Facts
from netconsole_collector.sources.vm import cpu_limits

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

    None where nothing can be read.
    """
    known = cpu_limits.limits(facts.host, cpu_limits.groups_of(facts.host, str(pid)))
    found = [one for one in known.values() if one.quota >= 0 and one.period]
    if not known:
        return None
    tightest = min(found, key=lambda one: one.quota / one.period, default=None)
    return "max" if tightest is None else "{} {}".format(tightest.quota, tightest.period)


def steal_pct(facts: Facts) -> Optional[float]:
    """The share of its time that a guest's host gave to others, since it booted. None where it is not counted."""
    try:
        times = [int(text) for text in facts.text("/proc/stat").partition("\n")[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    whole = sum(times)
    return round(100 * times[_STEAL] / whole, 2) if len(times) > _STEAL and whole > 0 else None
