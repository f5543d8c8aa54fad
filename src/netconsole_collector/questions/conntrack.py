"""Question `conntrack`: why the tracking of connections refuses a packet.

`entries`, `limit`: how many connections there are, and may be. `full`, `no_port`: whether the counters `drop` and
`insert_failed` moved meanwhile (net/netfilter/nf_conntrack_core.c): the table is full, or a translation found no port.
"""

import time
from typing import Any, Dict

from netconsole_collector.primitives import files
from netconsole_collector.questions.known import Json
from netconsole_collector.questions.within import sysctl, within
from netconsole_collector.sources.protocol_counters import CONNTRACK, ENTRIES, parse_conntrack

_STATISTICS = b"/proc/thread-self/net/" + CONNTRACK.encode("ascii")
_DROPPED, _NOT_INSERTED = "Conntrackdrop", "Conntrackinsert_failed"
_READINGS, _PAUSE_S = 4, 0.25


def answer(arguments: Json) -> Any:
    """Of the namespace ``netns``."""
    found = within(arguments, _looked_up)
    found["limit"] = sysctl("netfilter/nf_conntrack_max")  # of each namespace; the host's is for all
    return found


def _looked_up() -> Json:
    before = now = _counters()
    for _ in range(_READINGS):
        time.sleep(_PAUSE_S)  # for the next packets: nothing tells when a counter moves
        now = _counters()
        if now.get(_DROPPED, 0) > before.get(_DROPPED, 0):
            break
    failed, dropped = (now.get(name, 0) - before.get(name, 0) for name in (_NOT_INSERTED, _DROPPED))
    return {"entries": now.get(ENTRIES), "full": dropped > failed, "no_port": failed > 0}


def _counters() -> Dict[str, int]:
    """Empty where the kernel does not tell."""
    try:
        return dict(parse_conntrack(files.read(_STATISTICS, 1 << 20).decode("ascii")))
    except (OSError, ValueError):
        return {}
