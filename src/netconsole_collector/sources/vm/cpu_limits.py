"""The limits of CPU time that control groups set, of version 2 (cpu.max) and of version 1 (cpu.cfs_quota_us)."""

from typing import Dict, List, NamedTuple, Tuple

from netconsole_collector.primitives.here import Here, text_of

GROUPS = "/sys/fs/cgroup"
_MAX_DEPTH = 12


class CpuLimit(NamedTuple):
    """A limit in us, and for how long it has stopped its threads so far. ``quota`` -1: the group has none."""

    quota: int
    period: int
    stopped_ns: int


def groups_of(host: Here, tid: str, controller: str = "cpu") -> List[str]:
    """The groups of a thread that may bound what ``controller`` gives out, and those around: directories in GROUPS."""
    found = []
    for line in text_of(host, "/proc/{}/cgroup".format(tid)).splitlines():
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if controllers and controller not in controllers.split(","):
            continue
        steps = [step for step in path.split("/") if step][:_MAX_DEPTH]
        if ".." not in steps:
            top = "/" + controllers if controllers else ""
            found += [top + "".join("/" + step for step in steps[:depth]) for depth in range(len(steps) + 1)]
    return found


def limits(host: Here, groups: List[str]) -> Dict[str, CpuLimit]:
    """Of those groups whose files can be read."""
    found = {}
    for group in groups:
        where = GROUPS + group
        words = text_of(host, where + "/cpu.max").split()
        if not words:
            files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            words = " ".join(text_of(host, "{}/{}".format(where, name)) for name in files).split()
        if len(words) == 2 and words[1].isdigit() and (words[0].isdigit() or words[0] in ("max", "-1")):
            said = dict(pairs(text_of(host, where + "/cpu.stat"), " "))
            stopped = said.get("throttled_time") or said.get("throttled_usec", "0") + "000"
            quota = int(words[0]) if words[0].isdigit() else -1
            found[group] = CpuLimit(quota, int(words[1]), int(stopped) if stopped.isdigit() else 0)
    return found


def pairs(text: str, between: str) -> List[Tuple[str, str]]:
    """The lines of a file as name and value."""
    return [(name, value.strip()) for name, _, value in (line.partition(between) for line in text.splitlines())]
