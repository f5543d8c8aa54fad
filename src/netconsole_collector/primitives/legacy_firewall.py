"""Reads the rules of iptables-legacy: nftables does not know of them, and both may be in force.

It is of the namespace of the thread that calls it. Only tables that are in use are asked for, for a question makes a
table. Layouts: include/uapi/linux/netfilter_ipv4/ip_tables.h, netfilter_ipv6/ip6_tables.h.
"""

import ctypes
import os
import socket
import struct
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from netconsole_collector.primitives import files
from netconsole_collector.primitives.digests import Digest, digest, written

_GET_INFO, _GET_ENTRIES = 64, 65
_NAME_BYTES, _HOOKS = 32, 5
_INFO = struct.Struct("={}sI{}I{}III".format(_NAME_BYTES, _HOOKS, _HOOKS))
"""Name, valid hooks, where each begins, where its policy stands, number of entries, their bytes."""
_ENTRIES = struct.Struct("={}sI4x".format(_NAME_BYTES))
_MAX_BYTES = 8 << 20
_COUNTERS_BYTES = 16
_TARGET = struct.Struct("=H29sx")
"""Of struct xt_entry_target; what it does with a packet stands behind it."""
_STANDARD, _CHAIN_BEGINS, _DROP = b"", b"ERROR", -1
_CHAINS = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")


class _Family:
    """``entry``: where in an entry its offsets, its counters and its matches stand."""

    def __init__(self, names: bytes, family: int, level: int, offsets_at: int, counters_at: int) -> None:
        self.names, self.family, self.level = names, family, level
        self.offsets_at, self.counters_at = offsets_at, counters_at


FAMILIES = {
    "ipv4": _Family(b"ip_tables_names", socket.AF_INET, socket.IPPROTO_IP, 88, 96),
    "ipv6": _Family(b"ip6_tables_names", socket.AF_INET6, socket.IPPROTO_IPV6, 140, 152),
}


class LegacyRule(NamedTuple):
    """A rule that drops; ``number`` in its chain from 1 on, None: the policy of the chain."""

    table: str
    chain: str
    number: Optional[int]


def rules(family: str) -> Digest:
    """Of all tables, without what counts. Policies are rules, too. Raises OSError."""
    of, found = FAMILIES[family], []  # type: _Family, List[bytes]
    for name, _, entries in _tables(of):
        found += [
            written(0, name) + one[: of.counters_at] + one[of.counters_at + _COUNTERS_BYTES :] for _, one in entries
        ]
    return digest(found, in_order=True)


def dropped(family: str) -> Dict[LegacyRule, int]:
    """What each rule that drops or rejects has counted. Raises OSError."""
    of, found = FAMILIES[family], {}  # type: _Family, Dict[LegacyRule, int]
    for name, info, entries in _tables(of):
        begins = {info[2 + hook]: chain for hook, chain in enumerate(_CHAINS) if info[1] >> hook & 1}
        policies = {info[2 + _HOOKS + hook] for hook in range(_HOOKS) if info[1] >> hook & 1}
        chain, number = "", 0
        for at, entry in entries:
            if at in begins:
                chain, number = begins[at], 0
            target_at = struct.unpack_from("=H", entry, of.offsets_at)[0]
            if target_at + _TARGET.size + 4 > len(entry):
                continue
            target = _TARGET.unpack_from(entry, target_at)[1].partition(b"\0")[0]
            if target == _CHAIN_BEGINS:
                chain, number = _text(entry[target_at + _TARGET.size :]), 0
                continue
            number += 1
            verdict = struct.unpack_from("=i", entry, target_at + _TARGET.size)[0]
            if target == b"REJECT" or (target == _STANDARD and verdict == _DROP):
                rule = LegacyRule(_text(name), chain, None if at in policies else number)
                found[rule] = struct.unpack_from("=Q", entry, of.counters_at)[0]
    return found


def _text(name: bytes) -> str:
    return name.partition(b"\0")[0].decode("utf-8", "backslashreplace")


def _tables(of: _Family) -> Iterator[Tuple[bytes, Tuple[int, ...], List[Tuple[int, bytes]]]]:
    """Name, what the kernel says of its chains, and entries of each, with where they stand."""
    try:
        names = files.read(b"/proc/thread-self/net/" + of.names, 4096).split()
    except FileNotFoundError:
        return  # the kernel has no such firewall, or it is not loaded
    if not names:
        return
    asking = socket.socket(of.family, socket.SOCK_RAW, socket.IPPROTO_RAW)
    try:
        for name in sorted(names):
            info = _INFO.unpack(_asked(asking, of, _GET_INFO, name, _INFO.size))
            yield name, info, list(_entries(asking, of, name, info[-1]))
    finally:
        asking.close()


def _entries(asking: socket.socket, of: _Family, name: bytes, size: int) -> Iterator[Tuple[int, bytes]]:
    if size > _MAX_BYTES:
        raise OSError(0, "more than {} MB of rules".format(_MAX_BYTES >> 20))
    answer = _asked(asking, of, _GET_ENTRIES, name, _ENTRIES.size + size, size)[_ENTRIES.size :]
    at = 0
    while at + of.counters_at + _COUNTERS_BYTES <= len(answer):
        length = struct.unpack_from("=H", answer, at + of.offsets_at + 2)[0]
        if length < of.counters_at + _COUNTERS_BYTES:
            return
        yield at, answer[at : at + length]
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
