"""Question `disk`: which level of a stack of block devices takes the time of an I/O, by the kernel's own books.

`stack`: the device and what is below it, the slowest where there are several. `below`: the next level; null where there
is none. `mean_ms`: how long an I/O took at the device in the time of the question. `adds`, `adds_ms`: the level that
adds most of that, and how much; null where a level had no I/O. Below a loop device nobody looks: its file's device has
the I/O of others as well.
"""

import time
from typing import Dict, List, NamedTuple, Optional

from netconsole_collector.primitives.here import HERE, Here, text_of
from netconsole_collector.questions.facts.blocks import kind_of
from netconsole_collector.questions.facts.reading import Facts
from netconsole_collector.questions.known import BadQuestion, Json, text

PAUSE_S = 0.5
_MOST_DEVICES = 64
_IOS, _MS = (0, 4, 11), (3, 7, 14)
"""Reads, writes and discards, and their time: fields of /sys/block/NAME/stat (Documentation/block/stat.rst)."""


class DiskBooks(NamedTuple):
    """I/Os that ended, and their time in ms."""

    ios: int
    took_ms: int


def answer(arguments: Json) -> Json:
    """Of the block device ``device`` of this host. It takes a pause."""
    return asked(HERE, text(arguments, "device"), PAUSE_S)


def asked(host: Here, device: str, pause_s: float) -> Json:
    """As :func:`answer`, of any host."""
    if "/" in device or device in ("", ".", "..") or _books(host, device) is None:
        raise BadQuestion("device: no such block device (any more)")
    below = _tree(host, device)
    before = {name: _books(host, name) for name in below}
    time.sleep(pause_s)
    means = {name: _mean(before[name], _books(host, name)) for name in below}
    path = _slowest(device, below, means)
    own = _own(path, means)
    adds = max(own, key=lambda name: own[name]) if own else None
    facts = Facts(host)
    return {
        "device": device,
        "stack": " > ".join("{} ({})".format(name, kind_of(facts, name)) for name in path),
        "below": path[1] if len(path) > 1 else None,
        "mean_ms": _rounded(means[device]),
        "adds": adds,
        "adds_ms": _rounded(own[adds]) if adds is not None else None,
    }


def _tree(host: Here, device: str) -> Dict[str, List[str]]:
    """What is directly below each device of the stack."""
    found: Dict[str, List[str]] = {}
    waiting = [device]
    while waiting and len(found) < _MOST_DEVICES:
        name = waiting.pop(0)
        if name not in found:
            try:
                slaves = sorted(host.names("/sys/block/{}/slaves".format(name)))
            except OSError:
                slaves = []
            found[name] = [one for one in slaves if _books(host, one) is not None]
            waiting += found[name]
    return found


def _slowest(device: str, below: Dict[str, List[str]], means: Dict[str, Optional[float]]) -> List[str]:
    path = [device]
    while below.get(path[-1]):
        following = max(below[path[-1]], key=lambda name: means.get(name) or 0.0)
        if following in path or following not in means:
            break
        path.append(following)
    return path


def _own(path: List[str], means: Dict[str, Optional[float]]) -> Dict[str, float]:
    """What each level adds to those below it; nothing where one is not known."""
    known = [means[name] for name in path]
    times = [one for one in known if one is not None]
    if len(times) < len(known):
        return {}
    return {name: max(0.0, mine - lower) for name, mine, lower in zip(path, times, [*times[1:], 0.0])}


def _mean(before: Optional[DiskBooks], after: Optional[DiskBooks]) -> Optional[float]:
    if before is None or after is None or after.ios <= before.ios or after.took_ms < before.took_ms:
        return None
    return (after.took_ms - before.took_ms) / (after.ios - before.ios)


def _books(host: Here, name: str) -> Optional[DiskBooks]:
    """Of a disk, or a partition. None where there is none."""
    words = text_of(host, "/sys/class/block/{}/stat".format(name)).split()
    numbers = [int(one) if one.isdigit() else 0 for one in words]
    if not numbers:
        return None
    ios, took = (sum(numbers[at] for at in places if at < len(numbers)) for places in (_IOS, _MS))
    return DiskBooks(ios, took)


def _rounded(ms: Optional[float]) -> Optional[float]:
    return round(ms, 1) if ms is not None else None
