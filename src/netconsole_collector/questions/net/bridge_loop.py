"""Question `bridge_loop`: whether a flood goes round through a bridge: what has one sender comes in by several ports.

`bridge`, `ports`, `moving`: a bridge, the names of its ports between which it sees a sender move, and the MAC of that
sender; null where none moves. `is_own`: the sender that was asked for is the bridge, or one of its ports, and so its
own frames come back.
"""

import contextlib
import socket
import struct
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from netconsole_collector.primitives.netlink import Netlink, attributes
from netconsole_collector.questions.known import Json
from netconsole_collector.questions.net.bridge_port import is_port
from netconsole_collector.questions.net.rtnetlink import MASTER, Interface, RouteSocket, mac_text, number
from netconsole_collector.questions.within import within

_ADDRESS = 1  # IFLA_ADDRESS
_NEIGHBOURS = 1 << 2  # RTNLGRP_NEIGH
_NEW, _AF_BRIDGE, _MAC, _MASTER = 28, 7, 2, 9  # RTM_NEWNEIGH, AF_BRIDGE, NDA_LLADDR, NDA_MASTER
_ENTRY = struct.Struct("=BxxxiHBB")
_LOOKS, _PAUSE_S = 20, 0.01
_MOST = 20000
"""Messages, of whatever moves."""
_MOVES = 4
"""A VM that migrates moves once, and a frame that goes round thousands of times a second."""


class Mover(NamedTuple):
    """A sender, and the ports behind which the bridge saw it, one after the other, by their numbers."""

    bridge: int
    mac: Optional[str]
    places: List[int]


def answer(arguments: Json) -> Any:
    """Of frames from ``source_mac`` that came in by ``device``, a bridge or a port of one; else of all bridges."""
    device, source = (str(arguments.get(name, "")) for name in ("device", "source_mac"))
    return within(arguments, lambda: _looked_at(device, source))


def _looked_at(device: str, source: str) -> Json:
    with RouteSocket() as routes:
        bridge = _bridge(routes, device) if device else None
        links = {one.number: one for one in routes.links()}
    if device and bridge is None:
        return _told(None, [], None, False)
    ports = [one for one in links.values() if bridge is not None and is_port(one, bridge)]
    is_own = bridge is not None and source in [mac_text(one.values.get(_ADDRESS, b"")) for one in (bridge, *ports)]
    moving = _Moves(bridge, source).watched()
    places = sorted({links[place].name for place in moving.places if place in links})
    found = bridge if bridge is not None else links.get(moving.bridge)
    return _told(found, places if len(places) > 1 else [], moving.mac, is_own)


def _told(bridge: Optional[Interface], ports: List[str], mac: Optional[str], is_own: bool) -> Json:
    return {
        "bridge": bridge.name if bridge is not None else None,
        "ports": " and ".join(ports) or None,
        "moving": mac if ports else None,
        "is_own": is_own,
    }


def _bridge(routes: RouteSocket, device: str) -> Optional[Interface]:
    link = routes.link(device)
    if link is None or link.kind == "bridge":
        return link
    master = routes.link_at(link.whole(MASTER) or 0)
    return master if master is not None and is_port(link, master) else None


class _Enough(Exception):
    pass


class _Moves:
    """Senders that move between the ports of a bridge: the kernel tells of each move (br_fdb_update)."""

    def __init__(self, bridge: Optional[Interface], mac: str) -> None:
        self._wanted = bridge.number if bridge is not None else None
        self._mac = mac
        self._seen: Dict[Tuple[int, str], List[int]] = {}
        self._taken = 0

    def watched(self) -> Mover:
        """The first that has moved often."""
        line = Netlink(socket.NETLINK_ROUTE, _NEIGHBOURS, self._take)
        with contextlib.closing(line), contextlib.suppress(_Enough):
            for _ in range(_LOOKS):  # and no clock: on a busy CPU it wakes late, and what came waits for it
                time.sleep(_PAUSE_S)
                with contextlib.suppress(OSError):  # ENOBUFS: more moved than there is room for, the rest is enough
                    line.listen()
        for (bridge, mac), places in self._seen.items():
            if len(places) >= _MOVES:
                return Mover(bridge, mac, places)
        return Mover(0, None, [])

    def _take(self, kind: int, body: memoryview) -> None:
        self._taken += 1
        if self._taken > _MOST:
            raise _Enough
        if kind != _NEW or len(body) < _ENTRY.size or body[0] != _AF_BRIDGE:
            return
        values: Dict[int, memoryview] = dict(attributes(body, _ENTRY.size))
        bridge, mac = number(bytes(values.get(_MASTER, b""))), mac_text(bytes(values.get(_MAC, b"")))
        if bridge is None or self._wanted not in (None, bridge) or self._mac not in ("", mac):
            return
        places = self._seen.setdefault((bridge, mac), [])
        places.append(_ENTRY.unpack_from(body)[1])
        if len(places) >= _MOVES:
            raise _Enough
