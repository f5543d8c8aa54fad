"""Connections of this host that wait for a window, from what sock_diag tells of each."""

from __future__ import annotations

import socket
import struct
from typing import Any

from netconsole_collector.sources.net.windows import MAX_SENDERS, SendingConnection, senders

PEER = "192.0.2.9"


def told(
    peer: str, port: int, busy_us: int, window_us: int, buffer_us: int = 0, last_ms: int = 0, cut: int = 0
) -> bytes:
    """struct inet_diag_msg with struct tcp_info behind it."""
    ids = struct.pack(">HH16s16s", port, 5201, b"", socket.inet_aton(peer)) + struct.pack("=III", 0, 1, 2)
    message = struct.pack("=BBBB", socket.AF_INET, 1, 0, 0) + ids + bytes(20)
    info = bytearray(232)
    struct.pack_into("=I", info, 44, last_ms)
    struct.pack_into("=I", info, 68, 20_000)
    struct.pack_into("=QQQ", info, 168, busy_us, window_us, buffer_us)
    content = bytes(info[: len(info) - cut])
    return message + struct.pack("=HH", 4 + len(content), 2) + content


class Dump:
    """Stands for netlink."""

    def __init__(self, *bodies: bytes) -> None:
        self.bodies = bodies

    def dump(self, kind: int, request: bytes) -> list[bytes]:
        assert len(request) == 56
        return list(self.bodies)


def found(*bodies: bytes) -> list[SendingConnection]:
    netlink: Any = Dump(*bodies)
    return senders(netlink, {PEER})


def test_shares_are_of_the_time_in_which_it_has_something_to_send() -> None:
    (one,) = found(told(PEER, 40000, 4_000_000, 3_000_000, 400_000), told("192.0.2.8", 1, 9_000_000, 9_000_000))
    assert one == SendingConnection(PEER, 5201, 40000, 4_000_000, 75.0, 10.0, 20_000)


def test_what_was_busy_for_less_than_a_second_or_rests_or_is_not_counted_says_nothing() -> None:
    assert (
        found(told(PEER, 1, 999_999, 1), told(PEER, 2, 2_000_000, 1, last_ms=5001), told(PEER, 3, 2_000_000, 1, cut=60))
        == []
    )


def test_the_busiest_come_first_and_there_is_an_end() -> None:
    ports = [one.port for one in found(*(told(PEER, port, 1_000_000 + port, 0) for port in range(MAX_SENDERS + 9)))]
    assert ports == list(range(MAX_SENDERS + 8, 8, -1))
