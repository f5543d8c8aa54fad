"""Reads the rules of iptables-legacy: nftables does not know of them, and both may be in force.

It is of the namespace of the thread that calls it. Only tables that are in use are asked for, for a question makes a
table. Layouts: include/uapi/linux/netfilter_ipv4/ip_tables.h, netfilter_ipv6/ip6_tables.h.
"""

import ctypes
import os
import socket
import struct
from typing import Iterator, List

from netconsole_collector.primitives import files
from netconsole_collector.primitives.digests import Digest, digest, written

_GET_INFO, _GET_ENTRIES = 64, 65
_NAME_BYTES, _HOOKS = 32, 5
_INFO = struct.Struct("={}sI{}I{}III".format(_NAME_BYTES, _HOOKS, _HOOKS))
"""Name, valid hooks, where each begins, where its policy stands, number of entries, their bytes."""
_ENTRIES = struct.Struct("={}sI4x".format(_NAME_BYTES))
_MAX_BYTES = 8 << 20
_COUNTERS_BYTES = 16


class _Family:
    """``entry``: where in an entry its offsets, its counters and its matches stand."""

    def __init__(self, names: bytes, family: int, level: int, offsets_at: int, counters_at: int) -> None:
        self.names, self.family, self.level = names, family, level
        self.offsets_at, self.counters_at = offsets_at, counters_at


FAMILIES = {
    "ipv4": _Family(b"ip_tables_names", socket.AF_INET, socket.IPPROTO_IP, 88, 96),
    "ipv6": _Family(b"ip6_tables_names", socket.AF_INET6, socket.IPPROTO_IPV6, 140, 152),
}


def rules(family: str) -> Digest:
    """Of all tables, without what counts. Policies are rules, too. Raises OSError."""
    of = FAMILIES[family]
    try:
        names = files.read(b"/proc/thread-self/net/" + of.names, 4096).split()
    except FileNotFoundError:
        names = []  # the kernel has no such firewall, or it is not loaded
    found: List[bytes] = []
    if names:
        asking = socket.socket(of.family, socket.SOCK_RAW, socket.IPPROTO_RAW)
        try:
            for name in sorted(names):
                found += [written(0, name) + one for one in _table(asking, of, name)]
        finally:
            asking.close()
    return digest(found, in_order=True)


def _table(asking: socket.socket, of: _Family, name: bytes) -> Iterator[bytes]:
    info = _INFO.unpack(_asked(asking, of, _GET_INFO, name, _INFO.size))
    size = info[-1]
    if size > _MAX_BYTES:
        raise OSError(0, "more than {} MB of rules".format(_MAX_BYTES >> 20))
    answer = _asked(asking, of, _GET_ENTRIES, name, _ENTRIES.size + size, size)[_ENTRIES.size :]
    at = 0
    while at + of.counters_at + _COUNTERS_BYTES <= len(answer):
        length = struct.unpack_from("=H", answer, at + of.offsets_at + 2)[0]
        if length < of.counters_at + _COUNTERS_BYTES:
            return
        entry = answer[at : at + length]
        yield entry[: of.counters_at] + entry[of.counters_at + _COUNTERS_BYTES :]
        at += length


def _asked(asking: socket.socket, of: _Family, what: int, name: bytes, room: int, size: int = 0) -> bytes:
    """Python's getsockopt gives no question along."""
    answer = ctypes.create_string_buffer(_ENTRIES.pack(name, size).ljust(room, b"\0"), room)
    length = ctypes.c_uint32(room)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.getsockopt(asking.fileno(), of.level, what, answer, ctypes.byref(length)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer.raw[: length.value]
