"""Frames for the second end of a wire, right or wrong in one place."""

from __future__ import annotations

import ipaddress
import struct

from tests.support.live.network import Wire

A, B = Wire.ADDRESSES
A6, B6 = Wire.ADDRESSES6
ELSEWHERE, ELSEWHERE6 = "203.0.113.7", "2001:db8:99::7"
"""Addresses of nobody."""
SYN = 2


def checksum(data: bytes) -> int:
    """Of the internet protocols (RFC 1071)."""
    data += bytes(len(data) % 2)
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ethernet(kind: int, payload: bytes) -> bytes:
    macs = Wire.MACS[1].replace(":", "") + Wire.MACS[0].replace(":", "")
    return bytes.fromhex(macs) + struct.pack(">H", kind) + payload


def ipv4(
    payload: bytes,
    protocol: int = 17,
    source: str = A,
    target: str = B,
    version: int = 4,
    ttl: int = 64,
    flags: int = 0,
    spoil: int = 0,
    identity: int = 7,
) -> bytes:
    """``flags``: those of fragments, with the offset; ``spoil`` is added to the header's checksum."""
    addresses = ipaddress.ip_address(source).packed + ipaddress.ip_address(target).packed
    head = (
        struct.pack(">BBHHHBBH", version << 4 | 5, 0, 20 + len(payload), identity, flags, ttl, protocol, 0) + addresses
    )
    return ethernet(0x0800, head[:10] + struct.pack(">H", (checksum(head) + spoil) & 0xFFFF) + head[12:] + payload)


def ipv6(
    payload: bytes,
    following: int = 17,
    target: str = B6,
    version: int = 6,
    hops: int = 64,
    longer: int = 0,
    source: str = A6,
) -> bytes:
    """``longer``: so much more than there is."""
    addresses = ipaddress.ip_address(source).packed + ipaddress.ip_address(target).packed
    head = struct.pack(">IHBB", version << 28, len(payload) + longer, following, hops)
    return ethernet(0x86DD, head + addresses + payload)


def arp(source: str, target: str) -> bytes:
    """A question for the address."""
    mac = bytes.fromhex(Wire.MACS[0].replace(":", ""))
    sender, wanted = (ipaddress.ip_address(one).packed for one in (source, target))
    return ethernet(0x0806, struct.pack(">HHBBH", 1, 0x0800, 6, 4, 1) + mac + sender + bytes(6) + wanted)


def udp(port: int, wrong: int = 0, source: str = A, target: str = B) -> bytes:
    """``wrong``: a checksum that is not right; 0 for the right one."""
    return _checked(struct.pack(">HHHH", 4000, port, 16, 0) + bytes(8), 6, 17, wrong, source, target)


def udp_lite(port: int, wrong: int = 0, source: str = A, target: str = B) -> bytes:
    """All of it is covered by the checksum."""
    return _checked(struct.pack(">HHHH", 4000, port, 0, 0) + bytes(8), 6, 136, wrong, source, target)


def fragment6(identity: int) -> bytes:
    """The first piece of a packet, behind its header (following: 44)."""
    return struct.pack(">BBHI", 17, 0, 1, identity) + bytes(16)


def tcp(
    port: int,
    source_port: int = 4000,
    options: bytes = b"",
    source: str = A,
    wrong: int = 0,
    flags: int = SYN,
    target: str = B,
) -> bytes:
    """A segment without data, of which each flag is a bit (RFC 9293, 3.1)."""
    words = 5 + len(options) // 4
    segment = struct.pack(">HHIIBBHHH", source_port, port, 1, 0, words << 4, flags, 1024, 0, 0) + options
    return _checked(segment, 16, 6, wrong, source, target)


def echo(size: int) -> bytes:
    """An echo request of ICMP with so many bytes."""
    request = bytes([8, 0, 0, 0, 0, 1, 0, 1]) + bytes(size)
    return request[:2] + struct.pack(">H", checksum(request)) + request[4:]


def echo6(size: int) -> bytes:
    """The same of ICMPv6."""
    return _checked(bytes([128, 0, 0, 0, 0, 1, 0, 1]) + bytes(size), 2, 58, 0, A6, B6)


def _checked(segment: bytes, at: int, protocol: int, wrong: int, source: str, target: str) -> bytes:
    ends = ipaddress.ip_address(source).packed + ipaddress.ip_address(target).packed
    right = checksum(ends + struct.pack(">II", len(segment), protocol) + segment) or 0xFFFF
    return segment[:at] + struct.pack(">H", wrong or right) + segment[at + 2 :]
