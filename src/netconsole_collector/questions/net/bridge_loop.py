"""Question `bridge_loop`: whether a flood goes round through a bridge: what has one sender comes in by several ports.

`bridge`: the device, or the bridge whose port it is; null where it is neither. `ports`: the names of those between
which the bridge sees the sender move; null where it does not. `is_own`: the sender is the bridge, or one of its ports,
and so its own frames come back.
"""

import contextlib
import socket
import struct
import time
from typing import Any, Dict, List, Optional

from netconsole_collector.primitives.netlink import Netlink, attributes
from netconsole_collector.questions.known import Json, text
from netconsole_collector.questions.net.bridge_port import is_port
from netconsole_collector.questions.net.rtnetlink import MASTER, Interface, RouteSocket, mac_text, number
from netconsole_collector.questions.within import within

_ADDRESS = 1  # IFLA_ADDRESS
_NEIGHBOURS = 1 << 2  # RTNLGRP_NEIGH
_NEW, _AF_BRIDGE, _MAC, _MASTER = 28, 7, 2, 9  # RTM_NEWNEIGH, AF_BRIDGE, NDA_LLADDR, NDA_MASTER
_ENTRY = struct.Struct("=BxxxiHBB")
_LISTEN_S, _PAUSE_S = 0.2, 0.01
_MOVES = 4
"""A VM that migrates moves once, and a frame that goes round thousands of times a second."""


def answer(arguments: Json) -> Any:
    """Of frames from ``source_mac`` that came in by ``device``."""
    device, source = text(arguments, "device"), text(arguments, "source_mac")
    return within(arguments, lambda: _looked_at(device, source))


def _looked_at(device: str, source: str) -> Json:
    with RouteSocket() as routes:
        bridge = _bridge(routes, device)
        if bridge is None:
            return {"bridge": None, "ports": None, "is_own": False}
        ports = {one.number: one.name for one in routes.links() if is_port(one, bridge)}
        macs = [one.values.get(_ADDRESS, b"") for one in (bridge, *(routes.link_at(port) for port in ports)) if one]
    moves = _moves(bridge, source)
    places = sorted({ports[place] for place in moves if place in ports})
    return {
        "bridge": bridge.name,
        "ports": " and ".join(places) if len(moves) >= _MOVES and len(places) > 1 else None,
        "is_own": source in map(mac_text, macs),
    }


def _bridge(routes: RouteSocket, device: str) -> Optional[Interface]:
    link = routes.link(device)
    if link is None or link.kind == "bridge":
        return link
    master = routes.link_at(link.whole(MASTER) or 0)
    return master if master is not None and is_port(link, master) else None


class _Enough(Exception):
    pass


def _moves(bridge: Interface, mac: str) -> List[int]:
    """The ports behind which the bridge sees it, one after the other; the kernel tells of each move (br_fdb_update)."""
    seen: List[int] = []
    end = time.monotonic() + _LISTEN_S

    def told(kind: int, body: memoryview) -> None:
        if len(seen) >= _MOVES or time.monotonic() > end:
            raise _Enough
        if kind != _NEW or len(body) < _ENTRY.size or body[0] != _AF_BRIDGE:
            return
        values: Dict[int, memoryview] = dict(attributes(body, _ENTRY.size))
        master, sender = bytes(values.get(_MASTER, b"")), bytes(values.get(_MAC, b""))
        if number(master) == bridge.number and mac_text(sender) == mac:
            seen.append(_ENTRY.unpack_from(body)[1])

    line = Netlink(socket.NETLINK_ROUTE, _NEIGHBOURS, told)
    with contextlib.closing(line), contextlib.suppress(_Enough):
        while time.monotonic() < end:
            with contextlib.suppress(OSError):  # ENOBUFS: more moved than there is room for, and the rest is enough
                line.listen()
            time.sleep(_PAUSE_S)
    return seen
