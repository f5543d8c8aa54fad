"""Question `queue`: which queueing discipline is at a device, and what bounds it.

`kind`: of the root. `classes`: how many it has. `carrier`, `mtu`: of the device. `peer`,
`peer_mtu`, `peer_is_up`: of the other end of a pair, wherever that is.
"""

import os
import struct
from typing import Any, List, NamedTuple, Optional, Tuple, Union

from netconsole_collector.primitives.inside import make_inside
from netconsole_collector.primitives.netlink import attributes
from netconsole_collector.questions.known import Json, text
from netconsole_collector.questions.rtnetlink import Interface, RouteSocket
from netconsole_collector.questions.within import paths, within

_GET_QDISC, _GET_CLASS, _QDISC = 38, 42, struct.Struct("=BxxxiIII")
_ROOT, _KIND = 0xFFFFFFFF, 1
_MTU, _PEER, _CARRIER, _PEER_NAMESPACE = 4, 5, 33, 37
_UP = 1


def answer(arguments: Json) -> Any:
    """Of ``device``."""
    device = text(arguments, "device")
    namespaces = list(paths())
    found, end = within(arguments, lambda: _looked_up(device, namespaces))
    looked = make_inside([(os.fsencode(end.path), end.inode)], end.look) if isinstance(end, Elsewhere) else [end]
    peer = looked[0] if isinstance(looked[0], Interface) else None
    found.update(peer=peer.name if peer is not None else None, peer_mtu=peer.whole(_MTU) if peer is not None else None)
    found["peer_is_up"] = bool(peer.flags & _UP) if peer is not None else None
    return found


class Elsewhere(NamedTuple):
    """An interface of another namespace."""

    path: str
    inode: int
    number: int

    def look(self) -> Optional[Interface]:
        """In that namespace."""
        with RouteSocket() as routes:
            return routes.link_at(self.number)


def _looked_up(device: str, namespaces: List[Tuple[str, int]]) -> Tuple[Json, Union[Interface, Elsewhere, None]]:
    with RouteSocket() as routes:
        link = routes.link(device)
        found: Json = _root(routes, link) if link is not None else {"kind": None, "classes": 0}
        index = link.whole(_PEER) if link is not None else None
        of = link.whole(_PEER_NAMESPACE) if link is not None else None
        peer: Union[Interface, Elsewhere, None] = None
        if index and of is None:
            peer = routes.link_at(index)
        elif index:
            where = next(((path, inode) for path, inode in namespaces if routes.number_of(path) == of), None)
            peer = Elsewhere(where[0], where[1], index) if where is not None else None
    found["mtu"] = link.whole(_MTU) if link is not None else None
    found["carrier"] = bool(link.values.get(_CARRIER, b"\0")[0]) if link is not None else None
    return found, peer


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
