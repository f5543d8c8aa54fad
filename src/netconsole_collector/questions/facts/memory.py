"""Facts of memory: size and huge pages per node, transparent huge pages, same-page merging, NUMA balancing."""

import re

from netconsole_collector.names.fact_keys import key
from netconsole_collector.questions.facts.reading import Facts

_HUGE = "/sys/kernel/mm/hugepages"
_NODES = "/sys/devices/system/node"
_COUNTS = ("nr_hugepages", "nr_overcommit_hugepages", "free_hugepages")
_SETTINGS = ("swappiness", "zone_reclaim_mode", "overcommit_memory", "min_free_kbytes")


def collect(facts: Facts) -> None:
    """Add the facts under ``memory/``."""
    # Volatile: a guest's memory is hot-plugged, and the kernel's own share changes with every version.
    facts.file("memory/total_kb", "/proc/meminfo", _total_kb, volatile=True)
    sizes = facts.entries(_HUGE)
    for size in sizes:
        facts.file(key("memory", size, "pages"), f"{_HUGE}/{size}/nr_hugepages", int)
        facts.file(key("memory", size, "overcommit"), f"{_HUGE}/{size}/nr_overcommit_hugepages", int)
        facts.file(key("memory", size, "free"), f"{_HUGE}/{size}/free_hugepages", int, volatile=True)
    nodes = [name for name in facts.entries(_NODES) if re.fullmatch(r"node\d+", name)]
    for node in nodes:
        facts.file(key("memory", node, "total_kb"), f"{_NODES}/{node}/meminfo", _total_kb, volatile=True)
        for size in facts.entries(f"{_NODES}/{node}/hugepages"):
            facts.file(key("memory", node, size, "pages"), f"{_NODES}/{node}/hugepages/{size}/nr_hugepages", int)
    for name in ("enabled", "defrag"):
        facts.file(f"memory/transparent_hugepage_{name}", f"/sys/kernel/mm/transparent_hugepage/{name}", _chosen)
    if facts.exists("/sys/kernel/mm/ksm/run"):
        facts.file("memory/ksm_run", "/sys/kernel/mm/ksm/run", int)
    if facts.exists("/proc/sys/kernel/numa_balancing"):
        facts.file("memory/numa_balancing", "/proc/sys/kernel/numa_balancing", int)
    for name in _SETTINGS:
        if facts.exists(f"/proc/sys/vm/{name}"):
            facts.file(f"memory/{name}", f"/proc/sys/vm/{name}", int)


def _total_kb(text: str) -> int:
    found = re.search(r"MemTotal:\s+(\d+) kB", text)
    if found is None:
        raise ValueError("no MemTotal")
    return int(found[1])


def _chosen(text: str) -> str:
    """The word in brackets of ``always [madvise] never``."""
    found = re.search(r"\[(\w+)\]", text)
    return found[1] if found else text
