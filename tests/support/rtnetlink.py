"""Messages of the kernel about links and queueing disciplines (rtnetlink), as tests make them up."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from netconsole_collector.primitives.netlink import Netlink


def attribute(kind: int, value: bytes) -> bytes:
    """An attribute (struct rtattr), padded to four bytes."""
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def number(kind: int, value: int) -> bytes:
    """An attribute of 32 bits."""
    return attribute(kind, struct.pack("=I", value))


def link_message(index: int, name: bytes, is_up: bool = True, carrier: bool = True, *more: bytes) -> memoryview:
    """What the kernel says of a link; ``more`` are attributes beside its name and its carrier."""
    head = struct.pack("=BxHiII", socket.AF_UNSPEC, 1, index, int(is_up), 0)
    return memoryview(head + attribute(3, name + b"\0") + attribute(33, bytes([carrier])) + b"".join(more))


def qdisc_message(
    index: int,
    kind: str,
    options: bytes = b"",
    parent: int = 0xFFFFFFFF,
    drops: int = 0,
    queue: tuple[int, int, int, int] = (1, 2, 4, 5),
) -> memoryview:
    """What it says of a queueing discipline.

    ``queue``: packets and bytes that wait, requeues and overlimits (struct gnet_stats_queue).
    """
    head = struct.pack("=BxxxiIII", 0, index, 0x10000, parent, 0)
    told = attribute(3, struct.pack("=IIIII", queue[0], queue[1], drops, *queue[2:]))
    return memoryview(
        head + attribute(1, kind.encode() + b"\0") + attribute(2 | 0x8000, options) + attribute(7 | 0x8000, told)
    )


def rate_spec(bytes_per_s: int) -> bytes:
    """The rate of a shaper (struct tc_ratespec)."""
    return struct.pack("=BBHhHI", 0, 1, 0, -1, 0, bytes_per_s)


class Answers(Netlink):
    """Answers dumps with what it is given."""

    def __init__(self, *bodies: memoryview) -> None:
        self.bodies = bodies

    def dump(self, kind: int, request: bytes) -> Iterator[memoryview]:
        return iter(self.bodies)

    def ask(self, kind: int, request: bytes) -> memoryview:
        if not self.bodies:
            raise PermissionError
        return self.bodies[0]
