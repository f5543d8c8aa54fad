"""Which counter of the kernel moves now: it tells apart what ends at one place, where the kernel gives no reason."""

import time
from typing import Dict, NamedTuple, Sequence

from netconsole_collector.primitives import files
from netconsole_collector.sources.net.protocol_counters import PAIRED, SINGLE, parse_paired, parse_single

_READINGS, _PAUSE_S = 4, 0.25
_ROOT = b"/proc/thread-self/net/"
ALIKE = 0.75
"""Of the counter that moves most: another one that moves so much counts the same packets."""


class Moved(NamedTuple):
    """``name``: of the counter; empty where none does. ``is_now``: it moves now; else it only has, at some time."""

    name: str
    is_now: bool


def moving(names: Sequence[str]) -> Moved:
    """The one of these counters (UdpNoPorts) of the calling thread's namespace that moves most.

    Of those that move about alike it is the first: their files are read one after the other. When all is over: where
    all that has ever counted counted alike.
    """
    before = now = _counters(names)
    for _ in range(_READINGS):
        time.sleep(_PAUSE_S)  # for the next packets: nothing tells when a counter moves
        now = _counters(names)
        if now != before:
            break
    return most({name: now[name] - before.get(name, 0) for name in now}, now)


def most(moved: Dict[str, int], counted: Dict[str, int]) -> Moved:
    """By how much each moved, and what it has counted since it began."""
    least = ALIKE * max(moved.values(), default=0)
    if least > 0:
        return Moved(next(one for one in moved if moved[one] >= least), True)
    known = [one for one in counted if counted[one]]
    return Moved(known[0] if len({counted[one] for one in known}) == 1 else "", False)


def _counters(names: Sequence[str]) -> Dict[str, int]:
    """In the order of the names. Without those that this kernel does not have. Raises OSError and ValueError."""
    told: Dict[str, int] = {}
    for parse, paths in ((parse_paired, PAIRED), (parse_single, SINGLE)):
        for path in paths:
            try:
                content = files.read(_ROOT + path.encode("ascii"), files.MAX_FILE_BYTES)
            except FileNotFoundError:
                continue
            told.update(parse(content.decode("ascii", "replace")))
    return {name: told[name] for name in names if name in told}
