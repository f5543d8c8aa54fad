"""Question `queue`: which queueing discipline is at a device, and what bounds it.

`kind`: of the root. `classes`: how many it has. `carrier`, `mtu`: of the device. `peer`,
`peer_mtu`, `peer_is_up`: of the other end of a pair, where that is in the same namespace.
"""

import struct
from typing import Any

from netconsole_collector.primitives.netlink import attributes
from netconsole_collector.questions.known import Json, text
from netconsole_collector.questions.rtnetlink import Interface, RouteSocket
from netconsole_collector.questions.within import within

_GET_QDISC, _GET_CLASS, _QDISC = 38, 42, struct.Struct("=BxxxiIII")
_ROOT, _KIND = 0xFFFFFFFF, 1
_MTU, _PEER, _CARRIER, _PEER_NAMESPACE = 4, 5, 33, 37
_UP = 1


def answer(arguments: Json) -> Any:
    """Of ``device``."""
    device = text(arguments, "device")
    return within(arguments, lambda: _looked_up(device))


def _looked_up(device: str) -> Json:
    with RouteSocket() as routes:
        link = routes.link(device)
        found: Json = _root(routes, link) if link is not None else {"kind": None, "classes": 0}
        index = link.whole(_PEER) if link is not None and _PEER_NAMESPACE not in link.values else None
        peer = routes.link_at(index) if index else None
    found["mtu"] = link.whole(_MTU) if link is not None else None
    found["carrier"] = bool(link.values.get(_CARRIER, b"\0")[0]) if link is not None else None
    found.update(peer=peer.name if peer is not None else None, peer_mtu=peer.whole(_MTU) if peer is not None else None)
    found["peer_is_up"] = bool(peer.flags & _UP) if peer is not None else None
    return found


def _root(routes: RouteSocket, link: Interface) -> Json:
    for body in routes.dump(_GET_QDISC, _QDISC.pack(0, link.number, 0, 0, 0)):
        _, index, _, parent, _ = _QDISC.unpack_from(body)
        if index != link.number or parent != _ROOT:
            continue
        values = dict(attributes(body, _QDISC.size))
        kind = values.get(_KIND, b"").rstrip(b"\0").decode("ascii", "backslashreplace")
        classes = sum(1 for _ in routes.dump(_GET_CLASS, _QDISC.pack(0, link.number, 0, 0, 0)))
        return {"kind": kind, "classes": classes}
    return {"kind": None, "classes": 0}
