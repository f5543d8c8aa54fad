"""Question `neighbour`: the next hop of a packet, what the table of neighbours says of it, and how full that is.

`hop`, `state`, `mac`: the next hop and its entry; state is `absent` without one. `is_gateway`: it is a router.
`has_carrier`: of the device, null where there is none.
Of several routers `hop` is the one that does not answer; null where several do not.
`entries`, `limit`: of all namespaces together, and the setting gc_thresh3 that bounds them. `most_device`,
`most_entries`: the device of this namespace with the most. `was`: the address that a translation (NAT) of a tracked
connection gave away for the target's.
"""

import socket
from collections import Counter
from typing import Any, Dict, Optional

from netconsole_collector.primitives import files
from netconsole_collector.questions.known import Json, text
from netconsole_collector.questions.net.rtnetlink import RouteSocket, family_of
from netconsole_collector.questions.within import sysctl, within

_CACHES = {
    int(socket.AF_INET): ("ipv4", b"/proc/net/stat/arp_cache"),
    int(socket.AF_INET6): ("ipv6", b"/proc/net/stat/ndisc_cache"),
}
_SILENT = ("incomplete", "failed")
_CARRIER = 33  # IFLA_CARRIER
_TRACKED = b"/proc/thread-self/net/nf_conntrack"
_MAX_TRACKED_BYTES = 4 << 20


def answer(arguments: Json) -> Any:
    """Of a packet to ``target`` that leaves by ``device``."""
    device, target = text(arguments, "device"), text(arguments, "target")
    name, cache = _CACHES[family_of(target)]
    found = within(arguments, lambda: _looked_up(device, target))
    limit = sysctl("{}/neigh/default/gc_thresh3".format(name))  # of all namespaces: it is the host's
    found.update(entries=_entries(cache), limit=limit)
    return found


def _entries(cache: bytes) -> Optional[int]:
    """The first column of the first CPU's line is of all."""
    try:
        return int(files.read(cache, 65536).splitlines()[1].split()[0], 16)
    except (OSError, IndexError, ValueError):
        return None


def _looked_up(device: str, target: str) -> Json:
    family = family_of(target)
    with RouteSocket() as routes:
        hop: Optional[str]
        try:
            hop, routers = routes.route(target).gateway or target, routes.routers(target)
        except OSError:
            hop, routers = target, []
        link = routes.link(device)
        index = link.number if link is not None else 0
        entries = routes.neighbours(family)
        of_device = {one.address: one for one in entries if one.device == index}
        silent = [one for one in routers if one in of_device and of_device[one].state in _SILENT]
        if silent:  # this packet may have taken another one than the kernel would take now
            hop = silent[0] if len(silent) == 1 else None
        entry = of_device.get(hop) if hop is not None else None
        counts: Dict[int, int] = Counter(one.device for one in entries)
        most = max(counts, key=lambda one: counts[one], default=0)
        of_most = routes.link_at(most) if most else None
    return {
        "hop": hop,
        "is_gateway": hop is not None and hop != target,
        "has_carrier": any(link.values.get(_CARRIER, b"\1")) if link is not None else None,
        "state": entry.state if entry is not None else "absent",
        "mac": entry.mac or None if entry is not None else None,
        "most_device": of_most.name if of_most is not None else None,
        "most_entries": counts.get(most, 0),
        "was": _translated(target),
    }


def _translated(target: str) -> Optional[str]:
    """The destination that a sender meant, where a tracked connection sends it to ``target`` instead."""
    try:
        lines = files.read(_TRACKED, _MAX_TRACKED_BYTES).decode("ascii", "replace").splitlines()
    except OSError:
        return None  # the kernel does not list them there
    for line in lines:
        ends = [word.partition("=")[2] for word in line.split() if word.startswith(("src=", "dst="))]
        if len(ends) == 4 and ends[2] == target and ends[1] != target:
            return ends[1]
    return None
