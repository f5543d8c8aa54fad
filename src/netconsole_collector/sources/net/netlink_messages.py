"""What the messages of the kernel's netlink have in common, and the sockets that are bound and not connected.

Layouts: include/uapi/linux/netlink.h, genetlink.h, inet_diag.h, sock_diag.h.
"""

import socket
import struct
import sys
from typing import Any, Dict, List, NamedTuple, Optional

from netconsole_collector.primitives.netlink import attributes

NETLINK_GENERIC = 16
GENL_ID_CTRL = 16
SOCK_DIAG_BY_FAMILY = 20
NETLINK_SOCK_DIAG = 4
TCP_CLOSE = 7
TCP_LISTEN = 10
INET_DIAG_SKMEMINFO = 7
SK_MEMINFO_DROPS = 8
_IS_NESTED = 0x8000
_CTRL_CMD_GETFAMILY = 3
_CTRL_ATTR_FAMILY_ID, _CTRL_ATTR_FAMILY_NAME = 1, 2

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_GENERIC = struct.Struct("=BBxx")
_DIAG_REQUEST = struct.Struct("=BBBxI48x")
# family, state, local port, local address, interface, receive queue, inode of struct inet_diag_msg
_DIAG = struct.Struct("=BBxx2s2x16s16xI8x4xI4x4xI")


class BoundSocket(NamedTuple):
    """A socket that is bound and not connected.

    ``waiting``: bytes (UDP) or connections (TCP). ``drops``: since it was created; None where the kernel does not
    report them. ``ifindex``: the interface that it is bound to; 0 for none.
    """

    protocol: str
    family: int
    address: bytes
    ifindex: int
    port: int
    inode: int
    waiting: int
    drops: Optional[int]


def bound_sockets(netlink: Any) -> List[BoundSocket]:
    """The unconnected UDP sockets and the TCP listeners of this network namespace. Raises OSError.

    The kernel filters by state, so connections cost nothing. /proc/net/tcp would walk them all (4 ms when empty).
    """
    found: List[BoundSocket] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        for protocol, number, state in (
            ("udp", socket.IPPROTO_UDP, TCP_CLOSE),
            ("tcp", socket.IPPROTO_TCP, TCP_LISTEN),
        ):
            request = _DIAG_REQUEST.pack(family, number, 1 << (INET_DIAG_SKMEMINFO - 1), 1 << state)
            found.extend(_bound(protocol, body) for body in netlink.dump(SOCK_DIAG_BY_FAMILY, request))
    return found


def families(netlink: Any) -> Dict[str, int]:
    """The families of generic netlink that this kernel has, with their numbers. Raises OSError."""
    found = {}
    for body in netlink.dump(GENL_ID_CTRL, _GENERIC.pack(_CTRL_CMD_GETFAMILY, 1)):
        values = dict(attributes(body, _GENERIC.size))
        name = bytes(values[_CTRL_ATTR_FAMILY_NAME]).rstrip(b"\0").decode("utf-8", "backslashreplace")
        found[name] = int.from_bytes(values[_CTRL_ATTR_FAMILY_ID], sys.byteorder)
    return found


def attribute(kind: int, value: bytes, is_nested: bool = False) -> bytes:
    """One attribute of a request."""
    kind |= _IS_NESTED if is_nested else 0
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def whole(kind: int, body: memoryview) -> bytes:
    """A message with a header again, for a decoder that wants one."""
    return _HEADER.pack(_HEADER.size + len(body), kind, 0, 0, 0) + bytes(body)


def _bound(protocol: str, body: memoryview) -> BoundSocket:
    family, _, port, address, ifindex, waiting, inode = _DIAG.unpack_from(body)
    drops = None
    for kind, value in attributes(body, _DIAG.size):
        if kind == INET_DIAG_SKMEMINFO and len(value) >= 4 * (SK_MEMINFO_DROPS + 1):
            drops = struct.unpack_from("=I", value, 4 * SK_MEMINFO_DROPS)[0]
    size = 4 if family == socket.AF_INET else 16
    number = int.from_bytes(port, "big")
    return BoundSocket(protocol, family, address[:size], ifindex, number, inode, waiting, drops)
