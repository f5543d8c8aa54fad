"""Whether a rule of nftables can match a packet of which a few fields are known.

Layouts: include/uapi/linux/netfilter/nf_tables.h. What is not understood may match.
"""

import operator
import re
import socket
import struct
from typing import Dict, List, NamedTuple, Optional, Tuple

from netconsole_collector.primitives.netlink import attributes
from netconsole_collector.questions.known import Json
from netconsole_collector.questions.net.rtnetlink import family_of, packed

_TRANSPORTS = {"ICMP": 1, "TCP": 6, "UDP": 17, "ICMPv6": 58, "SCTP": 132}
_META, _NETWORK, _TRANSPORT = -1, 1, 2  # no header; NFT_PAYLOAD_NETWORK_HEADER, _TRANSPORT_HEADER
_NFPROTO, _L4PROTO = 15, 16  # enum nft_meta_keys
_COMPARE = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)  # enum nft_cmp_ops
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


class _Loaded(NamedTuple):
    """What is in a register: bytes of the packet from a place on, some bits of them, others turned over."""

    header: int
    start: int
    mask: bytes = b""
    turned: bytes = b""

    def of(self, packet: Packet, size: int) -> Optional[List[int]]:
        """None where a byte is not known."""
        found = [packet.get((self.header, self.start + at)) for at in range(size)]
        known = [one for one in found if one is not None]
        if len(known) < size or (self.mask and not len(self.mask) == len(self.turned) == size):
            return None
        if not self.mask:
            return known
        return [one & bits ^ other for one, bits, other in zip(known, self.mask, self.turned)]


class RuleMatch:
    """The expressions of one rule, one after the other."""

    def __init__(self, packet: Packet) -> None:
        self._packet = packet
        self._loaded: Dict[bytes, _Loaded] = {}
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
        elif name == "bitwise":
            self._mask(data)
        else:
            self._loaded.clear()  # it may have changed what was loaded
            self.is_certain = self.is_certain and name in _HARMLESS
        return name not in _HARMLESS

    def _load(self, data: Dict[int, bytes], place: Tuple[int, int]) -> None:
        register = data.get(1)
        if register is None:
            self._loaded.clear()  # it writes to the packet
        else:
            self._loaded[register] = _Loaded(*place)

    def _mask(self, data: Dict[int, bytes]) -> None:
        """Of NFT_BITWISE_MASK_XOR, which is the only operation of kernels before 5.6."""
        loaded = self._loaded.pop(data.get(1, b""), None)
        mask, turned = (dict(attributes(data.get(kind, b""), 0)).get(1, b"") for kind in (4, 5))
        if loaded is None or loaded.mask or not mask or any(data.get(6, b"")) or 2 not in data:
            self._loaded.clear()
        else:
            self._loaded[data[2]] = loaded._replace(mask=mask, turned=turned)

    def _compare(self, data: Dict[int, bytes]) -> None:
        loaded = self._loaded.get(data.get(1, b""))
        value = dict(attributes(data.get(3, b""), 0)).get(1, b"")
        found = loaded.of(self._packet, len(value)) if loaded is not None and value else None
        how = int.from_bytes(data.get(2, b""), "big")
        if found is None or how >= len(_COMPARE):
            self.is_certain = False
        elif not _COMPARE[how](found, list(value)):
            self.is_possible = False
