"""Facts of the block devices: how each queues, and what lies below it, so that the stack is a tree by its names.

Below a loop device lies a file. What a loop device asks of the file's own device is asked by a kernel worker: who asked
the loop device cannot be told there, and the same I/O is counted at both.
"""

import re
from typing import Optional

from netconsole_collector.names.fact_keys import key
from netconsole_collector.questions.facts.disk_files import where_it_lies
from netconsole_collector.questions.facts.reading import Facts

_MAX_DEVICES = 1024
_WITHOUT = ("ram",)
"""Beginnings of names of devices of which nobody asks."""
_SECTOR_BYTES = 512
_NUMBERS = ("nr_requests", "rotational", "max_sectors_kb", "nomerges", "fua")
_MAPPED = {"LVM": "LVM", "CRYPT": "dm-crypt", "mpath": "multipath"}
"""Who made a device of the device mapper, by the beginning of its UUID."""


def collect(facts: Facts) -> None:
    """Add the facts under ``block/``. A device without a size (a free loop device, an empty drive) has none."""
    found = 0
    for name in facts.entries("/sys/block"):
        where = f"/sys/block/{name}"
        size = _number(facts, f"{where}/size")
        if not size or name.startswith(_WITHOUT):
            continue
        found += 1
        if found > _MAX_DEVICES:
            facts.unknown("block", "/sys/block", f"only the first {_MAX_DEVICES} block devices are listed")
            return
        facts.put(key("block", name, "size_bytes"), size * _SECTOR_BYTES, f"{where}/size")
        _queue(facts, name, where)
        _stack(facts, name, where)


def _queue(facts: Facts, name: str, where: str) -> None:
    scheduler = _text(facts, f"{where}/queue/scheduler")
    if scheduler:
        chosen = re.search(r"\[([^\]]+)\]", scheduler)
        facts.put(key("block", name, "scheduler"), chosen[1] if chosen else scheduler, f"{where}/queue/scheduler")
    cache = _text(facts, f"{where}/queue/write_cache")
    if cache:
        facts.put(key("block", name, "write_cache"), cache, f"{where}/queue/write_cache")
    for number in _NUMBERS:
        value = _number(facts, f"{where}/queue/{number}")
        if value is not None:
            facts.put(key("block", name, number), value, f"{where}/queue/{number}")
    discard = _number(facts, f"{where}/queue/discard_max_bytes")
    if discard is not None:
        facts.put(key("block", name, "discard"), "on" if discard else "off", f"{where}/queue/discard_max_bytes")
    depth = _number(facts, f"{where}/device/queue_depth")
    if depth is not None:
        facts.put(key("block", name, "queue_depth"), depth, f"{where}/device/queue_depth")
    queues = len([one for one in facts.entries(f"{where}/mq") if one.isdigit()])
    if queues:
        facts.put(key("block", name, "queues"), queues, f"{where}/mq")


def _stack(facts: Facts, name: str, where: str) -> None:
    """What kind of device it is, and what is below it."""
    facts.put(key("block", name, "kind"), kind_of(facts, name), where)
    mapped = _text(facts, f"{where}/dm/name")
    if mapped is not None:
        facts.put(key("block", name, "mapped"), mapped, f"{where}/dm/name")
    backing = _text(facts, f"{where}/loop/backing_file")
    if backing is not None:
        facts.put(key("block", name, "file"), backing, f"{where}/loop/backing_file", volatile=True)
        below = where_it_lies(facts, backing)
        if below.device:
            facts.put(key("block", name, "below"), below.device, "/proc/1/mountinfo", volatile=True)
        if below.filesystem:
            facts.put(key("block", name, "filesystem"), below.filesystem, "/proc/1/mountinfo")
    slaves = facts.entries(f"{where}/slaves")
    if slaves:
        facts.put(key("block", name, "below"), ", ".join(slaves), f"{where}/slaves")


def kind_of(facts: Facts, name: str) -> str:
    """What a block device is: LVM, md raid1, loop, disk, …"""
    where = f"/sys/class/block/{name}"
    mapped = _text(facts, f"{where}/dm/uuid")
    if mapped is not None:
        return _MAPPED.get(mapped.partition("-")[0], "device mapper")
    level = _text(facts, f"{where}/md/level")
    if level is not None:
        return f"md {level}".strip()
    if facts.exists(f"{where}/loop/backing_file"):
        return "loop"
    return "partition" if facts.exists(f"{where}/partition") else "disk"


def _text(facts: Facts, path: str) -> Optional[str]:
    """None where there is no such file."""
    try:
        return facts.text(path).strip()
    except OSError:
        return None


def _number(facts: Facts, path: str) -> Optional[int]:
    text = _text(facts, path)
    return int(text) if text is not None and text.isdigit() else None
