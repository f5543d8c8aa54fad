"""TCP sockets whose program does not read: the window is closed, so the peer can send nothing more.

Sockets are listed only in a namespace where a counter says that a window closed, until none is closed there.
"""

import socket
import struct
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Union

from netconsole_collector.primitives.here import Here
from netconsole_collector.primitives.netlink import Netlink, attributes
from netconsole_collector.sources.base import Json, Pace, RowLabels, RowMaker, SourceReading, SourceRow
from netconsole_collector.sources.net.netlink_messages import (
    INET_DIAG_SKMEMINFO,
    NETLINK_SOCK_DIAG,
    SOCK_DIAG_BY_FAMILY,
)

SIGNS = ("TcpExtTCPToZeroWindowAdv", "TcpExtTCPWantZeroWindowAdv", "TcpExtTCPFromZeroWindowAdv")
"""Windows that were closed, that were to be closed, and that opened again (net/ipv4/tcp_output.c)."""
MAX_ROWS = 64
MAX_LISTED = 20000
"""Sockets of a namespace that are looked at."""
ROOM = 16
"""The kernel closes the window when less than this part of the buffer is free (__tcp_select_window)."""
AFTER_NS = 4000000000
"""A program that reads in between is only slow."""
_REQUEST = struct.Struct("=BBBxI48x")
_STATES = 1 << 1 | 1 << 4 | 1 << 5  # ESTABLISHED, FIN_WAIT1, FIN_WAIT2: the peer may still send
_SOCKET = struct.Struct("=BBxx2s2s16x16s4xQ4xI4x4xI")
"""Family, state, ports, address of the peer, cookie, receive queue, inode of struct inet_diag_msg."""
_INFO = 2  # INET_DIAG_INFO
_RECEIVED, _WINDOW = (struct.Struct("=128xQ"), struct.Struct("=232xI"))
"""tcpi_bytes_received, and tcpi_rcv_wnd, which kernels have since 6.2."""
_MEMORY = struct.Struct("=II")
_NOT_ACCEPTED = 0
"""The inode of a connection that no program has taken yet."""


class FullSocket(NamedTuple):
    """``taken``: the bytes that its program has read so far."""

    cookie: int
    inode: int
    port: int
    peer: str
    peer_port: int
    waiting: int
    taken: int


class _Unread(NamedTuple):
    socket: FullSocket
    since_ns: int


