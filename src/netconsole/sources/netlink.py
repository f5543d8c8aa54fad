"""The netlink dumps that the sources need, parsed with `struct` alone: root qdiscs and bound sockets.

pyroute2 would do it, but importing it takes 23 MB and 0.1 s, and its dump of 1000 interfaces 0.2 s of CPU: more than
the whole console may use. These are fixed layouts of the kernel's user API (include/uapi/linux/netlink.h, rtnetlink.h,
pkt_sched.h, gen_stats.h, inet_diag.h, sock_diag.h).
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

RTM_GETQDISC = 38
SOCK_DIAG_BY_FAMILY = 20
NETLINK_SOCK_DIAG = 4
NLM_F_REQUEST_DUMP = 0x301
NLMSG_ERROR = 2
NLMSG_DONE = 3
TC_H_ROOT = 0xFFFFFFFF
TCA_KIND = 1
TCA_STATS2 = 7
TCA_STATS_QUEUE = 3
TCP_CLOSE = 7
TCP_LISTEN = 10
INET_DIAG_SKMEMINFO = 7
SK_MEMINFO_DROPS = 8
_ATTRIBUTE_TYPE = 0x3FFF
_RECEIVE_BYTES = 256 * 1024
_TIMEOUT_S = 2.0

_HEADER = struct.Struct("=IHHII")
_TCMSG = struct.Struct("=BxxxiIII")
_ATTRIBUTE = struct.Struct("=HH")
_QUEUE = struct.Struct("=IIIII")
_CODE = struct.Struct("=i")
_DIAG_REQUEST = struct.Struct("=BBBxI48x")
# family, state, local port, local address, interface, receive queue, inode of struct inet_diag_msg
_DIAG = struct.Struct("=BBxx2s2x16s16xI8x4xI4x4xI")


@dataclass(frozen=True, slots=True)
class Qdisc:
    """The root qdisc of a device: packets and bytes waiting, and what it did since it was made."""

    ifindex: int
    kind: str
    backlog_packets: int
    backlog_bytes: int
    drops: int
    requeues: int
    overlimits: int


@dataclass(frozen=True, slots=True)
class BoundSocket:
    """A socket that is bound and not connected: what waits (UDP: bytes, TCP: connections), drops since it was made.

    ``ifindex`` is that of the interface that it is bound to, 0 of none. ``drops`` is None on kernels that do not tell.
    """

    protocol: str
    family: int
    address: bytes
    ifindex: int
    port: int
    inode: int
    waiting: int
    drops: int | None


class Netlink:
    """One netlink socket that makes dumps, one after another."""

    def __init__(self, protocol: int) -> None:
        """``protocol`` as in socket.NETLINK_ROUTE. Raises OSError."""
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.bind((0, 0))
        self._socket.settimeout(_TIMEOUT_S)
        self._number = 0
        self._room = memoryview(bytearray(_RECEIVE_BYTES))  # once: a new one each time would leave holes in the heap

    def dump(self, kind: int, request: bytes) -> Iterator[memoryview]:
        """The bodies of the messages that answer, each good until the next. Raises OSError, also when it is refused."""
        self._number += 1
        length = _HEADER.size + len(request)
        self._socket.send(_HEADER.pack(length, kind, NLM_F_REQUEST_DUMP, self._number, 0) + request)
        while True:
            received = self._socket.recv_into(self._room)
            for answered, number, body in _messages(self._room[:received]):
                if number != self._number:
                    continue
                if answered in (NLMSG_DONE, NLMSG_ERROR):  # both end it, with 0 or what went wrong
                    code = -_CODE.unpack_from(body)[0] if len(body) >= _CODE.size else 0
                    if code > 0:
                        raise OSError(code, os.strerror(code))
                    return
                yield body

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def qdiscs(netlink: Netlink) -> list[Qdisc]:
    """Root qdiscs of this network namespace; a root's figures hold its children's (net/sched/sch_mq.c, mq_dump_common).

    Raises OSError.
    """
    request = _TCMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    return [qdisc for body in netlink.dump(RTM_GETQDISC, request) if (qdisc := _root(body)) is not None]


def bound_sockets(netlink: Netlink) -> list[BoundSocket]:
    """UDP sockets that are not connected, and TCP listeners, of this network namespace. Raises OSError.

    The kernel filters by state, so that connections cost nothing; /proc/net/tcp walks them all (4 ms when empty).
    """
    found: list[BoundSocket] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        for protocol, number, state in (
            ("udp", socket.IPPROTO_UDP, TCP_CLOSE),
            ("tcp", socket.IPPROTO_TCP, TCP_LISTEN),
        ):
            request = _DIAG_REQUEST.pack(family, number, 1 << (INET_DIAG_SKMEMINFO - 1), 1 << state)
            found.extend(_bound(protocol, body) for body in netlink.dump(SOCK_DIAG_BY_FAMILY, request))
    return found


def _messages(chunk: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    offset = 0
    while offset + _HEADER.size <= len(chunk):
        length, kind, _, number, _ = _HEADER.unpack_from(chunk, offset)
        if length < _HEADER.size or offset + length > len(chunk):
            return
        yield kind, number, chunk[offset + _HEADER.size : offset + length]
        offset += (length + 3) & ~3


def attributes(body: memoryview, offset: int) -> Iterator[tuple[int, memoryview]]:
    while offset + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, offset)
        if length < _ATTRIBUTE.size or offset + length > len(body):
            return
        yield kind & _ATTRIBUTE_TYPE, body[offset + _ATTRIBUTE.size : offset + length]
        offset += (length + 3) & ~3


def _root(body: memoryview) -> Qdisc | None:
    _, ifindex, _, parent, _ = _TCMSG.unpack_from(body)
    if parent != TC_H_ROOT:
        return None
    name = ""
    for kind, value in attributes(body, _TCMSG.size):
        if kind == TCA_KIND:
            name = bytes(value).rstrip(b"\0").decode("ascii", "replace")
        elif kind == TCA_STATS2:
            for statistic, figures in attributes(value, 0):
                if statistic == TCA_STATS_QUEUE and len(figures) >= _QUEUE.size:
                    packets, waiting, drops, requeues, overlimits = _QUEUE.unpack_from(figures)
                    return Qdisc(ifindex, name, packets, waiting, drops, requeues, overlimits)
    return None


def _bound(protocol: str, body: memoryview) -> BoundSocket:
    family, _, port, address, ifindex, waiting, inode = _DIAG.unpack_from(body)
    drops = None
    for kind, value in attributes(body, _DIAG.size):
        if kind == INET_DIAG_SKMEMINFO and len(value) >= 4 * (SK_MEMINFO_DROPS + 1):
            drops = struct.unpack_from("=I", value, 4 * SK_MEMINFO_DROPS)[0]
    size = 4 if family == socket.AF_INET else 16
    number = int.from_bytes(port, "big")
    return BoundSocket(protocol, family, address[:size], ifindex, number, inode, waiting, drops)
