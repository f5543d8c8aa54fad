"""Facts of a VM's disks: what QEMU's command line says of each, where its file lies, and the limits of its I/O.

QEMU itself is not asked. A disk that another process serves (vhost-user-blk) is named: no probe of this host's block
devices sees what is asked of it.
"""

from typing import List

from netconsole_collector.names.fact_keys import key
from netconsole_collector.questions.facts.disk_files import where_it_lies
from netconsole_collector.questions.facts.reading import Facts
from netconsole_collector.sources.vm import cpu_limits, io_limits
from netconsole_collector.sources.vm.qemu_disks import disks

_GROUPS = "control groups: io.max"


def collect(facts: Facts, pid: int, name: str, arguments: List[str]) -> None:
    """Add the facts under ``vm/NAME/disk/`` and the limits of its control groups."""
    where = f"/proc/{pid}/cmdline"
    for number, disk in enumerate(disks(arguments)):
        for field, value in disk._asdict().items():
            if value is not None:
                facts.put(key("vm", name, "disk", number, field), value, where)
        if disk.file is None:
            continue
        place = where_it_lies(facts, disk.file, f"/proc/{pid}/root")
        if place.device is not None:
            facts.put(key("vm", name, "disk", number, "on"), place.device, "/sys/dev/block", volatile=True)
        if place.filesystem is not None:
            facts.put(key("vm", name, "disk", number, "filesystem"), place.filesystem, "/proc/1/mountinfo")
    groups = cpu_limits.groups_of(facts.host, str(pid), "blkio")
    found = [
        f"{io_limits.device_name(facts.host, one.device)}: {io_limits.LIMITS[one.kind][1]} {one.per_s}/s"
        for one in io_limits.limits_of(facts.host, groups)
    ]
    if groups:
        facts.put(key("vm", name, "io_max"), "; ".join(found) or "max", _GROUPS)
    for group in groups[-1:]:
        weight = io_limits.weight_of(facts.host, group)
        if weight:
            facts.put(key("vm", name, "io_weight"), weight, "control groups: io.weight")