class UnreadSockets:
    """In all namespaces that somebody tells of. Used from one thread."""

    def __init__(self, host: Here) -> None:
        self._host = host
        self._rows = RowMaker((), MAX_ROWS)
        self._counted: Dict[int, Sequence[int]] = {}
        self._suspects: Set[int] = set()
        self._full: Dict[int, Dict[int, _Unread]] = {}
        """By namespace and cookie."""
        self._owners: Dict[int, str] = {}
        self._pace = Pace()
        self._is_told = False

    def counted(self, namespace: int, signs: Sequence[int]) -> None:
        """Take note of the counters of a namespace, in the order of SIGNS."""
        (closed, wanted, opened), before = signs, self._counted.get(namespace)
        self._counted[namespace] = signs
        if closed > opened if before is None else (closed > before[0] or wanted > before[1]):
            self._suspects.add(namespace)

    def forget(self, namespace: int) -> None:
        """It is gone."""
        self._suspects.discard(namespace)
        for known in (self._counted, self._full):
            known.pop(namespace, None)

    def table(
        self, probe: str, reading: SourceReading, paths: Mapping[int, str], names: Mapping[int, str]
    ) -> List[Json]:
        """A row for each socket that has been full for AFTER_NS while nothing was read from it; before one is: nothing.

        ``paths``: what leads to each namespace whose counters are read; "" to the own one.
        """
        is_due = self._pace.is_due(reading.is_whole)
        self._counted = {one: signs for one, signs in self._counted.items() if one in paths}
        if self._suspects and is_due:
            began = self._host.cpu_s()
            self._look(reading.mono_ns, paths)
            self._pace.took(self._host.cpu_s() - began, reading.interval_ns)
        self._is_told = self._is_told or bool(self._owners)
        if not self._is_told:
            return []
        return [reading.table(probe, "unread", self._rows.rows(self._readings(names, reading.mono_ns)))]

    def _look(self, now_ns: int, paths: Mapping[int, str]) -> None:
        looked = [(paths[one], one) for one in sorted(self._suspects) if one in paths]
        found = dict(zip((one for _, one in looked), self._host.each_inside(looked, full_sockets)))
        before, self._full = self._full, {}
        for namespace, sockets in found.items():
            if isinstance(sockets, OSError) or not sockets:
                continue
            known = before.get(namespace, {})
            self._full[namespace] = {
                one.cookie: _Unread(one, _since(known.get(one.cookie), one, now_ns)) for one in sockets
            }
        self._suspects = set(self._full)
        every = [one for full in self._full.values() for one in full.values()]
        wanted = {one.socket.inode for one in every if now_ns - one.since_ns >= AFTER_NS}
        new = wanted - self._owners.keys()
        self._owners = {inode: process for inode, process in self._owners.items() if inode in wanted}
        if new:
            found = {_NOT_ACCEPTED: "the listening program", **self._host.owners(new - {_NOT_ACCEPTED})}
            self._owners.update({inode: found.get(inode, "a program") for inode in new})

    def _readings(self, names: Mapping[int, str], now_ns: int) -> Iterator[SourceRow]:
        for namespace, full in self._full.items():
            for one in full.values():
                if one.socket.inode not in self._owners:
                    continue  # it was read a moment ago
                labels: RowLabels = {
                    "process": self._owners[one.socket.inode],
                    "port": one.socket.port,
                    "peer": one.socket.peer,
                    "peer_port": one.socket.peer_port,
                    "netns": names.get(namespace, str(namespace)),
                }
                unread_s = (now_ns - one.since_ns) // 1000000000
                yield labels, (), {"waiting": one.socket.waiting, "unread_s": unread_s}


def _since(before: Optional[_Unread], now: FullSocket, now_ns: int) -> int:
    return before.since_ns if before is not None and before.socket.taken == now.taken else now_ns


def full_sockets() -> List[FullSocket]:
    """Of the namespace of the calling thread: those of TCP without room for more. Raises OSError."""
    extensions = 1 << (_INFO - 1) | 1 << (INET_DIAG_SKMEMINFO - 1)
    found: List[FullSocket] = []
    netlink = Netlink(NETLINK_SOCK_DIAG)
    try:
        for family in (socket.AF_INET, socket.AF_INET6):
            request = _REQUEST.pack(family, socket.IPPROTO_TCP, extensions, _STATES)
            for count, body in enumerate(netlink.dump(SOCK_DIAG_BY_FAMILY, request)):
                if count >= MAX_LISTED:
                    break
                one = _full(body)
                if one is not None:
                    found.append(one)
    finally:
        netlink.close()
    return found


def _full(body: Union[bytes, memoryview]) -> Optional[FullSocket]:
    family, _, port, peer_port, peer, cookie, waiting, inode = _SOCKET.unpack_from(body)
    if not waiting:
        return None
    values = dict(attributes(bytes(body), _SOCKET.size))
    memory, info = values.get(INET_DIAG_SKMEMINFO, b""), values.get(_INFO, b"")
    if len(memory) < _MEMORY.size or len(info) < _RECEIVED.size:
        return None  # a kernel that does not tell
    used, limit = _MEMORY.unpack_from(memory)
    is_closed = len(info) >= _WINDOW.size and _WINDOW.unpack_from(info) == (0,)
    if not is_closed and (limit - used) * ROOM >= limit:
        return None
    received = _RECEIVED.unpack_from(info)[0]
    text = socket.inet_ntop(family, peer[: 4 if family == socket.AF_INET else 16])
    ports = int.from_bytes(port, "big"), int.from_bytes(peer_port, "big")
    return FullSocket(cookie, inode, ports[0], text, ports[1], waiting, received - waiting)
