"""Question `conntrack`: why the tracking of connections refuses a packet.

`entries`, `limit`: how many connections there are, and may be. `full`, `no_port`: whether the counters `drop` and
`insert_failed` moved meanwhile (net/netfilter/nf_conntrack_core.c): the table is full, or a translation found no port.
"""

import time
from typing import Any, Dict, Optional

from netconsole_collector.primitives import files
from netconsole_collector.questions.known import Json
from netconsole_collector.questions.within import sysctl, within

_STATISTICS = b"/proc/thread-self/net/stat/nf_conntrack"
_READINGS, _PAUSE_S = 4, 0.25


def answer(arguments: Json) -> Any:
    """Of the namespace ``netns``."""
    found = within(arguments, _looked_up)
    found["limit"] = sysctl("netfilter/nf_conntrack_max")  # of each namespace; the host's is for all
    return found


def _looked_up() -> Json:
    before = now = _sums()
    for _ in range(_READINGS):
        time.sleep(_PAUSE_S)  # for the next packets: nothing tells when a counter moves
        now = _sums()
        if now.get("drop", 0) > before.get("drop", 0):
            break
    failed, dropped = (now.get(name, 0) - before.get(name, 0) for name in ("insert_failed", "drop"))
    return {"entries": _entries(), "full": dropped > failed, "no_port": failed > 0}


def _sums() -> Dict[str, int]:
    """Over all CPUs; empty where the kernel does not tell."""
    try:
        heads, *cpus = [line.split() for line in files.read(_STATISTICS, 1 << 20).decode("ascii").splitlines()]
        return {name: sum(int(line[at], 16) for line in cpus) for at, name in enumerate(heads)}
    except (OSError, ValueError, IndexError):
        return {}


def _entries() -> Optional[int]:
    try:
        lines = files.read(_STATISTICS, 1 << 20).decode("ascii").splitlines()
        return int(lines[1].split()[0], 16)
    except (OSError, ValueError, IndexError):
        return None
