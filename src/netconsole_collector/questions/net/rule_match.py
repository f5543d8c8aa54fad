"""Whether a rule of nftables can match a packet of which a few fields are known.

Layouts: include/uapi/linux/netfilter/nf_tables.h. What is not understood may match.
"""

import re
import socket
import struct
from typing import Dict, Tuple

from netconsole_collector.primitives.netlink import attributes
from netconsole_collector.questions.known import Json
from netconsole_collector.questions.net.rtnetlink import family_of, packed

_TRANSPORTS = {"ICMP": 1, "TCP": 6, "UDP": 17, "ICMPv6": 58, "SCTP": 132}
_META, _NETWORK, _TRANSPORT = -1, 1, 2  # no header; NFT_PAYLOAD_NETWORK_HEADER, _TRANSPORT_HEADER
_NFPROTO, _L4PROTO = 15, 16  # enum nft_meta_keys
_EQUAL, _DIFFERENT = 0, 1
_ADDRESSES_AT: Dict[int, Tuple[int, int]] = {socket.AF_INET: (12, 16), socket.AF_INET6: (8, 24)}
_HARMLESS = ("counter", "immediate", "reject", "target", "log", "notrack")
"""Expressions that end no rule: what was counted before them is dropped."""
_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./-]*\Z")

Packet = Dict[Tuple[int, int], int]
"""The bytes that are known: by header and place."""


def is_plain(name: str) -> bool:
    """Whether nft(8) reads it as one name. By netlink, chains and tables can be named as anybody likes."""
    return _PLAIN.match(name) is not None


def packet_of(arguments: Json) -> Packet:
    """By ``transport``, ``source``, ``target``, ``source_port``, ``target_port``, those that are known."""
    known: Packet = {}
    transport = _TRANSPORTS.get(str(arguments.get("transport")))
    if transport is not None:
        known[_META, _L4PROTO] = transport
    for at, name in enumerate(("source_port", "target_port")):
        port = arguments.get(name)
        if isinstance(port, int) and 0 <= port <= 0xFFFF:
            known.update(_bytes(_TRANSPORT, 2 * at, struct.pack("!H", port)))
    for at, name in enumerate(("source", "target")):
        try:
            address = packed(str(arguments.get(name)))
        except ValueError:
            continue
        family = family_of(str(arguments.get(name)))
        known[_META, _NFPROTO] = int(family)
        known.update(_bytes(_NETWORK, _ADDRESSES_AT[family][at], address))
    return known


def _bytes(header: int, start: int, value: bytes) -> Packet:
    return {(header, start + at): one for at, one in enumerate(value)}


class RuleMatch:
    """The expressions of one rule, one after the other."""

    def __init__(self, packet: Packet) -> None:
        self._packet = packet
        self._loaded: Dict[bytes, Tuple[int, int]] = {}
        self.is_possible = True
        """Whether nothing speaks against it so far."""
        self.is_certain = True
        """Whether all that it asks for is known to be so."""

    def narrows(self, name: str, data: Dict[int, bytes]) -> bool:
        """Take an expression. Whether some packets may fail it."""
        if name == "meta":
            self._load(data, (_META, int.from_bytes(data.get(2, b""), "big")))
        elif name == "payload":
            header, start = (int.from_bytes(data.get(kind, b""), "big") for kind in (2, 3))
            self._load(data, (header, start))
        elif name == "cmp":
            self._compare(data)
        else:
            self._loaded.clear()  # it may have changed what was loaded
            self.is_certain = self.is_certain and name in _HARMLESS
        return name not in _HARMLESS

    def _load(self, data: Dict[int, bytes], place: Tuple[int, int]) -> None:
        register = data.get(1)
        if register is None:
            self._loaded.clear()  # it writes to the packet
        else:
            self._loaded[register] = place

    def _compare(self, data: Dict[int, bytes]) -> None:
        place = self._loaded.get(data.get(1, b""))
        value = dict(attributes(data.get(3, b""), 0)).get(1, b"")
        found = [self._packet.get((place[0], place[1] + at)) for at in range(len(value))] if place is not None else []
        operation = int.from_bytes(data.get(2, b""), "big")
        if not found or None in found or operation not in (_EQUAL, _DIFFERENT):
            self.is_certain = False
            return
        is_equal = found == list(value)
        if (operation == _EQUAL and not is_equal) or (operation == _DIFFERENT and is_equal):
            self.is_possible = False
