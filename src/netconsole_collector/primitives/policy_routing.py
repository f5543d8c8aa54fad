"""Reads which routing table decides for which packets (`ip rule`), and the routes of tables other than main.

It is of the namespace of the thread that calls it. Layouts: include/uapi/linux/fib_rules.h, rtnetlink.h.
"""

import socket
import struct
from typing import Dict, Iterator, List, Tuple

from netconsole_collector.primitives.digests import Digest, digest, written
from netconsole_collector.primitives.netlink import Netlink, attributes

FAMILIES = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}
MAX_ROUTES = 50_000
"""Of all tables that are read in a namespace: those of a router of the internet would take seconds."""
_GET_ROUTE, _GET_RULE = 26, 34
_HEADER = struct.Struct("=BBBBBBBBI")
"""Of a route (struct rtmsg) and of a rule (struct fib_rule_hdr). The fifth member is the table, the last are flags."""
_MAIN, _LOCAL = 254, 255
_CLONED = 0x200
"""RTM_F_CLONED: a route that the kernel has made of another one, for a while."""
_OUT, _MULTIPATH, _CACHE, _TABLE, _EXPIRES = 4, 9, 12, 15, 23
_HOP = struct.Struct("=HBBi")


class TooManyRoutes(OSError):
    """More than are read."""

    def __init__(self) -> None:
        super().__init__(0, "more than {} routes".format(MAX_ROUTES))


def rules(family: str) -> Digest:
    """In the order in which they are asked. Raises OSError."""
    netlink = Netlink(socket.NETLINK_ROUTE)
    try:
        request = _HEADER.pack(FAMILIES[family], 0, 0, 0, 0, 0, 0, 0, 0)
        return digest([_rule(bytes(body)) for body in netlink.dump(_GET_RULE, request)], in_order=True)
    finally:
        netlink.close()


def routes(family: str) -> Digest:
    """Of all tables but main and local: local follows from the addresses. Raises OSError."""
    netlink = Netlink(socket.NETLINK_ROUTE)
    names: Dict[int, bytes] = {}
    found: List[bytes] = []
    try:
        request = _HEADER.pack(FAMILIES[family], 0, 0, 0, 0, 0, 0, 0, 0)
        for number, body in enumerate(netlink.dump(_GET_ROUTE, request)):
            if number >= MAX_ROUTES:
                raise TooManyRoutes()
            route = bytes(body)
            table, flags = _HEADER.unpack_from(route)[4], _HEADER.unpack_from(route)[8]
            parts = dict(attributes(route, _HEADER.size))
            table = struct.unpack("=I", parts[_TABLE])[0] if len(parts.get(_TABLE, b"")) == 4 else table
            if table not in (_MAIN, _LOCAL) and not flags & _CLONED:
                found.append(b"".join(_route(route, names)))
    finally:
        netlink.close()
    return digest(found)


def _rule(body: bytes) -> bytes:
    return body[: _HEADER.size] + b"".join(written(kind, value) for kind, value in attributes(body, _HEADER.size))


def _route(body: bytes, names: Dict[int, bytes]) -> Iterator[bytes]:
    yield body[:8]  # without flags
    for kind, value in attributes(body, _HEADER.size):
        if kind in (_CACHE, _EXPIRES):
            continue  # they age
        if kind == _OUT and len(value) == 4:
            value = _device(struct.unpack("=i", value)[0], names)
        elif kind == _MULTIPATH:
            value = b"".join(written(weight, _device(index, names) + way) for weight, index, way in _hops(value))
        yield written(kind, value)


def _hops(value: bytes) -> Iterator[Tuple[int, int, bytes]]:
    """Weight, device and way of each next hop."""
    at = 0
    while at + _HOP.size <= len(value):
        length, _, weight, index = _HOP.unpack_from(value, at)
        if length < _HOP.size:
            return
        yield weight, index, value[at + _HOP.size : at + length]
        at += (length + 3) & ~3


def _device(index: int, names: Dict[int, bytes]) -> bytes:
    """Its name: an index is of this boot."""
    if index not in names:
        try:
            names[index] = socket.if_indextoname(index).encode("utf-8", "surrogateescape")
        except OSError:
            names[index] = b""
    return names[index]
